//! Storage as a map: no log, no history. Rows are what was written last; enough for planning, queries, DDL and INSERT.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use arrow::{array::RecordBatch, compute::concat_batches};
use async_trait::async_trait;
use futures::StreamExt;
use millstream_storage::{
    Estimate, KeyMatch, LookupRows, Pin, PinOwner, Region, RegionSpec, RegionStatus, ScanItem, ScanRequest, ScanStream,
    Storage, StorageError, api::AppliedEntry,
};
use millstream_types::{
    Chunk, Epoch, EpochCuts, JobId, Key, KeyCodec, LeaderEpoch, Op, Pos, RegionId, Seq, ShardId, TableSchema,
};

#[derive(Debug, Default)]
pub(crate) struct FakeStorage {
    created: Mutex<BTreeMap<RegionId, Arc<FakeRegion>>>,
    pub(crate) scans: Arc<AtomicU64>,
    pub(crate) lookups: Arc<AtomicU64>,
    /// The next writes end without a known outcome, although they happened.
    pub(crate) lost_answers: Arc<AtomicU64>,
}

#[derive(Debug)]
pub(crate) struct FakeRegion {
    spec: RegionSpec,
    rows: Mutex<Rows>,
    scans: Arc<AtomicU64>,
    lookups: Arc<AtomicU64>,
    lost_answers: Arc<AtomicU64>,
}

#[derive(Debug, Default)]
struct Rows {
    by_key: BTreeMap<Vec<u8>, RecordBatch>,
    applied: i64,
    written: Vec<u128>,
}

impl FakeStorage {
    pub(crate) fn ids(&self) -> Vec<RegionId> {
        self.created.lock().unwrap().keys().copied().collect()
    }

    pub(crate) fn spec(&self, id: RegionId) -> RegionSpec {
        self.created.lock().unwrap()[&id].spec.clone()
    }

    fn create(&self, spec: &RegionSpec) -> Arc<FakeRegion> {
        let new = || {
            Arc::new(FakeRegion {
                spec: spec.clone(),
                rows: Mutex::default(),
                scans: Arc::clone(&self.scans),
                lookups: Arc::clone(&self.lookups),
                lost_answers: Arc::clone(&self.lost_answers),
            })
        };
        Arc::clone(self.created.lock().unwrap().entry(spec.id).or_insert_with(new))
    }
}

impl FakeRegion {
    fn put(&self, rows: &RecordBatch, ops: &[Op]) {
        let schema = &self.spec.schema;
        let mut state = self.rows.lock().unwrap();
        let key_columns: Vec<_> = schema.primary_key.iter().map(|k| Arc::clone(rows.column(*k))).collect();
        let keys = KeyCodec::new(key_columns.iter().map(|c| c.data_type().clone())).unwrap();
        let keys = (!key_columns.is_empty()).then(|| keys.encode(&key_columns).unwrap());
        for (i, op) in ops.iter().enumerate() {
            let key = match &keys {
                Some(keys) => keys.row(i).as_ref().to_vec(),
                None => Key::append(state.applied, i as u32).0,
            };
            if op.is_insert() {
                state.by_key.insert(key, rows.slice(i, 1));
            } else {
                state.by_key.remove(&key);
            }
        }
        state.applied += 1;
    }

    fn batch<'a>(&self, rows: impl Iterator<Item = &'a RecordBatch>, columns: Option<Vec<usize>>) -> RecordBatch {
        let all = concat_batches(&self.spec.schema.arrow(), rows).unwrap();
        match columns {
            Some(columns) => all.project(&columns).unwrap(),
            None => all,
        }
    }
}

#[async_trait]
impl Region for FakeRegion {
    fn id(&self) -> RegionId {
        self.spec.id
    }

    fn schema(&self) -> Arc<TableSchema> {
        Arc::clone(&self.spec.schema)
    }

    fn leader_epoch(&self) -> LeaderEpoch {
        LeaderEpoch(1)
    }

    fn applied(&self) -> Seq {
        Seq(self.rows.lock().unwrap().applied)
    }

    fn status(&self) -> RegionStatus {
        RegionStatus {
            region: self.spec.id.to_string(),
            table: self.spec.table_name.to_string(),
            kind: self.spec.schema.kind(),
            state: "writable",
            reason: None,
            leader_epoch: LeaderEpoch(1),
            manifest_version: 0,
            applied: self.applied(),
            flushed: Seq::ZERO,
            history_from: Seq::ZERO,
            memtable_rows: self.rows.lock().unwrap().by_key.len() as u64,
            memtable_bytes: 0,
            files: Vec::new(),
            wal: self.spec.wal.clone(),
            wal_start: None,
            wal_end: None,
            pins: Vec::new(),
            gaps: Vec::new(),
        }
    }

    async fn wait_applied(&self, _seq: Seq) -> Result<(), StorageError> {
        Ok(())
    }

