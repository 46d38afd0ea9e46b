//! One record per key and epoch for a topic whose key several rows may share.
//!
//! Two partitions of a table's topic can hold one key, for instance after partitions were added. The table then has two rows, and so has a view of it; the
//! records of its topic have the key alone. What a consumer keeps of a key is one of its rows, and it keeps one as long as there is one:
//!
//! | rows of a key in an epoch | record |
//! |---|---|
//! | some came or changed | the newest row; of several, that of the highest region |
//! | some left, and others are still in the input | one of those, that of the highest region |
//! | some left, and none is in the input any more | a tombstone |
//!
//! What is still there is asked of the input as of the epoch's position ([`Siblings`]), so it costs no state, and nothing but deletes pays for it.
//! Not here: how records are encoded (`sink`).

use std::sync::Arc;

use arrow::{
    array::{ArrayRef, BooleanArray, Int32Array, RecordBatch, cast::AsArray},
    datatypes::{Int32Type, SchemaRef},
};
use millstream_storage::{KeyMatch, Region};
use millstream_types::{Chunk, Key, KeyCodec, Pos, Seq};
use rustc_hash::FxHashMap;

use super::{backfill::progress::RegionProgress, project::motion_schema};
use crate::{
    StreamError,
    plan::{InputPlan, TopicOutput},
};

/// Keys of one look-up.
const LOOKUP_KEYS: usize = 8192;

/// Picks the row that speaks for each record key.
#[derive(Debug)]
pub(crate) struct Fold {
    /// Places of the record key in the order of the input's key, and of the region's number.
    key: Vec<usize>,
    region: usize,
    codec: KeyCodec,
}

/// The rows of one epoch, at most one per record key.
#[derive(Debug, Default)]
pub(crate) struct Folded {
    pub(crate) inserts: Vec<Chunk>,
    pub(crate) deletes: Vec<Chunk>,
}

impl Fold {
    /// `None` if each row has a record key of its own.
    pub(crate) fn new(topic: &TopicOutput, schema: &SchemaRef) -> Result<Option<Self>, StreamError> {
        let Some((region, key)) = topic.row_key.split_last() else { return Ok(None) };
        if topic.key_columns.contains(region) || topic.envelope != crate::Envelope::Upsert {
            return Ok(None);
        }
        let codec = KeyCodec::new(key.iter().map(|k| schema.field(*k).data_type().clone()))?;
        Ok(Some(Self { key: key.to_vec(), region: *region, codec }))
    }

    fn keys(&self, rows: &RecordBatch) -> Result<arrow_row::Rows, StreamError> {
        let columns: Vec<ArrayRef> = self.key.iter().map(|k| Arc::clone(rows.column(*k))).collect();
        Ok(self.codec.encode(&columns)?)
    }

    pub(crate) fn fold<'a>(&self, chunks: impl Iterator<Item = &'a Chunk>) -> Result<Folded, StreamError> {
        let chunks: Vec<&Chunk> = chunks.collect();
        let keys = chunks.iter().map(|c| self.keys(&c.rows)).collect::<Result<Vec<_>, _>>()?;
        let rank = |(c, r): (usize, usize)| {
            let region = chunks[c].rows.column(self.region).as_primitive::<Int32Type>().value(r);
            (chunks[c].ops[r].is_insert(), region)
        };
        let rows: usize = chunks.iter().map(|c| c.len()).sum();
        let mut winner: FxHashMap<&[u8], (usize, usize)> =
            FxHashMap::with_capacity_and_hasher(rows, Default::default());
        let mut keep: Vec<Vec<bool>> = chunks.iter().map(|c| vec![true; c.len()]).collect();
        for (c, chunk) in chunks.iter().enumerate() {
            for r in 0..chunk.len() {
                let best = winner.entry(keys[c].row(r).data()).or_insert((c, r));
                if *best != (c, r) {
                    let lost = if rank((c, r)) >= rank(*best) { std::mem::replace(best, (c, r)) } else { (c, r) };
                    keep[lost.0][lost.1] = false;
                }
            }
        }
        let mut folded = Folded::default();
        for (chunk, keep) in chunks.iter().zip(keep) {
            for (insert, to) in [(true, &mut folded.inserts), (false, &mut folded.deletes)] {
                let kept = keep.iter().zip(&chunk.ops).map(|(k, op)| Some(*k && op.is_insert() == insert));
                let part = chunk.filter(&kept.collect::<BooleanArray>())?;
                if !part.is_empty() {
                    to.push(part);
                }
            }
        }
        Ok(folded)
    }

    /// Record keys and regions of rows that left, sorted.
    pub(crate) fn gone(&self, deletes: &[Chunk]) -> Result<Vec<Key>, StreamError> {
        let mut gone = Vec::new();
        for chunk in deletes {
            gone.extend(self.keys(&chunk.rows)?.iter().map(|k| Key::from(k.data())));
        }
        gone.sort_unstable();
        gone.dedup();
        Ok(gone)
    }
}

