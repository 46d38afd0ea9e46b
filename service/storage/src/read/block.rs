//! A piece of one source of a merge: rows in stored order, with keys that are encoded only if somebody asks for one in the middle.

use std::sync::{Arc, OnceLock};

use arrow::{
    array::{ArrayRef, AsArray, RecordBatch, RecordBatchOptions},
    buffer::ScalarBuffer,
    datatypes::{Int8Type, Int64Type, Schema, SchemaRef, UInt32Type},
};
use millstream_types::Key;

use crate::{
    StorageError,
    layout::{DELETE, Keys, Layout},
    memtable::Run,
};

/// Which stored columns a read decodes and which of them it gives back.
#[derive(Debug)]
pub(crate) struct Projection {
    pub(crate) layout: Arc<Layout>,
    /// Places in `Layout::stored` that are decoded, ascending: wanted, key and hidden columns.
    pub(crate) decoded: Vec<usize>,
    /// Places in `decoded` of the wanted columns, in the order wanted.
    wanted: Vec<usize>,
    /// Places in `decoded` of the key columns, in key order.
    key: Vec<usize>,
    /// Place in `decoded` of `__sequence`; the op or ord column follows.
    seq: usize,
    pub(crate) decoded_schema: SchemaRef,
    /// Schema of what is given back.
    pub(crate) output: SchemaRef,
}

impl Projection {
    /// `columns`: places in the table schema, `None` = all.
    pub(crate) fn table(layout: &Arc<Layout>, columns: Option<&[usize]>) -> Result<Arc<Self>, StorageError> {
        let all: Vec<usize>;
        let columns = match columns {
            Some(columns) => columns,
            None => {
                all = (0..layout.width()).collect();
                &all
            }
        };
        if let Some(bad) = columns.iter().find(|c| **c >= layout.width()) {
            return Err(StorageError::InvalidOption {
                what: format!("column {bad} of a table with {} columns", layout.width()),
            });
        }
        Ok(Self::new(layout, columns))
    }

    /// All stored columns, for flush and compaction.
    pub(crate) fn stored(layout: &Arc<Layout>) -> Arc<Self> {
        Self::new(layout, &(0..layout.width() + 2).collect::<Vec<_>>())
    }

    fn new(layout: &Arc<Layout>, columns: &[usize]) -> Arc<Self> {
        let width = layout.width();
        let mut decoded: Vec<usize> = columns.to_vec();
        decoded.extend(&layout.schema.primary_key);
        decoded.extend([width, width + 1]);
        decoded.sort_unstable();
        decoded.dedup();
        let place = |c: &usize| decoded.binary_search(c).expect("every asked column was added above");
        let schema = |of: &[usize]| {
            Arc::new(Schema::new(of.iter().map(|c| layout.stored.fields()[*c].clone()).collect::<Vec<_>>()))
        };
        Arc::new(Self {
            wanted: columns.iter().map(place).collect(),
            key: layout.schema.primary_key.iter().map(place).collect(),
            seq: place(&width),
            output: schema(columns),
            decoded_schema: schema(&decoded),
            layout: layout.clone(),
            decoded,
        })
    }

    /// Tells projections of one layout apart in cache keys.
    pub(crate) fn fingerprint(&self) -> u64 {
        use std::hash::{Hash, Hasher};
        let mut hasher = rustc_hash::FxHasher::default();
        (self.layout.schema.id, &self.decoded).hash(&mut hasher);
        hasher.finish()
    }

    /// The wanted columns of decoded rows.
    pub(crate) fn pick(&self, decoded: &RecordBatch) -> Result<RecordBatch, StorageError> {
        let columns = self.wanted.iter().map(|i| decoded.column(*i).clone()).collect();
        batch(&self.output, columns, decoded.num_rows())
    }

    /// Encoded keys of decoded rows.
    pub(crate) fn keys(&self, decoded: &RecordBatch) -> Result<Keys, StorageError> {
        let columns: Vec<ArrayRef> = self.key.iter().map(|i| decoded.column(*i).clone()).collect();
        self.layout.encode_key_columns(&columns)
    }
}

/// A batch that may have no columns.
pub(crate) fn batch(schema: &SchemaRef, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch, StorageError> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(schema.clone(), columns, &options)?)
}

#[derive(Debug)]
enum BlockKeys {
    Run(Arc<Run>),
    Lazy(OnceLock<Keys>),
}

