//! Record formats as options name them: the seam to `connectors/format`.

use std::{collections::BTreeMap, fmt::Debug, sync::Arc};

use millstream_types::{Column, Encoder, TableSchema, codec::SharedDecoderFactory};

/// A refused option or an impossible format; `option` is the one to point at, if it is one.
#[derive(Debug)]
pub struct FormatRefusal {
    pub option: Option<String>,
    pub message: String,
    pub hint: Option<String>,
}

pub type Options = BTreeMap<String, String>;

/// Owns which formats and format options exist.
pub trait Formats: Send + Sync + Debug {
    /// The decoder of a topic-fed table. Refuses options that it does not know.
    fn decoder(&self, schema: &TableSchema, options: &Options) -> Result<SharedDecoderFactory, FormatRefusal>;

    /// Encoders of the key (`None` without key columns) and the value of a derived topic. Refuses options that it does not know.
    fn encoders(&self, key: &[Column], value: &[Column], options: &Options) -> Result<Encoders, FormatRefusal>;

    /// Encoders that write what `decoder` reads, for INSERT into a topic-fed table.
    fn table_encoders(&self, schema: &TableSchema, options: &Options) -> Result<TableEncoders, FormatRefusal>;

    /// Java's default: murmur2 of the key bytes.
    fn partition_for_key(&self) -> fn(&[u8], i32) -> i32;
}

#[derive(Debug, Clone)]
pub struct Encoders {
    pub key: Option<Arc<dyn Encoder>>,
    pub value: Arc<dyn Encoder>,
}

/// Each encoder with the places in `TableSchema::columns` that it takes.
#[derive(Debug, Clone)]
pub struct TableEncoders {
    pub key: Option<(Arc<dyn Encoder>, Vec<usize>)>,
    pub value: (Arc<dyn Encoder>, Vec<usize>),
}
