//! Pins: what jobs may need again. In memory for flush and compaction of this process, published per job in the bucket for the next start.
//!
//! Owns: the board and its publication (`pins/<job>/<n:020>.json`, the whole list each time, the newest counts, two are kept). Not here: what a pin keeps
//! (`compaction::KeepRule`).
//!
//! Flush and compaction use the newest pins of memory: a pin moves only after a commit, so a job that starts again needs at most what memory says now.
//! The published list may lag behind, which only keeps more after a restart. A pin that the published list does not cover is published before `pin`
//! returns; one that it covers returns at once and is published within the interval.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use millstream_types::{InputId, JobId, RegionId, Seq, runtime::Clock};
use serde::{Deserialize, Serialize};

use crate::{
    Pin, PinOwner, StorageError,
    listener::{Point, WorkerListener},
    manifest::codec,
    object_store::{Bucket, Slot, VersionedLog, paths},
};

type PinMap = BTreeMap<(RegionId, InputId), Pin>;

/// Stored form of one job's list.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PinList {
    replica: String,
    /// Makes the bytes unique to this put, so that a lost answer can be told from a lost race.
    nonce: u64,
    at_ms: u64,
    pins: Vec<PinEntry>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PinEntry {
    region: RegionId,
    input: InputId,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    exact: Vec<Seq>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    floor: Option<Seq>,
}

#[derive(Debug, Default)]
struct JobPins {
    /// Both maps: written by pin, unpin and publish; read by flush and compaction. A std lock, never held over an await.
    state: Mutex<JobState>,
    /// One publication at a time; the value is the next version, `None` = not known yet.
    publish: tokio::sync::Mutex<Option<u64>>,
}

#[derive(Debug, Default)]
struct JobState {
    current: PinMap,
    published: PinMap,
}

/// See the module head.
#[derive(Debug)]
pub struct PinBoard {
    bucket: Arc<Bucket>,
    clock: Arc<dyn Clock>,
    replica: Arc<str>,
    listener: Arc<dyn WorkerListener>,
    jobs: Mutex<HashMap<JobId, Arc<JobPins>>>,
}

impl PinBoard {
    pub fn new(
        bucket: Arc<Bucket>,
        clock: Arc<dyn Clock>,
        replica: Arc<str>,
        listener: Arc<dyn WorkerListener>,
    ) -> Self {
        Self { bucket, clock, replica, listener, jobs: Mutex::default() }
    }

    /// Reads what earlier processes published. Must return before the first region opens.
    pub async fn load(&self) -> Result<(), StorageError> {
        for name in self.bucket.list_children(paths::PINS).await? {
            let Ok(job) = name.parse::<u64>().map(JobId) else { continue };
            let log = self.log(job);
            let Some((version, bytes)) = log.newest().await? else { continue };
            let list: PinList = codec::unseal(&log.path(version), &bytes)?;
            let map: PinMap =
                list.pins.into_iter().map(|p| ((p.region, p.input), Pin { exact: p.exact, floor: p.floor })).collect();
            let pins =
                JobPins { state: Mutex::new(JobState { current: map.clone(), published: map }), ..JobPins::default() };
            *pins.publish.lock().await = Some(version + 1);
            lock(&self.jobs).insert(job, Arc::new(pins));
        }
        Ok(())
    }

    fn log(&self, job: JobId) -> VersionedLog {
        VersionedLog::new(self.bucket.clone(), paths::pins(job), ".json")
    }

    /// Replaces a pin. In force at once; returns when a restart would honour it too.
    pub async fn pin(&self, region: RegionId, owner: PinOwner, pin: Pin) -> Result<(), StorageError> {
        let job = lock(&self.jobs).entry(owner.job).or_default().clone();
        let key = (region, owner.input);
        let covered = {
            let mut state = lock(&job.state);
            let covered = state.published.get(&key).is_some_and(|p| covers(p, &pin));
            state.current.insert(key, pin.clone());
            covered
        };
        if covered {
            return Ok(());
        }
        let mut next = job.publish.lock().await;
        if lock(&job.state).published.get(&key).is_some_and(|p| covers(p, &pin)) {
            return Ok(());
        }
        self.publish(owner.job, &job, &mut next).await
    }

    pub fn unpin(&self, region: RegionId, owner: PinOwner) {
        if let Some(job) = lock(&self.jobs).get(&owner.job) {
            lock(&job.state).current.remove(&(region, owner.input));
        }
    }

    /// Drops all pins of a job, in the bucket too.
    pub async fn unpin_job(&self, job: JobId) -> Result<(), StorageError> {
        let pins = lock(&self.jobs).remove(&job);
        let _running = match &pins {
            Some(pins) => Some(pins.publish.lock().await),
            None => None,
        };
        for list in self.bucket.list(&paths::pins(job)).await? {
            self.bucket.delete(list.location.as_ref()).await?;
        }
        Ok(())
    }

