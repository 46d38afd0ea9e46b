//! Where catalog versions are put: contiguous numbers, each written once. Storage's versioned log in production, memory in tests.

use std::{
    fmt::Debug,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use bytes::Bytes;
use millstream_storage::object_store::{Bucket, Slot, VersionedLog};

use crate::SqlError;

#[async_trait]
pub trait CatalogLog: Send + Sync + Debug {
    /// The newest version and its bytes; `None` = the cluster is new.
    async fn latest(&self) -> Result<Option<(u64, Bytes)>, SqlError>;

    /// Puts `version` if it is not there. `false` = somebody else has put it. Returns when it is durable; an unknown outcome has been read back.
    async fn put(&self, version: u64, bytes: Bytes) -> Result<bool, SqlError>;
}

/// `catalog/<version>.json` in the bucket.
#[derive(Debug)]
pub struct BucketCatalogLog {
    versions: VersionedLog,
}

impl BucketCatalogLog {
    pub fn new(bucket: Arc<Bucket>) -> Self {
        Self { versions: VersionedLog::new(bucket, "catalog", ".json") }
    }
}

#[async_trait]
impl CatalogLog for BucketCatalogLog {
    async fn latest(&self) -> Result<Option<(u64, Bytes)>, SqlError> {
        Ok(self.versions.newest().await?)
    }

    async fn put(&self, version: u64, bytes: Bytes) -> Result<bool, SqlError> {
        Ok(matches!(self.versions.put(version, bytes).await?, Slot::Won))
    }
}

/// For tests.
#[derive(Debug, Default)]
pub struct MemoryCatalogLog {
    versions: Mutex<Vec<Bytes>>,
}

impl MemoryCatalogLog {
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Bytes>> {
        self.versions.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    pub fn versions(&self) -> Vec<Bytes> {
        self.lock().clone()
    }

    /// Replaces the newest version, as damage would.
    pub fn overwrite_latest(&self, bytes: Bytes) {
        if let Some(last) = self.lock().last_mut() {
            *last = bytes;
        }
    }
}

#[async_trait]
impl CatalogLog for MemoryCatalogLog {
    async fn latest(&self) -> Result<Option<(u64, Bytes)>, SqlError> {
        let versions = self.lock();
        Ok(versions.last().map(|b| (versions.len() as u64 - 1, b.clone())))
    }

    async fn put(&self, version: u64, bytes: Bytes) -> Result<bool, SqlError> {
        let mut versions = self.lock();
        if versions.len() as u64 != version {
            return Ok(false);
        }
        versions.push(bytes);
        Ok(true)
    }
}
