//! The two macros that keep a key's type, default, limits and documentation in one place.
//!
//! `section!` makes a struct with one public field per key; `choice!` an enum of fixed words. Reference and schema are generated from the same lines, so
//! they cannot tell a different story than the code.

use serde_json::Value as Json;

use crate::field::{Field, Reader, Shape};

/// The range a value must lie in; both ends are allowed.
pub(crate) struct Limits<T> {
    min: Option<T>,
    max: Option<T>,
}

pub(crate) fn at_least<T>(min: T) -> Limits<T> {
    Limits { min: Some(min), max: None }
}

pub(crate) fn between<T>(min: T, max: T) -> Limits<T> {
    Limits { min: Some(min), max: Some(max) }
}

/// A value that may be there; lets one limit serve `T` and `Option<T>`.
pub(crate) trait Holds<T> {
    fn held(&self) -> Option<&T>;
}

impl<T> Holds<T> for T {
    fn held(&self) -> Option<&T> {
        Some(self)
    }
}

impl<T> Holds<T> for Option<T> {
    fn held(&self) -> Option<&T> {
        self.as_ref()
    }
}

impl<T: Field + PartialOrd> Limits<T> {
    pub(crate) fn check(&self, value: &impl Holds<T>, reader: &mut Reader) {
        let Some(value) = value.held() else { return };
        let bound = |value: &T| match value.show() {
            Json::String(text) => text,
            other => other.to_string(),
        };
        if let Some(min) = self.min.as_ref().filter(|min| value < min) {
            reader.problem(format!("must be at least {}, not {}", bound(min), bound(value)));
        }
        if let Some(max) = self.max.as_ref().filter(|max| value > max) {
            reader.problem(format!("must be at most {}, not {}", bound(max), bound(value)));
        }
    }

    /// Numbers are limited in the schema too; sizes and durations have units, which JSON schema cannot compare.
    pub(crate) fn describe(&self, mut shape: Shape) -> Shape {
        if let Shape::Value(schema) = &mut shape {
            for (name, bound) in [("minimum", &self.min), ("maximum", &self.max)] {
                if let Some(number @ Json::Number(_)) = bound.as_ref().map(Field::show) {
                    schema.insert(name.to_owned(), number);
                }
            }
        }
        shape
    }
}

/// `section! { /// doc.. pub struct Name { /// doc.. key: Type = default, limits; .. } }`: the limits are optional.
macro_rules! section {
    (
        $(#[doc = $head:literal])*
        pub struct $name:ident {
            $( $(#[doc = $doc:literal])* $key:ident : $type:ty = $default:expr $(, $limits:expr)? ; )*
        }
    ) => {
        $(#[doc = $head])*
        #[derive(Debug, Clone, PartialEq)]
        pub struct $name {
            $( $(#[doc = $doc])* pub $key: $type, )*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $( $key: $default, )* }
            }
        }

        impl crate::field::Field for $name {
            fn read(&mut self, value: &serde_yaml_ng::Value, reader: &mut crate::field::Reader) {
                let Some(entries) = value.as_mapping() else {
                    // `kafka:` with nothing under it is an empty section.
                    if !value.is_null() {
                        reader.problem("must be a section with keys");
                    }
                    return;
                };
                for (key, value) in entries {
                    let Some(key) = key.as_str() else {
                        reader.problem("has a key that is not text");
                        continue;
                    };
                    match key {
                        $( stringify!($key) => reader.within(key, |reader| {
                            self.$key.read(value, reader);
                            $( $limits.check(&self.$key, reader); )?
                        }), )*
                        _ => reader.unknown_key(key, &[$( stringify!($key) ),*]),
                    }
                }
            }

            fn show(&self) -> serde_json::Value {
                let mut shown = serde_json::Map::new();
                $( shown.insert(stringify!($key).to_owned(), self.$key.show()); )*
                shown.into()
            }

            fn shape() -> crate::field::Shape {
                let defaults = Self::default();
                crate::field::Shape::Section(vec![$( {
                    let shape = <$type as crate::field::Field>::shape();
                    $( let shape = $limits.describe(shape); )?
                    crate::field::Key {
                        name: stringify!($key),
                        doc: vec![$( $doc ),*],
                        default: defaults.$key.show(),
                        shape,
                    }
                } ),*])
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serde::Serialize::serialize(&crate::field::Field::show(self), serializer)
            }
        }
    };
}

/// `choice! { /// doc.. pub enum Name { /// doc.. Variant = "word", .. } }`: the first variant is the default of the type.
macro_rules! choice {
    (
        $(#[doc = $head:literal])*
        pub enum $name:ident {
            $(#[doc = $first_doc:literal])* $first:ident = $first_word:literal,
            $( $(#[doc = $doc:literal])* $variant:ident = $word:literal, )*
        }
    ) => {
        $(#[doc = $head])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub enum $name {
            $(#[doc = $first_doc])* #[default] $first,
            $( $(#[doc = $doc])* $variant, )*
        }

        impl $name {
            /// The word as it stands in the file.
            pub const fn as_str(self) -> &'static str {
                match self {
                    Self::$first => $first_word,
                    $( Self::$variant => $word, )*
                }
            }
        }

        impl crate::field::Field for $name {
            fn read(&mut self, value: &serde_yaml_ng::Value, reader: &mut crate::field::Reader) {
                const WORDS: &[&str] = &[$first_word, $( $word ),*];
                match value.as_str() {
                    Some($first_word) => *self = Self::$first,
                    $( Some($word) => *self = Self::$variant, )*
                    Some(other) => {
                        let hint = crate::field::nearest(other, WORDS).map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
                        reader.problem(format!("must be one of {}, not `{other}`{hint}", WORDS.join(", ")));
                    }
                    None => reader.problem(format!("must be one of {}", WORDS.join(", "))),
                }
            }

            fn show(&self) -> serde_json::Value {
                self.as_str().into()
            }

            fn shape() -> crate::field::Shape {
                let words: Vec<&str> = vec![$first_word, $( $word ),*];
                crate::field::Shape::of([("type", "string".into()), ("enum", words.into())])
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }
    };
}

pub(crate) use {choice, section};
