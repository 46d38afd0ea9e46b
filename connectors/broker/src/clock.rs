//! The broker's clock: wall time in milliseconds, which a fault can move. Session timeouts use the same clock, so that a test can expire everything.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::{SystemTime, UNIX_EPOCH},
};

/// Clones share the shift.
#[derive(Debug, Clone, Default)]
pub(crate) struct Clock {
    shift_ms: Arc<AtomicI64>,
}

impl Clock {
    pub(crate) fn now_ms(&self) -> i64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        now.as_millis() as i64 + self.shift_ms.load(Ordering::Relaxed)
    }

    #[cfg(feature = "faults")]
    pub(crate) fn set_ms(&self, now_ms: i64) {
        self.shift_ms.store(0, Ordering::Relaxed);
        let shift = now_ms - self.now_ms();
        self.shift_ms.store(shift, Ordering::Relaxed);
    }
}
