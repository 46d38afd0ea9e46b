//! Reads one partition from a position on: a named thread takes batches from the partition's queue and hands them over through a short channel.
//!
//! Owns: batching, the position (K1), what each error means for a reader. Not here: which client fetches (`client`), C calls (`sys`).
//!
//! **Position** is the highest of: after the last record, the offset inside an end event, and the client's own position, which moves over control
//! records. It is looked at after every poll, empty ones included. Aborted and compacted offsets at the tail are covered by the end event. The client
//! counts an event at offset x as if it were a record and says x + 1; so its word is taken only when it is beyond every event so far plus one.
//!
//! **Back-pressure**: the channel holds [`HANDED_OVER`] batches. When it is full the thread waits, the queue fills up to its limit, and the client
//! stops fetching this partition alone.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use bytes::Bytes;
use millstream_types::{BinaryArena, ErrorKind, LogError, LogEvent, LogReader, Offset, RawBatch, TopicPartition};
use rdkafka::{consumer::Consumer, error::RDKafkaErrorCode as Code};
use tokio::sync::mpsc;

use crate::{
    client::{ReaderPool, Slot},
    context::EventContext,
    error::{code_failed, kind_of},
    metrics,
    sys::{self, FetchClient, FetchQueue, Fetched, MAX_POLL, PartitionFetch, Record, Spec},
};

/// Batches between the thread and its user: enough to hide a scheduling gap, small beside the client's own queue.
const HANDED_OVER: usize = 4;
/// A batch is handed over when it has so many bytes, even if a poll has more.
const BATCH_BYTES: usize = 1 << 20;
/// How long a batch that is not full may wait for more.
const LINGER: Duration = Duration::from_millis(10);
/// Limit of one wait of an idle reader; only bounds how late a moved position or broker trouble is seen, dropping wakes it.
const IDLE_WAIT: Duration = Duration::from_millis(250);
/// An existing partition gives its first record or end sooner, unless brokers are slow.
const FIRST_LOOK: Duration = Duration::from_secs(1);
const LATER_LOOK: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct KafkaReader {
    partition: TopicPartition,
    events: mpsc::Receiver<LogEvent>,
    stop: Arc<Stop>,
    /// The last event was final: nothing follows.
    ended: bool,
}

/// How a reader reaches its thread, and how both reach the pool.
struct Stop {
    asked: AtomicBool,
    queue: Arc<FetchQueue>,
    pool: Arc<ReaderPool>,
    client_id: u64,
}

impl std::fmt::Debug for Stop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stop").field("asked", &self.asked).field("client_id", &self.client_id).finish_non_exhaustive()
    }
}

impl KafkaReader {
    /// Returns when the thread runs; no broker is awaited.
    pub(crate) async fn open(
        pool: &Arc<ReaderPool>,
        partition: &TopicPartition,
        from: Offset,
    ) -> Result<Self, LogError> {
        let unavailable = |e: crate::KafkaError| {
            LogError::new(ErrorKind::Unavailable, "a reader's client could not be made").at(partition).caused_by(e)
        };
        let (client, slot) = pool.acquire(partition).await.map_err(unavailable)?;
        let fetch = PartitionFetch::start(&client, &partition.topic, partition.partition, from.0).map_err(|code| {
            code_failed(format!("the fetch from offset {from} could not be started"), code).at(partition)
        })?;
        let stop = Arc::new(Stop {
            asked: AtomicBool::new(false),
            queue: fetch.queue(),
            pool: Arc::clone(pool),
            client_id: slot.client_id(),
        });
        let (events, receiver) = mpsc::channel(HANDED_OVER);
        let seen_trouble = client.context_trouble();
        let worker = Worker {
            partition: partition.clone(),
            connection: pool.options().connection.as_str().into(),
            request_timeout: pool.options().request_timeout,
            next: from.0,
            distrust: i64::MIN,
            seen_trouble,
            look: Some((Instant::now() + FIRST_LOOK, 0)),
            last_error: None,
            batch_hint: (0, 0, 0),
            events,
            stop: Arc::clone(&stop),
            fetch: Some(fetch),
            client,
            slot,
        };
        thread::Builder::new()
            .name(format!("kafka-read-{}", partition.partition))
            .spawn(move || worker.run())
            .map_err(|e| LogError::new(ErrorKind::Exhausted, "a reader got no thread").at(partition).caused_by(e))?;
        Ok(Self { partition: partition.clone(), events: receiver, stop, ended: false })
    }
}

