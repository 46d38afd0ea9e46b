//! `millstream topic consume`: readers of all partitions -> one printer. A task per partition hands events over a short channel; the printer decides what is
//! shown and when it is enough. Without `--follow` the ends are those that were there at the start, and a partition is done when its *position* reaches its
//! end: control records and aborted ones at the tail are passed without a record (K1).

use std::{
    collections::BTreeSet,
    io::{self, Write},
    process::ExitCode,
    sync::Arc,
};

use millstream_types::{LogEvent, LogSystem, Offset, PartitionOffsets, RawBatch, TopicPartition, error::chain};
use tokio::{sync::mpsc, task::JoinSet};

use super::{
    place::{Bounds, Place, first_offset},
    record,
};
use crate::{
    cli::topic::{ConsumeArgs, Isolation, RecordOutput},
    command::complain,
};

/// Events between the readers and the printer.
const AHEAD: usize = 4;

struct Part {
    partition: i32,
    first: i64,
    /// Captured at the start; `None` with `--follow`.
    end: Option<i64>,
}

pub(crate) async fn run(logs: Arc<dyn LogSystem>, args: &ConsumeArgs) -> Result<ExitCode, String> {
    let parts = parts(logs.as_ref(), args).await?;
    let mut printer = Printer { out: io::stdout(), text: Vec::new(), output: args.output, left: args.count };
    let done = tokio::select! {
        done = print_all(logs, args, parts, &mut printer) => done,
        interrupted = tokio::signal::ctrl_c() => interrupted.map_err(|e| e.to_string()),
    };
    // Whatever was found is shown, also before an error.
    let flushed = printer.flush();
    done?;
    flushed.map(|_| ExitCode::SUCCESS)
}

async fn parts(logs: &dyn LogSystem, args: &ConsumeArgs) -> Result<Vec<Part>, String> {
    let admin = logs.admin();
    let offsets = match admin.describe(&args.topic).await.map_err(|e| chain(&e))? {
        Some(_) => admin.offsets(&args.topic).await.map_err(|e| chain(&e))?,
        None => return Err(super::missing(&args.topic)),
    };
    let at_time = match args.from {
        Place::Time(ms) => Some(admin.offsets_at(&args.topic, ms).await.map_err(|e| chain(&e))?),
        _ => None,
    };
    let all: Vec<i32> = (0..offsets.len() as i32).collect();
    let wanted = if args.partitions.is_empty() { &all } else { &args.partitions };
    let part = |p: &i32| {
        let found = offsets.get(*p as usize).ok_or_else(|| {
            format!("topic {} has {} partitions, there is no partition {p}", args.topic, offsets.len())
        })?;
        let bounds = bounds(found, args.isolation);
        let at_time = at_time.as_ref().and_then(|all| all.get(*p as usize)).map(|o| o.0);
        let first = first_offset(args.from, bounds, at_time).map_err(|e| format!("{e} in partition {p}"))?;
        Ok(Part { partition: *p, first, end: (!args.follow).then_some(bounds.end) })
    };
    let wanted: BTreeSet<&i32> = wanted.iter().collect();
    wanted.into_iter().map(part).collect()
}

fn bounds(offsets: &PartitionOffsets, isolation: Isolation) -> Bounds {
    let end = match isolation {
        Isolation::Committed => offsets.stable,
        Isolation::Uncommitted => offsets.high_watermark,
    };
    Bounds { start: offsets.start.0, end: end.0 }
}

async fn print_all(
    logs: Arc<dyn LogSystem>,
    args: &ConsumeArgs,
    parts: Vec<Part>,
    printer: &mut Printer<impl Write>,
) -> Result<(), String> {
    let (events, mut received) = mpsc::channel(AHEAD);
    // Dropped at the end, which ends the readers.
    let mut readers = JoinSet::new();
    let mut open = Vec::new();
    for part in parts.into_iter().filter(|p| p.end.is_none_or(|end| p.first < end)) {
        let log = logs.log(&TopicPartition::new(args.topic.as_str(), part.partition));
        let mut reader = log.read(Offset(part.first)).await.map_err(|e| chain(&e))?;
        let (events, index) = (events.clone(), open.len());
        readers.spawn(async move { while events.send((index, reader.next().await)).await.is_ok() {} });
        open.push(Some(part));
    }
    drop(events);
    while printer.wants_more() && open.iter().any(Option::is_some) {
        let Ok(event) = received.try_recv() else {
            // Nothing is waiting: now is the time to show what was found.
            if !printer.flush()? {
                return Ok(());
            }
            let Some((index, event)) = received.recv().await else { return Ok(()) };
            handle(&mut open[index], event, printer)?;
            continue;
        };
        handle(&mut open[event.0], event.1, printer)?;
    }
    Ok(())
}

