//! Rows into a table without a topic: one write to its region, with an id to ask with again when the outcome is unknown.

use std::{collections::HashMap, sync::Arc, time::Duration};

use arrow::{
    array::{Array, ArrayRef, RecordBatch, UInt32Array, new_null_array},
    compute::take_record_batch,
};
use millstream_storage::StorageError;
use millstream_types::{ErrorKind, KeyCodec, Op, RegionId, TableSchema};

use crate::{SqlError, StatementResult, catalog::Table, service::Core};

/// Tries of one write whose outcome is unknown; all have the same id, so that it happens once.
const ATTEMPTS: u32 = 5;

/// How long a write waits for a full buffer before its client is told to send it again.
const PATIENCE: Duration = Duration::from_secs(10);

/// `rows` has the visible columns. A delete keeps only the key.
pub(super) async fn write(
    core: &Arc<Core>,
    table: &Table,
    rows: RecordBatch,
    delete: bool,
) -> Result<StatementResult, SqlError> {
    let id = RegionId::new(table.id, 0);
    let region = core.deps.storage.region(id).ok_or_else(|| {
        SqlError::new(
            ErrorKind::Unavailable,
            "REGION_CLOSED",
            format!("region {id} of {} is not open here", table.name),
        )
        .hint("SHOW REGIONS tells why")
    })?;
    let count = rows.num_rows();
    let tag = if delete { format!("DELETE {count}") } else { format!("INSERT 0 {count}") };
    if count == 0 {
        return Ok(StatementResult::command(tag, Vec::new()));
    }
    let rows = last_of_each_key(&table.schema, stored(&table.schema, &rows, delete)?)?;
    let ops = vec![if delete { Op::Delete } else { Op::Insert }; rows.num_rows()];
    let write_id = rand::random::<u128>();
    let patience = core.deps.clock.now_ms() + PATIENCE.as_millis() as u64;
    let mut attempt = 0;
    loop {
        match region.write(rows.clone(), ops.clone(), write_id).await {
            Ok(_) => return Ok(StatementResult::command(tag, Vec::new())),
            Err(StorageError::AppendUnknown { .. }) if attempt + 1 < ATTEMPTS => {
                attempt += 1;
                tracing::warn!(region = %id, write_id = format!("{write_id:032x}"), attempt, "outcome of a write is unknown, asking again");
                core.deps.clock.sleep(Duration::from_millis(200)).await;
            }
            // nothing is written, and a flush is on its way: a write that is large beside the buffer of its region waits for it
            Err(StorageError::WriteBufferFull { retry_after_ms, .. }) if core.deps.clock.now_ms() < patience => {
                core.deps.clock.sleep(Duration::from_millis(retry_after_ms.clamp(50, 1_000))).await;
            }
            Err(e) => return Err(e.into()),
        }
    }
}

/// All columns as the region stores them.
fn stored(schema: &TableSchema, rows: &RecordBatch, delete: bool) -> Result<RecordBatch, SqlError> {
    let visible = schema.visible();
    let mut columns: Vec<ArrayRef> = Vec::with_capacity(schema.columns.len());
    for (i, column) in schema.columns.iter().enumerate() {
        let place = visible.iter().position(|v| *v == i);
        columns.push(match place {
            Some(p) if !delete || schema.is_key(i) => Arc::clone(rows.column(p)),
            _ => new_null_array(&column.sql_type.arrow(), rows.num_rows()),
        });
    }
    Ok(RecordBatch::try_new(schema.arrow(), columns)?)
}

/// Rows of one write have one sequence, so that a key may be there only once: the last one counts.
fn last_of_each_key(schema: &TableSchema, rows: RecordBatch) -> Result<RecordBatch, SqlError> {
    if schema.primary_key.is_empty() || rows.num_rows() < 2 {
        return Ok(rows);
    }
    let columns: Vec<ArrayRef> = schema.primary_key.iter().map(|k| Arc::clone(rows.column(*k))).collect();
    let keys = KeyCodec::new(columns.iter().map(|c| c.data_type().clone()))?.encode(&columns)?;
    let mut last: HashMap<Vec<u8>, u32> = HashMap::with_capacity(rows.num_rows());
    for i in 0..rows.num_rows() {
        last.insert(keys.row(i).as_ref().to_vec(), i as u32);
    }
    if last.len() == rows.num_rows() {
        return Ok(rows);
    }
    let mut kept: Vec<u32> = last.into_values().collect();
    kept.sort_unstable();
    Ok(take_record_batch(&rows, &UInt32Array::from(kept))?)
}
