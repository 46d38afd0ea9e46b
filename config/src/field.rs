//! How one value is read from YAML, shown again, and described for reference and schema.
//!
//! A field is read *into* its default: a problem is noted and the default stays, so reading goes on and all problems come out together.
//! Every scalar also takes text (`"16"`, `"true"`), because `${NAME}` and environment overrides can only give text.

use std::{collections::BTreeMap, net::SocketAddr, path::PathBuf, str::FromStr, time::Duration};

use serde_json::{Map, Value as Json};
use serde_yaml_ng::Value as Yaml;

use crate::{
    error::Problem,
    secret::{HIDDEN, Secret},
    units::{ByteSize, format_duration, parse_duration},
};

pub(crate) trait Field {
    fn read(&mut self, value: &Yaml, reader: &mut Reader);
    /// The value as it is written in YAML; secrets as `***`.
    fn show(&self) -> Json;
    fn shape() -> Shape;
}

/// What may stand at a key.
pub(crate) enum Shape {
    Section(Vec<Key>),
    /// JSON schema of a single value or a free map.
    Value(Map<String, Json>),
}

impl Shape {
    pub(crate) fn of<const N: usize>(entries: [(&str, Json); N]) -> Shape {
        Shape::Value(entries.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }
}

/// One key of a section.
pub(crate) struct Key {
    pub(crate) name: &'static str,
    pub(crate) doc: Vec<&'static str>,
    pub(crate) default: Json,
    pub(crate) shape: Shape,
}

/// Where reading is, and what went wrong so far.
pub(crate) struct Reader {
    path: Vec<String>,
    problems: Vec<Problem>,
    /// Key -> environment variable that set it.
    overrides: BTreeMap<String, String>,
    /// Keys with a substitution that failed: their text is still the reference and would only give a second, wrong message.
    unresolved: Vec<String>,
}

impl Reader {
    pub(crate) fn new(problems: Vec<Problem>, overrides: BTreeMap<String, String>) -> Reader {
        let unresolved = problems.iter().map(|problem| problem.key.clone()).collect();
        Reader { path: Vec::new(), problems, overrides, unresolved }
    }

    pub(crate) fn into_problems(self) -> Vec<Problem> {
        self.problems
    }

    pub(crate) fn within(&mut self, key: &str, read: impl FnOnce(&mut Reader)) {
        self.path.push(key.to_owned());
        if !self.unresolved.contains(&self.path.join(".")) {
            read(self);
        }
        self.path.pop();
    }

    pub(crate) fn problem(&mut self, message: impl Into<String>) {
        let key = self.path.join(".");
        let mut message = message.into();
        if let Some(variable) = self.overrides.get(&key) {
            message.push_str(&format!(" (set by {variable})"));
        }
        self.problems.push(Problem::new(key, message));
    }

    pub(crate) fn unknown_key(&mut self, key: &str, siblings: &[&str]) {
        let prefix = self.path.iter().map(|part| format!("{part}.")).collect::<String>();
        self.within(key, |reader| {
            let hint = match nearest(key, siblings) {
                Some(near) => format!("; did you mean `{prefix}{near}`?"),
                None => match crate::reference::paths_of(key).first() {
                    Some(elsewhere) => format!("; did you mean `{elsewhere}`?"),
                    None => format!("; known here: {}", siblings.join(", ")),
                },
            };
            reader.problem(format!("is not a key of Millstream{hint}"));
        });
    }
}

/// The candidate that was most likely meant: one that goes on where `word` ends (`prefetch` for `prefetch_bytes`) or the other way round, else the most
/// similar one, if it is similar enough to be a slip of the fingers.
pub(crate) fn nearest<'a>(word: &str, candidates: &[&'a str]) -> Option<&'a str> {
    const MIN_STEM: usize = 4;
    let word = word.to_lowercase();
    let stem = |candidate: &str| {
        let shared = word.len().min(candidate.len());
        shared >= MIN_STEM && (candidate.starts_with(&word) || word.starts_with(candidate))
    };
    let allowed = (word.chars().count() / 3).max(2);
    candidates
        .iter()
        .map(|candidate| (!stem(candidate), strsim::damerau_levenshtein(&word, candidate), *candidate))
        .filter(|(not_stem, distance, _)| !not_stem || *distance <= allowed)
        .min()
        .map(|(_, _, candidate)| candidate)
}

