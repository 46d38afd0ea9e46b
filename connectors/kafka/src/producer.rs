//! The idempotent producer: INSERT into topic-fed tables, `topic produce`, generators.
//!
//! Owns: one client for all callers, a thread that serves its delivery reports, which failures are known to have written nothing.

use std::{
    sync::{Arc, PoisonError, Weak},
    thread,
    time::Duration,
};

use async_trait::async_trait;
use millstream_types::{ErrorKind, LogError, OutBatch, Producer, TopicPartition};
use rdkafka::{error::RDKafkaErrorCode as Code, producer::Producer as _};

use crate::{
    KafkaCluster, KafkaError, client,
    error::kind_of,
    metrics,
    sys::{Opaque, SharedHeaders},
    txn_client::{TxnClient, discard},
};

#[derive(Debug)]
pub(crate) struct IdempotentProducer {
    pub(crate) cluster: Arc<KafkaCluster>,
}

/// The client and its thread are made by the first call.
pub(crate) type SharedClient = std::sync::Mutex<Option<Arc<TxnClient>>>;

fn serve(client: &Weak<TxnClient>) {
    while let Some(client) = client.upgrade() {
        client.producer.poll(Duration::from_millis(100));
    }
}

impl IdempotentProducer {
    fn client(&self) -> Result<Arc<TxnClient>, KafkaError> {
        let mut shared = self.cluster.producer.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = shared.as_ref() {
            return Ok(Arc::clone(client));
        }
        let options = self.cluster.options();
        let client = Arc::new(TxnClient::new(client::idempotent(options)?, options.commit_timeout));
        let weak = Arc::downgrade(&client);
        thread::Builder::new()
            .name("kafka-producer".into())
            .spawn(move || serve(&weak))
            .map_err(|source| KafkaError::Thread { connection: options.connection.clone(), source })?;
        *shared = Some(Arc::clone(&client));
        Ok(client)
    }

    /// A client with a fatal error (its sequence numbers are lost) serves nobody any more.
    fn replace(&self, broken: &Arc<TxnClient>) {
        let mut shared = self.cluster.producer.lock().unwrap_or_else(PoisonError::into_inner);
        if shared.as_ref().is_some_and(|c| Arc::ptr_eq(c, broken))
            && let Some(old) = shared.take()
        {
            tracing::warn!(connection = %self.cluster.options().connection, "the producer has a fatal error, a new one is made");
            discard(old);
        }
    }

    /// Hands all records to the client. `Err` holds how many it took before it refused one.
    async fn send(&self, client: &Arc<TxnClient>, batch: &OutBatch, call: u32) -> Result<(), (usize, Code)> {
        let topic = client.topic(&batch.topic).map_err(|code| (0, code))?;
        let headers = SharedHeaders::new(&batch.headers);
        let mut i = 0;
        while i < batch.len() {
            let opaque = Opaque::new(call, i as u32);
            match topic.send(
                batch.partitions[i],
                batch.timestamp_ms,
                headers.as_ref(),
                batch.keys.get(i),
                batch.values.get(i),
                opaque,
            ) {
                Ok(()) => {
                    i += 1;
                    if i % 2048 == 0 {
                        tokio::task::yield_now().await;
                    }
                }
                Err(Code::QueueFull) => {
                    // No limit of its own: each queued record leaves within the message timeout.
                    metrics::QUEUE_FULL_WAITS.with_label_values(&[&self.cluster.options().connection]).inc();
                    let c = Arc::clone(client);
                    let served = tokio::task::spawn_blocking(move || c.serve(Duration::from_millis(10))).await;
                    served.map_err(|_| (i, Code::Interrupted))?;
                }
                Err(code) => return Err((i, code)),
            }
        }
        Ok(())
    }
}

#[async_trait]
impl Producer for IdempotentProducer {
    async fn produce(&self, batch: &OutBatch) -> Result<Vec<i64>, LogError> {
        let no_client = |e| {
            LogError::new(ErrorKind::Unavailable, "the producer could not be made")
                .topic(Arc::clone(&batch.topic))
                .caused_by(e)
        };
        let client = self.client().map_err(no_client)?;
        let (call, done) = client.producer.context().open(batch.len(), true);
        let refused = self.send(&client, batch, call).await.err();
        let sent = refused.map_or(batch.len(), |(n, _)| n);
        client.producer.context().seal(call, sent);
        // Every record has its report within the message timeout. The sender lives in the client's context, so it cannot be gone.
        drop(done.await);
        let report = client.producer.context().close(call);
        let failure = report.failure.clone().or_else(|| refused.map(|(_, code)| (code, batch.topic.to_string(), -1)));
        let Some((code, topic, partition)) = failure else { return Ok(report.offsets) };
        let root = client.root(code);
        if client.producer.client().fatal_error().is_some() {
            self.replace(&client);
        }
        // Only if no record was taken, or every one was refused for what it is, has surely nothing been written.
        let definite = matches!(kind_of(root), ErrorKind::Invalid | ErrorKind::NotFound);
        let nothing = sent == 0 || (definite && report.failures == sent);
        let kind = if nothing { kind_of(root) } else { ErrorKind::Unknown };
        let what = format!("{} of {} records were not delivered", batch.len() - sent + report.failures, batch.len());
        Err(LogError::new(kind, what).at(&TopicPartition::new(topic, partition)).caused_by(root))
    }
}
