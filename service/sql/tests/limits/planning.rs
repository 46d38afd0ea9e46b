//! Statements that take long to plan, and texts that take much memory before they are.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use millstream_sql::SqlConfig;
use millstream_storage::object_store::Bucket;
use millstream_types::{Classified, ErrorKind, Retry, testing::MemoryLog};

use super::{MEMORY, joined, table};
use crate::support::{Env, FakeStorage};

/// Takes much longer than the timeout of these tests, and is allowed.
fn long_to_plan() -> String {
    format!("select {} from t", joined(1_200, ",", |i| format!("sum(id + {i}) as c{i}")))
}

#[tokio::test]
async fn planning_that_takes_too_long_is_answered_in_time_and_holds_up_nobody() {
    let (log, bucket, storage) = (MemoryLog::new(), Bucket::memory(), Arc::new(FakeStorage::default()));
    let config = SqlConfig { query_timeout: Duration::from_millis(200), plannings: 2, ..SqlConfig::default() };
    let sql = Env::service(&log, &bucket, &storage, config);
    sql.recover().await.unwrap();
    sql.execute("create table t (id bigint primary key)").await.unwrap();
    // the only thread of this runtime
    let ticks = Arc::new(AtomicU64::new(0));
    let ticking = {
        let ticks = Arc::clone(&ticks);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(Duration::from_millis(5)).await;
                ticks.fetch_add(1, Ordering::Relaxed);
            }
        })
    };
    let all = joined(1_200, ",", |i| format!("c{i}"));
    let insert = format!("insert into t select greatest({all}) from ({}) q", long_to_plan());
    for text in [long_to_plan(), format!("explain verbose {}", long_to_plan()), insert] {
        let begun = Instant::now();
        let before = ticks.load(Ordering::Relaxed);
        let error = sql.execute(&text).await.unwrap_err();
        let took = begun.elapsed();
        assert!(matches!(error.code, "QUERY_TIMEOUT" | "TOO_MANY_PLANNINGS"), "{error}");
        assert_eq!(error.retry(), Retry::Safe, "{error}");
        assert!(took < Duration::from_secs(5), "{took:?}");
        assert!(ticks.load(Ordering::Relaxed) > before + 5, "the runtime stood still");
    }
    ticking.abort();
    // and what goes on, ends
    let end = Instant::now() + Duration::from_secs(60);
    while let Err(error) = sql.execute("select count(*) from t").await {
        assert_eq!(error.retry(), Retry::Safe, "{error}");
        assert!(Instant::now() < end, "{error}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_text_of_millions_of_words_is_refused_before_they_take_memory() {
    let _alone = MEMORY.lock().await;
    let env = table().await;
    let text = format!("select {}", "1,".repeat(8 << 20));
    let begun = Instant::now();
    let error = env.sql.execute(&text).await.unwrap_err();
    assert_eq!((error.code, error.kind()), ("STATEMENT_TOO_LARGE", ErrorKind::Invalid), "{error}");
    assert!(error.line.is_some() && error.hint.is_some(), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_texts_that_wait_for_each_other_are_bounded() {
    let _alone = MEMORY.lock().await;
    let env = table().await;
    let text = format!("select count(*) from t where name in ({})", joined(50_000, ",", |i| format!("'{i:0290}'")));
    let all = (0..16).map(|_| super::execute(&env, text.clone()));
    let errors: Vec<_> = futures::future::join_all(all).await.into_iter().filter_map(Result::err).collect();
    assert!(errors.iter().any(|e| e.code == "TOO_MANY_LARGE_STATEMENTS"), "{errors:?}");
    assert!(errors.iter().all(|e| e.retry() == Retry::Safe), "{errors:?}");
    super::execute(&env, text).await.unwrap();
}
