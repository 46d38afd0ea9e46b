//! Objects that this process cannot run, with the reason, and what that means for those who read them.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Mutex, PoisonError},
};

use millstream_types::Retry;

use crate::{
    SqlError,
    catalog::{Catalog, Object},
    service::Core,
};

#[derive(Debug, Clone)]
struct Problem {
    reason: String,
    /// Nothing goes on trying: a person decides. Its rows may be a part of what they were.
    for_good: bool,
}

/// By name; written by `recover` and `ddl`, read by SHOW and by queries.
#[derive(Debug, Default)]
pub(crate) struct BrokenObjects(Mutex<BTreeMap<String, Problem>>);

impl Core {
    pub(crate) fn broken_objects(&self) -> BTreeMap<String, String> {
        let broken = self.broken.0.lock().unwrap_or_else(PoisonError::into_inner);
        broken.iter().map(|(name, problem)| (name.clone(), problem.reason.clone())).collect()
    }

    /// `retry` = that of the error: what is tried again in the background is not broken for good.
    pub(crate) fn set_broken(&self, name: &str, reason: String, retry: Retry) {
        let problem = Problem { reason, for_good: retry == Retry::Never };
        self.broken.0.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), problem);
    }

    pub(crate) fn clear_broken(&self, name: &str) {
        self.broken.0.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
    }

    /// Why objects must not be read, by name: what is broken for good, and the views over it. But for tables of topics and views over them: a table has the
    /// rows of its position, a view those of its last checkpoint, and a notice tells that they stand still (`query/notices.rs`).
    pub(crate) fn problems(&self, catalog: &Catalog) -> HashMap<String, String> {
        let mut problems: HashMap<String, String> = {
            let broken = self.broken.0.lock().unwrap_or_else(PoisonError::into_inner);
            let keeps_rows = |name: &str| matches!(catalog.object(name).map(AsRef::as_ref), Some(Object::Table(t)) if t.topic().is_some());
            let lost = broken.iter().filter(|(name, p)| p.for_good && !keeps_rows(name));
            lost.map(|(name, p)| (name.clone(), p.reason.clone())).collect()
        };
        if problems.is_empty() {
            return problems;
        }
        // an input is older than what is made of it, so that one pass in the order of creation meets it first
        let mut derived: Vec<_> = catalog.objects.iter().filter_map(|o| o.derived()).collect();
        derived.sort_unstable_by_key(|d| d.id.0);
        for view in derived {
            let Some(input) = catalog.by_table(view.input) else { continue };
            let loses_rows = !matches!(input.as_ref(), Object::Table(t) if t.topic().is_some());
            if let Some(reason) = problems.get(input.name()).filter(|_| loses_rows) {
                let reason = format!("its input {} cannot be read: {reason}", input.name());
                problems.entry(view.name.clone()).or_insert(reason);
            }
        }
        problems
    }

    /// An error if an object must not be read or written.
    pub(crate) fn readable(&self, catalog: &Catalog, name: &str) -> Result<(), SqlError> {
        match (self.problems(catalog).get(name), catalog.object(name)) {
            (Some(reason), Some(object)) => Err(SqlError::broken(object.kind(), name, reason)),
            _ => Ok(()),
        }
    }
}