#[async_trait]
impl LogReader for KafkaReader {
    /// After a final event (`OutOfRange`, or `Failed` with a kind other than `Unavailable`) it never returns: open another reader.
    async fn next(&mut self) -> LogEvent {
        match self.events.recv().await {
            Some(event) => {
                self.ended = is_final(&event);
                event
            }
            None if self.ended => std::future::pending().await,
            None => {
                self.ended = true;
                LogEvent::Failed(LogError::new(ErrorKind::Internal, "the reader's thread is gone").at(&self.partition))
            }
        }
    }
}

impl Drop for KafkaReader {
    fn drop(&mut self) {
        // The receiver is dropped after this and frees a thread that waits in the channel.
        Slot::closing(&self.stop.pool, self.stop.client_id, &self.partition);
        self.stop.asked.store(true, Ordering::Release);
        self.stop.queue.wake();
    }
}

fn is_final(event: &LogEvent) -> bool {
    match event {
        LogEvent::OutOfRange { .. } => true,
        LogEvent::Failed(e) => e.kind != ErrorKind::Unavailable,
        LogEvent::Records(_) | LogEvent::Position { .. } | LogEvent::EndReached { .. } => false,
    }
}

/// Reach of the context through the wrapper's type.
trait Context {
    fn events(&self) -> &EventContext;
    fn context_trouble(&self) -> u64 {
        self.events().trouble.version()
    }
}

impl Context for FetchClient {
    fn events(&self) -> &EventContext {
        self.client().context()
    }
}

/// The reader's thread. Fields are dropped in order: the fetch is stopped before the slot says that the partition is free.
struct Worker {
    partition: TopicPartition,
    connection: Arc<str>,
    request_timeout: Duration,
    /// Position as the user knows it.
    next: i64,
    /// The client's own position is believed only above this.
    distrust: i64,
    seen_trouble: u64,
    /// When the topic is looked for next, until the first record or end proves that it is there.
    ///
    /// A client whose metadata never had the topic reports nothing at all.
    look: Option<(Instant, u32)>,
    /// Partition errors are reported once per change.
    last_error: Option<Code>,
    /// Records, key bytes and value bytes of the last batch: the next one is likely as large.
    batch_hint: (usize, usize, usize),
    events: mpsc::Sender<LogEvent>,
    stop: Arc<Stop>,
    /// `None` only while it is started again.
    fetch: Option<PartitionFetch>,
    client: Arc<FetchClient>,
    #[expect(dead_code, reason = "held for its drop")]
    slot: Slot,
}

/// What a poll found besides records, in order.
enum Found {
    Batch(RawBatch),
    End(i64),
    Error(Code, i64, String),
}

/// The user is gone, or the last event was final.
struct Stopped;

impl Worker {
    fn run(mut self) {
        while !self.stop.asked.load(Ordering::Acquire) && !self.events.is_closed() {
            if self.step().is_err() {
                break;
            }
        }
    }

    fn step(&mut self) -> Result<(), Stopped> {
        let found = self.poll();
        let quiet = found.is_empty();
        for one in found {
            match one {
                Found::Batch(batch) => self.records(batch)?,
                Found::End(offset) => self.end(offset)?,
                Found::Error(code, offset, text) => self.error(code, offset, text)?,
            }
        }
        if quiet {
            self.client_position()?;
            self.look_for_topic()?;
        }
        let version = self.client.context_trouble();
        if version != self.seen_trouble {
            self.seen_trouble = version;
            let text = self.client.events().trouble.text();
            self.send(LogEvent::Failed(
                LogError::new(ErrorKind::Unavailable, "no broker can be reached, the reader goes on by itself")
                    .at(&self.partition)
                    .caused_by(text),
            ))?;
        }
        Ok(())
    }

