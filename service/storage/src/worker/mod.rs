//! The region worker: one task that owns the mutable state of its regions and handles one message after the other. It never awaits the bucket or Kafka.
//!
//! ```text
//! mailbox (requests, 256) --\
//! notices (own lane) --------+--> loop: notices, then requests in order of arrival, then publish, then answer
//! memory freed, clock ------/
//! ```
//! Slow work runs in tasks that take what they need and end in a notice. Rows that a region cannot take now park in its one queue, in order of arrival.
//! Barriers and notices never park. Answers go out after the new versions are visible.
//!
//! One file per verb: `insert` (rows in), `write` (client rows to the appender), `freeze` (memtable to SST), `manifest_queue` (one put at a time),
//! `compact`, `topic` (tail, gaps), `lifecycle` (install, remove, fence, quarantine), `periodic`. `region` is the state they share.

mod compact;
mod freeze;
mod insert;
mod lifecycle;
pub(crate) mod manifest_queue;
mod periodic;
mod region;
mod topic;
mod write;

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
    time::Duration,
};

use millstream_types::{RegionId, Seq};
use tokio::sync::{mpsc, oneshot, watch};

pub(crate) use region::OpenRegion;

use crate::{
    context::Context,
    listener::Point,
    memtable::Run,
    region::RegionShared,
    request::{Inserted, Notice, Reply, Request, WorkerSender},
};

/// Requests taken from the mailbox before versions are published.
const BATCH: usize = 64;
/// Notices lane: tasks wait when it is full, which only delays their end.
const NOTICES: usize = 1024;
/// While something is parked the loop looks again after this time even if no wake-up came.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Answers held until the new versions are visible.
enum Answer {
    Inserted(Reply<Inserted>),
    Barrier(oneshot::Sender<Vec<(RegionId, Seq)>>),
    Removed(oneshot::Sender<()>),
}

pub(crate) struct RegionWorkerLoop {
    number: usize,
    ctx: Arc<Context>,
    regions: HashMap<RegionId, OpenRegion>,
    requests: mpsc::Receiver<(u64, Request)>,
    notices: mpsc::Receiver<Notice>,
    freed: watch::Receiver<u64>,
    answers: Vec<Answer>,
    /// Flushed runs that some reader may still hold, with the bytes charged for them.
    held: Vec<(Weak<Run>, usize)>,
    last_check_ms: u64,
}

/// Starts a worker; it ends with the engine.
pub(crate) fn start(ctx: &Arc<Context>, number: usize) -> WorkerSender {
    let (requests, requests_in) = mpsc::channel(ctx.config.mailbox_requests);
    let (notices, notices_in) = mpsc::channel(NOTICES);
    let now = ctx.clock.now_ms();
    let worker = RegionWorkerLoop {
        number,
        regions: HashMap::new(),
        requests: requests_in,
        notices: notices_in,
        freed: ctx.buffer.subscribe(),
        answers: Vec::new(),
        held: Vec::new(),
        // Spread over the interval, so that a restart does not line all workers up.
        last_check_ms: now.saturating_sub(rand::Rng::random_range(
            &mut rand::rng(),
            0..=ctx.config.check_interval.as_millis() as u64,
        )),
        ctx: ctx.clone(),
    };
    ctx.runner.io(format!("region worker {number}"), worker.run());
    WorkerSender { requests, notices, clock: ctx.clock.clone() }
}

impl RegionWorkerLoop {
    async fn run(mut self) {
        loop {
            let clock = self.ctx.clock.clone();
            tokio::select! {
                biased;
                Some(notice) = self.notices.recv() => self.handle_notice(notice),
                _ = self.freed.changed() => {}
                Some((sent, request)) = self.requests.recv() => self.handle_request(sent, request),
                () = clock.sleep(LOOK_AGAIN) => {}
                else => return,
            }
            self.take_waiting();
            self.resume_parked();
            self.flush_on_engine_full();
            self.check_periodically();
            self.publish();
        }
    }

