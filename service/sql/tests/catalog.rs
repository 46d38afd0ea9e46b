//! The catalog: contiguous versions, concurrent writers, entries that cannot be read, restart.

use std::sync::Arc;

use millstream_sql::{
    SqlConfig, SqlError,
    catalog::{Catalog, CatalogLog, CatalogStore, Cluster, MemoryCatalogLog, Object},
};
use millstream_types::{Classified, ErrorKind};

use crate::support::Env;

async fn store(log: &Arc<MemoryCatalogLog>) -> CatalogStore {
    CatalogStore::load(Arc::clone(log) as Arc<dyn CatalogLog>, Cluster { shards: 16 }).await.unwrap()
}

#[tokio::test]
async fn two_writers_never_lose_a_change_or_use_an_id_twice() {
    let log = Arc::new(MemoryCatalogLog::default());
    let (a, b) = (store(&log).await, store(&log).await);
    let mut ids = Vec::new();
    for i in 0..20 {
        let store = if i % 2 == 0 { &a } else { &b };
        ids.push(store.change(|c| Ok(c.take_table_id())).await.unwrap());
    }
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 20);
    a.refresh().await.unwrap();
    assert_eq!((a.current().version, a.current().next_table), (20, 21));
    assert_eq!(log.versions().len(), 21);
}

#[tokio::test]
async fn a_refused_change_is_checked_again_after_a_lost_race() {
    let log = Arc::new(MemoryCatalogLog::default());
    let (a, b) = (store(&log).await, store(&log).await);
    let claim = |c: &mut Catalog| {
        if c.next_table > 1 { Err(SqlError::conflict("TAKEN", "taken")) } else { Ok(c.take_table_id()) }
    };
    a.change(claim).await.unwrap();
    // b has not seen a's version: it loses the race, reads it and refuses
    assert_eq!(b.change(claim).await.unwrap_err().code, "TAKEN");
    assert_eq!(log.versions().len(), 2);
}

#[tokio::test]
async fn the_number_of_shards_is_fixed_at_the_first_start() {
    let log = Arc::new(MemoryCatalogLog::default());
    store(&log).await;
    let error = CatalogStore::load(log, Cluster { shards: 8 }).await.unwrap_err();
    assert_eq!((error.kind(), error.code), (ErrorKind::Conflict, "SHARDS_FIXED"));
    assert_eq!(error.hint.as_deref(), Some("set cluster.shards to 16"));
}

#[tokio::test]
async fn a_bad_catalog_entry_is_quarantined() {
    let env = Env::new().await;
    env.run("create table good (id int primary key); create table bad (id int primary key)").await;
    // an entry of a version to come: an unknown kind of object
    let newest = millstream_storage::object_store::VersionedLog::new(Arc::clone(&env.bucket), "catalog", ".json");
    let (version, bytes) = newest.newest().await.unwrap().unwrap();
    let mut json: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
    json["version"] = (version + 1).into();
    json["objects"][1]["kind"] = "hologram".into();
    newest.put(version + 1, serde_json::to_vec(&json).unwrap().into()).await.unwrap();

    let again = Env::start(env.log.clone(), Arc::clone(&env.bucket), Arc::clone(&env.storage)).await;
    again.run("insert into good values (1)").await;
    assert_eq!(again.error("select * from bad").await.code, "QUARANTINED");
    assert_eq!(again.error("create table bad (id int)").await.code, "QUARANTINED");
    assert!(again.sql.broken()["bad"].contains("hologram"));
    // and it is still there, unchanged, after other changes
    again.run("create table third (id int)").await;
    let (_, bytes) = newest.newest().await.unwrap().unwrap();
    assert!(String::from_utf8_lossy(&bytes).contains("hologram"));
}

#[tokio::test]
async fn a_view_that_cannot_be_planned_any_more_does_not_stop_the_service() {
    let env = Env::new().await;
    env.run("create table t (id int primary key, v varchar); create materialized view v1 as select v from t; create materialized view v2 as select v from t")
        .await;
    let newest = millstream_storage::object_store::VersionedLog::new(Arc::clone(&env.bucket), "catalog", ".json");
    let (version, bytes) = newest.newest().await.unwrap().unwrap();
    let text = String::from_utf8(bytes.to_vec())
        .unwrap()
        .replace("create materialized view v1 as select v from t", "create materialized view v1 as select gone from t");
    let text = text.replace(&format!("\"version\": {version}"), &format!("\"version\": {}", version + 1));
    newest.put(version + 1, text.into()).await.unwrap();
    let again = Env::start(env.log.clone(), Arc::clone(&env.bucket), Arc::clone(&env.storage)).await;
    assert!(again.sql.broken()["v1"].contains("gone"), "{:?}", again.sql.broken());
    assert!(!again.sql.broken().contains_key("v2"));
    again.run("drop materialized view v1").await;
    assert!(again.sql.broken().is_empty());
}

#[tokio::test]
async fn a_restart_finds_the_same_objects() {
    let env = Env::new().await;
    env.log.create_topic("orders", 2);
    env.run(
        "create table orders (id bigint primary key, v bigint) with (topic = 'orders', scan.startup.mode = 'latest');
         create materialized view s with (topic = 's', partitions = 3, backfill_rate_limit = 5) as select v, count(*) as n from orders group by v;
         create sink k with (topic = 'k') as select * from orders;
         alter materialized view s pause",
    )
    .await;
    let before = env.sql.catalog().unwrap();
    let again = Env::start(env.log.clone(), Arc::clone(&env.bucket), Arc::clone(&env.storage)).await;
    assert_eq!(*again.sql.catalog().unwrap(), *before);
    assert!(again.sql.broken().is_empty(), "{:?}", again.sql.broken());
    let Object::View(s) = before.object("s").unwrap().as_ref() else { panic!() };
    assert_eq!((s.backfill_rate_limit, s.topic.as_ref().unwrap().partitions), (Some(5), 3));
    assert_eq!(again.rows("select name, backfill_rate_limit from millstream.jobs order by 1").await, ["k | ", "s | 5"]);
}

#[tokio::test]
async fn nothing_answers_before_the_catalog_is_loaded() {
    let env = Env::new().await;
    let early = Env::service(&env.log, &env.bucket, &env.storage, SqlConfig::default());
    let error = early.execute("show tables").await.unwrap_err();
    assert_eq!((error.kind(), error.code), (ErrorKind::Unavailable, "STARTING"));
}

#[test]
fn a_catalog_of_format_1_can_be_read() {
    let text = include_str!("data/catalog-1.json");
    let catalog = Catalog::from_json(text.as_bytes(), "catalog-1.json").unwrap();
    assert!(catalog.quarantined.is_empty(), "{:?}", catalog.quarantined);
    assert_eq!(catalog.objects.len(), 3);
    let names: Vec<&str> = catalog.objects.iter().map(|o| o.name()).collect();
    assert_eq!(names, ["orders", "s", "k"]);
}
