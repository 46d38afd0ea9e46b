//! The memory that the state caches of all jobs together may take.
//!
//! Each cache tells its size at its barriers, with one atomic addition, and asks what it may keep. Above the limit every cache gives up the same part of
//! itself, so that all together come down to three quarters of the limit; a large one gives up much, a small one little. No cache looks into another.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

#[derive(Debug)]
pub(crate) struct CacheBudget {
    limit: usize,
    used: AtomicUsize,
}

impl CacheBudget {
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, used: AtomicUsize::new(0) })
    }

    pub(crate) fn share(self: &Arc<Self>) -> CacheShare {
        CacheShare { budget: Arc::clone(self), bytes: 0 }
    }
}

/// What one cache takes; given back when it is dropped.
#[derive(Debug)]
pub(crate) struct CacheShare {
    budget: Arc<CacheBudget>,
    bytes: usize,
}

impl CacheShare {
    pub(crate) fn set(&mut self, bytes: usize) {
        let used = &self.budget.used;
        if bytes >= self.bytes {
            used.fetch_add(bytes - self.bytes, Ordering::Relaxed);
        } else {
            used.fetch_sub(self.bytes - bytes, Ordering::Relaxed);
        }
        self.bytes = bytes;
    }

    /// Bytes that this cache may keep, if it has to give up any.
    pub(crate) fn allowed(&self) -> Option<usize> {
        let (used, limit) = (self.budget.used.load(Ordering::Relaxed), self.budget.limit);
        (used > limit).then(|| (self.bytes as f64 * limit as f64 * 0.75 / used as f64) as usize)
    }
}

impl Drop for CacheShare {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_caches_together_stay_within_the_limit() {
        let budget = CacheBudget::new(1000);
        let (mut a, mut b) = (budget.share(), budget.share());
        a.set(900);
        assert_eq!(a.allowed(), None);
        b.set(300);
        let (x, y) = (a.allowed().unwrap(), b.allowed().unwrap());
        assert!(x + y <= 750 && x > 2 * y, "{x} {y}");
        a.set(x);
        assert_eq!(b.allowed(), None, "what another gave up counts at once");
        drop(a);
        b.set(1000);
        assert_eq!(b.allowed(), None, "a job that ends gives everything back");
    }
}
