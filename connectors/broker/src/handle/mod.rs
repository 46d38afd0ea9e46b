//! Requests: one API a file. `serve` takes a frame apart, `dispatch` calls the handler; handlers get a decoded request and give a message back.

#[cfg(test)]
mod code_tests;
mod configs;
mod delete_records;
mod describe;
#[cfg(feature = "faults")]
mod failed;
mod fetch;
mod groups;
mod list_offsets;
mod metadata;
mod offsets;
mod produce;
#[cfg(test)]
mod tests;
mod topics;
mod transactions;

use std::{collections::HashSet, hash::Hash, net::SocketAddr, sync::Arc};

use bytes::Bytes;
use kafka_protocol::{
    ResponseError,
    messages::*,
    protocol::{Decodable, Encodable, HeaderVersion, StrBytes},
};

use crate::{
    node::Node,
    protocol::{old_produce, reply::Reply, shape, versions},
};

/// Who is at the other end.
#[derive(Debug)]
pub(crate) struct Client {
    /// As of the last request.
    pub(crate) id: String,
    pub(crate) host: String,
    pub(crate) advertised: (StrBytes, u16),
}

impl Client {
    pub(crate) fn new(peer: SocketAddr, advertised: (String, u16)) -> Self {
        Self { id: String::new(), host: format!("/{}", peer.ip()), advertised: (advertised.0.into(), advertised.1) }
    }
}

/// What a handler may use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Context<'a> {
    pub(crate) node: &'a Arc<Node>,
    pub(crate) client: &'a Client,
    pub(crate) version: i16,
    correlation: i32,
}

