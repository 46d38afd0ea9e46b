//! `millstream topic consume`: readers of all partitions -> one printer. A task per partition hands events over a short channel; the printer decides what is
//! shown and when it is enough. Without `--follow` the ends are those that were there at the start, and a partition is done when its *position* reaches its
//! end: control records and aborted ones at the tail are passed without a record (K1). Then silence has a limit, too: whoever waits for an end wants one.

use std::{
    collections::BTreeSet,
    io::{self, IsTerminal, Write},
    process::ExitCode,
    time::Duration,
};

use futures::{StreamExt, TryStreamExt, stream};
use millstream_types::{
    ErrorKind, LogError, LogEvent, Offset, PartitionOffsets, RawBatch, TopicPartition, error::chain,
};
use tokio::{
    sync::mpsc,
    task::JoinSet,
    time::{Instant, timeout, timeout_at},
};

use super::{
    Cluster, last,
    place::{Bounds, Place, first_offset},
    record,
};
use crate::{
    cli::topic::{ConsumeArgs, Isolation, RecordOutput},
    command::{Unwritten, complain, escape},
};

/// Events between the readers and the printer.
const AHEAD: usize = 4;
/// Partitions whose last records are looked for at once.
const AT_ONCE: usize = 8;
/// How long a followed topic may be quiet until it is looked at.
const LOOK: Duration = Duration::from_secs(5);

struct Part {
    partition: i32,
    first: i64,
    /// Captured at the start; `None` with `--follow`.
    end: Option<i64>,
}

/// Why reading does not go on.
#[derive(Debug)]
pub(super) enum Trouble {
    /// The position is not in the log any more.
    Outside {
        wanted: i64,
        start: i64,
        end: i64,
    },
    /// What does not heal by itself.
    Final(LogError),
    /// Nothing came for too long; the last that was heard of it.
    Silence(Option<LogError>),
    Deleted,
    MadeAgain,
    Said(String),
}

impl From<String> for Trouble {
    fn from(text: String) -> Self {
        Trouble::Said(text)
    }
}

impl Trouble {
    /// An event that is no progress: told if it heals by itself, else an error.
    pub(super) fn unless_it_heals(event: LogEvent) -> Result<Option<LogError>, Trouble> {
        match event {
            LogEvent::Failed(e) if e.kind == ErrorKind::Unavailable => {
                complain(format_args!("waiting: {}", escape::line(&chain(&e))));
                Ok(Some(e))
            }
            LogEvent::Failed(e) => Err(Trouble::Final(e)),
            LogEvent::OutOfRange { wanted, start, end } => {
                Err(Trouble::Outside { wanted: wanted.0, start: start.0, end: end.0 })
            }
            LogEvent::Records(_) | LogEvent::Position { .. } | LogEvent::EndReached { .. } => Ok(None),
        }
    }

    /// As a sentence. The topic is looked at again: a reader of a deleted one sees only that its position is gone.
    async fn explained(self, cluster: &Cluster, args: &ConsumeArgs) -> String {
        let topic = &args.topic;
        let gone = matches!(self, Trouble::Outside { .. } | Trouble::Final(_) | Trouble::Silence(_))
            && matches!(cluster.logs.admin().describe(topic).await, Ok(None));
        match if gone { Trouble::Deleted } else { self } {
            Trouble::Deleted => format!("topic {topic:?} was deleted while it was read"),
            Trouble::MadeAgain => format!("topic {topic:?} was deleted and made again while it was read"),
            Trouble::Outside { wanted, start, end } if wanted < start => {
                format!("offset {wanted} is no longer in the log, which has {start}..{end}: retention was faster")
            }
            Trouble::Outside { wanted, start, end } => format!(
                "offset {wanted} is behind the log, which has {start}..{end} now: the topic was deleted and made again, or a broker lost its end"
            ),
            Trouble::Final(e) => cluster.failed(&e),
            Trouble::Silence(last) => {
                let why = last.map_or_else(String::new, |e| format!(" ({})", chain(&e)));
                cluster.unreachable(&format!(
                    "gave up after {} s without an answer before the end was reached{why}; --timeout allows more",
                    args.timeout
                ))
            }
            Trouble::Said(text) => text,
        }
    }
}

