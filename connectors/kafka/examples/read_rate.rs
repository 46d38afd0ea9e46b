//! Records per second of a reader, beside the bare batch call of librdkafka on the same topic.
//!
//! `cargo run --release -p millstream-kafka --example read_rate -- host:port [records] [partitions]`. The topic is made, filled and deleted.
#![expect(clippy::print_stdout, reason = "a report for a person")]
#![expect(unsafe_code, reason = "the bare calls are what is compared with")]

use std::{
    sync::{Arc, atomic::AtomicI64, atomic::Ordering},
    time::{Duration, Instant},
};

use millstream_kafka::{KafkaCluster, KafkaOptions};
use millstream_types::{LogEvent, LogSystem, Offset, OutBatch, TopicPartition, TopicSpec};
use rdkafka::{
    ClientConfig, bindings as rd,
    consumer::{BaseConsumer, Consumer},
};

type Anything = Box<dyn std::error::Error + Send + Sync>;

/// As the orders of the benchmark: 144 bytes of JSON-like text.
fn value(i: u64) -> String {
    let text = format!(
        r#"{{"order_id":{i},"customer_id":{},"amount":{}.{:02},"currency":"EUR","status":"paid","created_at":"2026-01-01T00:00:00Z""#,
        i * 7919 % 200_000,
        i % 1000,
        i % 100
    );
    format!("{text:<142}\"}}")
}

async fn fill(cluster: &KafkaCluster, topic: &Arc<str>, records: u64, partitions: i32) -> Result<(), Anything> {
    let config = [("retention.ms".to_owned(), "-1".to_owned())].into();
    cluster.admin().create(&TopicSpec { name: topic.to_string(), partitions, replicas: -1, config }).await?;
    let producer = cluster.producer();
    for from in (0..records).step_by(50_000) {
        let mut batch = OutBatch::new(Arc::clone(topic), 1_700_000_000_000);
        for i in from..records.min(from + 50_000) {
            batch.push((i % partitions as u64) as i32, Some(i.to_string().as_bytes()), Some(value(i).as_bytes()));
        }
        producer.produce(&batch).await?;
    }
    Ok(())
}

/// All partitions into one queue, messages counted and freed.
fn bare(bootstrap: &str, topic: &str, records: u64, partitions: i32) -> Result<f64, Anything> {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        .set("isolation.level", "read_committed")
        .set("check.crcs", "true")
        .set("fetch.queue.backoff.ms", "10")
        .create()?;
    let rk = consumer.client().native_ptr();
    let name = std::ffi::CString::new(topic)?;
    let mut messages = vec![std::ptr::null_mut(); 4096];
    let begun = Instant::now();
    let mut seen = 0;
    // SAFETY: handles are made, used and freed here, before the client.
    unsafe {
        let rkt = rd::rd_kafka_topic_new(rk, name.as_ptr(), std::ptr::null_mut());
        let queue = rd::rd_kafka_queue_new(rk);
        for p in 0..partitions {
            rd::rd_kafka_consume_start_queue(rkt, p, 0, queue);
        }
        while seen < records {
            let n = rd::rd_kafka_consume_batch_queue(queue, 10, messages.as_mut_ptr(), messages.len());
            for m in messages.iter().take(usize::try_from(n)?) {
                seen += u64::from((**m).err == rd::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR);
                rd::rd_kafka_message_destroy(*m);
            }
        }
        for p in 0..partitions {
            rd::rd_kafka_consume_stop(rkt, p);
        }
        rd::rd_kafka_queue_destroy(queue);
        rd::rd_kafka_topic_destroy(rkt);
    }
    Ok(records as f64 / begun.elapsed().as_secs_f64())
}

async fn readers(
    cluster: &Arc<KafkaCluster>,
    topic: &Arc<str>,
    records: u64,
    partitions: i32,
) -> Result<f64, Anything> {
    let begun = Instant::now();
    let left = Arc::new(AtomicI64::new(records as i64));
    let mut tasks = Vec::new();
    for p in 0..partitions {
        let (log, left) = (cluster.log(&TopicPartition::new(Arc::clone(topic), p)), Arc::clone(&left));
        tasks.push(tokio::spawn(async move {
            let mut reader = log.read(Offset(0)).await?;
            loop {
                match reader.next().await {
                    LogEvent::Records(batch) => {
                        left.fetch_sub(batch.len() as i64, Ordering::Relaxed);
                    }
                    LogEvent::EndReached { .. } => return Ok::<_, Anything>(begun.elapsed()),
                    LogEvent::Failed(e) => return Err(e.into()),
                    LogEvent::Position { .. } | LogEvent::OutOfRange { .. } => {}
                }
            }
        }));
    }
    // The end is told up to fetch.wait.max.ms late: the time of the last record counts.
    while left.load(Ordering::Relaxed) > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let rate = records as f64 / begun.elapsed().as_secs_f64();
    for task in tasks {
        task.await??;
    }
    Ok(rate)
}

#[tokio::main]
async fn main() -> Result<(), Anything> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let bootstrap = args.first().cloned().ok_or("host:port is missing")?;
    let records = args.get(1).map_or(Ok(2_000_000), |v| v.parse())?;
    let partitions = args.get(2).map_or(Ok(4), |v| v.parse())?;
    let cluster = KafkaCluster::connect(KafkaOptions::new(bootstrap.clone()))?;
    let topic: Arc<str> = format!("read-rate-{}", std::process::id()).into();
    let begun = Instant::now();
    fill(&cluster, &topic, records, partitions).await?;
    println!("produce  {:>10.0} records/s", records as f64 / begun.elapsed().as_secs_f64());
    for _ in 0..3 {
        println!("bare     {:>10.0} records/s", bare(&bootstrap, &topic, records, partitions)?);
        println!("readers  {:>10.0} records/s", readers(&cluster, &topic, records, partitions).await?);
    }
    cluster.admin().delete(&topic).await?;
    Ok(())
}
