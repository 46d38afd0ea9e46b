//! The public face of an open region: reads over the current version, writes and verbs by request to the worker.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use arrow::array::RecordBatch;
use async_trait::async_trait;
use futures::StreamExt;
use millstream_types::{Epoch, JobId, Key, LeaderEpoch, Op, Pos, RegionId, Seq, TableSchema};
use tokio::sync::oneshot;

use super::{
    RegionShared,
    apply::{apply, conform},
    version::Version,
};
use crate::{
    Estimate, KeyMatch, LookupRows, LostRange, Pin, PinOwner, Region, RegionStatus, ScanRequest, ScanStream,
    StorageError,
    api::{AppliedEntry, FileStatus},
    context::Context,
    read,
    request::{Request, Source, WriteRequest},
    wal::shard::{Holder, Shard},
};

pub(crate) struct RegionHandle {
    pub(crate) shared: Arc<RegionShared>,
    /// `None` for topic-fed regions.
    pub(crate) shard: Option<Arc<Shard>>,
    pub(crate) ctx: Arc<Context>,
}

impl fmt::Debug for RegionHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RegionHandle({}, {})", self.shared.id, self.shared.state().as_str())
    }
}

impl RegionHandle {
    /// A read as of `seq` is exact if every version since is kept, if a pin protects it, or if the region had no rows yet.
    fn check_kept(&self, version: &Version, seq: Seq) -> Result<(), StorageError> {
        let start = self.shared.cell.borrow().manifest.start;
        let kept = !version.layout.is_keyed()
            || seq >= version.history_from
            || seq <= start
            || self.ctx.pins.protects(self.shared.id, seq);
        if kept {
            Ok(())
        } else {
            Err(StorageError::SequenceNotKept { region: self.shared.id, seq, history_from: version.history_from })
        }
    }

    async fn ask<T>(
        &self,
        request: impl FnOnce(oneshot::Sender<Result<T, StorageError>>) -> Request,
    ) -> Result<T, StorageError> {
        let (reply, answer) = oneshot::channel();
        self.shared.worker.request(request(reply)).await?;
        answer.await.map_err(|_| StorageError::Stopped { what: "region worker" })?
    }

    fn check_write(&self, rows: &RecordBatch, ops: &[Op]) -> Result<RecordBatch, StorageError> {
        let region = self.shared.id;
        let invalid = |what: &str| Err(StorageError::Invalid { region, what: what.to_owned() });
        if rows.num_rows() != ops.len() {
            return invalid("rows and ops differ in number");
        }
        if !self.shared.layout.is_keyed() && ops.iter().any(|op| !op.is_insert()) {
            return invalid("rows of a table without primary key cannot be deleted");
        }
        conform(&self.shared.layout, region, rows)
    }
}

#[async_trait]
impl Region for RegionHandle {
    fn id(&self) -> RegionId {
        self.shared.id
    }

    fn schema(&self) -> Arc<TableSchema> {
        self.shared.layout.schema.clone()
    }

    fn leader_epoch(&self) -> LeaderEpoch {
        self.shared.leader_epoch
    }

    fn applied(&self) -> Seq {
        self.shared.applied()
    }

    fn lost(&self) -> Vec<LostRange> {
        let manifest = self.shared.cell.borrow().manifest.clone();
        manifest
            .gaps
            .iter()
            .filter(|g| g.policy == "continue")
            .map(|g| LostRange { from: g.from, to: g.to, at_ms: g.at_ms })
            .collect()
    }

    fn status(&self) -> RegionStatus {
        let cell = self.shared.cell.borrow().clone();
        let version = &cell.version;
        let files = version.files.iter().map(|f| FileStatus {
            name: f.name.clone(),
            rows: f.rows,
            deletes: f.deletes,
            size_bytes: f.size,
            from: f.from,
            end: f.end,
            run: f.run,
        });
        let (wal_start, wal_end) = self.shared.wal_ends();
        RegionStatus {
            region: self.shared.id.to_string(),
            table: self.shared.table_name.to_string(),
            kind: version.layout.kind,
            state: cell.state.as_str(),
            reason: cell.reason.as_deref().map(str::to_owned).or_else(|| self.shared.incomplete()),
            leader_epoch: self.shared.leader_epoch,
            manifest_version: version.manifest_version,
            applied: version.applied,
            flushed: version.flushed,
            history_from: version.history_from,
            memtable_rows: cell.memtable_rows,
            memtable_bytes: cell.memtable_bytes,
            files: files.collect(),
            wal: self.shared.wal.clone(),
            wal_start,
            wal_end,
            pins: self.ctx.pins.list(self.shared.id),
            gaps: cell
                .manifest
                .gaps
                .iter()
                .map(|g| format!("{} [{}, {}) policy {}", g.kind, g.from, g.to, g.policy))
                .collect(),
        }
    }

