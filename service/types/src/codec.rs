//! Record bytes <-> Arrow rows: the traits that `connectors/format` implements.

use std::{fmt::Debug, sync::Arc};

use arrow::array::RecordBatch;
use serde::{Deserialize, Serialize};

use crate::{BinaryArena, BoxError, Offset, Op, RawBatch};

/// Why a record was rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BadReason {
    Malformed,
    TypeMismatch,
    OutOfRange,
    InvalidUtf8,
    MissingField,
    NullKey,
    NotNull,
    TombstoneWithoutKey,
    TooLarge,
    LimitExceeded,
}

impl BadReason {
    pub fn as_str(self) -> &'static str {
        match self {
            BadReason::Malformed => "malformed",
            BadReason::TypeMismatch => "type_mismatch",
            BadReason::OutOfRange => "out_of_range",
            BadReason::InvalidUtf8 => "invalid_utf8",
            BadReason::MissingField => "missing_field",
            BadReason::NullKey => "null_key",
            BadReason::NotNull => "not_null",
            BadReason::TombstoneWithoutKey => "tombstone_without_key",
            BadReason::TooLarge => "too_large",
            BadReason::LimitExceeded => "limit_exceeded",
        }
    }
}

/// One rejected record with its coordinates; topic and partition are those of the batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BadRecord {
    pub offset: i64,
    pub timestamp_ms: i64,
    /// `key` or `value`.
    pub stage: &'static str,
    pub reason: BadReason,
    /// Column path, empty if the whole record is meant.
    pub column: String,
    /// At most 1 KiB.
    pub message: String,
}

/// Rows of one batch. Each record ended as one row, ignored or bad: `rows + ignored + bad = records`.
#[derive(Debug, Clone)]
pub struct Decoded {
    /// Schema: `TableSchema::arrow` of the table the decoder was made for.
    pub rows: RecordBatch,
    /// `Insert` = put, `Delete` = delete by key (all other columns null). One per row.
    pub ops: Vec<Op>,
    /// Kafka offset of the record of each row, strictly increasing.
    pub offsets: Vec<i64>,
    pub bad: Vec<BadRecord>,
    pub ignored: u32,
    pub next: Offset,
}

/// Turns records into rows. CPU only, no I/O; lives on one task.
pub trait Decoder: Send + Debug {
    /// Never fails as a whole: a bad record is listed and its neighbours are rows.
    fn decode(&mut self, batch: &RawBatch) -> Decoded;
}

/// Makes a decoder per region.
pub trait DecoderFactory: Send + Sync + Debug {
    fn decoder(&self) -> Box<dyn Decoder>;
}

/// Turns rows into record bytes: one entry per row is appended to `out`. The columns are those the encoder was made for.
pub trait Encoder: Send + Sync + Debug {
    fn encode(&self, rows: &RecordBatch, out: &mut BinaryArena) -> Result<(), BoxError>;
}

/// Where rejected records are reported; called once per batch that has any, never blocks.
pub trait BadRecordSink: Send + Sync + Debug {
    fn report(&self, partition: &crate::TopicPartition, bad: Vec<BadRecord>);
}

pub type SharedDecoderFactory = Arc<dyn DecoderFactory>;
