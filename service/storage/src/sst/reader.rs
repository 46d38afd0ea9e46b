//! Reads SSTs: footers and decoded row groups are cached, limits in bytes.
use std::sync::Arc;

use super::CacheLimits;
use crate::object_store::Bucket;

/// One per process, shared by all regions of a bucket.
#[derive(Debug)]
pub struct SstReader {
    bucket: Arc<Bucket>,
    limits: CacheLimits,
}

impl SstReader {
    pub fn new(bucket: Arc<Bucket>, limits: CacheLimits) -> Arc<Self> {
        Arc::new(Self { bucket, limits })
    }

    pub fn bucket(&self) -> &Arc<Bucket> {
        &self.bucket
    }

    pub fn limits(&self) -> &CacheLimits {
        &self.limits
    }
}
