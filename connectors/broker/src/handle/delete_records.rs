//! DeleteRecords: moves the log start.

use kafka_protocol::{
    ResponseError,
    messages::{
        DeleteRecordsRequest, DeleteRecordsResponse,
        delete_records_response::{DeleteRecordsPartitionResult, DeleteRecordsTopicResult},
    },
};

use super::Context;

pub(super) async fn handle(context: Context<'_>, request: DeleteRecordsRequest) -> DeleteRecordsResponse {
    let mut response = DeleteRecordsResponse::default();
    for topic in request.topics {
        let mut answers = Vec::with_capacity(topic.partitions.len());
        for p in &topic.partitions {
            let answer = DeleteRecordsPartitionResult::default().with_partition_index(p.partition_index);
            answers.push(match delete(context, &topic.name, p.partition_index, p.offset).await {
                Ok(start) => answer.with_low_watermark(start),
                Err(e) => answer.with_low_watermark(-1).with_error_code(e.code()),
            });
        }
        response.topics.push(DeleteRecordsTopicResult::default().with_name(topic.name).with_partitions(answers));
    }
    response
}

/// `offset` -1 is the high watermark. Returns the log start.
async fn delete(context: Context<'_>, topic: &str, index: i32, offset: i64) -> Result<i64, ResponseError> {
    let node = context.node;
    let topic = node.topics.get(topic).ok_or(ResponseError::UnknownTopicOrPartition)?;
    let partition = topic.partition(index).ok_or(ResponseError::UnknownTopicOrPartition)?;
    let storage = |e: std::io::Error| {
        tracing::error!(topic = %topic.name, partition = index, error = %e, "records cannot be deleted");
        ResponseError::KafkaStorageError
    };
    let (start, ticket) = {
        let mut log = partition.log();
        let settings = log.settings();
        if settings.compact && !settings.delete {
            return Err(ResponseError::PolicyViolation);
        }
        let offset = if offset == -1 { log.next() } else { offset };
        if offset < 0 || offset > log.next() || partition.is_closed() {
            return Err(ResponseError::OffsetOutOfRange);
        }
        if offset <= log.start() {
            (log.start(), node.topics.newest())
        } else {
            let ticket = node.topics.note_start(topic.id, index, offset).map_err(storage)?;
            (log.delete_below(offset, node.clock.now_ms()).map_err(storage)?, ticket)
        }
    };
    partition.wake();
    node.topics.durable(ticket).await.map_err(storage)?;
    Ok(start)
}
