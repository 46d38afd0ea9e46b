//! Reads and writes the manifest of one region.
//!
//! Every decision is one put-if-absent of version + 1. What the bucket does not answer is read back, never assumed (`VersionedLog::put`). Memory changes
//! after success only. The hint `_last.json` decides nothing: it saves a listing when it is right.

use std::sync::Arc;

use bytes::Bytes;
use millstream_types::{
    LeaderEpoch, RegionId,
    invariant::{Broken, Invariant},
    runtime::Clock,
};
use serde::{Deserialize, Serialize};

use super::{
    Action, ManifestVersion, Refused, State,
    codec::{seal, unseal},
};
use crate::{
    StorageError,
    object_store::{Bucket, Slot, VersionedLog, paths},
};

/// Versions between two checkpoints.
const CHECKPOINT_EVERY: u64 = 10;
/// Age under which a version is never cleaned up: a slow reader may be on its way through them.
const KEEP_MS: u64 = 60 * 60 * 1000;
/// Claims that others win before a claim gives up.
const CLAIM_TRIES: usize = 10;

/// What all manifests of a process share.
#[derive(Debug, Clone)]
pub struct StoreContext {
    pub bucket: Arc<Bucket>,
    pub clock: Arc<dyn Clock>,
    /// Replica name, for people; each store adds 64 random bits, which make its writer id unique.
    pub replica: Arc<str>,
}

/// Newest checkpoint, as the hint tells it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Hint {
    version: u64,
}

/// The manifest of one region as this process knows it.
#[derive(Debug)]
pub struct Store {
    context: StoreContext,
    versions: VersionedLog,
    checkpoints: VersionedLog,
    region: RegionId,
    writer: String,
    puts: u64,
    state: State,
    /// The leader epoch that this store claimed.
    claimed: Option<LeaderEpoch>,
    /// Newest checkpoint known, and the lowest version that a clean-up has not passed.
    checkpoint: Option<u64>,
    cleaned_to: u64,
}

fn logs(context: &StoreContext, region: RegionId) -> (VersionedLog, VersionedLog) {
    let folder = paths::manifest(region);
    (
        VersionedLog::new(context.bucket.clone(), folder.clone(), ".json"),
        VersionedLog::new(context.bucket.clone(), folder, ".checkpoint.json"),
    )
}

fn hint_path(region: RegionId) -> String {
    format!("{}/_last.json", paths::manifest(region))
}

fn writer_id(context: &StoreContext) -> String {
    format!("{}/{:016x}", context.replica, rand::random::<u64>())
}

impl Store {
    /// Puts version 0: `actions` begins with `Create`. Equal content exists: Ok with its state; different: `RegionDiffers`. Unreadable: the error, and
    /// nothing is written.
    pub async fn create(context: &StoreContext, region: RegionId, actions: Vec<Action>) -> Result<State, StorageError> {
        let (versions, _) = logs(context, region);
        let version = ManifestVersion {
            version: 0,
            leader_epoch: LeaderEpoch(0),
            writer: format!("{}/0", writer_id(context)),
            at_ms: context.clock.now_ms(),
            actions,
        };
        let state = State::first(&version).map_err(|e| refused_by_us(region, 0, &e))?;
        match versions.put(0, seal(&version)?).await? {
            Slot::Won => Ok(state),
            Slot::Exists(bytes) => {
                let found: ManifestVersion = unseal(&versions.path(0), &bytes)?;
                if found.actions == version.actions {
                    return State::first(&found).map_err(|e| refused_by_all(&versions.path(0), &e));
                }
                let what = match (found.actions.first(), version.actions.first()) {
                    (Some(Action::Create { schema: a, .. }), Some(Action::Create { schema: b, .. })) if a != b => {
                        "schema"
                    }
                    (Some(Action::Create { wal: a, .. }), Some(Action::Create { wal: b, .. })) if a != b => {
                        "WAL binding"
                    }
                    _ => "start",
                };
                Err(StorageError::RegionDiffers { region, what })
            }
        }
    }

    /// The newest version; `None` if the region has no version 0. One read of the hint, one of the checkpoint, one per version after it.
    pub async fn load(context: &StoreContext, region: RegionId) -> Result<Option<Store>, StorageError> {
        let (versions, checkpoints) = logs(context, region);
        let (state, checkpoint) = match start_from(context, &checkpoints, region).await? {
            Some(state) => {
                let version = state.version;
                (state, Some(version))
            }
            None => {
                let Some(bytes) = versions.get(0).await? else { return Ok(None) };
                let first: ManifestVersion = unseal(&versions.path(0), &bytes)?;
                (State::first(&first).map_err(|e| refused_by_all(&versions.path(0), &e))?, None)
            }
        };
        let mut store = Store {
            writer: writer_id(context),
            context: context.clone(),
            versions,
            checkpoints,
            region,
            puts: 0,
            state,
            claimed: None,
            checkpoint,
            cleaned_to: 0,
        };
        store.refresh().await?;
        Ok(Some(store))
    }

