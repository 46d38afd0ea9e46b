//! Fetch: which ranges of which files, waiting until there is enough. A waiting fetch sleeps until one of its partitions changes.

use std::{sync::Arc, time::Duration};

use kafka_protocol::{
    ResponseError,
    messages::{
        FetchRequest,
        fetch_request::{FetchPartition, FetchTopic},
    },
};
use tokio::{
    sync::Notify,
    time::{Instant, timeout_at},
};

use super::{Context, Outcome, list_offsets::check_leader_epoch};
use crate::{
    protocol::{
        fetch_response::{self, Fetched, FetchedPartition, FetchedTopic},
        reply::Reply,
    },
    topics::Topic,
};

/// An answer has at most this much, whatever the client asks for; a single larger batch still goes.
const ANSWER_LIMIT: u64 = 64 << 20;
const WAIT_LIMIT: Duration = Duration::from_secs(300);

pub(super) async fn handle(context: Context<'_>, request: FetchRequest) -> Outcome {
    let fetched = if request.session_id != 0 {
        // We never open one.
        Fetched { error: ResponseError::FetchSessionIdNotFound.code(), topics: Vec::new() }
    } else {
        fetch(context, &request).await
    };
    let parts = fetch_response::encode(fetched, context.correlation, context.version);
    Outcome::Reply(Reply::of_parts(parts))
}

async fn fetch(context: Context<'_>, request: &FetchRequest) -> Fetched {
    let asked = request.topics.iter().map(|t| t.partitions.len()).sum::<usize>();
    let wait = Duration::from_millis(u64::try_from(request.max_wait_ms).unwrap_or(0)).min(WAIT_LIMIT);
    let wanted = u64::try_from(request.min_bytes).unwrap_or(0);
    let (fetched, bytes, error) = gather(context, request);
    if wait.is_zero() || bytes >= wanted || error || asked == 0 {
        return fetched;
    }
    let deadline = Instant::now() + wait;
    let changed = Arc::new(Notify::new());
    loop {
        // Register, then look: a change in between is not missed.
        for topic in &request.topics {
            if let Some(found) = find(context, topic) {
                for p in topic.partitions.iter().filter_map(|p| found.partition(p.partition)) {
                    p.register(&changed);
                }
            }
        }
        let (fetched, bytes, error) = gather(context, request);
        if bytes >= wanted || error || timeout_at(deadline, changed.notified()).await.is_err() {
            return fetched;
        }
    }
}

fn find(context: Context<'_>, topic: &FetchTopic) -> Option<Arc<Topic>> {
    let topics = &context.node.topics;
    if context.version >= 13 { topics.by_id(topic.topic_id) } else { topics.get(&topic.topic) }
}

/// What is there now: the answer, its bytes, and whether a partition has an error (which is answered at once).
pub(super) fn gather(context: Context<'_>, request: &FetchRequest) -> (Fetched, u64, bool) {
    let committed = request.isolation_level == 1;
    let limit = u64::try_from(request.max_bytes).unwrap_or(0).min(ANSWER_LIMIT);
    let (mut bytes, mut failed) = (0, false);
    let mut topics = Vec::with_capacity(request.topics.len());
    for asked in &request.topics {
        let topic = find(context, asked);
        let mut partitions = Vec::with_capacity(asked.partitions.len());
        for p in &asked.partitions {
            let left = limit.saturating_sub(bytes);
            let answer = match &topic {
                Some(t) => read(context, t, p, left, bytes == 0, committed),
                None if context.version >= 13 => Err(ResponseError::UnknownTopicId),
                None => Err(ResponseError::UnknownTopicOrPartition),
            };
            let answer = answer.unwrap_or_else(|e| {
                failed = true;
                FetchedPartition::error(p.partition, e.code())
            });
            bytes += answer.bytes();
            partitions.push(answer);
        }
        topics.push(FetchedTopic { name: asked.topic.0.clone().into_bytes(), id: asked.topic_id, partitions });
    }
    (Fetched { error: 0, topics }, bytes, failed)
}

fn read(
    context: Context<'_>,
    topic: &Topic,
    asked: &FetchPartition,
    left: u64,
    one: bool,
    committed: bool,
) -> Result<FetchedPartition, ResponseError> {
    let partition = topic.partition(asked.partition).ok_or(ResponseError::UnknownTopicOrPartition)?;
    let max = left.min(u64::try_from(asked.partition_max_bytes).unwrap_or(0));
    let frozen = context.node.faults.is_frozen(&topic.name, asked.partition);
    let log = partition.log();
    if partition.is_closed() {
        return Err(ResponseError::UnknownTopicOrPartition);
    }
    check_leader_epoch(&log, asked.current_leader_epoch)?;
    let found = log.read(asked.fetch_offset, if frozen { 0 } else { max }, one && !frozen, committed);
    let found = found.map_err(|e| {
        tracing::error!(topic = %topic.name, partition = asked.partition, offset = asked.fetch_offset, error = %e, "a log cannot be read");
        ResponseError::KafkaStorageError
    })?;
    let found = found.ok_or(ResponseError::OffsetOutOfRange)?;
    // As Kafka: an illegal argument, which it notices when there is something to read.
    if asked.partition_max_bytes < 0 && found.slice.is_some() {
        return Err(ResponseError::UnknownServerError);
    }
    Ok(FetchedPartition {
        index: asked.partition,
        error: 0,
        high_watermark: log.next(),
        stable: log.stable(),
        start: log.start(),
        aborted: committed.then_some(found.aborted),
        records: found.slice,
    })
}
