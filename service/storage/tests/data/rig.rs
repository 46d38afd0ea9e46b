//! One region without an engine: a memtable, files in a memory bucket, and the model that knows every version ever written.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use arrow::{
    array::{Array, ArrayRef, AsArray, Int32Array, Int64Array, RecordBatch, StringArray},
    datatypes::{Int32Type, Int64Type},
};
use futures::TryStreamExt;
use millstream_storage::{
    Estimate, KeyMatch, ScanItem, ScanRequest, StorageError,
    compaction::{KeepRule, PickOptions, Plan, pick, pick_all, rewrite},
    layout::Layout,
    manifest::FileEntry,
    memtable::{Memtable, Run},
    object_store::Bucket,
    read::{estimate, lookup, scan},
    region::version::Version,
    sst::{CacheLimits, SstOptions, SstReader, write_runs},
};
use millstream_types::{Column, Key, Op, Pos, RegionId, Seq, SqlType, TableId, TableSchema};

pub(super) const REGION: RegionId = RegionId { table: TableId(7), number: 3 };

/// (a, b) is the key of the keyed schema.
pub(super) type RowKey = (i32, String);
pub(super) type Value = Option<i64>;

pub(super) fn schema(keyed: bool) -> Arc<TableSchema> {
    Arc::new(TableSchema {
        id: 1,
        columns: vec![
            Column::new(1, "v", SqlType::BigInt),
            Column::new(2, "a", SqlType::Int).not_null(),
            Column::new(3, "b", SqlType::Varchar).not_null(),
            Column::new(4, "twice", SqlType::Varchar),
        ],
        primary_key: if keyed { vec![1, 2] } else { vec![] },
    })
}

/// Rows of the schema above; `twice` follows from `v`.
pub(super) fn rows(layout: &Layout, rows: &[(RowKey, Value)]) -> RecordBatch {
    let columns: Vec<ArrayRef> = vec![
        Arc::new(rows.iter().map(|(_, v)| *v).collect::<Int64Array>()),
        Arc::new(rows.iter().map(|((a, _), _)| *a).collect::<Int32Array>()),
        Arc::new(StringArray::from_iter_values(rows.iter().map(|((_, b), _)| b))),
        Arc::new(rows.iter().map(|(_, v)| v.map(|v| (v * 2).to_string())).collect::<StringArray>()),
    ];
    RecordBatch::try_new(layout.table.clone(), columns).unwrap()
}

/// Back to plain values; checks `twice`.
pub(super) fn plain(batch: &RecordBatch) -> Vec<(RowKey, Value)> {
    let (v, a) = (batch.column(0).as_primitive::<Int64Type>(), batch.column(1).as_primitive::<Int32Type>());
    let (b, twice) = (batch.column(2).as_string::<i32>(), batch.column(3).as_string::<i32>());
    (0..batch.num_rows())
        .map(|i| {
            let value = v.is_valid(i).then(|| v.value(i));
            assert_eq!(twice.is_valid(i).then(|| twice.value(i).to_owned()), value.map(|v| (v * 2).to_string()));
            ((a.value(i), b.value(i).to_owned()), value)
        })
        .collect()
}

/// What a net change says of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Net {
    Insert(Value),
    Delete(Value),
    Update(Value, Value),
}

#[derive(Debug)]
pub(super) struct Rig {
    pub(super) layout: Arc<Layout>,
    pub(super) bucket: Arc<Bucket>,
    pub(super) reader: Arc<SstReader>,
    pub(super) memtable: Memtable,
    pub(super) files: Vec<Arc<FileEntry>>,
    pub(super) applied: i64,
    pub(super) flushed: i64,
    /// Keyed: all versions of each key, oldest first.
    pub(super) model: BTreeMap<RowKey, Vec<(i64, Option<Value>)>>,
    /// Append: (sequence, ord, row).
    pub(super) log: Vec<(i64, u32, (RowKey, Value))>,
    pub(super) options: SstOptions,
    /// Views that must survive.
    pub(super) pins: BTreeSet<i64>,
    pub(super) horizon: i64,
}

