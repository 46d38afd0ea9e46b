//! Client writes of one shard: gathered, committed in one transaction per group, made readable, answered.
//!
//! Owns: group commit, write ids, the unknown outcome. Not here: admission and parking (`worker/handle_write`), entry bytes (`entry`).
//!
//! | outcome | clients get |
//! |---|---|
//! | committed | Ok when the rows are readable |
//! | aborted before EndTxn | `AppendFailed`: nothing was written |
//! | fenced | asks the manifests: another leader: `Fenced`, the regions close; still ours (the broker ended a transaction that stood too long): as below |
//! | anything else | new producer with the same id, read back to the high watermark; write id found: Ok, absent: `AppendFailed` |
//!
//! After the deadline they get `AppendUnknown` with their write id while the appender goes on. Until the outcome is known nothing else is appended to the
//! shard, so a write that was reported as failed never turns up later.

use std::{collections::HashMap, sync::Arc, time::Duration};

use millstream_types::{
    CommitOutcome, EpochWriter, ErrorKind, LeaderEpoch, LogError, OutBatch, RegionId, Seq, error::chain,
};
use tokio::sync::mpsc;

use super::{
    entry::{self, EntryLimits, Header, Kind, Origin},
    replay::{Take, Target, replay, went_back},
    shard::{Holder, Shard},
};
use crate::{
    StorageError,
    api::AppliedEntry,
    context::Context,
    listener::Point,
    manifest::Store,
    region::{
        RegionShared,
        apply::{apply, range},
    },
    request::{Notice, Reply, Source, WriteRequest},
};

pub(crate) type AppendRequest = WriteRequest;

/// One write of a group, with everybody who asked for it.
struct Pending {
    region: Arc<RegionShared>,
    write_id: u128,
    rows: arrow::array::RecordBatch,
    ops: Vec<millstream_types::Op>,
    replies: Vec<Reply<(Seq, Seq)>>,
    /// Place of its first record in the transaction, and its entries' places in its rows.
    first_record: usize,
    cuts: Vec<(usize, usize)>,
}

/// Owns the producer of a shard; one task.
#[derive(Debug)]
pub(crate) struct Appender {
    ctx: Arc<Context>,
    shard: Arc<Shard>,
    queue: mpsc::Receiver<AppendRequest>,
    writer: Box<dyn EpochWriter>,
    /// The producer is initialised and no outcome is open.
    ready: bool,
    /// All offsets of coming transactions are at or after it.
    low: Seq,
}

impl Appender {
    pub(crate) fn new(ctx: Arc<Context>, shard: Arc<Shard>, queue: mpsc::Receiver<AppendRequest>) -> Self {
        let writer = ctx.logs.epoch_writer(&format!("{}.shard.{}", ctx.prefix, shard.id));
        Self { ctx, shard, queue, writer, ready: false, low: Seq::ZERO }
    }

    /// Fences older producers of this shard. Called once before anything of the shard is read, so that no zombie writes behind the captured end.
    pub(crate) async fn init(&mut self) -> Result<(), LogError> {
        self.writer.init().await?;
        self.ready = true;
        Ok(())
    }

    pub(crate) async fn run(mut self) {
        while let Some(first) = self.queue.recv().await {
            let group = self.gather(first).await;
            self.append(group).await;
        }
    }

    async fn gather(&mut self, first: AppendRequest) -> Vec<AppendRequest> {
        let mut bytes = first.bytes;
        let mut group = vec![first];
        let limit = self.ctx.config.wal.batch_bytes;
        let linger = self.ctx.clock.sleep(self.ctx.config.wal.linger);
        tokio::pin!(linger);
        while bytes < limit {
            tokio::select! {
                biased;
                next = self.queue.recv() => match next {
                    Some(request) => {
                        bytes += request.bytes;
                        group.push(request);
                    }
                    None => break,
                },
                () = &mut linger => break,
            }
        }
        group
    }

    async fn append(&mut self, group: Vec<AppendRequest>) {
        let mut writes = self.join_repeated(group);
        if writes.is_empty() {
            return;
        }
        let Some((out, good)) = encode(self.ctx.clone(), self.shard.id, writes).await else { return };
        writes = good;
        if writes.is_empty() {
            return;
        }
        self.shard.hold(Holder::Append);
        if !self.ready
            && let Err(e) = self.init_within_deadline().await
        {
            // Nothing of this group was sent, so it failed for certain.
            let text = chain(&e);
            tracing::warn!(shard = %self.shard.id, error = %text, "cannot start the producer of a shard");
            answer_all(writes, |region, _| {
                Err(StorageError::AppendFailed {
                    region,
                    source: Some(LogError::new(ErrorKind::Unavailable, text.clone())),
                })
            });
            self.shard.release(Holder::Append);
            return;
        }
        let at = writes[0].region.id;
        self.ctx.at(Point::AppendSent, at).await;
        let started = self.ctx.clock.now_ms();
        let outcome = self.commit(&out, &mut writes).await;
        self.ctx.metrics.append_seconds.observe(self.ctx.clock.now_ms().saturating_sub(started) as f64 / 1000.0);
        self.settle(outcome, writes, at).await;
        self.shard.release(Holder::Append);
    }

