//! Records into the topic of a table: INSERT is a value, DELETE a tombstone. The answer is where each record is.

use std::sync::Arc;

use arrow::{
    array::{ArrayRef, Int32Array, Int64Array, RecordBatch, StringArray},
    datatypes::{DataType, Field, Schema},
};
use millstream_format::partition_for_key;
use millstream_types::{BinaryArena, OutBatch};

use crate::{SqlError, StatementResult, catalog::Table, ddl::bring_up::format_options, format, service::Core};

pub(super) async fn produce(
    core: &Arc<Core>,
    table: &Table,
    rows: &RecordBatch,
    delete: bool,
) -> Result<StatementResult, SqlError> {
    let Some(source) = table.topic() else {
        return Err(SqlError::invalid(format!("table {} has no topic", table.name)));
    };
    let made = format::table_encoders(&table.schema, &format_options(table)).map_err(|r| {
        SqlError::unsupported(
            format!("rows of table {} cannot be written: {}", table.name, r.message),
            "produce to the topic yourself",
        )
    })?;
    let encode = |encoder: &dyn millstream_types::Encoder, columns: &[usize]| -> Result<BinaryArena, SqlError> {
        let visible = table.schema.visible();
        let places: Vec<usize> = columns.iter().filter_map(|c| visible.iter().position(|v| v == c)).collect();
        let mut arena = BinaryArena::default();
        encoder.encode(&rows.project(&places)?, &mut arena).map_err(|e| SqlError::internal("encode records", e))?;
        Ok(arena)
    };
    let keys = made.key.as_ref().map(|(columns, encoder)| encode(encoder.as_ref(), columns)).transpose()?;
    if delete && keys.is_none() {
        return Err(SqlError::unsupported(
            format!("records of topic {} have no key, so no tombstone can name a row", source.topic),
            "create the table with a key.format",
        ));
    }
    let values = if delete { None } else { Some(encode(made.value.1.as_ref(), &made.value.0)?) };
    let partitions = source.starts.len() as i32;
    let mut batch = OutBatch::new(source.topic.as_str(), core.deps.clock.now_ms() as i64);
    batch.want_offsets = true;
    for i in 0..rows.num_rows() {
        let key = keys.as_ref().and_then(|k| k.get(i));
        let partition = key.map_or(i as i32 % partitions, |k| partition_for_key(k, partitions));
        batch.push(partition, key, values.as_ref().and_then(|v| v.get(i)));
    }
    let offsets = if batch.is_empty() { Vec::new() } else { core.deps.logs.producer().produce(&batch).await? };
    answer(&source.topic, &batch.partitions, offsets)
}

fn answer(topic: &str, partitions: &[i32], offsets: Vec<i64>) -> Result<StatementResult, SqlError> {
    let schema = Arc::new(Schema::new(vec![
        Field::new("topic", DataType::Utf8, false),
        Field::new("partition", DataType::Int32, false),
        Field::new("offset", DataType::Int64, false),
    ]));
    let columns: Vec<ArrayRef> = vec![
        Arc::new(StringArray::from(vec![topic; offsets.len()])),
        Arc::new(Int32Array::from(partitions[..offsets.len()].to_vec())),
        Arc::new(Int64Array::from(offsets)),
    ];
    let rows = RecordBatch::try_new(Arc::clone(&schema), columns)?;
    Ok(StatementResult::Rows { schema, batches: vec![rows], epoch: None, notices: Vec::new() })
}
