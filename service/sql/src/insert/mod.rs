//! INSERT and DELETE: rows into the shared WAL of a table without a topic, records into the topic of a table that has one.

pub(crate) mod defaults;
mod table;
mod topic;

use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::{logical_expr::LogicalPlan, sql::sqlparser::ast};

use crate::{
    SqlError, StatementResult,
    catalog::{Object, Table},
    parser::statement::Name,
    planner::session::Session,
    query::schema_provider::PublicSchema,
    service::Core,
};

/// Returns when the rows are committed and readable, or, for a topic, when all in-sync replicas have them.
pub(crate) async fn insert(
    core: &Arc<Core>,
    name: &Name,
    mut statement: ast::Statement,
) -> Result<StatementResult, SqlError> {
    let (session, table) = session(core, name)?;
    if let ast::Statement::Insert(insert) = &mut statement {
        columns(&mut insert.columns, &table, name)?;
    }
    let rows = rows(core, session, statement).await?;
    let rows = complete(&table, &rows)?;
    match table.topic() {
        None => table::write(core, &table, rows, false).await,
        Some(_) => topic::produce(core, &table, &rows, false).await,
    }
}

/// Deletes the rows that the query finds now, by their key.
pub(crate) async fn delete(
    core: &Arc<Core>,
    name: &Name,
    statement: ast::Statement,
) -> Result<StatementResult, SqlError> {
    let (session, table) = session(core, name)?;
    if table.schema.primary_key.is_empty() {
        return Err(SqlError::unsupported(
            format!("table {} has no primary key, its rows cannot be deleted", name.value),
            "drop the table",
        )
        .at(name.at));
    }
    let found = rows(core, session, statement).await?;
    match table.topic() {
        None => table::write(core, &table, found, true).await,
        Some(_) => topic::produce(core, &table, &found, true).await,
    }
}

fn session(core: &Arc<Core>, name: &Name) -> Result<(Session, Arc<Table>), SqlError> {
    let catalog = core.catalog()?;
    let object = core.find(&catalog, name)?;
    let Object::Table(table) = object.as_ref() else {
        return Err(SqlError::invalid(format!(
            "{} is a {}, rows can be written to tables only",
            name.value,
            object.kind().word()
        ))
        .at(name.at)
        .hint("write to its input"));
    };
    let table = Arc::new(table.clone());
    core.readable(&catalog, &table.name).map_err(|e| e.at(name.at))?;
    let problems = core.problems(&catalog);
    let public = PublicSchema::new(catalog, Arc::clone(&core.deps.storage), problems)
        .with_defaults(&table.name, defaults::expressions(&table.schema)?);
    Ok((core.session_over(public, None)?, table))
}

/// Without a list all columns are meant but those that the record itself fills in.
fn columns(list: &mut Vec<ast::ObjectName>, table: &Table, name: &Name) -> Result<(), SqlError> {
    let filled: Vec<&str> =
        table.schema.columns.iter().filter(|c| c.metadata.is_some()).map(|c| c.name.as_str()).collect();
    if let Some(wrong) = list.iter().find(|c| filled.contains(&c.to_string().as_str())) {
        return Err(
            SqlError::invalid(format!("column {wrong} is METADATA of the record and cannot be written")).at(name.at)
        );
    }
    if list.is_empty() && !filled.is_empty() {
        let own = table.schema.columns.iter().filter(|c| c.metadata.is_none() && !c.hidden);
        *list = own.map(|c| ast::ObjectName::from(vec![ast::Ident::with_quote('"', c.name.as_str())])).collect();
    }
    Ok(())
}

/// Runs the query inside the statement: rows with the visible columns of the table.
async fn rows(core: &Arc<Core>, session: Session, statement: ast::Statement) -> Result<RecordBatch, SqlError> {
    let until = core.deadline();
    let plan = async move {
        let LogicalPlan::Dml(dml) = session.plan(statement).await? else {
            return Err(SqlError::invalid("the statement writes no rows"));
        };
        session.runnable(&dml.input).await
    };
    let planned = core.planners.run(until, plan).await?;
    let answer = core.run_unlimited_rows(planned, until).await?;
    Ok(arrow::compute::concat_batches(&answer.schema, &answer.batches)?)
}

/// Checks NOT NULL, which a region does not.
fn complete(table: &Table, rows: &RecordBatch) -> Result<RecordBatch, SqlError> {
    let schema = &table.schema;
    for (place, i) in schema.visible().into_iter().enumerate() {
        let column = &schema.columns[i];
        if !column.nullable && column.metadata.is_none() && rows.column(place).null_count() > 0 {
            return Err(SqlError::invalid(format!("column {} is NOT NULL", column.name))
                .hint("give it a value, or a DEFAULT when you create the table"));
        }
    }
    Ok(rows.clone())
}
