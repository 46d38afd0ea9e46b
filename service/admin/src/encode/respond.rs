//! `Accept` -> response. JSON holds any number of results; the other three hold one, and a command is a result with one column `command`.

use std::sync::Arc;

use arrow::{
    array::{RecordBatch, StringArray},
    datatypes::{DataType, Field, Schema, SchemaRef},
    error::ArrowError,
    ipc::writer::StreamWriter,
};
use axum::{
    body::Body,
    http::{
        HeaderMap, HeaderValue,
        header::{ACCEPT, CONTENT_TYPE},
    },
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use futures::stream;

use super::{
    csv,
    json::{self, Int64Form},
};
use crate::{error::ApiError, ports::StatementOutput};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Json,
    NdJson,
    Csv,
    Arrow,
}

impl Format {
    /// The first media type of `Accept` that we have; JSON if none is named.
    pub fn accepted(headers: &HeaderMap) -> Result<Format, ApiError> {
        let Some(accept) = headers.get(ACCEPT) else { return Ok(Format::Json) };
        let accept = accept.to_str().map_err(|_| ApiError::invalid("ACCEPT_INVALID", "header Accept is not text"))?;
        for media in accept.split(',') {
            match media.split(';').next().unwrap_or_default().trim() {
                "application/json" | "application/*" | "*/*" | "" => return Ok(Format::Json),
                "application/x-ndjson" | "application/ndjson" => return Ok(Format::NdJson),
                "text/csv" => return Ok(Format::Csv),
                "application/vnd.apache.arrow.stream" => return Ok(Format::Arrow),
                _ => {}
            }
        }
        Err(ApiError::invalid(
            "ACCEPT_UNSUPPORTED",
            format!(
                "cannot answer {accept:?}; use application/json, application/x-ndjson, text/csv or application/vnd.apache.arrow.stream"
            ),
        ))
    }

    fn content_type(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Format::Json => "application/json",
            Format::NdJson => "application/x-ndjson",
            Format::Csv => "text/csv; charset=utf-8; header=present",
            Format::Arrow => "application/vnd.apache.arrow.stream",
        })
    }
}

/// Encodes batch by batch while the client reads, except JSON, which is one document.
pub fn respond(results: Vec<StatementOutput>, format: Format, int64: Int64Form) -> Result<Response, ApiError> {
    let body = match format {
        Format::Json => Body::from(json::response(&results, int64)?),
        Format::NdJson => {
            let batches: Vec<RecordBatch> =
                results.into_iter().map(|r| Ok(one(r)?.1)).collect::<Result<Vec<_>, ArrowError>>()?.concat();
            streamed(batches.into_iter().map(move |b| Ok(Bytes::from(json::lines(&b, int64)?))))
        }
        Format::Csv => {
            let (schema, batches) = single(results)?;
            let head = std::iter::once(Ok(Bytes::from(csv::header(&schema))));
            streamed(head.chain(batches.into_iter().map(|b| Ok(Bytes::from(csv::lines(&b)?)))))
        }
        Format::Arrow => {
            let (schema, batches) = single(results)?;
            Body::from(ipc(&schema, &batches)?)
        }
    };
    Ok(([(CONTENT_TYPE, format.content_type())], body).into_response())
}

fn streamed(parts: impl Iterator<Item = Result<Bytes, ArrowError>> + Send + 'static) -> Body {
    Body::from_stream(stream::iter(parts))
}

fn ipc(schema: &SchemaRef, batches: &[RecordBatch]) -> Result<Vec<u8>, ArrowError> {
    let mut writer = StreamWriter::try_new(Vec::new(), schema)?;
    for batch in batches {
        writer.write(batch)?;
    }
    writer.into_inner()
}

fn one(result: StatementOutput) -> Result<(SchemaRef, Vec<RecordBatch>), ArrowError> {
    match result {
        StatementOutput::Rows { schema, batches, .. } => Ok((schema, batches)),
        StatementOutput::Command { tag, .. } => {
            let schema = Arc::new(Schema::new(vec![Field::new("command", DataType::Utf8, false)]));
            let batch = RecordBatch::try_new(Arc::clone(&schema), vec![Arc::new(StringArray::from(vec![tag]))])?;
            Ok((schema, vec![batch]))
        }
    }
}

/// The one result with rows; commands beside it are left out. Without rows the last command.
fn single(results: Vec<StatementOutput>) -> Result<(SchemaRef, Vec<RecordBatch>), ApiError> {
    let with_rows = results.iter().filter(|r| matches!(r, StatementOutput::Rows { .. })).count();
    if with_rows > 1 {
        return Err(ApiError::invalid(
            "ONE_RESULT_ONLY",
            format!(
                "this format holds one result, the statements gave {with_rows}; send them one by one or accept application/json"
            ),
        ));
    }
    let wanted = |r: &StatementOutput| with_rows == 0 || matches!(r, StatementOutput::Rows { .. });
    match results.into_iter().rfind(wanted) {
        Some(result) => Ok(one(result)?),
        None => Ok((Arc::new(Schema::empty()), Vec::new())),
    }
}
