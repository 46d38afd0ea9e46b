//! CREATE TABLE: columns and key, the topic and where to start in it, the format; then one region per partition.

use std::{collections::BTreeMap, sync::Arc};

use millstream_storage::api::OnDataLoss;
use millstream_types::{Column, ErrorKind, Seq, TableSchema};

use super::{
    bring_up,
    options::{OptionReader, as_map},
    start::StartMode,
};
use crate::{
    SqlError, StatementResult,
    catalog::{Object, Table, TableSource, TopicSource},
    error::nearest,
    format,
    insert::defaults,
    parser::statement::{ColumnDef, CreateTable, ObjectKind},
    service::Core,
};

/// Everything about the table but its number.
#[derive(Debug)]
pub(crate) struct PreparedTable {
    schema: TableSchema,
    topic: Option<TopicSource>,
    options: BTreeMap<String, String>,
    notices: Vec<String>,
}

pub(crate) async fn create(core: &Arc<Core>, create: CreateTable, text: String) -> Result<StatementResult, SqlError> {
    let (created, mut notices) = append(core, &create, &text).await?;
    if let Some(table) = created {
        notices.extend(bring_up::open_table(core, table).await?);
    }
    Ok(StatementResult::command("CREATE TABLE", notices))
}

/// Checks and appends; `None` if the table is there and that is fine.
async fn append(core: &Arc<Core>, create: &CreateTable, text: &str) -> Result<(Option<Table>, Vec<String>), SqlError> {
    let _one = core.ddl.lock().await;
    let store = core.store()?;
    store.refresh().await?;
    if let Some(notice) = super::existing(&store.current(), ObjectKind::Table, &create.name, create.if_not_exists)? {
        return Ok((None, vec![notice]));
    }
    let prepared = prepare(core, create).await?;
    let created = store
        .change(|catalog| {
            // another replica may have been quicker
            if super::existing(catalog, ObjectKind::Table, &create.name, create.if_not_exists)?.is_some() {
                return Ok(None);
            }
            let id = catalog.take_table_id();
            let source = match &prepared.topic {
                Some(topic) => TableSource::Topic(topic.clone()),
                None => TableSource::Shared { shard: catalog.cluster.shard_of(u64::from(id.0)) },
            };
            let table = Table {
                id,
                name: create.name.value.clone(),
                sql: text.to_owned(),
                schema: prepared.schema.clone(),
                options: prepared.options.clone(),
                source,
                created_ms: core.deps.clock.now_ms(),
            };
            catalog.replace(Object::Table(table.clone()));
            Ok(Some(table))
        })
        .await?;
    Ok((created, prepared.notices))
}

/// All checks; changes nothing.
pub(crate) async fn prepare(core: &Arc<Core>, create: &CreateTable) -> Result<PreparedTable, SqlError> {
    let mut notices = Vec::new();
    let mut options = OptionReader::new(&create.options);
    options.not_yet(&[
        ("connection", "leave it out: the cluster is section kafka of the configuration file"),
        ("retention", "leave it out: rows are kept until the table is dropped"),
        ("dead_letter.topic", "leave it out: rejected records are counted and shown by REST"),
        ("dead_letter.retention", "leave it out: rejected records are counted and shown by REST"),
        ("dead_letter.max_bytes", "leave it out: rejected records are counted and shown by REST"),
        ("flush_interval", "set it in section storage of the configuration file"),
        ("region_buffer_bytes", "set it in section storage of the configuration file"),
    ])?;
    let topic = options.entry("topic");
    let mut schema = table_schema(create, topic.is_some(), &mut notices)?;
    if create.columns.iter().any(|c| c.default.is_some()) {
        let (core, columns) = (Arc::clone(core), create.columns.clone());
        let (planners, until) = (Arc::clone(&core.planners), core.deadline());
        let checking = async move { defaults::check(&core, &columns, &mut schema).map(|()| schema) };
        schema = planners.run(until, checking).await?;
    }
    let Some(topic) = topic else {
        options.only_with(
            &[
                "value.format",
                "key.format",
                "key.fields",
                "scan.startup.mode",
                "scan.startup.timestamp",
                "scan.startup.offsets",
                "on_data_loss",
            ],
            "topic = 'name'",
        )?;
        options.finish()?;
        return Ok(PreparedTable { schema, topic: None, options: BTreeMap::new(), notices });
    };
    let topic_at = topic.value_at;
    let topic = topic.value.clone();
    let mode = StartMode::read(&mut options)?;
    let on_data_loss =
        options.choice("on_data_loss", &[("fail", OnDataLoss::Fail), ("continue", OnDataLoss::Continue)], "fail")?;
    options
        .choice("on_error", &[("skip", ())], "skip")
        .map_err(|e| e.or_hint(Some("rejected records are skipped, counted, and shown by REST".to_owned())))?;
    format::table_format(&schema, &options.rest()).map_err(|r| options.refused(r))?;
    if *topic == *core.config.wal_topic {
        return Err(SqlError::option(format!("topic {topic} is the WAL of this service")).at(topic_at));
    }
    let admin = core.deps.logs.admin();
    let Some(info) = admin.describe(&topic).await? else {
        let names = admin.list().await.unwrap_or_default();
        return Err(SqlError::new(ErrorKind::NotFound, "TOPIC_NOT_FOUND", format!("topic {topic} does not exist"))
            .at(topic_at)
            .or_hint(nearest(&topic, names.iter().map(String::as_str)))
            .or_hint(Some("create the topic first; tables do not create topics".to_owned())));
    };
    if schema.primary_key.is_empty() && info.config.get("cleanup.policy").is_some_and(|p| p.contains("compact")) {
        notices
            .push(format!("warning records_may_vanish: topic {topic} is compacted, but the table has no primary key"));
    }
    let ends = admin.offsets(&topic).await?;
    let starts = mode.resolve(admin.as_ref(), &topic, &ends, &options).await?;
    notices.push(start_notice(&topic, &mode, &starts));
    let source = TopicSource { topic, topic_id: info.topic_id, starts, on_data_loss };
    Ok(PreparedTable { schema, topic: Some(source), options: as_map(&create.options), notices })
}

