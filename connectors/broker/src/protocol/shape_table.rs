//! The layout of every request, as far as lengths go. Derived from the message definitions that `kafka-protocol` is generated from; the tagged fields of
//! these versions hold no arrays and are skipped whole. The test in `shape.rs` compares it with the codecs.

use kafka_protocol::messages::ApiKey;

use super::shape::{
    Field,
    Kind::{Data, Each, Fixed, Plain, Text},
    Shape, f,
};

const fn shape(flexible_from: i16, fields: &'static [Field]) -> Shape {
    Shape { flexible_from, fields }
}

#[rustfmt::skip]
const SHAPES: &[(ApiKey, Shape)] = &[
    (ApiKey::ApiVersions, shape(3, &[
        f(3, 4, Text), // client_software_name
        f(3, 4, Text), // client_software_version
    ])),
    (ApiKey::Metadata, shape(9, &[
        f(0, 13, Each(&[
            f(10, 13, Fixed(16)), // topic_id
            f(0, 13, Text), // name
        ])), // topics
        f(4, 13, Fixed(1)), // allow_auto_topic_creation
        f(8, 10, Fixed(1)), // include_cluster_authorized_operations
        f(8, 13, Fixed(1)), // include_topic_authorized_operations
    ])),
    (ApiKey::DescribeCluster, shape(0, &[
        f(0, 2, Fixed(1)), // include_cluster_authorized_operations
        f(1, 2, Fixed(1)), // endpoint_type
        f(2, 2, Fixed(1)), // include_fenced_brokers
    ])),
    (ApiKey::Produce, shape(9, &[
        f(3, 13, Text), // transactional_id
        f(3, 13, Fixed(2)), // acks
        f(3, 13, Fixed(4)), // timeout_ms
        f(3, 13, Each(&[
            f(3, 12, Text), // name
            f(13, 13, Fixed(16)), // topic_id
            f(3, 13, Each(&[
                f(3, 13, Fixed(4)), // index
                f(3, 13, Data), // records
            ])), // partition_data
        ])), // topic_data
    ])),
    (ApiKey::Fetch, shape(12, &[
        f(4, 14, Fixed(4)), // replica_id
        f(4, 18, Fixed(4)), // max_wait_ms
        f(4, 18, Fixed(4)), // min_bytes
        f(4, 18, Fixed(4)), // max_bytes
        f(4, 18, Fixed(1)), // isolation_level
        f(7, 18, Fixed(4)), // session_id
        f(7, 18, Fixed(4)), // session_epoch
        f(4, 18, Each(&[
            f(4, 12, Text), // topic
            f(13, 18, Fixed(16)), // topic_id
            f(4, 18, Each(&[
                f(4, 18, Fixed(4)), // partition
                f(9, 18, Fixed(4)), // current_leader_epoch
                f(4, 18, Fixed(8)), // fetch_offset
                f(12, 18, Fixed(4)), // last_fetched_epoch
                f(5, 18, Fixed(8)), // log_start_offset
                f(4, 18, Fixed(4)), // partition_max_bytes
            ])), // partitions
        ])), // topics
        f(7, 18, Each(&[
            f(7, 12, Text), // topic
            f(13, 18, Fixed(16)), // topic_id
            f(7, 18, Plain(&Fixed(4))), // partitions
        ])), // forgotten_topics_data
        f(11, 18, Text), // rack_id
    ])),
    (ApiKey::ListOffsets, shape(6, &[
        f(1, 10, Fixed(4)), // replica_id
        f(2, 10, Fixed(1)), // isolation_level
        f(1, 10, Each(&[
            f(1, 10, Text), // name
            f(1, 10, Each(&[
                f(1, 10, Fixed(4)), // partition_index
                f(4, 10, Fixed(4)), // current_leader_epoch
                f(1, 10, Fixed(8)), // timestamp
            ])), // partitions
        ])), // topics
        f(10, 10, Fixed(4)), // timeout_ms
    ])),
    (ApiKey::OffsetForLeaderEpoch, shape(4, &[
        f(3, 4, Fixed(4)), // replica_id
        f(2, 4, Each(&[
            f(2, 4, Text), // topic
            f(2, 4, Each(&[
                f(2, 4, Fixed(4)), // partition
                f(2, 4, Fixed(4)), // current_leader_epoch
                f(2, 4, Fixed(4)), // leader_epoch
            ])), // partitions
        ])), // topics
    ])),
    (ApiKey::FindCoordinator, shape(3, &[
        f(0, 3, Text), // key
        f(1, 6, Fixed(1)), // key_type
        f(4, 6, Plain(&Text)), // coordinator_keys
    ])),
    (ApiKey::JoinGroup, shape(6, &[
        f(0, 9, Text), // group_id
        f(0, 9, Fixed(4)), // session_timeout_ms
        f(1, 9, Fixed(4)), // rebalance_timeout_ms
        f(0, 9, Text), // member_id
        f(5, 9, Text), // group_instance_id
        f(0, 9, Text), // protocol_type
        f(0, 9, Each(&[
            f(0, 9, Text), // name
            f(0, 9, Data), // metadata
        ])), // protocols
        f(8, 9, Text), // reason
    ])),
    (ApiKey::SyncGroup, shape(4, &[
        f(0, 5, Text), // group_id
        f(0, 5, Fixed(4)), // generation_id
        f(0, 5, Text), // member_id
        f(3, 5, Text), // group_instance_id
        f(5, 5, Text), // protocol_type
        f(5, 5, Text), // protocol_name
        f(0, 5, Each(&[
            f(0, 5, Text), // member_id
            f(0, 5, Data), // assignment
        ])), // assignments
    ])),
    (ApiKey::Heartbeat, shape(4, &[
        f(0, 4, Text), // group_id
        f(0, 4, Fixed(4)), // generation_id
        f(0, 4, Text), // member_id
        f(3, 4, Text), // group_instance_id
    ])),
    (ApiKey::LeaveGroup, shape(4, &[
        f(0, 5, Text), // group_id
        f(0, 2, Text), // member_id
        f(3, 5, Each(&[
            f(3, 5, Text), // member_id
            f(3, 5, Text), // group_instance_id
            f(5, 5, Text), // reason
        ])), // members
    ])),
    (ApiKey::OffsetCommit, shape(8, &[
        f(2, 9, Text), // group_id
        f(2, 9, Fixed(4)), // generation_id_or_member_epoch
        f(2, 9, Text), // member_id
        f(7, 9, Text), // group_instance_id
        f(2, 4, Fixed(8)), // retention_time_ms
        f(2, 9, Each(&[
            f(2, 9, Text), // name
            f(2, 9, Each(&[
                f(2, 9, Fixed(4)), // partition_index
                f(2, 9, Fixed(8)), // committed_offset
                f(6, 9, Fixed(4)), // committed_leader_epoch
                f(2, 9, Text), // committed_metadata
            ])), // partitions
        ])), // topics
    ])),
    (ApiKey::OffsetFetch, shape(6, &[
        f(1, 7, Text), // group_id
        f(1, 7, Each(&[
            f(1, 7, Text), // name
            f(1, 7, Plain(&Fixed(4))), // partition_indexes
        ])), // topics
        f(8, 9, Each(&[
            f(8, 9, Text), // group_id
            f(9, 9, Text), // member_id
            f(9, 9, Fixed(4)), // member_epoch
            f(8, 9, Each(&[
                f(8, 9, Text), // name
                f(8, 9, Plain(&Fixed(4))), // partition_indexes
            ])), // topics
        ])), // groups
        f(7, 9, Fixed(1)), // require_stable
    ])),
    (ApiKey::OffsetDelete, shape(99, &[
        f(0, 0, Text), // group_id
        f(0, 0, Each(&[
            f(0, 0, Text), // name
            f(0, 0, Each(&[
                f(0, 0, Fixed(4)), // partition_index
            ])), // partitions
        ])), // topics
    ])),
    (ApiKey::ListGroups, shape(3, &[
        f(4, 5, Plain(&Text)), // states_filter
        f(5, 5, Plain(&Text)), // types_filter
    ])),
    (ApiKey::DescribeGroups, shape(5, &[
        f(0, 6, Plain(&Text)), // groups
        f(3, 6, Fixed(1)), // include_authorized_operations
    ])),
    (ApiKey::DeleteGroups, shape(2, &[
        f(0, 2, Plain(&Text)), // groups_names
    ])),
    (ApiKey::InitProducerId, shape(2, &[
        f(0, 5, Text), // transactional_id
        f(0, 5, Fixed(4)), // transaction_timeout_ms
        f(3, 5, Fixed(8)), // producer_id
        f(3, 5, Fixed(2)), // producer_epoch
    ])),
    (ApiKey::AddPartitionsToTxn, shape(3, &[
        f(4, 5, Each(&[
            f(4, 5, Text), // transactional_id
            f(4, 5, Fixed(8)), // producer_id
            f(4, 5, Fixed(2)), // producer_epoch
            f(4, 5, Fixed(1)), // verify_only
            f(4, 5, Each(&[
                f(0, 5, Text), // name
                f(0, 5, Plain(&Fixed(4))), // partitions
            ])), // topics
        ])), // transactions
        f(0, 3, Text), // v3_and_below_transactional_id
        f(0, 3, Fixed(8)), // v3_and_below_producer_id
        f(0, 3, Fixed(2)), // v3_and_below_producer_epoch
        f(0, 3, Each(&[
            f(0, 5, Text), // name
            f(0, 5, Plain(&Fixed(4))), // partitions
        ])), // v3_and_below_topics
    ])),
    (ApiKey::AddOffsetsToTxn, shape(3, &[
        f(0, 4, Text), // transactional_id
        f(0, 4, Fixed(8)), // producer_id
        f(0, 4, Fixed(2)), // producer_epoch
        f(0, 4, Text), // group_id
    ])),
    (ApiKey::EndTxn, shape(3, &[
        f(0, 5, Text), // transactional_id
        f(0, 5, Fixed(8)), // producer_id
        f(0, 5, Fixed(2)), // producer_epoch
        f(0, 5, Fixed(1)), // committed
    ])),
    (ApiKey::TxnOffsetCommit, shape(3, &[
        f(0, 5, Text), // transactional_id
        f(0, 5, Text), // group_id
        f(0, 5, Fixed(8)), // producer_id
        f(0, 5, Fixed(2)), // producer_epoch
        f(3, 5, Fixed(4)), // generation_id
        f(3, 5, Text), // member_id
        f(3, 5, Text), // group_instance_id
        f(0, 5, Each(&[
            f(0, 5, Text), // name
            f(0, 5, Each(&[
                f(0, 5, Fixed(4)), // partition_index
                f(0, 5, Fixed(8)), // committed_offset
                f(2, 5, Fixed(4)), // committed_leader_epoch
                f(0, 5, Text), // committed_metadata
            ])), // partitions
        ])), // topics
    ])),
    (ApiKey::CreateTopics, shape(5, &[
        f(2, 7, Each(&[
            f(2, 7, Text), // name
            f(2, 7, Fixed(4)), // num_partitions
            f(2, 7, Fixed(2)), // replication_factor
            f(2, 7, Each(&[
                f(2, 7, Fixed(4)), // partition_index
                f(2, 7, Plain(&Fixed(4))), // broker_ids
            ])), // assignments
            f(2, 7, Each(&[
                f(2, 7, Text), // name
                f(2, 7, Text), // value
            ])), // configs
        ])), // topics
        f(2, 7, Fixed(4)), // timeout_ms
        f(2, 7, Fixed(1)), // validate_only
    ])),
    (ApiKey::DeleteTopics, shape(4, &[
        f(6, 6, Each(&[
            f(6, 6, Text), // name
            f(6, 6, Fixed(16)), // topic_id
        ])), // topics
        f(1, 5, Plain(&Text)), // topic_names
        f(1, 6, Fixed(4)), // timeout_ms
    ])),
    (ApiKey::CreatePartitions, shape(2, &[
        f(0, 3, Each(&[
            f(0, 3, Text), // name
            f(0, 3, Fixed(4)), // count
            f(0, 3, Each(&[
                f(0, 3, Plain(&Fixed(4))), // broker_ids
            ])), // assignments
        ])), // topics
        f(0, 3, Fixed(4)), // timeout_ms
        f(0, 3, Fixed(1)), // validate_only
    ])),
    (ApiKey::DeleteRecords, shape(2, &[
        f(0, 2, Each(&[
            f(0, 2, Text), // name
            f(0, 2, Each(&[
                f(0, 2, Fixed(4)), // partition_index
                f(0, 2, Fixed(8)), // offset
            ])), // partitions
        ])), // topics
        f(0, 2, Fixed(4)), // timeout_ms
    ])),
    (ApiKey::DescribeConfigs, shape(4, &[
        f(1, 4, Each(&[
            f(1, 4, Fixed(1)), // resource_type
            f(1, 4, Text), // resource_name
            f(1, 4, Plain(&Text)), // configuration_keys
        ])), // resources
        f(1, 4, Fixed(1)), // include_synonyms
        f(3, 4, Fixed(1)), // include_documentation
    ])),
    (ApiKey::AlterConfigs, shape(2, &[
        f(0, 2, Each(&[
            f(0, 2, Fixed(1)), // resource_type
            f(0, 2, Text), // resource_name
            f(0, 2, Each(&[
                f(0, 2, Text), // name
                f(0, 2, Text), // value
            ])), // configs
        ])), // resources
        f(0, 2, Fixed(1)), // validate_only
    ])),
    (ApiKey::IncrementalAlterConfigs, shape(1, &[
        f(0, 1, Each(&[
            f(0, 1, Fixed(1)), // resource_type
            f(0, 1, Text), // resource_name
            f(0, 1, Each(&[
                f(0, 1, Text), // name
                f(0, 1, Fixed(1)), // config_operation
                f(0, 1, Text), // value
            ])), // configs
        ])), // resources
        f(0, 1, Fixed(1)), // validate_only
    ])),
    (ApiKey::ListTransactions, shape(0, &[
        f(0, 2, Plain(&Text)), // state_filters
        f(0, 2, Plain(&Fixed(8))), // producer_id_filters
        f(1, 2, Fixed(8)), // duration_filter
        f(2, 2, Text), // transactional_id_pattern
    ])),
    (ApiKey::DescribeTransactions, shape(0, &[
        f(0, 0, Plain(&Text)), // transactional_ids
    ])),
    (ApiKey::DescribeProducers, shape(0, &[
        f(0, 0, Each(&[
            f(0, 0, Text), // name
            f(0, 0, Plain(&Fixed(4))), // partition_indexes
        ])), // topics
    ])),

];

/// `None`: an API that this broker does not serve.
pub(super) fn of(api: ApiKey) -> Option<&'static Shape> {
    SHAPES.iter().find(|(a, _)| *a == api).map(|(_, shape)| shape)
}
