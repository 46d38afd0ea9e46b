//! Metrics of the crate. Declared here and nowhere else; added up per batch or call, never per record.

use std::sync::LazyLock;

use prometheus::{HistogramVec, IntCounterVec, register_histogram_vec, register_int_counter_vec};

macro_rules! counter {
    ($name:ident, $metric:literal, $help:literal, [$($label:literal),+]) => {
        pub(crate) static $name: LazyLock<IntCounterVec> = LazyLock::new(|| {
            register_int_counter_vec!($metric, $help, &[$($label),+]).expect("names are unique and labels are valid")
        });
    };
}

counter!(RECORDS_READ, "millstream_kafka_records_read_total", "Records handed over by readers.", ["connection"]);
counter!(
    BYTES_READ,
    "millstream_kafka_bytes_read_total",
    "Key and value bytes handed over by readers.",
    ["connection"]
);
counter!(
    POSITION_ONLY_MOVES,
    "millstream_kafka_position_only_moves_total",
    "Moves of a position without records: control records, aborted or compacted offsets.",
    ["connection"]
);
counter!(
    BROKER_ERRORS,
    "millstream_kafka_broker_errors_total",
    "Changes from well to trouble, as clients report them.",
    ["connection"]
);
counter!(
    TXN_OUTCOMES,
    "millstream_kafka_txn_outcomes_total",
    "Transactions by outcome: committed, aborted, fenced, unknown.",
    ["connection", "kind"]
);
counter!(
    QUEUE_FULL_WAITS,
    "millstream_kafka_queue_full_waits_total",
    "Waits for room in a producer's queue, of at most 10 ms each.",
    ["connection"]
);

/// Blocking calls of a transaction: `init`, `send`, `flush`, `commit`, `abort`.
pub(crate) static TXN_CALL_SECONDS: LazyLock<HistogramVec> = LazyLock::new(|| {
    register_histogram_vec!(
        "millstream_kafka_txn_call_seconds",
        "Duration of the calls of a transaction.",
        &["connection", "kind"],
        vec![0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0]
    )
    .expect("names are unique and labels are valid")
});
