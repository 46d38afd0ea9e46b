//! The process environment as data, and the overrides `MILLSTREAM__SECTION__KEY` it may hold.
//!
//! Owns: the only place that reads environment variables. Not here: `${NAME}` inside values (`substitute`).

use std::{collections::BTreeMap, env};

use serde_yaml_ng::{Mapping, Value as Yaml};

use crate::error::Problem;

/// Two underscores part the levels, because keys contain single ones.
const PREFIX: &str = "MILLSTREAM__";

/// Environment variables by name. A value of its own, so that tests need not change those of the process.
#[derive(Clone, Default)]
pub struct Environment(BTreeMap<String, String>);

impl std::fmt::Debug for Environment {
    /// Names only: values are often secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl Environment {
    pub fn empty() -> Environment {
        Environment::default()
    }

    /// The variables of this process. Names or values that are not UTF-8 cannot be referred to and are left out.
    pub fn process() -> Environment {
        let text = |os: std::ffi::OsString| os.into_string().ok();
        Environment(env::vars_os().filter_map(|(name, value)| Some((text(name)?, text(value)?))).collect())
    }

    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Environment {
        self.0.insert(name.to_owned(), value.to_owned());
        self
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }
}

/// Puts every `MILLSTREAM__A__B` at `a.b` of `tree`, taken literally (no `${..}` inside). Returns which variable set which key, for messages.
pub(crate) fn apply_overrides(
    tree: &mut Yaml,
    environment: &Environment,
    problems: &mut Vec<Problem>,
) -> BTreeMap<String, String> {
    let mut origins = BTreeMap::new();
    for (name, value) in &environment.0 {
        let Some(path) = name.strip_prefix(PREFIX) else { continue };
        let path = path.to_lowercase();
        let segments: Vec<&str> = path.split("__").collect();
        let key = segments.join(".");
        if segments.iter().any(|segment| segment.is_empty()) || !set(tree, &segments, value) {
            problems.push(Problem::new(
                "",
                format!("environment variable {name} does not name a key: write {PREFIX}SECTION__KEY"),
            ));
            continue;
        }
        origins.insert(key, name.clone());
    }
    origins
}

/// False where the way leads through something that is not a section.
fn set(node: &mut Yaml, segments: &[&str], value: &str) -> bool {
    let Some((first, rest)) = segments.split_first() else {
        *node = Yaml::String(value.to_owned());
        return true;
    };
    if node.is_null() {
        *node = Yaml::Mapping(Mapping::new());
    }
    let Some(mapping) = node.as_mapping_mut() else { return false };
    set(mapping.entry(Yaml::String((*first).to_owned())).or_insert(Yaml::Null), rest, value)
}
