//! Grammar: what each statement becomes, and where each error points.

use millstream_sql::parser::{
    parse,
    statement::{CreateDerived, CreateTable, ExplainTarget, Statement},
};

fn table(t: &CreateTable) -> String {
    let columns: Vec<String> = t
        .columns
        .iter()
        .map(|c| {
            let mut s = format!("{} {}", c.name.value, c.sql_type);
            if c.not_null {
                s.push_str(" not null");
            }
            if let Some((text, ..)) = &c.default {
                s.push_str(&format!(" default {text}"));
            }
            if let Some(m) = &c.metadata {
                s.push_str(&format!(" from {m:?}"));
            }
            s
        })
        .collect();
    let key: Vec<&str> = t.primary_key.iter().map(|n| n.value.as_str()).collect();
    let options: Vec<String> = t.options.iter().map(|o| format!("{}={}", o.key.value, o.value)).collect();
    format!(
        "table {}{} ({}) key ({}) with ({})",
        t.name.value,
        if t.if_not_exists { "?" } else { "" },
        columns.join(", "),
        key.join(", "),
        options.join(", ")
    )
}

fn derived(d: &CreateDerived) -> String {
    let options: Vec<String> = d.options.iter().map(|o| format!("{}={}", o.key.value, o.value)).collect();
    format!(
        "{:?} {}{} with ({}) as {}",
        d.kind,
        d.name.value,
        if d.if_not_exists { "?" } else { "" },
        options.join(", "),
        d.query
    )
}

fn summary(statement: &Statement) -> String {
    match statement {
        Statement::CreateTable(t) => table(t),
        Statement::CreateDerived(d) => derived(d),
        Statement::Drop { kind, names, if_exists, cascade } => {
            let names: Vec<&str> = names.iter().map(|n| n.value.as_str()).collect();
            format!(
                "drop {kind:?} {}{}{}",
                names.join(", "),
                if *if_exists { "?" } else { "" },
                if *cascade { " cascade" } else { "" }
            )
        }
        Statement::Show(l) => format!("show {l:?}"),
        Statement::ShowCreate(n) => format!("show create {}", n.value),
        Statement::Describe(n) => format!("describe {}", n.value),
        Statement::Explain { verbose, target } => {
            let v = if *verbose { " verbose" } else { "" };
            match target {
                ExplainTarget::Derived(d) => format!("explain{v} {}", derived(d)),
                ExplainTarget::Query(q) => format!("explain{v} {q}"),
            }
        }
        Statement::Query(q) => format!("query {q}"),
        Statement::Insert { table, .. } => format!("insert {}", table.value),
        Statement::Delete { table, .. } => format!("delete {}", table.value),
        Statement::Flush(t) => format!("flush {}", t.as_ref().map_or("all", |n| n.value.as_str())),
        Statement::Compact(n) => format!("compact {}", n.value),
        Statement::Checkpoint => "checkpoint".to_owned(),
        Statement::WaitFor(n) => format!("wait {}", n.value),
        Statement::Alter { kind, name, action } => format!("alter {kind:?} {} {action:?}", name.value),
    }
}

