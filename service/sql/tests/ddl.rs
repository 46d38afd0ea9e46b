//! CREATE, DROP, ALTER: complete checks, options, topics, what is left behind.

use millstream_sql::catalog::{Object, TableSource};
use millstream_types::{Classified, ErrorKind, Seq, TopicPartition};

use crate::support::Env;

const ORDERS: &str = "create table orders (id bigint primary key, v bigint) with (topic = 'orders')";

async fn env() -> Env {
    let env = Env::new().await;
    env.log.create_topic("orders", 2);
    env.log.put("orders", 0, Some("1"), Some("{\"id\":1,\"v\":10}"));
    env.log.put("orders", 0, Some("2"), Some("{\"id\":2,\"v\":20}"));
    env
}

fn starts(env: &Env, table: &str) -> Vec<i64> {
    let catalog = env.sql.catalog().unwrap();
    let Object::Table(t) = catalog.object(table).unwrap().as_ref() else { panic!() };
    let TableSource::Topic(s) = &t.source else { panic!() };
    s.starts.iter().map(|s: &Seq| s.0).collect()
}

#[tokio::test]
async fn the_start_is_resolved_once_to_numbers() {
    let env = env().await;
    let notices = env.notices("create table a (id bigint primary key) with (topic = 'orders')").await;
    assert_eq!(notices, ["topic orders: 2 partitions, start earliest = 0:0, 1:0"]);
    env.run(
        "create table b (id bigint primary key) with (topic = 'orders', scan.startup.mode = 'latest');
         create table c (id bigint primary key) with (topic = 'orders', scan.startup.mode = 'offsets', scan.startup.offsets = '0:1')",
    )
    .await;
    assert_eq!((starts(&env, "a"), starts(&env, "b"), starts(&env, "c")), (vec![0, 0], vec![2, 0], vec![1, 0]));
    let spec = env.storage.spec(millstream_types::RegionId::new(millstream_types::TableId(2), 0));
    assert!(
        matches!(&spec.wal, millstream_storage::WalBinding::Topic { partition, start, .. } if *partition == TopicPartition::new("orders", 0) && start.0 == 2)
    );
}

#[tokio::test]
async fn options_and_columns_of_tables_are_checked_with_their_places() {
    let env = env().await;
    let cases = [
        (
            "create table t (id int) with (topic = 'ordrs')",
            "line 1, column 39: topic ordrs does not exist (hint: did you mean orders?)",
        ),
        (
            "create table t (id int) with (topic = 'orders', 'value.fromat' = 'json')",
            "line 1, column 49: unknown option 'value.fromat', did you mean 'value.format'?",
        ),
        (
            "create table t (id int) with (topic = 'orders', scan.startup.mod = 'latest')",
            "line 1, column 49: unknown option scan.startup.mod (hint: did you mean scan.startup.mode?)",
        ),
        (
            "create table t (id int) with (topic = 'orders', scan.startup.mode = 'lates')",
            "line 1, column 69: scan.startup.mode must be earliest or latest or timestamp or offsets (hint: did you mean latest?)",
        ),
        (
            "create table t (id int) with (topic = 'orders', scan.startup.mode = 'offsets', scan.startup.offsets = '0:9')",
            "line 1, column 103: scan.startup.offsets: partition 0 has offsets 0 to 2, not 9",
        ),
        (
            "create table t (id int) with (topic = 'orders', scan.startup.mode = 'offsets', scan.startup.offsets = '5:0')",
            "topic orders has partitions 0 to 1, not 5",
        ),
        (
            "create table t (id int) with (topic = 'orders', scan.startup.offsets = '0:0')",
            "scan.startup.offsets has no meaning without scan.startup.mode = 'offsets'",
        ),
        ("create table t (id int) with (retention = '3 days')", "option retention is not supported yet"),
        (
            "create table t (id int) with ('value.format' = 'json')",
            "value.format has no meaning without topic = 'name'",
        ),
        (
            "create table t (id int, o bigint metadata from 'offset')",
            "METADATA needs a topic (hint: add WITH (topic = 'name'))",
        ),
        (
            "create table t (id int, primary key (di))",
            "line 1, column 38: primary key column di does not exist (hint: did you mean id?)",
        ),
        ("create table t (x double, primary key (x))", "a column of type DOUBLE cannot be part of the primary key"),
        ("create table t (__x int)", "column name __x is reserved"),
        (
            "create table t (id int default 'abc')",
            "line 1, column 32: DEFAULT 'abc' of column id is not a constant of type INT",
        ),
        ("create table t (id timestamp default now())", "is not a constant of type TIMESTAMP"),
        ("create table t (id int default other)", "DEFAULT other of column id is not a constant of type INT"),
        ("create table t (id int) with (topic = 'millstream.wal')", "topic millstream.wal is the WAL of this service"),
    ];
    for (sql, wanted) in cases {
        let error = env.error(sql).await;
        assert!(error.to_string().contains(wanted), "{sql}\n  got    {error}\n  wanted {wanted}");
        assert!(matches!(error.kind(), ErrorKind::Invalid | ErrorKind::NotFound), "{sql}: {}", error.kind());
    }
    assert_eq!(env.sql.catalog().unwrap().objects.len(), 0);
    assert!(env.storage.ids().is_empty());
}

