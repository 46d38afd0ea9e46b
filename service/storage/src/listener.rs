//! Named points at durability edges, where a test can hold, count or kill the engine. Production uses [`NoListener`].

use std::fmt::Debug;

use async_trait::async_trait;
use millstream_types::RegionId;

/// Where the engine stands. Points of a shard name its first region or region 0-0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Point {
    WriteParked,
    AppendSent,
    AppendCommitted,
    /// Nothing was read back yet.
    AppendUnknown,
    Applied,
    Frozen,
    FlushStart,
    SstUploaded,
    ManifestPutSent,
    ManifestPutDone,
    VersionSwapped,
    PrunePut,
    PruneDone,
    CompactionPicked,
    CompactionCommit,
    PinPut,
    PurgeDelete,
    ClaimPut,
    EndCaptured,
    ReplayEnd,
    DropMarked,
    GapPut,
}

/// Told of each point by the task that stands there; the task waits for the answer, a worker loop never does (see `reached`).
#[async_trait]
pub trait WorkerListener: Send + Sync + Debug {
    /// A background task stands at `point`; it goes on when this returns.
    async fn at(&self, point: Point, region: RegionId);

    /// A worker loop passed `point`; must return at once.
    fn reached(&self, point: Point, region: RegionId);
}

#[derive(Debug, Clone, Copy, Default)]
pub struct NoListener;

#[async_trait]
impl WorkerListener for NoListener {
    async fn at(&self, _point: Point, _region: RegionId) {}
    fn reached(&self, _point: Point, _region: RegionId) {}
}
