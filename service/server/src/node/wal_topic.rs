//! `<prefix>.wal`: made at the first start, verified at every one. A wrong setting here loses data later, so it refuses the start.

use std::{collections::BTreeMap, sync::Arc};

use millstream_config::Config;
use millstream_types::{LogError, TopicAdmin, TopicInfo, TopicSpec};

use super::NodeError;

/// What must hold and what a new topic is created with. Entries are cut at `storage.wal.entry_bytes`, but one row may be larger.
const CREATED: [(&str, &str); 4] = [
    ("cleanup.policy", "delete"),
    ("retention.ms", "-1"),
    ("retention.bytes", "-1"),
    ("max.message.bytes", "10485760"),
];
const MIN_MESSAGE_BYTES: i64 = 1 << 20;
/// From so many replicas on, one may be lost without stopping the writes.
const QUORUM_REPLICAS: i32 = 3;

/// Returns when the topic exists with all leaders and is fit.
pub(crate) async fn ensure(admin: Arc<dyn TopicAdmin>, config: &Config) -> Result<(), NodeError> {
    let topic = crate::settings::wal_topic(config);
    let info = match admin.describe(&topic).await? {
        Some(info) => info,
        None => create(admin.as_ref(), config, &topic).await?,
    };
    verify(&info, config.cluster.shards).map_err(|what| NodeError::WalTopic { topic: topic.to_string(), what })
}

async fn create(admin: &dyn TopicAdmin, config: &Config, topic: &str) -> Result<TopicInfo, LogError> {
    let mut options: BTreeMap<String, String> =
        CREATED.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    if config.kafka.replicas >= QUORUM_REPLICAS {
        options.insert("min.insync.replicas".to_owned(), "2".to_owned());
    }
    let spec = TopicSpec {
        name: topic.to_owned(),
        partitions: config.cluster.shards as i32,
        replicas: config.kafka.replicas,
        config: options,
    };
    let created = admin.create(&spec).await?;
    tracing::info!(topic, partitions = spec.partitions, ?created, "write-ahead log topic");
    let described = admin.describe(topic).await?;
    described.ok_or_else(|| {
        LogError::new(millstream_types::ErrorKind::Unavailable, "was created and is not there yet").topic(topic)
    })
}

/// What is wrong and what to do. A setting that the broker does not tell is taken as right: not every cluster lets us read them.
pub(crate) fn verify(info: &TopicInfo, shards: u32) -> Result<(), String> {
    if info.partitions != shards as i32 {
        return Err(format!(
            "it has {} partitions, `cluster.shards` is {shards}, and the number is fixed at the first start: set `cluster.shards: {}`",
            info.partitions, info.partitions
        ));
    }
    for (key, wanted) in [("cleanup.policy", "delete"), ("retention.ms", "-1"), ("retention.bytes", "-1")] {
        if let Some(value) = info.config.get(key)
            && value != wanted
        {
            return Err(format!(
                "{key} is {value}: set it to {wanted}, else records are lost before they are in the bucket"
            ));
        }
    }
    let largest = info.config.get("max.message.bytes").and_then(|v| v.parse::<i64>().ok());
    if let Some(bytes) = largest.filter(|b| *b <= MIN_MESSAGE_BYTES) {
        return Err(format!("max.message.bytes is {bytes}: set it to 10485760, entries may be over 1 MiB"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(partitions: i32, config: &[(&str, &str)]) -> TopicInfo {
        let config = CREATED.iter().chain(config).map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        TopicInfo { name: "m.wal".to_owned(), topic_id: String::new(), partitions, config }
    }

    #[test]
    fn a_topic_that_could_lose_records_is_refused_with_the_remedy() {
        assert_eq!(verify(&info(16, &[]), 16), Ok(()));
        assert!(verify(&info(4, &[]), 16).unwrap_err().contains("cluster.shards: 4"));
        for wrong in [("retention.ms", "604800000"), ("cleanup.policy", "compact"), ("max.message.bytes", "1048576")] {
            assert!(verify(&info(16, &[wrong]), 16).unwrap_err().contains(wrong.0));
        }
    }
}