#[tokio::test]
async fn defaults_are_stored_as_literals() {
    let env = env().await;
    env.run("create table d (id int primary key, a int default 1 + 2, b varchar default 'x''y', c decimal(10,2) default -1.5, d boolean default true, e date default date '2024-01-31', f int default null)").await;
    let catalog = env.sql.catalog().unwrap();
    let defaults: Vec<Option<&str>> =
        catalog.object("d").unwrap().schema().columns.iter().map(|c| c.default.as_deref()).collect();
    assert_eq!(defaults, [None, Some("3"), Some("'x''y'"), Some("-1.50"), Some("TRUE"), Some("'2024-01-31'"), None]);
    env.run("insert into d (id) values (1)").await;
    assert_eq!(env.rows("select * from d").await, ["1 | 3 | x'y | -1.50 | true | 2024-01-31 | "]);
}

#[tokio::test]
async fn repeating_a_create_is_told_and_harmless_with_if_not_exists() {
    let env = env().await;
    env.run(ORDERS).await;
    let error = env.error(ORDERS).await;
    assert_eq!((error.kind(), error.code), (ErrorKind::Conflict, "TABLE_EXISTS"));
    let version = env.sql.catalog().unwrap().version;
    let notices = env.notices("create table if not exists orders (x int)").await;
    assert_eq!(notices, ["table orders exists, nothing was done"]);
    assert_eq!(env.sql.catalog().unwrap().version, version);
    assert_eq!(
        env.error("create materialized view if not exists orders as select * from orders").await.code,
        "TABLE_EXISTS"
    );
}

#[tokio::test]
async fn topics_of_views_are_created_and_verified() {
    let env = env().await;
    env.run(ORDERS).await;
    let notices = env
        .notices("create materialized view s with (topic = 's') as select v, count(*) as n from orders group by v")
        .await;
    assert!(notices.contains(&"topic s: 4 partitions (default; say partitions = n)".to_owned()), "{notices:?}");
    let info = env.log.system().admin().describe("s").await.unwrap().unwrap();
    assert_eq!((info.partitions, info.config.get("cleanup.policy").map(String::as_str)), (4, Some("compact")));

    env.log.create_topic("there", 7);
    let error = env.error("create sink k with (topic = 'there', partitions = 3) as select * from orders").await;
    assert_eq!(
        error.to_string(),
        "line 1, column 29: topic there exists with 7 partitions (hint: write partitions = 7, or another topic)"
    );
    let notices = env.notices("create sink k with (topic = 'there') as select * from orders").await;
    assert!(notices.contains(&"topic there exists: its 7 partitions are used".to_owned()), "{notices:?}");
    assert!(notices.iter().any(|n| n.starts_with("warning history_expires")), "{notices:?}");
    let catalog = env.sql.catalog().unwrap();
    let k = catalog.object("k").unwrap().derived().unwrap();
    assert_eq!(
        (k.topic.as_ref().unwrap().partitions, k.topic.as_ref().unwrap().key_columns.clone()),
        (7, vec!["id".to_owned()])
    );
}

#[tokio::test]
async fn envelopes_and_keys_must_fit_the_query() {
    let env = env().await;
    env.run(ORDERS).await;
    env.run("create table log (a varchar, b bigint)").await;
    let cases = [
        ("create sink k as select * from orders", "a sink needs a topic"),
        (
            "create sink k with (topic = 'k', envelope = 'append') as select * from orders",
            "envelope append: rows of this query can be deleted and replaced (hint: write envelope = 'upsert', or force_append_only = true to drop deletes and write each new value)",
        ),
        (
            "create sink k with (topic = 'k', envelope = 'upsert') as select * from log",
            "envelope upsert: rows of this query have no primary key",
        ),
        (
            "create sink k with (topic = 'k', 'key.columns' = 'v') as select * from orders",
            "key.columns: with envelope upsert the key must be the primary key of the query (hint: write 'key.columns' = 'id', or leave it out)",
        ),
        (
            "create sink k with (topic = 'k', 'key.columns' = 'w') as select * from log",
            "key.columns: the query has no column w",
        ),
        (
            "create sink k with (topic = 'k', 'value.format' = 'avro') as select * from orders",
            "line 1, column 34: value.format = 'avro' is not supported yet",
        ),
        (
            "create sink k with (topic = 'orders') as select * from orders",
            "line 1, column 29: topic orders is read by table orders",
        ),
        (
            "create sink k with (topic = 'k', partitions = 0) as select * from orders",
            "line 1, column 47: partitions must be a whole number from 1 to 10000",
        ),
        ("create sink k with (topic = 'k', wiat = true) as select * from orders", "unknown option wiat"),
        (
            "create materialized view k with (partitions = 3) as select * from orders",
            "partitions has no meaning without topic = 'name'",
        ),
        (
            "create materialized view k with (wiat = true) as select * from orders",
            "unknown option wiat (hint: did you mean wait?)",
        ),
    ];
    for (sql, wanted) in cases {
        let error = env.error(sql).await.to_string();
        assert!(error.contains(wanted), "{sql}\n  got    {error}\n  wanted {wanted}");
    }
    assert!(env.log.system().admin().describe("k").await.unwrap().is_none(), "a refused sink creates no topic");
    env.run("create sink k with (topic = 'k', envelope = 'append', force_append_only = true) as select * from orders")
        .await;
    let error = env.error("create sink k2 with (topic = 'k') as select * from orders").await;
    assert_eq!((error.kind(), error.code), (ErrorKind::Conflict, "TOPIC_IN_USE"));
}

