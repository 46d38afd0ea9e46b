//! The derived topic of a view or sink: envelope, key, partitions; created or verified before the catalog entry.

use std::collections::BTreeMap;

use datafusion::sql::sqlparser::tokenizer::Location;
use millstream_format::partition_for_key;
use millstream_types::{Column, Created, LogSystem, TopicPartition, TopicSpec};

use super::options::OptionReader;
use crate::{
    SqlError,
    catalog::{Catalog, Derived, Object, TopicEnvelope, TopicTarget},
    error::nearest,
    format::{self, Options},
    planner::{draft::Draft, job::TopicEncoders},
};

/// Options that only a derived topic has and that the format does not know.
const OWN: [&str; 8] = [
    "partitions",
    "envelope",
    "key.columns",
    "value.columns",
    "force_append_only",
    "headers.epoch",
    "retention",
    "partitioner",
];

#[derive(Debug, Clone)]
pub(super) struct TargetDraft {
    pub(super) target: TopicTarget,
    /// Given by the user, so that an existing topic must have as many.
    explicit_partitions: bool,
    retention_ms: Option<i64>,
    topic_at: Location,
}

/// `None` if the view has no topic.
pub(super) fn read(
    options: &mut OptionReader<'_>,
    draft: &Draft,
    default_partitions: i32,
    notices: &mut Vec<String>,
) -> Result<Option<TargetDraft>, SqlError> {
    options.not_yet(&[
        ("connection", "leave it out: the cluster is section kafka of the configuration file"),
        ("schema.subject", "there is no schema registry yet; use 'value.format' = 'json'"),
        ("timestamp.column", "leave it out: records have the time of their epoch"),
        ("headers.column", "leave it out"),
    ])?;
    let Some(topic) = options.entry("topic") else {
        options.only_with(&OWN, "topic = 'name'")?;
        options.only_with(&["value.format", "key.format"], "topic = 'name'")?;
        return Ok(None);
    };
    let partitions = options.number("partitions", 1..=10_000)?;
    if partitions.is_none() {
        notices.push(format!("topic {}: {default_partitions} partitions (default; say partitions = n)", topic.value));
    }
    let retention_ms = options
        .entry("retention")
        .map(|e| retention(&e.value).map_err(|m| SqlError::option(m).at(e.value_at)))
        .transpose()?;
    options.choice("partitioner", &[("murmur2", ())], "murmur2")?;
    options.flag("headers.epoch", true)?;
    let envelope = envelope(options, draft)?;
    let key_columns = key_columns(options, draft, envelope, notices)?;
    options.choice("value.columns", &[("all", ()), ("except_key", ())], "all")?;
    let target = TopicTarget {
        topic: topic.value.clone(),
        partitions: partitions.unwrap_or(default_partitions),
        envelope,
        key_columns,
    };
    Ok(Some(TargetDraft { target, explicit_partitions: partitions.is_some(), retention_ms, topic_at: topic.value_at }))
}

fn retention(text: &str) -> Result<i64, String> {
    let refuse = || format!("retention must be a time such as '7 days', not {text}");
    if matches!(text, "forever" | "-1") {
        return Ok(-1);
    }
    let (number, unit) = text.trim().split_once(' ').ok_or_else(refuse)?;
    let number: i64 = number.parse().map_err(|_| refuse())?;
    let unit = match unit.trim().trim_end_matches('s') {
        "minute" => 60_000,
        "hour" => 3_600_000,
        "day" => 86_400_000,
        "week" => 7 * 86_400_000,
        _ => return Err(refuse()),
    };
    number.checked_mul(unit).filter(|ms| *ms > 0).ok_or_else(refuse)
}

