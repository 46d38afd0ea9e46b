//! The bucket: one [`ObjectStore`] under a prefix, with retries, errors that name operation and path, and the two ways to write an object.
//!
//! `put_if_absent` decides things (manifest, catalog, pins) and never hides an unknown outcome; `versioned` builds the contiguous log on it. `Upload`
//! writes files whose names are never used twice, so it may repeat itself. What every kind of bucket must do stands in `suite`.

mod folder;
mod open;
pub mod paths;
mod probe;
mod retrying;
#[cfg(any(test, feature = "testing"))]
pub mod suite;
mod upload;
mod versioned;

use std::{ops::Range, sync::Arc};

use ::object_store::{
    ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload, memory::InMemory, path::Path,
};
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use millstream_types::{Classified, ErrorKind};

pub use probe::{probe, remedy};
pub use retrying::RetryPolicy;
pub use upload::Upload;
pub use versioned::{Slot, VersionedLog};

use crate::StorageError;
use folder::Folder;
use open::Clients;

/// Up to this size an object is written in one request, above it in parts.
const PART_BYTES: usize = 8 << 20;

/// Outcome of a put-if-absent whose answer came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Put {
    Won,
    Exists,
}

/// One bucket or folder. Paths are relative to its prefix.
#[derive(Debug)]
pub struct Bucket {
    store: Arc<dyn ObjectStore>,
    /// The same bucket by a client that repeats by itself.
    uploads: Arc<dyn ObjectStore>,
    retry: RetryPolicy,
    name: String,
    folder: Option<Folder>,
}

impl Bucket {
    pub fn new(store: Arc<dyn ObjectStore>, name: impl Into<String>, retry: RetryPolicy) -> Arc<Self> {
        let Clients { store, uploads } = Clients::one(store);
        Arc::new(Self { store, uploads, retry, name: name.into(), folder: None })
    }

    /// A bucket in memory, for tests and `dev`.
    pub fn memory() -> Arc<Self> {
        Self::new(Arc::new(InMemory::new()), "memory:///", RetryPolicy::default())
    }

    /// [`Bucket::open_with`] the usual patience.
    pub fn open(url: &str, options: &[(String, String)]) -> Result<Arc<Self>, StorageError> {
        Self::open_with(url, options, RetryPolicy::default())
    }

    /// `file:///dir`, `memory:///`, `s3://bucket/prefix`, `gs://..`, `az://..`. `options` are object_store's keys for the scheme (`aws_endpoint`, ..);
    /// what they leave open is taken from the environment.
    pub fn open_with(url: &str, options: &[(String, String)], retry: RetryPolicy) -> Result<Arc<Self>, StorageError> {
        let invalid = |e: String| StorageError::InvalidOption { what: format!("object_store.url {url}: {e}") };
        let Clients { store, uploads } = Clients::open(url, options, &retry).map_err(invalid)?;
        let folder = open::folder_of(url).map(Folder::open).transpose().map_err(|e| invalid(e.to_string()))?;
        Ok(Arc::new(Self { store, uploads, retry, name: url.to_owned(), folder }))
    }

    /// Before each request: a folder must still be the one that was opened.
    fn there(&self, op: &'static str, path: &str) -> Result<(), StorageError> {
        self.folder.as_ref().map_or(Ok(()), |folder| folder.check(op, path))
    }

