//! REST, probes and metrics: the one place with axum. It holds handles, never engines.
//!
//! A request: [`routes`] (the list of paths) -> `limit` (how many, how long) -> a route -> [`ports`] or `storage::Storage` -> [`encode`] (rows) or [`model`]
//! (everything else). A failure: any error -> [`error::ApiError`] -> one match to a status. The probe port shares nothing with it but [`health::Health`].

pub mod encode;
pub mod error;
mod extract;
pub mod health;
mod limit;
mod literal;
mod metrics;
pub mod model;
pub mod openapi;
pub mod ports;
mod read;
pub mod routes;
mod serve;
mod state;

pub use error::ApiError;
pub use health::{Health, Phase};
pub use metrics::AdminMetrics;
pub use serve::{bind, serve};
pub use state::{AdminConfig, AdminDeps, AdminState, NodeInfo};
