//! Computes the columns of each row. A pair whose sides come out equal is dropped. Stores nothing.

use std::sync::Arc;

use arrow::{
    array::{BooleanArray, RecordBatch, RecordBatchOptions},
    datatypes::{Field, Schema, SchemaRef},
    row::{RowConverter, SortField},
};
use datafusion_physical_expr::PhysicalExpr;
use millstream_types::{Chunk, Column, Op};

use super::eval::Evaluator;
use crate::StreamError;

#[derive(Debug)]
pub(crate) struct Project {
    exprs: Vec<Arc<dyn PhysicalExpr>>,
    schema: SchemaRef,
    /// Compares the two sides of pairs; `None` if a type has no row form (then equal pairs stay).
    compare: Option<RowConverter>,
    eval: Evaluator,
}

/// The Arrow schema of columns in motion: names and types, everything nullable.
pub(crate) fn motion_schema<'a>(columns: impl IntoIterator<Item = &'a Column>) -> SchemaRef {
    let fields = columns.into_iter().map(|c| Field::new(&c.name, c.sql_type.arrow(), true));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

impl Project {
    pub(crate) fn new(exprs: Vec<(Arc<dyn PhysicalExpr>, Column)>, eval: Evaluator) -> Self {
        let schema = motion_schema(exprs.iter().map(|(_, c)| c));
        let fields = schema.fields().iter().map(|f| SortField::new(f.data_type().clone())).collect();
        let compare = RowConverter::new(fields).ok();
        Self { exprs: exprs.into_iter().map(|(e, _)| e).collect(), schema, compare, eval }
    }

    pub(crate) fn chunk(&self, chunk: Chunk) -> Result<Option<Chunk>, StreamError> {
        let columns = self
            .exprs
            .iter()
            .zip(self.schema.fields())
            .map(|(e, f)| self.eval.array(e, &chunk.rows, f.data_type()))
            .collect::<Result<Vec<_>, _>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(chunk.len()));
        let rows = RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)?;
        let chunk = Chunk::new(rows, chunk.ops);
        let Some(keep) = self.unequal(&chunk)? else { return Ok(Some(chunk)) };
        let kept = chunk.filter(&keep)?;
        Ok((!kept.is_empty()).then_some(kept))
    }

    /// Which rows stay, or `None` if all do.
    fn unequal(&self, chunk: &Chunk) -> Result<Option<BooleanArray>, StreamError> {
        let Some(compare) = self.compare.as_ref().filter(|_| chunk.ops.contains(&Op::UpdateDelete)) else {
            return Ok(None);
        };
        let rows = compare.convert_columns(chunk.rows.columns())?;
        let mut keep = vec![true; chunk.len()];
        let mut all = true;
        for i in 1..chunk.len() {
            let pair = chunk.ops[i - 1] == Op::UpdateDelete && chunk.ops[i] == Op::UpdateInsert;
            if pair && rows.row(i - 1) == rows.row(i) {
                (keep[i - 1], keep[i], all) = (false, false, false);
            }
        }
        Ok((!all).then(|| BooleanArray::from(keep)))
    }
}