/// Looks for other rows of a key in the input.
#[derive(Debug)]
pub(crate) struct Siblings {
    input: InputPlan,
    schema: SchemaRef,
    regions: Vec<Arc<dyn Region>>,
    /// The whole key of an input row, and where it stands among the columns that are read.
    codec: KeyCodec,
    key: Vec<usize>,
}

impl Siblings {
    pub(crate) fn new(input: InputPlan, regions: Vec<Arc<dyn Region>>) -> Result<Self, StreamError> {
        let place = |k: &usize| input.columns.iter().position(|c| c == k);
        let key: Option<Vec<usize>> = input.schema.primary_key.iter().map(place).collect();
        let missing = || StreamError::Inconsistent { operator: "fold", what: "the input's key is not read".to_owned() };
        let types = input.schema.primary_key.iter().map(|k| input.schema.columns[*k].sql_type.arrow());
        Ok(Self {
            codec: KeyCodec::new(types)?,
            key: key.ok_or_else(missing)?,
            schema: motion_schema(&input.row()),
            regions,
            input,
        })
    }

    /// Rows with these keys (sorted) that the input has at `content`, as the first node sees them.
    pub(crate) async fn rows(&self, keys: &[Key], content: &[RegionProgress]) -> Result<Vec<Chunk>, StreamError> {
        let mut found = Vec::new();
        for region in &self.regions {
            let Some(p) = content.iter().find(|p| p.region == region.id()).map(|p| &p.position) else { continue };
            for keys in keys.chunks(LOOKUP_KEYS) {
                if p.at != Pos::NotStarted {
                    self.read(region.as_ref(), keys, p.below, &p.at, true, &mut found).await?;
                }
                if let Some(above) = p.above.filter(|_| p.at != Pos::End) {
                    self.read(region.as_ref(), keys, above, &p.at, false, &mut found).await?;
                }
            }
        }
        Ok(found)
    }

    /// Those as of `seq` that are covered by `at`, or that are not.
    async fn read(
        &self,
        region: &dyn Region,
        keys: &[Key],
        seq: Seq,
        at: &Pos,
        covered: bool,
        found: &mut Vec<Chunk>,
    ) -> Result<(), StreamError> {
        let by = if self.input.with_region { KeyMatch::Whole } else { KeyMatch::Prefix };
        let rows = region.lookup(keys.to_vec(), by, seq, Some(self.input.columns.clone())).await?.rows;
        if rows.num_rows() == 0 {
            return Ok(());
        }
        let key: Vec<ArrayRef> = self.key.iter().map(|k| Arc::clone(rows.column(*k))).collect();
        let keep: BooleanArray =
            self.codec.encode(&key)?.iter().map(|k| Some(at.covers(k.data()) == covered)).collect();
        let mut columns = rows.columns().to_vec();
        if self.input.with_region {
            columns.push(Arc::new(Int32Array::from_value(region.id().number as i32, rows.num_rows())));
        }
        let chunk = Chunk::inserts(RecordBatch::try_new(Arc::clone(&self.schema), columns)?).filter(&keep)?;
        if !chunk.is_empty() {
            found.push(chunk);
        }
        Ok(())
    }
}