impl Rig {
    pub(super) fn new(keyed: bool) -> Self {
        let bucket = Bucket::memory();
        let layout = Layout::new(schema(keyed)).unwrap();
        Self {
            reader: SstReader::new(bucket.clone(), CacheLimits::default()),
            bucket,
            memtable: Memtable::new(layout.clone()),
            layout,
            files: Vec::new(),
            applied: 10,
            flushed: 10,
            model: BTreeMap::new(),
            log: Vec::new(),
            options: SstOptions { row_group_rows: 12, target_bytes: 3000, ..SstOptions::default() },
            pins: BTreeSet::new(),
            horizon: 0,
        }
    }

    /// One WAL entry: all rows have one sequence. `None` = delete.
    pub(super) fn write(&mut self, entry: &[(RowKey, Option<Value>)]) {
        let ops: Vec<Op> = entry.iter().map(|(_, v)| if v.is_some() { Op::Insert } else { Op::Delete }).collect();
        let values: Vec<_> = entry.iter().map(|(k, v)| (k.clone(), v.unwrap_or(Some(-1)))).collect();
        let run =
            Run::build(&self.layout, &rows(&self.layout, &values), &ops, &vec![self.applied; entry.len()], 0).unwrap();
        self.memtable.push(Arc::new(run)).unwrap();
        for (ord, (key, value)) in entry.iter().enumerate() {
            let versions = self.model.entry(key.clone()).or_default();
            versions.retain(|(s, _)| *s != self.applied);
            versions.push((self.applied, *value));
            self.log.push((self.applied, ord as u32, (key.clone(), value.unwrap_or(Some(-1)))));
        }
        // Sequences have gaps, as offsets do.
        self.applied += 3;
    }

    pub(super) fn keep(&self, bottom: bool) -> KeepRule {
        KeepRule { all_from: Seq(self.horizon), exact: self.pins.iter().map(|p| Seq(*p)).collect(), bottom }
    }

    pub(super) async fn flush(&mut self) {
        let runs = self.memtable.take();
        let range = (Seq(self.flushed), Seq(self.applied));
        let keep = self.keep(self.files.is_empty());
        let added = write_runs(&self.bucket, &self.layout, REGION, &runs, &keep, range, &self.options).await.unwrap();
        self.files.extend(added.into_iter().map(Arc::new));
        self.flushed = self.applied;
    }

    pub(super) async fn compact(&mut self, all: bool) {
        let plan = if all {
            pick_all(&self.files)
        } else {
            pick(&self.files, &PickOptions { min_runs: 2, ..PickOptions::default() })
        };
        let Some(Plan { inputs, bottom }) = plan else { return };
        let keep = self.keep(bottom);
        let added =
            rewrite(&self.bucket, &self.reader, &self.layout, REGION, &inputs, &keep, &self.options).await.unwrap();
        let at = self.files.iter().position(|f| f.name == inputs[0].name).unwrap();
        self.files.splice(at..at + inputs.len(), added.into_iter().map(Arc::new));
    }

    pub(super) fn version(&self) -> Arc<Version> {
        Arc::new(Version {
            layout: self.layout.clone(),
            applied: Seq(self.applied),
            flushed: Seq(self.flushed),
            history_from: Seq(self.horizon),
            runs: self.memtable.runs(),
            files: self.files.clone().into(),
            manifest_version: 0,
        })
    }

    pub(super) async fn scan(&self, request: ScanRequest) -> Vec<ScanItem> {
        let items: Result<Vec<_>, StorageError> =
            scan(self.version(), self.reader.clone(), request).try_collect().await;
        items.unwrap()
    }

    /// Checks the promises that hold for all scans and joins the rows.
    pub(super) async fn rows(&self, request: ScanRequest) -> Vec<(Op, (RowKey, Value))> {
        let mut found = Vec::new();
        let mut passed: Option<Key> = None;
        for item in self.scan(request.clone()).await {
            let (at, new) = match item {
                ScanItem::Mark { at, .. } => (at, false),
                ScanItem::Rows { chunk, last, .. } => {
                    assert!(
                        !chunk.is_empty() && chunk.len() <= request.max_rows.max(2),
                        "chunk of {} rows",
                        chunk.len()
                    );
                    assert_ne!(chunk.ops[0], Op::UpdateInsert, "a torn pair");
                    assert_ne!(chunk.ops[chunk.len() - 1], Op::UpdateDelete, "a torn pair");
                    found.extend(chunk.ops.iter().copied().zip(plain(&chunk.rows)));
                    (last, true)
                }
            };
            assert!(passed.is_none_or(|p| p < at || (!new && p == at)), "positions rise");
            assert!(request.until.covers(at.as_bytes()) && !request.after.covers(at.as_bytes()));
            passed = Some(at);
        }
        found
    }

