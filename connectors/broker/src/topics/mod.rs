//! Topics: which exist, with which partitions and configs (`config.rs`), and their logs (`partition.rs`). Journaled; files and journal agree after a crash
//! because folders are made before the entry that names them and removed after the entry that forgets them. Of folders that no entry tells about, only
//! empty ones are removed.

pub(crate) mod config;
mod entries;
pub(crate) mod partition;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock},
};

use kafka_protocol::{ResponseError, protocol::StrBytes};
use uuid::Uuid;

use self::{
    config::Overrides,
    entries::{ByPartition, Entry, Found, TopicId},
    partition::Partition,
};
use crate::{
    clock::Clock,
    faults::DiskFull,
    journal::{Journal, Ticket},
    log::{Known, Log},
};

#[derive(Debug)]
pub(crate) struct Topic {
    pub(crate) name: StrBytes,
    pub(crate) id: Uuid,
    pub(crate) partitions: Vec<Arc<Partition>>,
    pub(crate) config: Overrides,
}

impl Topic {
    pub(crate) fn partition(&self, index: i32) -> Option<&Arc<Partition>> {
        self.partitions.get(usize::try_from(index).ok()?)
    }
}

#[derive(Debug, Default)]
struct State {
    by_name: BTreeMap<String, Arc<Topic>>,
    names: HashMap<Uuid, String>,
    next_producer_id: i64,
}

#[derive(Debug)]
pub(crate) struct Topics {
    dir: PathBuf,
    /// Where folders go that nobody knows.
    aside: PathBuf,
    journal: Journal,
    clock: Clock,
    full: DiskFull,
    limit: usize,
    /// Requests read; only admin calls write.
    state: RwLock<State>,
    /// Held by admin calls from their first look to their journal entry; file work happens under it and not under `state`.
    changing: Mutex<()>,
    /// Log starts and leader epochs as journaled: whoever journals one, or rewrites the journal, holds this meanwhile, so that none is lost between. Taken
    /// under the lock of a log, never the other way round.
    noted: Mutex<HashMap<Uuid, ByPartition>>,
}