fn envelope(options: &mut OptionReader<'_>, draft: &Draft) -> Result<TopicEnvelope, SqlError> {
    let default = if draft.retracts() { "upsert" } else { "append" };
    if let Some(e) = options.entry("envelope").filter(|e| e.value == "debezium") {
        return Err(
            SqlError::unsupported("envelope debezium is not supported yet", "write envelope = 'upsert'").at(e.value_at)
        );
    }
    let envelope =
        options.choice("envelope", &[("append", TopicEnvelope::Append), ("upsert", TopicEnvelope::Upsert)], default)?;
    let forced = options.flag("force_append_only", false)?;
    let at = options.location("envelope").unwrap_or(Location::empty());
    match envelope {
        TopicEnvelope::Append if draft.retracts() && !forced => {
            Err(SqlError::option("envelope append: rows of this query can be deleted and replaced").at(at).hint(
                "write envelope = 'upsert', or force_append_only = true to drop deletes and write each new value",
            ))
        }
        TopicEnvelope::Upsert if !draft.retracts() => {
            Err(SqlError::option("envelope upsert: rows of this query have no primary key")
                .at(at)
                .hint("write envelope = 'append'; key.columns gives its records a key"))
        }
        envelope => Ok(envelope),
    }
}

fn key_columns(
    options: &mut OptionReader<'_>,
    draft: &Draft,
    envelope: TopicEnvelope,
    notices: &mut Vec<String>,
) -> Result<Vec<String>, SqlError> {
    let schema = &draft.schema;
    let primary: Vec<&Column> = schema.user_key().iter().map(|k| &schema.columns[*k]).collect();
    let Some(e) = options.entry("key.columns") else {
        let hidden: Vec<String> = primary.iter().filter(|c| c.hidden).map(|c| shown(&c.name)).collect();
        if !hidden.is_empty() {
            notices.push(format!("the key of the topic has {}, which the query does not select", hidden.join(", ")));
        }
        return Ok(primary.iter().map(|c| c.name.clone()).collect());
    };
    let mut names = Vec::new();
    for name in e.value.split(',').map(str::trim) {
        let visible = || schema.columns.iter().filter(|c| !c.hidden);
        // a hidden key column may be named by what users call it
        let found = visible()
            .find(|c| c.name == name)
            .or_else(|| primary.iter().copied().find(|c| c.hidden && shown(&c.name) == name));
        let Some(column) = found else {
            let hint = nearest(name, visible().map(|c| c.name.as_str()));
            return Err(SqlError::option(format!("key.columns: the query has no column {name}"))
                .at(e.value_at)
                .or_hint(hint));
        };
        names.push(column.name.clone());
    }
    let same = names.len() == primary.len() && primary.iter().all(|c| names.contains(&c.name));
    if envelope == TopicEnvelope::Upsert && !same {
        let wanted: Vec<String> = primary.iter().map(|c| shown(&c.name)).collect();
        return Err(SqlError::option("key.columns: with envelope upsert the key must be the primary key of the query")
            .at(e.value_at)
            .hint(format!("write 'key.columns' = '{}', or leave it out", wanted.join(","))));
    }
    Ok(names)
}

/// What users call a hidden key column.
fn shown(name: &str) -> String {
    name.strip_prefix("__").unwrap_or(name).to_owned()
}

/// Encoders from the stored target and options: the same at CREATE and at every start.
pub(crate) fn encoders(
    target: &TopicTarget,
    draft: &Draft,
    options: &Options,
) -> Result<TopicEncoders, crate::format::FormatRefusal> {
    let schema = &draft.schema;
    let key_columns: Vec<usize> = target.key_columns.iter().filter_map(|n| schema.position(n)).collect();
    let except_key = options.get("value.columns").is_some_and(|v| v == "except_key");
    let value_columns: Vec<usize> =
        schema.visible().into_iter().filter(|i| !except_key || !key_columns.contains(i)).collect();
    let columns = |places: &[usize]| -> Vec<Column> {
        places
            .iter()
            .map(|i| {
                let mut c = schema.columns[*i].clone();
                if c.hidden {
                    c.name = shown(&c.name);
                }
                c
            })
            .collect()
    };
    let format_options: Options = options
        .iter()
        .filter(|(k, _)| {
            !OWN.contains(&k.as_str()) && !super::create_derived::JOB_OPTIONS.contains(&k.as_str()) && *k != "topic"
        })
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect();
    let made = format::encoders(&columns(&key_columns), &columns(&value_columns), &format_options)?;
    Ok(TopicEncoders {
        key: made.key,
        value: made.value,
        key_columns,
        value_columns,
        partitioner: partition_for_key,
        headers_epoch: options.get("headers.epoch").is_none_or(|v| v == "true"),
    })
}

