//! Callbacks of librdkafka's threads: log lines to `tracing`, broker trouble to readers, delivery reports to the call they belong to.
//!
//! Owns: nothing that outlives a client. Not here: what a failure means for a transaction (`txn_writer`) or a read (`reader`).

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use rdkafka::{
    ClientContext, Message,
    config::RDKafkaLogLevel,
    consumer::ConsumerContext,
    error::{KafkaError as ClientError, RDKafkaErrorCode as Code},
    message::DeliveryResult,
    producer::ProducerContext,
};
use tokio::sync::oneshot;

use crate::{metrics, sys::Opaque};

fn forward_log(connection: &str, level: RDKafkaLogLevel, facility: &str, message: &str) {
    match level {
        // librdkafka copes with what it calls an error; a person is asked only by the state that the connection shows.
        RDKafkaLogLevel::Emerg
        | RDKafkaLogLevel::Alert
        | RDKafkaLogLevel::Critical
        | RDKafkaLogLevel::Error
        | RDKafkaLogLevel::Warning => {
            tracing::warn!(target: "librdkafka", connection, facility, "{message}");
        }
        RDKafkaLogLevel::Notice | RDKafkaLogLevel::Info => {
            tracing::info!(target: "librdkafka", connection, facility, "{message}")
        }
        RDKafkaLogLevel::Debug => tracing::debug!(target: "librdkafka", connection, facility, "{message}"),
    }
}

/// Whether brokers can be reached, as the client of a consumer last said. Readers compare `version` with what they have reported.
#[derive(Debug, Default)]
pub(crate) struct Trouble {
    down: AtomicBool,
    /// Counts changes from well to down.
    version: AtomicU64,
    last: Mutex<String>,
}

impl Trouble {
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    pub(crate) fn text(&self) -> String {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A broker answered a fetch.
    pub(crate) fn clear(&self) {
        if self.down.load(Ordering::Relaxed) {
            self.down.store(false, Ordering::Release);
        }
    }

    fn set(&self, text: String) -> bool {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = text;
        let new = !self.down.swap(true, Ordering::AcqRel);
        if new {
            self.version.fetch_add(1, Ordering::AcqRel);
        }
        new
    }
}

/// Context of consumers and of the admin client.
#[derive(Debug)]
pub(crate) struct EventContext {
    connection: Arc<str>,
    pub(crate) trouble: Trouble,
}

impl EventContext {
    pub(crate) fn new(connection: Arc<str>) -> Self {
        Self { connection, trouble: Trouble::default() }
    }
}

impl ClientContext for EventContext {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        forward_log(&self.connection, level, facility, message);
    }

    fn stats_raw(&self, _statistics: &[u8]) {}

    fn error(&self, error: ClientError, reason: &str) {
        // Single connections come and go (idle ones are closed by brokers); only these mean that nobody can be reached.
        let lasting = matches!(
            error.rdkafka_error_code(),
            Some(Code::AllBrokersDown | Code::Resolve | Code::Authentication | Code::SSL | Code::Fatal)
        );
        if lasting && self.trouble.set(format!("{error}: {reason}")) {
            metrics::BROKER_ERRORS.with_label_values(&[&self.connection]).inc();
            tracing::warn!(connection = %self.connection, %error, reason, "brokers cannot be reached, the client goes on trying");
        }
    }
}

impl ConsumerContext for EventContext {}

fn is_purge(code: Code) -> bool {
    matches!(code, Code::PurgeQueue | Code::PurgeInflight)
}

/// The delivery reports of one produce call or transaction.
#[derive(Debug, Default)]
pub(crate) struct Call {
    /// Offset of each record in the order of sending, -1 = not reported. Empty if nobody asked.
    pub(crate) offsets: Vec<i64>,
    /// Records handed to the client minus reports, once sealed.
    open: i64,
    sealed: bool,
    pub(crate) failures: usize,
    /// The first failure that is no consequence of another, with its place.
    pub(crate) failure: Option<(Code, String, i32)>,
    done: Option<oneshot::Sender<()>>,
}