#[test]
fn every_statement_is_read() {
    let cases = [
        (
            "create table if not exists Orders (order_id bigint, \"Total\" decimal(12, 2) not null, note text default 'a''b', at timestamp with time zone, \
             src bigint metadata from 'offset', h varchar metadata from header('x'), primary key (order_id)) with (topic = 'orders', 'value.format'='json', n = 3, f = true)",
            "table orders? (order_id BIGINT, Total DECIMAL(12,2) not null, note VARCHAR default 'a''b', at TIMESTAMPTZ, src BIGINT from Offset, \
             h VARCHAR from Header(\"x\")) key (order_id) with (topic=orders, value.format=json, n=3, f=true)",
        ),
        ("create table t (id int primary key, v text)", "table t (id INT, v VARCHAR) key (id) with ()"),
        (
            "create table t (a bigint[], s struct(x int, y varchar[]), m map(varchar, double))",
            "table t (a BIGINT[], s STRUCT(\"x\" INT, \"y\" VARCHAR[]), m MAP(VARCHAR, DOUBLE)) key () with ()",
        ),
        (
            "create table t (a int default 1 + 2 not null, b double precision null)",
            "table t (a INT not null default 1 + 2, b DOUBLE) key () with ()",
        ),
        ("create table t (\"offset\" bigint metadata)", "table t (offset BIGINT from Offset) key () with ()"),
        (
            "create table t (a int) with (scan.startup.mode = latest, x = -5)",
            "table t (a INT) key () with (scan.startup.mode=latest, x=-5)",
        ),
        (
            "create materialized view v as select a, count(*) from t group by a",
            "View v with () as SELECT a, count(*) FROM t GROUP BY a",
        ),
        (
            "create materialized view if not exists v with (topic = 'x') as (select 1)",
            "View v? with (topic=x) as (SELECT 1)",
        ),
        (
            "create sink s with (topic='x', envelope = 'append') as select * from t",
            "Sink s with (topic=x, envelope=append) as SELECT * FROM t",
        ),
        ("drop table a, public.b", "drop Table a, b"),
        ("drop materialized view if exists v cascade", "drop View v? cascade"),
        ("drop sink s restrict", "drop Sink s"),
        ("show tables", "show Tables"),
        ("SHOW materialized views", "show Views"),
        ("show backfills", "show Backfills"),
        ("show create table t", "show create t"),
        ("show create materialized view v", "show create v"),
        ("show create v", "show create v"),
        ("describe t", "describe t"),
        ("explain select 1", "explain SELECT 1"),
        (
            "explain verbose create materialized view v as select a from t",
            "explain verbose View v with () as SELECT a FROM t",
        ),
        ("insert into t values (1, 'x')", "insert t"),
        ("insert into t (a) select 1", "insert t"),
        ("delete from t where a = 1", "delete t"),
        ("flush", "flush all"),
        ("flush table t", "flush t"),
        ("compact table t", "compact t"),
        ("checkpoint", "checkpoint"),
        ("wait for v", "wait v"),
        ("alter materialized view v pause", "alter View v Pause"),
        ("alter sink s resume", "alter Sink s Resume"),
        ("alter materialized view v set (backfill_rate_limit = 100)", "alter View v SetRateLimit(Some(100))"),
        ("alter materialized view v set backfill_rate_limit to default", "alter View v SetRateLimit(None)"),
        ("with x as (select 1) select * from x", "query WITH x AS (SELECT 1) SELECT * FROM x"),
        ("values (1), (2)", "query VALUES (1), (2)"),
    ];
    for (sql, wanted) in cases {
        let parsed = parse(sql).unwrap_or_else(|e| panic!("{sql}: {e}"));
        assert_eq!(parsed.len(), 1, "{sql}");
        assert_eq!(summary(&parsed[0].statement), wanted, "{sql}");
        assert_eq!(parsed[0].text, sql);
    }
}

#[test]
fn statements_are_parted_by_semicolons_and_keep_their_text() {
    let parsed = parse(";; select ';' -- a; comment\n; /* b; */ create table t (\n  a int\n);\n").unwrap();
    let texts: Vec<&str> = parsed.iter().map(|p| p.text.as_str()).collect();
    assert_eq!(texts, ["select ';'", "create table t (\n  a int\n)"]);
    assert_eq!((parsed[1].at.line, parsed[1].at.column), (2, 12));
}

