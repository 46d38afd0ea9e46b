//! The promises that the service relies on (`millstream_types::log`), through its own connector, on this broker.

use millstream_kafka::{KafkaCluster, KafkaOptions};
use millstream_types::testing::log_suite;

use crate::support::Running;

#[tokio::test(flavor = "multi_thread")]
async fn the_service_finds_the_log_that_its_traits_promise() {
    let b = Running::start();
    let cluster = KafkaCluster::connect(KafkaOptions::new(&b.bootstrap)).unwrap();
    log_suite::run(cluster.as_ref(), "suite").await;
}
