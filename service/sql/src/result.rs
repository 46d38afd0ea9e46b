//! What a statement answers.

use arrow::{array::RecordBatch, datatypes::SchemaRef};
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

    /// Number of rows answered; none for a command.
    pub fn row_count(&self) -> usize {
        match self {
            StatementResult::Rows { batches, .. } => batches.iter().map(RecordBatch::num_rows).sum(),
            StatementResult::Command { .. } => 0,
        }
    }
}