#[test]
fn each_error_has_its_place_and_says_what_to_write() {
    let cases = [
        ("", "there is no statement"),
        ("selct 1", "line 1, column 1: expected a statement, found selct (hint: did you mean SELECT?)"),
        ("select 1 from", "line 1, column 14: expected: identifier, found: EOF"),
        ("select 'abc", "line 1, column 8: Unterminated string literal"),
        ("select 1;\nselect (2", "line 2, column 10: expected: ), found: EOF"),
        ("create table t", "line 1, column 15: expected (, found the end of the statement"),
        ("create table t (a)", "line 1, column 18: column a has no type (hint: write a BIGINT)"),
        (
            "create table t (a int,\n b wibble)",
            "line 2, column 4: unknown type wibble (hint: types are BOOLEAN, SMALLINT, INT, BIGINT, REAL, DOUBLE, DECIMAL(p,s), VARCHAR, BYTEA, DATE, TIME, TIMESTAMP, TIMESTAMPTZ, INTERVAL, JSONB, type[], STRUCT(name type), MAP(type, type))",
        ),
        ("create table t (a bigin)", "line 1, column 19: unknown type bigin (hint: did you mean BIGINT?)"),
        (
            "create table t (a varchar(20))",
            "line 1, column 19: unknown type varchar(20) (hint: VARCHAR has no length here, write VARCHAR)",
        ),
        (
            "create table t (a uuid)",
            "line 1, column 19: unknown type uuid (hint: UUID is not supported yet, write VARCHAR)",
        ),
        ("create table t (a int, a int)", "line 1, column 24: column a is given twice"),
        (
            "create table t (a int primary key, primary key (a))",
            "line 1, column 36: PRIMARY KEY is given twice (hint: write one PRIMARY KEY (a, b))",
        ),
        (
            "create table t (a int, watermark for a as a)",
            "line 1, column 24: WATERMARK is not supported yet (hint: leave it out; windows come in a later version)",
        ),
        (
            "create table t (a int unique)",
            "line 1, column 23: UNIQUE of a column is not supported (hint: a column has a type and NOT NULL, DEFAULT, METADATA FROM or PRIMARY KEY)",
        ),
        (
            "create table t (a int, check (a > 1))",
            "line 1, column 24: CHECK constraints are not supported (hint: only PRIMARY KEY and NOT NULL are checked)",
        ),
        (
            "create table t (a int metadata from 'ofset')",
            "line 1, column 37: a record has no metadata ofset (hint: did you mean offset?)",
        ),
        ("create table t (a int) with (topic 'x')", "line 1, column 36: expected =, found 'x'"),
        ("create table t (a int) with (topic = 'x', topic = 'y')", "line 1, column 43: option topic is given twice"),
        (
            "create table t as select 1",
            "line 1, column 16: CREATE TABLE .. AS SELECT is not supported (hint: write CREATE MATERIALIZED VIEW .. AS SELECT, or create the table and INSERT INTO it)",
        ),
        (
            "create table t from topic 'x'",
            "line 1, column 16: CREATE TABLE .. FROM TOPIC needs a schema registry, which is not supported yet (hint: list the columns)",
        ),
        (
            "create or replace materialized view v as select 1",
            "line 1, column 8: CREATE OR REPLACE is not supported yet (hint: drop the object and create it again)",
        ),
        (
            "create view v as select 1",
            "line 1, column 8: views that are only a stored query: not supported yet (hint: write CREATE MATERIALIZED VIEW)",
        ),
        (
            "create materialized view v (a) as select 1",
            "line 1, column 28: a column list after the name is not supported (hint: name the columns in the query: SELECT x AS name)",
        ),
        ("create materialized view v select 1", "line 1, column 28: expected AS, found select"),
        (
            "alter table t add column a int",
            "line 1, column 7: ALTER TABLE is not supported yet (hint: create a new table over the same topic)",
        ),
        (
            "alter materialized view v set (topic = 'x')",
            "line 1, column 32: option topic cannot be changed (hint: backfill_rate_limit can; for others drop and create again)",
        ),
        (
            "update t set a = 1",
            "line 1, column 1: UPDATE is not supported (hint: INSERT with the same primary key replaces the row)",
        ),
        ("drop view v", "line 1, column 6: DROP VIEW is not a statement (hint: write DROP MATERIALIZED VIEW)"),
        (
            "drop table other.t",
            "line 1, column 12: there is no schema other (hint: write the name without a schema; all objects are in schema public)",
        ),
        (
            "show tabls",
            "line 1, column 6: expected TABLES, VIEWS, SINKS, JOBS, BACKFILLS, REGIONS, TOPICS or CREATE, found tabls (hint: did you mean TABLES?)",
        ),
        ("show tables now", "line 1, column 13: expected the end of the statement, found now"),
        (
            "insert into t values (1) returning a",
            "line 1, column 1: RETURNING is not supported yet (hint: SELECT the rows afterwards)",
        ),
        ("flush t", "line 1, column 7: expected TABLE, found t"),
    ];
    let mut wrong = String::new();
    for (sql, wanted) in cases {
        let error = parse(sql).err().unwrap_or_else(|| panic!("{sql}: must not parse")).to_string();
        if error != wanted {
            wrong.push_str(&format!("{sql}\n  got    {error}\n  wanted {wanted}\n"));
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn deep_nesting_is_refused_and_does_not_overflow() {
    let deep = format!("select {}1{}", "(".repeat(20_000), ")".repeat(20_000));
    assert_eq!(parse(&deep).unwrap_err().code, "TOO_DEEP");
    let types = format!("create table t (a {}int{})", "struct(a ".repeat(20_000), ")".repeat(20_000));
    assert!(parse(&types).is_err());
}
