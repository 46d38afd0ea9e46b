//! A region as a map of versions.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use arrow::{array::RecordBatch, compute::concat_batches};
use async_trait::async_trait;
use futures::StreamExt;
use millstream_storage::{
    Estimate, KeyMatch, LookupRows, LostRange, Pin, PinOwner, Region, RegionStatus, ScanItem, ScanRequest, ScanStream,
    StorageError, WalBinding, api::AppliedEntry,
};
use millstream_types::{Chunk, JobId, Key, KeyCodec, LeaderEpoch, Op, RegionId, RegionKind, Seq, TableSchema};
use tokio::sync::watch;

/// Versions of one key, oldest first; `None` = deleted.
type Versions = Vec<(i64, Option<RecordBatch>)>;

#[derive(Debug, Default)]
struct State {
    rows: BTreeMap<Vec<u8>, Versions>,
    pins: BTreeMap<PinOwner, Pin>,
    /// Highest row count a scan was asked for; see [`MemoryRegion::scans`].
    scans: u64,
    lookups: u64,
    keys: u64,
    broken: bool,
    row_bytes: Option<u64>,
    lost: Vec<LostRange>,
}

/// See the module head.
pub struct MemoryRegion {
    id: RegionId,
    schema: Arc<TableSchema>,
    wal: WalBinding,
    state: Mutex<State>,
    applied: watch::Sender<Seq>,
}

impl fmt::Debug for MemoryRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemoryRegion({})", self.id)
    }
}

