//! An end to planning that nobody waits for any more.
//!
//! Nothing in DataFusion stops a planning: it is one long call. So its parts that are ours ask on their way: each rule of the optimiser and of the analyser (here),
//! and each function of a plan whenever its type is wanted (`functions`). What lies between two of them runs to its end; `threads` bounds how many do.

use std::{
    cell::RefCell,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use datafusion::{
    common::{DataFusionError, config::ConfigOptions, tree_node::Transformed},
    logical_expr::LogicalPlan,
    optimizer::{Analyzer, AnalyzerRule, ApplyOrder, Optimizer, OptimizerConfig, OptimizerRule},
    physical_optimizer::{
        PhysicalOptimizerRule,
        optimizer::{PhysicalOptimizer, PhysicalOptimizerContext},
    },
    physical_plan::ExecutionPlan,
};
use millstream_types::ErrorKind;

use crate::SqlError;

/// Set when the answer of a planning is not wanted any more.
pub(crate) type Stop = Arc<AtomicBool>;

thread_local! {
    /// That of the planning on this thread.
    static CURRENT: RefCell<Option<Stop>> = const { RefCell::new(None) };
}

/// `work` with `stop` as that of all planning on this thread.
pub(crate) fn within<T>(stop: Stop, work: impl FnOnce() -> T) -> T {
    CURRENT.set(Some(stop));
    let done = work();
    CURRENT.set(None);
    done
}

/// An error if the planning on this thread is not wanted any more.
pub(crate) fn check() -> Result<(), DataFusionError> {
    let stopped = CURRENT.with_borrow(|stop| stop.as_ref().is_some_and(|s| s.load(Ordering::Relaxed)));
    if !stopped {
        return Ok(());
    }
    let error = SqlError::new(ErrorKind::Exhausted, "QUERY_TIMEOUT", "planning was stopped");
    Err(DataFusionError::External(Box::new(error)))
}

/// A rule of DataFusion that asks first.
#[derive(Debug)]
struct Asking<R: ?Sized>(Arc<R>);

impl OptimizerRule for Asking<dyn OptimizerRule + Send + Sync> {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    // for most rules called for each step of a plan
    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>, DataFusionError> {
        check()?;
        self.0.rewrite(plan, config)
    }
}

impl AnalyzerRule for Asking<dyn AnalyzerRule + Send + Sync> {
    fn analyze(&self, plan: LogicalPlan, config: &ConfigOptions) -> Result<LogicalPlan, DataFusionError> {
        check()?;
        self.0.analyze(plan, config)
    }

    fn name(&self) -> &str {
        self.0.name()
    }
}

impl PhysicalOptimizerRule for Asking<dyn PhysicalOptimizerRule + Send + Sync> {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
        check()?;
        self.0.optimize(plan, config)
    }

    fn optimize_with_context(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        context: &dyn PhysicalOptimizerContext,
    ) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
        check()?;
        self.0.optimize_with_context(plan, context)
    }

    fn name(&self) -> &str {
        self.0.name()
    }

    fn schema_check(&self) -> bool {
        self.0.schema_check()
    }
}

pub(crate) fn analyzer_rules() -> Vec<Arc<dyn AnalyzerRule + Send + Sync>> {
    Analyzer::new().rules.into_iter().map(|r| Arc::new(Asking(r)) as _).collect()
}

pub(crate) fn optimizer_rules() -> Vec<Arc<dyn OptimizerRule + Send + Sync>> {
    Optimizer::new().rules.into_iter().map(|r| Arc::new(Asking(r)) as _).collect()
}

pub(crate) fn physical_optimizer_rules() -> Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> {
    PhysicalOptimizer::new().rules.into_iter().map(|r| Arc::new(Asking(r)) as _).collect()
}
