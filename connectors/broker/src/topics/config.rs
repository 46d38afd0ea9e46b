//! Topic and broker configs: the one table of names, types and defaults, and the part of it that the log obeys. A name that is not here is an error; a name
//! whose value changes nothing on a single node (`min.insync.replicas`) is kept and shown.

use std::collections::BTreeMap;

use crate::log::LogSettings;

/// Types as DescribeConfigs numbers them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Boolean = 1,
    String = 2,
    Int = 3,
    Long = 5,
    Double = 6,
    List = 7,
}

#[derive(Debug)]
pub(crate) struct ConfigOption {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) default: &'static str,
    /// Inclusive, for numbers.
    least: i64,
    /// Allowed words, if not all.
    words: &'static [&'static str],
}

const fn number(name: &'static str, kind: Kind, default: &'static str, least: i64) -> ConfigOption {
    ConfigOption { name, kind, default, least, words: &[] }
}

const fn words(name: &'static str, kind: Kind, default: &'static str, words: &'static [&'static str]) -> ConfigOption {
    ConfigOption { name, kind, default, least: 0, words }
}

const BOOL: &[&str] = &["true", "false"];

/// Sorted by name.
pub(crate) const TOPIC_OPTIONS: &[ConfigOption] = &[
    words("cleanup.policy", Kind::List, "delete", &["delete", "compact"]),
    number("compression.gzip.level", Kind::Int, "-1", -1),
    number("compression.lz4.level", Kind::Int, "9", 1),
    words("compression.type", Kind::String, "producer", &["producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"]),
    number("compression.zstd.level", Kind::Int, "3", -131_072),
    number("delete.retention.ms", Kind::Long, "86400000", 0),
    number("file.delete.delay.ms", Kind::Long, "60000", 0),
    number("flush.messages", Kind::Long, "9223372036854775807", 1),
    number("flush.ms", Kind::Long, "9223372036854775807", 0),
    words("follower.replication.throttled.replicas", Kind::List, "", &[]),
    number("index.interval.bytes", Kind::Int, "4096", 0),
    words("leader.replication.throttled.replicas", Kind::List, "", &[]),
    number("max.compaction.lag.ms", Kind::Long, "9223372036854775807", 1),
    number("max.message.bytes", Kind::Int, "1048588", 0),
    number("message.timestamp.after.max.ms", Kind::Long, "3600000", 0),
    number("message.timestamp.before.max.ms", Kind::Long, "9223372036854775807", 0),
    words("message.timestamp.type", Kind::String, "CreateTime", &["CreateTime", "LogAppendTime"]),
    number("min.cleanable.dirty.ratio", Kind::Double, "0.5", 0),
    number("min.compaction.lag.ms", Kind::Long, "0", 0),
    number("min.insync.replicas", Kind::Int, "1", 1),
    words("preallocate", Kind::Boolean, "false", BOOL),
    number("retention.bytes", Kind::Long, "-1", -1),
    number("retention.ms", Kind::Long, "604800000", -1),
    // Kafka's own default is 1 GiB; a laptop frees space sooner with smaller ones.
    number("segment.bytes", Kind::Int, "134217728", 14),
    number("segment.index.bytes", Kind::Int, "10485760", 4),
    number("segment.jitter.ms", Kind::Long, "0", 0),
    number("segment.ms", Kind::Long, "604800000", 1),
    words("unclean.leader.election.enable", Kind::Boolean, "false", BOOL),
];

pub(crate) fn option(name: &str) -> Option<&'static ConfigOption> {
    TOPIC_OPTIONS.iter().find(|o| o.name == name)
}

impl ConfigOption {
    /// Says what is wrong with a value.
    pub(crate) fn check(&self, value: &str) -> Result<(), String> {
        let fault = |why: &str| Err(format!("Invalid value {value} for configuration {}: {why}", self.name));
        match self.kind {
            Kind::Int => match value.trim().parse::<i32>() {
                Err(_) => fault("Not a number of type INT"),
                Ok(n) if i64::from(n) < self.least => fault(&format!("Value must be at least {}", self.least)),
                Ok(_) => Ok(()),
            },
            Kind::Long => match value.trim().parse::<i64>() {
                Err(_) => fault("Not a number of type LONG"),
                Ok(n) if n < self.least => fault(&format!("Value must be at least {}", self.least)),
                Ok(_) => Ok(()),
            },
            Kind::Double => match value.trim().parse::<f64>() {
                Ok(n) if (0.0..=1.0).contains(&n) => Ok(()),
                _ => fault("Value must be between 0 and 1"),
            },
            Kind::Boolean | Kind::String | Kind::List => {
                let mut parts = value.split(',').map(str::trim);
                if self.words.is_empty() || parts.all(|p| self.words.contains(&p)) {
                    Ok(())
                } else {
                    fault(&format!("String must be one of: {}", self.words.join(", ")))
                }
            }
        }
    }
}

/// What the client set; the rest are defaults.
pub(crate) type Overrides = BTreeMap<String, String>;

pub(crate) fn value<'a>(overrides: &'a Overrides, name: &str) -> &'a str {
    overrides.get(name).map_or_else(|| option(name).map_or("", |o| o.default), String::as_str)
}

/// Names and values of a new topic.
pub(crate) fn check_all(overrides: &Overrides) -> Result<(), String> {
    for (name, value) in overrides {
        option(name).ok_or_else(|| format!("Unknown topic config name: {name}"))?.check(value)?;
    }
    Ok(())
}

/// Only of checked overrides: a number that cannot be read counts as the default.
pub(crate) fn log_settings(overrides: &Overrides) -> LogSettings {
    let number = |name: &str| -> i64 {
        let default = option(name).and_then(|o| o.default.parse().ok()).unwrap_or(0);
        value(overrides, name).trim().parse().unwrap_or(default)
    };
    let policy = value(overrides, "cleanup.policy");
    LogSettings {
        segment_bytes: number("segment.bytes") as u64,
        segment_ms: number("segment.ms"),
        retention_ms: number("retention.ms"),
        retention_bytes: number("retention.bytes"),
        delete: policy.contains("delete"),
        compact: policy.contains("compact"),
        delete_retention_ms: number("delete.retention.ms"),
        max_message_bytes: number("max.message.bytes") as usize,
        append_time: value(overrides, "message.timestamp.type") == "LogAppendTime",
        timestamp_before_ms: number("message.timestamp.before.max.ms"),
        timestamp_after_ms: number("message.timestamp.after.max.ms"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_is_a_legal_value() {
        for o in TOPIC_OPTIONS {
            assert!(o.default.is_empty() || o.check(o.default).is_ok(), "{}", o.name);
        }
        assert!(TOPIC_OPTIONS.is_sorted_by_key(|o| o.name));
    }

    #[test]
    fn bad_names_and_values_are_refused() {
        let set = |n: &str, v: &str| check_all(&Overrides::from([(n.to_owned(), v.to_owned())]));
        assert!(set("retention.ms", "-1").is_ok());
        assert!(set("cleanup.policy", "compact,delete").is_ok());
        for (n, v) in [("retention.ms", "-2"), ("retention.ms", "x"), ("cleanup.policy", "keep"), ("nope", "1")] {
            assert!(set(n, v).is_err(), "{n}={v}");
        }
    }
}
