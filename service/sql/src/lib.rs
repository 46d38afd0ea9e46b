//! SQL: statement -> catalog entry, job plan or query result.
//!
//! [`parser`] -> [`service`] decides -> `ddl` (validate completely, append to [`catalog`], then make regions and jobs) | `planner` (SELECT -> job
//! plan) | `query` (SELECT -> rows) | `insert`. The only place with DataFusion's planning. Not here: how jobs run (`service/stream`), how rows are
//! stored (`service/storage`), HTTP (`service/admin`).

mod broken;
pub mod catalog;
pub mod config;
mod ddl;
pub mod error;
mod format;
mod insert;
pub mod metrics;
pub mod parser;
mod planner;
mod query;
mod recover;
pub mod result;
pub mod service;
mod show;
mod stack;

pub use config::SqlConfig;
pub use error::SqlError;
pub use result::StatementResult;
pub use service::{SqlDeps, SqlService};