/// One event of a partition; a partition that has reached its end becomes `None`.
fn handle(part: &mut Option<Part>, event: LogEvent, printer: &mut Printer<impl Write>) -> Result<(), String> {
    let Some(Part { end, .. }) = part else { return Ok(()) };
    let end = *end;
    let position = match event {
        LogEvent::Records(batch) => {
            printer.batch(&batch, end)?;
            batch.next
        }
        LogEvent::Position { next } => next,
        LogEvent::EndReached { end } => end,
        LogEvent::OutOfRange { wanted, start, end } => {
            return Err(format!(
                "offset {wanted} is no longer in the log, which has {start}..{end}: retention was faster"
            ));
        }
        LogEvent::Failed(e) if e.kind == millstream_types::ErrorKind::Unavailable => {
            complain(format_args!("waiting: {}", chain(&e)));
            return Ok(());
        }
        LogEvent::Failed(e) => return Err(chain(&e)),
    };
    if end.is_some_and(|end| position.0 >= end) {
        *part = None;
    }
    Ok(())
}

/// Lines are collected and written in large pieces.
struct Printer<W> {
    out: W,
    text: Vec<u8>,
    output: RecordOutput,
    /// Records until `--count` is reached.
    left: Option<u64>,
}

impl<W: Write> Printer<W> {
    const PIECE: usize = 64 << 10;

    fn wants_more(&self) -> bool {
        self.left != Some(0)
    }

    fn batch(&mut self, batch: &RawBatch, end: Option<i64>) -> Result<(), String> {
        for (i, offset) in batch.offsets.iter().enumerate() {
            if end.is_some_and(|end| *offset >= end) || !self.wants_more() {
                break;
            }
            record::write(&mut self.text, batch, i, self.output);
            self.left = self.left.map(|n| n - 1);
            if self.text.len() >= Self::PIECE && !self.flush()? {
                self.left = Some(0);
            }
        }
        Ok(())
    }

    /// `false` = nobody reads any more, which is a clean end.
    fn flush(&mut self) -> Result<bool, String> {
        let written = self.out.write_all(&self.text).and_then(|()| self.out.flush());
        self.text.clear();
        match written {
            Ok(()) => Ok(true),
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(false),
            Err(e) => Err(format!("the output cannot be written: {e}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printer(left: Option<u64>) -> Printer<Vec<u8>> {
        Printer { out: Vec::new(), text: Vec::new(), output: RecordOutput::Value, left }
    }

    fn batch(offsets: &[i64], next: i64) -> RawBatch {
        let mut b = RawBatch::new(TopicPartition::new("t", 0), Offset(next));
        for o in offsets {
            b.offsets.push(*o);
            b.timestamps.push(0);
            b.keys.push(None);
            b.values.push(Some(o.to_string().as_bytes()));
        }
        b
    }

    fn part(end: Option<i64>) -> Option<Part> {
        Some(Part { partition: 0, first: 0, end })
    }

    #[test]
    fn a_partition_is_done_at_its_captured_end_by_position_alone() {
        let (mut p, mut open) = (printer(None), part(Some(5)));
        handle(&mut open, LogEvent::Records(batch(&[0, 1], 2)), &mut p).unwrap();
        assert!(open.is_some());
        // Offsets 2 to 4 were an aborted transaction and its marker.
        handle(&mut open, LogEvent::Position { next: Offset(5) }, &mut p).unwrap();
        assert!(open.is_none());
        p.flush().unwrap();
        assert_eq!(p.out, b"0\n1\n");
    }

    #[test]
    fn records_after_the_captured_end_or_beyond_the_count_are_not_shown() {
        let (mut p, mut open) = (printer(None), part(Some(2)));
        handle(&mut open, LogEvent::Records(batch(&[0, 1, 2, 3], 4)), &mut p).unwrap();
        p.flush().unwrap();
        assert_eq!((open.is_none(), p.out.as_slice()), (true, &b"0\n1\n"[..]));
        let (mut p, mut open) = (printer(Some(1)), part(None));
        handle(&mut open, LogEvent::Records(batch(&[0, 1], 2)), &mut p).unwrap();
        p.flush().unwrap();
        assert_eq!((p.wants_more(), p.out.as_slice()), (false, &b"0\n"[..]));
    }

    #[test]
    fn a_position_that_retention_took_is_an_error() {
        let event = LogEvent::OutOfRange { wanted: Offset(1), start: Offset(5), end: Offset(9) };
        assert!(handle(&mut part(None), event, &mut printer(None)).unwrap_err().contains("5..9"));
    }
}