    /// One poll of the queue, cut into batches. The last batch gets the position that the client reached.
    fn poll(&mut self) -> Vec<Found> {
        let Some(mut fetch) = self.fetch.take() else { return Vec::new() };
        let mut found = Vec::new();
        let mut batch = Building::default();
        let mut distrust = self.distrust;
        fetch.poll(IDLE_WAIT, LINGER, &mut |fetched| match fetched {
            Fetched::Record(record) => {
                let open = batch.open.get_or_insert_with(|| self.new_batch());
                if push(open, &record) >= BATCH_BYTES || open.len() >= MAX_POLL {
                    found.extend(batch.take());
                }
            }
            Fetched::End { offset } => {
                found.extend(batch.take());
                distrust = distrust.max(offset + 1);
                found.push(Found::End(offset));
            }
            Fetched::Error { code, offset, text } => {
                found.extend(batch.take());
                distrust = distrust.max(offset + 1);
                found.push(Found::Error(code, offset, text));
            }
        });
        self.distrust = distrust;
        if let Some(mut last) = batch.open {
            if let Some(p) = fetch.position().filter(|p| *p > distrust) {
                last.next = last.next.max(Offset(p));
            }
            found.push(Found::Batch(last));
        }
        self.fetch = Some(fetch);
        found
    }

    fn new_batch(&self) -> RawBatch {
        let (records, keys, values) = self.batch_hint;
        let mut batch = RawBatch::new(self.partition.clone(), Offset(self.next));
        batch.offsets.reserve(records);
        batch.timestamps.reserve(records);
        batch.keys = BinaryArena::with_capacity(records, keys);
        batch.values = BinaryArena::with_capacity(records, values);
        batch
    }

    fn records(&mut self, batch: RawBatch) -> Result<(), Stopped> {
        self.well();
        let bytes = batch.size_bytes();
        self.batch_hint = (batch.len(), batch.keys.size_bytes(), batch.values.size_bytes());
        self.next = batch.next.0;
        metrics::RECORDS_READ.with_label_values(&[&self.connection]).inc_by(batch.len() as u64);
        metrics::BYTES_READ.with_label_values(&[&self.connection]).inc_by(bytes as u64);
        self.send(LogEvent::Records(batch))
    }

    fn end(&mut self, offset: i64) -> Result<(), Stopped> {
        self.well();
        self.moved_to(offset)?;
        self.send(LogEvent::EndReached { end: Offset(offset) })
    }

    /// The client passed control records that no batch or end event told of.
    fn client_position(&mut self) -> Result<(), Stopped> {
        match self.fetch.as_ref().and_then(PartitionFetch::position).filter(|p| *p > self.distrust) {
            Some(p) => self.moved_to(p),
            None => Ok(()),
        }
    }

    fn moved_to(&mut self, position: i64) -> Result<(), Stopped> {
        if position <= self.next {
            return Ok(());
        }
        self.next = position;
        metrics::POSITION_ONLY_MOVES.with_label_values(&[&self.connection]).inc();
        self.send(LogEvent::Position { next: Offset(position) })
    }

    fn error(&mut self, code: Code, offset: i64, text: String) -> Result<(), Stopped> {
        match code {
            Code::AutoOffsetReset | Code::OffsetOutOfRange | Code::LogTruncation => self.out_of_range(offset),
            Code::UnknownTopic | Code::UnknownTopicOrPartition | Code::UnknownPartition => self.missing(code, text),
            _ => self.trouble(code, offset, text),
        }
    }

    /// Reports an error once per change. A final kind ends the reader.
    fn trouble(&mut self, code: Code, offset: i64, text: String) -> Result<(), Stopped> {
        let kind = kind_of(code);
        if self.last_error.replace(code) != Some(code) {
            let error = LogError::new(kind, format!("the fetch at offset {offset} failed: {text}"))
                .at(&self.partition)
                .caused_by(code);
            self.send(LogEvent::Failed(error))?;
        }
        if kind == ErrorKind::Unavailable { Ok(()) } else { Err(Stopped) }
    }

    /// Says `NotFound` when two looks in a row do: one alone may have asked a broker that had not heard of a new topic yet.
    fn look_for_topic(&mut self) -> Result<(), Stopped> {
        let Some((_, misses)) = self.look.filter(|(at, _)| Instant::now() >= *at) else { return Ok(()) };
        let misses = match self.exists() {
            Ok(false) if misses > 0 => {
                return self.missing(Code::UnknownTopicOrPartition, "two looks did not find it".into());
            }
            Ok(false) => misses + 1,
            Ok(true) | Err(_) => 0,
        };
        self.look = Some((Instant::now() + if misses > 0 { FIRST_LOOK } else { LATER_LOOK }, misses));
        Ok(())
    }

