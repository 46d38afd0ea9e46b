//! `millstream topic produce`: lines -> records. A thread reads the lines, so that what is typed or piped slowly goes out at once and a file in large batches;
//! each batch is acknowledged by all in-sync replicas before the next one is sent, which keeps the order. Each record has an answer of its own: what was not
//! delivered is told by its line ([`delivery`]), and what is counted as delivered is there.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, BufRead, BufReader, IsTerminal, Read},
    path::Path,
    process::ExitCode,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use bytes::Bytes;
use millstream_format::partition_for_key;
use millstream_types::{OutBatch, Producer};
use tokio::sync::mpsc;

use super::{
    Cluster,
    delivery::{Acks, Delivered, Lost, deliver, ranges},
    missing,
};
use crate::{cli::topic::ProduceArgs, command::complain};

/// A batch is sent when it has so many records or bytes, or when no more input is there at the moment.
const BATCH_RECORDS: usize = 20_000;
const BATCH_BYTES: usize = 4 << 20;
/// Batches read ahead.
const AHEAD: usize = 2;
/// Above what the client takes for one record; a line beyond it is an error instead of all memory.
const MAX_LINE: usize = 16 << 20;
/// Exit code of a process that Ctrl-C ended, as shells count it.
const INTERRUPTED: u8 = 130;

/// How a line becomes a record.
struct Shape {
    topic: Arc<str>,
    separator: Option<Vec<u8>>,
    key: Option<Vec<u8>>,
    tombstones: bool,
    headers: Vec<(String, Bytes)>,
    partition: Option<i32>,
    partitions: i32,
    limits: Limits,
}

/// Of one batch.
#[derive(Clone, Copy)]
struct Limits {
    records: usize,
    bytes: usize,
}

impl Limits {
    /// A batch fits into the client's queue, whatever the user made of it: records that wait for room there could pass one another.
    fn of(properties: &BTreeMap<String, String>) -> Self {
        let set = |name: &str| properties.get(name).and_then(|v| v.parse::<usize>().ok()).unwrap_or(usize::MAX);
        Self {
            records: BATCH_RECORDS.min(set("queue.buffering.max.messages")).max(1),
            bytes: BATCH_BYTES.min(set("queue.buffering.max.kbytes").saturating_mul(1 << 10) / 2).max(1),
        }
    }
}

/// Records of the lines from `first` on, one a line.
struct Batch {
    first: u64,
    records: Vec<OutBatch>,
    bytes: usize,
}

impl Batch {
    fn last(&self) -> u64 {
        self.first + self.records.len() as u64 - 1
    }
}

/// What is known of the records so far.
struct Progress {
    delivered: Delivered,
    acks: Acks,
    /// Lines that are on their way.
    sent: Option<(u64, u64)>,
}

pub(crate) async fn run(cluster: &Cluster, args: &ProduceArgs) -> Result<ExitCode, String> {
    let info = cluster.logs.admin().describe(&args.topic).await.map_err(|e| cluster.failed(&e))?;
    let info = info.ok_or_else(|| missing(&args.topic))?;
    if let Some(p) = args.partition.filter(|p| *p >= info.partitions) {
        return Err(format!("topic {} has {} partitions, there is no partition {p}", args.topic, info.partitions));
    }
    let shape = shape(args, info.partitions, Limits::of(&cluster.properties))?;
    let file = args.file.as_deref().filter(|f| f.as_os_str() != "-");
    let input = open(file)?;
    if file.is_none() && io::stdin().is_terminal() {
        complain("a record per line; end with Ctrl-D");
    }
    let (batches, mut received) = mpsc::channel(AHEAD);
    // The thread may sit in a read that never ends; the process does not wait for it.
    std::thread::Builder::new()
        .name("lines".into())
        .spawn(move || read(input, &shape, &batches))
        .map_err(|e| e.to_string())?;
    let mut progress = Progress {
        delivered: Delivered::new(info.partitions),
        acks: if args.acks { Acks::wanted() } else { Acks::default() },
        sent: None,
    };
    let producer = cluster.logs.producer();
    let done = tokio::select! {
        done = send(producer.as_ref(), &mut received, &mut progress) => Some(done),
        interrupted = tokio::signal::ctrl_c() => {
            interrupted.map_err(|e| e.to_string())?;
            None
        }
    };
    if let (None, Some((first, last))) = (&done, progress.sent) {
        complain(format_args!("interrupted: {} may have arrived, too", ranges(first..=last)));
    }
    complain(progress.delivered.summary(&args.topic));
    let written = progress.acks.written();
    match done {
        None => Ok(ExitCode::from(INTERRUPTED)),
        Some(Ok(())) => written.map(|()| ExitCode::SUCCESS),
        Some(Err(e)) => Err(match written {
            Ok(()) => e,
            Err(unwritten) => format!("{e}\n{unwritten}"),
        }),
    }
}

