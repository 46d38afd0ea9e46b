//! Streaming plans as EXPLAIN prints them, refusals with their places, and the layout of stored columns.

use millstream_sql::catalog::Object;
use millstream_types::{Classified, ErrorKind, TableId};

use crate::support::Env;

async fn env() -> Env {
    let env = Env::new().await;
    env.log.create_topic("orders", 3);
    env.log.create_topic("clicks", 2);
    env.run(
        "create table orders (order_id bigint, customer_id bigint not null, amount decimal(12,2), n int, note varchar, at timestamptz, price double, \
           primary key (order_id)) with (topic = 'orders');
         create table clicks (page varchar, ms bigint) with (topic = 'clicks');",
    )
    .await;
    env
}

#[tokio::test]
async fn a_filter_view_reads_only_the_columns_it_needs_and_keeps_the_key() {
    let env = env().await;
    let plan = env
        .explain(
            "create materialized view big as select customer_id, amount * 2 as twice from orders where amount > 1000",
        )
        .await;
    assert_eq!(
        plan,
        "materialize big: key __order_id, __region\n\
         \x20 project orders.customer_id, orders.amount * 2 AS twice\n\
         \x20   filter orders.amount > 1000.00\n\
         \x20     scan orders: 3 regions, columns order_id, customer_id, amount, inserts, updates, deletes\n\
         \x20         backfill: about 0 rows, 0 bytes"
    );
}

#[tokio::test]
async fn an_aggregation_under_a_view_keeps_its_state_in_the_view() {
    let env = env().await;
    let plan = env
        .explain("verbose create materialized view r with (topic = 'r') as select customer_id, sum(amount) as total, avg(n) as mean from orders group by customer_id")
        .await;
    assert!(plan.contains("hash agg: group by customer_id, sum(amount), avg(n), state: in view"), "{plan}");
    assert!(plan.contains("topic r: 4 partitions, envelope upsert, key customer_id"), "{plan}");
    assert!(plan.contains("total DECIMAL(22,2)"), "{plan}");
    assert!(plan.contains("__rows BIGINT hidden"), "{plan}");
}

#[tokio::test]
async fn a_filter_above_an_aggregation_gives_it_a_state_table() {
    let env = env().await;
    let plan =
        env.explain("create materialized view r as select customer_id, count(*) as c from orders group by customer_id having count(*) > 1").await;
    assert!(plan.contains("count(*), state: own table"), "{plan}");
    assert!(plan.contains("filter count(*) > 1"), "{plan}");
}

#[tokio::test]
async fn minima_need_their_values_only_when_rows_can_leave() {
    let env = env().await;
    let plan = env
        .explain(
            "create materialized view m as select customer_id, min(amount), max(at) from orders group by customer_id",
        )
        .await;
    assert!(plan.contains("state: in view + 2 value sets"), "{plan}");
    let plan =
        env.explain("create materialized view m as select page, min(ms), max(ms) from clicks group by page").await;
    assert!(plan.contains("state: in view\n"), "{plan}");
}

#[tokio::test]
async fn a_cast_in_an_aggregate_is_the_users_unless_it_only_widens_a_sum() {
    let env = env().await;
    for (call, argument) in [
        ("min(cast(customer_id as double))", "CAST"),
        ("max(cast(order_id as smallint))", "CAST"),
        ("sum(cast(order_id as smallint))", "CAST"),
        ("sum(cast(n as bigint))", "sum(n)"),
    ] {
        let sql = format!("create materialized view m as select note, {call} as x from orders group by note");
        let plan = env.explain(&sql).await;
        assert!(plan.contains(argument), "{call}: {plan}");
    }
}

#[tokio::test]
async fn a_view_over_an_append_only_table_is_append_only() {
    let env = env().await;
    let plan = env.explain("create materialized view slow as select * from clicks where ms > 1000").await;
    assert!(plan.starts_with("materialize slow: key none (append-only)"), "{plan}");
    assert!(plan.contains("inserts only"), "{plan}");
}

