//! Time. Ages, intervals and epochs come through [`Clock`], so that a test can move time by hand.

use std::{
    fmt::Debug,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use async_trait::async_trait;
use tokio::sync::Notify;

#[async_trait]
pub trait Clock: Send + Sync + Debug {
    /// Wall time in Unix milliseconds. May step back; users clamp.
    fn now_ms(&self) -> u64;

    /// Returns after `duration` of this clock's time.
    async fn sleep(&self, duration: Duration);
}

#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

#[async_trait]
impl Clock for SystemClock {
    fn now_ms(&self) -> u64 {
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64)
    }

    async fn sleep(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
    }
}

/// A clock that moves only by [`ManualClock::advance`] and [`ManualClock::set`].
#[derive(Debug, Default)]
pub struct ManualClock {
    now_ms: AtomicU64,
    moved: Notify,
}

impl ManualClock {
    pub fn new(now_ms: u64) -> Self {
        Self { now_ms: AtomicU64::new(now_ms), moved: Notify::new() }
    }

    pub fn set(&self, now_ms: u64) {
        self.now_ms.store(now_ms, Ordering::SeqCst);
        self.moved.notify_waiters();
    }

    pub fn advance(&self, by: Duration) {
        self.set(self.now_ms() + by.as_millis() as u64);
    }
}

#[async_trait]
impl Clock for ManualClock {
    fn now_ms(&self) -> u64 {
        self.now_ms.load(Ordering::SeqCst)
    }

    async fn sleep(&self, duration: Duration) {
        let until = self.now_ms() + duration.as_millis() as u64;
        loop {
            let moved = self.moved.notified();
            tokio::pin!(moved);
            moved.as_mut().enable();
            if self.now_ms() >= until {
                return;
            }
            moved.await;
        }
    }
}
