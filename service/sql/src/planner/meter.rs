//! Counts what a window function keeps: its operator holds all rows of its input until the last one has come, and does not ask the pool.

use std::{fmt, sync::Arc};

use datafusion::{
    common::{
        DataFusionError,
        tree_node::{Transformed, TreeNode, TreeNodeRecursion},
    },
    execution::{SendableRecordBatchStream, TaskContext, memory_pool::MemoryConsumer},
    physical_expr::PhysicalExpr,
    physical_plan::{
        DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, replace_children_if_necessary,
        stream::RecordBatchStreamAdapter, windows::WindowAggExec,
    },
};
use futures::StreamExt;

/// Puts a meter before every operator that keeps its input without counting it.
pub(crate) fn metered(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
    let metered = plan.transform_up(|node| {
        if node.downcast_ref::<WindowAggExec>().is_none() {
            return Ok(Transformed::no(node));
        }
        let children =
            node.children().into_iter().map(|c| Arc::new(Meter::new(Arc::clone(c))) as Arc<dyn ExecutionPlan>);
        let children = children.collect();
        Ok(Transformed::yes(replace_children_if_necessary(node, children)?))
    })?;
    Ok(metered.data)
}

/// Passes batches on, and keeps their memory reserved until its stream is dropped.
#[derive(Debug)]
struct Meter {
    input: Arc<dyn ExecutionPlan>,
    properties: Arc<PlanProperties>,
}

impl Meter {
    fn new(input: Arc<dyn ExecutionPlan>) -> Self {
        Self { properties: Arc::clone(input.properties()), input }
    }
}

impl DisplayAs for Meter {
    fn fmt_as(&self, _t: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Meter")
    }
}

impl ExecutionPlan for Meter {
    fn name(&self) -> &'static str {
        "Meter"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn apply_expressions(
        &self,
        _f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion, DataFusionError>,
    ) -> Result<TreeNodeRecursion, DataFusionError> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
        match children.pop() {
            Some(input) => Ok(Arc::new(Self::new(input))),
            None => Err(DataFusionError::Internal("a meter has an input".to_owned())),
        }
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream, DataFusionError> {
        let reservation = MemoryConsumer::new("rows of a window function").register(context.memory_pool());
        let input = self.input.execute(partition, context)?;
        let counted = input.map(move |batch| {
            let batch = batch?;
            let mut bytes = 0;
            for column in batch.columns() {
                bytes += column.to_data().get_slice_memory_size()?;
            }
            reservation.try_grow(bytes)?;
            Ok(batch)
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.input.schema(), counted)))
    }
}
