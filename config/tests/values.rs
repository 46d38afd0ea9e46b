//! Values in the shapes that YAML, Helm and environment variables give them.

use millstream_config::{ByteSize, Config};

#[test]
fn numbers_may_come_as_text_or_as_whole_floats() {
    for (text, shards) in [("16", 16), ("'16'", 16), ("1.6e+01", 16), ("${N:-16}", 16)] {
        let config = Config::from_yaml(&format!("cluster:\n  shards: {text}")).expect(text);
        assert_eq!(config.cluster.shards, shards, "{text}");
    }
    // Helm prints integers above a million like this.
    let config = Config::from_yaml("storage:\n  region_buffer_bytes: 6.7108864e+07").expect("a whole float");
    assert_eq!(config.storage.region_buffer_bytes, ByteSize::mib(64));
    assert!(Config::from_yaml("cluster:\n  shards: 1.5").is_err());
}

#[test]
fn empty_sections_and_null_keep_the_defaults() {
    assert_eq!(Config::from_yaml("kafka:\nstream:\n  backfill:\nstorage: {}\n").expect("loads"), Config::default());
    assert_eq!(Config::from_yaml("").expect("loads"), Config::default());
}

#[test]
fn defaults_are_valid_and_loopback() {
    let config = Config::default();
    config.validate().expect("defaults are valid");
    assert!(config.server.listen.ip().is_loopback() && config.server.probe_listen.ip().is_loopback());
}

#[test]
fn machine_dependent_defaults_resolve() {
    let config = Config::default();
    assert!((1..=16).contains(&config.storage.workers()));
    assert!(config.storage.flush.max_concurrent() >= 2);
    assert!(config.storage.compaction.max_concurrent() >= 1);
    assert!(!config.server.replica_id().is_empty());
}
