//! The process is killed under load, again and again: no acknowledged record is lost or doubled, no aborted one is seen, transactions and offsets are whole.
//! `BROKER_KILLS=50` for the long run.

use std::{
    collections::BTreeSet,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use rdkafka::{
    ClientContext, Message, Offset, TopicPartitionList,
    consumer::{BaseConsumer, CommitMode, Consumer},
    error::{KafkaError, RDKafkaErrorCode},
    message::DeliveryResult,
    producer::{BaseRecord, Producer, ProducerContext, ThreadedProducer},
};

use crate::support::*;

/// A broker in a process of its own.
struct Process {
    child: Child,
    bootstrap: String,
}

impl Process {
    fn start(dir: &Path, port: u16) -> Process {
        let mut child = Command::new(env!("CARGO_BIN_EXE_embedded-broker"))
            .args(["--data", dir.to_str().unwrap(), "--port", &port.to_string()])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let bootstrap = line.split_whitespace().next().and_then(|w| w.strip_prefix("bootstrap="));
        let bootstrap = bootstrap.unwrap_or_else(|| panic!("{line}")).to_owned();
        Process { child, bootstrap }
    }

    fn port(&self) -> u16 {
        self.bootstrap.rsplit(':').next().unwrap().parse().unwrap()
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// What was acknowledged, in order.
#[derive(Default)]
struct Acked(Mutex<Vec<(i64, u32)>>);

struct Deliveries(Arc<Acked>);

impl ClientContext for Deliveries {}

impl ProducerContext for Deliveries {
    type DeliveryOpaque = ();
    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        let m = result.as_ref().unwrap_or_else(|(e, _)| panic!("{e}"));
        let key = std::str::from_utf8(m.key().unwrap()).unwrap().parse().unwrap();
        self.0.0.lock().unwrap().push((m.offset(), key));
    }
}

/// Sends numbers until told to stop, then waits for all; returns how many.
fn plain_load(bootstrap: &str, acked: Arc<Acked>, stop: &AtomicBool) -> u32 {
    let options = [("enable.idempotence", "true"), ("linger.ms", "1"), ("compression.type", "lz4")];
    let config = client(bootstrap, &options);
    let p: ThreadedProducer<Deliveries> = config.create_with_context(Deliveries(acked)).unwrap();
    let mut n = 0;
    while !stop.load(Ordering::Relaxed) {
        let (key, value) = (n.to_string(), format!("v{n}"));
        match p.send(BaseRecord::to("plain").partition(0).key(&key).payload(&value)) {
            Ok(()) => n += 1,
            Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), _)) => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err((e, _)) => panic!("{e}"),
        }
        if n % 100 == 0 {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
    p.flush(DEADLINE).unwrap();
    n
}

/// Ends the loads when the test fails, too.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[derive(Default)]
struct Outcomes {
    committed: BTreeSet<u32>,
    aborted: BTreeSet<u32>,
}

/// Each transaction puts its number into two topics.
fn transactional_load(bootstrap: &str, stop: &AtomicBool, progress: &AtomicU32) -> Outcomes {
    let mut outcomes = Outcomes::default();
    let mut n = 0;
    'clients: while !stop.load(Ordering::Relaxed) {
        let p = transactional(bootstrap, "x", &[]);
        if p.init_transactions(DEADLINE).is_err() {
            continue;
        }
        while !stop.load(Ordering::Relaxed) {
            n += 1;
            p.begin_transaction().unwrap();
            queue(&p, "left", [n]);
            queue(&p, "right", [n]);
            let abort = n % 3 == 0;
            let mut outcome = if abort { p.abort_transaction(DEADLINE) } else { p.commit_transaction(DEADLINE) };
            let deadline = Instant::now() + DEADLINE;
            while let Err(KafkaError::Transaction(e)) = &outcome {
                assert!(Instant::now() < deadline, "{e:?}");
                if e.is_retriable() {
                    outcome = if abort { p.abort_transaction(DEADLINE) } else { p.commit_transaction(DEADLINE) };
                } else {
                    // Unknown: may be there or not.
                    continue 'clients;
                }
            }
            outcome.unwrap();
            if abort {
                outcomes.aborted.insert(n)
            } else {
                outcomes.committed.insert(n)
            };
            progress.fetch_add(1, Ordering::Relaxed);
        }
    }
    outcomes
}

#[test]
fn killing_the_process_loses_nothing() {
    let kills: u32 = std::env::var("BROKER_KILLS").map_or(5, |n| n.parse().unwrap());
    let dir = tempfile::tempdir().unwrap();
    let mut broker = Process::start(dir.path(), 0);
    let (port, bootstrap) = (broker.port(), broker.bootstrap.clone());
    for topic in ["plain", "left", "right"] {
        create(&bootstrap, topic, 1, &[("segment.bytes", "200000")]);
    }
    let (acked, stop, progress) = (Arc::new(Acked::default()), AtomicBool::new(false), AtomicU32::new(0));
    let (sent, outcomes) = std::thread::scope(|scope| {
        let _stop = StopAtEnd(&stop);
        let plain = scope.spawn(|| plain_load(&bootstrap, Arc::clone(&acked), &stop));
        let transactions = scope.spawn(|| transactional_load(&bootstrap, &stop, &progress));
        for round in 0..kills {
            let (before, records) = (progress.load(Ordering::Relaxed), acked.0.lock().unwrap().len());
            eventually("both loads go on", || {
                progress.load(Ordering::Relaxed) >= before + 10 && acked.0.lock().unwrap().len() > records + 1000
            });
            let group: BaseConsumer = client(&bootstrap, &[("group.id", "g")]).create().unwrap();
            let mut offsets = TopicPartitionList::new();
            offsets.add_partition_offset("plain", 0, Offset::Offset(i64::from(round))).unwrap();
            group.commit(&offsets, CommitMode::Sync).unwrap();
            broker.kill();
            broker = Process::start(dir.path(), port);
            let group: BaseConsumer = client(&bootstrap, &[("group.id", "g")]).create().unwrap();
            let mut asked = TopicPartitionList::new();
            asked.add_partition("plain", 0);
            let found = group.committed_offsets(asked, DEADLINE).unwrap();
            assert_eq!(found.elements()[0].offset(), Offset::Offset(i64::from(round)));
        }
        stop.store(true, Ordering::Relaxed);
        (plain.join().unwrap(), transactions.join().unwrap())
    });
    let acked = acked.0.lock().unwrap();
    assert_eq!(acked.len(), sent as usize);
    let found = read(&bootstrap, "plain", Offset::Beginning, "read_committed");
    assert_eq!(keys(&found), (0..sent).collect::<Vec<_>>(), "each once, in order");
    let there: BTreeSet<(i64, u32)> = found.into_iter().collect();
    assert!(acked.iter().all(|a| there.contains(a)), "at the offsets that were told");

    // Ends what the last client left open.
    transactional(&bootstrap, "x", &[]).init_transactions(DEADLINE).unwrap();
    let set = |topic| {
        let all = keys(&read(&bootstrap, topic, Offset::Beginning, "read_committed"));
        let set: BTreeSet<u32> = all.iter().copied().collect();
        assert_eq!(set.len(), all.len(), "{topic}: each once");
        set
    };
    let (left, right) = (set("left"), set("right"));
    assert_eq!(left, right, "transactions are whole");
    assert!(outcomes.committed.is_subset(&left), "{:?}", outcomes.committed.difference(&left));
    assert!(outcomes.aborted.is_disjoint(&left));
    eprintln!("{kills} kills, {sent} records, {} commits, {} aborts", outcomes.committed.len(), outcomes.aborted.len());
    broker.kill();
}
