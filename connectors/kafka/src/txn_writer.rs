//! The transactional producer of one job or shard: begin, send everything, commit, and what each answer means.
//!
//! Owns: the outcome classes of 05 section 1.8, when a client is dropped. Not here: what a caller does with an outcome, row content.
//!
//! | what happened | outcome |
//! |---|---|
//! | commit returns Ok | `Committed`; nothing else is |
//! | a retriable error of any call | the same call again, until 0.8 x the transaction timeout, then `Unknown` |
//! | send, delivery or flush failed, EndTxn was not sent | abort: `Aborted`; the abort fails: `Unknown` |
//! | any other error of commit, also one that asks for an abort | `Unknown`: the client may fail here while the broker has committed |
//! | fenced, at any step | `Fenced`. A transaction that the broker aborted because its time was up looks the same |
//!
//! After `Unknown` and `Fenced` the client is dropped without abort: a late EndTxn must not hit the next transaction. `init` makes a new one.
//!
//! Blocking calls run on one named thread per writer. Sending does not block (it copies into the client's queue) and runs on the caller.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use millstream_types::{CommitOutcome, EpochWriter, ErrorKind, LogError, OutBatch};
use rdkafka::{
    error::{KafkaError as ClientError, RDKafkaErrorCode as Code},
    producer::Producer,
    util::Timeout,
};

use crate::{
    KafkaCluster, client,
    context::Call,
    error::{code_of, kind_of},
    metrics,
    sys::{Opaque, SharedHeaders},
    txn_client::{TxnClient, WriterThread, discard},
};

/// How long `init` tries: coordinators load for seconds after a broker's start.
const INIT_DEADLINE: Duration = Duration::from_secs(30);
/// One wait for room in the client's queue, and one round of serving deliveries.
const ROOM_WAIT: Duration = Duration::from_millis(10);
/// A blocking call gets at least this, however late it is.
const LEAST_WAIT: Duration = Duration::from_millis(100);
/// Records sent before other tasks of the runtime get a turn: about half a millisecond.
const SEND_QUANTUM: usize = 2048;

pub(crate) struct TxnWriter {
    cluster: Arc<KafkaCluster>,
    id: String,
    thread: Option<WriterThread>,
    /// Shared with the thread, which serves its events between calls.
    client: Arc<Mutex<Option<Arc<TxnClient>>>>,
    /// A commit began and its future was dropped.
    in_flight: bool,
    /// The last transaction was aborted, perhaps by a broker that refused records.
    ///
    /// librdkafka then has a gap in its sequence numbers. It notices only when a broker refuses the next transaction for it, aborts that, and takes
    /// a new producer epoch: one more try is due.
    gap: bool,
}

impl std::fmt::Debug for TxnWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TxnWriter")
            .field("transactional_id", &self.id)
            .field("in_flight", &self.in_flight)
            .finish_non_exhaustive()
    }
}

impl Drop for TxnWriter {
    fn drop(&mut self) {
        self.drop_client();
    }
}

impl TxnWriter {
    pub(crate) fn new(cluster: Arc<KafkaCluster>, id: &str) -> Self {
        Self { cluster, id: id.to_owned(), thread: None, client: Arc::default(), in_flight: false, gap: false }
    }

    fn connection(&self) -> &str {
        &self.cluster.options().connection
    }

