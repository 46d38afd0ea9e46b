//! Evaluates expressions on chunks: the one place here that calls DataFusion.
//!
//! A library call fails for a whole batch if one row is bad. With `on_eval_error = null` the batch is halved until the bad rows stand alone; they become
//! null and are counted. Not here: which expressions are allowed (the planner refuses volatile ones).

use std::sync::Arc;

use arrow::{
    array::{ArrayRef, RecordBatch, new_null_array},
    compute::{CastOptions, cast_with_options, concat},
    datatypes::DataType,
};
use datafusion_physical_expr::PhysicalExpr;

use crate::{OnEvalError, StreamError, metrics::JobMetrics};

#[derive(Debug, Clone)]
pub(crate) struct Evaluator {
    on_error: OnEvalError,
    metrics: JobMetrics,
}

impl Evaluator {
    pub(crate) fn new(on_error: OnEvalError, metrics: JobMetrics) -> Self {
        Self { on_error, metrics }
    }

    /// One value per row, of type `to`.
    pub(crate) fn array(
        &self,
        expr: &Arc<dyn PhysicalExpr>,
        rows: &RecordBatch,
        to: &DataType,
    ) -> Result<ArrayRef, StreamError> {
        match try_array(expr, rows, to) {
            Ok(a) => Ok(a),
            Err(source) if self.on_error == OnEvalError::Fail => {
                Err(StreamError::Eval { expr: expr.to_string(), source: Box::new(source) })
            }
            Err(_) if rows.num_rows() <= 1 => {
                self.metrics.eval_errors.inc();
                Ok(new_null_array(to, rows.num_rows()))
            }
            Err(_) => {
                let half = rows.num_rows() / 2;
                let a = self.array(expr, &rows.slice(0, half), to)?;
                let b = self.array(expr, &rows.slice(half, rows.num_rows() - half), to)?;
                Ok(concat(&[a.as_ref(), b.as_ref()])?)
            }
        }
    }
}

fn try_array(
    expr: &Arc<dyn PhysicalExpr>,
    rows: &RecordBatch,
    to: &DataType,
) -> Result<ArrayRef, datafusion_common::DataFusionError> {
    let array = expr.evaluate(rows)?.into_array(rows.num_rows())?;
    if array.data_type() == to {
        return Ok(array);
    }
    let options = CastOptions { safe: false, ..CastOptions::default() };
    Ok(cast_with_options(&array, to, &options)?)
}
