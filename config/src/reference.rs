//! The texts generated from the sections: `config/reference.yaml` and `config/schema.json`.
//!
//! `cargo run -p millstream-config --bin millstream-config-gen` writes them; a test compares and fails when they are stale.

use serde_json::{Map, Value as Json, json};

use crate::{
    field::{Field, Key, Shape},
    sections::Config,
};

const HEAD: &str = "\
# Every key of Millstream with its default and meaning. Generated from the types in config/src/sections by `just gen`; do not edit.
#
# A file needs only the keys it changes: start from config/millstream.yaml. Every value may hold ${NAME}, ${NAME:-default} or ${file:/path}; an
# environment variable MILLSTREAM__SECTION__KEY replaces a value. Sizes: 64MiB, 500kB, 1048576. Durations: 100ms, 5s, 15m, 1h30m.
";

/// Text of `config/reference.yaml`: loading it gives `Config::default()`.
pub fn reference_yaml() -> String {
    let mut out = HEAD.to_owned();
    for key in keys() {
        out.push('\n');
        write_key(&key, 0, &mut out);
    }
    out
}

/// Text of `config/schema.json` (draft 7, which editors and Helm read). Closed: an unknown key fails.
pub fn schema_json() -> String {
    let mut schema = object_schema(&keys());
    schema.insert("$schema".to_owned(), json!("http://json-schema.org/draft-07/schema#"));
    schema.insert("title".to_owned(), json!("Millstream configuration"));
    let mut text = serde_json::to_string_pretty(&Json::Object(schema)).expect("a JSON value has only text keys");
    text.push('\n');
    text
}

/// Full paths of all keys whose last part is `name`: where a misplaced key belongs.
pub(crate) fn paths_of(name: &str) -> Vec<String> {
    fn search(keys: &[Key], prefix: &str, name: &str, found: &mut Vec<String>) {
        for key in keys {
            if key.name == name {
                found.push(format!("{prefix}{name}"));
            }
            if let Shape::Section(keys) = &key.shape {
                search(keys, &format!("{prefix}{}.", key.name), name, found);
            }
        }
    }
    let mut found = Vec::new();
    search(&keys(), "", name, &mut found);
    found
}

/// Block YAML of a JSON value, without the leading `---` and the last line break.
pub(crate) fn plain_yaml(value: &Json) -> String {
    serde_yaml_ng::to_string(value).expect("a JSON value is a YAML value").trim_end().to_owned()
}

fn keys() -> Vec<Key> {
    match Config::shape() {
        Shape::Section(keys) => keys,
        Shape::Value(_) => unreachable!("the root is a section"),
    }
}

fn write_key(key: &Key, depth: usize, out: &mut String) {
    let indent = "  ".repeat(depth);
    for line in &key.doc {
        out.push_str(format!("{indent}#{line}").trim_end());
        out.push('\n');
    }
    match &key.shape {
        Shape::Section(keys) => {
            out.push_str(&format!("{indent}{}:\n", key.name));
            for (index, key) in keys.iter().enumerate() {
                if index > 0 {
                    out.push('\n');
                }
                write_key(key, depth + 1, out);
            }
        }
        Shape::Value(_) => out.push_str(&format!("{indent}{}: {}\n", key.name, plain_yaml(&key.default))),
    }
}

fn object_schema(keys: &[Key]) -> Map<String, Json> {
    let mut properties = Map::new();
    for key in keys {
        let mut schema = match &key.shape {
            Shape::Section(keys) => object_schema(keys),
            Shape::Value(schema) => {
                let mut schema = schema.clone();
                schema.insert("default".to_owned(), key.default.clone());
                schema
            }
        };
        schema.insert("description".to_owned(), json!(paragraphs(&key.doc)));
        properties.insert(key.name.to_owned(), Json::Object(schema));
    }
    // An empty section (`kafka:`) is null in YAML.
    Map::from_iter([
        ("type".to_owned(), json!(["object", "null"])),
        ("additionalProperties".to_owned(), json!(false)),
        ("properties".to_owned(), Json::Object(properties)),
    ])
}

/// Doc lines joined to running text; an empty line stays a break.
fn paragraphs(doc: &[&str]) -> String {
    let blocks = doc.split(|line| line.trim().is_empty());
    let joined: Vec<String> =
        blocks.map(|block| block.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ")).collect();
    joined.join("\n")
}