    fn current(&self) -> Option<Arc<TxnClient>> {
        self.client.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn drop_client(&self) {
        let old = self.client.lock().unwrap_or_else(PoisonError::into_inner).take();
        old.map(discard).unwrap_or_default();
    }

    fn error(&self, kind: ErrorKind, what: &str) -> LogError {
        LogError::new(kind, format!("transactional id {}: {what}", self.id))
    }

    /// Runs a blocking call on the writer's thread and takes its time.
    async fn call<T: Send + 'static>(
        &mut self,
        name: &str,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, LogError> {
        let gone = |w: &Self, e: Option<std::io::Error>| {
            let error = w.error(ErrorKind::Internal, "the writer's thread is gone");
            match e {
                Some(e) => error.caused_by(e),
                None => error,
            }
        };
        if self.thread.is_none() {
            let thread = WriterThread::start(&self.id, Arc::clone(&self.client)).map_err(|e| gone(self, Some(e)))?;
            self.thread = Some(thread);
        }
        let timer = metrics::TXN_CALL_SECONDS.with_label_values(&[self.connection(), name]).start_timer();
        let Some(thread) = &self.thread else { return Err(gone(self, None)) };
        let answer = thread.run(job).await;
        timer.observe_duration();
        if answer.is_none() {
            self.thread = None;
        }
        answer.ok_or_else(|| gone(self, None))
    }

    async fn transaction(&mut self, client: &Arc<TxnClient>, batches: &[OutBatch]) -> CommitOutcome {
        let begun = Instant::now();
        let c = Arc::clone(client);
        match self.call("begin", move || c.producer.begin_transaction()).await {
            Err(e) => return CommitOutcome::Unknown(e),
            // The client is in no state to begin: only a new one helps.
            Ok(Err(e)) => return self.fenced_or_unknown(client, "the transaction could not be begun", e),
            Ok(Ok(())) => {}
        }
        let records = batches.iter().map(OutBatch::len).sum();
        let want_offsets = batches.iter().any(|b| b.want_offsets);
        let (call, _) = client.producer.context().open(records, want_offsets);
        let sent = self.send_all(client, batches, call, begun).await;
        let (c, id) = (Arc::clone(client), self.id.clone());
        let job = move || {
            let outcome = match sent {
                Ok(()) => finish(&c, &id, call, begun),
                Err(failure) => abort(&c, &id, failure, begun),
            };
            (outcome, c.producer.context().close(call))
        };
        match self.call("commit", job).await {
            Err(e) => {
                client.producer.context().close(call);
                CommitOutcome::Unknown(e)
            }
            Ok((CommitOutcome::Committed { .. }, call)) => {
                CommitOutcome::Committed { offsets: per_batch(batches, call) }
            }
            Ok((other, _)) => other,
        }
    }

    fn fenced_or_unknown(&self, client: &TxnClient, what: &str, e: ClientError) -> CommitOutcome {
        if code_of(&e).is_some_and(|code| client.is_fenced(code)) {
            return CommitOutcome::Fenced(self.error(ErrorKind::Fenced, what).caused_by(e));
        }
        CommitOutcome::Unknown(self.error(ErrorKind::Unknown, what).caused_by(e))
    }

    /// Copies every record into the client's queue. Waits for room as long as the transaction has time.
    async fn send_all(
        &mut self,
        client: &Arc<TxnClient>,
        batches: &[OutBatch],
        call: u32,
        begun: Instant,
    ) -> Result<(), LogError> {
        let mut index = 0;
        for batch in batches {
            let refused = |code: Code, partition: i32| {
                LogError::new(kind_of(client.root(code)), "the client refuses a record")
                    .at(&millstream_types::TopicPartition::new(Arc::clone(&batch.topic), partition))
                    .caused_by(client.root(code))
            };
            let topic = client.topic(&batch.topic).map_err(|code| refused(code, -1))?;
            let headers = SharedHeaders::new(&batch.headers);
            let mut i = 0;
            while i < batch.len() {
                let partition = batch.partitions[i];
                let opaque = Opaque::new(call, index);
                match topic.send(
                    partition,
                    batch.timestamp_ms,
                    headers.as_ref(),
                    batch.keys.get(i),
                    batch.values.get(i),
                    opaque,
                ) {
                    Ok(()) => {
                        i += 1;
                        index += 1;
                        if i.is_multiple_of(SEND_QUANTUM) {
                            tokio::task::yield_now().await;
                        }
                    }
                    Err(Code::QueueFull) if begun.elapsed() < patience(client) => {
                        metrics::QUEUE_FULL_WAITS.with_label_values(&[self.connection()]).inc();
                        let c = Arc::clone(client);
                        self.call("send", move || c.serve(ROOM_WAIT)).await?;
                    }
                    Err(code) => return Err(refused(code, partition)),
                }
            }
        }
        Ok(())
    }
}

/// How long a transaction is worked at; the rest of its time is for the abort.
fn patience(client: &TxnClient) -> Duration {
    client.timeout * 4 / 5
}

fn txn_error(id: &str, kind: ErrorKind, what: &str, code: Code) -> LogError {
    LogError::new(kind, format!("transactional id {id}: {what}")).caused_by(code)
}

/// Flush, look at every delivery, commit. On the writer's thread.
fn finish(client: &TxnClient, id: &str, call: u32, begun: Instant) -> CommitOutcome {
    let context = client.producer.context();
    let flushed = client.flush(patience(client).saturating_sub(begun.elapsed()));
    // The reports so far; they are all there when the flush is done.
    if let Some((code, topic, partition)) = context.failure(call) {
        let root = client.root(code);
        let at = millstream_types::TopicPartition::new(topic, partition);
        return abort(
            client,
            id,
            LogError::new(kind_of(root), "a record was not delivered").at(&at).caused_by(root),
            begun,
        );
    }
    if let Err(e) = flushed {
        let code = code_of(&e).unwrap_or(Code::Unknown);
        return abort(
            client,
            id,
            txn_error(id, kind_of(client.root(code)), "records were not delivered in time", code),
            begun,
        );
    }
    loop {
        // Not `Never`: the header file says that means the remaining transaction time, but 2.12 then waits for ever on a silent broker. A
        // limit may leave the client's state behind the broker's, which does no harm: after it the client is dropped.
        match client.producer.commit_transaction(patience(client).saturating_sub(begun.elapsed()).max(LEAST_WAIT)) {
            Ok(()) => return CommitOutcome::Committed { offsets: Vec::new() },
            Err(ClientError::Flush(code)) => {
                return abort(
                    client,
                    id,
                    txn_error(id, kind_of(client.root(code)), "records were not delivered", code),
                    begun,
                );
            }
            Err(ClientError::Transaction(e)) if e.is_retriable() && begun.elapsed() < patience(client) => {
                client.serve(ROOM_WAIT);
            }
            Err(e) => {
                let code = code_of(&e).unwrap_or(Code::Unknown);
                if client.is_fenced(code) {
                    return CommitOutcome::Fenced(txn_error(
                        id,
                        ErrorKind::Fenced,
                        "fenced at commit",
                        client.root(code),
                    ));
                }
                return CommitOutcome::Unknown(txn_error(
                    id,
                    ErrorKind::Unknown,
                    "the commit has no clear answer",
                    code,
                ));
            }
        }
    }
}

/// Ends the transaction before EndTxn(commit) was sent. On the writer's thread.
///
/// The client's abort purges its queue, waits for what is in flight, and returns only when every report has been served: a second thread serves
/// them meanwhile. Purging here instead would leave gaps in the sequence numbers, and the next transaction would fail.
fn abort(client: &TxnClient, id: &str, why: LogError, begun: Instant) -> CommitOutcome {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                client.serve(ROOM_WAIT);
            }
        });
        let outcome = abort_served(client, id, why, begun);
        done.store(true, Ordering::Release);
        outcome
    })
}

