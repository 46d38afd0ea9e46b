//! What a power loss leaves of transactions. It is played by cutting the files to what was synced and opening the folder again.

use std::time::Duration;

use super::{
    state::{Expected, Status},
    *,
};
use crate::{
    config::BrokerConfig, group::offsets::Committed, log::batch::tests::sample, node::Node, topics::config::Overrides,
};

async fn open(dir: &Path, fsync: Fsync) -> Node {
    let config = BrokerConfig { fsync, ..BrokerConfig::new(dir) };
    Node::open(config).unwrap()
}

/// Opens the folder as it is found after a power loss.
async fn after_power_loss(node: Node, dir: &Path, fsync: Fsync) -> Node {
    for journal in [node.topics.journal(), node.groups.journal(), node.transactions.journal()] {
        journal.lose_power();
    }
    drop(node);
    open(dir, fsync).await
}

async fn with_topic(dir: &Path, fsync: Fsync) -> Node {
    let node = open(dir, fsync).await;
    let (_, ticket) = node.topics.create("t", 1, Overrides::new(), false).unwrap();
    node.topics.durable(ticket).await.unwrap();
    node
}

fn put(node: &Node, who: Expected, sequence: i32) {
    let batch = sample(3, (who.producer_id, who.epoch, sequence), true, node.clock.now_ms());
    let partition = node.topics.partition("t", 0).unwrap();
    let known = |producer_id, epoch| node.transactions.has_partition(Expected { producer_id, epoch }, "t", 0);
    partition.log().append(&batch, node.clock.now_ms(), known).unwrap();
}

async fn completed(node: &Node, id: &str) {
    let done = async {
        while node.transactions.get(id).unwrap().is_active() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), done).await.unwrap();
}

/// Bytes of the only partition; cut to an earlier number, it is as if later ones had not reached the disk.
fn bytes(node: &Node) -> u64 {
    node.topics.partition("t", 0).unwrap().log().size()
}

fn cut_log(dir: &Path, bytes: u64) {
    let mut pending = vec![dir.to_owned()];
    while let Some(dir) = pending.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                pending.push(path);
            } else if path.extension().is_some_and(|e| e == "log") {
                File::options().write(true).open(path).unwrap().set_len(bytes).unwrap();
            }
        }
    }
}

#[tokio::test]
async fn what_was_added_to_a_transaction_is_on_the_disk_before_the_answer() {
    let dir = tempfile::tempdir().unwrap();
    let node = with_topic(dir.path(), Fsync::Interval).await;
    let who = node.transactions.init("x", None, 60_000).await.unwrap();
    node.transactions.add("x", who, &[("t", 0)], None).await.unwrap();
    node.transactions.add("x", who, &[], Some("g")).await.unwrap();
    put(&node, who, 0);

    let node = after_power_loss(node, dir.path(), Fsync::Interval).await;
    let tx = node.transactions.get("x").unwrap();
    assert_eq!((tx.producer_id, tx.epoch, tx.status), (who.producer_id, who.epoch, Status::Ongoing));
    assert!(tx.groups.contains("g") && tx.partitions["t"].contains(&0));
    put(&node, who, 3);
    node.transactions.end("x", who, Marker::Commit).await.unwrap();
    completed(&node, "x").await;
    let partition = node.topics.partition("t", 0).unwrap();
    let log = partition.log();
    assert_eq!((log.next(), log.stable()), (7, 7));
}

#[tokio::test]
async fn a_producer_id_is_not_given_again_after_a_power_loss() {
    let dir = tempfile::tempdir().unwrap();
    let node = open(dir.path(), Fsync::Interval).await;
    let first = node.topics.new_producer_id().await.unwrap();
    let node = after_power_loss(node, dir.path(), Fsync::Interval).await;
    assert!(node.topics.new_producer_id().await.unwrap() > first);
}

