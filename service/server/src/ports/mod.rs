//! The services as admin sees them: each port is a translation, one method each, without decisions of its own.

mod bad_records;
mod jobs;
mod sql;

pub(crate) use bad_records::BadRecords;
pub(crate) use jobs::Jobs;
pub(crate) use sql::Sql;