pub(crate) async fn run(cluster: &Cluster, args: &ConsumeArgs) -> Result<ExitCode, String> {
    let mut printer = Printer {
        out: io::stdout(),
        text: Vec::new(),
        output: args.output,
        terminal: io::stdout().is_terminal(),
        left: args.count,
    };
    let reading = async {
        let (parts, topic_id) = parts(cluster, args).await?;
        print_all(cluster, args, parts, &topic_id, &mut printer).await
    };
    let done = tokio::select! {
        done = reading => done,
        interrupted = tokio::signal::ctrl_c() => interrupted.map_err(|e| Trouble::Said(e.to_string())),
    };
    // Whatever was found is shown, also before an error.
    let flushed = printer.flush();
    if let Err(trouble) = done {
        return Err(trouble.explained(cluster, args).await);
    }
    flushed.map(|_| ExitCode::SUCCESS)
}

/// What is read, and the id of the topic.
async fn parts(cluster: &Cluster, args: &ConsumeArgs) -> Result<(Vec<Part>, String), Trouble> {
    let admin = cluster.logs.admin();
    let info = admin.describe(&args.topic).await.map_err(|e| cluster.failed(&e))?;
    let info = info.ok_or_else(|| super::missing(&args.topic))?;
    let offsets = admin.offsets(&args.topic).await.map_err(|e| cluster.failed(&e))?;
    let at_time = match args.from {
        Place::Time(ms) => Some(admin.offsets_at(&args.topic, ms).await.map_err(|e| cluster.failed(&e))?),
        _ => None,
    };
    let all: Vec<i32> = (0..offsets.len() as i32).collect();
    let wanted = if args.partitions.is_empty() { &all } else { &args.partitions };
    let wanted: BTreeSet<i32> = wanted.iter().copied().collect();
    let part = |p: i32| part(cluster, args, &offsets, at_time.as_deref(), p);
    let parts = stream::iter(wanted.into_iter().map(part)).buffered(AT_ONCE).try_collect().await?;
    Ok((parts, info.topic_id))
}

/// Where reading partition `p` begins and ends.
async fn part(
    cluster: &Cluster,
    args: &ConsumeArgs,
    offsets: &[PartitionOffsets],
    at_time: Option<&[Offset]>,
    p: i32,
) -> Result<Part, Trouble> {
    let found = usize::try_from(p).ok().and_then(|p| offsets.get(p));
    let found = found
        .ok_or_else(|| format!("topic {} has {} partitions, there is no partition {p}", args.topic, offsets.len()))?;
    let bounds = bounds(found, args.isolation);
    let first = match args.from {
        Place::Last(n) => {
            let log = cluster.logs.log(&TopicPartition::new(args.topic.as_str(), p));
            last::first_of(n, log.as_ref(), bounds, silence(args)).await?
        }
        place => {
            let at_time = at_time.and_then(|all| all.get(p as usize)).map(|o| o.0);
            first_offset(place, bounds, at_time).map_err(|e| format!("{e} in partition {p}"))?
        }
    };
    Ok(Part { partition: p, first, end: (!args.follow).then_some(bounds.end) })
}

fn bounds(offsets: &PartitionOffsets, isolation: Isolation) -> Bounds {
    let end = match isolation {
        Isolation::Committed => offsets.stable,
        Isolation::Uncommitted => offsets.high_watermark,
    };
    Bounds { start: offsets.start.0, end: end.0 }
}

/// How long nothing may come; who follows waits for ever.
fn silence(args: &ConsumeArgs) -> Option<Duration> {
    (!args.follow).then(|| Duration::from_secs(args.timeout))
}

