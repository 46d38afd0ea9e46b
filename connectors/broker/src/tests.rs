//! A data folder as a whole: what is left after damage, deletion and crashes between two files. Method: nodes without sockets; files are changed between two
//! lives.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{
    config::{BrokerConfig, Fsync},
    group::offsets::Committed,
    log::batch::tests::sample,
    node::Node,
    topics::config::Overrides,
};

async fn open(dir: &Path) -> std::io::Result<Node> {
    Node::open(BrokerConfig { fsync: Fsync::Never, ..BrokerConfig::new(dir) })
}

fn put(node: &Node, topic: &str) {
    let partition = node.topics.partition(topic, 0).unwrap();
    partition.log().append(&sample(3, (-1, -1, -1), false, 0), 0, |_, _| true).unwrap();
}

fn next(node: &Node, topic: &str) -> i64 {
    node.topics.partition(topic, 0).unwrap().log().next()
}

/// Three topics with records, closed.
async fn with_topics(dir: &Path) {
    let node = open(dir).await.unwrap();
    for topic in ["a", "b", "c"] {
        node.topics.create(topic, 1, Overrides::new(), false).unwrap();
        put(&node, topic);
    }
    commit(&node, "a", None);
    node.transactions.init("x", None, 60_000).await.unwrap();
    node.close().unwrap();
}

fn commit(node: &Node, topic: &str, producer: Option<i64>) {
    let offset = Committed { offset: 3, leader_epoch: -1, metadata: String::new() };
    let rows = vec![(topic.to_owned(), 0, offset)];
    node.groups.commit("g", ("", None, -1), producer, rows, || Ok(())).unwrap();
}

fn offsets(node: &Node) -> usize {
    node.groups.with("g", |held| {
        held.map_or(0, |h| h.offsets.committed.len() + h.offsets.pending.values().map(|o| o.len()).sum::<usize>())
    })
}

fn journal(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!("{name}.000001.journal"))
}

#[tokio::test]
async fn a_damaged_or_missing_journal_stops_the_start_and_costs_nothing() {
    let dir = tempfile::tempdir().unwrap();
    with_topics(dir.path()).await;
    for name in ["topics", "groups", "transactions"] {
        let file = journal(dir.path(), name);
        let good = fs::read(&file).unwrap();
        let mut bad = good.clone();
        bad[12] ^= 4;
        fs::write(&file, bad).unwrap();
        let error = open(dir.path()).await.unwrap_err().to_string();
        assert!(error.contains(&file.display().to_string()) && error.contains("damaged at byte 0"), "{error}");
        fs::remove_file(&file).unwrap();
        let error = open(dir.path()).await.unwrap_err().to_string();
        assert!(error.contains(&file.display().to_string()) && error.contains("missing"), "{error}");
        fs::write(&file, good).unwrap();
    }
    let node = open(dir.path()).await.unwrap();
    assert_eq!(["a", "b", "c"].map(|t| next(&node, t)), [3, 3, 3]);
    assert_eq!(offsets(&node), 1);
}

#[tokio::test]
async fn folders_that_nobody_knows_are_moved_aside() {
    let dir = tempfile::tempdir().unwrap();
    with_topics(dir.path()).await;
    // Somebody gives up the journal.
    fs::write(journal(dir.path(), "topics"), "").unwrap();
    fs::create_dir(dir.path().join("topics/empty-0")).unwrap();
    let node = open(dir.path()).await.unwrap();
    assert!(node.topics.all().is_empty());
    let mut aside: Vec<_> =
        fs::read_dir(dir.path().join("set-aside")).unwrap().map(|e| e.unwrap().file_name()).collect();
    aside.sort();
    assert_eq!(aside, ["a-0", "b-0", "c-0"], "the empty one is gone");
    node.topics.create("a", 1, Overrides::new(), false).unwrap();
    drop(node);
    // One can be brought back.
    fs::remove_dir_all(dir.path().join("topics/a-0")).unwrap();
    fs::rename(dir.path().join("set-aside/a-0"), dir.path().join("topics/a-0")).unwrap();
    assert_eq!(next(&open(dir.path()).await.unwrap(), "a"), 3);
}

#[tokio::test]
async fn the_folder_of_a_deleted_topic_goes_even_if_a_crash_left_it() {
    let dir = tempfile::tempdir().unwrap();
    with_topics(dir.path()).await;
    let node = open(dir.path()).await.unwrap();
    let (folder, away) = (dir.path().join("topics/b-0"), dir.path().join("b-0"));
    fs::rename(&folder, &away).unwrap();
    node.delete_topic("b").unwrap();
    drop(node);
    fs::rename(&away, &folder).unwrap();
    let node = open(dir.path()).await.unwrap();
    assert!(!folder.exists() && !dir.path().join("set-aside").exists());
    assert_eq!((next(&node, "a"), next(&node, "c")), (3, 3));
}

#[tokio::test]
async fn offsets_of_a_deleted_topic_are_gone_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let node = open(dir.path()).await.unwrap();
    let make = |node: &Node, topic: &str| node.topics.create(topic, 1, Overrides::new(), false).map(|_| ()).unwrap();
    make(&node, "t");
    make(&node, "other");
    commit(&node, "t", None);
    commit(&node, "t", Some(5));
    commit(&node, "other", None);
    node.delete_topic("t").unwrap();
    assert_eq!(offsets(&node), 1);
    make(&node, "t");
    drop(node);
    let node = open(dir.path()).await.unwrap();
    assert_eq!(offsets(&node), 1, "also after a restart");
    commit(&node, "t", None);
    // A crash between the two journals.
    node.topics.delete("t", || {}).unwrap();
    drop(node);
    let node = open(dir.path()).await.unwrap();
    make(&node, "t");
    assert_eq!(offsets(&node), 1);
}

#[cfg(feature = "faults")]
#[tokio::test]
async fn offsets_go_with_their_topic_although_the_disk_is_full() {
    let dir = tempfile::tempdir().unwrap();
    let node = Arc::new(open(dir.path()).await.unwrap());
    let faults = crate::faults::FaultHandle::new(Arc::clone(&node));
    node.topics.create("t", 1, Overrides::new(), false).unwrap();
    commit(&node, "t", None);
    faults.disk_full(true);
    node.groups.forget_topics(|t| t == "t");
    faults.disk_full(false);
    node.groups.tick();
    drop((node, faults));
    assert_eq!(offsets(&open(dir.path()).await.unwrap()), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_start_never_goes_back() {
    let dir = tempfile::tempdir().unwrap();
    let mut node = Arc::new(open(dir.path()).await.unwrap());
    let (id, _) = node.topics.create("t", 1, Overrides::new(), false).unwrap();
    for _ in 0..40 {
        put(&node, "t");
    }
    for round in 1..40 {
        let rewriting = Arc::clone(&node);
        let rewrite = std::thread::spawn(move || (0..3).for_each(|_| rewriting.topics.rewrite().unwrap()));
        {
            let partition = node.topics.partition("t", 0).unwrap();
            let mut log = partition.log();
            node.topics.note_start(id, 0, round).unwrap();
            log.delete_below(round, 0).unwrap();
        }
        // A late one of somebody who knew less.
        node.topics.note_start(id, 0, round - 1).unwrap();
        rewrite.join().unwrap();
        drop(node);
        node = Arc::new(open(dir.path()).await.unwrap());
        assert_eq!(node.topics.partition("t", 0).unwrap().log().start(), round);
    }
}
