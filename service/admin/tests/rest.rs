//! Objects, regions, jobs, limits and errors.

use std::time::Duration;

use millstream_admin::AdminConfig;
use serde_json::json;

use crate::fakes::start;

#[tokio::test]
async fn objects_are_listed_with_their_jobs_and_without_hidden_columns() {
    let s = start(AdminConfig::default()).await;
    let (status, table) = s.get("/v1/tables/orders").await;
    assert_eq!((status, table["storage"].as_str()), (200, Some("keyed")));
    assert_eq!(
        table["columns"],
        json!([
        {"name": "id", "type": "BIGINT", "nullable": false, "primary_key": 1}, {"name": "name", "type": "VARCHAR", "nullable": true}])
    );
    assert_eq!(table["regions"], json!(["1-0", "1-1"]));
    let (_, views) = s.get("/v1/views").await;
    assert_eq!((views[0]["name"].as_str(), views[0]["job"]["state"].as_str()), (Some("totals"), Some("running")));
    let (status, body) = s.get("/v1/views/orders").await;
    assert_eq!((status, body["error_code"].as_str()), (404, Some("VIEW_NOT_FOUND")));
    assert_eq!(s.get("/v1/sinks/out").await.0, 200);
    assert_eq!(s.get("/v1/tables/..%2F..%2Fetc").await.0, 404);
}

#[tokio::test]
async fn regions_files_wal_and_errors_of_a_table() {
    let s = start(AdminConfig::default()).await;
    let (_, regions) = s.get("/v1/tables/orders/regions").await;
    assert_eq!((regions.as_array().unwrap().len(), regions[0]["file_rows"].as_u64()), (2, Some(4)));
    assert_eq!(regions[0]["pins"], json!([{"job": 9, "input": 0, "exact": [50], "floor": 55}]));
    let (_, files) = s.get("/v1/tables/orders/files").await;
    assert_eq!((files.as_array().unwrap().len(), files[1]["region"].as_str()), (2, Some("1-1")));
    let (_, wal) = s.get("/v1/tables/orders/wal").await;
    assert_eq!((wal[0]["lag"].as_i64(), wal[0]["retention_headroom"].as_i64()), (Some(20), Some(55)));
    assert_eq!(s.get("/v1/tables/orders/errors").await.1["total"], 3);
    assert_eq!(s.send("POST", "/v1/tables/orders/flush", None).await.0, 200);
    assert!(*s.storage.regions[1].flushed.lock().unwrap());
    let (status, body) = s.send("POST", "/v1/tables/orders/compact", None).await;
    assert_eq!((status, body["error_code"].as_str()), (503, Some("STORAGE_UNAVAILABLE")));
}

#[tokio::test]
async fn verbs_reach_the_job_of_the_object() {
    let s = start(AdminConfig::default()).await;
    assert_eq!(s.send("PUT", "/v1/views/totals/pause", None).await.0, 202);
    assert_eq!(s.send("PUT", "/v1/sinks/out/resume", None).await.0, 202);
    assert_eq!(s.send("PATCH", "/v1/backfills/9", Some(json!({"rate_limit": null, "paused": false}))).await.0, 200);
    assert_eq!(*s.jobs.calls.lock().unwrap(), ["pause 9", "resume 9", "limit 9 None", "resume 9"]);
    assert_eq!(s.send("PATCH", "/v1/backfills/8", Some(json!({}))).await.0, 404);
    assert_eq!(s.send("PATCH", "/v1/backfills/9", Some(json!({"speed": 1}))).await.0, 400);
    assert_eq!(s.send("POST", "/v1/checkpoints", None).await, (202, json!({"epoch": 78})));
    assert_eq!(s.get("/v1/barriers/latest").await, (200, json!({"epoch": 77})));
    assert_eq!(s.get("/v1/jobs").await.1[0]["committed_epoch"], 77);
}

#[tokio::test]
async fn unknown_paths_and_methods_have_the_error_body() {
    let s = start(AdminConfig::default()).await;
    assert_eq!(s.get("/v2").await.1["error_code"], "PATH_NOT_FOUND");
    let (status, body) = s.send("DELETE", "/v1/tables", None).await;
    assert_eq!((status, body["error_code"].as_str()), (405, Some("METHOD_NOT_ALLOWED")));
}

