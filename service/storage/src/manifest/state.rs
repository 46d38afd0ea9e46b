//! The state of a region: a pure fold over its manifest versions.
//!
//! [`State::apply`] is the only way a state changes, for loading, for followers and before each put, so what a writer puts is what every reader accepts.

use std::{collections::BTreeMap, sync::Arc};

use millstream_types::{LeaderEpoch, RegionId, Seq, TableSchema};
use serde::{Deserialize, Serialize};

use super::{Action, Edit, FileEntry, Gap};
use crate::WalBinding;

/// Points of the timeline that are kept; older ones are thinned out.
const TIMELINE: usize = 512;

/// One manifest version as it is stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ManifestVersion {
    pub version: u64,
    pub leader_epoch: LeaderEpoch,
    /// Unique to the store and the put: tells our own put from another's.
    pub writer: String,
    pub at_ms: u64,
    pub actions: Vec<Action>,
}

/// A file that no newest version names, still in the bucket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Removed {
    pub name: String,
    pub origin: RegionId,
    /// When it was removed, Unix ms.
    pub at_ms: u64,
}

/// Everything that the versions up to `version` say.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    pub region: RegionId,
    pub version: u64,
    pub leader_epoch: LeaderEpoch,
    /// Schemas by id; the highest is in force.
    pub schemas: BTreeMap<u32, Arc<TableSchema>>,
    pub wal: WalBinding,
    pub start: Seq,
    pub flushed: Seq,
    pub history_from: Seq,
    /// By run, then key.
    pub files: Arc<[Arc<FileEntry>]>,
    pub removed: Vec<Removed>,
    pub gaps: Vec<Gap>,
    /// (Unix ms, applied), rising.
    pub timeline: Vec<(u64, Seq)>,
    /// Versions that are never cleaned up, so that a zombie's next slot stays taken: each claim, and the version before it.
    pub claims: Vec<u64>,
}

/// Why a version does not follow a state. `epoch` = its leader is not the newest (R4).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("version {found} after {last} (R1)")]
    Gap { last: u64, found: u64 },
    #[error("leader epoch {found} after {last} (R4)")]
    Epoch { last: LeaderEpoch, found: LeaderEpoch },
    #[error("flushed goes from {last} to {found} (R1)")]
    FlushedFalls { last: Seq, found: Seq },
    #[error("a flush from {found} while {last} is flushed (R2)")]
    WrongFrom { last: Seq, found: Seq },
    #[error("file {name} is listed twice (R3)")]
    Twice { name: String },
    #[error("file {name} is removed but not listed (R3)")]
    NotListed { name: String },
    #[error("run {run} of file {name} overlaps another one")]
    Overlap { name: String, run: u64 },
    #[error("{what}")]
    Misplaced { what: &'static str },
}

impl State {
    /// The state that version 0 makes.
    pub fn first(version: &ManifestVersion) -> Result<State, Refused> {
        let [Action::Create { region, schema, wal, start }, rest @ ..] = version.actions.as_slice() else {
            return Err(Refused::Misplaced { what: "version 0 does not begin with create" });
        };
        if version.version != 0 {
            return Err(Refused::Gap { last: 0, found: version.version });
        }
        let mut state = State {
            region: *region,
            version: 0,
            leader_epoch: version.leader_epoch,
            schemas: BTreeMap::from([(schema.id, Arc::new(schema.clone()))]),
            wal: wal.clone(),
            start: *start,
            flushed: *start,
            history_from: *start,
            files: Arc::new([]),
            removed: Vec::new(),
            gaps: Vec::new(),
            timeline: Vec::new(),
            claims: Vec::new(),
        };
        for action in rest {
            state.act(action, version)?;
        }
        Ok(state)
    }

    /// The state after the next version. Pure; nothing is changed if the version is refused.
    pub fn apply(&self, next: &ManifestVersion) -> Result<State, Refused> {
        if next.version != self.version + 1 {
            return Err(Refused::Gap { last: self.version, found: next.version });
        }
        let claims = matches!(next.actions.as_slice(), [Action::Claim { leader_epoch, .. }] if *leader_epoch == next.leader_epoch);
        let right_epoch = if claims {
            next.leader_epoch.0 == self.leader_epoch.0 + 1
        } else {
            next.leader_epoch == self.leader_epoch
        };
        if !right_epoch {
            return Err(Refused::Epoch { last: self.leader_epoch, found: next.leader_epoch });
        }
        let mut state = self.clone();
        state.version = next.version;
        for action in &next.actions {
            state.act(action, next)?;
        }
        Ok(state)
    }