    pub(super) async fn snapshot(&self, to: i64) -> BTreeMap<RowKey, Value> {
        let found = self.rows(ScanRequest { max_rows: 7, ..ScanRequest::snapshot(Seq(to)) }).await;
        assert!(found.iter().all(|(op, _)| *op == Op::Insert));
        let n = found.len();
        let map: BTreeMap<_, _> = found.into_iter().map(|(_, row)| row).collect();
        assert_eq!(map.len(), n, "a key twice");
        map
    }

    pub(super) async fn changes(&self, from: i64, to: i64) -> BTreeMap<RowKey, Net> {
        let found = self.rows(ScanRequest { max_rows: 5, ..ScanRequest::changes(Seq(from), Seq(to)) }).await;
        let mut net = BTreeMap::new();
        let mut old: Option<(RowKey, Value)> = None;
        for (op, (key, value)) in found {
            let change = match op {
                Op::Insert => Net::Insert(value),
                Op::Delete => Net::Delete(value),
                Op::UpdateDelete => {
                    old = Some((key, value));
                    continue;
                }
                Op::UpdateInsert => {
                    let (old_key, old_value) = old.take().unwrap();
                    assert_eq!(old_key, key);
                    Net::Update(old_value, value)
                }
            };
            assert!(net.insert(key, change).is_none(), "a key twice");
        }
        net
    }

    pub(super) async fn lookup(&self, keys: Vec<Key>, by: KeyMatch, at: i64) -> Vec<(u32, (RowKey, Value))> {
        let found = lookup(self.version(), self.reader.clone(), keys, by, Seq(at), None).await.unwrap();
        found.which.iter().copied().zip(plain(&found.rows)).collect()
    }

    pub(super) fn estimate(&self) -> Estimate {
        estimate(&self.version(), None, Seq(self.applied), &Pos::NotStarted)
    }

    pub(super) fn model_at(&self, to: i64) -> BTreeMap<RowKey, Value> {
        let newest =
            |versions: &Vec<(i64, Option<Value>)>| versions.iter().rev().find(|(s, _)| *s < to).and_then(|(_, v)| *v);
        self.model.iter().filter_map(|(k, versions)| Some((k.clone(), newest(versions)?))).collect()
    }

    pub(super) fn model_changes(&self, from: i64, to: i64) -> BTreeMap<RowKey, Net> {
        let (old, new) = (self.model_at(from), self.model_at(to));
        let keys: BTreeSet<&RowKey> = old.keys().chain(new.keys()).collect();
        keys.into_iter()
            .filter_map(|k| {
                let change = match (old.get(k), new.get(k)) {
                    (None, Some(new)) => Net::Insert(*new),
                    (Some(old), None) => Net::Delete(*old),
                    (Some(old), Some(new)) if old != new => Net::Update(*old, *new),
                    _ => return None,
                };
                Some((k.clone(), change))
            })
            .collect()
    }

    /// Encoded whole key, or with `None` the prefix of its first column.
    pub(super) fn key(&self, a: i32, b: Option<&str>) -> Key {
        match b {
            Some(b) => {
                let keys = self.layout.keys(&rows(&self.layout, &[((a, b.to_owned()), None)])).unwrap();
                Key::from(keys.get(0))
            }
            None => {
                let codec = millstream_types::KeyCodec::new([arrow::datatypes::DataType::Int32]).unwrap();
                let array: ArrayRef = Arc::new(Int32Array::from(vec![a]));
                Key::from(codec.encode(&[array]).unwrap().row(0).data())
            }
        }
    }
}
