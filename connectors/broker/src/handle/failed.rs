//! Answers that a fault asks for: the error of its choice, in the place where the API has one. Only called while a fault is armed.

use bytes::Bytes;
use kafka_protocol::{
    messages::*,
    protocol::{Decodable, Encodable, HeaderVersion},
};

use super::{Context, Outcome, Unreadable, encode};
use crate::protocol::{
    fetch_response::{self, Fetched, FetchedPartition, FetchedTopic},
    reply::Reply,
};

/// The partitions that a request of the data path names; for others none.
pub(super) fn partitions_of(
    context: Context<'_>,
    api: ApiKey,
    mut body: Bytes,
) -> Result<Vec<(String, i32)>, Unreadable> {
    let version = context.version;
    Ok(match api {
        ApiKey::Produce => {
            let topics = ProduceRequest::decode(&mut body, version)?.topic_data;
            let of = |t: &produce_request::TopicProduceData| {
                t.partition_data.iter().map(|p| (t.name.to_string(), p.index)).collect::<Vec<_>>()
            };
            topics.iter().flat_map(of).collect()
        }
        ApiKey::Fetch => {
            let topics = FetchRequest::decode(&mut body, version)?.topics;
            let of = |t: &fetch_request::FetchTopic| {
                let by_id = context.node.topics.by_id(t.topic_id).map(|t| t.name.to_string());
                let name = if version >= 13 { by_id.unwrap_or_default() } else { t.topic.to_string() };
                t.partitions.iter().map(|p| (name.clone(), p.partition)).collect::<Vec<_>>()
            };
            topics.iter().flat_map(of).collect()
        }
        _ => Vec::new(),
    })
}

