//! Transactions that end badly: fenced, expired, without an answer. After each, the caller's recovery (init, look, send again) is exactly once.

use std::{sync::Arc, time::Duration};

use millstream_kafka::{KafkaCluster, KafkaOptions};
use millstream_types::{CommitOutcome, EpochWriter, ErrorKind, LogSystem};

use crate::{
    broker::{
        Broker, BrokerOptions, Kind, batch, broker, cluster, commit_at_last, committed, options, own_broker, read_all,
        topic, unique,
    },
    proxy::{Fault, Proxy},
};

async fn a_zombie_is_fenced_by_a_newer_init(kind: Kind) {
    let broker = broker(kind);
    let c = cluster(&broker);
    let t = topic(&c, "zombie", 1).await;
    let id = unique("zombie");
    let (mut old, mut new) = (c.epoch_writer(&id), c.epoch_writer(&id));
    old.init().await.unwrap();
    committed(old.commit(&[batch(&t, 0..2)]).await);
    new.init().await.unwrap();
    match old.commit(&[batch(&t, 90..99)]).await {
        CommitOutcome::Fenced(e) => assert_eq!(e.kind, ErrorKind::Fenced, "{e}"),
        other => panic!("{other:?}"),
    }
    committed(new.commit(&[batch(&t, 2..3)]).await);
    match old.commit(&[batch(&t, 90..99)]).await {
        CommitOutcome::Unknown(_) => {}
        other => panic!("a fenced writer has no client: {other:?}"),
    }
    assert_eq!(read_all(&c, &t).await.keys(), ["0", "1", "2"]);
}

async fn init_ends_an_old_open_transaction(kind: Kind) {
    let broker = broker(kind);
    let c = cluster(&broker);
    let t = topic(&c, "left-open", 1).await;
    let id = unique("left-open");
    let mut first = c.epoch_writer(&id);
    first.init().await.unwrap();
    // Dropped in the middle: the records are there, the transaction is open.
    let cut = tokio::time::timeout(Duration::from_millis(1), first.commit(&[batch(&t, 0..50_000)])).await;
    assert!(cut.is_err());
    match first.commit(&[batch(&t, 0..1)]).await {
        CommitOutcome::Unknown(_) => {}
        other => panic!("after a commit that was cut off: {other:?}"),
    }
    let mut second = c.epoch_writer(&id);
    second.init().await.unwrap();
    let before = read_all(&c, &t).await.offsets().len();
    assert!(before == 0 || before == 50_000, "all or nothing: {before}");
    committed(second.commit(&[batch(&t, 7..9)]).await);
    let keys = read_all(&c, &t).await.keys();
    assert_eq!(keys[before..], ["7", "8"]);
}

/// A cluster whose clients come through a proxy, with timeouts short enough for a test.
async fn behind_proxy(kind: Kind, timeout: Duration) -> (Broker, Proxy, Arc<KafkaCluster>, Arc<KafkaCluster>) {
    let (proxy, listener) = Proxy::listen().await;
    let inner = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let proxied = Some((inner, proxy.port));
    let broker = own_broker(kind, BrokerOptions { proxied, ..BrokerOptions::default() }).await;
    proxy.serve(listener, inner);
    let mut o: KafkaOptions = options(&format!("127.0.0.1:{}", proxy.port));
    o.transaction_timeout = timeout;
    o.commit_timeout = timeout / 2;
    let (through, direct) =
        (KafkaCluster::connect(o).unwrap(), KafkaCluster::connect(options(broker.bootstrap())).unwrap());
    (broker, proxy, through, direct)
}

async fn writer(c: &KafkaCluster, id: &str) -> Box<dyn EpochWriter> {
    let mut w = c.epoch_writer(id);
    w.init().await.unwrap();
    w
}

async fn a_lost_commit_answer_is_unknown_and_reading_back_decides(kind: Kind) {
    let (_broker, proxy, through, direct) = behind_proxy(kind, Duration::from_secs(8)).await;
    let t = topic(&direct, "lost", 1).await;
    let mut w = writer(&through, &unique("lost")).await;
    commit_at_last(w.as_mut(), &[batch(&t, 0..1)]).await;
    for (fault, arrived) in [(Fault::LoseAnswer, true), (Fault::LoseRequest, false)] {
        let before = read_all(&direct, &t).await.keys().len();
        proxy.set(fault);
        // On a very busy machine time may be up before EndTxn: then the fault still waits.
        let outcome = loop {
            match w.commit(&[batch(&t, 10..13)]).await {
                CommitOutcome::Aborted(_) => {}
                other => break other,
            }
        };
        assert!(matches!(outcome, CommitOutcome::Unknown(_)), "{fault:?}: {outcome:?}");
        assert!(proxy.is_silent(), "the commit was seen");
        proxy.set(Fault::None);
        w.init().await.unwrap();
        let after = read_all(&direct, &t).await.keys().len();
        assert_eq!(after - before, if arrived { 3 } else { 0 }, "{fault:?}");
        if !arrived {
            commit_at_last(w.as_mut(), &[batch(&t, 10..13)]).await;
            assert_eq!(read_all(&direct, &t).await.keys().len() - before, 3);
        }
    }
}

async fn a_transaction_without_a_broker_is_never_called_committed_and_can_be_sent_again(kind: Kind) {
    let (_broker, proxy, through, direct) = behind_proxy(kind, Duration::from_secs(4)).await;
    let t = topic(&direct, "expired", 1).await;
    let mut w = writer(&through, &unique("expired")).await;
    commit_at_last(w.as_mut(), &[batch(&t, 0..1)]).await;
    proxy.set(Fault::Silent);
    let outcome = w.commit(&[batch(&t, 1..4)]).await;
    tracing::info!(?outcome, "no broker for the whole transaction");
    assert!(
        matches!(outcome, CommitOutcome::Unknown(_) | CommitOutcome::Fenced(_)),
        "the abort could not be done: {outcome:?}"
    );
    proxy.set(Fault::None);
    w.init().await.unwrap();
    assert_eq!(read_all(&direct, &t).await.keys(), ["0"]);
    commit_at_last(w.as_mut(), &[batch(&t, 1..4)]).await;
    assert_eq!(read_all(&direct, &t).await.keys(), ["0", "1", "2", "3"]);
}

async fn the_transaction_timeout_is_lowered_or_refused(kind: Kind) {
    let transaction_max_timeout = Some(Duration::from_secs(20));
    let broker = own_broker(kind, BrokerOptions { transaction_max_timeout, ..BrokerOptions::default() }).await;
    let refused = KafkaCluster::connect(options(broker.bootstrap())).unwrap();
    let error = refused.epoch_writer("w").init().await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Invalid);
    assert!(error.to_string().contains("20000") && error.to_string().contains("30000"), "{error}");
    let mut o = options(broker.bootstrap());
    o.commit_timeout = Duration::from_secs(10);
    let lowered = KafkaCluster::connect(o).unwrap();
    assert_eq!(lowered.transaction_timeout().await.unwrap(), Duration::from_secs(20));
    let t = topic(&lowered, "lowered", 1).await;
    let mut w = writer(&lowered, "w").await;
    commit_at_last(w.as_mut(), &[batch(&t, 0..1)]).await;
}

millstream_e2e::on_each_broker!(
    a_zombie_is_fenced_by_a_newer_init,
    init_ends_an_old_open_transaction,
    a_lost_commit_answer_is_unknown_and_reading_back_decides,
    a_transaction_without_a_broker_is_never_called_committed_and_can_be_sent_again,
    the_transaction_timeout_is_lowered_or_refused,
);