#[tokio::test]
async fn stored_columns_have_stable_ids_and_hidden_ones_come_last() {
    let env = env().await;
    env.run("create materialized view v as select note as n1, upper(note) as n2 from orders where n is not null").await;
    let catalog = env.sql.catalog().unwrap();
    let Object::View(v) = catalog.object("v").unwrap().as_ref() else { panic!() };
    let columns: Vec<(u32, &str, String, bool)> =
        v.schema.columns.iter().map(|c| (c.id, c.name.as_str(), c.sql_type.to_string(), c.hidden)).collect();
    assert_eq!(
        columns,
        [
            (1, "n1", "VARCHAR".to_owned(), false),
            (2, "n2", "VARCHAR".to_owned(), false),
            (3, "__order_id", "BIGINT".to_owned(), true),
            (4, "__region", "INT".to_owned(), true)
        ]
    );
    assert_eq!(v.schema.primary_key, [2, 3]);
    assert_eq!((v.id, v.input), (TableId(3), TableId(1)));
    assert_eq!(env.rows("select * from v").await, Vec::<String>::new());
    assert_eq!(env.rows("describe v").await, ["n1 | VARCHAR | yes |  |  | ", "n2 | VARCHAR | yes |  |  | "]);
}

#[tokio::test]
async fn a_view_of_a_view_uses_its_hidden_key() {
    let env = env().await;
    env.run("create materialized view v as select note from orders").await;
    let plan = env.explain("create materialized view w as select note from v where note <> ''").await;
    assert!(plan.contains("materialize w: key __order_id, __region"), "{plan}");
    assert!(plan.contains("columns note, __order_id, __region"), "{plan}");
}

#[tokio::test]
async fn distinct_and_filters_in_aggregates_are_rewritten() {
    let env = env().await;
    let plan = env.explain("create materialized view d as select distinct customer_id from orders").await;
    assert!(plan.contains("hash agg: group by customer_id, state: in view"), "{plan}");
    let plan = env
        .explain("create materialized view f as select customer_id, count(*) filter (where n > 1) as c from orders group by customer_id")
        .await;
    assert!(plan.contains("CASE WHEN"), "{plan}");
}

