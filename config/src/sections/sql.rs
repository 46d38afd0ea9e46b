//! Section `sql`: limits of queries, so that one query cannot starve ingestion.

use std::time::Duration;

use crate::{
    section::{at_least, between, section},
    units::ByteSize,
};

section! {
    /// Limits of queries.
    pub struct Sql {
        /// A query that runs longer is ended with an error.
        query_timeout: Duration = Duration::from_secs(60), between(Duration::from_millis(100), Duration::from_secs(86_400));

        /// Memory of all running queries together. A query that needs more is ended with an error.
        query_memory: ByteSize = ByteSize::mib(256), at_least(ByteSize::mib(16));

        /// Rows of one answer. A query with more is ended with an error that tells to use LIMIT.
        max_result_rows: usize = 100_000, at_least(1);
    }
}
