//! Writing to the memory log: transactions and plain produce calls.

use async_trait::async_trait;

use super::{CommitFault, MemoryLog, down};
use crate::{CommitOutcome, EpochWriter, ErrorKind, LogError, OutBatch, Producer};

#[derive(Debug)]
pub(super) struct MemoryWriter {
    log: MemoryLog,
    transactional_id: String,
    /// Producer epoch of the client inside; `None` before `init` and after an unknown outcome.
    epoch: Option<u64>,
}

impl MemoryWriter {
    pub(super) fn new(log: MemoryLog, transactional_id: &str) -> Self {
        Self { log, transactional_id: transactional_id.to_owned(), epoch: None }
    }

    fn fenced(&self) -> CommitOutcome {
        let what = format!("a newer producer has taken the transactional id {}", self.transactional_id);
        CommitOutcome::Fenced(LogError::new(ErrorKind::Fenced, what))
    }

    /// Begin and send. `Err` is the outcome if it ends here.
    fn send(&self, epoch: u64, batches: &[OutBatch]) -> Result<(u64, Vec<Vec<i64>>), CommitOutcome> {
        self.log.change(|s| {
            if s.unavailable {
                return Err(CommitOutcome::Aborted(down()));
            }
            let Some(txn) = s.begin(&self.transactional_id, epoch) else { return Err(self.fenced()) };
            let mut offsets = Vec::with_capacity(batches.len());
            for batch in batches {
                if let Err(error) = s.check(batch) {
                    s.end(&self.transactional_id, false);
                    return Err(CommitOutcome::Aborted(error));
                }
                let sent = s.append(batch, Some(txn));
                offsets.push(if batch.want_offsets { sent } else { Vec::new() });
            }
            Ok((txn, offsets))
        })
    }

    fn end(&mut self, epoch: u64, txn: u64, offsets: Vec<Vec<i64>>) -> CommitOutcome {
        let log = self.log.clone();
        log.change(|s| {
            if !s.is_open(&self.transactional_id, epoch, txn) {
                self.epoch = None;
                return self.fenced();
            }
            let unknown = |what: &str| CommitOutcome::Unknown(LogError::new(ErrorKind::Unknown, what));
            match s.commit_faults.pop_front() {
                None if s.unavailable => {
                    self.epoch = None;
                    unknown("the log went away during the commit")
                }
                None => {
                    s.end(&self.transactional_id, true);
                    CommitOutcome::Committed { offsets }
                }
                Some(CommitFault::Aborted) => {
                    s.end(&self.transactional_id, false);
                    CommitOutcome::Aborted(LogError::new(ErrorKind::Unavailable, "the test asked for an abort"))
                }
                Some(CommitFault::Unknown { committed }) => {
                    self.epoch = None;
                    if committed {
                        s.end(&self.transactional_id, true);
                    }
                    unknown("the test asked for a lost answer")
                }
            }
        })
    }
}

#[async_trait]
impl EpochWriter for MemoryWriter {
    fn transactional_id(&self) -> &str {
        &self.transactional_id
    }

    async fn init(&mut self) -> Result<(), LogError> {
        let epoch =
            self.log.change(|s| if s.unavailable { Err(down()) } else { Ok(s.init(&self.transactional_id)) })?;
        self.epoch = Some(epoch);
        Ok(())
    }

    async fn commit(&mut self, batches: &[OutBatch]) -> CommitOutcome {
        let Some(epoch) = self.epoch else {
            return CommitOutcome::Aborted(LogError::new(ErrorKind::Invalid, "commit without init"));
        };
        let (txn, offsets) = match self.send(epoch, batches) {
            Ok(sent) => sent,
            Err(outcome) => return outcome,
        };
        let gate = self.log.lock().gate.clone();
        if let Some(gate) = gate {
            gate.pass().await;
        }
        self.end(epoch, txn, offsets)
    }
}

#[derive(Debug)]
pub(super) struct MemoryProducer(pub(super) MemoryLog);

#[async_trait]
impl Producer for MemoryProducer {
    async fn produce(&self, batch: &OutBatch) -> Result<Vec<i64>, LogError> {
        self.0.change(|s| {
            if s.unavailable {
                return Err(down());
            }
            s.check(batch)?;
            Ok(s.append(batch, None))
        })
    }
}