    /// What else has arrived: notices first, then requests up to the batch size, in order.
    fn take_waiting(&mut self) {
        while let Ok(notice) = self.notices.try_recv() {
            self.handle_notice(notice);
        }
        for _ in 1..BATCH {
            let Ok((sent, request)) = self.requests.try_recv() else { break };
            self.handle_request(sent, request);
        }
    }

    fn handle_request(&mut self, sent_ms: u64, request: Request) {
        let waited = self.ctx.clock.now_ms().saturating_sub(sent_ms);
        self.ctx.metrics.request_wait_seconds.with_label_values(&[request.kind()]).observe(waited as f64 / 1000.0);
        match request {
            Request::Insert(insert) => self.handle_insert(insert),
            Request::Write(write) => self.handle_write(write),
            Request::Flush { region, reply } => self.handle_flush(region, reply),
            Request::Compact { region, reply } => self.handle_compact(region, reply),
        }
    }

    fn handle_notice(&mut self, notice: Notice) {
        match notice {
            Notice::Install(region) => self.handle_install(region),
            Notice::Replayed { region, applied } => self.handle_replayed(&region, applied),
            Notice::Remove { region, event, reply } => self.handle_remove(region, event, reply),
            Notice::Barrier { reply } => self.answers.push(Answer::Barrier(reply)),
            Notice::Uploaded { region, frozen, result, history_from } => {
                self.handle_uploaded(&region, frozen, result, history_from)
            }
            Notice::RetryUploads { region } => self.handle_retry_uploads(&region),
            Notice::RetryManifest { region } => self.handle_retry_manifest(&region),
            Notice::ManifestDone { region, store, job, result } => {
                if self.is_current(&region) {
                    self.handle_manifest_done(&region, store, job, result);
                }
            }
            Notice::Merged { region, inputs, result } => self.handle_merged(&region, &inputs, result),
            Notice::Compacted { region, inputs, result, history_from } => {
                self.handle_compacted(&region, inputs, result, history_from)
            }
            Notice::Purged { region, files } => self.handle_purged(&region, files),
            Notice::OutOfRange { region, wanted, start, end } => self.handle_out_of_range(&region, wanted, start, end),
            Notice::FlushUrgently { region, headroom_ms } => self.handle_flush_urgently(&region, headroom_ms),
            Notice::Fence { region } => self.handle_fence(&region),
            Notice::Quarantine { region, reason } => self.handle_quarantine(&region, reason, None),
        }
    }

    /// Whether this opening of the region is the one that is here: notices of an earlier one only end.
    fn is_current(&self, shared: &Arc<RegionShared>) -> bool {
        self.regions.get(&shared.id).is_some_and(|r| Arc::ptr_eq(&r.shared, shared))
    }

    fn current(&mut self, shared: &Arc<RegionShared>) -> Option<&mut OpenRegion> {
        self.regions.get_mut(&shared.id).filter(|r| Arc::ptr_eq(&r.shared, shared))
    }

    fn listener_reached(&self, point: Point, shared: &Arc<RegionShared>) {
        self.ctx.listener.reached(point, shared.id);
    }

    /// Readers see the batch from here on; then those who waited are answered.
    fn publish(&mut self) {
        for region in self.regions.values_mut().filter(|r| r.dirty) {
            region.publish();
        }
        self.release_held();
        for answer in std::mem::take(&mut self.answers) {
            let sent = match answer {
                Answer::Inserted(reply) => reply.send(Ok(Inserted::Done)).is_ok(),
                Answer::Removed(reply) => reply.send(()).is_ok(),
                Answer::Barrier(reply) => {
                    let readable = self.regions.values().filter(|r| r.state.is_readable());
                    reply.send(readable.map(|r| (r.shared.id, r.applied)).collect()).is_ok()
                }
            };
            if !sent {
                tracing::trace!("nobody waits for an answer any more");
            }
        }
    }

    /// Gives memory of flushed runs back once no reader holds them.
    fn release_held(&mut self) {
        let mut released = 0;
        self.held.retain(|(run, bytes)| {
            let gone = run.strong_count() == 0;
            released += if gone { *bytes } else { 0 };
            !gone
        });
        self.ctx.buffer.released(released);
    }
}
