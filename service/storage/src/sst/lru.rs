//! A cache with a limit in bytes; what was used least recently goes first.

use std::{
    collections::BTreeMap,
    hash::Hash,
    sync::{Mutex, PoisonError},
};

use rustc_hash::FxHashMap;

#[derive(Debug)]
struct Entries<K, V> {
    by_key: FxHashMap<K, (V, usize, u64)>,
    by_use: BTreeMap<u64, K>,
    bytes: usize,
    tick: u64,
}

/// Shared by all readers; the lock is held for a map operation only. A value above the limit is not kept.
#[derive(Debug)]
pub(super) struct Lru<K, V> {
    entries: Mutex<Entries<K, V>>,
    limit: usize,
}

impl<K: Hash + Eq + Clone, V: Clone> Lru<K, V> {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            entries: Mutex::new(Entries { by_key: FxHashMap::default(), by_use: BTreeMap::new(), bytes: 0, tick: 0 }),
            limit,
        }
    }

    pub(super) fn get(&self, key: &K) -> Option<V> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let Entries { by_key, by_use, tick, .. } = &mut *entries;
        let (value, _, used) = by_key.get_mut(key)?;
        *tick += 1;
        by_use.remove(used);
        by_use.insert(*tick, key.clone());
        *used = *tick;
        Some(value.clone())
    }

    pub(super) fn put(&self, key: K, value: V, bytes: usize) {
        if bytes > self.limit {
            return;
        }
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.tick += 1;
        let tick = entries.tick;
        if let Some((_, old, used)) = entries.by_key.insert(key.clone(), (value, bytes, tick)) {
            entries.bytes -= old;
            entries.by_use.remove(&used);
        }
        entries.by_use.insert(tick, key);
        entries.bytes += bytes;
        while entries.bytes > self.limit
            && let Some((_, oldest)) = entries.by_use.pop_first()
        {
            if let Some((_, bytes, _)) = entries.by_key.remove(&oldest) {
                entries.bytes -= bytes;
            }
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caches_stay_under_limit() {
        let cache = Lru::new(100);
        for i in 0..50 {
            cache.put(i, i, 30);
            assert!(cache.bytes() <= 100);
            assert_eq!(cache.get(&0), (i < 3 || cache.get(&0).is_some()).then_some(0));
        }
        cache.put(99, 99, 101);
        assert_eq!(cache.get(&99), None);
        assert_eq!((cache.get(&49), cache.get(&0), cache.get(&10)), (Some(49), Some(0), None));
    }
}
