//! Writes one object piece by piece: small ones in one request, larger ones in parts while they grow, so memory stays at one part.

use std::sync::Arc;

use ::object_store::{Error, MultipartUpload};

use super::{Bucket, PART_BYTES, at, retrying::kind_of};
use crate::StorageError;

/// An upload in progress under a name that nobody else uses. Dropping it ends it in the background; after a crash its parts are left to the bucket's own
/// clean-up. Neither leaves an object.
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

    /// Takes bytes; sends them when they make a part. All parts but the last have one size, as some stores demand.
    pub async fn write(&mut self, mut bytes: &[u8]) -> Result<(), StorageError> {
        self.size += bytes.len() as u64;
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(PART_BYTES - self.buffer.len()));
            self.buffer.extend_from_slice(now);
            bytes = later;
            if self.buffer.len() == PART_BYTES {
                self.send().await?;
            }
        }
        Ok(())
    }

    /// `parts` stays in its field while the request is under way, so that an upload which is dropped meanwhile is ended.
    async fn send(&mut self) -> Result<(), StorageError> {
        let parts = match &mut self.parts {
            Some(parts) => parts,
            none => {
                self.bucket.there("upload", &self.path)?;
                let at = at(&self.path);
                let begin = || async { self.bucket.uploads.put_multipart_opts(&at, Default::default()).await };
                none.insert(self.bucket.retry.run("upload", &self.path, begin).await?)
            }
        };
        // A part cannot be sent twice under one number; this client repeats the request by itself.
        match parts.put_part(std::mem::take(&mut self.buffer).into()).await {
            Ok(()) => Ok(()),
            Err(e) => Err(self.failed(e).await),
        }
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
        let Some(parts) = &mut self.parts else { return Ok(self.size) };
        let done = parts.complete().await;
        let found = self.bucket.head(&self.path).await;
        match (done, found) {
            // Also when only the answer was lost: nobody else writes under this name.
            (_, Ok(Some(found))) if found.size == self.size => {
                self.parts = None;
                Ok(self.size)
            }
            (Err(e), _) => Err(self.failed(e).await),
            (Ok(_), Err(e)) => Err(e),
            (Ok(_), Ok(found)) => Err(StorageError::corrupt(
                &self.path,
                format!("uploaded {} bytes, the bucket has {:?}", self.size, found.map(|f| f.size)),
            )),
        }
    }

    async fn failed(&mut self, source: Error) -> StorageError {
        if let Some(mut parts) = self.parts.take() {
            abort(parts.as_mut(), &self.path).await;
        }
        StorageError::Bucket { op: "upload", path: self.path.clone(), kind: kind_of(&source), source }
    }
}

async fn abort(parts: &mut dyn MultipartUpload, path: &str) {
    if let Err(e) = parts.abort().await {
        tracing::debug!(path, error = %e, "abort of an upload failed, its parts stay until the bucket's own clean-up");
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        let Some(mut parts) = self.parts.take() else { return };
        let path = std::mem::take(&mut self.path);
        // Without a runtime the process ends, and nobody could send the request.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { abort(parts.as_mut(), &path).await });
        }
    }
}
