//! A partition as requests see it: its log behind a lock, and the fetches that wait for it to grow.

use std::{
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::sync::Notify;

use crate::log::Log;

#[derive(Debug)]
pub(crate) struct Partition {
    pub(crate) index: i32,
    pub(crate) dir: PathBuf,
    log: Mutex<Log>,
    /// Fetches that want to hear of the next change. Dead ones are swept when the list has doubled.
    waiters: Mutex<Vec<Weak<Notify>>>,
    /// The topic is gone; requests that still hold the partition must not bring files back.
    closed: AtomicBool,
}

impl Partition {
    pub(crate) fn new(index: i32, dir: PathBuf, log: Log) -> Self {
        Self { index, dir, log: Mutex::new(log), waiters: Mutex::default(), closed: AtomicBool::new(false) }
    }

    /// Held for single appends and look-ups, never across an await.
    pub(crate) fn log(&self) -> MutexGuard<'_, Log> {
        // A panic inside an append leaves a log that recovery would accept: offsets are set after the write.
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.wake();
    }

    /// `waiter` is told once, at the next change. Register first, then look.
    pub(crate) fn register(&self, waiter: &Arc<Notify>) {
        let mut waiters = self.waiters.lock().unwrap_or_else(PoisonError::into_inner);
        if waiters.len() == waiters.capacity() {
            waiters.retain(|w| w.strong_count() > 0);
        }
        // A fetch that another partition woke is still here.
        if !waiters.iter().any(|w| std::ptr::eq(w.as_ptr(), Arc::as_ptr(waiter))) {
            waiters.push(Arc::downgrade(waiter));
        }
    }

    /// End, last stable offset or log start have changed.
    pub(crate) fn wake(&self) {
        let waiters = std::mem::take(&mut *self.waiters.lock().unwrap_or_else(PoisonError::into_inner));
        for waiter in waiters.iter().filter_map(Weak::upgrade) {
            waiter.notify_one();
        }
    }
}
