//! The open scans of an input. Each decodes ahead on a task of its own, so that a backfill uses more than one core, and stays open over barriers while it
//! still brings what the machine asks for.
//!
//! Owns: their life and the order in which they are asked. Memory: per scan one chunk in the queue and one in the making. Not here: what becomes of an item.

use std::{task::Poll, time::Duration};

use futures::StreamExt;
use millstream_storage::{Region, ScanItem, ScanRequest, StorageError};
use millstream_types::{Seq, runtime::Tasks};
use tokio::sync::mpsc;

use super::machine::Machine;

/// How many regions of an input scan at once.
const PARALLELISM: usize = 4;

/// An open scan holds the files and memtables of its moment; after this time it is opened again, at a newer one.
const LONGEST: Duration = Duration::from_secs(30);

/// What a scan task hands over.
#[derive(Debug)]
pub(super) enum Fetched {
    Item(Result<ScanItem, StorageError>),
    End,
    /// The task is gone without an end: it panicked, and the log says where.
    Lost,
}

#[derive(Debug)]
pub(super) struct OpenScan {
    /// Place of the region in the input.
    pub(super) at: usize,
    above: Option<Seq>,
    pub(super) below: Seq,
    chunk_rows: usize,
    opened_ms: u64,
    items: mpsc::Receiver<Fetched>,
}

#[derive(Debug, Default)]
pub(super) struct Scans {
    open: Vec<OpenScan>,
    /// Whom to ask first.
    turn: usize,
}

impl Scans {
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.open.len() >= PARALLELISM
    }

    pub(super) fn has(&self, at: usize) -> bool {
        self.open.iter().any(|s| s.at == at)
    }

    pub(super) fn clear(&mut self) {
        self.open.clear();
    }

    /// Closes those that no longer bring what is asked for. `machine` tells the machine of an open region.
    pub(super) fn keep_current<'a>(
        &mut self,
        machine: impl Fn(usize) -> Option<&'a Machine>,
        chunk_rows: usize,
        now_ms: u64,
    ) {
        self.open.retain(|s| {
            s.chunk_rows == chunk_rows
                && now_ms.saturating_sub(s.opened_ms) < LONGEST.as_millis() as u64
                && machine(s.at).is_some_and(|m| m.is_current(s.above, s.below))
        });
    }

    /// Starts a scan of the region at place `at`; `chunk_rows` is what the limiter allows. Its task ends with the scan, or soon after the receiver is gone.
    pub(super) fn open(
        &mut self,
        (at, region): (usize, &dyn Region),
        request: ScanRequest,
        chunk_rows: usize,
        tasks: &Tasks,
        now_ms: u64,
    ) {
        let (items, received) = mpsc::channel(1);
        let (above, below) = (request.from, request.to);
        let name = format!("backfill scan of {}", region.id());
        let mut stream = region.scan(request);
        // Detached: it ends when nobody listens.
        drop(tasks.compute(name, async move {
            loop {
                let next = tokio::select! {
                    () = items.closed() => return,
                    next = stream.next() => next,
                };
                let last = !matches!(next, Some(Ok(_)));
                if items.send(next.map_or(Fetched::End, Fetched::Item)).await.is_err() || last {
                    return;
                }
            }
        }));
        self.open.push(OpenScan { at, above, below, chunk_rows, opened_ms: now_ms, items: received });
    }

    /// What the next of them has ready, and the place of its region. Pends for ever if none is open. Safe to drop while it waits.
    pub(super) async fn next(&mut self) -> (usize, Fetched) {
        std::future::poll_fn(|cx| {
            let n = self.open.len();
            for i in (0..n).map(|k| (self.turn + k) % n) {
                if let Poll::Ready(fetched) = self.open[i].items.poll_recv(cx) {
                    self.turn = (i + 1) % n;
                    return Poll::Ready((self.open[i].at, fetched.unwrap_or(Fetched::Lost)));
                }
            }
            Poll::Pending
        })
        .await
    }

    /// Closes the scan of this region.
    pub(super) fn take(&mut self, at: usize) -> Option<OpenScan> {
        let i = self.open.iter().position(|s| s.at == at)?;
        Some(self.open.swap_remove(i))
    }
}
