//! `/v1/sql`: parameters, formats, lossless values, errors of the text.

use std::sync::Arc;

use arrow::{
    array::{
        ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, Float64Array, Int64Array, ListArray,
        RecordBatch, StringViewArray, TimestampMicrosecondArray, UInt64Array,
    },
    datatypes::Int32Type,
    ipc::reader::StreamReader,
};
use millstream_admin::{AdminConfig, ports::StatementOutput};
use millstream_types::{Epoch, ErrorKind};
use serde_json::json;

use crate::fakes::{Service, start};

fn command() -> StatementOutput {
    StatementOutput::Command { tag: "CREATE TABLE".to_owned(), notices: vec!["retention: \"7 d\"".to_owned()] }
}

fn rows(columns: Vec<(&str, ArrayRef)>) -> StatementOutput {
    let batch = RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(n, a)| (n, a, true))).unwrap();
    StatementOutput::Rows {
        schema: batch.schema(),
        batches: vec![batch.slice(0, 1), batch.slice(1, 1)],
        epoch: Some(Epoch(5)),
        notices: vec![],
    }
}

fn every_type() -> StatementOutput {
    let list = ListArray::from_iter_primitive::<Int32Type, _, _>(vec![Some(vec![Some(1), None]), None]);
    rows(vec![
        ("i", Arc::new(Int64Array::from(vec![Some(i64::MAX), None]))),
        ("u", Arc::new(UInt64Array::from(vec![Some(u64::MAX), None]))),
        ("d", Arc::new(Decimal128Array::from(vec![Some(1_234_500), None]).with_precision_and_scale(38, 3).unwrap())),
        ("f", Arc::new(Float64Array::from(vec![f64::NAN, 0.1]))),
        ("s", Arc::new(StringViewArray::from(vec![Some("a,\"b\"\n\u{1}"), Some("")]))),
        ("b", Arc::new(BinaryArray::from(vec![Some(&b"\xff\x00"[..]), None]))),
        ("t", Arc::new(TimestampMicrosecondArray::from(vec![Some(1_500_000), None]).with_timezone("UTC"))),
        ("day", Arc::new(Date32Array::from(vec![Some(1), None]))),
        ("yes", Arc::new(BooleanArray::from(vec![Some(true), None]))),
        ("l", Arc::new(list)),
    ])
}

async fn fetch(s: &Service, accept: &str) -> (u16, Vec<u8>) {
    let request = s.http.post(format!("{}/v1/sql", s.rest)).header("accept", accept).json(&json!({"query": "q"}));
    let answer = request.send().await.unwrap();
    let status = answer.status().as_u16();
    (status, answer.bytes().await.unwrap().to_vec())
}

#[tokio::test]
async fn json_loses_nothing() {
    let s = start(AdminConfig::default()).await;
    *s.sql.answer.lock().unwrap() = Ok(vec![command(), every_type()]);
    let (status, body) = s.send("POST", "/v1/sql", Some(json!({"query": "SELECT $1, '$1'", "params": ["o'k"]}))).await;
    assert_eq!(status, 200);
    assert_eq!(*s.sql.seen.lock().unwrap(), ["SELECT 'o''k', '$1'"]);
    assert_eq!(body["results"][0], json!({"command": "CREATE TABLE", "notices": ["retention: \"7 d\""]}));
    let result = &body["results"][1];
    assert_eq!(result["epoch"], 5);
    assert_eq!(result["columns"][1], json!({"name": "u", "type": "DECIMAL(20,0)"}));
    assert_eq!(
        result["rows"][0],
        json!([
            i64::MAX,
            "18446744073709551615",
            "1234.500",
            "NaN",
            "a,\"b\"\n\u{1}",
            "/wA=",
            "1970-01-01T00:00:01.500Z",
            "1970-01-02",
            true,
            [1, null]
        ])
    );
    assert_eq!(result["rows"][1], json!([null, null, null, 0.1, "", null, null, null, null, null]));
    let (_, body) = s.send("POST", "/v1/sql?int64=string", Some(json!({"query": "q"}))).await;
    assert_eq!(body["results"][1]["rows"][0][0], i64::MAX.to_string());
}

#[tokio::test]
async fn other_formats_hold_one_result() {
    let s = start(AdminConfig::default()).await;
    *s.sql.answer.lock().unwrap() = Ok(vec![command(), every_type()]);
    let (_, csv) = fetch(&s, "text/csv").await;
    let csv = String::from_utf8(csv).unwrap();
    assert!(csv.starts_with("i,u,d,f,s,b,t,day,yes,l\r\n9223372036854775807,18446744073709551615,1234.500,NaN,\"a,\"\"b\"\"\n\u{1}\",/wA=,"), "{csv}");
    assert!(csv.ends_with(",,,0.1,\"\",,,,,\r\n"), "{csv}");
    let (_, lines) = fetch(&s, "application/x-ndjson").await;
    let lines = String::from_utf8(lines).unwrap();
    assert_eq!(lines.lines().count(), 3, "{lines}");
    assert!(lines.lines().nth(1).unwrap().starts_with("{\"i\":9223372036854775807,"), "{lines}");
    let (_, ipc) = fetch(&s, "application/vnd.apache.arrow.stream").await;
    let batches: Vec<RecordBatch> = StreamReader::try_new(ipc.as_slice(), None).unwrap().map(Result::unwrap).collect();
    assert_eq!((batches.len(), batches[0].num_columns()), (2, 10));
    *s.sql.answer.lock().unwrap() = Ok(vec![every_type(), every_type()]);
    assert_eq!(fetch(&s, "text/csv").await.0, 400);
    assert_eq!(fetch(&s, "image/png").await.0, 400);
    *s.sql.answer.lock().unwrap() = Ok(vec![command()]);
    assert_eq!(fetch(&s, "text/csv").await, (200, b"command\r\nCREATE TABLE\r\n".to_vec()));
}

#[tokio::test]
async fn an_error_in_the_text_is_422_with_its_place() {
    let s = start(AdminConfig::default()).await;
    *s.sql.answer.lock().unwrap() = Err((ErrorKind::Invalid, "SYNTAX_ERROR"));
    let (status, body) = s.send("POST", "/v1/sql", Some(json!({"query": "SELEC"}))).await;
    assert_eq!(
        (status, body["error_code"].as_str(), body["details"]["line"].as_u64()),
        (422, Some("SYNTAX_ERROR"), Some(1))
    );
    let (status, _) = s.send("POST", "/v1/sql/validate", Some(json!({"query": "SELEC"}))).await;
    assert_eq!(status, 422);
    *s.sql.answer.lock().unwrap() = Err((ErrorKind::Unknown, "OUTCOME_UNKNOWN"));
    assert_eq!(s.send("POST", "/v1/sql", Some(json!({"query": "x"}))).await.0, 504);
    let (status, body) = s.send("POST", "/v1/sql", Some(json!({"text": "x"}))).await;
    assert_eq!((status, body["error_code"].as_str()), (400, Some("BODY_INVALID")));
    *s.sql.answer.lock().unwrap() = Ok(vec![]);
    assert_eq!(
        s.send("POST", "/v1/sql/validate", Some(json!({"query": "x"}))).await.1,
        json!({"valid": true, "notices": ["retention stays"]})
    );
}
