//! The tail of a topic: read, decode, sort, hand over to the region's worker. One compute task per region.
//!
//! Owns: position, gathering small batches into runs, bounded room ahead of the worker. Not here: gaps and restarts (`worker/handle_topic`), retention
//! (`guard`).
//!
//! Back-pressure: each run takes room from the region's and the process's budget and gives it back when it is in the memtable. No room: the task does
//! not read, the reader does not fetch. The position moves over markers, aborted and compacted records by events alone (K1).

use std::{sync::Arc, time::Duration};

use arrow::{array::RecordBatch, compute::concat_batches};
use futures::FutureExt;
use millstream_types::{
    Classified, Decoder, ErrorKind, LogEvent, LogReader, LogStore, Op, RawBatch, Seq, TopicPartition, error::chain,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::{
    StorageError,
    context::Context,
    memtable::Run,
    region::RegionShared,
    request::{Insert, Notice, Request, Source},
};

/// Starts the tail at `from`; it ends when the token is cancelled, or after a notice that says why.
pub(crate) fn spawn(
    ctx: &Arc<Context>,
    region: &Arc<RegionShared>,
    partition: TopicPartition,
    from: Seq,
) -> CancellationToken {
    let token = CancellationToken::new();
    let decoder = region.decoder.as_ref().map(|d| d.decoder());
    let task = {
        let (ctx, region, token) = (ctx.clone(), region.clone(), token.clone());
        async move {
            let Some(decoder) = decoder else {
                let reason = "the table has no decoder".to_owned();
                return region.worker.notice(Notice::Quarantine { region: region.clone(), reason }).await;
            };
            let room = Arc::new(Semaphore::new(ctx.config.tail_ahead_bytes.min(Semaphore::MAX_PERMITS)));
            let tail = Tail {
                log: ctx.logs.log(&partition),
                ctx: &ctx,
                region: &region,
                partition,
                decoder,
                room,
                position: from,
                pending: Pending::default(),
            };
            token.run_until_cancelled(tail.run()).await;
        }
    };
    let handle = ctx.runner.compute(format!("tail of region {}", region.id), task);
    let watched = region.clone();
    // A panic is in a decoder or in the sort: the region stops, its neighbours do not notice.
    ctx.runner.io("watch of a tail", async move {
        if matches!(handle.await, Ok(None)) {
            let reason = "decoding panicked, see the log; the position stays".to_owned();
            watched.worker.notice(Notice::Quarantine { region: watched.clone(), reason }).await;
        }
    });
    token
}

/// Decoded rows that wait for more.
#[derive(Default)]
struct Pending {
    parts: Vec<RecordBatch>,
    ops: Vec<Op>,
    seqs: Vec<i64>,
    bytes: usize,
    oldest_ms: Option<i64>,
}

struct Tail<'a> {
    ctx: &'a Context,
    region: &'a Arc<RegionShared>,
    partition: TopicPartition,
    log: Arc<dyn LogStore>,
    decoder: Box<dyn Decoder>,
    room: Arc<Semaphore>,
    /// Everything below it was read.
    position: Seq,
    pending: Pending,
}

/// Why the tail ends.
enum End {
    /// The worker or the engine is gone.
    Stopped,
    /// The region's worker was told.
    Told,
}

