//! Batch queries: [`table_provider`] reads regions, [`schema_provider`] and [`system_tables`] give names to them, [`run`] executes within limits.
//! [`aggregates`] are those that must say what a view says.

pub(crate) mod aggregates;
pub(crate) mod notices;
pub(crate) mod pushdown;
pub(crate) mod run;
pub(crate) mod schema_provider;
pub(crate) mod system_tables;
pub(crate) mod table_provider;
