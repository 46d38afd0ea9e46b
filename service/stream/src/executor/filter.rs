//! Keeps the rows for which a predicate is true; null is no. Stores nothing.
//!
//! Of an update pair: yes, yes stays a pair; yes, no is a Delete; no, yes an Insert; no, no nothing.

use std::sync::Arc;

use arrow::{
    array::{Array, BooleanArray, UInt32Array, cast::AsArray},
    datatypes::DataType,
};
use datafusion_physical_expr::PhysicalExpr;
use millstream_types::{Chunk, Op};

use super::eval::Evaluator;
use crate::StreamError;

#[derive(Debug)]
pub(crate) struct Filter {
    predicate: Arc<dyn PhysicalExpr>,
    eval: Evaluator,
}

impl Filter {
    pub(crate) fn new(predicate: Arc<dyn PhysicalExpr>, eval: Evaluator) -> Self {
        Self { predicate, eval }
    }

    pub(crate) fn chunk(&self, chunk: Chunk) -> Result<Option<Chunk>, StreamError> {
        let yes = self.eval.array(&self.predicate, &chunk.rows, &DataType::Boolean)?;
        let yes = yes.as_boolean();
        let kept = keep(&chunk, yes)?;
        Ok((!kept.is_empty()).then_some(kept))
    }
}

fn keep(chunk: &Chunk, yes: &BooleanArray) -> Result<Chunk, StreamError> {
    let is = |i: usize| yes.is_valid(i) && yes.value(i);
    if !chunk.ops.contains(&Op::UpdateDelete) {
        if yes.null_count() == 0 && yes.true_count() == chunk.len() {
            return Ok(chunk.clone());
        }
        return Ok(chunk.filter(yes)?);
    }
    let mut places: Vec<u32> = Vec::with_capacity(chunk.len());
    let mut ops = Vec::with_capacity(chunk.len());
    let mut i = 0;
    while i < chunk.len() {
        let pair = chunk.ops[i] == Op::UpdateDelete && chunk.ops.get(i + 1) == Some(&Op::UpdateInsert);
        if pair {
            match (is(i), is(i + 1)) {
                (true, true) => {
                    places.extend([i as u32, i as u32 + 1]);
                    ops.extend([Op::UpdateDelete, Op::UpdateInsert]);
                }
                (true, false) => {
                    places.push(i as u32);
                    ops.push(Op::Delete);
                }
                (false, true) => {
                    places.push(i as u32 + 1);
                    ops.push(Op::Insert);
                }
                (false, false) => {}
            }
            i += 2;
        } else {
            if is(i) {
                places.push(i as u32);
                ops.push(chunk.ops[i]);
            }
            i += 1;
        }
    }
    Ok(chunk.take(&UInt32Array::from(places), ops)?)
}
