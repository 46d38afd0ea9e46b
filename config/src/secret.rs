//! A value that must not reach logs, REST answers or error texts.

use std::fmt;

use serde::{Serialize, Serializer};
use serde_json::Value as Json;
use serde_yaml_ng::Value as Yaml;

use crate::field::{Field, Reader, Shape};

pub(crate) const HIDDEN: &str = "***";

/// Hides its content from `Debug`, `Display` and `Serialize`. The only way in is [`Secret::expose`], which is easy to search for in a review.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret<T>(T);

impl<T> Secret<T> {
    pub fn new(value: T) -> Secret<T> {
        Secret(value)
    }

    pub fn expose(&self) -> &T {
        &self.0
    }
}

impl<T> fmt::Debug for Secret<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

impl<T> fmt::Display for Secret<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

impl<T> Serialize for Secret<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(HIDDEN)
    }
}

impl Field for Secret<String> {
    fn read(&mut self, value: &Yaml, reader: &mut Reader) {
        match value {
            Yaml::String(text) => self.0.clone_from(text),
            // The message must not repeat the value.
            _ => reader.problem("must be text: put the secret in quotes, or refer to it as ${NAME} or ${file:/path}"),
        }
    }

    fn show(&self) -> Json {
        Json::String(HIDDEN.to_owned())
    }

    fn shape() -> Shape {
        Shape::of([("type", Json::from("string")), ("writeOnly", Json::from(true))])
    }
}

#[cfg(test)]
mod tests {
    use super::Secret;

    #[test]
    fn a_secret_shows_stars_everywhere() {
        let secret = Secret::new("hunter2".to_owned());
        let shown = format!("{secret:?} {secret} {}", serde_json::to_string(&secret).expect("a string serialises"));
        assert_eq!(shown, "*** *** \"***\"");
        assert_eq!(secret.expose(), "hunter2");
    }
}