    fn scan(&self, request: ScanRequest) -> ScanStream {
        self.scans.fetch_add(1, Ordering::SeqCst);
        let state = self.rows.lock().unwrap();
        let Some((last, _)) = state.by_key.last_key_value() else { return futures::stream::empty().boxed() };
        let rows = self.batch(state.by_key.values(), request.columns);
        let scanned = rows.num_rows() as u64;
        futures::stream::iter([Ok(ScanItem::Rows { chunk: Chunk::inserts(rows), last: Key(last.clone()), scanned })])
            .boxed()
    }

    async fn lookup(
        &self,
        prefixes: Vec<Key>,
        _by: KeyMatch,
        _at: Seq,
        columns: Option<Vec<usize>>,
    ) -> Result<LookupRows, StorageError> {
        self.lookups.fetch_add(1, Ordering::SeqCst);
        assert!(prefixes.is_sorted(), "prefixes must be sorted");
        let state = self.rows.lock().unwrap();
        let found: Vec<(&RecordBatch, u32)> = state
            .by_key
            .iter()
            .filter_map(|(k, row)| prefixes.iter().position(|p| k.starts_with(p.as_bytes())).map(|p| (row, p as u32)))
            .collect();
        Ok(LookupRows {
            rows: self.batch(found.iter().map(|(r, _)| *r), columns),
            which: found.iter().map(|(_, w)| *w).collect(),
        })
    }

    fn estimate(&self, _from: Option<Seq>, _to: Seq, _after: &Pos) -> Estimate {
        let rows = self.rows.lock().unwrap().by_key.len() as u64;
        Estimate { rows, bytes: rows * 100 }
    }

    async fn pin(&self, _owner: PinOwner, _pin: Pin) -> Result<(), StorageError> {
        Ok(())
    }

    async fn unpin(&self, _owner: PinOwner) -> Result<(), StorageError> {
        Ok(())
    }

    async fn apply(&self, entries: Vec<AppliedEntry>) -> Result<(), StorageError> {
        for e in entries {
            self.put(&e.rows, &e.ops);
        }
        Ok(())
    }

    async fn write(&self, rows: RecordBatch, ops: Vec<Op>, write_id: u128) -> Result<(Seq, Seq), StorageError> {
        let known = self.rows.lock().unwrap().written.contains(&write_id);
        if !known {
            self.put(&rows, &ops);
            self.rows.lock().unwrap().written.push(write_id);
        }
        if self.lost_answers.load(Ordering::SeqCst) > 0 {
            self.lost_answers.fetch_sub(1, Ordering::SeqCst);
            return Err(StorageError::AppendUnknown { region: self.id(), write_id, what: "test".to_owned() });
        }
        let end = self.applied();
        Ok((Seq(end.0 - 1), end))
    }

    async fn flush(&self) -> Result<Seq, StorageError> {
        Ok(self.applied())
    }

    async fn compact(&self) -> Result<(), StorageError> {
        Ok(())
    }
}

#[async_trait]
impl Storage for FakeStorage {
    async fn create_region(&self, spec: &RegionSpec) -> Result<(), StorageError> {
        self.create(spec);
        Ok(())
    }

    async fn open_region(&self, spec: &RegionSpec) -> Result<Arc<dyn Region>, StorageError> {
        Ok(self.create(spec))
    }

    async fn open_regions(&self, specs: Vec<RegionSpec>) -> Vec<(RegionId, Result<Arc<dyn Region>, StorageError>)> {
        specs.iter().map(|s| (s.id, Ok(self.create(s) as Arc<dyn Region>))).collect()
    }

    async fn close_region(&self, _id: RegionId) -> Result<(), StorageError> {
        Ok(())
    }

    async fn drop_region(&self, id: RegionId) -> Result<(), StorageError> {
        self.created.lock().unwrap().remove(&id);
        Ok(())
    }

    fn region(&self, id: RegionId) -> Option<Arc<dyn Region>> {
        self.created.lock().unwrap().get(&id).map(|r| Arc::clone(r) as Arc<dyn Region>)
    }

    fn regions(&self) -> Vec<Arc<dyn Region>> {
        self.created.lock().unwrap().values().map(|r| Arc::clone(r) as Arc<dyn Region>).collect()
    }

    async fn barrier(&self, epoch: Epoch) -> EpochCuts {
        let cuts = self.created.lock().unwrap().iter().map(|(id, r)| (*id, r.applied())).collect();
        EpochCuts { epoch, cuts: Arc::new(cuts) }
    }

    async fn replay_shard(&self, _shard: ShardId, _job: JobId, _regions: &[RegionId]) -> Result<(), StorageError> {
        Ok(())
    }

    async fn unpin_job(&self, _job: JobId) -> Result<(), StorageError> {
        Ok(())
    }
}
