//! Reads a shard back: at start for the regions that open, after an unknown outcome for one job or for client writes.
//!
//! Owns: routing of entries, whole epochs only, the end by position (K1). Not here: which offset to start at (the caller knows what is applied).
//!
//! Rows of an epoch apply at its `EpochEnd`; an epoch without one was cut by the captured end and is left to the next reader, which starts at
//! [`Replayed::complete_to`]. Applying is idempotent by sequence, so two replays that overlap are harmless.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use millstream_types::{
    Classified, Epoch, ErrorKind, JobId, LeaderEpoch, LogEvent, LogReader, Offset, Op, RawBatch, RegionId, Seq,
    error::chain,
};

use super::{
    entry::{self, Kind, Origin, Reject},
    prune::highest_marker,
    shard::Shard,
};
use crate::{
    StorageError,
    api::AppliedEntry,
    context::Context,
    region::{RegionShared, apply::apply},
    request::{Notice, Source},
};

/// Which entries count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Take {
    All,
    Job(JobId),
    Writes,
}

/// A region with the lowest sequence that it lacks.
#[derive(Debug)]
pub(crate) struct Target {
    pub region: Arc<RegionShared>,
    pub from: Seq,
}

/// What a replay came to.
#[derive(Debug)]
pub(crate) struct Replayed {
    /// Everything below it is applied.
    pub complete_to: Seq,
    /// Regions that did not take their rows, with the reason.
    pub failed: Vec<(RegionId, StorageError)>,
}

/// How long a replay waits without progress before it says so.
const REPORT: Duration = Duration::from_secs(30);

/// Reads `[from, end)` and applies what the targets lack. Returns when the position is at or after `end` and all rows are readable.
pub(crate) async fn replay(
    ctx: &Context,
    shard: &Shard,
    targets: Vec<Target>,
    take: Take,
    from: Seq,
    end: Offset,
) -> Result<Replayed, StorageError> {
    let mut replay = Replay {
        ctx,
        shard,
        take,
        targets: targets
            .into_iter()
            .map(|t| (t.region.id, TargetState { target: t, newest: LeaderEpoch(0) }))
            .collect(),
        epochs: HashMap::new(),
        pending: BTreeMap::new(),
        pending_bytes: 0,
        failed: Vec::new(),
    };
    replay.ends_below(end).await;
    let mut position = from;
    if position.0 < end.0 {
        let mut reader = shard.log.read(from.into()).await?;
        while position.0 < end.0 {
            match next_event(ctx, shard, &mut *reader, position, end).await {
                LogEvent::Records(batch) => {
                    replay.records(&batch, end).await?;
                    position = position.max(batch.next.into());
                }
                LogEvent::Position { next } => position = position.max(next.into()),
                LogEvent::EndReached { end: at } => position = position.max(at.into()),
                LogEvent::OutOfRange { wanted, start, end: log_end } => {
                    if start <= wanted {
                        let what =
                            format!("log end {log_end} is below offset {wanted}, which the manifest says was written");
                        return Err(StorageError::corrupt(shard.log.partition().to_string(), what));
                    }
                    replay.lost(start.into()).await?;
                    position = start.into();
                    reader = shard.log.read(start).await?;
                }
                LogEvent::Failed(e) if e.kind() == ErrorKind::Unavailable => {
                    tracing::warn!(partition = %shard.log.partition(), position = position.0, error = %chain(&e), "replay waits for the broker");
                    ctx.clock.sleep(Duration::from_millis(100)).await;
                }
                LogEvent::Failed(e) => return Err(e.into()),
            }
        }
    }
    replay.flush().await;
    let cut = replay.epochs.values().filter_map(|e| e.entries.first().map(|(_, entry)| entry.seq)).min();
    Ok(Replayed { complete_to: cut.unwrap_or(Seq::MAX).min(end.into()).max(from), failed: replay.failed })
}

/// The next event; reports a wait that goes on, since only another's open transaction explains it.
async fn next_event(ctx: &Context, shard: &Shard, reader: &mut dyn LogReader, position: Seq, end: Offset) -> LogEvent {
    loop {
        tokio::select! {
            event = reader.next() => return event,
            () = ctx.clock.sleep(REPORT) => tracing::warn!(
                partition = %shard.log.partition(), position = position.0, end = end.0,
                "replay waits: an open transaction lies below the captured end, the broker ends it at its timeout"
            ),
        }
    }
}

