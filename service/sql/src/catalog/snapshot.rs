//! One version of the catalog: all objects, counters that never go back, and drops that are not finished.
//!
//! Reading is two steps: first the frame, then each object for itself. An object that cannot be read is kept as it is, named with its reason,
//! and written back unchanged: a newer or damaged entry harms nobody else and is not lost.

use std::sync::Arc;

use millstream_types::{JobId, RegionId, ShardId, TableId};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::object::{Derived, Object};
use crate::SqlError;

/// Of the frame and the objects in it.
pub const FORMAT: u32 = 1;

#[derive(Debug, Clone, PartialEq)]
pub struct Catalog {
    pub version: u64,
    pub cluster: Cluster,
    /// Next free number; raised by each CREATE, never lowered.
    pub next_table: u32,
    pub next_job: u64,
    pub objects: Vec<Arc<Object>>,
    pub quarantined: Vec<Quarantined>,
    /// Objects that are gone for users while their regions are being deleted.
    pub dropping: Vec<Dropping>,
}

/// Fixed at the first start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cluster {
    /// Partitions of the shared WAL topic.
    pub shards: u32,
}

impl Cluster {
    /// The shard of an object without a topic, by hash of its number (Knuth's multiplicative hash).
    pub fn shard_of(&self, number: u64) -> ShardId {
        ShardId(((number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33) % u64::from(self.shards.max(1))) as u32)
    }
}

/// An entry that this version cannot read.
#[derive(Debug, Clone, PartialEq)]
pub struct Quarantined {
    pub name: String,
    pub reason: String,
    raw: Value,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Dropping {
    pub name: String,
    pub job: Option<JobId>,
    pub regions: Vec<RegionId>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Frame {
    format: u32,
    version: u64,
    cluster: Cluster,
    next_table: u32,
    next_job: u64,
    /// Of this write alone: two writers never put equal bytes, so that a slot read back tells whose it is.
    #[serde(default)]
    nonce: String,
    objects: Vec<Value>,
    #[serde(default)]
    dropping: Vec<Dropping>,
}

impl Catalog {
    /// The catalog before the first statement. Its version 0 is written, so that `shards` is fixed.
    pub fn first(cluster: Cluster) -> Self {
        Self {
            version: 0,
            cluster,
            next_table: 1,
            next_job: 1,
            objects: Vec::new(),
            quarantined: Vec::new(),
            dropping: Vec::new(),
        }
    }

    pub fn object(&self, name: &str) -> Option<&Arc<Object>> {
        self.objects.iter().find(|o| o.name() == name)
    }

    pub fn by_table(&self, id: TableId) -> Option<&Arc<Object>> {
        self.objects.iter().find(|o| match o.as_ref() {
            Object::Table(t) => t.id == id,
            Object::View(d) | Object::Sink(d) => d.id == id,
        })
    }

    pub fn by_job(&self, id: JobId) -> Option<&Arc<Object>> {
        self.objects.iter().find(|o| o.derived().is_some_and(|d| d.job == id))
    }

    /// Views and sinks that read the table or view.
    pub fn dependants(&self, id: TableId) -> Vec<&Derived> {
        self.objects.iter().filter_map(|o| o.derived()).filter(|d| d.input == id).collect()
    }

    /// Whether a name is taken, by a readable object or by a quarantined one.
    pub fn name_taken(&self, name: &str) -> bool {
        self.object(name).is_some() || self.quarantined.iter().any(|q| q.name == name)
    }

    pub fn take_table_id(&mut self) -> TableId {
        let id = TableId(self.next_table);
        self.next_table += 1;
        id
    }

    pub fn take_job_id(&mut self) -> JobId {
        let id = JobId(self.next_job);
        self.next_job += 1;
        id
    }

    pub fn replace(&mut self, object: Object) {
        let object = Arc::new(object);
        match self.objects.iter_mut().find(|o| o.name() == object.name()) {
            Some(place) => *place = object,
            None => self.objects.push(object),
        }
    }

    pub fn to_json(&self) -> Result<Vec<u8>, SqlError> {
        let mut objects = Vec::with_capacity(self.objects.len() + self.quarantined.len());
        for object in &self.objects {
            objects.push(
                serde_json::to_value(object.as_ref()).map_err(|e| SqlError::internal("catalog object to json", e))?,
            );
        }
        objects.extend(self.quarantined.iter().map(|q| q.raw.clone()));
        let frame = Frame {
            format: FORMAT,
            version: self.version,
            cluster: self.cluster,
            next_table: self.next_table,
            next_job: self.next_job,
            nonce: format!("{:032x}", rand::random::<u128>()),
            objects,
            dropping: self.dropping.clone(),
        };
        serde_json::to_vec_pretty(&frame).map_err(|e| SqlError::internal("catalog to json", e))
    }

    /// Fails only if the frame itself cannot be read.
    pub fn from_json(bytes: &[u8], path: &str) -> Result<Self, SqlError> {
        let corrupt = |what: String| {
            SqlError::new(millstream_types::ErrorKind::Corrupt, "CATALOG_CORRUPT", format!("{path}: {what}"))
        };
        let frame: Frame = serde_json::from_slice(bytes).map_err(|e| corrupt(format!("not a catalog: {e}")))?;
        if frame.format != FORMAT {
            return Err(corrupt(format!(
                "format {} was written by another version, this one reads {FORMAT}",
                frame.format
            )));
        }
        let mut catalog = Catalog {
            version: frame.version,
            cluster: frame.cluster,
            next_table: frame.next_table,
            next_job: frame.next_job,
            objects: Vec::new(),
            quarantined: Vec::new(),
            dropping: frame.dropping,
        };
        for raw in frame.objects {
            match Object::deserialize(&raw) {
                Ok(object) => catalog.objects.push(Arc::new(object)),
                Err(e) => {
                    let name = raw.get("name").and_then(Value::as_str).unwrap_or("?").to_owned();
                    tracing::error!(path, object = %name, error = %e, "catalog entry cannot be read, object quarantined");
                    catalog.quarantined.push(Quarantined { name, reason: e.to_string(), raw });
                }
            }
        }
        Ok(catalog)
    }
}

impl Quarantined {
    /// Takes a readable object out of service, for instance because its plan cannot be built any more.
    pub fn from_object(object: &Object, reason: impl Into<String>) -> Result<Self, SqlError> {
        let raw = serde_json::to_value(object).map_err(|e| SqlError::internal("catalog object to json", e))?;
        Ok(Self { name: object.name().to_owned(), reason: reason.into(), raw })
    }
}