    async fn settle(&mut self, outcome: CommitOutcome, writes: Vec<Pending>, at: RegionId) {
        match outcome {
            CommitOutcome::Committed { offsets } => {
                self.ctx.at(Point::AppendCommitted, at).await;
                let offsets = offsets.into_iter().next().unwrap_or_default();
                self.committed(writes, &offsets).await;
            }
            CommitOutcome::Aborted(e) => {
                let text = chain(&e);
                tracing::warn!(shard = %self.shard.id, error = %text, "client writes were aborted");
                answer_all(writes, |region, _| {
                    Err(StorageError::AppendFailed { region, source: Some(LogError::new(e.kind, text.clone())) })
                });
            }
            CommitOutcome::Fenced(e) => {
                self.ready = false;
                tracing::warn!(shard = %self.shard.id, error = %chain(&e), "the producer of a shard was fenced, asking whose its regions are");
                let ours = self.keep_ours(writes).await;
                if !ours.is_empty() {
                    self.resolve(ours).await;
                }
            }
            CommitOutcome::Unknown(e) => {
                self.ready = false;
                tracing::warn!(shard = %self.shard.id, error = %chain(&e), "outcome of client writes is unknown, reading back");
                self.ctx.at(Point::AppendUnknown, at).await;
                self.resolve(writes).await;
            }
        }
    }

    /// Answers writes to regions that another process has claimed, and closes those. Tries until the manifests can be read: a new producer before that would
    /// fence the one that has taken over.
    async fn keep_ours(&mut self, mut writes: Vec<Pending>) -> Vec<Pending> {
        let deadline = self.ctx.clock.now_ms() + self.ctx.config.wal.append_deadline.as_millis() as u64;
        let mut owners: HashMap<RegionId, LeaderEpoch> = HashMap::new();
        let mut attempt = 0;
        while let Some(write) = writes.iter().find(|w| !owners.contains_key(&w.region.id)) {
            let region = write.region.clone();
            match Store::load(&self.ctx.store, region.id).await {
                // A region that is gone has no other leader.
                Ok(store) => {
                    owners.insert(region.id, store.map_or(region.leader_epoch, |s| s.state().leader_epoch));
                    continue;
                }
                Err(e) => {
                    tracing::warn!(region = %region.id, attempt, error = %chain(&e), "cannot read whose a region is, repeating")
                }
            }
            if self.ctx.clock.now_ms() >= deadline {
                give_up(&mut writes, "the producer was fenced and the manifest cannot be read");
            }
            self.ctx.clock.sleep(Context::backoff(Duration::from_millis(100), Duration::from_secs(5), attempt)).await;
            attempt += 1;
        }
        let (theirs, ours): (Vec<_>, Vec<_>) = writes
            .into_iter()
            .partition(|w| owners.get(&w.region.id).is_some_and(|epoch| *epoch > w.region.leader_epoch));
        for write in &theirs {
            tracing::error!(region = %write.region.id, "the region has another owner: it is fenced here");
            write.region.worker.notice(Notice::Fence { region: write.region.clone() }).await;
        }
        answer_all(theirs, |region, ours| {
            let theirs = owners.get(&region).copied().unwrap_or(ours);
            Err(StorageError::Fenced { region, version: 0, theirs, ours })
        });
        ours
    }

    /// Answers what was answered before, and joins requests with the same write id.
    fn join_repeated(&self, group: Vec<AppendRequest>) -> Vec<Pending> {
        let mut writes: Vec<Pending> = Vec::with_capacity(group.len());
        for request in group {
            if let Some(answer) = self.shard.write_answer(request.write_id) {
                reply(request.reply, Ok(answer));
            } else if let Some(same) = writes.iter_mut().find(|w| w.write_id == request.write_id) {
                same.replies.push(request.reply);
            } else {
                writes.push(Pending {
                    region: request.region,
                    write_id: request.write_id,
                    rows: request.rows,
                    ops: request.ops,
                    replies: vec![request.reply],
                    first_record: 0,
                    cuts: Vec::new(),
                });
            }
        }
        writes
    }