/// Rows of one run, or one decoded batch of a row group.
#[derive(Debug)]
pub(crate) struct Block {
    projection: Arc<Projection>,
    /// Decoded columns.
    pub(crate) rows: RecordBatch,
    keys: BlockKeys,
    pub(crate) seqs: ScalarBuffer<i64>,
    /// Keyed only, else empty.
    ops: ScalarBuffer<i8>,
    /// Append only, else empty.
    ords: ScalarBuffer<u32>,
    /// Keyed only, else empty.
    first: Key,
    last: Key,
    pub(crate) max_seq: i64,
    /// No key twice and no delete within the source that it comes from.
    pub(crate) plain: bool,
}

impl Block {
    /// A non-empty run.
    pub(crate) fn from_run(projection: &Arc<Projection>, run: &Arc<Run>) -> Result<Self, StorageError> {
        let rows = if projection.decoded.len() == run.rows.num_columns() {
            run.rows.clone()
        } else {
            run.rows.project(&projection.decoded)?
        };
        let (first, last) = match projection.layout.is_keyed() {
            true => (Key::from(run.keys.get(0)), Key::from(run.keys.get(run.len() - 1))),
            false => Default::default(),
        };
        Ok(Self::new(projection, rows, BlockKeys::Run(run.clone()), first, last, run.end.0 - 1, run.plain))
    }

    /// A non-empty decoded batch of an SST.
    pub(crate) fn from_decoded(
        projection: &Arc<Projection>,
        rows: RecordBatch,
        plain: bool,
    ) -> Result<Self, StorageError> {
        let n = rows.num_rows();
        let (first, last) = match projection.layout.is_keyed() {
            true => {
                let first = projection.keys(&rows.slice(0, 1))?;
                let last = projection.keys(&rows.slice(n - 1, 1))?;
                (Key::from(first.get(0)), Key::from(last.get(0)))
            }
            false => Default::default(),
        };
        let mut block = Self::new(projection, rows, BlockKeys::Lazy(OnceLock::new()), first, last, 0, plain);
        block.max_seq = block.seqs.iter().copied().max().unwrap_or(i64::MIN);
        Ok(block)
    }

    fn new(
        projection: &Arc<Projection>,
        rows: RecordBatch,
        keys: BlockKeys,
        first: Key,
        last: Key,
        max_seq: i64,
        plain: bool,
    ) -> Self {
        let seqs = rows.column(projection.seq).as_primitive::<Int64Type>().values().clone();
        let hidden = rows.column(projection.seq + 1);
        let (ops, ords) = match projection.layout.is_keyed() {
            true => (hidden.as_primitive::<Int8Type>().values().clone(), ScalarBuffer::from(Vec::new())),
            false => (ScalarBuffer::from(Vec::new()), hidden.as_primitive::<UInt32Type>().values().clone()),
        };
        Self { projection: projection.clone(), rows, keys, seqs, ops, ords, first, last, max_seq, plain }
    }

    pub(crate) fn len(&self) -> usize {
        self.seqs.len()
    }

    pub(crate) fn is_delete(&self, row: usize) -> bool {
        self.ops[row] == DELETE
    }

    /// The place of a row in an append region.
    pub(crate) fn place(&self, row: usize) -> (i64, u32) {
        (self.seqs[row], self.ords[row])
    }

    pub(crate) fn last(&self) -> &[u8] {
        self.last.as_bytes()
    }

    /// The key of a row (keyed). The first and last are known without encoding all.
    pub(crate) fn key(&self, row: usize) -> &[u8] {
        match &self.keys {
            BlockKeys::Run(run) => run.keys.get(row),
            BlockKeys::Lazy(_) if row == 0 => self.first.as_bytes(),
            BlockKeys::Lazy(_) if row + 1 == self.len() => self.last.as_bytes(),
            BlockKeys::Lazy(keys) => {
                keys.get_or_init(|| self.projection.keys(&self.rows).expect("its first row was encoded")).get(row)
            }
        }
    }

    /// The key that a scan reports for a row, in both kinds.
    pub(crate) fn position(&self, row: usize) -> Key {
        match self.projection.layout.is_keyed() {
            // One row encoded alone costs less than the whole block, which nobody may need.
            true => match &self.keys {
                BlockKeys::Lazy(keys) if row != 0 && row + 1 != self.len() && keys.get().is_none() => {
                    Key::from(self.projection.keys(&self.rows.slice(row, 1)).expect("its first row was encoded").get(0))
                }
                _ => Key::from(self.key(row)),
            },
            false => Key::append(self.seqs[row], self.ords[row]),
        }
    }