#[tokio::test]
async fn limits_of_size_number_and_time_hold() {
    let config = AdminConfig {
        max_body_bytes: 1000,
        max_requests: 1,
        request_timeout: Duration::from_millis(300),
        ..AdminConfig::default()
    };
    let s = start(config).await;
    let (status, body) = s.send("POST", "/v1/sql", Some(json!({"query": "x".repeat(2000)}))).await;
    assert_eq!((status, body["error_code"].as_str()), (413, Some("BODY_TOO_LARGE")));
    let gate = s.sql.gate.lock().await;
    let slow = s.send("POST", "/v1/sql", Some(json!({"query": "SELECT 1"})));
    let refused = async {
        // The first request holds the only permit from some moment on.
        loop {
            let (status, body) = s.get("/v1/tables").await;
            if status == 429 {
                return body;
            }
        }
    };
    let ((status, body), refused) = tokio::join!(slow, refused);
    assert_eq!(
        (status, body["error_code"].as_str(), body["retryable"].as_bool()),
        (504, Some("REQUEST_TIMEOUT"), Some(false))
    );
    assert_eq!(refused["error_code"], "TOO_MANY_REQUESTS");
    drop(gate);
}

#[tokio::test]
async fn a_query_ends_with_its_client_and_any_other_statement_does_not() {
    let s = start(AdminConfig::default()).await;
    let gate = s.sql.gate.lock().await;
    for query in ["INSERT INTO t SELECT 1", "SELECT 1; DROP TABLE t", "select 1;"] {
        let request = s.http.post(format!("{}/v1/sql", s.rest)).json(&json!({ "query": query })).send();
        assert!(tokio::time::timeout(Duration::from_millis(200), request).await.is_err());
    }
    // The connections are closed: the service sees that before it answers the next request of another one.
    tokio::time::timeout(Duration::from_secs(10), async {
        while s.sql.waiting.load(std::sync::atomic::Ordering::SeqCst) > 2 {
            s.get("/v1/info").await;
        }
    })
    .await
    .unwrap();
    drop(gate);
    tokio::time::timeout(Duration::from_secs(10), async {
        while s.sql.seen.lock().unwrap().len() < 2 {
            s.get("/v1/info").await;
        }
    })
    .await
    .unwrap();
    let mut seen = s.sql.seen.lock().unwrap().clone();
    seen.sort();
    assert_eq!(seen, ["INSERT INTO t SELECT 1", "SELECT 1; DROP TABLE t"]);
}

#[tokio::test]
async fn the_openapi_document_has_every_path() {
    let s = start(AdminConfig::default()).await;
    let (status, document) = s.get("/v1/openapi.json").await;
    assert_eq!(status, 200);
    for path in ["/v1/sql", "/v1/views/{view}/rows", "/v1/tables/{table}/regions", "/v1/backfills/{job}", "/readyz"] {
        assert!(document["paths"][path].is_object(), "{path} is missing");
    }
    assert!(document["components"]["schemas"]["JobInfo"].is_object());
    let rows = &document["components"]["schemas"]["StatementInfo"]["properties"]["rows"];
    assert_eq!(rows["items"]["items"].get("type"), None, "a cell is of any type: {rows}");
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let body = &operation["responses"]["default"]["content"]["application/json"]["schema"]["$ref"];
            assert_eq!(body, "#/components/schemas/ErrorBody", "{method} {path}");
        }
    }
}

#[tokio::test]
async fn every_refusal_has_the_one_body() {
    let s = start(AdminConfig { max_body_bytes: 1000, ..AdminConfig::default() }).await;
    for path in ["/v1/jobs/nope", "/v1/tables/%ff", "/v1/jobs/-1"] {
        let (status, body) = s.get(path).await;
        assert_eq!((status, body["error_code"].as_str()), (400, Some("PATH_INVALID")), "{path}: {body}");
    }
    let (status, body) = s.send("POST", "/v1/sql", Some(json!({"query": "x".repeat(2000)}))).await;
    assert_eq!((status, body["error_code"].as_str()), (413, Some("BODY_TOO_LARGE")), "{body}");
    let (status, body) = s.send("DELETE", "/v1/sql", None).await;
    assert_eq!((status, body["error_code"].as_str()), (405, Some("METHOD_NOT_ALLOWED")), "{body}");
}

#[tokio::test]
async fn a_body_that_does_not_come_gives_its_place_back() {
    use std::io::{Read, Write};
    let config = AdminConfig { max_requests: 1, body_timeout: Duration::from_millis(50), ..AdminConfig::default() };
    let s = start(config).await;
    let mut half = std::net::TcpStream::connect(s.rest.trim_start_matches("http://")).unwrap();
    half.write_all(
        b"POST /v1/sql HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{",
    )
    .unwrap();
    let answer = tokio::task::spawn_blocking(move || {
        let mut answer = [0; 1000];
        let n = half.read(&mut answer).unwrap();
        String::from_utf8_lossy(&answer[..n]).into_owned()
    });
    let answer = answer.await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("BODY_TIMEOUT"), "{answer}");
    assert_eq!(s.get("/v1/info").await.0, 200);
}