fn start_notice(topic: &str, mode: &StartMode, starts: &[Seq]) -> String {
    let word = match mode {
        StartMode::Earliest => "earliest",
        StartMode::Latest => "latest",
        StartMode::Timestamp(_) => "timestamp",
        StartMode::Offsets(_) => "offsets",
    };
    let shown: Vec<String> = starts.iter().enumerate().take(16).map(|(p, s)| format!("{p}:{s}")).collect();
    let more = if starts.len() > 16 { ", .." } else { "" };
    format!("topic {topic}: {} partitions, start {word} = {}{more}", starts.len(), shown.join(", "))
}

fn table_schema(create: &CreateTable, has_topic: bool, notices: &mut Vec<String>) -> Result<TableSchema, SqlError> {
    let mut columns = Vec::with_capacity(create.columns.len());
    for (i, def) in create.columns.iter().enumerate() {
        columns.push(column(def, i as u32 + 1, has_topic)?);
        if def.bare_decimal {
            notices.push(format!("column {}: DECIMAL is DECIMAL(38,10)", def.name.value));
        }
    }
    if columns.is_empty() {
        return Err(SqlError::invalid("a table needs a column").at(create.name.at));
    }
    let mut primary_key = Vec::with_capacity(create.primary_key.len());
    for name in &create.primary_key {
        let Some(place) = columns.iter().position(|c: &Column| c.name == name.value) else {
            let names = columns.iter().map(|c| c.name.as_str());
            return Err(SqlError::invalid(format!("primary key column {} does not exist", name.value))
                .at(name.at)
                .or_hint(nearest(&name.value, names)));
        };
        let column = &mut columns[place];
        if !column.sql_type.can_be_key() {
            return Err(SqlError::invalid(format!(
                "a column of type {} cannot be part of the primary key",
                column.sql_type
            ))
            .at(name.at)
            .hint("its values have no single order; use a number, text, bytes, date or time"));
        }
        column.nullable = false;
        primary_key.push(place);
    }
    Ok(TableSchema { id: 1, columns, primary_key })
}

fn column(def: &ColumnDef, id: u32, has_topic: bool) -> Result<Column, SqlError> {
    let name = &def.name;
    if name.value.starts_with("__") {
        return Err(SqlError::invalid(format!("column name {} is reserved", name.value))
            .at(name.at)
            .hint("names of columns do not begin with __"));
    }
    let mut column = Column::new(id, name.value.as_str(), def.sql_type.clone());
    column.nullable = !def.not_null;
    column.default = def.default.as_ref().map(|(text, ..)| text.clone());
    if let Some(metadata) = &def.metadata {
        if !has_topic {
            return Err(SqlError::invalid("METADATA needs a topic").at(name.at).hint("add WITH (topic = 'name')"));
        }
        if def.default.is_some() {
            return Err(SqlError::invalid(format!("column {} has METADATA and DEFAULT", name.value)).at(name.at));
        }
        column.metadata = Some(metadata.clone());
    }
    Ok(column)
}
