//! Logical expressions -> physical ones over the columns of a stream.

use std::{collections::HashMap, sync::Arc};

use datafusion::{
    common::{
        DFSchema, DFSchemaRef,
        tree_node::{Transformed, TreeNode, TreeNodeRecursion},
    },
    execution::context::{ExecutionProps, SessionState},
    logical_expr::{Expr, physical_planning_context::PhysicalPlanningContext, simplify::SimplifyContext},
    optimizer::simplify_expressions::ExprSimplifier,
    physical_expr::{
        PhysicalExpr, create_physical_expr,
        expressions::{Column as PhysicalColumn, Literal},
    },
    sql::unparser::Unparser,
};

use super::functions;
use crate::SqlError;

/// Constants folded, casts moved from columns to constants.
pub(crate) fn simplify(state: &SessionState, expr: &Expr, schema: &DFSchemaRef) -> Result<Expr, SqlError> {
    let context = SimplifyContext::builder()
        .with_schema(Arc::clone(schema))
        .with_config_options(Arc::clone(state.config_options()))
        .build();
    Ok(ExprSimplifier::new(context).simplify(expr.clone())?)
}

/// `places` tells for each column of `schema` where it stands in the stream.
pub(crate) fn physical(expr: &Expr, schema: &DFSchema, places: &[usize]) -> Result<Arc<dyn PhysicalExpr>, SqlError> {
    let physical = create_physical_expr(expr, schema, &ExecutionProps::new(), &PhysicalPlanningContext::default())?;
    Ok(remap(physical, &|i| places[i]))
}

/// Moves column references.
pub(crate) fn remap(expr: Arc<dyn PhysicalExpr>, place: &dyn Fn(usize) -> usize) -> Arc<dyn PhysicalExpr> {
    let moved = expr.transform(|node| {
        Ok(match node.downcast_ref::<PhysicalColumn>() {
            Some(c) if place(c.index()) != c.index() => {
                let there = PhysicalColumn::new(c.name(), place(c.index()));
                Transformed::yes(Arc::new(there) as Arc<dyn PhysicalExpr>)
            }
            _ => Transformed::no(node),
        })
    });
    moved.expect("moving columns returns no error of its own").data
}

/// The column that an expression passes through unchanged.
pub(crate) fn as_column(expr: &Arc<dyn PhysicalExpr>) -> Option<usize> {
    expr.downcast_ref::<PhysicalColumn>().map(PhysicalColumn::index)
}

/// Bytes of the long constants in an expression.
pub(crate) fn constant_bytes(expr: &Arc<dyn PhysicalExpr>) -> usize {
    let mut bytes = 0;
    let seen = expr.apply(|node| {
        if let Some(constant) = node.downcast_ref::<Literal>() {
            bytes += Some(constant.value().size()).filter(|s| *s > 256).unwrap_or_default();
        }
        Ok(TreeNodeRecursion::Continue)
    });
    seen.expect("looking at constants returns no error of its own");
    bytes
}

pub(crate) fn column(name: &str, index: usize) -> Arc<dyn PhysicalExpr> {
    Arc::new(PhysicalColumn::new(name, index))
}

/// The expression as SQL, for EXPLAIN.
pub(crate) fn text(expr: &Expr) -> String {
    let expr = &functions::as_written(expr.clone());
    let text = match Unparser::default().with_pretty(true).expr_to_sql(expr) {
        Ok(sql) => sql.to_string(),
        Err(_) => expr.human_display().to_string(),
    };
    text.replace("\"count(Int64(1))\"", "count(*)").replace("count(Int64(1))", "count(*)")
}

/// Adds the columns that an expression reads.
pub(crate) fn collect(expr: &Arc<dyn PhysicalExpr>, into: &mut HashMap<usize, ()>) {
    for c in datafusion::physical_expr::utils::collect_columns(expr) {
        into.insert(c.index(), ());
    }
}