fn abort_served(client: &TxnClient, id: &str, why: LogError, begun: Instant) -> CommitOutcome {
    let fenced = |why: LogError| {
        LogError::new(ErrorKind::Fenced, format!("transactional id {id}: fenced before commit")).caused_by(why)
    };
    loop {
        let error =
            match client.producer.abort_transaction(client.timeout.saturating_sub(begun.elapsed()).max(LEAST_WAIT)) {
                Ok(()) if why.kind == ErrorKind::Fenced => return CommitOutcome::Fenced(fenced(why)),
                Ok(()) => return CommitOutcome::Aborted(why),
                Err(e) => e,
            };
        if let ClientError::Transaction(e) = &error
            && e.is_retriable()
            && begun.elapsed() < client.timeout
        {
            thread::sleep(ROOM_WAIT);
            continue;
        }
        let code = code_of(&error).unwrap_or(Code::Unknown);
        if client.is_fenced(code) || why.kind == ErrorKind::Fenced {
            return CommitOutcome::Fenced(fenced(why));
        }
        let what = format!("transactional id {id}: the abort failed with {}", client.root(code));
        return CommitOutcome::Unknown(LogError::new(ErrorKind::Unknown, what).caused_by(why));
    }
}

/// The offsets of one call, cut into its batches.
fn per_batch(batches: &[OutBatch], call: Call) -> Vec<Vec<i64>> {
    let mut at = 0;
    batches
        .iter()
        .map(|b| {
            let range = at..at + b.len();
            at = range.end;
            if b.want_offsets { call.offsets[range].to_vec() } else { Vec::new() }
        })
        .collect()
}