/// Nobody else may write the topic, and the job must not read what it writes.
pub(super) fn check_free(
    catalog: &Catalog,
    wal_topic: &str,
    target: &TargetDraft,
    own_name: &str,
) -> Result<(), SqlError> {
    let topic = &target.target.topic;
    if topic == wal_topic {
        return Err(SqlError::option(format!("topic {topic} is the WAL of this service")).at(target.topic_at));
    }
    let writer = catalog.objects.iter().find(|o| {
        o.name() != own_name && o.derived().and_then(|d: &Derived| d.topic.as_ref()).is_some_and(|t| t.topic == *topic)
    });
    if let Some(writer) = writer {
        return Err(SqlError::conflict(
            "TOPIC_IN_USE",
            format!("topic {topic} is written by {} {}", writer.kind().word(), writer.name()),
        )
        .at(target.topic_at));
    }
    let reader = catalog.objects.iter().find_map(|o| match o.as_ref() {
        Object::Table(t) if t.topic().is_some_and(|s| s.topic == *topic) => Some(t),
        _ => None,
    });
    if let Some(reader) = reader {
        return Err(SqlError::conflict("TOPIC_IN_USE", format!("topic {topic} is read by table {}", reader.name))
            .at(target.topic_at));
    }
    Ok(())
}

/// Creates the topic, or verifies the one that is there. The recorded number of partitions is that of the topic.
pub(super) async fn ensure(
    logs: &dyn LogSystem,
    target: &mut TargetDraft,
    notices: &mut Vec<String>,
) -> Result<(), SqlError> {
    let upsert = target.target.envelope == TopicEnvelope::Upsert;
    let policy = if upsert { "compact" } else { "delete" };
    let mut config = BTreeMap::from([("cleanup.policy".to_owned(), policy.to_owned())]);
    if let Some(ms) = target.retention_ms {
        config.insert("retention.ms".to_owned(), ms.to_string());
        if upsert {
            config.insert("cleanup.policy".to_owned(), "compact,delete".to_owned());
        }
    }
    let name = target.target.topic.clone();
    let spec = TopicSpec { name: name.clone(), partitions: target.target.partitions, replicas: -1, config };
    let admin = logs.admin();
    if admin.create(&spec).await? == Created::New {
        return Ok(());
    }
    let Some(info) = admin.describe(&name).await? else {
        return Err(SqlError::conflict("TOPIC_GONE", format!("topic {name} existed and is gone"))
            .at(target.topic_at)
            .hint("try again"));
    };
    if info.partitions != target.target.partitions {
        if target.explicit_partitions {
            return Err(SqlError::conflict(
                "TOPIC_DIFFERS",
                format!("topic {name} exists with {} partitions", info.partitions),
            )
            .at(target.topic_at)
            .hint(format!("write partitions = {}, or another topic", info.partitions)));
        }
        target.target.partitions = info.partitions;
        notices.push(format!("topic {name} exists: its {} partitions are used", info.partitions));
    }
    if upsert {
        let mut records = 0;
        for partition in 0..info.partitions {
            let ends = logs.log(&TopicPartition::new(name.as_str(), partition)).offsets().await?;
            records += (ends.high_watermark.0 - ends.start.0).max(0);
        }
        if records > 0 {
            notices.push(format!(
                "warning old_records: topic {name} has up to {records} records from before, and keys of them that the view does not have stay in it: \
                 delete the topic first, or write to another one, if its consumers fold it"
            ));
        }
    }
    let compacts = info.config.get("cleanup.policy").is_some_and(|p| p.contains("compact"));
    if upsert && !compacts {
        notices.push(format!("warning history_expires: topic {name} exists with cleanup.policy delete, so old keys vanish after its retention"));
    }
    if !upsert && compacts {
        notices.push(format!(
            "warning records_may_vanish: topic {name} exists and is compacted, but its records are not upserts"
        ));
    }
    Ok(())
}
