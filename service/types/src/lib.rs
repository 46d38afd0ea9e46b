//! The words everyone in Millstream shares: ids, offsets, sequences, epochs, schemas, chunks, the log traits and the error kinds.
//!
//! Owns: definitions and the traits between crates. Not here: any I/O. `connectors` implement these traits, `storage` and `stream` use them.
//!
//! Glossary: *offset* is the next Kafka offset to read (exclusive end); *sequence* orders writes inside one region; *epoch* is one interval of
//! processing; *leader epoch* fences region leaders. The three are newtypes that cannot be compared with each other.

pub mod chunk;
pub mod codec;
pub mod epoch;
pub mod error;
pub mod id;
pub mod invariant;
pub mod key;
pub mod log;
pub mod message;
pub mod offset;
pub mod raw;
pub mod runtime;
pub mod schema;
pub mod sequence;
pub mod sql_type;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use chunk::{Chunk, ChunkBuilder, Op};
pub use codec::{BadReason, BadRecord, BadRecordSink, Decoded, Decoder, DecoderFactory, Encoder};
pub use epoch::{Epoch, LeaderEpoch};
pub use error::{BoxError, Classified, ErrorKind, Retry};
pub use id::{InputId, JobId, RegionId, ReplicaId, ShardId, TableId};
pub use key::{Key, KeyCodec, Pos};
pub use log::{
    CommitOutcome, Created, EpochWriter, LogError, LogEvent, LogReader, LogStore, LogSystem, PartitionOffsets,
    Producer, TopicAdmin, TopicInfo, TopicSpec,
};
pub use message::{Barrier, EpochCuts, Message, Watermark};
pub use offset::{Offset, TopicPartition};
pub use raw::{BinaryArena, OutBatch, RawBatch};
pub use schema::{Column, MetadataField, RegionKind, TableSchema};
pub use sequence::Seq;
pub use sql_type::SqlType;