/// Text that any scalar may be given as; `None` for lists, sections and null.
fn scalar_text(value: &Yaml) -> Option<String> {
    match value {
        Yaml::String(text) => Some(text.clone()),
        Yaml::Number(number) => Some(whole(number).map_or_else(|| number.to_string(), |n| n.to_string())),
        Yaml::Bool(flag) => Some(flag.to_string()),
        Yaml::Null | Yaml::Sequence(_) | Yaml::Mapping(_) | Yaml::Tagged(_) => None,
    }
}

/// Helm hands large integers over as floats (`6.7108864e+07`): a float without a fraction is an integer.
#[expect(clippy::cast_possible_truncation, reason = "guarded by the range in which every integer is exact")]
fn whole(number: &serde_yaml_ng::Number) -> Option<i128> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from)).or_else(|| {
        let float = number.as_f64()?;
        (float.fract() == 0.0 && float.abs() <= EXACT).then_some(float as i128)
    })
}

fn read_text<T>(
    slot: &mut T,
    value: &Yaml,
    reader: &mut Reader,
    expected: &str,
    parse: impl FnOnce(&str) -> Result<T, String>,
) {
    match scalar_text(value) {
        Some(text) => match parse(&text) {
            Ok(parsed) => *slot = parsed,
            Err(message) => reader.problem(format!("has a wrong value: {message}")),
        },
        None => reader.problem(format!("must be {expected}")),
    }
}

macro_rules! integer_fields {
    ($($type:ty),*) => {$(
        impl Field for $type {
            fn read(&mut self, value: &Yaml, reader: &mut Reader) {
                read_text(self, value, reader, "a whole number", |text| {
                    text.trim().parse().map_err(|_| match text.trim().parse::<i128>() {
                        Ok(_) => format!("`{text}` is out of range"),
                        Err(_) => format!("`{text}` is not a whole number"),
                    })
                });
            }
            fn show(&self) -> Json {
                Json::from(*self)
            }
            fn shape() -> Shape {
                Shape::of([("type", Json::from(vec!["integer", "string"])), ("pattern", Json::from(r"^\s*-?[0-9]+\s*$|\$\{"))])
            }
        }
    )*};
}
integer_fields!(i32, u32, u64, usize);

impl Field for bool {
    fn read(&mut self, value: &Yaml, reader: &mut Reader) {
        read_text(self, value, reader, "true or false", |text| match text.trim() {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err(format!("`{text}` is neither true nor false")),
        });
    }

    fn show(&self) -> Json {
        Json::from(*self)
    }

    fn shape() -> Shape {
        Shape::of([("type", Json::from(vec!["boolean", "string"])), ("pattern", Json::from(r"^(true|false)$|\$\{"))])
    }
}

impl Field for String {
    fn read(&mut self, value: &Yaml, reader: &mut Reader) {
        match value {
            Yaml::String(text) => self.clone_from(text),
            // `client_id: 0123` would silently become 123, `no` a boolean in older YAML.
            _ => reader.problem("must be text: put it in quotes"),
        }
    }

    fn show(&self) -> Json {
        Json::from(self.as_str())
    }

    fn shape() -> Shape {
        Shape::of([("type", Json::from("string"))])
    }
}

impl Field for PathBuf {
    fn read(&mut self, value: &Yaml, reader: &mut Reader) {
        match value {
            Yaml::String(text) if !text.is_empty() => *self = PathBuf::from(text),
            _ => reader.problem("must be the path of a file or folder"),
        }
    }

    fn show(&self) -> Json {
        Json::from(self.to_string_lossy())
    }

    fn shape() -> Shape {
        Shape::of([("type", Json::from("string"))])
    }
}

impl Field for SocketAddr {
    fn read(&mut self, value: &Yaml, reader: &mut Reader) {
        read_text(self, value, reader, "an address and port", |text| {
            SocketAddr::from_str(text)
                .map_err(|_| format!("`{text}` is not an IP address with a port, such as 127.0.0.1:8080 or [::]:8080"))
        });
    }

