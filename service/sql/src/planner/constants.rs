//! Constant parts of a view that cannot be worked out, found at CREATE: they would fail for each row, for as long as the view is there.
//!
//! Not asked again when a stored view is planned: what was accepted once runs.

use std::sync::Arc;

use arrow::{
    array::{RecordBatch, RecordBatchOptions},
    datatypes::Schema,
};
use datafusion::{
    common::DataFusionError,
    logical_expr::Operator,
    physical_expr::{
        PhysicalExpr, ScalarFunctionExpr,
        expressions::{BinaryExpr, CaseExpr, LambdaExpr, Literal},
    },
};
use millstream_types::ErrorKind;

use super::{
    draft::{Draft, DraftNode},
    stop,
};
use crate::SqlError;

/// Works out every constant part. One that not every row comes to (a branch of CASE, the right side of AND) is refused only where it can never be made.
pub(crate) fn check(draft: &Draft) -> Result<(), SqlError> {
    let row = RecordBatch::try_new_with_options(
        Arc::new(Schema::empty()),
        Vec::new(),
        &RecordBatchOptions::new().with_row_count(Some(1)),
    )?;
    for node in &draft.nodes {
        match node {
            DraftNode::Filter { predicate, text } => whole(predicate, text, &row)?,
            DraftNode::Project(outputs) => {
                for output in outputs {
                    whole(&output.expr, &output.text, &row)?;
                }
            }
            // over columns only: what they are made of is projected before
            DraftNode::Agg(_) => {}
        }
    }
    Ok(())
}

fn whole(expr: &Arc<dyn PhysicalExpr>, text: &str, row: &RecordBatch) -> Result<(), SqlError> {
    match look(expr, true, row).and_then(|constant| if constant { work_out(expr, true, row) } else { Ok(()) }) {
        Ok(()) => Ok(()),
        Err(e) => {
            const SHOWN: usize = 120;
            let cut = text.floor_char_boundary(SHOWN);
            let more = if cut < text.len() { " .." } else { "" };
            let inner = SqlError::from(e);
            let message = format!("a constant part of {}{more} cannot be worked out: {}", &text[..cut], inner.message);
            // what memory there is now must not decide about a view
            let kind = if inner.code == "QUERY_TIMEOUT" { ErrorKind::Exhausted } else { ErrorKind::Invalid };
            Err(SqlError::new(kind, inner.code, message).or_hint(inner.hint))
        }
    }
}

/// Whether the expression is a constant. If not, its largest constant parts are worked out. `always` = each row comes to it.
fn look(expr: &Arc<dyn PhysicalExpr>, always: bool, row: &RecordBatch) -> Result<bool, DataFusionError> {
    let children = expr.children();
    if children.is_empty() {
        return Ok(expr.is::<Literal>() || (expr.is::<ScalarFunctionExpr>() && !expr.is_volatile_node()));
    }
    let for_each = always && !may_skip(expr.as_ref());
    let constant: Vec<bool> = children.iter().map(|c| look(c, for_each, row)).collect::<Result<_, _>>()?;
    if constant.iter().all(|c| *c) && !expr.is_volatile_node() {
        return Ok(true);
    }
    for (child, constant) in children.iter().zip(constant) {
        if constant && !child.is::<Literal>() {
            work_out(child, for_each, row)?;
        }
    }
    Ok(false)
}

/// Whether an operator or function need not evaluate all that it is made of.
fn may_skip(expr: &dyn PhysicalExpr) -> bool {
    expr.is::<CaseExpr>()
        || expr.is::<LambdaExpr>()
        || expr.downcast_ref::<BinaryExpr>().is_some_and(|b| matches!(b.op(), Operator::And | Operator::Or))
        || expr.downcast_ref::<ScalarFunctionExpr>().is_some_and(|f| f.fun().short_circuits())
}

fn work_out(expr: &Arc<dyn PhysicalExpr>, always: bool, row: &RecordBatch) -> Result<(), DataFusionError> {
    stop::check()?;
    match expr.evaluate(row) {
        Ok(_) => Ok(()),
        Err(e) if always || is_too_large(&e) => Err(e),
        // a row that comes to it fails, as it would in a query
        Err(_) => Ok(()),
    }
}

fn is_too_large(e: &DataFusionError) -> bool {
    match e.find_root() {
        DataFusionError::External(inner) => inner.downcast_ref::<SqlError>().is_some(),
        _ => false,
    }
}