    async fn init_within_deadline(&mut self) -> Result<(), LogError> {
        let deadline = self.ctx.clock.now_ms() + self.ctx.config.wal.append_deadline.as_millis() as u64;
        let mut attempt = 0;
        loop {
            match self.init().await {
                Ok(()) => return Ok(()),
                Err(e) if self.ctx.clock.now_ms() >= deadline => return Err(e),
                Err(e) => {
                    tracing::warn!(shard = %self.shard.id, attempt, error = %chain(&e), "init of the shard's producer failed, repeating")
                }
            }
            self.ctx.clock.sleep(Context::backoff(Duration::from_millis(100), Duration::from_secs(2), attempt)).await;
            attempt += 1;
        }
    }

    /// Commits; clients that wait longer than the deadline are told that the outcome is unknown, the commit goes on.
    async fn commit(&mut self, out: &OutBatch, writes: &mut [Pending]) -> CommitOutcome {
        let deadline = self.ctx.clock.sleep(self.ctx.config.wal.append_deadline);
        let commit = self.writer.commit(std::slice::from_ref(out));
        tokio::pin!(deadline, commit);
        tokio::select! {
            outcome = &mut commit => return outcome,
            () = &mut deadline => {}
        }
        give_up(writes, "no answer within the deadline");
        commit.await
    }

    /// Makes committed rows readable and answers.
    async fn committed(&mut self, writes: Vec<Pending>, offsets: &[i64]) {
        if let Some(at) = offsets.iter().copied().find(|o| *o < self.low.0) {
            return self.log_went_back(writes, Seq(at)).await;
        }
        self.low = Seq(offsets.iter().max().map_or(self.low.0, |o| o + 1)).max(self.low);
        let (now, window) = (self.ctx.clock.now_ms(), self.ctx.config.wal.write_id_window.as_millis() as u64);
        for write in writes {
            let entries: Vec<AppliedEntry> = write
                .cuts
                .iter()
                .enumerate()
                .map(|(i, (first, count))| AppliedEntry {
                    seq: Seq(offsets[write.first_record + i]),
                    rows: write.rows.slice(*first, *count),
                    ops: write.ops[*first..first + count].to_vec(),
                })
                .collect();
            let Some((from, end)) = range(&entries) else { continue };
            self.shard.remember_write(write.write_id, from, end, now, window);
            if let Err(e) = apply(&self.ctx, &write.region, entries, Source::Append).await {
                // It is durable; a region that has closed meanwhile finds it in the log when it opens.
                tracing::warn!(region = %write.region.id, error = %chain(&e), "a committed write waits in the log until its region opens again");
            }
            for r in write.replies {
                reply(r, Ok((from, end)));
            }
        }
    }

    /// What was written is in another log than the one that the regions are at: reading it back would find it "applied".
    async fn log_went_back(&mut self, writes: Vec<Pending>, at: Seq) {
        let reason = went_back(&self.shard, at, self.low);
        tracing::error!(shard = %self.shard.id, reason, "client writes went to a log that is not ours");
        for write in &writes {
            write
                .region
                .worker
                .notice(Notice::Quarantine { region: write.region.clone(), reason: reason.clone() })
                .await;
        }
        let path = self.shard.log.partition().to_string();
        answer_all(writes, |_, _| Err(StorageError::corrupt(path.clone(), reason.clone())));
    }

    /// Finds out what became of a transaction. Tries for ever: nothing else may be appended before.
    async fn resolve(&mut self, mut writes: Vec<Pending>) {
        let mut attempt = 0;
        let from = self.low;
        let deadline = self.ctx.clock.now_ms() + self.ctx.config.wal.append_deadline.as_millis() as u64;
        let failed = loop {
            match self.read_back(&writes, from).await {
                Ok(failed) => break failed,
                Err(e) => {
                    tracing::warn!(shard = %self.shard.id, attempt, error = %chain(&e), "reading back failed, repeating")
                }
            }
            if self.ctx.clock.now_ms() >= deadline {
                give_up(&mut writes, "the log cannot be read back");
            }
            self.ctx.clock.sleep(Context::backoff(Duration::from_millis(100), Duration::from_secs(5), attempt)).await;
            attempt += 1;
        };
        for write in writes {
            let found = self.shard.write_answer(write.write_id);
            self.ctx
                .metrics
                .append_unknown
                .with_label_values(&[match found {
                    Some(_) => "committed",
                    None if failed.contains(&write.region.id) => "lost",
                    None => "absent",
                }])
                .inc();
            let region = write.region.id;
            let failed = failed.contains(&region);
            if failed && found.is_some() {
                tracing::warn!(%region, "a committed write waits in the log until its region opens again");
            }
            for r in write.replies {
                let answer = found.ok_or_else(|| match failed {
                    // Its entries may be among what could not be read.
                    true => StorageError::AppendUnknown {
                        region,
                        write_id: write.write_id,
                        what: "the region could not take what the log holds, or the log lost entries before they were read back".into(),
                    },
                    false => StorageError::AppendFailed { region, source: None },
                });
                reply(r, answer);
            }
        }
    }

