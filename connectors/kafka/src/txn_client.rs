//! A client that sends, with the topics it knows, and the thread that runs its blocking calls.
//!
//! Owns: handles of topics, a flush that looks often, the code behind a fatal error, where a client is closed. Not here: what an outcome means
//! (`txn_writer`, `producer`).

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, mpsc},
    thread,
    time::{Duration, Instant},
};

use millstream_types::ErrorKind;
use rdkafka::{
    error::{KafkaError as ClientError, RDKafkaErrorCode as Code},
    producer::Producer,
};
use tokio::sync::oneshot;

use crate::{
    error::kind_of,
    sys::{SendClient, SendTopic},
};

/// A client and the topics it has sent to.
pub(crate) struct TxnClient {
    // Topics are dropped before their client.
    topics: Mutex<HashMap<Arc<str>, Arc<SendTopic>>>,
    pub(crate) producer: Arc<SendClient>,
    /// The transaction timeout in force.
    pub(crate) timeout: Duration,
}

impl TxnClient {
    pub(crate) fn new(producer: SendClient, timeout: Duration) -> Self {
        Self { topics: Mutex::default(), producer: Arc::new(producer), timeout }
    }

    pub(crate) fn topic(&self, topic: &Arc<str>) -> Result<Arc<SendTopic>, Code> {
        let mut topics = self.topics.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = topics.get(topic) {
            return Ok(Arc::clone(found));
        }
        let new = Arc::new(SendTopic::new(&self.producer, topic)?);
        topics.insert(Arc::clone(topic), Arc::clone(&new));
        Ok(new)
    }

    /// The code behind `Fatal`, which hides it.
    pub(crate) fn root(&self, code: Code) -> Code {
        match code {
            Code::Fatal => self.producer.client().fatal_error().map_or(code, |(root, _)| root),
            other => other,
        }
    }

    /// Serves what is there, then sleeps for `pause`.
    ///
    /// Not the wrapper's `poll(timeout)`: it waits in whole milliseconds and spins through the rest, so short time-outs in a loop cost a core, which
    /// starves a broker on the same machine until its answers time out.
    pub(crate) fn serve(&self, pause: Duration) {
        loop {
            let before = self.producer.in_flight_count();
            self.producer.poll(Duration::ZERO);
            if self.producer.in_flight_count() >= before {
                break;
            }
        }
        thread::sleep(pause);
    }

    /// Serves delivery reports until none is missing or the time is up. The wrapper's own flush looks only every 100 ms, which would be the
    /// duration of every small transaction.
    pub(crate) fn flush(&self, limit: Duration) -> Result<(), ClientError> {
        let deadline = Instant::now() + limit;
        let mut pause = Duration::from_millis(1);
        loop {
            match self.producer.flush(Duration::ZERO) {
                Err(ClientError::Flush(Code::OperationTimedOut)) if Instant::now() < deadline => self.serve(pause),
                done => return done,
            }
            pause = (pause * 5 / 4).min(Duration::from_millis(10));
        }
    }

    pub(crate) fn is_fenced(&self, code: Code) -> bool {
        kind_of(self.root(code)) == ErrorKind::Fenced
    }
}

/// Drops a client on a thread of its own: librdkafka joins its threads, which an async worker must not wait for.
pub(crate) fn discard(client: Arc<TxnClient>) {
    let spawned = thread::Builder::new().name("kafka-discard".into()).spawn(move || drop(client));
    if let Err(error) = spawned {
        // The closure, and the client with it, was dropped right here.
        tracing::warn!(%error, "no thread to close a producer, closed in place");
    }
}

type Job = Box<dyn FnOnce() + Send>;

/// Runs blocking calls one after the other; between them it serves the log and error events of the client.
pub(crate) struct WriterThread {
    jobs: mpsc::Sender<Job>,
}

impl WriterThread {
    pub(crate) fn start(id: &str, current: Arc<Mutex<Option<Arc<TxnClient>>>>) -> std::io::Result<Self> {
        // Bounded by use: the writer waits for each job before it gives the next.
        let (jobs, queue) = mpsc::channel::<Job>();
        thread::Builder::new().name(format!("kafka-txn-{id}")).spawn(move || {
            loop {
                match queue.recv_timeout(Duration::from_millis(500)) {
                    Ok(job) => job(),
                    Err(mpsc::RecvTimeoutError::Timeout) => {
                        let client = current.lock().unwrap_or_else(PoisonError::into_inner).clone();
                        if let Some(client) = client {
                            client.producer.poll(Duration::ZERO);
                        }
                    }
                    Err(mpsc::RecvTimeoutError::Disconnected) => break,
                }
            }
        })?;
        Ok(Self { jobs })
    }

    /// `None` if the thread is gone (a job panicked).
    pub(crate) async fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let (reply, answer) = oneshot::channel();
        // If nobody waits any more, the writer was dropped in between and the answer is of no use.
        self.jobs.send(Box::new(move || drop(reply.send(job())))).ok()?;
        answer.await.ok()
    }
}