impl Call {
    fn finish_if_complete(&mut self) {
        if self.sealed
            && self.open == 0
            && let Some(done) = self.done.take()
        {
            // The receiver is gone if its future was dropped; then nobody needs to know.
            done.send(()).unwrap_or(());
        }
    }
}

/// Context of producers. A record's opaque value is its call's id and its index in that call, so no record needs an allocation.
#[derive(Debug)]
pub(crate) struct DeliveryContext {
    connection: Arc<str>,
    /// Written by the thread that serves delivery reports and, at both ends of a call, by its owner. The lock is held for a few instructions.
    calls: Mutex<Calls>,
}

#[derive(Debug, Default)]
struct Calls {
    next: u32,
    open: HashMap<u32, Call>,
}

impl DeliveryContext {
    pub(crate) fn new(connection: Arc<str>) -> Self {
        Self { connection, calls: Mutex::default() }
    }

    /// Registers a call of `records` records. The receiver resolves when each record that was sent has its report, after [`Self::seal`].
    pub(crate) fn open(&self, records: usize, want_offsets: bool) -> (u32, oneshot::Receiver<()>) {
        let (done, wait) = oneshot::channel();
        let offsets = if want_offsets { vec![-1; records] } else { Vec::new() };
        let mut calls = self.lock();
        let id = calls.next;
        calls.next = calls.next.wrapping_add(1);
        calls.open.insert(id, Call { offsets, done: Some(done), ..Call::default() });
        (id, wait)
    }

    /// Says how many records were handed to the client.
    pub(crate) fn seal(&self, id: u32, sent: usize) {
        if let Some(call) = self.lock().open.get_mut(&id) {
            call.open += sent as i64;
            call.sealed = true;
            call.finish_if_complete();
        }
    }

    /// The first failure of a call so far.
    pub(crate) fn failure(&self, id: u32) -> Option<(Code, String, i32)> {
        self.lock().open.get(&id).and_then(|c| c.failure.clone())
    }

    /// Ends a call: later reports of it are dropped.
    pub(crate) fn close(&self, id: u32) -> Call {
        self.lock().open.remove(&id).unwrap_or_default()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClientContext for DeliveryContext {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        forward_log(&self.connection, level, facility, message);
    }

    fn stats_raw(&self, _statistics: &[u8]) {}

    fn error(&self, error: ClientError, reason: &str) {
        // Each call reports its own failure; this is only for the log.
        tracing::debug!(connection = %self.connection, %error, reason, "producer reports an error");
    }
}

impl ProducerContext for DeliveryContext {
    type DeliveryOpaque = Opaque;

    fn delivery(&self, result: &DeliveryResult<'_>, opaque: Opaque) {
        let mut calls = self.lock();
        let Some(call) = calls.open.get_mut(&opaque.call()) else { return };
        match result {
            Ok(message) => {
                if let Some(slot) = call.offsets.get_mut(opaque.index()) {
                    *slot = message.offset();
                }
            }
            Err((error, message)) => {
                call.failures += 1;
                let code = error.rdkafka_error_code().unwrap_or(Code::Unknown);
                // Purged records are a consequence: the record that made the client purge says more.
                if call.failure.as_ref().is_none_or(|(known, ..)| is_purge(*known) && !is_purge(code)) {
                    call.failure = Some((code, message.topic().to_owned(), message.partition()));
                }
            }
        }
        call.open -= 1;
        call.finish_if_complete();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trouble_is_counted_once_per_change() {
        let t = Trouble::default();
        assert!(t.set("down".into()));
        assert!(!t.set("still down".into()));
        assert_eq!((t.version(), t.text().as_str()), (1, "still down"));
        t.clear();
        assert!(t.set("down again".into()));
        assert_eq!(t.version(), 2);
    }

    #[test]
    fn a_call_without_records_is_complete_when_sealed() {
        let context = DeliveryContext::new("kafka".into());
        let (id, mut done) = context.open(0, true);
        assert!(done.try_recv().is_err());
        context.seal(id, 0);
        assert!(done.try_recv().is_ok());
        assert!(context.close(id).offsets.is_empty());
    }
}