fn shape(args: &ProduceArgs, partitions: i32, limits: Limits) -> Result<Shape, String> {
    let separator = args.key_separator.as_ref().map(|s| s.replace("\\t", "\t").into_bytes());
    if separator.as_ref().is_some_and(Vec::is_empty) {
        return Err("--key-separator is empty".to_owned());
    }
    if args.tombstones && separator.is_none() && args.key.is_none() {
        return Err("--tombstones needs a key: --key-separator or --key".to_owned());
    }
    Ok(Shape {
        topic: args.topic.as_str().into(),
        separator,
        key: args.key.clone().map(String::into_bytes),
        tombstones: args.tombstones,
        headers: args.headers.iter().map(|(n, v)| (n.clone(), Bytes::from(v.clone().into_bytes()))).collect(),
        partition: args.partition,
        partitions,
        limits,
    })
}

fn open(file: Option<&Path>) -> Result<Box<dyn Read + Send>, String> {
    match file {
        None => Ok(Box::new(io::stdin())),
        Some(path) => {
            let file = File::open(path).map_err(|e| format!("cannot read {}: {e}", path.display()))?;
            Ok(Box::new(file))
        }
    }
}

/// Until the input ends. A batch with a record that was not delivered is the last one: what comes after it would be out of order.
async fn send(
    producer: &dyn Producer,
    received: &mut mpsc::Receiver<Result<Batch, String>>,
    progress: &mut Progress,
) -> Result<(), String> {
    while let Some(batch) = received.recv().await {
        let batch = batch?;
        progress.sent = Some((batch.first, batch.last()));
        let answers = deliver(producer, &batch.records).await;
        progress.sent = None;
        let mut lost = Lost::default();
        for (line, (record, answer)) in (batch.first..).zip(batch.records.iter().zip(answers)) {
            let partition = record.partitions[0];
            match answer {
                Ok(offset) => {
                    progress.delivered.count(partition);
                    progress.acks.push(partition, offset);
                }
                Err(e) => lost.push(line, &e),
            }
        }
        progress.acks.write();
        if !lost.is_empty() {
            return Err(lost.told(batch.last()));
        }
    }
    Ok(())
}

/// Reads to the end of the input, or to the first line that is no record: what came before it is sent.
fn read(input: Box<dyn Read + Send>, shape: &Shape, batches: &mpsc::Sender<Result<Batch, String>>) {
    let mut input = BufReader::with_capacity(1 << 20, input);
    let mut lines = Lines { shape, number: 0, batch: Batch { first: 1, records: Vec::new(), bytes: 0 } };
    let mut line = Vec::new();
    loop {
        line.clear();
        let more = (&mut input).take(MAX_LINE as u64).read_until(b'\n', &mut line);
        let fault = match more {
            Ok(0) => None,
            Ok(_) => match lines.push(&line) {
                Ok(()) if !lines.full() && !input.buffer().is_empty() => continue,
                Ok(()) => {
                    if batches.blocking_send(Ok(lines.take())).is_err() {
                        return;
                    }
                    continue;
                }
                Err(e) => Some(e),
            },
            Err(e) => Some(format!("the input cannot be read: {e}")),
        };
        // The receiver may be gone already, then nobody waits for these.
        if !lines.batch.records.is_empty() {
            drop(batches.blocking_send(Ok(lines.take())));
        }
        if let Some(fault) = fault {
            drop(batches.blocking_send(Err(fault)));
        }
        return;
    }
}

struct Lines<'a> {
    shape: &'a Shape,
    number: u64,
    batch: Batch,
}

