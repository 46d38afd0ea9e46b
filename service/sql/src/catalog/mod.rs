//! All objects of the cluster as one versioned JSON value in the bucket.
//!
//! [`object`] -> [`snapshot`] (one version) -> [`store`] (the newest one, and how it changes) -> [`log`] (`catalog/<version>.json`, put-if-absent).

pub mod log;
pub mod object;
pub mod snapshot;
pub mod store;

pub use log::{BucketCatalogLog, CatalogLog, MemoryCatalogLog};
pub use object::{Derived, Desired, Object, Table, TableSource, TopicEnvelope, TopicSource, TopicTarget};
pub use snapshot::{Catalog, Cluster, Dropping, Quarantined};
pub use store::CatalogStore;
