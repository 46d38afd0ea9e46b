//! Record bytes to Arrow rows and back: JSON, raw text and raw bytes; tables' keys, defaults and metadata; the partitioner; the list of bad records.
//!
//! Owns: formats and their options. Not here: Kafka, storage, SQL. A record that cannot be read is a `BadRecord` and never an error of the batch.
//!
//! Reading order: `table_format.rs` (which column comes from where), `decoder.rs` (one record after the other), `read.rs` (one value),
//! `cursor.rs` (JSON), `builder.rs` (columns that can be taken back), `encode/` (the other direction).

mod bad_records;
mod builder;
mod cursor;
mod decoder;
mod default;
mod encode;
mod error;
mod fail;
mod metrics;
mod options;
mod partitioner;
mod read;
mod table_format;
mod value;

pub use bad_records::{BadEntry, BadRecordRing, BadReport};
pub use decoder::TableDecoder;
pub use encode::{BytesEncoder, JsonEncoder, StringEncoder, encoder};
pub use error::FormatError;
pub use metrics::FormatMetrics;
pub use options::{BytesForm, Format, JsonOptions, NanForm, NumberForm, TimeUnit};
pub use partitioner::{murmur2, partition_for_key};
pub use table_format::{NullValue, TableEncoders, TableFormat};
pub use value::temporal::Unit as TimestampUnit;
