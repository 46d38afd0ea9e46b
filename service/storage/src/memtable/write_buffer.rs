//! One memory budget for the memtables of all regions of the process: who must flush, who must wait, who is refused.
//!
//! Owns: the counters and the pure decisions over them. Not here: flushing and parking (`worker`). Wake-ups are hints: whoever waits reads the usage again.
//!
//! | limit | flush at | wait at | go on below | refuse at |
//! |---|---|---|---|---|
//! | region, B | mutable >= B | all memtables >= 2 B, or too many frozen | 2 B | with parked >= 3 B |
//! | process, G | mutable >= G/2 or used >= 0.7 G, biggest first | used >= G | 0.9 G | used + parked >= 1.25 G |

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::sync::watch;

/// What the counters say about the process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Memtables that still take rows.
    pub mutable: usize,
    /// Memtables that are being flushed.
    pub frozen: usize,
    /// Flushed runs that some reader still holds.
    pub held: usize,
    /// Rows that wait in region queues.
    pub parked: usize,
}

impl Usage {
    pub fn used(&self) -> usize {
        self.mutable + self.frozen + self.held
    }
}

/// What a region should do with a row that has come for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    Take,
    Park,
    Reject,
}

/// Pure part: thresholds over numbers.
#[derive(Debug, Clone, Copy)]
pub struct Thresholds {
    pub process: usize,
    pub region: usize,
    pub max_frozen: usize,
}

impl Thresholds {
    /// Whether the process must flush its biggest regions.
    pub fn engine_full(&self, usage: &Usage) -> bool {
        // What is being flushed already will be freed: freezing more for it would only make small files. Mutable bytes alone decide at one half.
        usage.mutable >= self.process / 2 || (usage.used() >= self.process / 10 * 7 && usage.mutable > usage.used() / 2)
    }

    pub fn stalls(&self, usage: &Usage, stalled_before: bool) -> bool {
        let limit = if stalled_before { self.process / 10 * 9 } else { self.process };
        usage.used() >= limit
    }

    pub fn region_stalls(&self, region_bytes: usize, frozen: usize) -> bool {
        region_bytes >= self.region * 2 || frozen >= self.max_frozen
    }

    /// For a client write of `bytes`; committed rows and topic rows are never rejected.
    pub fn admit(
        &self,
        usage: &Usage,
        stalled: bool,
        region_bytes: usize,
        region_parked: usize,
        frozen: usize,
        bytes: usize,
    ) -> Admission {
        let refuse_process = self.process + self.process / 4;
        if usage.used() + usage.parked + bytes >= refuse_process && usage.used() + usage.parked > 0 {
            return Admission::Reject;
        }
        if region_bytes + region_parked + bytes >= self.region * 3 && region_bytes + region_parked > 0 {
            return Admission::Reject;
        }
        if stalled || region_parked > 0 || self.region_stalls(region_bytes, frozen) {
            Admission::Park
        } else {
            Admission::Take
        }
    }
}

/// Shared by all workers: each adds and takes only what its own regions hold.
#[derive(Debug)]
pub struct WriteBuffer {
    thresholds: Thresholds,
    mutable: AtomicUsize,
    frozen: AtomicUsize,
    held: AtomicUsize,
    parked: AtomicUsize,
    parked_requests: AtomicUsize,
    frozen_memtables: AtomicUsize,
    /// Remembers the stall for the lower release limit. Written by whoever asks; a race only moves the limit by a tenth for one question.
    stalled: AtomicBool,
    /// Biggest mutable memtable of each worker, so that the biggest of the process is flushed, not the biggest of whoever looks first.
    biggest: Box<[AtomicUsize]>,
    /// Bumped when memory was freed.
    freed: watch::Sender<u64>,
}

impl WriteBuffer {
    pub fn new(thresholds: Thresholds, workers: usize) -> Self {
        Self {
            thresholds,
            mutable: AtomicUsize::new(0),
            frozen: AtomicUsize::new(0),
            held: AtomicUsize::new(0),
            parked: AtomicUsize::new(0),
            parked_requests: AtomicUsize::new(0),
            frozen_memtables: AtomicUsize::new(0),
            stalled: AtomicBool::new(false),
            biggest: (0..workers).map(|_| AtomicUsize::new(0)).collect(),
            freed: watch::channel(0).0,
        }
    }

    pub fn thresholds(&self) -> Thresholds {
        self.thresholds
    }

    pub fn usage(&self) -> Usage {
        Usage {
            mutable: self.mutable.load(Ordering::SeqCst),
            frozen: self.frozen.load(Ordering::SeqCst),
            held: self.held.load(Ordering::SeqCst),
            parked: self.parked.load(Ordering::SeqCst),
        }
    }

    /// Requests that wait and memtables that are being flushed, for the gauges.
    pub fn queues(&self) -> (usize, usize) {
        (self.parked_requests.load(Ordering::SeqCst), self.frozen_memtables.load(Ordering::SeqCst))
    }