#[derive(Debug)]
pub(crate) enum Outcome {
    Reply(Reply),
    /// The client wants no answer.
    Nothing,
    Close(&'static str),
}

/// Why a request cannot be decoded, in the codec's words.
pub(crate) type Unreadable = Box<dyn std::error::Error + Send + Sync>;

/// The code of an error, or 0.
pub(crate) fn code<T>(outcome: &Result<T, ResponseError>) -> i16 {
    outcome.as_ref().err().map_or(0, ResponseError::code)
}

/// Each thing once, in the order of asking: a name that a request repeats a million times must not multiply its answer.
fn once<T, K: Hash + Eq>(mut asked: Vec<T>, key: impl Fn(&T) -> K) -> Vec<T> {
    let mut seen = HashSet::with_capacity(asked.len());
    asked.retain(|one| seen.insert(key(one)));
    asked
}

pub(crate) async fn serve(node: &Arc<Node>, client: &mut Client, mut frame: Bytes) -> Outcome {
    // The frame reader has seen these eight bytes.
    let int = |at: usize| i16::from_be_bytes([frame[at], frame[at + 1]]);
    let (key, version) = (int(0), int(2));
    let Ok(api) = ApiKey::try_from(key) else { return Outcome::Close("unknown API") };
    if !versions::is_served(api, version) {
        if api == ApiKey::ApiVersions {
            let correlation = i32::from_be_bytes([frame[4], frame[5], frame[6], frame[7]]);
            return encode(correlation, 0, &describe::api_versions(ResponseError::UnsupportedVersion.code()));
        }
        tracing::info!(client = client.id, api = ?api, key, version, "an API or version that is not served");
        return Outcome::Close("API or version is not served");
    }
    let Ok(header) = RequestHeader::decode(&mut frame, api.request_header_version(version)) else {
        return Outcome::Close("the request header cannot be read");
    };
    let id = header.client_id.as_ref().map_or("", |id| id.as_str());
    if client.id != id {
        id.clone_into(&mut client.id);
    }
    if api == ApiKey::Produce && version < 3 {
        return match old_produce::refuse(frame, header.correlation_id, version) {
            Some(parts) => Outcome::Reply(Reply::of_parts(parts)),
            None => Outcome::Close("a version of Produce that is not served"),
        };
    }
    if let Err(e) = shape::check(api, version, &frame) {
        tracing::info!(client = client.id, api = ?api, version, error = ?e, "lengths in a request do not agree with its size");
        return Outcome::Close("the request cannot be read");
    }
    let context = Context { node, client, version, correlation: header.correlation_id };
    #[cfg(feature = "faults")]
    let outcome = if node.faults.are_armed() {
        with_faults(context, api, frame).await
    } else {
        dispatch(context, api, frame).await
    };
    #[cfg(not(feature = "faults"))]
    let outcome = dispatch(context, api, frame).await;
    outcome.unwrap_or_else(|why| {
        tracing::info!(client = client.id, api = ?api, version, error = %why, "a request or its answer is impossible");
        Outcome::Close("the request cannot be served")
    })
}

#[cfg(feature = "faults")]
async fn with_faults(context: Context<'_>, api: ApiKey, frame: Bytes) -> Result<Outcome, Unreadable> {
    use crate::faults::{After, Before, Subject};

    let partitions = failed::partitions_of(context, api, frame.clone())?;
    let subject = Subject { api, client_id: &context.client.id, partitions: &partitions };
    match context.node.faults.before(&subject) {
        Before::Go => {}
        Before::Drop => return Ok(Outcome::Close("a fault drops the request")),
        Before::Fail(code) => return failed::reply(context, api, frame, code),
    }
    let outcome = dispatch(context, api, frame).await?;
    Ok(match context.node.faults.after(&subject).await {
        After::Send => outcome,
        After::Drop => Outcome::Close("a fault drops the answer"),
    })
}

fn encode<M: Encodable + HeaderVersion>(correlation: i32, version: i16, message: &M) -> Outcome {
    match Reply::of(correlation, version, message) {
        Ok(reply) => Outcome::Reply(reply),
        Err(e) => {
            tracing::error!(error = %e, version, "bug in an answer");
            Outcome::Close("the answer cannot be encoded")
        }
    }
}

async fn dispatch(context: Context<'_>, api: ApiKey, mut body: Bytes) -> Result<Outcome, Unreadable> {
    let version = context.version;
    macro_rules! answer {
        ($request:ty, $handler:path) => {{
            let request = <$request>::decode(&mut body, version)?;
            let response = $handler(context, request).await;
            Ok(encode(context.correlation, version, &response))
        }};
    }
    match api {
        ApiKey::Produce => produce::handle(context, ProduceRequest::decode(&mut body, version)?).await,
        ApiKey::Fetch => Ok(fetch::handle(context, FetchRequest::decode(&mut body, version)?).await),
        ApiKey::ApiVersions => Ok(encode(context.correlation, version, &describe::api_versions(0))),
        ApiKey::Metadata => answer!(MetadataRequest, metadata::metadata),
        ApiKey::DescribeCluster => answer!(DescribeClusterRequest, metadata::describe_cluster),
        ApiKey::FindCoordinator => answer!(FindCoordinatorRequest, metadata::find_coordinator),
        ApiKey::ListOffsets => answer!(ListOffsetsRequest, list_offsets::list_offsets),
        ApiKey::OffsetForLeaderEpoch => answer!(OffsetForLeaderEpochRequest, list_offsets::offset_for_leader_epoch),
        ApiKey::JoinGroup => answer!(JoinGroupRequest, groups::join),
        ApiKey::SyncGroup => answer!(SyncGroupRequest, groups::sync),
        ApiKey::Heartbeat => answer!(HeartbeatRequest, groups::heartbeat),
        ApiKey::LeaveGroup => answer!(LeaveGroupRequest, groups::leave),
        ApiKey::ListGroups => answer!(ListGroupsRequest, groups::list),
        ApiKey::DescribeGroups => answer!(DescribeGroupsRequest, groups::describe),
        ApiKey::DeleteGroups => answer!(DeleteGroupsRequest, groups::delete),
        ApiKey::OffsetCommit => answer!(OffsetCommitRequest, offsets::commit),
        ApiKey::OffsetFetch => answer!(OffsetFetchRequest, offsets::fetch),
        ApiKey::OffsetDelete => answer!(OffsetDeleteRequest, offsets::delete),
        ApiKey::TxnOffsetCommit => answer!(TxnOffsetCommitRequest, offsets::commit_in_transaction),
        ApiKey::InitProducerId => answer!(InitProducerIdRequest, transactions::init),
        ApiKey::AddPartitionsToTxn => answer!(AddPartitionsToTxnRequest, transactions::add_partitions),
        ApiKey::AddOffsetsToTxn => answer!(AddOffsetsToTxnRequest, transactions::add_offsets),
        ApiKey::EndTxn => answer!(EndTxnRequest, transactions::end),
        ApiKey::ListTransactions => answer!(ListTransactionsRequest, describe::list_transactions),
        ApiKey::DescribeTransactions => answer!(DescribeTransactionsRequest, describe::describe_transactions),
        ApiKey::DescribeProducers => answer!(DescribeProducersRequest, describe::describe_producers),
        ApiKey::CreateTopics => answer!(CreateTopicsRequest, topics::create),
        ApiKey::DeleteTopics => answer!(DeleteTopicsRequest, topics::delete),
        ApiKey::CreatePartitions => answer!(CreatePartitionsRequest, topics::create_partitions),
        ApiKey::DeleteRecords => answer!(DeleteRecordsRequest, delete_records::handle),
        ApiKey::DescribeConfigs => answer!(DescribeConfigsRequest, configs::describe),
        ApiKey::AlterConfigs => answer!(AlterConfigsRequest, configs::alter),
        ApiKey::IncrementalAlterConfigs => answer!(IncrementalAlterConfigsRequest, configs::incremental_alter),
        _ => Ok(Outcome::Close("API is not served")),
    }
}
