//! From options to librdkafka clients, and the pool of clients that readers share.
//!
//! Owns: every option we set, which client a partition is read by, the thread that serves a client's events. Not here: reading itself (`reader`).

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::Duration,
};

use millstream_types::TopicPartition;
use rdkafka::{ClientConfig, admin::AdminClient, config::RDKafkaLogLevel};
use tokio::sync::Notify;

use crate::{
    KafkaError, KafkaOptions,
    context::{DeliveryContext, EventContext},
    options::{For, passed},
    sys::{FetchClient, SendClient},
};

pub(crate) type Admin = AdminClient<EventContext>;

/// PEM text goes in as text, anything else is a path.
fn pem_or_path(config: &mut ClientConfig, name: &str, value: &str) {
    let suffix = if value.contains("-----BEGIN") { "pem" } else { "location" };
    config.set(format!("{name}.{suffix}"), value);
}

/// What all clients share: addresses, security, defaults, then the user's options for this kind.
fn base(options: &KafkaOptions, kind: For) -> ClientConfig {
    let mut c = ClientConfig::new();
    c.set_log_level(RDKafkaLogLevel::Notice);
    c.set("bootstrap.servers", &options.bootstrap_servers)
        .set("client.id", &options.client_id)
        .set("allow.auto.create.topics", "false")
        .set("enable.metrics.push", "false")
        .set("socket.keepalive.enable", "true")
        // The library's 30 s hide a wrong topic name that long. A new topic is known by all brokers sooner: `create` waits for its leaders.
        .set("topic.metadata.propagation.max.ms", "5000");
    if let Some(rack) = &options.client_rack {
        c.set("client.rack", rack);
    }
    security(&mut c, options);
    for (name, value) in &options.passthrough {
        if passed(name).is_some_and(|k| k == For::Any || k == kind) {
            c.set(name, value);
        }
    }
    c
}

fn security(c: &mut ClientConfig, options: &KafkaOptions) {
    let s = &options.security;
    c.set("security.protocol", s.protocol.as_str());
    for (name, value) in [
        ("sasl.mechanism", s.sasl_mechanism.as_deref()),
        ("sasl.username", s.sasl_username.as_deref()),
        ("sasl.password", s.sasl_password.as_ref().map(|v| v.expose())),
        ("ssl.key.password", s.ssl_key_password.as_ref().map(|v| v.expose())),
    ] {
        if let Some(value) = value {
            c.set(name, value);
        }
    }
    if let Some(ca) = &s.ssl_ca {
        pem_or_path(c, "ssl.ca", ca);
    }
    if let Some(certificate) = &s.ssl_certificate {
        pem_or_path(c, "ssl.certificate", certificate);
    }
    if let Some(key) = &s.ssl_key {
        pem_or_path(c, "ssl.key", key.expose());
    }
    if !s.ssl_verify_hostname {
        c.set("ssl.endpoint.identification.algorithm", "none");
    }
}

fn set_default(c: &mut ClientConfig, options: &KafkaOptions, name: &str, value: &str) {
    if !options.passthrough.contains_key(name) {
        c.set(name, value);
    }
}

fn failed(options: &KafkaOptions) -> impl FnOnce(rdkafka::error::KafkaError) -> KafkaError {
    let connection = options.connection.clone();
    move |source| KafkaError::Client { connection, source }
}

fn named<T: Send + 'static>(
    options: &KafkaOptions,
    name: String,
    f: impl FnOnce() -> T + Send + 'static,
) -> Result<thread::JoinHandle<T>, KafkaError> {
    let connection = options.connection.clone();
    thread::Builder::new().name(name).spawn(f).map_err(|source| KafkaError::Thread { connection, source })
}

