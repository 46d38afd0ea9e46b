//! Where things are in the bucket. The only place that builds paths.

use millstream_types::{JobId, RegionId};

pub fn region(region: RegionId) -> String {
    format!("regions/{}", region.folder())
}

pub fn manifest(region: RegionId) -> String {
    format!("regions/{}/manifest", region.folder())
}

pub fn sst_folder(region: RegionId) -> String {
    format!("regions/{}/sst", region.folder())
}

pub fn sst(region: RegionId, name: &str) -> String {
    format!("regions/{}/sst/{name}", region.folder())
}

/// Marker: the region is being dropped.
pub fn dropping(region: RegionId) -> String {
    format!("regions/{}/dropping", region.folder())
}

/// Pin lists of a job.
pub fn pins(job: JobId) -> String {
    format!("pins/{job}")
}

/// All pin lists.
pub const PINS: &str = "pins";

/// Which topic of the cluster the shared WAL is.
pub fn wal_topic(name: &str) -> String {
    format!("wal-topic/{name}")
}

/// "No region needs anything below this offset" of one WAL partition.
pub fn pruned(partition: u32) -> String {
    format!("wal/{partition}/pruned")
}
