//! Consumer groups: assignment, rebalance, offsets.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use rdkafka::{
    Message, Offset, TopicPartitionList,
    consumer::{BaseConsumer, CommitMode, Consumer},
    producer::{BaseRecord, Producer},
};

use crate::support::*;

/// A member in a thread: commits what it reads, tells what it is assigned.
struct Member {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

type Seen = Arc<Mutex<BTreeMap<String, Vec<(i32, i64)>>>>;
type Assigned = Arc<Mutex<BTreeMap<String, Vec<i32>>>>;

impl Member {
    fn start(bootstrap: &str, name: &str, strategy: &str, seen: &Seen, assigned: &Assigned) -> Member {
        let options = [
            ("group.id", "g"),
            ("client.id", name),
            ("enable.auto.commit", "false"),
            ("auto.offset.reset", "earliest"),
            ("session.timeout.ms", "6000"),
            ("heartbeat.interval.ms", "200"),
            ("partition.assignment.strategy", strategy),
        ];
        let consumer: BaseConsumer = client(bootstrap, &options).create().unwrap();
        consumer.subscribe(&["t"]).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let (name, seen, assigned) = (name.to_owned(), Arc::clone(seen), Arc::clone(assigned));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                // Errors are those of a broker that restarts.
                if let Some(Ok(m)) = consumer.poll(Duration::from_millis(50)) {
                    seen.lock().unwrap().entry(name.clone()).or_default().push((m.partition(), m.offset()));
                    consumer.commit_message(&m, CommitMode::Async).unwrap();
                }
                let mine = consumer.assignment().unwrap().elements().iter().map(|e| e.partition()).collect();
                assigned.lock().unwrap().insert(name.clone(), mine);
            }
            drop(consumer);
            assigned.lock().unwrap().remove(&name);
        });
        Member { stop, thread: Some(thread) }
    }

    fn end(mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}

fn balanced(assigned: &Assigned, members: usize) -> bool {
    let assigned = assigned.lock().unwrap();
    let mut all: Vec<i32> = assigned.values().flatten().copied().collect();
    all.sort_unstable();
    assigned.len() == members && all == [0, 1, 2, 3, 4, 5] && assigned.values().all(|p| !p.is_empty())
}

fn group_of_three(strategy: &str) {
    let b = Running::start();
    create(&b.bootstrap, "t", 6, &[]);
    let p = producer(&b.bootstrap, &[]);
    let send = |n: i32| {
        for i in 0..n {
            let value = i.to_string();
            p.send(BaseRecord::<str, str>::to("t").partition(i % 6).payload(&value)).map_err(|e| e.0).unwrap();
        }
        p.flush(DEADLINE).unwrap();
    };
    let (seen, assigned) = (Seen::default(), Assigned::default());
    let one = Member::start(&b.bootstrap, "one", strategy, &seen, &assigned);
    eventually("one has all", || balanced(&assigned, 1));
    let two = Member::start(&b.bootstrap, "two", strategy, &seen, &assigned);
    let three = Member::start(&b.bootstrap, "three", strategy, &seen, &assigned);
    eventually("three share", || balanced(&assigned, 3));
    send(60);
    let read = || seen.lock().unwrap().values().flatten().count();
    eventually("all are read", || read() >= 60);
    assert!(seen.lock().unwrap().values().all(|s| !s.is_empty()), "everybody had some");
    one.end();
    eventually("two share", || balanced(&assigned, 2));
    send(60);
    eventually("all are read", || read() >= 120);
    two.end();
    three.end();
    let mut all: Vec<(i32, i64)> = seen.lock().unwrap().values().flatten().copied().collect();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 120, "everything was read; what was committed in time only once");
}

#[test]
fn a_group_of_three_shares_and_rebalances() {
    group_of_three("range");
}

#[test]
fn a_cooperative_group_of_three_shares_and_rebalances() {
    group_of_three("cooperative-sticky");
}

#[test]
fn offsets_and_members_survive_a_restart() {
    let mut b = Running::start();
    create(&b.bootstrap, "t", 6, &[]);
    let (seen, assigned) = (Seen::default(), Assigned::default());
    let one = Member::start(&b.bootstrap, "one", "range", &seen, &assigned);
    let two = Member::start(&b.bootstrap, "two", "range", &seen, &assigned);
    eventually("two share", || balanced(&assigned, 2));
    b.restart(false);
    send(&producer(&b.bootstrap, &[]), "t", 0..10);
    eventually("they read on", || seen.lock().unwrap().values().flatten().count() >= 10);
    one.end();
    two.end();
    let consumer: BaseConsumer = client(&b.bootstrap, &[("group.id", "plain")]).create().unwrap();
    let mut offsets = TopicPartitionList::new();
    offsets.add_partition_offset("t", 0, Offset::Offset(7)).unwrap();
    consumer.commit(&offsets, CommitMode::Sync).unwrap();
    for clean in [true, false] {
        b.restart(clean);
        let consumer: BaseConsumer = client(&b.bootstrap, &[("group.id", "plain")]).create().unwrap();
        let mut asked = TopicPartitionList::new();
        asked.add_partition("t", 0);
        asked.add_partition("t", 1);
        let found = consumer.committed_offsets(asked, DEADLINE).unwrap();
        assert_eq!(found.elements()[0].offset(), Offset::Offset(7));
        assert_eq!(found.elements()[1].offset(), Offset::Invalid);
    }
    let groups = consumer.fetch_group_list(None, DEADLINE).unwrap();
    let mut names: Vec<&str> = groups.groups().iter().map(|g| g.name()).collect();
    names.sort_unstable();
    assert_eq!(names, ["g", "plain"]);
}
