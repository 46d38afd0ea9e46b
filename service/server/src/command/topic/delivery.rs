//! What became of each record of `topic produce`: delivered, refused, or not known. Owns: how that is told.

use std::{collections::BTreeMap, ops::RangeInclusive};

use futures::{
    future::{join_all, maybe_done},
    poll,
};
use millstream_types::{ErrorKind, LogError, OutBatch, Producer, error::chain};
use tokio::task::unconstrained;

use crate::command::{Unwritten, write_out};

/// Each record is a call of its own, because a call of many tells only how many failed. Answers come in the order of the records: an offset each.
pub(super) async fn deliver(producer: &dyn Producer, records: &[OutBatch]) -> Vec<Result<i64, LogError>> {
    let mut calls: Vec<_> = records.iter().map(|record| Box::pin(maybe_done(producer.produce(record)))).collect();
    // The first poll hands the record to the client: all of them, in order, before any answer is awaited.
    let mut waiting = Vec::with_capacity(calls.len());
    for call in &mut calls {
        if poll!(call.as_mut()).is_pending() {
            waiting.push(call.as_mut());
        }
    }
    unconstrained(join_all(waiting)).await;
    let answers = calls.iter_mut().map(|call| {
        let answer = call.as_mut().take_output().expect("all were awaited");
        answer.map(|offsets| offsets.first().copied().unwrap_or(-1))
    });
    answers.collect()
}

/// Records by partition.
pub(super) struct Delivered(Vec<u64>);

impl Delivered {
    pub(super) fn new(partitions: i32) -> Self {
        Self(vec![0; usize::try_from(partitions).unwrap_or(0)])
    }

    pub(super) fn count(&mut self, partition: i32) {
        self.0[partition as usize] += 1;
    }

    pub(super) fn summary(&self, topic: &str) -> String {
        let all: u64 = self.0.iter().sum();
        let by_partition: Vec<String> =
            self.0.iter().enumerate().filter(|(_, n)| **n > 0).map(|(p, n)| format!("{p}: {n}")).collect();
        let plural = if all == 1 { "" } else { "s" };
        let partitions = if by_partition.is_empty() {
            String::new()
        } else {
            format!(" (by partition {})", by_partition.join(", "))
        };
        format!("{all} record{plural} delivered to {topic}{partitions}")
    }
}

/// `--acks`: partition and offset of each delivered record. That they cannot be written is no reason to deliver less.
#[derive(Default)]
pub(super) struct Acks {
    wanted: bool,
    text: String,
    failed: Option<Unwritten>,
}

impl Acks {
    pub(super) fn wanted() -> Self {
        Self { wanted: true, ..Self::default() }
    }

    pub(super) fn push(&mut self, partition: i32, offset: i64) {
        if self.wanted {
            self.text.push_str(&format!("{partition}\t{offset}\n"));
        }
    }

    pub(super) fn write(&mut self) {
        if !self.text.is_empty()
            && let Err(e) = write_out(self.text.as_bytes())
        {
            self.wanted = false;
            self.failed = Some(e);
        }
        self.text.clear();
    }

    /// Who closed the pipe has what he wanted; anything else is an error.
    pub(super) fn written(self) -> Result<(), String> {
        match self.failed {
            None | Some(Unwritten::Closed) => Ok(()),
            Some(e) => Err(format!("{e}: the acknowledgements from there on are missing, the count is right")),
        }
    }
}

/// Lines whose records were not delivered, by what is known of them.
#[derive(Default)]
pub(super) struct Lost(BTreeMap<(bool, String), Vec<u64>>);