#[async_trait]
impl EpochWriter for TxnWriter {
    fn transactional_id(&self) -> &str {
        &self.id
    }

    async fn init(&mut self) -> Result<(), LogError> {
        self.drop_client();
        self.in_flight = false;
        self.gap = false;
        let timeout = self.cluster.transaction_timeout().await?;
        let (cluster, id) = (Arc::clone(&self.cluster), self.id.clone());
        let client = self.call("init", move || init_client(&cluster, &id, timeout)).await??;
        *self.client.lock().unwrap_or_else(PoisonError::into_inner) = Some(client);
        Ok(())
    }

    async fn commit(&mut self, batches: &[OutBatch]) -> CommitOutcome {
        if std::mem::replace(&mut self.in_flight, true) {
            self.drop_client();
            self.in_flight = false;
            return CommitOutcome::Unknown(
                self.error(ErrorKind::Unknown, "an earlier commit was dropped while it ran"),
            );
        }
        let Some(client) = self.current() else {
            self.in_flight = false;
            return CommitOutcome::Unknown(self.error(ErrorKind::Unknown, "there is no client: init comes first"));
        };
        let mut outcome = self.transaction(&client, batches).await;
        if self.gap
            && let CommitOutcome::Aborted(error) = &outcome
            && error.kind == ErrorKind::Unavailable
        {
            tracing::debug!(transactional_id = %self.id, %error, "aborted again after an abort, sent once more");
            outcome = self.transaction(&client, batches).await;
        }
        self.gap = matches!(outcome, CommitOutcome::Aborted(_));
        drop(client);
        self.in_flight = false;
        let kind = match &outcome {
            CommitOutcome::Committed { .. } => "committed",
            CommitOutcome::Aborted(_) => "aborted",
            CommitOutcome::Fenced(_) => "fenced",
            CommitOutcome::Unknown(_) => "unknown",
        };
        metrics::TXN_OUTCOMES.with_label_values(&[self.connection(), kind]).inc();
        if matches!(outcome, CommitOutcome::Fenced(_) | CommitOutcome::Unknown(_)) {
            self.drop_client();
        }
        outcome
    }
}

/// New client, `init_transactions` until it is done, fatal, or [`INIT_DEADLINE`] is over.
fn init_client(cluster: &KafkaCluster, id: &str, mut timeout: Duration) -> Result<Arc<TxnClient>, LogError> {
    let deadline = Instant::now() + INIT_DEADLINE;
    let least = cluster.options().commit_timeout * 2;
    let new = |timeout| {
        let producer = client::transactional(cluster.options(), id, timeout)
            .map_err(|e| LogError::new(ErrorKind::Invalid, format!("transactional id {id}: no client")).caused_by(e))?;
        Ok::<_, LogError>(Arc::new(TxnClient::new(producer, timeout)))
    };
    let mut client = new(timeout)?;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let Err(error) = client.producer.init_transactions(Timeout::After(left.min(Duration::from_secs(5)))) else {
            return Ok(client);
        };
        client.producer.poll(Duration::from_millis(50));
        let code = client.root(code_of(&error).unwrap_or(Code::Unknown));
        if code == Code::InvalidTransactionTimeout && timeout / 2 >= least {
            timeout /= 2;
            tracing::warn!(
                transactional_id = id,
                timeout_ms = timeout.as_millis() as u64,
                "transaction timeout is above the broker's limit, halved"
            );
            client = new(timeout)?;
            continue;
        }
        let again = match &error {
            ClientError::Transaction(e) => e.is_retriable() && !e.is_fatal(),
            _ => false,
        } || code == Code::ConcurrentTransactions;
        if again && Instant::now() < deadline {
            continue;
        }
        let kind = if again { ErrorKind::Unavailable } else { kind_of(code) };
        let what =
            format!("transactional id {id}: transactions could not be initialised in {} s", INIT_DEADLINE.as_secs());
        return Err(LogError::new(kind, what).caused_by(error));
    }
}