    pub fn state(&self) -> &State {
        &self.state
    }

    /// Reads versions that others have put meanwhile. Returns whether there were any. `RegionNotFound` if the region was dropped.
    pub async fn refresh(&mut self) -> Result<bool, StorageError> {
        let before = self.state.version;
        while let Some(bytes) = self.versions.get(self.state.version + 1).await? {
            self.install(&bytes)?;
        }
        // A follower that slept so long that clean-up passed it goes on from a checkpoint.
        if let Some(newer) = self.passed_by().await? {
            self.state = newer;
            self.checkpoint = Some(self.state.version);
            while let Some(bytes) = self.versions.get(self.state.version + 1).await? {
                self.install(&bytes)?;
            }
        }
        Ok(self.state.version > before)
    }

    /// A checkpoint above our version though the next version is gone.
    async fn passed_by(&self) -> Result<Option<State>, StorageError> {
        let Some(bytes) = self.context.bucket.get(&hint_path(self.region)).await? else { return Ok(None) };
        match unseal::<Hint>(&hint_path(self.region), &bytes) {
            Ok(hint) if hint.version > self.state.version => read_checkpoint(&self.checkpoints, hint.version).await,
            Ok(_) => Ok(None),
            Err(e) => {
                tracing::warn!(region = %self.region, error = %millstream_types::error::chain(&e), "manifest hint is unreadable, ignored");
                Ok(None)
            }
        }
    }

    fn install(&mut self, bytes: &[u8]) -> Result<(), StorageError> {
        let path = self.versions.path(self.state.version + 1);
        let version: ManifestVersion = unseal(&path, bytes)?;
        self.state = self.state.apply(&version).map_err(|e| refused_by_all(&path, &e))?;
        Ok(())
    }

    /// Takes leadership: puts `claim` with leader epoch + 1, reading on if another was faster (10 times, then `Fenced`).
    pub async fn claim(&mut self) -> Result<LeaderEpoch, StorageError> {
        for _ in 0..CLAIM_TRIES {
            self.refresh().await?;
            let epoch = LeaderEpoch(self.state.leader_epoch.0 + 1);
            let claim = Action::Claim { leader_epoch: epoch, replica: self.context.replica.to_string() };
            if self.put_next(epoch, vec![claim]).await?.is_none() {
                self.claimed = Some(epoch);
                return Ok(epoch);
            }
        }
        Err(self.fenced(self.state.version, self.state.leader_epoch))
    }

    /// Puts the next version with `actions`. Returns when it is in the bucket for certain: an unknown outcome is read back until the bucket answers.
    /// Needs a claim. `Fenced` if a newer leader wrote meanwhile: nothing was written, and this store is of no more use for writing. A version that
    /// breaks an invariant is refused before it is sent.
    pub async fn put(&mut self, actions: Vec<Action>) -> Result<&State, StorageError> {
        let Some(epoch) = self.claimed else {
            return Err(StorageError::Internal {
                what: format!("region {}: manifest put without a claim", self.region),
                source: None,
            });
        };
        match self.put_next(epoch, actions).await? {
            None => Ok(&self.state),
            Some(other) if other.leader_epoch > epoch => {
                let fenced = self.fenced(other.version, other.leader_epoch);
                self.claimed = None;
                Err(fenced)
            }
            Some(other) => Err(Broken::new(
                Invariant::R4,
                format_args!(
                    "region {}: version {} of our leader epoch {epoch} was written by {}",
                    self.region, other.version, other.writer
                ),
            )
            .into()),
        }
    }

    /// Puts version + 1; `Some` = what another wrote there.
    async fn put_next(
        &mut self,
        leader_epoch: LeaderEpoch,
        actions: Vec<Action>,
    ) -> Result<Option<ManifestVersion>, StorageError> {
        self.puts += 1;
        let next = ManifestVersion {
            version: self.state.version + 1,
            leader_epoch,
            writer: format!("{}/{}", self.writer, self.puts),
            at_ms: self.context.clock.now_ms(),
            actions,
        };
        let state = self.state.apply(&next).map_err(|e| refused_by_us(self.region, next.version, &e))?;
        match self.versions.put(next.version, seal(&next)?).await? {
            Slot::Won => {
                self.state = state;
                Ok(None)
            }
            Slot::Exists(bytes) => unseal(&self.versions.path(next.version), &bytes).map(Some),
        }
    }