/// A client that fetches, and the thread that serves its log and error events as long as somebody holds it.
fn consumer(options: &KafkaOptions) -> Result<Arc<FetchClient>, KafkaError> {
    let mut c = base(options, For::Consumer);
    let bytes = options.partition_prefetch_bytes();
    c.set("enable.auto.commit", "false")
        .set("enable.auto.offset.store", "false")
        .set("isolation.level", if options.read_uncommitted { "read_uncommitted" } else { "read_committed" })
        .set("enable.partition.eof", "true")
        .set("auto.offset.reset", "error")
        .set("check.crcs", "true")
        .set("queued.max.messages.kbytes", (bytes >> 10).to_string())
        // Small records: the client's own overhead per record would exceed the bytes that the limit above counts.
        .set("queued.min.messages", (bytes / 256).clamp(4096, 100_000).to_string());
    set_default(&mut c, options, "fetch.wait.max.ms", "100");
    // The library's 1000 ms stall a fast reader each time its queue was full.
    set_default(&mut c, options, "fetch.queue.backoff.ms", "10");
    let client: FetchClient =
        c.create_with_context(EventContext::new(options.connection.as_str().into())).map_err(failed(options))?;
    let client = Arc::new(client);
    let weak = Arc::downgrade(&client);
    named(options, "kafka-events".into(), move || {
        while let Some(client) = weak.upgrade() {
            // Records have queues of their own; an error here has been seen by the context.
            drop(client.poll(Duration::from_millis(200)));
        }
    })?;
    Ok(client)
}

fn producer_base(options: &KafkaOptions) -> ClientConfig {
    let mut c = base(options, For::Producer);
    c.set("enable.idempotence", "true")
        .set("acks", "all")
        .set("max.in.flight.requests.per.connection", "5")
        // The largest record that any topic of ours may hold (WAL topics are created with 10 MiB); brokers check each topic's own limit.
        .set("message.max.bytes", (12 << 20).to_string());
    set_default(&mut c, options, "linger.ms", "5");
    set_default(&mut c, options, "compression.type", "lz4");
    set_default(&mut c, options, "queue.buffering.max.messages", "100000");
    set_default(&mut c, options, "queue.buffering.max.kbytes", "262144");
    c
}

pub(crate) fn idempotent(options: &KafkaOptions) -> Result<SendClient, KafkaError> {
    let mut c = producer_base(options);
    c.set("message.timeout.ms", options.commit_timeout.as_millis().max(1000).to_string());
    c.create_with_context(DeliveryContext::new(options.connection.as_str().into())).map_err(failed(options))
}

pub(crate) fn transactional(options: &KafkaOptions, id: &str, timeout: Duration) -> Result<SendClient, KafkaError> {
    let mut c = producer_base(options);
    c.set("transactional.id", id)
        .set("transaction.timeout.ms", timeout.as_millis().to_string())
        // Deliveries give up before the transaction does, so that there is time to abort.
        .set("message.timeout.ms", (timeout.as_millis() * 3 / 4).to_string());
    // The library's 60 s would be the whole transaction when one answer is lost.
    let socket = timeout.div_f32(4.0).min(Duration::from_secs(10)).as_millis().to_string();
    set_default(&mut c, options, "socket.timeout.ms", &socket);
    c.create_with_context(DeliveryContext::new(options.connection.as_str().into())).map_err(failed(options))
}

pub(crate) fn admin(options: &KafkaOptions) -> Result<Admin, KafkaError> {
    base(options, For::Any)
        .create_with_context(EventContext::new(options.connection.as_str().into()))
        .map_err(failed(options))
}

/// Clients that fetch, and which partition each has. A partition is fetched at most once by one client (librdkafka has one fetch state per
/// partition); a second reader of it gets another client.
#[derive(Debug)]
pub(crate) struct ReaderPool {
    options: KafkaOptions,
    clients: Mutex<Vec<PoolClient>>,
    released: Notify,
}

struct PoolClient {
    id: u64,
    client: Arc<FetchClient>,
    held: HashMap<TopicPartition, Held>,
}

impl std::fmt::Debug for PoolClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PoolClient").field("id", &self.id).field("held", &self.held).finish_non_exhaustive()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Held {
    Reading,
    /// The reader was dropped, its thread is about to stop the fetch.
    Closing,
}