impl Tail<'_> {
    async fn run(mut self) {
        let mut attempt = 0;
        let mut reader = loop {
            match self.log.read(self.position.into()).await {
                Ok(reader) => break reader,
                Err(e) if e.kind() == ErrorKind::Unavailable => {
                    tracing::warn!(region = %self.region.id, partition = %self.partition, error = %chain(&e), "cannot read the topic, repeating");
                    self.ctx
                        .clock
                        .sleep(Context::backoff(Duration::from_millis(100), Duration::from_secs(10), attempt))
                        .await;
                    attempt += 1;
                }
                Err(e) => return self.quarantine(chain(&e)).await,
            }
        };
        loop {
            match self.step(&mut *reader).await {
                Ok(()) => {}
                Err(End::Stopped | End::Told) => return,
            }
        }
    }

    async fn step(&mut self, reader: &mut dyn LogReader) -> Result<(), End> {
        let event = if self.pending.seqs.is_empty() {
            reader.next().await
        } else {
            // While there is more to read at once, runs grow; otherwise the rows wait for the linger at most.
            match reader.next().now_or_never() {
                Some(event) => event,
                None => {
                    let linger = self.ctx.clock.sleep(self.ctx.config.tail_linger);
                    tokio::select! {
                        event = reader.next() => event,
                        () = linger => return self.hand_over().await,
                    }
                }
            }
        };
        match event {
            LogEvent::Records(batch) => {
                self.decode(&batch);
                let full = self.pending.seqs.len() >= self.ctx.config.tail_run_rows
                    || self.pending.bytes >= self.ctx.config.tail_ahead_bytes / 4;
                // Records that gave no rows (bad, ignored) move the position alone.
                if full || self.pending.seqs.is_empty() { self.hand_over().await } else { Ok(()) }
            }
            LogEvent::Position { next } => {
                self.position = self.position.max(next.into());
                self.hand_over().await
            }
            LogEvent::EndReached { end } => {
                self.position = self.position.max(end.into());
                let start = self.region.wal_ends().0.unwrap_or(Seq::ZERO);
                self.region.set_wal_ends(start, end.into());
                self.hand_over().await
            }
            LogEvent::OutOfRange { wanted, start, end } => {
                self.hand_over().await?;
                self.wait_until_applied().await?;
                // A broker that says so wrongly must not be asked in a tight loop.
                self.ctx.clock.sleep(Duration::from_millis(100)).await;
                let notice = Notice::OutOfRange {
                    region: self.region.clone(),
                    wanted: wanted.into(),
                    start: start.into(),
                    end: end.into(),
                };
                self.region.worker.notice(notice).await;
                Err(End::Told)
            }
            LogEvent::Failed(e) if e.kind() == ErrorKind::Unavailable => {
                tracing::warn!(region = %self.region.id, partition = %self.partition, position = self.position.0, error = %chain(&e), "the broker is away, the reader goes on by itself");
                self.ctx.clock.sleep(Duration::from_millis(200)).await;
                Ok(())
            }
            LogEvent::Failed(e) => {
                self.hand_over().await?;
                self.quarantine(chain(&e)).await;
                Err(End::Told)
            }
        }
    }

    fn decode(&mut self, batch: &RawBatch) {
        let decoded = self.decoder.decode(batch);
        if !decoded.bad.is_empty() {
            self.ctx.metrics.bad_records.with_label_values(&[&self.region.table_name]).inc_by(decoded.bad.len() as u64);
            if let Some(sink) = &self.region.bad_records {
                sink.report(&self.partition, decoded.bad);
            }
        }
        if self.pending.oldest_ms.is_none() {
            self.pending.oldest_ms = batch.timestamps.iter().copied().find(|t| *t >= 0);
        }
        if decoded.rows.num_rows() > 0 {
            self.pending.bytes += decoded.rows.get_array_memory_size();
            self.pending.parts.push(decoded.rows);
            self.pending.ops.extend(decoded.ops);
            self.pending.seqs.extend(decoded.offsets);
        }
        self.position = self.position.max(decoded.next.into());
    }

    /// Sorts what has come together and gives it to the worker, or only the position if there are no rows.
    async fn hand_over(&mut self) -> Result<(), End> {
        let pending = std::mem::take(&mut self.pending);
        if pending.seqs.is_empty() && self.position <= self.region.applied() {
            return Ok(());
        }
        let mut insert = Insert {
            region: self.region.clone(),
            source: Source::Tail,
            run: None,
            applied: self.position,
            oldest_record_ms: pending.oldest_ms,
            permits: Vec::new(),
            reply: None,
        };
        if !pending.seqs.is_empty() {
            let run = match self.build(&pending) {
                Ok(run) => run,
                Err(e) => {
                    self.quarantine(chain(&e)).await;
                    return Err(End::Told);
                }
            };
            drop(pending);
            insert.permits = self.take_room(run.bytes).await?;
            insert.run = Some(Arc::new(run));
        }
        self.region.worker.request(Request::Insert(insert)).await.map_err(|_| End::Stopped)
    }

    fn build(&self, pending: &Pending) -> Result<Run, StorageError> {
        let layout = &self.region.layout;
        let rows = match pending.parts.as_slice() {
            [one] => RecordBatch::try_new(layout.table.clone(), one.columns().to_vec())?,
            many => concat_batches(&layout.table, many)?,
        };
        Run::build(layout, &rows, &pending.ops, &pending.seqs, 0)
    }

    async fn take_room(&mut self, bytes: usize) -> Result<Vec<OwnedSemaphorePermit>, End> {
        let config = &self.ctx.config;
        // A run larger than the whole budget waits for all of it, then goes alone.
        let own = bytes.min(config.tail_ahead_bytes).min(u32::MAX as usize) as u32;
        let own = self.room.clone().acquire_many_owned(own).await.map_err(|_| End::Stopped)?;
        let shared = bytes.min(config.tail_ahead_total_bytes).min(u32::MAX as usize) as u32;
        let shared = self.ctx.tail_room.clone().acquire_many_owned(shared).await.map_err(|_| End::Stopped)?;
        Ok(vec![own, shared])
    }

    /// Notices overtake rows, so what was handed over must be in the memtable before the worker hears that the tail has ended.
    async fn wait_until_applied(&mut self) -> Result<(), End> {
        let mut cell = self.region.cell.subscribe();
        let done = cell.wait_for(|c| c.version.applied >= self.position || !c.state.is_live()).await;
        done.map(|_| ()).map_err(|_| End::Stopped)
    }

    async fn quarantine(&mut self, reason: String) {
        let reason = format!("topic {}: {reason}", self.partition);
        self.region.worker.notice(Notice::Quarantine { region: self.region.clone(), reason }).await;
    }
}
