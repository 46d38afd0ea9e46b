//! Batch queries: [`table_provider`] reads regions, [`schema_provider`] and [`system_tables`] give names to them, [`run`] executes within limits.

pub(crate) mod pushdown;
pub(crate) mod run;
pub(crate) mod schema_provider;
pub(crate) mod system_tables;
pub(crate) mod table_provider;