#[tokio::test]
async fn what_cannot_be_kept_up_to_date_is_refused_with_its_place() {
    let env = env().await;
    let cases = [
        (
            "select * from orders order by n",
            "line 1, column 61: ORDER BY cannot be kept up to date yet (hint: the rows of a view have no order: leave it out, and write ORDER BY when you read the view)",
        ),
        (
            "select * from orders limit 3",
            "LIMIT cannot be kept up to date yet (hint: leave it out, and write LIMIT when you read the view)",
        ),
        (
            "select * from orders a join clicks b on a.note = b.page",
            "line 1, column 59: a join cannot be kept up to date yet (hint: create a view per table and join them when you read them)",
        ),
        (
            "select * from orders, clicks",
            "line 1, column 53: a join cannot be kept up to date yet (hint: create a view per table and join them when you read them)",
        ),
        (
            "select now() from orders",
            "line 1, column 38: now() gives another value each time it is asked, so that a delete could not undo what its insert did (hint: use a column of the record, such as one with METADATA FROM 'timestamp')",
        ),
        (
            "select random() from orders",
            "line 1, column 38: random() gives another value each time it is asked, so that a delete could not undo what its insert did (hint: use a column of the record, such as one with METADATA FROM 'timestamp')",
        ),
        (
            "select count(distinct n) from orders",
            "line 1, column 38: count(DISTINCT ..) cannot be kept up to date yet (hint: create a view with GROUP BY of that column, and a second view that counts it)",
        ),
        (
            "select row_number() over (order by n) from orders",
            "line 1, column 38: a window function cannot be kept up to date yet (hint: use GROUP BY, or write the window function when you read the view)",
        ),
        (
            "select stddev(n) from orders",
            "line 1, column 38: stddev() cannot be kept up to date yet (hint: count, sum, avg, min and max can)",
        ),
        (
            "select n from orders where n in (select ms from clicks)",
            "line 1, column 58: a subquery in an expression cannot be kept up to date yet (hint: create a view of the subquery and join when you read)",
        ),
        (
            "select n from orders union all select n from orders",
            "UNION cannot be kept up to date yet (hint: create one view per part)",
        ),
        (
            "select price, count(*) from orders group by price",
            "a view cannot be grouped by price, which is of type DOUBLE (hint: CAST it to DECIMAL or VARCHAR)",
        ),
        (
            "select max(c) from (select count(*) as c from orders group by n) x",
            "an aggregation of an aggregation cannot be kept up to date yet (hint: create a view of the inner query, and a second view over it)",
        ),
        ("select 1", "the query reads no table (hint: write SELECT .. FROM t)"),
        (
            "select * from millstream.jobs",
            "millstream.jobs is not a table or view (hint: system tables can be queried, but not be the input of a view)",
        ),
        (
            "select n as __n from orders",
            "column name __n is reserved (hint: write AS with a name that does not begin with __)",
        ),
        ("select nn from orders", "line 1, column 38: "),
        ("select n from ordrs", "line 1, column 45: table ordrs does not exist (hint: did you mean orders?)"),
        ("select nosuch(n) from orders", "nosuch"),
    ];
    let mut wrong = String::new();
    for (query, wanted) in cases {
        let error = env.error(&format!("create materialized view v as {query}")).await.to_string();
        if !error.contains(wanted) {
            wrong.push_str(&format!("{query}\n  got    {error}\n  wanted {wanted}\n"));
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert_eq!(env.storage.ids().len(), 5, "a refused view leaves nothing");
}

#[tokio::test]
async fn explain_of_a_query_tells_whether_a_view_could_do_it() {
    let env = env().await;
    let plan = env.explain("select customer_id from orders where order_id = 7 order by 1").await;
    assert!(plan.starts_with("as a materialized view: not possible:"), "{plan}");
    assert!(plan.contains("as a query:\n"), "{plan}");
    let plan = env.explain("select customer_id from orders").await;
    assert!(plan.starts_with("as a materialized view:\n  materialize (view): key __order_id"), "{plan}");
}

#[tokio::test]
async fn literals_are_exact_and_casts_are_off_the_column() {
    let env = env().await;
    let plan = env
        .explain(
            "create materialized view v as select amount * 0.1 as tenth from orders where n > 5 and amount >= 10.5",
        )
        .await;
    assert!(plan.contains("orders.n > 5"), "{plan}");
    assert!(!plan.contains("CAST(orders.n"), "{plan}");
    assert!(!plan.contains("Float64"), "{plan}");
}

#[tokio::test]
async fn a_constant_that_cannot_be_worked_out_is_refused_when_the_view_is_created() {
    let env = env().await;
    let huge = "repeat('x', 2000000000)";
    for (view, code) in [
        (format!("select order_id, {huge} as r from orders"), "VALUE_TOO_LARGE"),
        (format!("select order_id, length({huge}) as r from orders"), "VALUE_TOO_LARGE"),
        (format!("select order_id, length(note || {huge}) as r from orders"), "VALUE_TOO_LARGE"),
        (format!("select order_id from orders where note = {huge}"), "VALUE_TOO_LARGE"),
        (format!("select order_id from orders where n > 1 and note like {huge}"), "VALUE_TOO_LARGE"),
        (format!("select order_id, case when n = 1 then {huge} else note end as r from orders"), "VALUE_TOO_LARGE"),
        (format!("select order_id, coalesce(note, {huge}) as r from orders"), "VALUE_TOO_LARGE"),
        (format!("select n, sum(length({huge})) as r from orders group by n"), "VALUE_TOO_LARGE"),
        (format!("select length({huge}) as g, count(*) as r from orders group by length({huge})"), "VALUE_TOO_LARGE"),
        (format!("select n, count(*) as r from orders group by n having count(*) > length({huge})"), "VALUE_TOO_LARGE"),
        ("select order_id, n + 1 / 0 as r from orders".to_owned(), "QUERY_FAILED"),
    ] {
        for text in [
            format!("create materialized view bad as {view}"),
            format!("create sink bad with (topic = 'bad') as {view}"),
            format!("explain create materialized view bad as {view}"),
        ] {
            let error = env.error(&text).await;
            assert_eq!((error.code, error.kind()), (code, ErrorKind::Invalid), "{text}: {error}");
            assert!(error.message.contains("constant") && error.line.is_some(), "{text}: {error}");
        }
        assert!(env.sql.validate(&format!("create materialized view bad as {view}")).await.is_err(), "{view}");
    }
    let error = env.error("create materialized view bad as select order_id, cast('x' as int) as r from orders").await;
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    // a row that comes to a constant that fails, fails; others need not
    env.run("create materialized view some as select order_id, case when n = 0 then 1 / 0 else n end as r from orders")
        .await;
    env.run("create materialized view good as select order_id, repeat('x', 1000) as r from orders where note <> repeat('y', 100000)").await;
}
