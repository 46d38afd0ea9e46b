//! One partition as a `LogStore`: open a reader, ask for its ends, delete below an offset.
//!
//! Owns: the rule that only WAL topics are ever trimmed. Not here: reading (`reader`).

use std::sync::Arc;

use async_trait::async_trait;
use millstream_types::{ErrorKind, LogError, LogReader, LogStore, Offset, PartitionOffsets, TopicPartition};
use rdkafka::{Offset as ClientOffset, TopicPartitionList, admin::AdminOptions, error::RDKafkaErrorCode as Code};

use crate::{
    KafkaCluster,
    client::Admin,
    error::{call_failed, code_failed},
    reader::KafkaReader,
    sys::{self, Spec},
};

/// Records of any other topic belong to somebody else.
const WAL_SUFFIX: &str = ".wal";

#[derive(Debug)]
pub(crate) struct PartitionLog {
    pub(crate) cluster: Arc<KafkaCluster>,
    pub(crate) partition: TopicPartition,
}

#[async_trait]
impl LogStore for PartitionLog {
    fn partition(&self) -> &TopicPartition {
        &self.partition
    }

    async fn read(&self, from: Offset) -> Result<Box<dyn LogReader>, LogError> {
        if from.0 < 0 {
            return Err(LogError::new(ErrorKind::Invalid, format!("offset {from} is no position")).at(&self.partition));
        }
        Ok(Box::new(KafkaReader::open(&self.cluster.readers, &self.partition, from).await?))
    }

    async fn offsets(&self) -> Result<PartitionOffsets, LogError> {
        let partitions = vec![self.partition.partition];
        let found = self
            .cluster
            .partition_offsets(&self.partition.topic, partitions)
            .await
            .map_err(|e| e.at(&self.partition))?;
        found
            .into_iter()
            .next()
            .ok_or_else(|| LogError::new(ErrorKind::Internal, "no offsets in the answer").at(&self.partition))
    }

    async fn truncate_to(&self, offset: Offset) -> Result<(), LogError> {
        let tp = &self.partition;
        if !tp.topic.ends_with(WAL_SUFFIX) {
            return Err(LogError::new(
                ErrorKind::Invalid,
                format!("only topics that end in {WAL_SUFFIX} may be trimmed"),
            )
            .at(tp));
        }
        let failed = |e| call_failed(format!("records below offset {offset} could not be deleted"), e).at(tp);
        let mut list = TopicPartitionList::new();
        list.add_partition_offset(&tp.topic, tp.partition, ClientOffset::Offset(offset.0)).map_err(failed)?;
        let timeout = Some(self.cluster.options().request_timeout);
        let options = AdminOptions::new().request_timeout(timeout).operation_timeout(timeout);
        let answer = self.cluster.admin_client().delete_records(&list, &options).await.map_err(failed)?;
        answer.elements().iter().try_for_each(|e| e.error()).map_err(failed)
    }
}

impl KafkaCluster {
    /// Start, stable end and high watermark of partitions, asked now.
    pub(crate) async fn partition_offsets(
        &self,
        topic: &Arc<str>,
        partitions: Vec<i32>,
    ) -> Result<Vec<PartitionOffsets>, LogError> {
        let specs = [Spec::Start, Spec::StableEnd, Spec::HighWatermark];
        let found = self.list_offsets(topic, partitions, specs.to_vec()).await?;
        let ends = found[0].iter().zip(&found[1]).zip(&found[2]);
        Ok(ends
            .map(|((start, stable), high)| PartitionOffsets {
                start: Offset(*start),
                stable: Offset(*stable),
                high_watermark: Offset(*high),
            })
            .collect())
    }

    pub(crate) async fn list_offsets(
        &self,
        topic: &Arc<str>,
        partitions: Vec<i32>,
        specs: Vec<Spec>,
    ) -> Result<Vec<Vec<i64>>, LogError> {
        let (name, timeout) = (Arc::clone(topic), self.options().request_timeout);
        let list = move |admin: &Admin| {
            let client = admin.inner().into();
            let mut listed = sys::list_offsets(client, &name, &partitions, &specs, timeout);
            if listed.as_ref().is_err_and(|code| has_stale_leader(*code)) {
                // The admin call does not look for the new leader by itself: without this it fails until the client's metadata expires (15 min).
                if let Err(error) = admin.inner().fetch_metadata(Some(&name), timeout) {
                    tracing::debug!(topic = %name, %error, "metadata could not be renewed");
                }
                listed = sys::list_offsets(client, &name, &partitions, &specs, timeout);
            }
            match listed {
                // The client waits in vain for the leader of a partition that does not exist: a look tells that from a slow broker.
                Err(_) if matches!(sys::describe_topic(client, &name, timeout), Ok(found) if !has_all(found, &partitions)) => {
                    Err(Code::UnknownTopicOrPartition)
                }
                other => other,
            }
        };
        self.blocking(list)
            .await?
            .map_err(|code| code_failed("offsets could not be listed", code).topic(Arc::clone(topic)))
    }
}

/// The client knows an older leader of the partition than the cluster has.
fn has_stale_leader(code: Code) -> bool {
    matches!(
        code,
        Code::FencedLeaderEpoch | Code::UnknownLeaderEpoch | Code::NotLeaderForPartition | Code::LeaderNotAvailable
    )
}

fn has_all(topic: Option<([u8; 16], usize)>, partitions: &[i32]) -> bool {
    topic.is_some_and(|(_, n)| partitions.iter().all(|p| (*p as usize) < n))
}
