//! `<prefix>.wal`: made at the first start, verified at every one. A wrong setting here loses data later, so it refuses the start; so does another topic than
//! the one that the bucket was used with, whose offsets say where each region is.

use std::{collections::BTreeMap, sync::Arc};

use millstream_config::Config;
use millstream_storage::{
    StorageError,
    object_store::{Bucket, Slot, VersionedLog, paths},
};
use millstream_types::{LogError, TopicAdmin, TopicInfo, TopicSpec};
use serde::{Deserialize, Serialize};

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

/// Which topic the bucket was used with, kept in the bucket.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Identity {
    topic_id: String,
}

/// Returns when the topic exists with all leaders, is fit, and is the one that this bucket was used with.
pub(crate) async fn ensure(admin: Arc<dyn TopicAdmin>, bucket: &Arc<Bucket>, config: &Config) -> Result<(), NodeError> {
    let topic = crate::settings::wal_topic(config);
    let unfit = |what| NodeError::WalTopic { topic: topic.to_string(), what };
    let kept = VersionedLog::new(Arc::clone(bucket), paths::wal_topic(&topic), ".json");
    let known = kept.get(0).await?.map(|bytes| identity(&kept.path(0), &bytes)).transpose()?;
    let info = match (admin.describe(&topic).await?, &known) {
        (Some(info), _) => info,
        // Made again it would be empty: what it had is lost, and offsets that are in the bucket would come a second time.
        (None, Some(_)) => return Err(unfit(format!("it does not exist, and the bucket was used with it: {REMEDY}"))),
        (None, None) => create(admin.as_ref(), config, &topic).await?,
    };
    verify(&info, config.cluster.shards).map_err(unfit)?;
    let ours = Identity { topic_id: info.topic_id };
    let known = match known {
        Some(known) => known,
        None => match kept.put(0, serde_json::to_vec(&ours).map_err(internal)?.into()).await? {
            Slot::Won => return Ok(()),
            Slot::Exists(bytes) => identity(&kept.path(0), &bytes)?,
        },
    };
    match same(&known, &ours) {
        true => Ok(()),
        false => Err(unfit(format!(
            "it is not the topic that the bucket was used with (topic id {}, then {}): it was deleted and created again, or is that of another cluster: {REMEDY}",
            ours.topic_id, known.topic_id
        ))),
    }
}

const REMEDY: &str = "point `kafka.bootstrap_servers` and `kafka.prefix` to the cluster that has it; if it is lost for good, so is what was not yet in the bucket: \
     start with another `object_store.url` and `kafka.prefix`, and create tables and views again";

fn identity(path: &str, bytes: &[u8]) -> Result<Identity, NodeError> {
    serde_json::from_slice(bytes).map_err(|e| StorageError::corrupt(path, e.to_string()).into())
}

fn internal(e: serde_json::Error) -> NodeError {
    StorageError::Internal { what: "encode the identity of the wal topic".into(), source: Some(e.into()) }.into()
}

/// Brokers without topic ids cannot tell.
fn same(known: &Identity, ours: &Identity) -> bool {
    known.topic_id.is_empty() || ours.topic_id.is_empty() || known == ours
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
    use millstream_types::testing::MemoryLog;

    use super::*;

    #[tokio::test]
    async fn only_the_topic_that_the_bucket_was_used_with_is_taken() {
        let (log, bucket) = (MemoryLog::new(), Bucket::memory());
        let config =
            Config::from_yaml("version: 1\nkafka:\n  bootstrap_servers: k:1\nobject_store:\n  url: memory:///\n")
                .unwrap();
        let topic = crate::settings::wal_topic(&config);
        for _ in 0..2 {
            ensure(log.system().admin(), &bucket, &config).await.unwrap();
        }
        log.recreate_topic(&topic);
        let error = ensure(log.system().admin(), &bucket, &config).await.unwrap_err().to_string();
        assert!(error.contains("deleted and created again") && error.contains("kafka.bootstrap_servers"), "{error}");
        let error = ensure(MemoryLog::new().system().admin(), &bucket, &config).await.unwrap_err().to_string();
        assert!(error.contains("it does not exist, and the bucket was used with it"), "{error}");
        ensure(MemoryLog::new().system().admin(), &Bucket::memory(), &config).await.unwrap();
    }

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
