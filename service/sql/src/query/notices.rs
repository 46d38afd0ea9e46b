//! What the reader of a query must know of the tables in it: that one stands still, or does not get all of its topic. Its rows are those of the last position.

use std::collections::BTreeSet;

use datafusion::{common::tree_node::TreeNodeRecursion, logical_expr::LogicalPlan};
use millstream_stream::JobState;

use crate::{SqlError, service::Core};

/// One notice for each table or view that is behind for a reason that does not pass by itself.
pub(crate) fn of_query(core: &Core, plan: &LogicalPlan) -> Result<Vec<String>, SqlError> {
    let mut names = BTreeSet::new();
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node {
            names.insert(scan.table_name.table().to_owned());
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    let catalog = core.catalog()?;
    let mut notices = Vec::new();
    for name in names {
        let Some(object) = catalog.object(&name) else { continue };
        let Some((_, regions)) = object.readable() else { continue };
        let kind = object.kind().word();
        let regions = regions.into_iter().filter_map(|id| core.deps.storage.region(id));
        if let Some(status) = regions.map(|r| r.status()).find(|s| s.reason.is_some()) {
            let reason = status.reason.unwrap_or_default();
            notices.push(format!(
                "warning incomplete: {kind} {name}, region {} ({}): {reason}",
                status.region, status.state
            ));
            continue;
        }
        let job = object.derived().and_then(|d| core.deps.stream.job(d.job));
        if let Some(job) = job.filter(|j| matches!(j.state, JobState::Quarantined | JobState::Degraded)) {
            let reason = job.reason.map(|r| r.message).unwrap_or_default();
            notices.push(format!("warning stale: {kind} {name} is {}: {reason}", job.state.as_str()));
        }
    }
    Ok(notices)
}