#[tokio::test]
async fn a_committed_transaction_whose_marker_is_lost_is_still_committed() {
    let dir = tempfile::tempdir().unwrap();
    let node = with_topic(dir.path(), Fsync::Interval).await;
    let who = node.transactions.init("x", None, 60_000).await.unwrap();
    node.transactions.add("x", who, &[("t", 0)], None).await.unwrap();
    put(&node, who, 0);
    let before = bytes(&node);
    node.transactions.end("x", who, Marker::Commit).await.unwrap();
    completed(&node, "x").await;
    assert_eq!(node.topics.partition("t", 0).unwrap().log().next(), 4);
    // Another transaction's entry takes the completion to the disk.
    node.transactions.init("y", None, 60_000).await.unwrap();

    cut_log(dir.path(), before);
    let node = after_power_loss(node, dir.path(), Fsync::Interval).await;
    assert_eq!(node.transactions.get("x").unwrap().status, Status::CompleteCommit);
    let partition = node.topics.partition("t", 0).unwrap();
    let log = partition.log();
    assert_eq!((log.next(), log.stable()), (4, 4));
    assert!(log.read(0, 1 << 20, true, true).unwrap().unwrap().aborted.is_empty());
}

#[tokio::test]
async fn a_transaction_is_complete_only_when_its_markers_and_offsets_are_on_the_disk() {
    let dir = tempfile::tempdir().unwrap();
    let node = with_topic(dir.path(), Fsync::Always).await;
    let who = node.transactions.init("x", None, 60_000).await.unwrap();
    node.transactions.add("x", who, &[("t", 0)], Some("g")).await.unwrap();
    put(&node, who, 0);
    let offset = Committed { offset: 5, leader_epoch: -1, metadata: String::new() };
    let rows = vec![("t".to_owned(), 0, offset)];
    let ticket = node.groups.commit("g", ("", None, -1), Some(who.producer_id), rows, || Ok(())).unwrap();
    node.groups.durable(ticket).await.unwrap();
    node.transactions.end("x", who, Marker::Commit).await.unwrap();
    completed(&node, "x").await;
    assert!(node.topics.partition("t", 0).unwrap().log().take_dirty().is_empty());
    node.transactions.init("y", None, 60_000).await.unwrap();

    let node = after_power_loss(node, dir.path(), Fsync::Always).await;
    let key = ("t".to_owned(), 0);
    let offset = node.groups.with("g", |held| held.unwrap().offsets.committed[&key].offset);
    assert_eq!(offset, 5);
}

#[tokio::test]
async fn a_zombie_that_asks_for_a_new_epoch_is_fenced_and_loses_nothing_of_its_successor() {
    let dir = tempfile::tempdir().unwrap();
    let node = with_topic(dir.path(), Fsync::Never).await;
    let zombie = node.transactions.init("x", None, 60_000).await.unwrap();
    let second = node.transactions.init("x", None, 60_000).await.unwrap();
    assert_eq!(node.transactions.init("x", Some(zombie), 60_000).await, Err(ResponseError::ProducerFenced));
    node.transactions.add("x", second, &[("t", 0)], None).await.unwrap();
    put(&node, second, 0);
    assert_eq!(node.transactions.init("x", Some(zombie), 60_000).await, Err(ResponseError::ProducerFenced));
    node.transactions.end("x", second, Marker::Commit).await.unwrap();
    completed(&node, "x").await;
    assert_eq!(node.transactions.get("x").unwrap().status, Status::CompleteCommit);
    // Also after a timeout.
    node.transactions.add("x", second, &[("t", 0)], None).await.unwrap();
    node.transactions.expire("x", node.clock.now_ms()).await.unwrap();
    assert_eq!(node.transactions.init("x", Some(second), 60_000).await, Err(ResponseError::ProducerFenced));
}

#[tokio::test]
async fn a_producer_that_aborts_its_transaction_by_init_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let node = with_topic(dir.path(), Fsync::Never).await;
    let who = node.transactions.init("x", None, 60_000).await.unwrap();
    node.transactions.add("x", who, &[("t", 0)], None).await.unwrap();
    put(&node, who, 0);
    let again = node.transactions.init("x", Some(who), 60_000).await.unwrap();
    assert_eq!((again.producer_id, again.epoch), (who.producer_id, who.epoch + 1));
    assert_eq!(node.transactions.get("x").unwrap().status, Status::CompleteAbort);
    node.transactions.add("x", again, &[("t", 0)], None).await.unwrap();
    put(&node, again, 0);
}
