//! What a file, the environment and other files give together.

use std::{collections::BTreeMap, fs, path::Path, time::Duration};

use millstream_config::{ByteSize, Config, Environment, LogFormat, SaslMechanism, Secret, SecurityProtocol};

fn in_config_folder(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

#[test]
fn the_minimal_file_is_enough_to_serve() {
    let config =
        Config::load_with(in_config_folder("millstream.yaml"), &Environment::empty()).expect("the minimal file");
    config.validate_serve().expect("nothing is missing");
    assert_eq!(config.kafka.bootstrap_servers, "localhost:9092");
    assert_eq!(config.server, Config::default().server);
}

#[test]
fn a_file_of_version_1_loads() {
    let environment = Environment::empty().with("KAFKA_PASSWORD", "hunter2").with("AWS_SECRET", "deep");
    let config =
        Config::load_with(in_config_folder("testdata/v1/cluster.yaml"), &environment).expect("the sample of version 1");
    config.validate_serve().expect("nothing is missing");
    assert_eq!(config.kafka.security_protocol, SecurityProtocol::SaslSsl);
    assert_eq!(config.kafka.sasl_mechanism, Some(SaslMechanism::ScramSha512));
    assert_eq!(config.kafka.sasl_password, Some(Secret::new("hunter2".to_owned())));
    let passthrough: BTreeMap<String, &str> = config.kafka.passthrough_options().collect();
    assert_eq!(
        passthrough,
        [("fetch.wait.max.ms".to_owned(), "50"), ("socket.keepalive.enable".to_owned(), "true")].into()
    );
    assert_eq!(config.storage.region_buffer_bytes, ByteSize::mib(128));
    assert_eq!(config.storage.flush.interval, Duration::from_secs(5400));
    assert_eq!(config.storage.workers(), 4);
    assert_eq!(config.stream.backfill.rate_limit, Some(50_000));
    assert_eq!(config.telemetry.log_format, LogFormat::Json);
    assert_eq!(config.server.replica_id(), "millstream-0");
}

#[test]
fn secrets_never_show() {
    let environment = Environment::empty().with("KAFKA_PASSWORD", "hunter2").with("AWS_SECRET", "deep");
    let config =
        Config::load_with(in_config_folder("testdata/v1/cluster.yaml"), &environment).expect("the sample of version 1");
    for shown in [
        format!("{config:?}"),
        config.to_yaml(),
        serde_json::to_string(&config).expect("serialises"),
        format!("{environment:?}"),
    ] {
        assert!(!shown.contains("hunter2") && !shown.contains("deep\""), "{shown}");
    }
    assert!(config.to_yaml().contains("sasl_password: '***'"), "{}", config.to_yaml());
}

#[test]
fn the_environment_replaces_values_of_the_file() {
    let environment = Environment::empty()
        .with("MILLSTREAM__KAFKA__BOOTSTRAP_SERVERS", "b:1")
        .with("MILLSTREAM__STREAM__BACKFILL__RATE_LIMIT", "7")
        .with("MILLSTREAM__STREAM__START_PAUSED", "true")
        .with("MILLSTREAM__OBJECT_STORE__OPTIONS__AWS_REGION", "eu")
        .with("MILLSTREAM__KAFKA__PASSTHROUGH__FETCH_MIN_BYTES", "9")
        .with("MILLSTREAM__KAFKA__CLIENT_ID", "${literal}")
        .with("MILLSTREAM_TOOLS", "not a key");
    let config = Config::from_yaml_with("kafka:\n  bootstrap_servers: a:1\nstream:\n", &environment).expect("loads");
    assert_eq!(config.kafka.bootstrap_servers, "b:1");
    assert_eq!(config.kafka.client_id("x"), "${literal}");
    assert_eq!(config.stream.backfill.rate_limit, Some(7));
    assert!(config.stream.start_paused);
    assert_eq!(config.object_store.options["aws_region"].expose(), "eu");
    assert!(config.kafka.passthrough_options().eq([("fetch.min.bytes".to_owned(), "9")]));
}

#[test]
fn a_wrong_override_is_named() {
    for (name, value, expected) in [
        (
            "MILLSTREAM__STREAM__BARRIER_INTERVALL",
            "1s",
            "`stream.barrier_intervall` is not a key of Millstream; did you mean `stream.barrier_interval`? (set by MILLSTREAM__STREAM__BARRIER_INTERVALL)",
        ),
        (
            "MILLSTREAM__SQL__QUERY_TIMEOUT",
            "5",
            "`sql.query_timeout` has a wrong value: `5` needs a unit, such as 5s or 5ms (set by MILLSTREAM__SQL__QUERY_TIMEOUT)",
        ),
        (
            "MILLSTREAM__SQL____X",
            "5",
            "environment variable MILLSTREAM__SQL____X does not name a key: write MILLSTREAM__SECTION__KEY",
        ),
    ] {
        let error = Config::from_yaml_with("", &Environment::empty().with(name, value)).expect_err(name);
        assert_eq!(error.to_string(), format!("config: {expected}"));
    }
}

#[test]
fn a_secret_may_come_from_a_file() {
    let file = tempfile::NamedTempFile::new().expect("temp file");
    fs::write(file.path(), "s3cr${et\n").expect("write");
    let yaml = format!(
        "kafka:\n  security_protocol: sasl_ssl\n  sasl_mechanism: PLAIN\n  sasl_username: ann\n  sasl_password: ${{file:{}}}\n",
        file.path().display()
    );
    let config = Config::from_yaml(&yaml).expect("loads");
    assert_eq!(config.kafka.sasl_password.expect("set").expose(), "s3cr${et");
}

#[test]
fn serving_needs_brokers_and_a_bucket() {
    let error =
        Config::from_yaml("").expect("an empty file is fine").validate_serve().expect_err("not enough to serve");
    let keys: Vec<&str> = error.problems().iter().map(|problem| problem.key.as_str()).collect();
    assert_eq!(keys, ["kafka.bootstrap_servers", "object_store.url"]);
}

#[test]
fn serving_has_no_embedded_broker() {
    let yaml =
        "kafka:\n  bootstrap_servers: localhost:9092\nobject_store:\n  url: file:bucket\nbroker:\n  fsync: always\n";
    let config = Config::from_yaml(yaml).expect("fine for `millstream dev`");
    let error = config.validate_serve().expect_err("a section without effect");
    assert_eq!(error.problems().iter().map(|problem| problem.key.as_str()).collect::<Vec<_>>(), ["broker"]);
}

#[test]
fn the_brokers_folder_is_in_the_data_folder_unless_given() {
    let mut broker = Config::default().broker;
    assert_eq!(broker.data_dir(Path::new("data")), Path::new("data/broker"));
    broker.data_dir = Some("/fast/disk".into());
    assert_eq!(broker.data_dir(Path::new("data")), Path::new("/fast/disk"));
}
