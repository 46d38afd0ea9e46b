//! Rejected records of all topics: one ring a topic, made when its first bad record comes.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use millstream_format::{BadRecordRing, BadReport, FormatMetrics};
use millstream_sql::{SqlService, catalog::Object};
use millstream_types::{BadRecord, BadRecordSink, TopicPartition, runtime::Clock};

/// Handed to the decoders of all tables; read by REST.
#[derive(Debug)]
pub(crate) struct BadRecords {
    clock: Arc<dyn Clock>,
    metrics: FormatMetrics,
    /// Set once when the service exists: it knows the table of a topic, which names the ring's metrics and log lines.
    sql: OnceLock<SqlService>,
    /// As many as there are topics with tables. Held for a map look-up only.
    rings: Mutex<HashMap<Arc<str>, Arc<BadRecordRing>>>,
}

impl BadRecords {
    pub(crate) fn new(clock: Arc<dyn Clock>, metrics: FormatMetrics) -> Self {
        Self { clock, metrics, sql: OnceLock::new(), rings: Mutex::default() }
    }

    pub(crate) fn knows_tables_from(&self, sql: SqlService) {
        if self.sql.set(sql).is_err() {
            tracing::debug!("the tables of bad records are known already");
        }
    }

    /// What was rejected of a topic; empty if nothing was.
    pub(crate) fn of_topic(&self, topic: &str) -> BadReport {
        let rings = self.rings.lock().unwrap_or_else(PoisonError::into_inner);
        rings.get(topic).map(|r| r.report()).unwrap_or_default()
    }

    fn ring(&self, topic: &Arc<str>) -> Arc<BadRecordRing> {
        let mut rings = self.rings.lock().unwrap_or_else(PoisonError::into_inner);
        let ring = rings.entry(Arc::clone(topic)).or_insert_with(|| {
            let table = self.table_of(topic).unwrap_or_else(|| topic.to_string());
            Arc::new(BadRecordRing::new(table, Arc::clone(&self.clock), self.metrics.clone()))
        });
        Arc::clone(ring)
    }

    fn table_of(&self, topic: &str) -> Option<String> {
        let catalog = self.sql.get()?.catalog()?;
        catalog.objects.iter().find_map(|o| match o.as_ref() {
            Object::Table(t) if t.topic().is_some_and(|source| source.topic == topic) => Some(t.name.clone()),
            Object::Table(_) | Object::View(_) | Object::Sink(_) => None,
        })
    }
}

impl BadRecordSink for BadRecords {
    fn report(&self, partition: &TopicPartition, bad: Vec<BadRecord>) {
        BadRecordSink::report(self.ring(&partition.topic).as_ref(), partition, bad);
    }
}