    /// The client gave up this position. Is it really outside the log? The log start may have moved past us, or only a leader was confused.
    fn out_of_range(&mut self, wanted: i64) -> Result<(), Stopped> {
        let wanted = if wanted >= 0 { wanted } else { self.next };
        loop {
            match self.list(&[Spec::Start, Spec::HighWatermark]) {
                Ok(ends) if wanted < ends[0] || wanted > ends[1] => {
                    self.send(LogEvent::OutOfRange {
                        wanted: Offset(wanted),
                        start: Offset(ends[0]),
                        end: Offset(ends[1]),
                    })?;
                    return Err(Stopped);
                }
                Ok(_) => return self.restart(),
                Err(code) => {
                    self.trouble(code, wanted, "its offsets cannot be listed".into())?;
                    self.pause()?;
                }
            }
        }
    }

    /// The client says that there is no such topic or partition: true only if a fresh look says so too.
    fn missing(&mut self, code: Code, text: String) -> Result<(), Stopped> {
        match self.exists() {
            Ok(true) => self.restart(),
            Ok(false) => {
                let error = LogError::new(ErrorKind::NotFound, format!("there is no such topic or partition: {text}"))
                    .at(&self.partition);
                self.send(LogEvent::Failed(error.caused_by(code)))?;
                Err(Stopped)
            }
            Err(now) => self.trouble(now, self.next, text),
        }
    }

    /// Whether the cluster knows this partition now.
    fn exists(&self) -> Result<bool, Code> {
        let found = sys::describe_topic(self.client.client().into(), &self.partition.topic, self.request_timeout)?;
        Ok(found.is_some_and(|(_, partitions)| (self.partition.partition as usize) < partitions))
    }

    fn list(&self, specs: &[Spec]) -> Result<Vec<i64>, Code> {
        let answer = sys::list_offsets(
            self.client.client().into(),
            &self.partition.topic,
            &[self.partition.partition],
            specs,
            self.request_timeout,
        )?;
        Ok(answer.into_iter().map(|per_partition| per_partition[0]).collect())
    }

    /// Fetches anew at the position: the old fetch has ended inside the client.
    fn restart(&mut self) -> Result<(), Stopped> {
        self.pause()?;
        tracing::info!(partition = %self.partition, position = self.next, "fetch is started again");
        self.fetch = None;
        self.distrust = i64::MIN;
        match PartitionFetch::start(&self.client, &self.partition.topic, self.partition.partition, self.next) {
            Ok(fetch) => {
                // The wake-up of a drop goes to the old queue: then the new one is left after an idle wait.
                self.fetch = Some(fetch);
                Ok(())
            }
            Err(code) => {
                self.send(LogEvent::Failed(
                    LogError::new(ErrorKind::Internal, "the fetch could not be started again")
                        .at(&self.partition)
                        .caused_by(code),
                ))?;
                Err(Stopped)
            }
        }
    }

    /// Between two attempts.
    fn pause(&self) -> Result<(), Stopped> {
        thread::sleep(Duration::from_millis(100));
        if self.stop.asked.load(Ordering::Acquire) { Err(Stopped) } else { Ok(()) }
    }

    /// A broker answered: the next trouble is a new one.
    fn well(&mut self) {
        self.look = None;
        self.last_error = None;
        self.client.events().trouble.clear();
    }

    fn send(&self, event: LogEvent) -> Result<(), Stopped> {
        self.events.blocking_send(event).map_err(|_| Stopped)
    }
}

#[derive(Default)]
struct Building {
    open: Option<RawBatch>,
}

impl Building {
    fn take(&mut self) -> Option<Found> {
        self.open.take().map(Found::Batch)
    }
}

/// Appends a record; returns the bytes of the batch.
fn push(batch: &mut RawBatch, record: &Record<'_>) -> usize {
    let offset = record.offset();
    if let Some(headers) = record.headers() {
        // Records before the first with headers have none.
        batch.headers.resize_with(batch.offsets.len(), Vec::new);
        batch.headers.push(headers);
    } else if !batch.headers.is_empty() {
        batch.headers.push(Vec::<(String, Option<Bytes>)>::new());
    }
    batch.offsets.push(offset);
    batch.timestamps.push(record.timestamp_ms());
    batch.keys.push(record.key());
    batch.values.push(record.value());
    batch.next = Offset::after(offset);
    batch.size_bytes()
}