    /// Publishes what has moved since the last time. An error of one job does not stop the others; the first is returned.
    pub async fn publish_moved(&self) -> Result<(), StorageError> {
        let jobs: Vec<_> = lock(&self.jobs).iter().map(|(id, job)| (*id, job.clone())).collect();
        let mut first = Ok(());
        for (id, job) in jobs {
            let mut next = job.publish.lock().await;
            let moved = {
                let state = lock(&job.state);
                state.current != state.published
            };
            if moved && lock(&self.jobs).contains_key(&id) {
                let done = self.publish(id, &job, &mut next).await;
                first = first.and(done);
            }
        }
        first
    }

    async fn publish(&self, id: JobId, job: &JobPins, next: &mut Option<u64>) -> Result<(), StorageError> {
        let log = self.log(id);
        let current = lock(&job.state).current.clone();
        let entries = current.iter().map(|((region, input), pin)| PinEntry {
            region: *region,
            input: *input,
            exact: pin.exact.clone(),
            floor: pin.floor,
        });
        let list = PinList {
            replica: self.replica.to_string(),
            nonce: rand::random(),
            at_ms: self.clock.now_ms(),
            pins: entries.collect(),
        };
        let bytes = codec::seal(&list)?;
        let mut version = match *next {
            Some(version) => version,
            None => log.newest().await?.map_or(0, |(v, _)| v + 1),
        };
        if let Some((region, _)) = current.keys().next() {
            self.listener.at(Point::PinPut, *region).await;
        }
        // A slot may be taken by a process that was stopped in the middle of its put; ours is newer.
        while let Slot::Exists(_) = log.put(version, bytes.clone()).await? {
            version += 1;
        }
        *next = Some(version + 1);
        lock(&job.state).published = current;
        if let Some(old) = version.checked_sub(2)
            && let Err(e) = log.delete(old).await
        {
            tracing::debug!(job = %id, version = old, error = %millstream_types::error::chain(&e), "old pin list stays, the next publication tries the one after it");
        }
        Ok(())
    }

    /// Whether a read as of `seq` is protected by some pin.
    pub fn protects(&self, region: RegionId, seq: Seq) -> bool {
        let mut found = false;
        self.each(region, |_, pin| found |= pin.exact.contains(&seq) || pin.floor.is_some_and(|f| f <= seq));
        found
    }

    /// All exact sequences, ascending, and the lowest floor.
    pub fn of_region(&self, region: RegionId) -> (Vec<Seq>, Option<Seq>) {
        let (mut exact, mut floor) = (Vec::new(), None::<Seq>);
        self.each(region, |_, pin| {
            exact.extend(&pin.exact);
            floor = match (floor, pin.floor) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
        });
        exact.sort_unstable();
        exact.dedup();
        (exact, floor)
    }

    /// For people.
    pub fn list(&self, region: RegionId) -> Vec<(PinOwner, Pin)> {
        let mut all = Vec::new();
        self.each(region, |owner, pin| all.push((owner, pin.clone())));
        all.sort_by_key(|(owner, _)| *owner);
        all
    }

    pub fn count(&self) -> usize {
        lock(&self.jobs).values().map(|job| lock(&job.state).current.len()).sum()
    }

    fn each(&self, region: RegionId, mut visit: impl FnMut(PinOwner, &Pin)) {
        let range = (region, InputId(0))..=(region, InputId(u16::MAX));
        for (id, job) in lock(&self.jobs).iter() {
            for ((_, input), pin) in lock(&job.state).current.range(range.clone()) {
                visit(PinOwner { job: *id, input: *input }, pin);
            }
        }
    }
}

/// Whether `have` keeps everything that `want` needs.
fn covers(have: &Pin, want: &Pin) -> bool {
    let below = |seq: Seq| have.floor.is_some_and(|f| f <= seq);
    want.floor.is_none_or(below) && want.exact.iter().all(|e| have.exact.contains(e) || below(*e))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each change of these maps is one call, so a panic elsewhere leaves them whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_floor_covers_everything_at_or_after_it() {
        let pin = |exact: &[i64], floor: Option<i64>| Pin {
            exact: exact.iter().map(|s| Seq(*s)).collect(),
            floor: floor.map(Seq),
        };
        assert!(covers(&pin(&[], Some(5)), &pin(&[7], Some(5))));
        assert!(!covers(&pin(&[], Some(5)), &pin(&[4], None)));
        assert!(covers(&pin(&[4], Some(5)), &pin(&[4], Some(9))));
        assert!(!covers(&pin(&[4], None), &pin(&[4], Some(9))));
    }
}
