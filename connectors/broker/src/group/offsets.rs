//! Committed offsets of one group: those that count, and those of open transactions that will count if the transaction commits.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::{Deserialize, Serialize};

use crate::log::batch::Marker;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Committed {
    pub(crate) offset: i64,
    pub(crate) leader_epoch: i32,
    pub(crate) metadata: String,
}

/// Offsets by topic and partition.
pub(crate) type ByPartition = BTreeMap<(String, i32), Committed>;

#[derive(Debug, Default)]
pub(crate) struct Offsets {
    pub(crate) committed: ByPartition,
    pub(crate) pending: HashMap<i64, ByPartition>,
}

impl Offsets {
    pub(crate) fn commit(&mut self, producer: Option<i64>, offsets: Vec<(String, i32, Committed)>) {
        let to = match producer {
            Some(id) => self.pending.entry(id).or_default(),
            None => &mut self.committed,
        };
        to.extend(offsets.into_iter().map(|(topic, partition, c)| ((topic, partition), c)));
    }

    pub(crate) fn end(&mut self, producer: i64, marker: Marker) {
        let offsets = self.pending.remove(&producer).unwrap_or_default();
        if marker == Marker::Commit {
            self.committed.extend(offsets);
        }
    }

    /// Does an open transaction hold an offset for this partition?
    pub(crate) fn is_unstable(&self, key: &(String, i32)) -> bool {
        self.pending.values().any(|o| o.contains_key(key))
    }

    /// With repeats.
    pub(crate) fn topics(&self) -> impl Iterator<Item = &str> {
        self.committed.keys().chain(self.pending.values().flat_map(BTreeMap::keys)).map(|(topic, _)| topic.as_str())
    }

    pub(crate) fn forget(&mut self, topics: &BTreeSet<String>) {
        self.committed.retain(|(topic, _), _| !topics.contains(topic));
        self.pending.retain(|_, offsets| {
            offsets.retain(|(topic, _), _| !topics.contains(topic));
            !offsets.is_empty()
        });
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.committed.is_empty() && self.pending.is_empty()
    }
}