    fn show(&self) -> Json {
        Json::from(self.to_string())
    }

    fn shape() -> Shape {
        Shape::of([("type", Json::from("string")), ("pattern", Json::from(r":[0-9]+$|\$\{"))])
    }
}

impl Field for ByteSize {
    fn read(&mut self, value: &Yaml, reader: &mut Reader) {
        read_text(self, value, reader, "a size such as 64MiB", str::parse);
    }

    fn show(&self) -> Json {
        Json::from(self.to_string())
    }

    fn shape() -> Shape {
        let pattern = r"^\s*[0-9]+(\.[0-9]+)?\s*([KMGT]iB|[kKMGT]B|B)?\s*$|\$\{";
        Shape::of([
            ("type", Json::from(vec!["string", "integer"])),
            ("pattern", Json::from(pattern)),
            ("minimum", Json::from(0)),
        ])
    }
}

impl Field for Duration {
    fn read(&mut self, value: &Yaml, reader: &mut Reader) {
        read_text(self, value, reader, "a duration such as 5s", parse_duration);
    }

    fn show(&self) -> Json {
        Json::from(format_duration(*self))
    }

    fn shape() -> Shape {
        let pattern = r"^\s*([0-9]+(\.[0-9]+)?\s*(ns|us|ms|s|m|h|d)\s*)+$|\$\{";
        Shape::of([("type", Json::from("string")), ("pattern", Json::from(pattern))])
    }
}

impl<T: Field + Default> Field for Option<T> {
    fn read(&mut self, value: &Yaml, reader: &mut Reader) {
        if value.is_null() {
            *self = None;
            return;
        }
        let before = reader.problems.len();
        let mut inner = T::default();
        inner.read(value, reader);
        if reader.problems.len() == before {
            *self = Some(inner);
        }
    }

    fn show(&self) -> Json {
        self.as_ref().map_or(Json::Null, Field::show)
    }

    fn shape() -> Shape {
        let Shape::Value(mut schema) = T::shape() else {
            unreachable!("sections are never optional: an empty one is its defaults")
        };
        let types = match schema.remove("type") {
            Some(Json::Array(mut types)) => {
                types.push(Json::from("null"));
                types
            }
            Some(one) => vec![one, Json::from("null")],
            None => vec![],
        };
        schema.insert("type".to_owned(), Json::Array(types));
        if let Some(Json::Array(allowed)) = schema.get_mut("enum") {
            allowed.push(Json::Null);
        }
        Shape::Value(schema)
    }
}

fn read_map<V>(map: &mut BTreeMap<String, V>, value: &Yaml, reader: &mut Reader, wrap: impl Fn(String) -> V) {
    let Some(entries) = value.as_mapping() else {
        if !value.is_null() {
            reader.problem("must be a map of names to values");
        }
        return;
    };
    for (name, value) in entries {
        let Some(name) = name.as_str() else {
            reader.problem("has a name that is not text: put it in quotes");
            continue;
        };
        reader.within(name, |reader| match scalar_text(value) {
            Some(text) => drop(map.insert(name.to_owned(), wrap(text))),
            None => reader.problem("must be a single value"),
        });
    }
}

fn map_shape() -> Shape {
    let values = Map::from_iter([("type".to_owned(), Json::from(vec!["string", "number", "boolean"]))]);
    Shape::of([("type", Json::from("object")), ("additionalProperties", Json::Object(values))])
}

impl Field for BTreeMap<String, String> {
    fn read(&mut self, value: &Yaml, reader: &mut Reader) {
        read_map(self, value, reader, |text| text);
    }

    fn show(&self) -> Json {
        self.iter().map(|(name, value)| (name.clone(), Json::from(value.as_str()))).collect::<Map<_, _>>().into()
    }

    fn shape() -> Shape {
        map_shape()
    }
}

impl Field for BTreeMap<String, Secret<String>> {
    fn read(&mut self, value: &Yaml, reader: &mut Reader) {
        read_map(self, value, reader, Secret::new);
    }

    fn show(&self) -> Json {
        self.keys().map(|name| (name.clone(), Json::from(HIDDEN))).collect::<Map<_, _>>().into()
    }

    fn shape() -> Shape {
        map_shape()
    }
}
