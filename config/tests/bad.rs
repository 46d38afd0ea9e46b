//! Every file under `testdata/bad` is refused with exactly the messages at its top, in any order.

use std::{fs, path::Path};

use millstream_config::{Config, ConfigError, Environment};

#[test]
fn bad_files_are_refused_with_every_problem_named() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/bad");
    let (mut count, mut wrong) = (0, String::new());
    for entry in fs::read_dir(&folder).expect("testdata/bad") {
        let path = entry.expect("entry").path();
        let text = fs::read_to_string(&path).expect("bad file");
        let mut expected: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("#! ")).collect();
        let error = Config::load_with(&path, &Environment::empty()).expect_err(&path.display().to_string());
        let mut found: Vec<String> = error.problems().iter().map(ToString::to_string).collect();
        expected.sort_unstable();
        found.sort_unstable();
        if found != expected {
            wrong.push_str(&format!("\n{}\n  expected {expected:#?}\n  found {found:#?}", path.display()));
        }
        count += 1;
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(count >= 15, "only {count} bad files found");
}

#[test]
fn a_message_names_the_file_and_lists_all_problems() {
    let error = Config::from_yaml("sever: {}\nsql:\n  query_memory: 1").expect_err("two problems");
    assert_eq!(
        error.to_string(),
        "config: 2 problems\n  - `sever` is not a key of Millstream; did you mean `server`?\n  - `sql.query_memory` must be at least 16MiB, not 1B"
    );
}

#[test]
fn text_that_is_not_yaml_is_refused_with_its_place() {
    let error = Config::from_yaml("kafka:\n  prefix: [").expect_err("not YAML");
    let ConfigError::Yaml { source, .. } = error else { panic!("{error}") };
    assert!(source.to_string().contains("line"), "{source}");
    let twice = Config::from_yaml("sql: {}\nsql: {}").expect_err("the same key twice");
    assert!(matches!(twice, ConfigError::Yaml { .. }), "{twice}");
}

#[test]
fn a_missing_file_is_named() {
    let error = Config::load_with("/no/such/millstream.yaml", &Environment::empty()).expect_err("no file");
    assert_eq!(error.to_string(), "cannot read the config file /no/such/millstream.yaml");
}