impl MemoryRegion {
    pub fn new(id: RegionId, schema: Arc<TableSchema>, wal: WalBinding) -> Self {
        Self { id, schema, wal, state: Mutex::default(), applied: watch::Sender::new(Seq::ZERO) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn codec(&self) -> KeyCodec {
        let arrow = self.schema.arrow();
        KeyCodec::new(self.schema.primary_key.iter().map(|k| arrow.field(*k).data_type().clone()))
            .expect("key types encode")
    }

    fn keys(&self, rows: &RecordBatch, seq: i64) -> Vec<Vec<u8>> {
        if self.schema.kind() == RegionKind::Append {
            return (0..rows.num_rows()).map(|i| Key::append(seq, i as u32).0).collect();
        }
        let columns: Vec<_> = self.schema.primary_key.iter().map(|k| Arc::clone(rows.column(*k))).collect();
        let keys = self.codec().encode(&columns).expect("rows have the schema's key");
        (0..rows.num_rows()).map(|i| keys.row(i).data().to_vec()).collect()
    }

    /// Writes rows at the next sequence. Returns it.
    pub fn put(&self, chunk: &Chunk) -> Seq {
        let seq = self.applied();
        self.write_at(seq, &chunk.rows, &chunk.ops);
        seq
    }

    /// Moves `applied` without rows, as control records and gaps do.
    pub fn skip(&self, by: i64) {
        self.applied.send_modify(|s| s.0 += by);
    }

    fn write_at(&self, seq: Seq, rows: &RecordBatch, ops: &[Op]) {
        let keys = self.keys(rows, seq.0);
        let mut state = self.lock();
        for (i, (key, op)) in keys.into_iter().zip(ops).enumerate() {
            let value = op.is_insert().then(|| rows.slice(i, 1));
            let versions = state.rows.entry(key).or_default();
            versions.retain(|(s, _)| *s != seq.0);
            versions.push((seq.0, value));
        }
        drop(state);
        self.applied.send_modify(|s| *s = (*s).max(seq.next()));
    }

    /// All rows as of `to`, whatever is pinned.
    pub fn rows_at(&self, to: Seq) -> RecordBatch {
        let state = self.lock();
        let rows: Vec<&RecordBatch> = state.rows.values().filter_map(|v| visible(v, Some(to))).collect();
        concat_batches(&self.schema.arrow(), rows).expect("rows have one schema")
    }

    pub fn pins(&self) -> BTreeMap<PinOwner, Pin> {
        self.lock().pins.clone()
    }

    /// How many scans and look-ups were made.
    pub fn reads(&self) -> (u64, u64) {
        let s = self.lock();
        (s.scans, s.lookups)
    }

    /// From now on scans fail in a way that trying again does not heal.
    pub fn break_reads(&self, broken: bool) {
        self.lock().broken = broken;
    }

    /// What `estimate` says of each row from now on.
    pub fn set_row_bytes(&self, bytes: u64) {
        self.lock().row_bytes = Some(bytes);
    }

    /// Tells that the table went on over a range that it lost.
    pub fn lose(&self, lost: LostRange) {
        self.lock().lost.push(lost);
    }

    /// How many keys were looked up.
    pub fn read_keys(&self) -> u64 {
        self.lock().keys
    }

    pub(super) fn unpin_job(&self, job: JobId) {
        self.lock().pins.retain(|o, _| o.job != job);
    }

    fn is_kept(&self, state: &State, seq: Seq) -> bool {
        let pinned = |p: &Pin| p.exact.contains(&seq) || p.floor.is_some_and(|f| f <= seq);
        // Append rows are never replaced, so any range of them can be read.
        seq == self.applied() || self.schema.kind() == RegionKind::Append || state.pins.values().any(pinned)
    }

    #[expect(clippy::result_large_err, reason = "the error of the storage interface")]
    fn items(&self, r: &ScanRequest) -> Result<Vec<ScanItem>, StorageError> {
        let mut state = self.lock();
        state.scans += 1;
        if state.broken {
            return Err(StorageError::Internal { what: "broken by the test".to_owned(), source: None });
        }
        for seq in r.from.into_iter().chain([r.to]) {
            if !self.is_kept(&state, seq) {
                return Err(StorageError::SequenceNotKept { region: self.id, seq, history_from: self.applied() });
            }
        }
        let mut items = Vec::new();
        let mut part: Vec<(Vec<u8>, Op, RecordBatch)> = Vec::new();
        let mut scanned = 0;
        for (key, versions) in &state.rows {
            if r.after.covers(key) || !r.until.covers(key) {
                continue;
            }
            scanned += versions.len() as u64;
            let before = part.len();
            let (old, new) = match (self.schema.kind(), r.from) {
                (RegionKind::Append, from) => {
                    let in_range = versions[0].0 >= from.map_or(i64::MIN, |s| s.0);
                    (None, visible(versions, Some(r.to)).filter(|_| in_range))
                }
                (RegionKind::Keyed, from) => (visible(versions, from), visible(versions, Some(r.to))),
            };
            match (old, new) {
                (None, None) => {}
                (Some(o), Some(n)) if o == n => {}
                (None, Some(n)) => part.push((key.clone(), Op::Insert, n.clone())),
                (Some(o), None) => part.push((key.clone(), Op::Delete, o.clone())),
                (Some(o), Some(n)) => {
                    part.push((key.clone(), Op::UpdateDelete, o.clone()));
                    part.push((key.clone(), Op::UpdateInsert, n.clone()));
                }
            }
            if part.len() == before && scanned >= 3 && part.is_empty() {
                items.push(ScanItem::Mark { at: Key(key.clone()), scanned: std::mem::take(&mut scanned) });
            }
            if part.len() >= r.max_rows {
                items.push(self.rows_item(std::mem::take(&mut part), r, std::mem::take(&mut scanned)));
            }
        }
        if !part.is_empty() {
            items.push(self.rows_item(part, r, scanned));
        }
        Ok(items)
    }

    fn rows_item(&self, part: Vec<(Vec<u8>, Op, RecordBatch)>, r: &ScanRequest, scanned: u64) -> ScanItem {
        let rows = concat_batches(&self.schema.arrow(), part.iter().map(|p| &p.2)).expect("rows have one schema");
        let rows = match &r.columns {
            Some(c) => rows.project(c).expect("columns of the schema"),
            None => rows,
        };
        let last = Key(part.last().map(|p| p.0.clone()).unwrap_or_default());
        ScanItem::Rows { chunk: Chunk::new(rows, part.iter().map(|p| p.1).collect()), last, scanned }
    }
}

/// The version that a reader as of `to` sees; `None` sees nothing.
fn visible(versions: &Versions, to: Option<Seq>) -> Option<&RecordBatch> {
    versions.iter().rev().find(|(s, _)| to.is_some_and(|to| *s < to.0)).and_then(|(_, row)| row.as_ref())
}

#[async_trait]
impl Region for MemoryRegion {
    fn id(&self) -> RegionId {
        self.id
    }

    fn schema(&self) -> Arc<TableSchema> {
        Arc::clone(&self.schema)
    }

    fn leader_epoch(&self) -> LeaderEpoch {
        LeaderEpoch(1)
    }

    fn applied(&self) -> Seq {
        *self.applied.borrow()
    }

    fn lost(&self) -> Vec<LostRange> {
        self.lock().lost.clone()
    }

    fn status(&self) -> RegionStatus {
        RegionStatus {
            region: self.id.to_string(),
            table: String::new(),
            kind: self.kind(),
            state: "writable",
            reason: None,
            leader_epoch: LeaderEpoch(1),
            manifest_version: 0,
            applied: self.applied(),
            flushed: Seq::ZERO,
            history_from: Seq::ZERO,
            memtable_rows: 0,
            memtable_bytes: 0,
            files: Vec::new(),
            wal: self.wal.clone(),
            wal_start: None,
            wal_end: None,
            pins: self.pins().into_iter().collect(),
            gaps: Vec::new(),
        }
    }

    async fn wait_applied(&self, seq: Seq) -> Result<(), StorageError> {
        let mut applied = self.applied.subscribe();
        match applied.wait_for(|s| *s >= seq).await {
            Ok(_) => Ok(()),
            Err(_) => Err(StorageError::Stopped { what: "region" }),
        }
    }

    fn scan(&self, request: ScanRequest) -> ScanStream {
        match self.items(&request) {
            Ok(items) => futures::stream::iter(items.into_iter().map(Ok)).boxed(),
            Err(e) => futures::stream::iter([Err(e)]).boxed(),
        }
    }

    async fn lookup(
        &self,
        prefixes: Vec<Key>,
        _by: KeyMatch,
        at: Seq,
        columns: Option<Vec<usize>>,
    ) -> Result<LookupRows, StorageError> {
        assert!(prefixes.is_sorted(), "prefixes come sorted");
        let mut state = self.lock();
        if !self.is_kept(&state, at) {
            return Err(StorageError::SequenceNotKept { region: self.id, seq: at, history_from: self.applied() });
        }
        state.lookups += 1;
        state.keys += prefixes.len() as u64;
        let (mut rows, mut which) = (Vec::new(), Vec::new());
        for (i, prefix) in prefixes.iter().enumerate() {
            let hits = state.rows.range(prefix.0.clone()..).take_while(|(k, _)| k.starts_with(prefix.as_bytes()));
            for row in hits.filter_map(|(_, v)| visible(v, Some(at))) {
                rows.push(row);
                which.push(i as u32);
            }
        }
        let rows = concat_batches(&self.schema.arrow(), rows)?;
        let rows = match columns {
            Some(c) => rows.project(&c)?,
            None => rows,
        };
        Ok(LookupRows { rows, which })
    }

    fn estimate(&self, from: Option<Seq>, to: Seq, after: &millstream_types::Pos) -> Estimate {
        let state = self.lock();
        let counts = |(k, v): (&Vec<u8>, &Versions)| {
            let changed = v.iter().any(|(s, _)| *s < to.0 && from.is_none_or(|f| *s >= f.0));
            u64::from(changed && !after.covers(k))
        };
        let rows = state.rows.iter().map(counts).sum();
        Estimate { rows, bytes: rows * state.row_bytes.unwrap_or(32) }
    }

    async fn pin(&self, owner: PinOwner, pin: Pin) -> Result<(), StorageError> {
        self.lock().pins.insert(owner, pin);
        Ok(())
    }

    async fn unpin(&self, owner: PinOwner) -> Result<(), StorageError> {
        self.lock().pins.remove(&owner);
        Ok(())
    }

    async fn apply(&self, entries: Vec<AppliedEntry>) -> Result<(), StorageError> {
        let applied = self.applied();
        for e in entries.into_iter().filter(|e| e.seq >= applied) {
            self.write_at(e.seq, &e.rows, &e.ops);
        }
        Ok(())
    }

    async fn write(&self, rows: RecordBatch, ops: Vec<Op>, _write_id: u128) -> Result<(Seq, Seq), StorageError> {
        let seq = self.put(&Chunk::new(rows, ops));
        Ok((seq, seq.next()))
    }

    async fn flush(&self) -> Result<Seq, StorageError> {
        Ok(self.applied())
    }

    async fn compact(&self) -> Result<(), StorageError> {
        Ok(())
    }
}
