//! The probe port answers whatever the rest of the node does.

use millstream_admin::{AdminConfig, Phase};

use crate::fakes::start;

#[tokio::test]
async fn probes_tell_life_readiness_and_metrics() {
    let s = start(AdminConfig::default()).await;
    let get = async |path: &str| {
        let answer = s.http.get(format!("{}{path}", s.probes)).send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    };
    assert_eq!(get("/livez").await, (200, "ok\n".to_owned()));
    let (status, body) = get("/readyz").await;
    assert_eq!((status, body.contains("\"ready\":true")), (200, true), "{body}");
    s.health.restoring(43);
    let (status, body) = get("/readyz").await;
    assert_eq!((status, body.contains("restoring 43 %")), (503, true), "{body}");
    s.health.report("kafka", Some("refused".to_owned()), 1);
    let (_, metrics) = get("/metrics").await;
    for line in
        ["millstream_build_info{commit=\"abc\",version=\"1.2.3\"} 1", "millstream_dependency_up{kind=\"kafka\"} 0"]
    {
        assert!(metrics.contains(line), "{metrics}");
    }
    let resident = metrics.lines().find_map(|l| l.strip_prefix("process_resident_memory_bytes ")).unwrap();
    assert!(resident.parse::<u64>().unwrap() > 1 << 20, "{resident}");
    assert_eq!(get("/nothing").await.0, 404);
}

#[tokio::test]
async fn rest_is_closed_until_the_node_is_ready() {
    let s = start(AdminConfig::default()).await;
    s.health.set_phase(Phase::Restoring);
    let (status, body) = s.get("/v1/tables").await;
    assert_eq!(
        (status, body["error_code"].as_str(), body["retryable"].as_bool()),
        (503, Some("NOT_READY"), Some(true))
    );
    let (status, body) = s.get("/v1/info").await;
    assert_eq!((status, body["phase"].as_str()), (200, Some("restoring")));
}
