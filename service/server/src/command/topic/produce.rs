//! `millstream topic produce`: lines -> records. A thread reads the lines, so that what is typed or piped slowly goes out at once and a file in large batches;
//! each batch is acknowledged by all in-sync replicas before the next one is sent, which keeps the order.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, IsTerminal, Read},
    path::Path,
    process::ExitCode,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use bytes::Bytes;
use millstream_format::partition_for_key;
use millstream_types::{LogSystem, OutBatch, error::chain};
use tokio::sync::mpsc;

use super::missing;
use crate::{
    cli::topic::ProduceArgs,
    command::{complain, say},
};

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
    acks: bool,
}

/// What was delivered, by partition.
#[derive(Default)]
struct Delivered(Vec<u64>);

pub(crate) async fn run(logs: Arc<dyn LogSystem>, args: &ProduceArgs) -> Result<ExitCode, String> {
    let info = logs.admin().describe(&args.topic).await.map_err(|e| chain(&e))?.ok_or_else(|| missing(&args.topic))?;
    if let Some(p) = args.partition.filter(|p| *p >= info.partitions) {
        return Err(format!("topic {} has {} partitions, there is no partition {p}", args.topic, info.partitions));
    }
    let shape = shape(args, info.partitions)?;
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
    let mut delivered = Delivered(vec![0; info.partitions as usize]);
    let result = send(logs.as_ref(), &mut received, &mut delivered, args.acks).await;
    complain(delivered.summary(&args.topic));
    result
}

fn shape(args: &ProduceArgs, partitions: i32) -> Result<Shape, String> {
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
        acks: args.acks,
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

async fn send(
    logs: &dyn LogSystem,
    received: &mut mpsc::Receiver<Result<OutBatch, String>>,
    delivered: &mut Delivered,
    acks: bool,
) -> Result<ExitCode, String> {
    let producer = logs.producer();
    let work = async {
        while let Some(batch) = received.recv().await {
            let batch = batch?;
            let offsets = producer.produce(&batch).await.map_err(|e| chain(&e))?;
            for (i, p) in batch.partitions.iter().enumerate() {
                if acks {
                    say(format_args!("{p}\t{}", offsets.get(i).copied().unwrap_or(-1)));
                }
                delivered.0[*p as usize] += 1;
            }
        }
        Ok(ExitCode::SUCCESS)
    };
    tokio::select! {
        done = work => done,
        interrupted = tokio::signal::ctrl_c() => {
            interrupted.map_err(|e| e.to_string())?;
            complain("interrupted: the last batch may have arrived, too");
            Ok(ExitCode::from(INTERRUPTED))
        }
    }
}

impl Delivered {
    fn summary(&self, topic: &str) -> String {
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

/// Reads to the end of the input, or to the first line that is no record: what came before it is sent.
fn read(input: Box<dyn Read + Send>, shape: &Shape, batches: &mpsc::Sender<Result<OutBatch, String>>) {
    let mut input = BufReader::with_capacity(1 << 20, input);
    let mut lines = Lines { shape, number: 0, batch: shape.batch() };
    let mut line = Vec::new();
    loop {
        line.clear();
        let more = (&mut input).take(MAX_LINE as u64).read_until(b'\n', &mut line);
        let full = lines.batch.len() >= BATCH_RECORDS || lines.batch.size_bytes() >= BATCH_BYTES;
        let fault = match more {
            Ok(0) => None,
            Ok(_) => match lines.push(&line) {
                Ok(()) if !full && !input.buffer().is_empty() => continue,
                Ok(()) => {
                    if batches.blocking_send(Ok(std::mem::replace(&mut lines.batch, shape.batch()))).is_err() {
                        return;
                    }
                    continue;
                }
                Err(e) => Some(e),
            },
            Err(e) => Some(format!("the input cannot be read: {e}")),
        };
        // The receiver may be gone already, then nobody waits for these.
        if !lines.batch.is_empty() {
            drop(batches.blocking_send(Ok(lines.batch)));
        }
        if let Some(fault) = fault {
            drop(batches.blocking_send(Err(fault)));
        }
        return;
    }
}

impl Shape {
    fn batch(&self) -> OutBatch {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as i64);
        let mut batch = OutBatch::new(Arc::clone(&self.topic), now);
        batch.headers.clone_from(&self.headers);
        batch.want_offsets = self.acks;
        batch
    }
}

struct Lines<'a> {
    shape: &'a Shape,
    number: u64,
    batch: OutBatch,
}

impl Lines<'_> {
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
        self.batch.push(partition, key, value);
        Ok(())
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
            acks: false,
        }
    }

    /// Everything that the reading thread would hand over.
    fn all(shape: &Shape, input: &'static str) -> Vec<Result<OutBatch, String>> {
        let (sender, mut receiver) = mpsc::channel(8);
        read(Box::new(input.as_bytes()), shape, &sender);
        drop(sender);
        std::iter::from_fn(|| receiver.blocking_recv()).collect()
    }

    #[test]
    fn a_line_is_a_key_and_a_value_and_an_empty_value_can_be_a_tombstone() {
        let got = all(&shape_of(Some("::"), true), "a::1::2\r\nb::\nc::3");
        let batches: Vec<&OutBatch> = got.iter().map(|b| b.as_ref().unwrap()).collect();
        let records: Vec<_> = batches.iter().flat_map(|b| b.keys.iter().zip(b.values.iter())).collect();
        assert_eq!(records, [(Some(&b"a"[..]), Some(&b"1::2"[..])), (Some(b"b"), None), (Some(b"c"), Some(b"3"))]);
        assert_eq!(batches[0].partitions[0], partition_for_key(b"a", 3));
    }

    #[test]
    fn lines_without_keys_go_round_and_empty_ones_are_records() {
        let got = all(&shape_of(None, false), "x\n\ny\nz\n");
        let partitions: Vec<i32> = got.iter().flat_map(|b| b.as_ref().unwrap().partitions.clone()).collect();
        assert_eq!(partitions, [0, 1, 2, 0]);
    }

    #[test]
    fn a_line_that_is_no_record_ends_it_after_the_ones_before() {
        let got = all(&shape_of(Some("="), false), "a=1\nb\nc=2\n");
        assert_eq!(got[0].as_ref().unwrap().len(), 1);
        assert!(got[1].as_ref().unwrap_err().contains("line 2"));
        assert_eq!(got.len(), 2);
    }

    #[test]
    fn the_summary_counts_by_partition() {
        assert_eq!(Delivered(vec![2, 0, 1]).summary("t"), "3 records delivered to t (by partition 0: 2, 2: 1)");
        assert_eq!(Delivered(vec![0]).summary("t"), "0 records delivered to t");
    }
}
