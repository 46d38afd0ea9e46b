//! Tests of millstream-sql: grammar and refusals, catalog, plans, queries and DDL over a storage double, and the whole path in one process.

#![expect(clippy::unwrap_used, reason = "a failed test may panic")]

mod catalog;
mod ddl;
mod end_to_end;
mod limits;
mod parser;
mod planner;
mod query;
mod support;