    fn act(&mut self, action: &Action, version: &ManifestVersion) -> Result<(), Refused> {
        match action {
            Action::Create { .. } => return Err(Refused::Misplaced { what: "create is not the first action" }),
            Action::Claim { leader_epoch, .. } => {
                self.leader_epoch = *leader_epoch;
                self.claims.extend([version.version - 1, version.version]);
                self.claims.dedup();
            }
            Action::Edit(edit) => self.edit(edit, version.at_ms)?,
            Action::Change { schema, at } => {
                if *at != self.flushed {
                    return Err(Refused::WrongFrom { last: self.flushed, found: *at });
                }
                if schema.id <= self.schema().id || schema.kind() != self.schema().kind() {
                    return Err(Refused::Misplaced { what: "a schema does not follow the one in force" });
                }
                self.schemas.insert(schema.id, Arc::new(schema.clone()));
            }
            Action::Gap(gap) => self.gaps.push(gap.clone()),
            Action::Purged { files } => self.removed.retain(|r| !files.contains(&r.name)),
        }
        Ok(())
    }

    fn edit(&mut self, edit: &Edit, at_ms: u64) -> Result<(), Refused> {
        if let Some(range) = &edit.range {
            if range.from != self.flushed {
                return Err(Refused::WrongFrom { last: self.flushed, found: range.from });
            }
            if range.flushed < self.flushed {
                return Err(Refused::FlushedFalls { last: self.flushed, found: range.flushed });
            }
            self.flushed = range.flushed;
        }
        let mut files: Vec<Arc<FileEntry>> = self.files.to_vec();
        for name in &edit.remove {
            let at =
                files.iter().position(|f| f.name == *name).ok_or_else(|| Refused::NotListed { name: name.clone() })?;
            let gone = files.remove(at);
            self.removed.push(Removed { name: gone.name.clone(), origin: gone.origin, at_ms });
        }
        for added in &edit.add {
            if files.iter().any(|f| f.name == added.name) || self.removed.iter().any(|r| r.name == added.name) {
                return Err(Refused::Twice { name: added.name.clone() });
            }
            files.push(Arc::new(added.clone()));
        }
        files.sort_by(|a, b| (a.run, &a.key).cmp(&(b.run, &b.key)));
        check_runs(&files)?;
        self.files = files.into();
        if let Some(history_from) = edit.history_from {
            self.history_from = self.history_from.max(history_from);
        }
        if let Some((ms, applied)) = edit.applied_at {
            self.note_time(ms, applied);
        }
        Ok(())
    }

    /// A clock that steps back or a sequence that does adds no point.
    fn note_time(&mut self, ms: u64, applied: Seq) {
        if self.timeline.last().is_some_and(|(m, s)| ms <= *m || applied < *s) {
            return;
        }
        self.timeline.push((ms, applied));
        if self.timeline.len() > TIMELINE {
            // Every second point of the older half goes: recent times stay exact, old ones become coarse.
            let mut n = 0;
            self.timeline.retain(|_| {
                n += 1;
                n > TIMELINE / 2 || n % 2 == 0
            });
        }
    }

    /// The schema in force.
    pub fn schema(&self) -> &Arc<TableSchema> {
        self.schemas.values().next_back().expect("create gives the first schema")
    }

    /// What the region had applied at a time, rounded down; `start` before the first point.
    pub fn applied_at(&self, ms: u64) -> Seq {
        let after = self.timeline.partition_point(|(m, _)| *m <= ms);
        if after == 0 { self.start } else { self.timeline[after - 1].1 }
    }

    /// Removed at or before `ms` and not purged yet.
    pub fn purgeable(&self, ms: u64) -> impl Iterator<Item = &Removed> {
        self.removed.iter().filter(move |r| r.at_ms <= ms)
    }
}

/// Runs are disjoint in sequence, and the files of a run in keys: look-ups stop at the first hit because of it. `files` sorted by run and key.
fn check_runs(files: &[Arc<FileEntry>]) -> Result<(), Refused> {
    let mut end_before = Seq(i64::MIN);
    for run in files.chunk_by(|a, b| a.run == b.run) {
        let mut last_key = None;
        let mut end = end_before;
        for file in run {
            let overlaps_keys = file.key.as_ref().is_some_and(|(first, _)| last_key.is_some_and(|last| first <= last));
            if file.from < end_before || overlaps_keys {
                return Err(Refused::Overlap { name: file.name.clone(), run: file.run });
            }
            last_key = file.key.as_ref().map(|(_, last)| last).or(last_key);
            end = end.max(file.end);
        }
        end_before = end;
    }
    Ok(())
}
