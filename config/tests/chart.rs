//! What the Helm chart writes into its ConfigMap is a configuration that can serve: its defaults and each of its sample values files.

use std::{fs, path::Path};

use millstream_config::{Config, Environment};
use serde_yaml_ng::{Mapping, Value};

/// As Helm merges values: maps key by key, everything else replaced.
fn merge(base: &mut Value, over: Value) {
    match (base, over) {
        (Value::Mapping(base), Value::Mapping(over)) => {
            for (key, value) in over {
                merge(base.entry(key).or_insert(Value::Mapping(Mapping::new())), value);
            }
        }
        (base, over) => *base = over,
    }
}

fn config_of(path: &Path) -> Value {
    let text = fs::read_to_string(path).expect("values file");
    let values: Value = serde_yaml_ng::from_str(&text).expect("values are YAML");
    values.get("config").cloned().expect("values have a config")
}

#[test]
fn the_charts_configurations_load() {
    let chart = Path::new(env!("CARGO_MANIFEST_DIR")).join("../helm/millstream");
    let environment = ["KAFKA_PASSWORD", "BUCKET_KEY_ID", "BUCKET_KEY"]
        .into_iter()
        .fold(Environment::empty(), |environment, name| environment.with(name, "secret"));
    let mut count = 0;
    for entry in fs::read_dir(chart.join("ci")).expect("ci folder") {
        let path = entry.expect("entry").path();
        let mut tree = config_of(&chart.join("values.yaml"));
        merge(&mut tree, config_of(&path));
        let text = serde_yaml_ng::to_string(&tree).expect("YAML");
        let config =
            Config::from_yaml_with(&text, &environment).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        config.validate_serve().unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        count += 1;
    }
    assert!(count >= 4, "only {count} values files found");
}