    fn fenced(&self, version: u64, theirs: LeaderEpoch) -> StorageError {
        StorageError::Fenced { region: self.region, version, theirs, ours: self.claimed.unwrap_or_default() }
    }

    /// Puts a checkpoint if one is due and deletes versions that it makes needless. An error harms nothing; call it again after later puts.
    pub async fn maintain(&mut self) -> Result<(), StorageError> {
        if self.state.version < self.checkpoint.unwrap_or(0) + CHECKPOINT_EVERY {
            return Ok(());
        }
        let before = self.checkpoint;
        // Equal states have equal bytes, and whoever was first, the slot holds this version's state.
        self.checkpoints.put(self.state.version, seal(&self.state)?).await?;
        self.checkpoint = Some(self.state.version);
        self.context.bucket.put(&hint_path(self.region), seal(&Hint { version: self.state.version })?).await?;
        match before {
            Some(second_newest) => self.clean_up(second_newest).await,
            None => Ok(()),
        }
    }

    /// Deletes versions and checkpoints below `below`, the second newest checkpoint, that are over an hour old. **Never a claim or the version before
    /// it**: a zombie's next slot is the one that the next claim took, so it collides however long it slept.
    async fn clean_up(&mut self, below: u64) -> Result<(), StorageError> {
        let now = self.context.clock.now_ms();
        for version in self.versions.versions(self.cleaned_to).await?.into_iter().take_while(|v| *v < below) {
            if version == 0 || self.state.claims.contains(&version) {
                continue;
            }
            let Some(bytes) = self.versions.get(version).await? else { continue };
            let found: ManifestVersion = unseal(&self.versions.path(version), &bytes)?;
            if found.at_ms.saturating_add(KEEP_MS) > now {
                self.cleaned_to = version;
                return Ok(());
            }
            self.versions.delete(version).await?;
        }
        for version in self.checkpoints.versions(0).await?.into_iter().take_while(|v| *v < below) {
            self.checkpoints.delete(version).await?;
        }
        self.cleaned_to = below;
        Ok(())
    }
}

/// The newest checkpoint that can be found: by the hint, else by one listing.
async fn start_from(
    context: &StoreContext,
    checkpoints: &VersionedLog,
    region: RegionId,
) -> Result<Option<State>, StorageError> {
    let path = hint_path(region);
    let hint: Option<Bytes> = context.bucket.get(&path).await?;
    if let Some(bytes) = hint {
        match unseal::<Hint>(&path, &bytes) {
            Ok(hint) => {
                if let Some(state) = read_checkpoint(checkpoints, hint.version).await? {
                    return Ok(Some(state));
                }
                tracing::warn!(%region, version = hint.version, "manifest hint names a checkpoint that is gone, listing instead");
            }
            Err(e) => {
                tracing::warn!(%region, error = %millstream_types::error::chain(&e), "manifest hint is unreadable, listing instead")
            }
        }
    }
    match checkpoints.versions(0).await?.pop() {
        Some(newest) => read_checkpoint(checkpoints, newest).await,
        None => Ok(None),
    }
}

async fn read_checkpoint(checkpoints: &VersionedLog, version: u64) -> Result<Option<State>, StorageError> {
    let Some(bytes) = checkpoints.get(version).await? else { return Ok(None) };
    unseal(&checkpoints.path(version), &bytes).map(Some)
}

/// A stored version that cannot follow: the manifest is corrupt.
fn refused_by_all(path: &str, e: &Refused) -> StorageError {
    StorageError::corrupt(path, e.to_string())
}

/// Our own version breaks an invariant: nothing was sent.
fn refused_by_us(region: RegionId, version: u64, e: &Refused) -> StorageError {
    let invariant = match e {
        Refused::Gap { .. } | Refused::FlushedFalls { .. } => Invariant::R1,
        Refused::WrongFrom { .. } => Invariant::R2,
        Refused::Twice { .. } | Refused::NotListed { .. } | Refused::Overlap { .. } => Invariant::R3,
        Refused::Epoch { .. } => Invariant::R4,
        Refused::Misplaced { what } => {
            return StorageError::Invalid { region, what: format!("manifest {version}: {what}") };
        }
    };
    Broken::new(invariant, format_args!("region {region}, manifest {version}: {e}")).into()
}