impl Lost {
    pub(super) fn push(&mut self, line: u64, e: &LogError) {
        // The call's own words count its one record.
        let why = e.source.as_ref().map_or_else(|| chain(e), |source| chain(source.as_ref()));
        self.0.entry((e.kind == ErrorKind::Unknown, why)).or_default().push(line);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// `last` is the line up to which records were sent.
    pub(super) fn told(&self, last: u64) -> String {
        let mut text = String::new();
        for ((maybe, why), lines) in &self.0 {
            let lines = ranges_of(lines);
            let remedy = if why.contains("MessageTimedOut") {
                "; the brokers did not acknowledge it in time: they are away, too slow, or cannot write (a full disk), which their log tells"
            } else {
                ""
            };
            if *maybe {
                text.push_str(&format!("{lines}: not known whether delivered: {why}{remedy}\n"));
            } else {
                text.push_str(&format!("{lines}: not delivered: {why}\n"));
            }
        }
        text.push_str(&format!("what comes after line {last} was not sent"));
        text
    }
}

/// `line 4` or `lines 4-6`.
pub(super) fn ranges(lines: RangeInclusive<u64>) -> String {
    ranges_of(&lines.collect::<Vec<u64>>())
}

/// `lines 1, 4-6`; `lines` rise.
fn ranges_of(lines: &[u64]) -> String {
    let runs = lines.chunk_by(|a, b| a + 1 == *b).map(|run| match run {
        [first, .., last] => format!("{first}-{last}"),
        _ => run[0].to_string(),
    });
    format!("line{} {}", if lines.len() == 1 { "" } else { "s" }, runs.collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use async_trait::async_trait;

    use super::*;

    /// Answers the later records first, refuses the value `bad` and does not know about `maybe`.
    #[derive(Debug, Default)]
    struct Fake(Mutex<Vec<Vec<u8>>>);

    #[async_trait]
    impl Producer for Fake {
        async fn produce(&self, batch: &OutBatch) -> Result<Vec<i64>, LogError> {
            let value = batch.values.get(0).unwrap().to_vec();
            let n = {
                let mut taken = self.0.lock().unwrap();
                taken.push(value.clone());
                taken.len()
            };
            for _ in n..10 {
                tokio::task::yield_now().await;
            }
            let failed = |kind| Err(LogError::new(kind, "1 of 1 records").caused_by("because"));
            match value.as_slice() {
                b"bad" => failed(ErrorKind::Invalid),
                b"maybe" => failed(ErrorKind::Unknown),
                _ => Ok(vec![n as i64 + 99]),
            }
        }
    }

    #[tokio::test]
    async fn records_are_handed_over_in_order_and_each_has_its_answer() {
        let fake = Fake::default();
        let values = ["a", "bad", "b", "maybe", "bad", "bad"];
        let record = |v: &&str| {
            let mut record = OutBatch::new("t", 0);
            record.push(0, None, Some(v.as_bytes()));
            record
        };
        let answers = deliver(&fake, &values.iter().map(record).collect::<Vec<_>>()).await;
        assert_eq!(fake.0.lock().unwrap().as_slice(), values.map(|v| v.as_bytes().to_vec()));
        let offsets: Vec<Option<i64>> = answers.iter().map(|a| a.as_ref().ok().copied()).collect();
        assert_eq!(offsets, [Some(100), None, Some(102), None, None, None]);
        let mut lost = Lost::default();
        for (line, answer) in (7..).zip(&answers) {
            if let Err(e) = answer {
                lost.push(line, e);
            }
        }
        let expected = "lines 8, 11-12: not delivered: because\nline 10: not known whether delivered: because\nwhat comes after line 12 was not sent";
        assert_eq!(lost.told(12), expected);
        let mut late = Lost::default();
        late.push(1, &LogError::new(ErrorKind::Unknown, "1 of 1").caused_by("MessageTimedOut (Local: timed out)"));
        assert!(late.told(1).contains("a full disk"));
    }

    #[test]
    fn the_summary_counts_by_partition() {
        assert_eq!(Delivered(vec![2, 0, 1]).summary("t"), "3 records delivered to t (by partition 0: 2, 2: 1)");
        assert_eq!(Delivered(vec![0]).summary("t"), "0 records delivered to t");
    }
}