/// An answer that says nothing but the error. APIs without a place for it close the connection.
pub(super) fn reply(context: Context<'_>, api: ApiKey, mut body: Bytes, code: i16) -> Result<Outcome, Unreadable> {
    let version = context.version;
    fn out<M: Encodable + HeaderVersion>(context: Context<'_>, message: &M) -> Outcome {
        encode(context.correlation, context.version, message)
    }
    macro_rules! top {
        ($response:ty) => {
            out(context, &<$response>::default().with_error_code(code))
        };
    }
    Ok(match api {
        ApiKey::Produce => {
            use produce_response::{PartitionProduceResponse, TopicProduceResponse};
            let request = ProduceRequest::decode(&mut body, version)?;
            if request.acks == 0 {
                return Ok(Outcome::Nothing);
            }
            let topics = request.topic_data.into_iter().map(|t| {
                let one = |p: &produce_request::PartitionProduceData| {
                    PartitionProduceResponse::default().with_index(p.index).with_error_code(code).with_base_offset(-1)
                };
                let partitions = t.partition_data.iter().map(one).collect();
                TopicProduceResponse::default().with_name(t.name).with_partition_responses(partitions)
            });
            out(context, &ProduceResponse::default().with_responses(topics.collect()))
        }
        ApiKey::Fetch => {
            let request = FetchRequest::decode(&mut body, version)?;
            let topics = request.topics.into_iter().map(|t| FetchedTopic {
                name: t.topic.0.into_bytes(),
                id: t.topic_id,
                partitions: t.partitions.iter().map(|p| FetchedPartition::error(p.partition, code)).collect(),
            });
            let fetched = Fetched { error: 0, topics: topics.collect() };
            Outcome::Reply(Reply::of_parts(fetch_response::encode(fetched, context.correlation, version)))
        }
        ApiKey::ListOffsets => {
            use list_offsets_response::{ListOffsetsPartitionResponse, ListOffsetsTopicResponse};
            let topics = ListOffsetsRequest::decode(&mut body, version)?.topics.into_iter().map(|t| {
                let one = |p: &list_offsets_request::ListOffsetsPartition| {
                    ListOffsetsPartitionResponse::default()
                        .with_partition_index(p.partition_index)
                        .with_error_code(code)
                };
                let partitions = t.partitions.iter().map(one).collect();
                ListOffsetsTopicResponse::default().with_name(t.name).with_partitions(partitions)
            });
            out(context, &ListOffsetsResponse::default().with_topics(topics.collect()))
        }
        ApiKey::OffsetCommit => {
            use offset_commit_response::{OffsetCommitResponsePartition, OffsetCommitResponseTopic};
            let topics = OffsetCommitRequest::decode(&mut body, version)?.topics.into_iter().map(|t| {
                let one = |p: &offset_commit_request::OffsetCommitRequestPartition| {
                    OffsetCommitResponsePartition::default()
                        .with_partition_index(p.partition_index)
                        .with_error_code(code)
                };
                let partitions = t.partitions.iter().map(one).collect();
                OffsetCommitResponseTopic::default().with_name(t.name).with_partitions(partitions)
            });
            out(context, &OffsetCommitResponse::default().with_topics(topics.collect()))
        }
        ApiKey::TxnOffsetCommit => {
            use txn_offset_commit_response::{TxnOffsetCommitResponsePartition, TxnOffsetCommitResponseTopic};
            let topics = TxnOffsetCommitRequest::decode(&mut body, version)?.topics.into_iter().map(|t| {
                let one = |p: &txn_offset_commit_request::TxnOffsetCommitRequestPartition| {
                    TxnOffsetCommitResponsePartition::default()
                        .with_partition_index(p.partition_index)
                        .with_error_code(code)
                };
                let partitions = t.partitions.iter().map(one).collect();
                TxnOffsetCommitResponseTopic::default().with_name(t.name).with_partitions(partitions)
            });
            out(context, &TxnOffsetCommitResponse::default().with_topics(topics.collect()))
        }
        ApiKey::AddPartitionsToTxn => {
            use add_partitions_to_txn_response::{AddPartitionsToTxnPartitionResult, AddPartitionsToTxnTopicResult};
            let request = AddPartitionsToTxnRequest::decode(&mut body, version)?;
            let topics = request.v3_and_below_topics.into_iter().map(|t| {
                let one = |p: &i32| {
                    AddPartitionsToTxnPartitionResult::default()
                        .with_partition_index(*p)
                        .with_partition_error_code(code)
                };
                let partitions = t.partitions.iter().map(one).collect();
                AddPartitionsToTxnTopicResult::default().with_name(t.name).with_results_by_partition(partitions)
            });
            out(context, &AddPartitionsToTxnResponse::default().with_results_by_topic_v3_and_below(topics.collect()))
        }
        ApiKey::CreateTopics => {
            use create_topics_response::CreatableTopicResult;
            let topics = CreateTopicsRequest::decode(&mut body, version)?.topics.into_iter();
            let topics = topics.map(|t| CreatableTopicResult::default().with_name(t.name).with_error_code(code));
            out(context, &CreateTopicsResponse::default().with_topics(topics.collect()))
        }
        ApiKey::DeleteRecords => {
            use delete_records_response::{DeleteRecordsPartitionResult, DeleteRecordsTopicResult};
            let topics = DeleteRecordsRequest::decode(&mut body, version)?.topics.into_iter().map(|t| {
                let one = |p: &delete_records_request::DeleteRecordsPartition| {
                    DeleteRecordsPartitionResult::default()
                        .with_partition_index(p.partition_index)
                        .with_error_code(code)
                };
                let partitions = t.partitions.iter().map(one).collect();
                DeleteRecordsTopicResult::default().with_name(t.name).with_partitions(partitions)
            });
            out(context, &DeleteRecordsResponse::default().with_topics(topics.collect()))
        }
        ApiKey::FindCoordinator if version < 4 => top!(FindCoordinatorResponse),
        ApiKey::JoinGroup => top!(JoinGroupResponse),
        ApiKey::SyncGroup => top!(SyncGroupResponse),
        ApiKey::Heartbeat => top!(HeartbeatResponse),
        ApiKey::LeaveGroup => top!(LeaveGroupResponse),
        ApiKey::InitProducerId => {
            let none = InitProducerIdResponse::default().with_producer_id(ProducerId(-1)).with_producer_epoch(-1);
            out(context, &none.with_error_code(code))
        }
        ApiKey::AddOffsetsToTxn => top!(AddOffsetsToTxnResponse),
        ApiKey::EndTxn => top!(EndTxnResponse),
        _ => Outcome::Close("a fault wants an error that this API cannot tell"),
    })
}