    async fn read_back(&mut self, writes: &[Pending], from: Seq) -> Result<Vec<RegionId>, StorageError> {
        if !self.ready {
            self.init().await?;
        }
        let ends = self.shard.log.offsets().await?;
        let mut targets: Vec<Target> = Vec::new();
        for write in writes {
            if targets.iter().all(|t| t.region.id != write.region.id) {
                targets.push(Target { region: write.region.clone(), from: write.region.applied() });
            }
        }
        // Not from the start of the log: where that is above, the replay asks whether what lies between was pruned or lost.
        let done = replay(&self.ctx, &self.shard, targets, Take::Writes, from, ends.high_watermark).await?;
        self.low = self.low.max(ends.high_watermark.into());
        Ok(done.failed.into_iter().map(|(id, _)| id).collect())
    }

    /// Where the log ended when the shard was opened: no transaction of this process lies below.
    pub(crate) fn set_low(&mut self, low: Seq) {
        self.low = low;
    }
}

/// All entries of the group as records. A write that cannot be encoded fails alone. `None`: the engine stops.
async fn encode(
    ctx: Arc<Context>,
    shard: millstream_types::ShardId,
    taken: Vec<Pending>,
) -> Option<(OutBatch, Vec<Pending>)> {
    let limits = EntryLimits { entry_bytes: ctx.config.wal.entry_bytes, max_row_bytes: ctx.config.wal.max_row_bytes };
    let (topic, partition, now) = (ctx.wal_topic.clone(), shard.0 as i32, ctx.clock.now_ms() as i64);
    let encoding = ctx.runner.on_compute("encode client writes", move || {
        let mut out = OutBatch::new(topic, now);
        out.want_offsets = true;
        let mut good = Vec::with_capacity(taken.len());
        for mut write in taken {
            match encode_write(&mut write, limits, out.len()) {
                Ok(entries) => {
                    let key = entry::record_key(write.region.id);
                    entries.iter().for_each(|bytes| out.push(partition, Some(&key), Some(bytes)));
                    good.push(write);
                }
                Err(e) => refuse(write, &e),
            }
        }
        (out, good)
    });
    encoding.await
}

fn encode_write(write: &mut Pending, limits: EntryLimits, first_record: usize) -> Result<Vec<Vec<u8>>, StorageError> {
    let header = Header {
        kind: Kind::Rows,
        origin: Origin::Write(write.write_id),
        region: write.region.id,
        leader_epoch: write.region.leader_epoch,
        schema_id: write.region.layout.schema.id,
        partition_version: 0,
        rows: 0,
    };
    let mut entries = Vec::new();
    let mut cuts = Vec::new();
    entry::encode_rows(header, &write.rows, &write.ops, limits, &mut |bytes, first, count| {
        entries.push(bytes);
        cuts.push((first, count));
    })?;
    write.first_record = first_record;
    write.cuts = cuts;
    Ok(entries)
}

fn refuse(write: Pending, e: &StorageError) {
    let region = write.region.id;
    for r in write.replies {
        let again = match e {
            StorageError::Invalid { what, .. } => StorageError::Invalid { region, what: what.clone() },
            other => StorageError::Internal { what: chain(other), source: None },
        };
        reply(r, Err(again));
    }
}

fn answer_all(
    writes: Vec<Pending>,
    answer: impl Fn(RegionId, millstream_types::LeaderEpoch) -> Result<(Seq, Seq), StorageError>,
) {
    for write in writes {
        for r in write.replies {
            reply(r, answer(write.region.id, write.region.leader_epoch));
        }
    }
}

/// Tells those who wait that nobody knows yet; they ask again with the write id.
fn give_up(writes: &mut [Pending], what: &str) {
    for write in writes {
        for r in write.replies.drain(..) {
            reply(
                r,
                Err(StorageError::AppendUnknown {
                    region: write.region.id,
                    write_id: write.write_id,
                    what: what.to_owned(),
                }),
            );
        }
    }
}

fn reply(to: Reply<(Seq, Seq)>, answer: Result<(Seq, Seq), StorageError>) {
    if to.send(answer).is_err() {
        tracing::debug!("a client left before its write was answered");
    }
}