    /// Its URL.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn retry_policy(&self) -> &RetryPolicy {
        &self.retry
    }

    /// The whole object, `None` if there is none.
    pub async fn get(&self, path: &str) -> Result<Option<Bytes>, StorageError> {
        self.there("get", path)?;
        let at = at(path);
        let got = self.retry.run("get", path, || async { self.store.get(&at).await?.bytes().await }).await;
        none_if_absent(got)
    }

    /// One range of an object that must exist.
    pub async fn get_range(&self, path: &str, range: Range<u64>) -> Result<Bytes, StorageError> {
        self.there("get", path)?;
        let at = at(path);
        self.retry.run("get", path, || async { self.store.get_range(&at, range.clone()).await }).await
    }

    /// Several ranges; near ones are fetched together.
    pub async fn get_ranges(&self, path: &str, ranges: &[Range<u64>]) -> Result<Vec<Bytes>, StorageError> {
        self.there("get", path)?;
        let at = at(path);
        self.retry.run("get", path, || async { self.store.get_ranges(&at, ranges).await }).await
    }

    /// Size and time, `None` if there is no such object.
    pub async fn head(&self, path: &str) -> Result<Option<ObjectMeta>, StorageError> {
        self.there("head", path)?;
        let at = at(path);
        none_if_absent(self.retry.run("head", path, || async { self.store.head(&at).await }).await)
    }

    /// Creates an object unless it exists. Never repeated here: an error of kind `Unknown` means that it may have been written, so read it back.
    pub async fn put_if_absent(&self, path: &str, bytes: Bytes) -> Result<Put, StorageError> {
        self.there("put", path)?;
        let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
        match self.store.put_opts(&at(path), PutPayload::from_bytes(bytes), options).await {
            Ok(_) => Ok(Put::Won),
            Err(::object_store::Error::AlreadyExists { .. } | ::object_store::Error::Precondition { .. }) => {
                Ok(Put::Exists)
            }
            Err(e) => {
                let kind = match retrying::kind_of(&e) {
                    // The request may have had its effect before the answer was lost.
                    ErrorKind::Unavailable | ErrorKind::Exhausted => ErrorKind::Unknown,
                    kind => kind,
                };
                Err(StorageError::Bucket { op: "put", path: path.to_owned(), kind, source: e })
            }
        }
    }

    /// Writes or replaces an object: for hints that decide nothing.
    pub async fn put(&self, path: &str, bytes: Bytes) -> Result<(), StorageError> {
        self.there("put", path)?;
        let at = at(path);
        self.retry.run("put", path, || async { self.store.put(&at, bytes.clone().into()).await.map(|_| ()) }).await
    }

    /// Deletes an object; absent is Ok.
    pub async fn delete(&self, path: &str) -> Result<(), StorageError> {
        self.there("delete", path)?;
        let at = at(path);
        none_if_absent(self.retry.run("delete", path, || async { self.store.delete(&at).await }).await).map(|_| ())
    }

    /// All objects under a folder, deep.
    pub async fn list(&self, folder: &str) -> Result<Vec<ObjectMeta>, StorageError> {
        self.there("list", folder)?;
        let at = at(folder);
        self.retry.run("list", folder, || async { self.store.list(Some(&at)).try_collect().await }).await
    }

    /// Objects directly or deeper in a folder whose path is above `offset`.
    pub async fn list_after(&self, folder: &str, offset: &str) -> Result<Vec<ObjectMeta>, StorageError> {
        self.there("list", folder)?;
        let (at, from) = (at(folder), at(offset));
        self.retry
            .run("list", folder, || async { self.store.list_with_offset(Some(&at), &from).try_collect().await })
            .await
    }

    /// Names of the folders and objects directly in a folder.
    pub async fn list_children(&self, folder: &str) -> Result<Vec<String>, StorageError> {
        self.there("list", folder)?;
        let at = at(folder);
        let found =
            self.retry.run("list", folder, || async { self.store.list_with_delimiter(Some(&at)).await }).await?;
        let folders = found.common_prefixes.iter().filter_map(|p| p.filename().map(str::to_owned));
        Ok(folders.chain(found.objects.iter().filter_map(|o| o.location.filename().map(str::to_owned))).collect())
    }

    /// Deletes all objects under a folder; how many.
    pub async fn delete_folder(&self, folder: &str) -> Result<usize, StorageError> {
        let found = self.list(folder).await?;
        let deletes = futures::stream::iter(found.iter().map(|o| self.delete(o.location.as_ref())));
        deletes.buffer_unordered(8).try_collect::<Vec<()>>().await.map(|d| d.len())
    }
}

/// A name as it is listed is the name as it was given: nothing is encoded, unless it could not be a name at all.
fn at(path: &str) -> Path {
    Path::parse(path).unwrap_or_else(|_| Path::from(path))
}

fn none_if_absent<T>(got: Result<T, StorageError>) -> Result<Option<T>, StorageError> {
    match got {
        Ok(v) => Ok(Some(v)),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}
