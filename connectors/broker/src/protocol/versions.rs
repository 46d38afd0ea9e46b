//! The one table of APIs and versions that this broker serves.

use kafka_protocol::messages::{ApiKey, ApiKey::*};

/// (API, lowest, highest version)
pub(crate) const SERVED: &[(ApiKey, i16, i16)] = &[
    // 0 to 2 are refused with an error, but shown: some librdkafka versions stop compressing if 0 is missing.
    (Produce, 0, 11),
    (Fetch, 4, 16),
    (ListOffsets, 1, 7),
    (Metadata, 0, 12),
    (OffsetCommit, 2, 8),
    (OffsetFetch, 1, 8),
    (FindCoordinator, 0, 4),
    (JoinGroup, 0, 9),
    (Heartbeat, 0, 4),
    (LeaveGroup, 0, 5),
    (SyncGroup, 0, 5),
    (DescribeGroups, 0, 5),
    (ListGroups, 0, 4),
    (ApiVersions, 0, 4),
    (CreateTopics, 2, 7),
    (DeleteTopics, 1, 6),
    (DeleteRecords, 0, 2),
    (InitProducerId, 0, 4),
    (OffsetForLeaderEpoch, 2, 4),
    (AddPartitionsToTxn, 0, 3),
    (AddOffsetsToTxn, 0, 3),
    (EndTxn, 0, 3),
    (TxnOffsetCommit, 0, 3),
    (DescribeConfigs, 1, 4),
    (AlterConfigs, 0, 2),
    (CreatePartitions, 0, 3),
    (DeleteGroups, 0, 2),
    (OffsetDelete, 0, 0),
    (IncrementalAlterConfigs, 0, 1),
    (DescribeCluster, 0, 1),
    (DescribeProducers, 0, 0),
    (DescribeTransactions, 0, 0),
    (ListTransactions, 0, 0),
];

pub(crate) fn is_served(api: ApiKey, version: i16) -> bool {
    SERVED.iter().any(|(a, low, high)| *a == api && (*low..=*high).contains(&version))
}
