//! `reference.yaml` and `schema.json` say what the types say.

use std::{fs, path::Path};

use millstream_config::{
    Config,
    reference::{reference_yaml, schema_json},
};
use serde_json::Value;

fn stored(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap_or_default()
}

#[test]
fn generated_files_are_up_to_date() {
    let hint = "is stale: run `just gen`";
    assert!(stored("reference.yaml") == reference_yaml(), "config/reference.yaml {hint}");
    assert!(stored("schema.json") == schema_json(), "config/schema.json {hint}");
}

#[test]
fn the_reference_loads_as_the_defaults() {
    assert_eq!(Config::from_yaml(&reference_yaml()).expect("the reference loads"), Config::default());
}

#[test]
fn the_schema_and_the_defaults_have_the_same_keys() {
    fn compare(schema: &Value, value: &Value, path: &str) {
        let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return };
        let fields = value.as_object().unwrap_or_else(|| panic!("{path} is a section"));
        assert!(properties.keys().eq(fields.keys()), "{path}");
        assert_eq!(schema.get("additionalProperties"), Some(&Value::Bool(false)), "{path}");
        for (name, schema) in properties {
            assert!(
                schema.get("description").and_then(Value::as_str).is_some_and(|doc| doc.len() > 3),
                "{path}.{name} has no doc"
            );
            compare(schema, &fields[name], &format!("{path}.{name}"));
        }
    }
    let schema: Value = serde_json::from_str(&schema_json()).expect("schema");
    compare(&schema, &serde_json::to_value(Config::default()).expect("config"), "config");
}