    async fn wait_applied(&self, seq: Seq) -> Result<(), StorageError> {
        let mut cell = self.shared.cell.subscribe();
        let found = cell.wait_for(|c| c.version.applied >= seq || !c.state.is_live()).await;
        let reached = found.is_ok_and(|c| c.version.applied >= seq);
        if reached { Ok(()) } else { Err(self.shared.refusal()) }
    }

    fn scan(&self, request: ScanRequest) -> ScanStream {
        let version = self.shared.version();
        let checked = request
            .from
            .map_or(Ok(()), |from| self.check_kept(&version, from))
            .and_then(|()| self.check_kept(&version, request.to));
        match checked {
            Ok(()) => read::scan(version, self.ctx.reader.clone(), request),
            Err(e) => futures::stream::once(async move { Err(e) }).boxed(),
        }
    }

    async fn lookup(
        &self,
        keys: Vec<Key>,
        by: KeyMatch,
        at: Seq,
        columns: Option<Vec<usize>>,
    ) -> Result<LookupRows, StorageError> {
        let version = self.shared.version();
        self.check_kept(&version, at)?;
        read::lookup(version, self.ctx.reader.clone(), keys, by, at, columns).await
    }

    fn estimate(&self, from: Option<Seq>, to: Seq, after: &Pos) -> Estimate {
        read::estimate(&self.shared.version(), from, to, after)
    }

    async fn pin(&self, owner: PinOwner, pin: Pin) -> Result<(), StorageError> {
        self.ctx.pins.pin(self.shared.id, owner, pin).await
    }

    async fn unpin(&self, owner: PinOwner) -> Result<(), StorageError> {
        self.ctx.pins.unpin(self.shared.id, owner);
        Ok(())
    }

    async fn apply(&self, entries: Vec<AppliedEntry>) -> Result<(), StorageError> {
        apply(&self.ctx, &self.shared, entries, Source::Apply).await
    }

    fn hold_wal(&self, job: JobId, epoch: Epoch) {
        if let Some(shard) = &self.shard {
            shard.hold(Holder::Job(job, epoch));
        }
    }

    fn release_wal(&self, job: JobId, epoch: Epoch, end: Seq) {
        if let Some(shard) = &self.shard {
            shard.release_epochs(job, epoch);
            shard.set_complete(job, end);
        }
    }

    async fn write(&self, rows: RecordBatch, ops: Vec<Op>, write_id: u128) -> Result<(Seq, Seq), StorageError> {
        let region = self.shared.id;
        let Some(shard) = &self.shard else {
            let what = "a topic-fed table is written through its topic".to_owned();
            return Err(StorageError::Invalid { region, what });
        };
        let rows = self.check_write(&rows, &ops)?;
        if ops.is_empty() {
            let applied = self.shared.applied();
            return Ok((applied, applied));
        }
        let handed_over = Arc::new(AtomicBool::new(false));
        let (reply, answer) = oneshot::channel();
        let write = WriteRequest {
            region: self.shared.clone(),
            shard: shard.clone(),
            bytes: crate::layout::batch_bytes(&rows),
            rows,
            ops,
            write_id,
            reply,
            handed_over: handed_over.clone(),
        };
        self.shared.worker.request(Request::Write(write)).await?;
        match answer.await {
            Ok(answer) => answer,
            Err(_) if handed_over.load(Ordering::SeqCst) => {
                Err(StorageError::AppendUnknown { region, write_id, what: "the appender stopped".to_owned() })
            }
            Err(_) => Err(StorageError::Stopped { what: "region worker" }),
        }
    }

    async fn flush(&self) -> Result<Seq, StorageError> {
        let region = self.shared.id;
        self.ask(|reply| Request::Flush { region, reply }).await
    }

    async fn compact(&self) -> Result<(), StorageError> {
        let region = self.shared.id;
        self.ask(|reply| Request::Compact { region, reply }).await
    }
}