    /// First row at or after `from` for which `below` is false; `below` is true for a prefix of the rows. Looks near `from` first.
    pub(crate) fn gallop(&self, from: usize, below: impl Fn(usize) -> bool) -> usize {
        let (mut low, mut step) = (from, 1);
        let mut high = from;
        while high < self.len() && below(high) {
            low = high + 1;
            high += step;
            step *= 2;
        }
        let mut high = high.min(self.len());
        while low < high {
            let mid = low.midpoint(high);
            if below(mid) {
                low = mid + 1;
            } else {
                high = mid;
            }
        }
        low
    }
}

/// Consecutive rows of a block.
#[derive(Debug, Clone)]
pub(crate) struct Part {
    pub(crate) block: Arc<Block>,
    pub(crate) start: usize,
    pub(crate) len: usize,
}

/// Rows in order, joined to ranges where they follow each other in a block.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    parts: Vec<Part>,
    rows: usize,
}

impl Parts {
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    pub(crate) fn push(&mut self, block: &Arc<Block>, start: usize, len: usize) {
        if !self.joined(block, start, len) {
            self.parts.push(Part { block: block.clone(), start, len });
        }
    }

    /// One row, without counting a reference up and down.
    pub(crate) fn push_owned(&mut self, block: Arc<Block>, row: usize) {
        if !self.joined(&block, row, 1) {
            self.parts.push(Part { block, start: row, len: 1 });
        }
    }

    fn joined(&mut self, block: &Arc<Block>, start: usize, len: usize) -> bool {
        self.rows += len;
        match self.parts.last_mut() {
            Some(last) if Arc::ptr_eq(&last.block, block) && last.start + last.len == start => {
                last.len += len;
                true
            }
            _ => false,
        }
    }

    /// Takes at most `max` rows from the front. Ends with a whole range where that gives at least half of `max`: a chunk that is a slice of one block
    /// costs no copy.
    pub(crate) fn take(&mut self, max: usize) -> Vec<Part> {
        let (mut whole, mut rows) = (0, 0);
        while let Some(part) = self.parts.get(whole)
            && rows + part.len <= max
        {
            rows += part.len;
            whole += 1;
        }
        let mut taken: Vec<Part> = self.parts.drain(..whole).collect();
        if rows < max.div_ceil(2)
            && let Some(next) = self.parts.first_mut()
        {
            let len = max - rows;
            taken.push(Part { block: next.block.clone(), start: next.start, len });
            next.start += len;
            next.len -= len;
            rows += len;
        }
        self.rows -= rows;
        taken
    }

    pub(crate) fn take_all(&mut self) -> Vec<Part> {
        self.rows = 0;
        std::mem::take(&mut self.parts)
    }
}

/// The wanted columns of the rows of `parts`, in order.
pub(crate) fn gather(projection: &Projection, parts: &[Part]) -> Result<RecordBatch, StorageError> {
    if let [part] = parts {
        return projection.pick(&part.block.rows.slice(part.start, part.len));
    }
    let rows: usize = parts.iter().map(|p| p.len).sum();
    if projection.output.fields().is_empty() {
        return batch(&projection.output, Vec::new(), rows);
    }
    // Long parts: copying ranges is faster than copying row by row.
    if rows >= parts.len() * 32 {
        let slices = parts
            .iter()
            .map(|p| projection.pick(&p.block.rows.slice(p.start, p.len)))
            .collect::<Result<Vec<_>, _>>()?;
        return Ok(arrow::compute::concat_batches(&projection.output, &slices)?);
    }
    let mut blocks: Vec<&Arc<Block>> = Vec::new();
    let mut places = Vec::with_capacity(rows);
    for part in parts {
        let known = blocks.iter().rposition(|b| Arc::ptr_eq(b, &part.block));
        let id = known.unwrap_or_else(|| {
            blocks.push(&part.block);
            blocks.len() - 1
        });
        places.extend((part.start..part.start + part.len).map(|row| (id, row)));
    }
    let columns = projection
        .wanted
        .iter()
        .map(|c| {
            let arrays: Vec<&dyn arrow::array::Array> = blocks.iter().map(|b| b.rows.column(*c).as_ref()).collect();
            arrow::compute::interleave(&arrays, &places)
        })
        .collect::<Result<Vec<_>, _>>()?;
    batch(&projection.output, columns, rows)
}