/// A partition on a client; gives it back when dropped.
#[derive(Debug)]
pub(crate) struct Slot {
    pool: Arc<ReaderPool>,
    client_id: u64,
    partition: TopicPartition,
}

impl Slot {
    /// Tells that the partition will be free in a moment, so that a reader that is opened meanwhile waits for it.
    pub(crate) fn closing(pool: &ReaderPool, client_id: u64, partition: &TopicPartition) {
        if let Some(held) = pool.lock().iter_mut().find(|c| c.id == client_id).and_then(|c| c.held.get_mut(partition)) {
            *held = Held::Closing;
        }
    }

    pub(crate) fn client_id(&self) -> u64 {
        self.client_id
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let dropped = {
            let mut clients = self.pool.lock();
            let keep = self.pool.options.readers_per_connection;
            if let Some(c) = clients.iter_mut().find(|c| c.id == self.client_id) {
                c.held.remove(&self.partition);
            }
            // Extra clients were made because a partition was read twice; they go when idle.
            let extra = clients.iter().position(|c| c.held.is_empty()).filter(|_| clients.len() > keep);
            extra.map(|i| clients.swap_remove(i))
        };
        // Outside the lock: destroying a client joins its threads.
        drop(dropped);
        self.pool.released.notify_waiters();
    }
}

impl ReaderPool {
    pub(crate) fn new(options: KafkaOptions) -> Self {
        Self { options, clients: Mutex::default(), released: Notify::new() }
    }

    /// Makes the first client, so that a wrong option fails at connect and not at the first read.
    pub(crate) fn check(&self) -> Result<(), KafkaError> {
        self.add(&mut self.lock()).map(drop)
    }

    pub(crate) fn options(&self) -> &KafkaOptions {
        &self.options
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<PoolClient>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A client that does not fetch `partition` now. Waits up to a second for a reader that is just closing, then makes another client.
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        partition: &TopicPartition,
    ) -> Result<(Arc<FetchClient>, Slot), KafkaError> {
        // A closing reader waits for nothing but its client's thread, so the limit is never reached in practice.
        let deadline = tokio::time::Instant::now() + Duration::from_secs(1);
        loop {
            let released = self.released.notified();
            tokio::pin!(released);
            released.as_mut().enable();
            if let Some(found) = self.try_acquire(partition, tokio::time::Instant::now() >= deadline)? {
                return Ok(found);
            }
            // Either way the clients are looked at again.
            drop(tokio::time::timeout_at(deadline, released).await);
        }
    }

    /// `None` = worth waiting.
    fn try_acquire(
        self: &Arc<Self>,
        partition: &TopicPartition,
        give_up_waiting: bool,
    ) -> Result<Option<(Arc<FetchClient>, Slot)>, KafkaError> {
        let mut clients = self.lock();
        let free = clients
            .iter()
            .enumerate()
            .filter(|(_, c)| !c.held.contains_key(partition))
            .min_by_key(|(_, c)| c.held.len());
        let at = match free {
            Some((at, c)) if c.held.is_empty() || clients.len() >= self.options.readers_per_connection => at,
            // Room for another client: partitions are spread before they are stacked.
            _ if clients.len() < self.options.readers_per_connection => self.add(&mut clients)?,
            Some((at, _)) => at,
            None if !give_up_waiting && clients.iter().any(|c| c.held.get(partition) == Some(&Held::Closing)) => {
                return Ok(None);
            }
            None => self.add(&mut clients)?,
        };
        let c = &mut clients[at];
        c.held.insert(partition.clone(), Held::Reading);
        let slot = Slot { pool: Arc::clone(self), client_id: c.id, partition: partition.clone() };
        Ok(Some((Arc::clone(&c.client), slot)))
    }

    fn add(&self, clients: &mut Vec<PoolClient>) -> Result<usize, KafkaError> {
        let id = clients.iter().map(|c| c.id + 1).max().unwrap_or(0);
        clients.push(PoolClient { id, client: consumer(&self.options)?, held: HashMap::new() });
        Ok(clients.len() - 1)
    }
}
