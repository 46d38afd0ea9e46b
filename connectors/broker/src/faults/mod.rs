//! Fault injection: what a test asks the broker to do wrong. Without the feature `faults` everything here is empty and costs nothing.
//!
//! `armed.rs` holds the rules and counts their hits; `socket.rs` lets another process add and clear them.

#[cfg(feature = "faults")]
mod armed;
#[cfg(feature = "faults")]
mod socket;

#[cfg(feature = "faults")]
pub use self::armed::{Action, Fault, FaultHandle, Filter, Hits, Mark};
#[cfg(feature = "faults")]
pub(crate) use self::{armed::Faults, socket::serve};

use std::io;

/// Whether writes fail as on a full disk. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct DiskFull {
    #[cfg(feature = "faults")]
    on: std::sync::Arc<std::sync::atomic::AtomicBool>,
}

impl DiskFull {
    #[cfg(feature = "faults")]
    pub(crate) fn set(&self, on: bool) {
        self.on.store(on, std::sync::atomic::Ordering::Relaxed);
    }

    pub(crate) fn check(&self) -> io::Result<()> {
        #[cfg(feature = "faults")]
        if self.on.load(std::sync::atomic::Ordering::Relaxed) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }
}

#[cfg(feature = "faults")]
/// What a request is about, for filters.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Subject<'a> {
    pub(crate) api: kafka_protocol::messages::ApiKey,
    pub(crate) client_id: &'a str,
    /// (topic, partition) that it names; for faults of whole requests only Produce and Fetch fill it.
    pub(crate) partitions: &'a [(String, i32)],
}

#[cfg(feature = "faults")]
/// What to do with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Before {
    Go,
    /// Close the connection without doing it.
    Drop,
    /// Answer with this error without doing it.
    Fail(i16),
}

#[cfg(feature = "faults")]
/// What to do with the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum After {
    Send,
    /// It was done; close the connection instead of saying so.
    Drop,
}

#[cfg(not(feature = "faults"))]
#[derive(Debug, Clone, Default)]
pub(crate) struct Faults;

#[cfg(not(feature = "faults"))]
#[expect(clippy::unused_async, reason = "same signatures as with the feature")]
impl Faults {
    pub(crate) async fn thawed(&self, _: &str, _: i32) {}
    pub(crate) fn is_frozen(&self, _: &str, _: i32) -> bool {
        false
    }
    pub(crate) fn markers_held(&self, _: &str) -> bool {
        false
    }
    pub(crate) fn is_hung(&self, _: &str) -> bool {
        false
    }
    pub(crate) fn wants_disconnect(&self, _: &str) -> bool {
        false
    }
}
