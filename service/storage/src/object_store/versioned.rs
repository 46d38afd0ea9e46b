//! A contiguous log of numbered objects, made by put-if-absent: manifests, the catalog, pin lists.

use std::sync::Arc;

use bytes::Bytes;
use millstream_types::{Classified, ErrorKind};

use super::{Bucket, Put};
use crate::StorageError;

/// Who has a version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Slot {
    /// Our bytes are there, for certain.
    Won,
    /// Somebody else's bytes are there.
    Exists(Bytes),
}

/// Objects `<folder>/<version:020><suffix>`.
#[derive(Debug, Clone)]
pub struct VersionedLog {
    bucket: Arc<Bucket>,
    folder: String,
    suffix: &'static str,
}

impl VersionedLog {
    pub fn new(bucket: Arc<Bucket>, folder: impl Into<String>, suffix: &'static str) -> Self {
        Self { bucket, folder: folder.into(), suffix }
    }

    pub fn path(&self, version: u64) -> String {
        format!("{}/{version:020}{}", self.folder, self.suffix)
    }

    /// Puts a version. `bytes` must contain something unique to the writer, since a slot with equal bytes counts as ours. When the answer is lost it
    /// reads the slot until the bucket answers: ours = won; absent = the same bytes again. So it returns only with certainty, or with an error that
    /// cannot have written anything (wrong credentials and the like). It can take as long as the bucket is away; dropping it leaves the outcome unknown.
    pub async fn put(&self, version: u64, bytes: Bytes) -> Result<Slot, StorageError> {
        let path = self.path(version);
        let mut attempt = 0;
        loop {
            match self.bucket.put_if_absent(&path, bytes.clone()).await {
                Ok(Put::Won) => return Ok(Slot::Won),
                Ok(Put::Exists) => {}
                Err(e) if e.kind() == ErrorKind::Unknown => {
                    tracing::warn!(path, attempt, error = %millstream_types::error::chain(&e), "outcome of a put is unknown, reading it back");
                }
                Err(e) => return Err(e),
            }
            match self.read_until_answered(&path, &mut attempt).await? {
                Some(found) if found == bytes => return Ok(Slot::Won),
                Some(found) => return Ok(Slot::Exists(found)),
                None => {}
            }
        }
    }

    async fn read_until_answered(&self, path: &str, attempt: &mut u32) -> Result<Option<Bytes>, StorageError> {
        loop {
            tokio::time::sleep(if *attempt == 0 {
                std::time::Duration::ZERO
            } else {
                self.bucket.retry_policy().wait(*attempt)
            })
            .await;
            *attempt += 1;
            match self.bucket.get(path).await {
                Ok(found) => return Ok(found),
                Err(e) if e.kind() == ErrorKind::Unavailable => {
                    tracing::warn!(path, attempt, error = %millstream_types::error::chain(&e), "read-back of a put failed, repeating");
                }
                Err(e) => return Err(e),
            }
        }
    }

    pub async fn get(&self, version: u64) -> Result<Option<Bytes>, StorageError> {
        self.bucket.get(&self.path(version)).await
    }

    pub async fn delete(&self, version: u64) -> Result<(), StorageError> {
        self.bucket.delete(&self.path(version)).await
    }

    /// All versions from `from` on, ascending. One listing.
    pub async fn versions(&self, from: u64) -> Result<Vec<u64>, StorageError> {
        let found = if from == 0 {
            self.bucket.list(&self.folder).await?
        } else {
            self.bucket.list_after(&self.folder, &format!("{}/{:020}{}", self.folder, from - 1, self.suffix)).await?
        };
        let mut versions: Vec<u64> = found
            .iter()
            .filter_map(|o| o.location.filename()?.strip_suffix(self.suffix)?.parse().ok())
            .filter(|v| *v >= from)
            .collect();
        versions.sort_unstable();
        Ok(versions)
    }

    /// The newest version, by listing and then reading on, with its bytes.
    pub async fn newest(&self) -> Result<Option<(u64, Bytes)>, StorageError> {
        let Some(mut version) = self.versions(0).await?.pop() else { return Ok(None) };
        let Some(mut bytes) = self.get(version).await? else { return Ok(None) };
        while let Some(next) = self.get(version + 1).await? {
            version += 1;
            bytes = next;
        }
        Ok(Some((version, bytes)))
    }
}
