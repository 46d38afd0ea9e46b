//! A bucket that fails on command: before a request has its effect, or after it, so that only the answer is lost.

use std::{
    fmt,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use futures::{StreamExt, stream::BoxStream};
use millstream_storage::object_store::{Bucket, RetryPolicy};
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMode,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, UploadPart, memory::InMemory, path::Path,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    /// The request does nothing.
    Before,
    /// The request has its effect, the answer is lost.
    After,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Put,
    Get,
    Delete,
    /// Completion of an upload in parts.
    Complete,
}

#[derive(Debug, Clone)]
struct Fault {
    verb: Verb,
    path: String,
    when: When,
    times: usize,
}

/// In memory, with faults in the order they were ordered.
#[derive(Debug, Default)]
pub(crate) struct FaultyStore {
    inner: InMemory,
    faults: Mutex<Vec<Fault>>,
    /// Put-if-absent overwrites, as some stores do under concurrency.
    ignores_conditions: bool,
}

impl fmt::Display for FaultyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("faulty")
    }
}

/// A bucket over it that retries fast.
pub(crate) fn faulty() -> (Arc<FaultyStore>, Arc<Bucket>) {
    let store = Arc::new(FaultyStore::default());
    (store.clone(), bucket(store))
}

/// A bucket whose put-if-absent lets everybody win.
pub(crate) fn unconditional() -> Arc<Bucket> {
    bucket(Arc::new(FaultyStore { ignores_conditions: true, ..FaultyStore::default() }))
}

fn bucket(store: Arc<FaultyStore>) -> Arc<Bucket> {
    let ms = Duration::from_millis;
    Bucket::new(store, "faulty", RetryPolicy { first: ms(1), longest: ms(4), total: ms(200) })
}

impl FaultyStore {
    /// The next `times` requests of `verb` whose path contains `path` fail.
    pub(crate) fn fail(&self, verb: Verb, path: &str, when: When, times: usize) {
        self.faults.lock().unwrap().push(Fault { verb, path: path.to_owned(), when, times });
    }

    /// Faults that nobody ran into.
    pub(crate) fn left(&self) -> usize {
        self.faults.lock().unwrap().iter().map(|f| f.times).sum()
    }

    fn fault(&self, verb: Verb, path: &Path) -> Option<When> {
        let mut faults = self.faults.lock().unwrap();
        let fault = faults.iter_mut().find(|f| f.times > 0 && f.verb == verb && path.as_ref().contains(&f.path))?;
        fault.times -= 1;
        Some(fault.when)
    }
}

fn lost() -> Error {
    Error::Generic { store: "faulty", source: "503 slow down".into() }
}

#[derive(Debug)]
struct FaultyUpload {
    inner: Box<dyn MultipartUpload>,
    fault: Option<When>,
}

#[async_trait]
impl MultipartUpload for FaultyUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        self.inner.put_part(data)
    }

    async fn complete(&mut self) -> Result<PutResult> {
        match self.fault {
            Some(When::Before) => Err(lost()),
            Some(When::After) => self.inner.complete().await.and(Err(lost())),
            None => self.inner.complete().await,
        }
    }

    async fn abort(&mut self) -> Result<()> {
        self.inner.abort().await
    }
}

#[async_trait]
impl ObjectStore for FaultyStore {
    async fn put_opts(&self, location: &Path, payload: PutPayload, mut opts: PutOptions) -> Result<PutResult> {
        if self.ignores_conditions {
            opts.mode = PutMode::Overwrite;
            // Lets the concurrent writers meet.
            tokio::task::yield_now().await;
        }
        let fault = self.fault(Verb::Put, location);
        if fault == Some(When::Before) {
            return Err(lost());
        }
        let done = self.inner.put_opts(location, payload, opts).await;
        if fault == Some(When::After) { Err(lost()) } else { done }
    }

    async fn put_multipart_opts(&self, location: &Path, opts: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        let inner = self.inner.put_multipart_opts(location, opts).await?;
        Ok(Box::new(FaultyUpload { inner, fault: self.fault(Verb::Complete, location) }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        if self.fault(Verb::Get, location).is_some() {
            return Err(lost());
        }
        self.inner.get_opts(location, options).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let failing: Vec<Fault> =
            self.faults.lock().unwrap().iter().filter(|f| f.verb == Verb::Delete).cloned().collect();
        let checked = locations.map(move |path| {
            let path = path?;
            if failing.iter().any(|f| f.times > 0 && path.as_ref().contains(&f.path)) { Err(lost()) } else { Ok(path) }
        });
        self.inner.delete_stream(checked.boxed())
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}