fn has_records(dir: &Path) -> io::Result<bool> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.path().extension().is_some_and(|e| e == "log") && entry.metadata()?.len() > 0 {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Producer ids are taken from the journal in blocks.
const PRODUCER_ID_BLOCK: i64 = 1000;

pub(crate) type Refused = (ResponseError, Option<String>);

fn storage(e: io::Error) -> Refused {
    (ResponseError::KafkaStorageError, Some(e.to_string()))
}

/// Kafka's rules for names.
fn check_name(name: &str) -> Result<(), Refused> {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let fault = match name {
        "" => "the empty string is not allowed",
        "." | ".." => "'.' or '..' is not allowed",
        n if n.len() > 249 => "the length of the name must be at most 249",
        n if !n.chars().all(legal) => "only ASCII alphanumerics, '.', '_' and '-' are allowed",
        _ => return Ok(()),
    };
    Err((ResponseError::InvalidTopicException, Some(format!("Topic name is invalid: {fault}"))))
}

impl Topics {
    pub(crate) fn open(data: &Path, sync: bool, limit: usize, clock: Clock, full: DiskFull) -> io::Result<Self> {
        let dir = data.join("topics");
        fs::create_dir_all(&dir)?;
        let (journal, entries) = Journal::open(data, "topics", sync, full.clone())?;
        let mut found = Found { next_producer_id: 1, ..Found::default() };
        for entry in entries {
            found.replay(entry);
        }
        let mut state = State { next_producer_id: found.next_producer_id, ..State::default() };
        let topics = Self {
            dir,
            aside: data.join("set-aside"),
            journal,
            clock,
            full,
            limit,
            state: RwLock::default(),
            changing: Mutex::new(()),
            noted: Mutex::default(),
        };
        for (id, t) in found.by_id {
            let mut partitions = Vec::new();
            for index in 0..t.partitions {
                let known = t.known.get(&index).cloned().unwrap_or_default();
                partitions.push(topics.open_partition(&t.name, index, &t.config, &known)?);
            }
            topics.noted().insert(id, t.known);
            let topic = Topic { name: t.name.clone().into(), id, partitions, config: t.config };
            state.names.insert(id, t.name.clone());
            state.by_name.insert(t.name, Arc::new(topic));
        }
        topics.clear_orphans(&state, &found.deleted)?;
        *topics.state.write().unwrap_or_else(PoisonError::into_inner) = state;
        Ok(topics)
    }

    fn open_partition(&self, name: &str, index: i32, config: &Overrides, known: &Known) -> io::Result<Arc<Partition>> {
        let dir = self.dir.join(format!("{name}-{index}"));
        let settings = Arc::new(config::log_settings(config));
        let log = Log::open(dir.clone(), settings, known, self.clock.now_ms(), self.full.clone())?;
        Ok(Arc::new(Partition::new(index, dir, log)))
    }

    /// Folders of no topic: removed if an entry says that their topic was deleted, or if they hold nothing. Others are moved aside.
    fn clear_orphans(&self, state: &State, deleted: &HashSet<String>) -> io::Result<()> {
        let expected: HashSet<PathBuf> =
            state.by_name.values().flat_map(|t| t.partitions.iter().map(|p| p.dir.clone())).collect();
        for entry in fs::read_dir(&self.dir)? {
            let path = entry?.path();
            let is_deleted = || path.file_name().and_then(|n| n.to_str()).is_some_and(|n| deleted.contains(n));
            if expected.contains(&path) {
                continue;
            } else if is_deleted() {
                tracing::info!(folder = %path.display(), "removing the folder of a deleted topic");
                fs::remove_dir_all(path)?;
            } else {
                self.set_aside(&path)?;
            }
        }
        Ok(())
    }

    /// Nobody asked for the deletion of what is in there.
    fn set_aside(&self, path: &Path) -> io::Result<()> {
        if path.is_dir() && !has_records(path)? {
            return fs::remove_dir_all(path);
        }
        fs::create_dir_all(&self.aside)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let mut to = self.aside.join(&*name);
        let mut n = 1;
        while to.exists() {
            n += 1;
            to = self.aside.join(format!("{name}.{n}"));
        }
        tracing::warn!(folder = %path.display(), to = %to.display(), "no entry of the topic journal tells about this folder: it is moved aside, not deleted");
        fs::rename(path, to)
    }

    fn state(&self) -> std::sync::RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self) -> std::sync::RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn changing(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn noted(&self) -> MutexGuard<'_, HashMap<Uuid, ByPartition>> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn get(&self, name: &str) -> Option<Arc<Topic>> {
        self.state().by_name.get(name).cloned()
    }

    pub(crate) fn by_id(&self, id: Uuid) -> Option<Arc<Topic>> {
        let state = self.state();
        state.by_name.get(state.names.get(&id)?).cloned()
    }

    pub(crate) fn partition(&self, name: &str, index: i32) -> Option<Arc<Partition>> {
        self.state().by_name.get(name)?.partition(index).cloned()
    }

    /// By name.
    pub(crate) fn all(&self) -> Vec<Arc<Topic>> {
        self.state().by_name.values().cloned().collect()
    }

    pub(crate) async fn durable(&self, ticket: Ticket) -> io::Result<()> {
        self.journal.durable(ticket).await
    }

    #[cfg(test)]
    pub(crate) fn journal(&self) -> &Journal {
        &self.journal
    }

    /// Checks all, creates unless `only_check`. The topic may be used when this returns.
    pub(crate) fn create(
        &self,
        name: &str,
        partitions: i32,
        config: Overrides,
        only_check: bool,
    ) -> Result<(Uuid, Ticket), Refused> {
        let _one = self.changing();
        check_name(name)?;
        if self.get(name).is_some() {
            return Err((ResponseError::TopicAlreadyExists, Some(format!("Topic '{name}' already exists."))));
        }
        // Metrics of Kafka cannot tell '.' from '_'.
        let plain = |n: &str| n.replace('.', "_");
        if let Some(t) = self.all().iter().find(|t| plain(&t.name) == plain(name)) {
            let why = format!("Topic '{name}' collides with existing topic '{}'.", t.name);
            return Err((ResponseError::InvalidTopicException, Some(why)));
        }
        self.check_count(partitions)?;
        config::check_all(&config).map_err(|e| (ResponseError::InvalidConfig, Some(e)))?;
        let id = Uuid::from_u128(rand::random());
        if only_check {
            return Ok((id, Ticket::default()));
        }
        let made: io::Result<Vec<_>> = (0..partitions).map(|i| self.make_partition(name, i, &config)).collect();
        let made = made.map_err(storage)?;
        let entry = Entry::Created { name: name.to_owned(), id: TopicId(id), partitions, config: config.clone() };
        let ticket = self.journal.append(&[entry]).map_err(storage)?;
        let topic = Topic { name: name.to_owned().into(), id, partitions: made, config };
        let mut state = self.change();
        state.names.insert(id, name.to_owned());
        state.by_name.insert(name.to_owned(), Arc::new(topic));
        tracing::info!(topic = name, partitions, "topic created");
        Ok((id, ticket))
    }

    /// In a folder that is certainly empty.
    fn make_partition(&self, name: &str, index: i32, config: &Overrides) -> io::Result<Arc<Partition>> {
        let dir = self.dir.join(format!("{name}-{index}"));
        if dir.exists() {
            self.set_aside(&dir)?;
        }
        self.open_partition(name, index, config, &Known::default())
    }

    fn check_count(&self, more: i32) -> Result<(), Refused> {
        if more <= 0 {
            let why = "Number of partitions must be larger than 0.".to_owned();
            return Err((ResponseError::InvalidPartitions, Some(why)));
        }
        let used: usize = self.state().by_name.values().map(|t| t.partitions.len()).sum();
        if used.saturating_add(more as usize) > self.limit {
            let why = format!("The broker has {used} partitions and allows {}.", self.limit);
            return Err((ResponseError::PolicyViolation, Some(why)));
        }
        Ok(())
    }

    /// `forget` is called when nothing can be done with the topic any more, and before another one can have its name.
    pub(crate) fn delete(&self, name: &str, forget: impl FnOnce()) -> Result<Ticket, Refused> {
        let _one = self.changing();
        let topic = self.get(name).ok_or((ResponseError::UnknownTopicOrPartition, None))?;
        let ticket = self.journal.append(&[Entry::Deleted { id: TopicId(topic.id) }]).map_err(storage)?;
        {
            let mut state = self.change();
            state.by_name.remove(name);
            state.names.remove(&topic.id);
        }
        for p in &topic.partitions {
            p.close();
            // Under the lock, so that an append in progress ends first.
            let _log = p.log();
            if let Err(e) = fs::remove_dir_all(&p.dir) {
                tracing::warn!(folder = %p.dir.display(), error = %e, "a deleted topic's folder stays until the next start");
            }
        }
        self.noted().remove(&topic.id);
        forget();
        tracing::info!(topic = name, "topic deleted");
        Ok(ticket)
    }

    pub(crate) fn grow(&self, name: &str, partitions: i32, only_check: bool) -> Result<Ticket, Refused> {
        let _one = self.changing();
        let topic = self.get(name).ok_or((ResponseError::UnknownTopicOrPartition, None))?;
        let have = topic.partitions.len() as i32;
        if partitions <= have {
            let why =
                format!("Topic currently has {have} partitions, which is not fewer than the requested {partitions}.");
            return Err((ResponseError::InvalidPartitions, Some(why)));
        }
        self.check_count(partitions - have)?;
        if only_check {
            return Ok(Ticket::default());
        }
        let mut all = topic.partitions.clone();
        for i in have..partitions {
            all.push(self.make_partition(name, i, &topic.config).map_err(storage)?);
        }
        let ticket = self.journal.append(&[Entry::Grown { id: TopicId(topic.id), partitions }]).map_err(storage)?;
        self.replace(&topic, all, topic.config.clone());
        Ok(ticket)
    }

    fn replace(&self, old: &Topic, partitions: Vec<Arc<Partition>>, config: Overrides) {
        let topic = Topic { name: old.name.clone(), id: old.id, partitions, config };
        self.change().by_name.insert(old.name.to_string(), Arc::new(topic));
    }

    /// Replaces the overrides of a topic by what `edit` makes of them.
    pub(crate) fn configure(
        &self,
        name: &str,
        only_check: bool,
        edit: impl FnOnce(&mut Overrides) -> Result<(), Refused>,
    ) -> Result<Ticket, Refused> {
        let _one = self.changing();
        let topic = self.get(name).ok_or((ResponseError::UnknownTopicOrPartition, None))?;
        let mut config = topic.config.clone();
        edit(&mut config)?;
        config::check_all(&config).map_err(|e| (ResponseError::InvalidConfig, Some(e)))?;
        if only_check || config == topic.config {
            return Ok(Ticket::default());
        }
        let entry = Entry::Configured { id: TopicId(topic.id), config: config.clone() };
        let ticket = self.journal.append(&[entry]).map_err(storage)?;
        let settings = Arc::new(config::log_settings(&config));
        for p in &topic.partitions {
            p.log().set_settings(Arc::clone(&settings));
        }
        self.replace(&topic, topic.partitions.clone(), config);
        Ok(ticket)
    }

    /// The log start of a partition moves. Call it under the lock of the log, before the records go: it never goes back.
    pub(crate) fn note_start(&self, id: Uuid, partition: i32, offset: i64) -> io::Result<Ticket> {
        let mut noted = self.noted();
        let known = noted.entry(id).or_default().entry(partition).or_default();
        let offset = offset.max(known.start);
        let ticket = self.journal.append(&[Entry::LogStart { id: TopicId(id), partition, offset }])?;
        known.start = offset;
        Ok(ticket)
    }

    /// The newest entry of the journal, for answers that tell of what was there before.
    pub(crate) fn newest(&self) -> Ticket {
        self.journal.newest()
    }

    /// A new leader epoch begins at the end of the partition.
    #[cfg_attr(
        not(feature = "faults"),
        expect(dead_code, reason = "only a fault moves the leader epoch of a single node")
    )]
    pub(crate) fn begin_epoch(&self, topic: &Topic, partition: &Partition) -> io::Result<i32> {
        let mut log = partition.log();
        let epoch = log.leader_epoch() + 1;
        log.begin_epoch(epoch);
        let epochs = log.epochs().to_vec();
        {
            let mut noted = self.noted();
            let entry =
                Entry::LeaderEpochs { id: TopicId(topic.id), partition: partition.index, epochs: epochs.clone() };
            self.journal.append(&[entry])?;
            noted.entry(topic.id).or_default().entry(partition.index).or_default().epochs = epochs;
        }
        drop(log);
        partition.wake();
        Ok(epoch)
    }

    /// A producer id that was never given before, and never is again: its block is durable when this returns.
    pub(crate) async fn new_producer_id(&self) -> io::Result<i64> {
        let id = self.take_producer_id()?;
        self.journal.durable(self.journal.newest()).await?;
        Ok(id)
    }

    fn take_producer_id(&self) -> io::Result<i64> {
        let _one = self.changing();
        let id = self.state().next_producer_id;
        // The block that holds `id` is journaled when its first id is taken; a restart begins with the next block.
        if id % PRODUCER_ID_BLOCK == 1 {
            self.journal.append(&[Entry::ProducerIds { next: id + PRODUCER_ID_BLOCK }])?;
        }
        self.change().next_producer_id = id + 1;
        Ok(id)
    }

    /// Rewrites the journal if it has grown enough.
    pub(crate) fn tidy(&self) -> io::Result<()> {
        if self.journal.wants_snapshot() { self.rewrite() } else { Ok(()) }
    }

    pub(crate) fn rewrite(&self) -> io::Result<()> {
        let _one = self.changing();
        let (state, noted) = (self.state(), self.noted());
        let mut entries = vec![Entry::ProducerIds {
            next: (state.next_producer_id - 1).div_euclid(PRODUCER_ID_BLOCK) * PRODUCER_ID_BLOCK
                + PRODUCER_ID_BLOCK
                + 1,
        }];
        for t in state.by_name.values() {
            let (id, partitions) = (t.id, t.partitions.len() as i32);
            entries.push(Entry::Created {
                name: t.name.to_string(),
                id: TopicId(id),
                partitions,
                config: t.config.clone(),
            });
            for (partition, known) in noted.get(&id).into_iter().flatten() {
                let partition = *partition;
                entries.push(Entry::LogStart { id: TopicId(id), partition, offset: known.start });
                if !known.epochs.is_empty() {
                    entries.push(Entry::LeaderEpochs { id: TopicId(id), partition, epochs: known.epochs.clone() });
                }
            }
        }
        self.journal.snapshot(entries.into_iter())
    }
}
