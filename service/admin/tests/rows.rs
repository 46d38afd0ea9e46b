//! Rows by key, from the start, read-your-writes, and rows in.

use millstream_admin::AdminConfig;
use serde_json::json;

use crate::fakes::start;

#[tokio::test]
async fn rows_come_by_key_or_from_the_start_without_hidden_columns() {
    let s = start(AdminConfig::default()).await;
    let (status, body) = s.get("/v1/tables/orders/rows?key=11").await;
    assert_eq!((status, &body["results"][0]["rows"]), (200, &json!([[11, "n11"]])));
    assert_eq!(s.get("/v1/tables/orders/rows?key=99").await.1["results"][0]["rows"], json!([]));
    let (_, body) = s.get("/v1/tables/orders/rows?limit=4&int64=string").await;
    assert_eq!(body["results"][0]["rows"], json!([["0", "n0"], ["1", "n1"], ["2", "n2"], ["10", "n10"]]));
    let (_, body) = s.get("/v1/views/totals/rows?key=42").await;
    assert_eq!((&body["results"][0]["rows"], body["results"][0]["epoch"].as_u64()), (&json!([[42, "n42"]]), Some(77)));
    assert_eq!(s.get("/v1/tables/orders/rows?key=x").await.1["error_code"], "KEY_INVALID");
    assert_eq!(s.get("/v1/tables/orders/rows?limit=1000000").await.1["error_code"], "LIMIT_TOO_LARGE");
    assert_eq!(s.get("/v1/tables/orders/rows?limit=x").await.0, 400);
}

#[tokio::test]
async fn wait_for_takes_the_offset_of_a_record_and_waits_until_it_is_contained() {
    let s = start(AdminConfig::default()).await;
    assert_eq!(s.get("/v1/views/totals/rows?key=42&wait_for=orders-1:91834&timeout=1500ms").await.0, 200);
    assert_eq!(*s.jobs.calls.lock().unwrap(), ["wait 1-1 91835 1.5s"]);
    assert_eq!(s.get("/v1/tables/orders/rows?key=1&wait_for=orders-0:99").await.0, 200);
    let (status, body) = s.get("/v1/tables/orders/rows?key=1&wait_for=orders-0:100&timeout=50ms").await;
    assert_eq!((status, body["error_code"].as_str()), (503, Some("NOT_YET")));
    for wrong in ["orders-1", "orders-7:1", "other-0:1", "orders-0:-4", "x"] {
        let (status, body) = s.get(&format!("/v1/views/totals/rows?wait_for={wrong}")).await;
        assert_eq!((status, body["error_code"].as_str()), (400, Some("WAIT_FOR_INVALID")), "{wrong}");
    }
    assert_eq!(s.get("/v1/views/totals/rows?wait_for=orders-0:1&timeout=2h").await.1["error_code"], "TIMEOUT_INVALID");
}

#[tokio::test]
async fn rows_in_become_one_insert_with_every_value_quoted() {
    let s = start(AdminConfig::default()).await;
    let rows = json!([{"id": 1, "name": "it's"}, {"id": 2}]);
    let (status, body) = s.send("POST", "/v1/tables/orders/rows", Some(rows)).await;
    assert_eq!((status, body), (200, json!({"rows": 2})));
    assert_eq!(
        *s.sql.seen.lock().unwrap(),
        [
            "INSERT INTO \"orders\" (\"id\", \"name\") SELECT CAST(v.c0 AS BIGINT), CAST(v.c1 AS VARCHAR) FROM (VALUES ('1', 'it''s'), ('2', NULL)) AS v(c0, c1)"
        ]
    );
    let (status, body) = s.send("POST", "/v1/tables/orders/rows", Some(json!([{"id\"; DROP": 1}]))).await;
    assert_eq!((status, body["error_code"].as_str()), (404, Some("COLUMN_NOT_FOUND")));
    assert_eq!(s.send("POST", "/v1/tables/orders/rows", Some(json!([{"acc": 1}]))).await.0, 404);
    assert_eq!(s.send("POST", "/v1/tables/orders/rows", Some(json!({"id": 1}))).await.0, 400);
}