impl Lines<'_> {
    fn full(&self) -> bool {
        self.batch.records.len() >= self.shape.limits.records || self.batch.bytes >= self.shape.limits.bytes
    }

    fn take(&mut self) -> Batch {
        let next = Batch { first: self.number + 1, records: Vec::new(), bytes: 0 };
        std::mem::replace(&mut self.batch, next)
    }

    fn push(&mut self, line: &[u8]) -> Result<(), String> {
        self.number += 1;
        if line.len() >= MAX_LINE {
            return Err(format!("line {} has more than {MAX_LINE} bytes", self.number));
        }
        let line = line.strip_suffix(b"\n").map_or(line, |l| l.strip_suffix(b"\r").unwrap_or(l));
        let (key, value) = match &self.shape.separator {
            None => (self.shape.key.as_deref(), line),
            Some(separator) => {
                let at = line.windows(separator.len()).position(|w| w == separator).ok_or_else(|| {
                    format!("line {} has no {:?} after a key", self.number, String::from_utf8_lossy(separator))
                })?;
                (Some(&line[..at]), &line[at + separator.len()..])
            }
        };
        let value = (!(self.shape.tombstones && value.is_empty())).then_some(value);
        let partition = match (self.shape.partition, key) {
            (Some(partition), _) => partition,
            (None, Some(key)) => partition_for_key(key, self.shape.partitions),
            (None, None) => ((self.number - 1) % self.shape.partitions as u64) as i32,
        };
        self.batch.bytes += key.map_or(0, <[u8]>::len) + value.map_or(0, <[u8]>::len);
        self.batch.records.push(self.shape.record(partition, key, value));
        Ok(())
    }
}

impl Shape {
    fn record(&self, partition: i32, key: Option<&[u8]>, value: Option<&[u8]>) -> OutBatch {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as i64);
        let mut record = OutBatch::new(Arc::clone(&self.topic), now);
        record.headers.clone_from(&self.headers);
        record.want_offsets = true;
        record.push(partition, key, value);
        record
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape_of(separator: Option<&str>, tombstones: bool) -> Shape {
        Shape {
            topic: "t".into(),
            separator: separator.map(|s| s.as_bytes().to_vec()),
            key: None,
            tombstones,
            headers: Vec::new(),
            partition: None,
            partitions: 3,
            limits: Limits::of(&BTreeMap::new()),
        }
    }

    /// Everything that the reading thread would hand over.
    fn all(shape: &Shape, input: &'static str) -> Vec<Result<Batch, String>> {
        let (sender, mut receiver) = mpsc::channel(8);
        read(Box::new(input.as_bytes()), shape, &sender);
        drop(sender);
        std::iter::from_fn(|| receiver.blocking_recv()).collect()
    }

    #[test]
    fn a_line_is_a_key_and_a_value_and_an_empty_value_can_be_a_tombstone() {
        let got = all(&shape_of(Some("::"), true), "a::1::2\r\nb::\nc::3");
        let sent: Vec<&OutBatch> = got.iter().flat_map(|b| &b.as_ref().unwrap().records).collect();
        let records: Vec<_> = sent.iter().flat_map(|b| b.keys.iter().zip(b.values.iter())).collect();
        assert_eq!(records, [(Some(&b"a"[..]), Some(&b"1::2"[..])), (Some(b"b"), None), (Some(b"c"), Some(b"3"))]);
        assert_eq!(sent[0].partitions[0], partition_for_key(b"a", 3));
    }

    #[test]
    fn lines_without_keys_go_round_and_empty_ones_are_records() {
        let got = all(&shape_of(None, false), "x\n\ny\nz\n");
        let partitions: Vec<i32> =
            got.iter().flat_map(|b| &b.as_ref().unwrap().records).map(|r| r.partitions[0]).collect();
        assert_eq!(partitions, [0, 1, 2, 0]);
    }

    #[test]
    fn a_line_that_is_no_record_ends_it_after_the_ones_before() {
        let got = all(&shape_of(Some("="), false), "a=1\nb\nc=2\n");
        assert_eq!(got[0].as_ref().unwrap().records.len(), 1);
        assert!(got[1].as_ref().is_err_and(|e| e.contains("line 2")));
        assert_eq!(got.len(), 2);
    }

    #[test]
    fn batches_know_their_lines_and_fit_into_a_small_queue() {
        let properties = [("queue.buffering.max.messages".to_owned(), "2".to_owned())].into();
        let shape = Shape { limits: Limits::of(&properties), ..shape_of(None, false) };
        let got = all(&shape, "a\nb\nc\nd\ne\n");
        let lines: Vec<_> = got.iter().map(|b| b.as_ref().map(|b| (b.first, b.last())).unwrap()).collect();
        assert_eq!(lines, [(1, 2), (3, 4), (5, 5)]);
    }
}
