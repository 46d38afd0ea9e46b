//! How large a plan may be, found out before the optimiser sees it: what the text names once (a CTE) a plan may hold many times.
//!
//! Projections that are merged and filters that are pushed down put expressions into each other, so what counts is the sum of the levels of all expressions
//! on one path through the plan. Not here: the text itself (`parser::depth`), the memory of running (`functions`, the pool of the session).

use std::collections::HashMap;

use datafusion::{
    common::{DataFusionError, tree_node::TreeNodeRecursion},
    logical_expr::{Expr, LogicalPlan},
    sql::sqlparser::tokenizer::Location,
};
use millstream_types::ErrorKind;

use crate::{SqlError, parser::depth::too_deep};

/// Steps and levels of expressions on one path.
const MOST_LEVELS: usize = 800;
/// Steps, each as often as it is used.
const MOST_STEPS: usize = 5_000;
/// Parts of all expressions, each as often as it is used.
const MOST_PARTS: usize = 4_000_000;
/// Columns of a table or of one step of a query, as many as PostgreSQL allows.
pub(crate) const MOST_COLUMNS: usize = 1_600;
/// Bytes of the constants in one projection that are repeated for each row, so that a batch of rows is not larger than this times `BATCH_ROWS`.
const MOST_CONSTANTS: usize = 32 << 10;

#[derive(Debug, Clone, Copy, Default)]
struct Size {
    levels: usize,
    steps: usize,
    parts: usize,
}

impl Size {
    fn beside(&mut self, other: Size) {
        self.levels = self.levels.max(other.levels);
        self.steps = self.steps.saturating_add(other.steps);
        self.parts = self.parts.saturating_add(other.parts);
    }
}

/// Refuses a plan that is too large to be optimised and run.
pub(crate) fn check(plan: &LogicalPlan) -> Result<(), SqlError> {
    let size = measure(plan, &mut HashMap::new())?;
    if size.levels > MOST_LEVELS {
        return Err(too_deep(
            format!("the plan has {} levels of steps and expressions, the limit is {MOST_LEVELS}", size.levels),
            Location::empty(),
        ));
    }
    if size.steps > MOST_STEPS || size.parts > MOST_PARTS {
        return Err(SqlError::new(
            ErrorKind::Invalid,
            "STATEMENT_TOO_LARGE",
            format!("the plan has more than {MOST_STEPS} steps or {MOST_PARTS} parts of expressions; a WITH query counts as often as it is used"),
        )
        .hint("keep a part of the query as a materialized view"));
    }
    Ok(())
}

/// `seen` has the parts of the plan that several others share.
fn measure(plan: &LogicalPlan, seen: &mut HashMap<*const LogicalPlan, Size>) -> Result<Size, SqlError> {
    if let Some(size) = seen.get(&std::ptr::from_ref(plan)) {
        return Ok(*size);
    }
    let columns = plan.schema().fields().len();
    if columns > MOST_COLUMNS {
        return Err(SqlError::new(
            ErrorKind::Invalid,
            "STATEMENT_TOO_LARGE",
            format!("a part of the query has {columns} columns, the limit is {MOST_COLUMNS}"),
        ));
    }
    let mut below = Size::default();
    for input in plan.inputs() {
        below.beside(measure(input, seen)?);
    }
    let mut failed = None;
    plan.apply_subqueries(|subquery| {
        match measure(subquery, seen) {
            Ok(size) => below.beside(size),
            Err(e) => failed = Some(e),
        }
        Ok(TreeNodeRecursion::Jump)
    })?;
    if let Some(e) = failed {
        return Err(e);
    }
    let (mut levels, mut parts) = (0, 0_usize);
    plan.apply_expressions(|expr| {
        levels = levels.max(measure_expr(expr, &mut parts)?);
        Ok(TreeNodeRecursion::Continue)
    })?;
    let size = Size {
        levels: below.levels + levels + 1,
        steps: below.steps.saturating_add(1),
        parts: below.parts.saturating_add(parts),
    };
    seen.insert(plan, size);
    Ok(size)
}

fn measure_expr(expr: &Expr, parts: &mut usize) -> Result<usize, DataFusionError> {
    use datafusion::common::tree_node::TreeNode;
    *parts += 1;
    let mut levels = 0;
    expr.apply_children(|child| {
        levels = levels.max(measure_expr(child, parts)?);
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(levels + 1)
}

/// Refuses long constants that each row would get a copy of. For an optimised plan, with constants folded.
pub(crate) fn check_constants(plan: &LogicalPlan) -> Result<(), SqlError> {
    use datafusion::common::tree_node::TreeNode;
    let mut most = 0;
    plan.apply_with_subqueries(|node| {
        if !matches!(
            node,
            LogicalPlan::Projection(_) | LogicalPlan::Aggregate(_) | LogicalPlan::Window(_) | LogicalPlan::Sort(_)
        ) || node.inputs().iter().all(|i| i.max_rows() == Some(1))
        {
            return Ok(TreeNodeRecursion::Continue);
        }
        let mut bytes = 0;
        node.apply_expressions(|expr| {
            expr.apply(|e| {
                bytes += constant_bytes(e);
                Ok(TreeNodeRecursion::Continue)
            })
        })?;
        most = most.max(bytes);
        Ok(TreeNodeRecursion::Continue)
    })?;
    constants_fit(most)
}

/// The same for the outputs of one projection of a view.
pub(crate) fn constants_fit(bytes: usize) -> Result<(), SqlError> {
    if bytes <= MOST_CONSTANTS {
        return Ok(());
    }
    Err(SqlError::new(
        ErrorKind::Invalid,
        "STATEMENT_TOO_LARGE",
        format!(
            "the query repeats {} KiB of constants for each row, the limit is {} KiB",
            bytes >> 10,
            MOST_CONSTANTS >> 10
        ),
    )
    .hint("write long constants in VALUES, or in a SELECT without FROM"))
}

/// Only what is long: a number is no larger than the column that it makes.
pub(crate) fn constant_bytes(expr: &Expr) -> usize {
    match expr {
        Expr::Literal(value, _) => Some(value.size()).filter(|s| *s > 256).unwrap_or_default(),
        _ => 0,
    }
}
