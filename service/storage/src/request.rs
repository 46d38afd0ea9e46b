//! What a region worker is asked (requests, one bounded mailbox) and told (notices of tasks, barriers and life cycle, their own lane).

use std::sync::Arc;

use arrow::array::RecordBatch;
use millstream_types::{Op, RegionId, Seq};
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

use crate::{
    StorageError,
    manifest::{FileEntry, Store},
    memtable::Run,
    region::{RegionShared, state::Event},
    wal::shard::Shard,
    worker::{OpenRegion, manifest_queue::ManifestJob},
};

pub(crate) type Reply<T> = oneshot::Sender<Result<T, StorageError>>;

/// What became of inserted rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Inserted {
    Done,
    /// Some rows of the run are already there, up to this sequence: build it anew without them.
    Overlaps(Seq),
}

/// Where rows come from, which decides how they meet memory pressure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// A topic: parks, which pauses its reader.
    Tail,
    /// A committed checkpoint or a replay: parks, never rejected.
    Apply,
    /// A committed client write that was admitted before: goes in at once.
    Append,
}

/// Committed rows for the memtable.
#[derive(Debug)]
pub(crate) struct Insert {
    pub region: Arc<RegionShared>,
    pub source: Source,
    pub run: Option<Arc<Run>>,
    /// What is applied afterwards.
    pub applied: Seq,
    /// Timestamp of the oldest record, for the retention guard.
    pub oldest_record_ms: Option<i64>,
    /// Room that the tail took for these rows; given back when they are in the memtable.
    pub permits: Vec<OwnedSemaphorePermit>,
    pub reply: Option<Reply<Inserted>>,
}

impl Insert {
    pub(crate) fn bytes(&self) -> usize {
        self.run.as_ref().map_or(0, |r| r.bytes)
    }
}

/// Client rows on their way to the appender.
#[derive(Debug)]
pub(crate) struct WriteRequest {
    pub region: Arc<RegionShared>,
    pub shard: Arc<Shard>,
    pub rows: RecordBatch,
    pub ops: Vec<Op>,
    pub write_id: u128,
    pub bytes: usize,
    pub reply: Reply<(Seq, Seq)>,
    /// Set when the appender has it: from then on a lost answer means `Unknown`.
    pub handed_over: Arc<std::sync::atomic::AtomicBool>,
}

#[derive(Debug)]
pub(crate) enum Request {
    Insert(Insert),
    Write(WriteRequest),
    Flush { region: RegionId, reply: Reply<Seq> },
    Compact { region: RegionId, reply: Reply<()> },
}

impl Request {
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Request::Insert(i) => match i.source {
                Source::Tail => "tail",
                Source::Apply => "apply",
                Source::Append => "append",
            },
            Request::Write(_) => "write",
            Request::Flush { .. } => "flush",
            Request::Compact { .. } => "compact",
        }
    }
}

/// Things that pass a full mailbox.
#[derive(Debug)]
pub(crate) enum Notice {
    /// A claimed region joins the worker.
    Install(Box<OpenRegion>),
    /// Replay has ended at `applied`; everything below it is here.
    Replayed {
        region: Arc<RegionShared>,
        applied: Seq,
    },
    /// Leaves by `Close` or `Drop`; answered when the worker has let go of it.
    Remove {
        region: RegionId,
        event: Event,
        reply: oneshot::Sender<()>,
    },
    Barrier {
        reply: oneshot::Sender<Vec<(RegionId, Seq)>>,
    },
    Uploaded {
        region: Arc<RegionShared>,
        frozen: u64,
        result: Result<Vec<FileEntry>, StorageError>,
        history_from: Option<Seq>,
    },
    RetryUploads {
        region: Arc<RegionShared>,
    },
    RetryManifest {
        region: Arc<RegionShared>,
    },
    ManifestDone {
        region: Arc<RegionShared>,
        store: Option<Box<Store>>,
        job: ManifestJob,
        result: Result<(), StorageError>,
    },
    Merged {
        region: Arc<RegionShared>,
        inputs: Vec<Arc<Run>>,
        result: Result<Arc<Run>, StorageError>,
    },
    Compacted {
        region: Arc<RegionShared>,
        inputs: Vec<Arc<FileEntry>>,
        result: Result<Vec<FileEntry>, StorageError>,
        history_from: Option<Seq>,
    },
    Purged {
        region: Arc<RegionShared>,
        files: Vec<String>,
    },
    /// The topic starts above, or ends below, the position.
    OutOfRange {
        region: Arc<RegionShared>,
        wanted: Seq,
        start: Seq,
        end: Seq,
    },
    /// The topic's retention will soon reach rows that are not flushed.
    FlushUrgently {
        region: Arc<RegionShared>,
        headroom_ms: u64,
    },
    Fence {
        region: Arc<RegionShared>,
    },
    Quarantine {
        region: Arc<RegionShared>,
        reason: String,
    },
}

/// The two lanes into a worker.
#[derive(Debug, Clone)]
pub(crate) struct WorkerSender {
    pub requests: mpsc::Sender<(u64, Request)>,
    pub notices: mpsc::Sender<Notice>,
    pub clock: Arc<dyn millstream_types::runtime::Clock>,
}

impl WorkerSender {
    /// Waits while the mailbox is full: that is the first back-pressure.
    pub(crate) async fn request(&self, request: Request) -> Result<(), StorageError> {
        self.requests
            .send((self.clock.now_ms(), request))
            .await
            .map_err(|_| StorageError::Stopped { what: "region worker" })
    }

    /// A worker that is gone needs no notice.
    pub(crate) async fn notice(&self, notice: Notice) {
        if self.notices.send(notice).await.is_err() {
            tracing::debug!("notice for a stopped worker dropped");
        }
    }
}
