//! The catalog of this process: the newest version that it knows, and the one way to a next one.
//!
//! A change is a function from a catalog to the next one. If another process has put that version first, the newest is read and the function
//! runs again: every check is made against the catalog that the change will really follow.

use std::sync::{Arc, RwLock};

use tokio::sync::Mutex;

use super::{
    log::CatalogLog,
    snapshot::{Catalog, Cluster},
};
use crate::SqlError;

/// Lost races before a statement gives up; each means that another statement succeeded.
const ATTEMPTS: u32 = 16;

#[derive(Debug)]
pub struct CatalogStore {
    log: Arc<dyn CatalogLog>,
    /// Read by every statement, replaced whole by `load` and `change`; never held across an await.
    current: RwLock<Arc<Catalog>>,
    /// One change at a time in this process.
    changing: Mutex<()>,
}

impl CatalogStore {
    /// Reads the newest version, or writes version 0 if the cluster is new.
    pub async fn load(log: Arc<dyn CatalogLog>, cluster: Cluster) -> Result<Self, SqlError> {
        loop {
            if let Some(catalog) = read(log.as_ref()).await? {
                if catalog.cluster != cluster {
                    return Err(SqlError::conflict(
                        "SHARDS_FIXED",
                        format!(
                            "this cluster was started with {} shards and the number is fixed, the configuration says {}",
                            catalog.cluster.shards, cluster.shards
                        ),
                    )
                    .hint(format!("set cluster.shards to {}", catalog.cluster.shards)));
                }
                return Ok(Self { log, current: RwLock::new(Arc::new(catalog)), changing: Mutex::new(()) });
            }
            let first = Catalog::first(cluster);
            log.put(0, first.to_json()?.into()).await?;
        }
    }

    pub fn current(&self) -> Arc<Catalog> {
        Arc::clone(&self.current.read().unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    /// Takes a newer version of another process, if there is one.
    pub async fn refresh(&self) -> Result<(), SqlError> {
        let _one = self.changing.lock().await;
        self.read_newest().await
    }

    async fn read_newest(&self) -> Result<(), SqlError> {
        if let Some(catalog) = read(self.log.as_ref()).await?
            && catalog.version > self.current().version
        {
            self.publish(catalog);
        }
        Ok(())
    }

    fn publish(&self, catalog: Catalog) {
        *self.current.write().unwrap_or_else(std::sync::PoisonError::into_inner) = Arc::new(catalog);
    }

    /// Appends what `change` makes of the newest catalog. Returns its answer when the new version is durable. `change` returns an error to
    /// refuse, and must check everything it relies on, since it runs again after a lost race.
    pub async fn change<T>(&self, mut change: impl FnMut(&mut Catalog) -> Result<T, SqlError>) -> Result<T, SqlError> {
        let _one = self.changing.lock().await;
        for _ in 0..ATTEMPTS {
            let mut next = Catalog::clone(&self.current());
            let answer = change(&mut next)?;
            next.version += 1;
            if self.log.put(next.version, next.to_json()?.into()).await? {
                tracing::info!(version = next.version, objects = next.objects.len(), "catalog changed");
                self.publish(next);
                return Ok(answer);
            }
            let seen = self.current().version;
            self.read_newest().await?;
            if self.current().version == seen {
                return Err(SqlError::conflict(
                    "CATALOG_CONFLICT",
                    format!("catalog version {} is taken but cannot be found", seen + 1),
                ));
            }
        }
        Err(SqlError::conflict("CATALOG_CONFLICT", "other statements keep changing the catalog").hint("try again"))
    }
}

async fn read(log: &dyn CatalogLog) -> Result<Option<Catalog>, SqlError> {
    let Some((version, bytes)) = log.latest().await? else { return Ok(None) };
    let path = format!("catalog/{version:020}.json");
    let catalog = Catalog::from_json(&bytes, &path)?;
    if catalog.version != version {
        return Err(SqlError::new(
            millstream_types::ErrorKind::Corrupt,
            "CATALOG_CORRUPT",
            format!("{path}: it says that it is version {}", catalog.version),
        ));
    }
    Ok(Some(catalog))
}