#[tokio::test]
async fn a_drop_is_refused_while_something_depends_on_it() {
    let env = env().await;
    env.run(ORDERS).await;
    env.run("create materialized view a as select v from orders; create materialized view b as select v from a; create sink k with (topic = 'k') as select id, v from orders")
        .await;
    let error = env.error("drop table orders").await;
    assert_eq!(error.to_string(), "line 1, column 12: a, b, k depend on it (hint: drop them first, or write CASCADE)");
    assert_eq!(
        env.error("drop table a").await.to_string(),
        "line 1, column 12: a is a view, not a table (hint: write MATERIALIZED VIEW)"
    );
    assert_eq!(
        env.error("drop table ordes").await.to_string(),
        "line 1, column 12: table ordes does not exist (hint: did you mean orders?)"
    );
    assert_eq!(env.notices("drop table if exists ordes").await, ["table ordes does not exist, nothing was done"]);
    let notices = env.notices("drop table orders cascade").await;
    assert_eq!(notices, ["a is dropped too", "b is dropped too", "k is dropped too", "topic k stays"]);
    let catalog = env.sql.catalog().unwrap();
    assert!(catalog.objects.is_empty() && catalog.dropping.is_empty());
    assert!(env.storage.ids().is_empty(), "{:?}", env.storage.ids());
    // numbers are never used again
    env.run(ORDERS).await;
    assert!(env.sql.catalog().unwrap().object("orders").unwrap().readable().unwrap().0.0 > 7);
}

#[tokio::test]
async fn pause_resume_and_rate_are_kept() {
    let env = env().await;
    env.run(ORDERS).await;
    env.run("create materialized view a as select v from orders").await;
    env.run("alter materialized view a pause; alter materialized view a set (backfill_rate_limit = 7)").await;
    let object = env.sql.catalog().unwrap().object("a").unwrap().derived().unwrap().clone();
    assert_eq!((object.desired, object.backfill_rate_limit), (millstream_sql::catalog::Desired::Paused, Some(7)));
    env.run("alter materialized view a resume; alter materialized view a set (backfill_rate_limit = default)").await;
    let object = env.sql.catalog().unwrap().object("a").unwrap().derived().unwrap().clone();
    assert_eq!((object.desired, object.backfill_rate_limit), (millstream_sql::catalog::Desired::Running, None));
    assert_eq!(env.error("alter sink a pause").await.message, "a is a view, not a sink");
}

#[tokio::test]
async fn rows_for_a_topic_table_are_produced_to_its_topic() {
    let env = env().await;
    env.run("create table orders (id bigint primary key, v bigint, o bigint metadata from 'offset') with (topic = 'orders')").await;
    let rows = env.rows("insert into orders values (77, 5)").await;
    assert_eq!(rows.len(), 1);
    let parts: Vec<&str> = rows[0].split(" | ").collect();
    let partition: i32 = parts[1].parse().unwrap();
    let records = env.log.committed(&TopicPartition::new("orders", partition));
    let last = records.last().unwrap();
    assert_eq!(
        (last.key_text().as_deref(), last.value_text().as_deref()),
        (Some("{\"id\":77}"), Some("{\"id\":77,\"v\":5}"))
    );
    assert_eq!(parts[2], last.offset.to_string());
    let error = env.error("insert into orders (id, o) values (1, 1)").await;
    assert!(error.message.contains("METADATA"), "{error}");
}

#[tokio::test]
async fn a_text_with_an_error_at_its_end_does_nothing() {
    let env = env().await;
    env.error("create table a (id int); create table b (id wibble)").await;
    assert!(env.sql.catalog().unwrap().objects.is_empty());
    env.error("create table a (id int); select * from nope; create table b (id int)").await;
    assert_eq!(env.sql.catalog().unwrap().objects.len(), 1, "statements before the failing one stay done");
    env.sql
        .validate("create table c (id int); select 1; create materialized view v as select id from a")
        .await
        .unwrap();
    assert_eq!(env.sql.catalog().unwrap().objects.len(), 1, "validate changes nothing");
}