    /// Whether ingestion waits now.
    pub fn stalled(&self) -> bool {
        let now = self.thresholds.stalls(&self.usage(), self.stalled.load(Ordering::SeqCst));
        self.stalled.store(now, Ordering::SeqCst);
        now
    }

    pub fn engine_full(&self) -> bool {
        self.thresholds.engine_full(&self.usage())
    }

    /// Notes the biggest mutable memtable of a worker; whether it is the biggest of all.
    pub fn is_biggest(&self, worker: usize, bytes: usize) -> bool {
        self.biggest[worker].store(bytes, Ordering::SeqCst);
        bytes > 0 && self.biggest.iter().all(|b| b.load(Ordering::SeqCst) <= bytes)
    }

    pub fn insert(&self, bytes: usize) {
        self.mutable.fetch_add(bytes, Ordering::SeqCst);
    }

    /// A merge of runs changed the size of a mutable memtable.
    pub fn resize(&self, before: usize, after: usize) {
        self.mutable.fetch_add(after, Ordering::SeqCst);
        self.mutable.fetch_sub(before, Ordering::SeqCst);
    }

    pub fn freeze(&self, bytes: usize) {
        self.frozen_memtables.fetch_add(1, Ordering::SeqCst);
        self.frozen.fetch_add(bytes, Ordering::SeqCst);
        self.mutable.fetch_sub(bytes, Ordering::SeqCst);
    }

    /// A frozen memtable left its region; `held` of its bytes are still seen by readers.
    pub fn flushed(&self, bytes: usize, held: usize) {
        self.frozen_memtables.fetch_sub(1, Ordering::SeqCst);
        self.held.fetch_add(held, Ordering::SeqCst);
        self.frozen.fetch_sub(bytes, Ordering::SeqCst);
        self.notify();
    }

    /// A mutable memtable was dropped with its region.
    pub fn dropped(&self, bytes: usize) {
        self.mutable.fetch_sub(bytes, Ordering::SeqCst);
        self.notify();
    }

    pub fn released(&self, held: usize) {
        if held > 0 {
            self.held.fetch_sub(held, Ordering::SeqCst);
            self.notify();
        }
    }

    pub fn park(&self, bytes: usize) {
        self.parked_requests.fetch_add(1, Ordering::SeqCst);
        self.parked.fetch_add(bytes, Ordering::SeqCst);
    }

    pub fn unpark(&self, bytes: usize) {
        self.parked_requests.fetch_sub(1, Ordering::SeqCst);
        self.parked.fetch_sub(bytes, Ordering::SeqCst);
    }

    /// Wakes all workers: one of them may go on or must flush.
    pub fn notify(&self) {
        self.freed.send_modify(|n| *n = n.wrapping_add(1));
    }

    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.freed.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(mutable: usize, frozen: usize, parked: usize) -> Usage {
        Usage { mutable, frozen, held: 0, parked }
    }

    #[test]
    fn thresholds_table() {
        let t = Thresholds { process: 1000, region: 100, max_frozen: 4 };
        assert!(!t.engine_full(&usage(499, 0, 0)) && t.engine_full(&usage(500, 0, 0)));
        assert!(t.engine_full(&usage(400, 300, 0)) && !t.engine_full(&usage(100, 800, 0)));
        assert!(!t.stalls(&usage(0, 999, 0), false) && t.stalls(&usage(0, 1000, 0), false));
        assert!(t.stalls(&usage(0, 900, 0), true) && !t.stalls(&usage(0, 899, 0), true));
        assert!(t.region_stalls(200, 0) && t.region_stalls(0, 4) && !t.region_stalls(199, 3));
        assert_eq!(t.admit(&usage(10, 0, 0), false, 10, 0, 0, 5), Admission::Take);
        assert_eq!(t.admit(&usage(10, 0, 0), true, 10, 0, 0, 5), Admission::Park);
        assert_eq!(t.admit(&usage(10, 0, 5), false, 10, 5, 0, 5), Admission::Park, "behind a parked one");
        assert_eq!(t.admit(&usage(200, 0, 0), false, 200, 0, 0, 5), Admission::Park);
        assert_eq!(t.admit(&usage(200, 0, 95), false, 200, 95, 0, 5), Admission::Reject);
        assert_eq!(t.admit(&usage(1000, 0, 245), true, 10, 0, 0, 5), Admission::Reject);
        assert_eq!(
            t.admit(&usage(0, 0, 0), false, 0, 0, 0, 5000),
            Admission::Take,
            "a single huge write is taken when nothing else is there"
        );
    }

    #[test]
    fn used_returns_to_zero() {
        let b = WriteBuffer::new(Thresholds { process: 1000, region: 100, max_frozen: 4 }, 1);
        b.insert(70);
        b.resize(70, 60);
        b.freeze(60);
        b.flushed(60, 20);
        assert_eq!(b.usage().used(), 20);
        b.released(20);
        assert_eq!(b.usage(), Usage::default());
    }
}
