//! What flows between executors, and the barriers that cut it into epochs.

use std::{collections::HashMap, sync::Arc};

use crate::{Chunk, Epoch, RegionId, Seq};

/// One item of a stream inside a job.
#[derive(Debug, Clone)]
pub enum Message {
    Chunk(Chunk),
    Barrier(Barrier),
    Watermark(Watermark),
}

/// Ends an epoch: rows between barrier `prev` and barrier `epoch` belong to `epoch` (M1, S4).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Barrier {
    pub epoch: Epoch,
    pub prev: Epoch,
    /// The first barrier after a start: it carries no rows, its epoch is the committed one.
    pub initial: bool,
}

/// No later row of this stream has `column` below `value` (M4). `value` is in the units of the column (microseconds for timestamps).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Watermark {
    pub column: usize,
    pub value: i64,
}

/// What a tick of the barrier injector found: the cut of every open region.
#[derive(Debug, Clone, Default)]
pub struct EpochCuts {
    pub epoch: Epoch,
    /// Applied sequence (exclusive end) of each open region when the barrier passed it.
    pub cuts: Arc<HashMap<RegionId, Seq>>,
}