async fn print_all(
    cluster: &Cluster,
    args: &ConsumeArgs,
    parts: Vec<Part>,
    topic_id: &str,
    printer: &mut Printer<impl Write>,
) -> Result<(), Trouble> {
    let (events, mut received) = mpsc::channel(AHEAD);
    // Dropped at the end, which ends the readers.
    let mut readers = JoinSet::new();
    let mut open = Vec::new();
    for part in parts.into_iter().filter(|p| p.end.is_none_or(|end| p.first < end)) {
        let log = cluster.logs.log(&TopicPartition::new(args.topic.as_str(), part.partition));
        let mut reader = log.read(Offset(part.first)).await.map_err(Trouble::Final)?;
        let (events, index) = (events.clone(), open.len());
        readers.spawn(async move { while events.send((index, reader.next().await)).await.is_ok() {} });
        open.push(Some(part));
    }
    drop(events);
    let limit = silence(args);
    let (mut heard, mut last) = (Instant::now(), None);
    while printer.wants_more() && open.iter().any(Option::is_some) {
        let (index, event) = match received.try_recv() {
            Ok(event) => event,
            Err(_) => {
                // Nothing is waiting: now is the time to show what was found. A pager may take its time for it.
                let before = Instant::now();
                if !printer.flush()? {
                    return Ok(());
                }
                heard += before.elapsed();
                let next = match limit {
                    None => followed(cluster, &args.topic, topic_id, &mut received).await?,
                    Some(limit) => {
                        timeout_at(heard + limit, received.recv()).await.map_err(|_| Trouble::Silence(last.take()))?
                    }
                };
                let Some(event) = next else { return Ok(()) };
                event
            }
        };
        match handle(&mut open[index], event, printer)? {
            Some(trouble) => last = Some(trouble),
            None => heard = Instant::now(),
        }
    }
    Ok(())
}

/// The next event of a topic that is followed. Readers say nothing of a topic that is deleted, so a quiet one is looked at from time to time.
async fn followed<T>(
    cluster: &Cluster,
    topic: &str,
    topic_id: &str,
    received: &mut mpsc::Receiver<T>,
) -> Result<Option<T>, Trouble> {
    let mut missed = false;
    loop {
        if let Ok(event) = timeout(LOOK, received.recv()).await {
            return Ok(event);
        }
        match cluster.logs.admin().describe(topic).await {
            // One look alone may have asked a broker that has not heard of it yet.
            Ok(None) if missed => return Err(Trouble::Deleted),
            Ok(None) => missed = true,
            Ok(Some(now)) if now.topic_id != topic_id => return Err(Trouble::MadeAgain),
            // Whether brokers can be reached is the readers' news.
            Ok(Some(_)) | Err(_) => missed = false,
        }
    }
}

/// One event of a partition; a partition that has reached its end becomes `None`. Answers with what heals by itself.
fn handle(
    part: &mut Option<Part>,
    event: LogEvent,
    printer: &mut Printer<impl Write>,
) -> Result<Option<LogError>, Trouble> {
    let Some(Part { end, .. }) = part else { return Ok(None) };
    let end = *end;
    let position = match event {
        LogEvent::Records(batch) => {
            printer.batch(&batch, end)?;
            batch.next
        }
        LogEvent::Position { next } => next,
        LogEvent::EndReached { end } => end,
        other => return Trouble::unless_it_heals(other),
    };
    if end.is_some_and(|end| position.0 >= end) {
        *part = None;
    }
    Ok(None)
}

/// Lines are collected and written in large pieces.
struct Printer<W> {
    out: W,
    text: Vec<u8>,
    output: RecordOutput,
    /// A person looks at it.
    terminal: bool,
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
            record::write(&mut self.text, batch, i, self.output, self.terminal);
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
        match written.map_err(Unwritten::from) {
            Ok(()) => Ok(true),
            Err(Unwritten::Closed) => Ok(false),
            Err(e) => Err(e.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printer(left: Option<u64>) -> Printer<Vec<u8>> {
        Printer { out: Vec::new(), text: Vec::new(), output: RecordOutput::Value, terminal: false, left }
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
    fn what_heals_is_handed_back_and_the_rest_is_an_error() {
        let mut p = printer(None);
        let failed = |kind| LogEvent::Failed(LogError::new(kind, "no broker"));
        assert!(handle(&mut part(None), failed(ErrorKind::Unavailable), &mut p).unwrap().is_some());
        assert!(matches!(handle(&mut part(None), failed(ErrorKind::NotFound), &mut p), Err(Trouble::Final(_))));
        let event = LogEvent::OutOfRange { wanted: Offset(1), start: Offset(5), end: Offset(9) };
        let trouble = handle(&mut part(None), event, &mut p).unwrap_err();
        assert!(matches!(trouble, Trouble::Outside { wanted: 1, start: 5, end: 9 }));
    }
}
