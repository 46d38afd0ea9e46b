//! What a statement answers.

use arrow::{
    array::{Array, RecordBatch},
    datatypes::SchemaRef,
    error::ArrowError,
};
use millstream_types::Epoch;

#[derive(Debug, Clone)]
pub enum StatementResult {
    /// SELECT, SHOW, DESCRIBE, EXPLAIN, and the coordinates that INSERT into a topic answers.
    Rows {
        schema: SchemaRef,
        batches: Vec<RecordBatch>,
        /// The newest epoch whose barrier had passed when the statement ran.
        epoch: Option<Epoch>,
        notices: Vec<String>,
    },
    Command {
        /// As Postgres prints it: `CREATE TABLE`, `INSERT 0 3`.
        tag: String,
        /// Defaults that apply, and warnings.
        notices: Vec<String>,
    },
}

impl StatementResult {
    pub(crate) fn command(tag: impl Into<String>, notices: Vec<String>) -> Self {
        StatementResult::Command { tag: tag.into(), notices }
    }

    pub fn notices(&self) -> &[String] {
        match self {
            StatementResult::Rows { notices, .. } | StatementResult::Command { notices, .. } => notices,
        }
    }

    /// What the rows need, also as text.
    pub(crate) fn bytes(&self) -> Result<usize, ArrowError> {
        match self {
            StatementResult::Rows { batches, .. } => batches.iter().try_fold(0, |sum, b| Ok(sum + batch_bytes(b)?)),
            StatementResult::Command { tag, .. } => Ok(tag.len()),
        }
    }

    /// Number of rows answered; none for a command.
    pub fn row_count(&self) -> usize {
        match self {
            StatementResult::Rows { batches, .. } => batches.iter().map(RecordBatch::num_rows).sum(),
            StatementResult::Command { .. } => 0,
        }
    }
}

/// The rows' own share of the memory: batches of one scan are slices of the same buffers, which would count again with each of them. A value counts for at
/// least eight bytes, since a null or a boolean is that long as text.
pub(crate) fn batch_bytes(batch: &RecordBatch) -> Result<usize, ArrowError> {
    let mut bytes = batch.num_rows() * batch.num_columns() * 8;
    for column in batch.columns() {
        bytes += column.to_data().get_slice_memory_size()?;
    }
    Ok(bytes)
}