/// `at`: an offset of the log as it is now, `known`: one that it had.
pub(crate) fn went_back(shard: &Shard, at: Seq, known: Seq) -> String {
    format!(
        "shared wal {} is at offset {at} and was at {known} before: the topic was deleted and created again, lost its end, or is that of another cluster; \
         what this table or view had in it is lost, and nothing can be written here",
        shard.log.partition()
    )
}

struct TargetState {
    target: Target,
    /// Highest leader epoch read so far: entries below it are a zombie's.
    newest: LeaderEpoch,
}

/// Rows of an epoch whose end was not read yet.
struct OpenEpoch {
    epoch: Epoch,
    entries: Vec<(RegionId, AppliedEntry)>,
}

struct Replay<'a> {
    ctx: &'a Context,
    shard: &'a Shard,
    take: Take,
    targets: HashMap<RegionId, TargetState>,
    epochs: HashMap<JobId, OpenEpoch>,
    pending: BTreeMap<RegionId, Vec<AppliedEntry>>,
    pending_bytes: usize,
    failed: Vec<(RegionId, StorageError)>,
}

impl Replay<'_> {
    async fn records(&mut self, batch: &RawBatch, end: Offset) -> Result<(), StorageError> {
        for i in 0..batch.len() {
            if batch.offsets[i] >= end.0 {
                break;
            }
            if let Some(bytes) = batch.values.get(i) {
                self.record(batch.offsets[i], batch.keys.get(i), bytes).await;
            }
            if self.pending_bytes >= self.ctx.config.wal.replay_batch_bytes {
                self.flush().await;
            }
        }
        Ok(())
    }

    async fn record(&mut self, offset: i64, key: Option<&[u8]>, bytes: &[u8]) {
        let (header, payload) = match entry::parse(bytes) {
            Ok(parsed) => parsed,
            Err(Reject::Foreign) => {
                self.ctx.metrics.wal_foreign_records.inc();
                tracing::warn!(partition = %self.shard.log.partition(), offset, "skipped a record that is not ours");
                return;
            }
            Err(Reject::Corrupt(what)) => return self.corrupt(offset, key.and_then(entry::region_of_key), what).await,
        };
        let seq = Seq(offset);
        match (header.kind, header.origin) {
            (Kind::Rows, Origin::Write(id)) => {
                if matches!(self.take, Take::Job(_)) {
                    return;
                }
                let window = self.ctx.config.wal.write_id_window.as_millis() as u64;
                self.shard.remember_write(id, seq, seq.next(), self.ctx.clock.now_ms(), window);
                if self.wants(&header, seq)
                    && let Some(entry) = self.decode(offset, header.region, payload, header.rows).await
                {
                    self.push(header.region, entry);
                }
            }
            (Kind::Rows, Origin::Job { job, epoch }) => {
                let ours = match self.take {
                    Take::All => true,
                    Take::Job(j) => j == job,
                    Take::Writes => false,
                };
                if ours
                    && self.wants(&header, seq)
                    && let Some(entry) = self.decode(offset, header.region, payload, header.rows).await
                {
                    let open = self.epochs.entry(job).or_insert_with(|| OpenEpoch { epoch, entries: Vec::new() });
                    if open.epoch != epoch {
                        *open = OpenEpoch { epoch, entries: Vec::new() };
                    }
                    open.entries.push((header.region, entry));
                }
            }
            (Kind::EpochEnd, Origin::Job { job, epoch }) => {
                if let Some(open) = self.epochs.remove(&job).filter(|open| open.epoch == epoch) {
                    for (region, entry) in open.entries {
                        self.push(region, entry);
                    }
                }
            }
            (Kind::EpochEnd, Origin::Write(_)) => {}
        }
    }

    /// Whether a target lacks this entry; counts entries of a deposed leader.
    fn wants(&mut self, header: &entry::Header, seq: Seq) -> bool {
        let Some(state) = self.targets.get_mut(&header.region) else { return false };
        if header.leader_epoch < state.newest {
            self.ctx.metrics.wal_zombie_entries.inc();
            tracing::warn!(region = %header.region, offset = seq.0, theirs = %header.leader_epoch, newest = %state.newest, "dropped an entry of a lower leader epoch");
            return false;
        }
        state.newest = header.leader_epoch;
        seq >= state.target.from
    }

    async fn decode(&mut self, offset: i64, region: RegionId, payload: &[u8], rows: u32) -> Option<AppliedEntry> {
        match entry::decode_rows(payload, rows) {
            Ok((rows, ops)) => Some(AppliedEntry { seq: Seq(offset), rows, ops }),
            Err(what) => {
                self.corrupt(offset, Some(region), what).await;
                None
            }
        }
    }

    fn push(&mut self, region: RegionId, entry: AppliedEntry) {
        self.ctx.metrics.wal_replay_rows.inc_by(entry.rows.num_rows() as u64);
        self.pending_bytes += entry.rows.get_array_memory_size() + entry.ops.len() * size_of::<Op>();
        self.pending.entry(region).or_default().push(entry);
    }

    /// Hands over what has come together. A region that refuses is left out from here on; the others go on.
    async fn flush(&mut self) {
        self.pending_bytes = 0;
        for (id, entries) in std::mem::take(&mut self.pending) {
            let Some(region) = self.targets.get(&id).map(|s| s.target.region.clone()) else { continue };
            if let Err(e) = apply(self.ctx, &region, entries, Source::Apply).await {
                tracing::warn!(region = %id, error = %chain(&e), "region left the replay");
                self.targets.remove(&id);
                self.failed.push((id, e));
            }
        }
    }

    async fn corrupt(&mut self, offset: i64, region: Option<RegionId>, what: String) {
        self.ctx.metrics.wal_corrupt_entries.inc();
        let reason = format!("wal entry {} offset {offset}: {what}", self.shard.log.partition());
        tracing::error!(region = ?region, offset, what, "corrupt wal entry");
        if let Some(state) = region.and_then(|id| self.targets.remove(&id)) {
            self.quarantine(state.target.region, reason).await;
        }
    }

    /// A log that ends below what a region had from it was deleted and made again, or lost its end. What is written to it now would get sequences that the
    /// region has, and would count as being there.
    async fn ends_below(&mut self, end: Offset) {
        let hit: Vec<RegionId> =
            self.targets.values().filter(|s| s.target.from > end.into()).map(|s| s.target.region.id).collect();
        if hit.is_empty() {
            return;
        }
        tracing::error!(partition = %self.shard.log.partition(), end = end.0, regions = hit.len(), "shared wal ends below what was read from it");
        for id in hit {
            if let Some(state) = self.targets.remove(&id) {
                let reason = went_back(self.shard, Seq::from(end), state.target.from);
                self.quarantine(state.target.region, reason).await;
            }
        }
    }

    /// The log lost a range that a prune marker did not allow for.
    async fn lost(&mut self, start: Seq) -> Result<(), StorageError> {
        // A prune, also that of another process, puts its marker before it deletes, so markers are read after the log start was seen.
        self.shard.set_pruned(highest_marker(self.ctx, self.shard.id).await?);
        let needless = self.shard.pruned();
        let needed = |s: &TargetState| s.target.from.max(needless);
        let hit: Vec<RegionId> =
            self.targets.values().filter(|s| needed(s) < start).map(|s| s.target.region.id).collect();
        if hit.is_empty() {
            return Ok(());
        }
        tracing::error!(partition = %self.shard.log.partition(), start = start.0, regions = hit.len(), "shared wal lost entries that were needed");
        for id in hit {
            if let Some(state) = self.targets.remove(&id) {
                let reason = format!(
                    "shared wal {} starts at {start}, needed from {}",
                    self.shard.log.partition(),
                    state.target.from
                );
                self.quarantine(state.target.region, reason).await;
            }
        }
        Ok(())
    }

    async fn quarantine(&mut self, region: Arc<RegionShared>, reason: String) {
        let path = self.shard.log.partition().to_string();
        self.failed.push((region.id, StorageError::corrupt(path, reason.clone())));
        region.worker.notice(Notice::Quarantine { region: region.clone(), reason }).await;
    }
}
