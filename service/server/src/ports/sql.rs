//! Statements and catalog as admin's [`SqlPort`].

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use millstream_admin::{
    ApiError,
    model::object::{BadRecordInfo, ErrorsInfo},
    ports::{CatalogObject, ObjectKind, SqlPort, StatementOutput},
};
use millstream_sql::{
    SqlError, SqlService, StatementResult,
    catalog::{Catalog, Derived, Object, Table},
};
use millstream_types::{Classified, ErrorKind};

use super::BadRecords;

#[derive(Debug)]
pub(crate) struct Sql {
    pub(crate) service: SqlService,
    pub(crate) bad_records: Arc<BadRecords>,
}

/// Line, column and hint go to `details`. Only the wrong text itself is 422: a limit or a missing broker is not the text's fault.
pub(crate) fn sql_error(e: SqlError) -> ApiError {
    let mut error = ApiError::new(e.kind(), e.code, e.to_string());
    error.in_sql = e.kind() == ErrorKind::Invalid;
    for (name, place) in [("line", e.line), ("column", e.column)] {
        if let Some(place) = place {
            error = error.detail(name, place);
        }
    }
    if let Some(hint) = &e.hint {
        error = error.detail("hint", hint.as_str());
    }
    if let Some(source) = &e.source {
        error = error.detail("cause", millstream_types::error::chain(source.as_ref()));
    }
    error
}

fn output(result: StatementResult) -> StatementOutput {
    match result {
        StatementResult::Rows { schema, batches, epoch, notices } => {
            StatementOutput::Rows { schema, batches, epoch, notices }
        }
        StatementResult::Command { tag, notices } => StatementOutput::Command { tag, notices },
    }
}

#[async_trait]
impl SqlPort for Sql {
    async fn execute(&self, text: &str) -> Result<Vec<StatementOutput>, ApiError> {
        let results = self.service.execute(text).await.map_err(sql_error)?;
        Ok(results.into_iter().map(output).collect())
    }

    async fn validate(&self, text: &str) -> Result<Vec<String>, ApiError> {
        self.service.validate(text).await.map_err(sql_error)?;
        Ok(Vec::new())
    }

    fn objects(&self) -> Vec<CatalogObject> {
        let Some(catalog) = self.service.catalog() else { return Vec::new() };
        let broken = self.service.broken();
        let mut objects: Vec<CatalogObject> = catalog.objects.iter().map(|o| object(&catalog, o, &broken)).collect();
        objects.sort_by(|a, b| (a.kind.as_str(), &a.name).cmp(&(b.kind.as_str(), &b.name)));
        objects
    }

    fn bad_records(&self, table: &CatalogObject) -> ErrorsInfo {
        let Some(topic) = &table.topic else { return ErrorsInfo::default() };
        let report = self.bad_records.of_topic(topic);
        let record = |e: millstream_format::BadEntry| BadRecordInfo {
            topic: e.topic.to_string(),
            partition: e.partition,
            offset: e.record.offset,
            timestamp_ms: e.record.timestamp_ms,
            stage: e.record.stage.to_owned(),
            reason: e.record.reason.as_str().to_owned(),
            column: e.record.column,
            message: e.record.message,
        };
        ErrorsInfo {
            total: report.total,
            by_reason: report.by_reason.into_iter().map(|(reason, n)| (reason.to_owned(), n)).collect(),
            records: report.last.into_iter().map(record).collect(),
        }
    }
}

fn object(catalog: &Catalog, object: &Object, broken: &BTreeMap<String, String>) -> CatalogObject {
    let quarantined = broken.get(object.name()).cloned();
    match object {
        Object::Table(t) => CatalogObject { quarantined, ..table(t) },
        Object::View(d) => CatalogObject { quarantined, ..derived(catalog, ObjectKind::View, d, object) },
        Object::Sink(d) => CatalogObject { quarantined, ..derived(catalog, ObjectKind::Sink, d, object) },
    }
}

fn table(t: &Table) -> CatalogObject {
    CatalogObject {
        kind: ObjectKind::Table,
        name: t.name.clone(),
        table: Some(t.id),
        job: None,
        schema: Some(Arc::new(t.schema.clone())),
        sql: t.sql.clone(),
        options: t.options.clone(),
        topic: t.topic().map(|s| s.topic.clone()),
        regions: t.regions(),
        inputs: Vec::new(),
        quarantined: None,
    }
}

fn derived(catalog: &Catalog, kind: ObjectKind, d: &Derived, object: &Object) -> CatalogObject {
    let (table, regions) = object.readable().map_or((None, Vec::new()), |(id, regions)| (Some(id), regions));
    CatalogObject {
        kind,
        name: d.name.clone(),
        table,
        job: Some(d.job),
        schema: Some(Arc::new(d.schema.clone())),
        sql: d.sql.clone(),
        options: d.options.clone(),
        topic: d.topic.as_ref().map(|t| t.topic.clone()),
        regions,
        inputs: catalog.by_table(d.input).map(|o| o.name().to_owned()).into_iter().collect(),
        quarantined: None,
    }
}
