//! Writes one object piece by piece: small ones in one request, larger ones in parts while they grow, so memory stays at one part.

use std::sync::Arc;

use ::object_store::{MultipartUpload, ObjectStoreExt, path::Path};

use super::{Bucket, PART_BYTES, retrying::kind_of};
use crate::StorageError;

/// An upload in progress under a name that nobody else uses. Dropping it leaves parts to the bucket's own clean-up, never an object.
#[derive(Debug)]
pub struct Upload {
    bucket: Arc<Bucket>,
    path: String,
    parts: Option<Box<dyn MultipartUpload>>,
    buffer: Vec<u8>,
    size: u64,
}

impl Upload {
    pub fn new(bucket: Arc<Bucket>, path: String) -> Self {
        Self { bucket, path, parts: None, buffer: Vec::new(), size: 0 }
    }

    /// Takes bytes; sends them when they make a part.
    pub async fn write(&mut self, bytes: &[u8]) -> Result<(), StorageError> {
        self.buffer.extend_from_slice(bytes);
        self.size += bytes.len() as u64;
        if self.buffer.len() >= PART_BYTES {
            self.send().await?;
        }
        Ok(())
    }

    async fn send(&mut self) -> Result<(), StorageError> {
        let at = Path::from(self.path.as_str());
        let mut parts = match self.parts.take() {
            Some(parts) => parts,
            None => {
                self.bucket
                    .retry
                    .run("upload", &self.path, || async { self.bucket.store.put_multipart(&at).await })
                    .await?
            }
        };
        let part = std::mem::take(&mut self.buffer);
        // A part cannot be sent twice under one number; the store's own client repeats the request where that is safe.
        if let Err(e) = parts.put_part(part.into()).await {
            return Err(self.failed(parts, e).await);
        }
        self.parts = Some(parts);
        Ok(())
    }

    /// Returns when the whole object is in the bucket; its size.
    pub async fn finish(mut self) -> Result<u64, StorageError> {
        if self.parts.is_none() {
            let bytes = std::mem::take(&mut self.buffer);
            self.bucket.put(&self.path, bytes.into()).await?;
            return Ok(self.size);
        }
        if !self.buffer.is_empty() {
            self.send().await?;
        }
        let Some(mut parts) = self.parts.take() else { return Ok(self.size) };
        if let Err(e) = parts.complete().await {
            return Err(self.failed(parts, e).await);
        }
        match self.bucket.head(&self.path).await? {
            Some(found) if found.size == self.size => Ok(self.size),
            found => Err(StorageError::corrupt(
                &self.path,
                format!("uploaded {} bytes, the bucket has {:?}", self.size, found.map(|f| f.size)),
            )),
        }
    }

    async fn failed(&mut self, mut parts: Box<dyn MultipartUpload>, source: ::object_store::Error) -> StorageError {
        if let Err(e) = parts.abort().await {
            tracing::debug!(path = self.path, error = %e, "abort of a failed upload failed, its parts stay until the bucket's own clean-up");
        }
        StorageError::Bucket { op: "upload", path: self.path.clone(), kind: kind_of(&source), source }
    }
}
