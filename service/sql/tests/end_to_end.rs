//! From the record in a topic to the row of a view and the record of a derived topic, with real storage and stream engines, and again after a crash.

use std::collections::BTreeMap;

use millstream_types::{Classified, ErrorKind, TopicPartition};

use crate::support::Real;

const ORDERS: &str = "create table orders (order_id bigint, customer_id bigint not null, amount decimal(12,2), o bigint metadata from 'offset', \
                      primary key (order_id)) with (topic = 'orders', 'value.format' = 'json')";

fn order(real: &Real, id: i64, customer: i64, amount: &str) {
    let value = format!("{{\"order_id\":{id},\"customer_id\":{customer},\"amount\":\"{amount}\"}}");
    real.put("orders", (id % 2) as i32, &id.to_string(), Some(&value));
}

async fn cluster() -> Real {
    let real = Real::new().await;
    real.log.create_topic("orders", 2);
    for id in 0..20 {
        order(&real, id, id % 3, &format!("{id}.50"));
    }
    real
}

/// Last value per key over all partitions of a compacted topic.
fn folded(real: &Real, topic: &str, partitions: i32) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    for p in 0..partitions {
        for record in real.log.committed(&TopicPartition::new(topic, p)) {
            let key = record.key_text().unwrap_or_default();
            match record.value_text() {
                Some(value) => drop(all.insert(key, value)),
                None => drop(all.remove(&key)),
            }
        }
    }
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_becomes_a_table() {
    let real = cluster().await;
    real.run(ORDERS).await;
    real.run("wait for orders").await;
    assert_eq!(real.rows("select count(*), sum(amount) from orders").await, ["20 | 200.00"]);
    assert_eq!(real.rows("select amount, o from orders where order_id = 3").await, ["3.50 | 1"]);
    order(&real, 3, 0, "100.00");
    real.put("orders", 0, "4", None);
    real.run("wait for orders").await;
    assert_eq!(real.rows("select order_id, amount from orders where order_id in (3, 4)").await, ["3 | 100.00"]);
    real.put("orders", 1, "5", Some("not json"));
    real.run("wait for orders; flush table orders; compact table orders").await;
    assert_eq!(real.bad.0.lock().unwrap().len(), 1);
    assert_eq!(real.rows("select count(*) from orders").await, ["19"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_view_and_its_topic_follow_the_table() {
    let real = cluster().await;
    real.run(ORDERS).await;
    real.run(
        "create materialized view big as select order_id, amount * 2 as twice from orders where amount > 10;
         create materialized view totals with (topic = 'totals', partitions = 2) as
           select customer_id, sum(amount) as total, count(*) as n, min(amount) as least, avg(amount) as mean from orders group by customer_id;
         wait for big; wait for totals",
    )
    .await;
    let batch = "select customer_id, sum(amount), count(*), min(amount), avg(amount) from orders group by customer_id order by 1";
    assert_eq!(real.rows("select * from totals order by 1").await, real.rows(batch).await);
    assert_eq!(real.rows("select count(*) from big").await, ["10"]);
    assert_eq!(real.rows("select twice from big where order_id = 12").await, ["25.00"]);

    order(&real, 0, 2, "7.00");
    order(&real, 12, 2, "1.00");
    real.put("orders", 1, "1", None);
    real.run("wait for big; wait for totals").await;
    assert_eq!(real.rows("select * from totals order by 1").await, real.rows(batch).await);
    assert_eq!(real.rows("select count(*) from big where order_id = 12").await, ["0"]);
    let topic = folded(&real, "totals", 2);
    let keys: Vec<&str> = topic.keys().map(String::as_str).collect();
    assert_eq!(keys, ["{\"customer_id\":0}", "{\"customer_id\":1}", "{\"customer_id\":2}"]);
    let of_view = real.rows("select total from totals order by customer_id").await;
    for (value, total) in topic.values().zip(of_view) {
        assert!(value.contains(&format!("\"total\":\"{total}\"")), "{value} has no total {total}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_is_there_again_after_a_crash() {
    let real = cluster().await;
    real.run(ORDERS).await;
    real.run("create table notes (id int primary key, v varchar); insert into notes values (1, 'kept'), (2, 'gone'); delete from notes where id = 2").await;
    real.run(
        "create materialized view totals with (topic = 'totals', partitions = 2) as select customer_id, sum(amount) as total from orders group by customer_id;
         create sink copy with (topic = 'copy', partitions = 2) as select order_id, amount from orders where amount > 5;
         wait for totals; wait for copy; flush table orders",
    )
    .await;
    let before = real.rows("select * from totals order by 1").await;
    let real = real.crash_and_restart().await;
    assert!(real.sql.broken().is_empty(), "{:?}", real.sql.broken());
    assert_eq!(real.rows("select * from totals order by 1").await, before);
    assert_eq!(real.rows("select * from notes").await, ["1 | kept"]);
    assert_eq!(real.rows("select count(*) from orders").await, ["20"]);

    order(&real, 0, 1, "1000.00");
    real.run("wait for totals; wait for copy").await;
    let batch = "select customer_id, sum(amount) from orders group by customer_id order by 1";
    assert_eq!(real.rows("select * from totals order by 1").await, real.rows(batch).await);
    assert_eq!(folded(&real, "totals", 2).len(), 3);
    assert_eq!(folded(&real, "copy", 2).len(), 16);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_view_of_a_view_and_one_over_an_append_only_table() {
    let real = cluster().await;
    real.log.create_topic("clicks", 2);
    real.run(ORDERS).await;
    real.run(
        "create materialized view pairs as select customer_id % 2 as odd, amount from orders;
         create materialized view sums as select odd, sum(amount) as s from pairs group by odd;
         create table clicks (page varchar, ms bigint) with (topic = 'clicks');
         create materialized view slow with (topic = 'slow', partitions = 1) as select page, ms from clicks where ms > 10;
         create materialized view pages as select page, count(*) as n, max(ms) as most from clicks group by page",
    )
    .await;
    for i in 0..30 {
        real.put("clicks", i % 2, "k", Some(&format!("{{\"page\":\"p{}\",\"ms\":{i}}}", i % 3)));
    }
    real.run("wait for sums; wait for slow; wait for pages").await;
    let batch = "select customer_id % 2, sum(amount) from orders group by 1 order by 1";
    assert_eq!(real.rows("select * from sums order by 1").await, real.rows(batch).await);
    assert_eq!(real.rows("select count(*), min(ms) from slow").await, ["19 | 11"]);
    assert_eq!(real.log.committed(&TopicPartition::new("slow", 0)).len(), 19);
    assert_eq!(real.rows("select * from pages order by 1").await, ["p0 | 10 | 27", "p1 | 10 | 28", "p2 | 10 | 29"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_global_aggregate_is_one_row_and_having_hides_groups() {
    let real = cluster().await;
    real.run("create table t (id bigint primary key, g bigint, v double)").await;
    real.run("create materialized view one as select count(*) as n, sum(v) as s from t; create materialized view many as select g, count(*) as n from t group by g having count(*) > 1")
        .await;
    real.run("wait for one; wait for many").await;
    assert_eq!(real.rows("select * from one").await, real.rows("select count(*), sum(v) from t").await);
    real.run("insert into t values (1, 1, 0.5), (2, 1, 0.25), (3, 2, 1); wait for one; wait for many").await;
    assert_eq!(real.rows("select * from one").await, ["3 | 1.75"]);
    assert_eq!(real.rows("select * from many").await, ["1 | 2"]);
    real.run("delete from t where id = 1; insert into t values (4, 2, null); wait for one; wait for many").await;
    assert_eq!(real.rows("select * from one").await, ["3 | 1.25"]);
    assert_eq!(real.rows("select * from many").await, ["2 | 2"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_objects_leave_nothing_and_their_names_are_free() {
    let real = cluster().await;
    real.run(ORDERS).await;
    for round in 0..3 {
        real.run("create materialized view v with (topic = 'v', partitions = 1) as select customer_id, count(*) as n from orders group by customer_id").await;
        if round != 1 {
            real.run("wait for v").await;
            assert_eq!(real.rows("select n from v order by customer_id").await, ["7", "7", "6"]);
        }
        real.run("drop materialized view v").await;
    }
    assert_eq!(real.rows("show jobs").await, Vec::<String>::new());
    real.run("drop table orders").await;
    assert_eq!(real.rows("show regions").await, Vec::<String>::new());
    let real = real.crash_and_restart().await;
    assert!(real.sql.catalog().unwrap().objects.is_empty());
    real.run(ORDERS).await;
    real.run("wait for orders").await;
    assert_eq!(real.rows("select count(*) from orders").await, ["20"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_view_stands_still_and_goes_on() {
    let real = cluster().await;
    real.run(ORDERS).await;
    real.run("create materialized view v as select order_id from orders where amount > 1000; wait for v; alter materialized view v pause").await;
    let real = real.crash_and_restart().await;
    let state = "select state from millstream.jobs where name = 'v'";
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while real.rows(state).await != ["paused"] {
        assert!(std::time::Instant::now() < deadline, "{:?}", real.rows("show jobs").await);
        tokio::task::yield_now().await;
    }
    order(&real, 0, 1, "5000.00");
    real.run("wait for orders").await;
    assert_eq!(real.rows("select count(*) from v").await, ["0"]);
    real.run("alter materialized view v resume; wait for v").await;
    assert_eq!(real.rows("select order_id from v").await, ["0"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_type_passes_from_topic_to_table_view_and_topic() {
    let real = Real::new().await;
    real.log.create_topic("types", 1);
    real.run(
        "create table types (id bigint primary key, b boolean, si smallint, i int, r real, d double, de decimal(30,5), big decimal(60,3), v varchar default 'none',
           da date, ti time, ts timestamp, tz timestamptz, j jsonb, a bigint[], s struct(x int, y varchar), m map(varchar, double)) with (topic = 'types');
         create materialized view same with (topic = 'same', partitions = 1) as select * from types;
         create materialized view some as select id, v || '!' as v, tz + interval '1 day' as later, date_trunc('day', tz) as day, de / 3 as third, s, a[1] as first
           from types where tz >= '2024-01-31T00:00:00Z' and da = date '2024-01-31' and v like 'x%' and de > 0.5 and not b;
         create materialized view days as select date_trunc('day', tz) as day, b, count(*) as n, max(da) as last, min(v) as least, avg(d) as mean, sum(de) as total
           from types group by 1, b",
    )
    .await;
    let value = r#"{"id":1,"b":false,"si":-7,"i":2147483647,"r":1.5,"d":-2.25,"de":"12345678901234567890.12345","big":"1.001","v":"x y","da":"2024-01-31","ti":"10:00:00.123456","ts":"2024-01-31T10:00:00.5","tz":"2024-01-31T12:00:00+02:00","j":{"k":[1,2.50]},"a":[9,null],"s":{"x":1,"y":"z"},"m":{"p":1.5}}"#;
    real.put("types", 0, "1", Some(value));
    real.put("types", 0, "2", Some(r#"{"id":2}"#));
    real.run("insert into types (id, b, tz, da, v, de) values (3, false, '2024-01-31T23:59:59Z', '2024-01-31', 'xx', 0.75); wait for same; wait for some; wait for days")
        .await;
    assert_eq!(real.bad.0.lock().unwrap().len(), 0, "{:?}", real.bad.0.lock().unwrap());
    assert_eq!(real.sorted("select * from types").await, real.sorted("select * from same").await);
    assert_eq!(real.rows("select v from types where id = 2").await, ["none"]);
    assert_eq!(
        real.rows("select id, v, later, third, first from some order by id").await,
        [
            "1 | x y! | 2024-02-01T10:00:00Z | 4115226300411522630.041150000 | 9",
            "3 | xx! | 2024-02-01T23:59:59Z | 0.250000000 | "
        ]
    );
    let batch = "select date_trunc('day', tz) as day, b, count(*), max(da), min(v), avg(d), sum(de) from types group by 1, b order by day nulls last";
    assert_eq!(real.rows("select * from days order by day nulls last").await, real.rows(batch).await);
    // a derived record reads back as the row that it was written from
    let records = real.log.committed(&TopicPartition::new("same", 0));
    let one = records.iter().rfind(|r| r.key_text().as_deref() == Some("{\"id\":1}")).unwrap();
    let written: serde_json::Value = serde_json::from_str(&one.value_text().unwrap()).unwrap();
    assert_eq!(written["de"], "12345678901234567890.12345");
    assert_eq!(written["tz"], "2024-01-31T10:00:00Z");
    assert_eq!(written["j"], serde_json::json!({"k": [1, 2.50]}));
    // a tombstone by SQL
    let answer = real.rows("delete from types where id = 1").await;
    assert_eq!(answer.len(), 1);
    real.run("wait for same; wait for some").await;
    assert_eq!(real.rows("select id from same order by id").await, ["2", "3"]);
    assert_eq!(real.rows("select id from some").await, ["3"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_moved_to_a_new_partition_is_two_rows_of_table_and_view_and_one_record() {
    let real = cluster().await;
    real.run(ORDERS).await;
    // as after the topic was given more partitions: order 1 comes again, and its old partition keeps it
    real.put("orders", 0, "1", Some(r#"{"order_id":1,"customer_id":7,"amount":"100.00"}"#));
    real.run(
        "create materialized view v with (topic = 'v', partitions = 2) as select order_id, amount from orders;
         create materialized view w with (topic = 'w', partitions = 2) as select order_id, amount * 2 as twice from v where amount > 0.5;
         create sink s with (topic = 's', partitions = 2) as select order_id, amount from orders;
         wait for v; wait for w; wait for s",
    )
    .await;
    let check = async |rows: &[&str]| {
        real.run("wait for v; wait for w; wait for s").await;
        assert_eq!(real.sorted("select order_id, amount from orders where order_id = 1").await, rows);
        assert_eq!(real.sorted("select * from v where order_id = 1").await, rows, "a look-up by key finds all rows");
        assert_eq!(real.sorted("select * from v").await, real.sorted("select order_id, amount from orders").await);
        let twice = real.sorted("select order_id, amount * 2 from orders where amount > 0.5").await;
        assert_eq!(real.sorted("select * from w").await, twice);
        let [v, w, s] = ["v", "w", "s"].map(|t| folded(&real, t, 2));
        assert_eq!(v.keys().collect::<Vec<_>>(), s.keys().collect::<Vec<_>>());
        let amounts: Vec<&str> = rows.iter().map(|r| r.split(" | ").nth(1).unwrap()).collect();
        for (topic, factor) in [(&v, 1), (&w, 2), (&s, 1)] {
            let record = topic.get("{\"order_id\":1}").or_else(|| topic.get("1"));
            let shown = amounts.iter().any(|a| {
                let cents: i64 = a.replace('.', "").parse().unwrap();
                let text = format!("{}.{:02}", cents * factor / 100, cents * factor % 100);
                record.is_some_and(|r| r.contains(&text))
            });
            assert_eq!(shown, !amounts.is_empty(), "{record:?} is none of {rows:?}: {topic:?}");
            assert_eq!(record.is_some(), !amounts.is_empty());
        }
    };
    check(&["1 | 1.50", "1 | 100.00"]).await;
    real.put("orders", 0, "1", None);
    check(&["1 | 1.50"]).await;
    real.put("orders", 0, "1", Some(r#"{"order_id":1,"customer_id":7,"amount":"3.00"}"#));
    check(&["1 | 1.50", "1 | 3.00"]).await;
    real.put("orders", 1, "1", None);
    check(&["1 | 3.00"]).await;
    real.put("orders", 0, "1", None);
    check(&[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn floats_and_large_sums_read_the_same_in_a_view_and_in_its_query() {
    let real = Real::new().await;
    real.run("create table f (k bigint primary key, g int, d double, r real, b bigint, n decimal(38,0))").await;
    let query = "select g, min(d) as dlo, max(d) as dhi, min(r) as rlo, max(r) as rhi, sum(b) as sb, sum(n) as sn, avg(n) as an from f group by g";
    real.run(&format!(
        "create materialized view v as {query};
         create materialized view a as select min(d) as lo, max(d) as hi from f"
    ))
    .await;
    let check = async || {
        real.run("wait for v; wait for a").await;
        let view = real.rows("select * from v order by 1").await;
        assert_eq!(view, real.rows(&format!("{query} order by 1")).await);
        assert_eq!(real.rows("select * from a").await, real.rows("select min(d), max(d) from f").await);
        view
    };
    real.run(
        "insert into f select k, k % 4, case k % 7 when 0 then cast('NaN' as double) when 1 then cast('-0.0' as double) when 2 then cast(0 as double) when 3 then cast('inf' as double)
           when 4 then cast('-inf' as double) else cast(k as double) end, case k % 3 when 0 then cast('NaN' as real) else cast(k as real) end, k as b, k as n
         from (select value as k from range(1, 60))",
    )
    .await;
    check().await;
    real.run("delete from f where d = cast('NaN' as double) or d = cast('inf' as double)").await;
    check().await;
    real.run("delete from f; insert into f values (1, 1, cast('-0.0' as double), 0, 9223372036854775807, 0), (2, 1, 0.0, 0, 0, 0), (3, 2, cast('-inf' as double), 1, 1, 1)").await;
    let view = check().await;
    assert!(view[0].starts_with("1 | -0.0 | 0.0"), "{view:?}");
    assert!(view[1].starts_with("2 | -inf | -inf"), "{view:?}");
    // out of range: the query says so, the view shows null, and both have the sum again when it is back in range
    real.run("insert into f values (4, 1, 1, 1, 1, 99999999999999999999999999999999999999), (5, 1, 1, 1, 0, 99999999999999999999999999999999999999)").await;
    real.run("wait for v").await;
    for call in ["sum(b)", "sum(n)", "sum(b) over ()"] {
        let error = real.sql.execute(&format!("select {call} from f")).await.unwrap_err();
        assert!(error.to_string().contains("out of range"), "{call}: {error}");
    }
    assert_eq!(real.rows("select sb, sn from v where g = 1").await, [" | "]);
    real.run("delete from f where k >= 4").await;
    check().await;
    let others = "select sum(distinct b) filter (where g = 1), sum(b) filter (where g = 2), sum(k) from f";
    assert_eq!(real.rows(others).await, ["9223372036854775807 | 1 | 6"]);
}

/// Its rows are gone, and no answer may hide that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_lost_its_log_is_refused_with_reason_and_remedy_wherever_it_would_be_read() {
    let real = cluster().await;
    real.run(ORDERS).await;
    real.run("create table notes (id bigint primary key, v varchar); insert into notes values (1, 'a')").await;
    let totals =
        "create materialized view totals as select customer_id, sum(amount) as total from orders group by customer_id";
    let above = "create materialized view above as select customer_id from totals where total > 1";
    real.run(&format!("{totals}; {above}; wait for totals; wait for above")).await;
    let before = real.rows("select * from totals order by 1").await;

    let (log, bucket) = real.crash().await;
    for shard in 0..4 {
        let partition = TopicPartition::new("millstream.wal", shard);
        let end = log.ends(&partition).unwrap().high_watermark.0;
        log.trim(&partition, end);
    }
    let real = Real::start(log, bucket).await;
    assert!(real.sql.broken()["totals"].contains("shared wal"), "{:?}", real.sql.broken());
    for text in [
        "select * from totals",
        "select total from totals where customer_id = 1",
        "select count(*) from above",
        "select o.order_id from orders o join totals t on o.customer_id = t.customer_id",
        "select order_id from orders where customer_id in (select customer_id from totals)",
        "select * from notes",
        "insert into notes values (2, 'b')",
        "delete from notes where id = 1",
        "create materialized view more as select customer_id from totals",
        "create sink out with (topic = 'out') as select customer_id from above",
        "explain verbose select * from totals",
    ] {
        let error = real.sql.execute(text).await.expect_err(text);
        assert_eq!((error.code, error.kind()), ("BROKEN", ErrorKind::Conflict), "{text}: {error}");
        assert!(error.message.contains("shared wal"), "{text}: {error}");
        assert!(
            error.hint.as_ref().is_some_and(|h| h.contains("drop") && h.contains("create it again")),
            "{text}: {error}"
        );
    }
    assert!(real.sql.validate("create materialized view more as select customer_id from totals").await.is_err());
    real.run("explain select * from totals; show create totals; show views; describe totals").await;
    // what has its own log is not touched
    assert_eq!(real.rows("select count(*) from orders").await, ["20"]);

    real.run(&format!("drop materialized view above; drop materialized view totals; {totals}; {above}; wait for totals; wait for above")).await;
    assert_eq!(real.rows("select * from totals order by 1").await, before);
    real.run("select * from above").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_query_over_what_stands_still_tells_so() {
    let real = cluster().await;
    real.run(ORDERS).await;
    real.run(
        "create materialized view v as select customer_id, count(*) as n from orders group by customer_id; wait for v",
    )
    .await;
    let notices = async |real: &Real, text: &str| real.sql.execute(text).await.unwrap()[0].notices().to_vec();
    assert!(notices(&real, "select * from v").await.is_empty());
    real.log.recreate_topic("orders");
    real.engine.guard().await;
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    for (text, begin) in [
        ("select count(*) from orders", "warning incomplete: table orders, region 1-0 (quarantined)"),
        ("select 1 where exists (select * from orders)", "warning incomplete: table orders"),
        ("select * from v", "warning stale: view v is degraded"),
    ] {
        while !notices(&real, text).await.iter().any(|n| n.starts_with(begin) && n.contains("created again")) {
            assert!(
                std::time::Instant::now() < deadline,
                "{text}: {:?}, {:?}",
                notices(&real, text).await,
                real.rows("show jobs").await
            );
            tokio::task::yield_now().await;
        }
    }
    assert!(real.rows("show tables").await[0].contains("created again"));
    let real = real.crash_and_restart().await;
    let told = notices(&real, "select count(*) from orders").await;
    assert!(told.iter().any(|n| n.contains("created again")), "what was not flushed is gone: {told:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_aggregate_needs_the_history_of_rows_that_can_change() {
    let real = cluster().await;
    real.run(ORDERS).await;
    let error = real
        .sql
        .execute("create materialized view v with (snapshot = 'false') as select customer_id, count(*) as n from orders group by customer_id")
        .await
        .unwrap_err();
    assert!(
        error.code == "INVALID_OPTION" && error.message.contains("snapshot = false") && error.line.is_some(),
        "{error:?}"
    );
    real.run("create materialized view f with (snapshot = 'false') as select order_id from orders").await;
    real.run(
        "create table log (order_id bigint, amount decimal(12,2)) with (topic = 'orders', 'value.format' = 'json')",
    )
    .await;
    real.run("create materialized view v with (snapshot = 'false') as select count(*) as n from log").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_derived_topic_with_old_records_is_told() {
    let real = cluster().await;
    real.run(ORDERS).await;
    let create = "create materialized view v with (topic = 'out', partitions = 1) as select order_id from orders";
    let told = async |real: &Real| {
        let results = real.sql.execute(create).await.unwrap();
        results[0].notices().iter().any(|n| n.contains("old_records"))
    };
    assert!(!told(&real).await);
    real.run("wait for v; drop materialized view v").await;
    assert!(told(&real).await);
}
