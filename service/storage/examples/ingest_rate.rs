//! How fast and in how much memory topics become SSTs: `cargo run -p millstream-storage --example ingest_rate -- [million rows] [partitions] [keyed|append]`.
//!
//! Records are made up on the fly, so that the log costs nothing; the decoder only copies numbers. Prints rows per second and the peak of resident memory.

#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a tool for people at a terminal")]

use std::{sync::Arc, time::Instant};

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use async_trait::async_trait;
use millstream_storage::{
    Engine, RegionSpec, Storage, StorageConfig, StorageDeps, WalBinding, api::OnDataLoss, listener::NoListener,
    object_store::Bucket,
};
use millstream_types::{
    BinaryArena, Column, Decoded, Decoder, DecoderFactory, EpochWriter, LogError, LogEvent, LogReader, LogStore,
    LogSystem, Offset, Op, PartitionOffsets, Producer, RawBatch, RegionId, Seq, SqlType, TableId, TableSchema,
    TopicAdmin, TopicPartition,
    runtime::{SystemClock, Tasks},
    testing::MemoryLog,
};

/// Topics with `rows` made-up records per partition; everything else is a log in memory.
#[derive(Debug)]
struct MadeUp {
    rows: i64,
    memory: MemoryLog,
}

#[derive(Debug)]
struct MadeUpPartition {
    rows: i64,
    partition: TopicPartition,
}

impl LogSystem for MadeUp {
    fn log(&self, partition: &TopicPartition) -> Arc<dyn LogStore> {
        Arc::new(MadeUpPartition { rows: self.rows, partition: partition.clone() })
    }
    fn epoch_writer(&self, id: &str) -> Box<dyn EpochWriter> {
        self.memory.epoch_writer(id)
    }
    fn producer(&self) -> Arc<dyn Producer> {
        self.memory.producer()
    }
    fn admin(&self) -> Arc<dyn TopicAdmin> {
        self.memory.admin()
    }
}

#[async_trait]
impl LogStore for MadeUpPartition {
    fn partition(&self) -> &TopicPartition {
        &self.partition
    }
    async fn read(&self, from: Offset) -> Result<Box<dyn LogReader>, LogError> {
        Ok(Box::new(MadeUpReader { rows: self.rows, partition: self.partition.clone(), at: from.0 }))
    }
    async fn offsets(&self) -> Result<PartitionOffsets, LogError> {
        Ok(PartitionOffsets { start: Offset(0), stable: Offset(self.rows), high_watermark: Offset(self.rows) })
    }
    async fn truncate_to(&self, _offset: Offset) -> Result<(), LogError> {
        Ok(())
    }
}

#[derive(Debug)]
struct MadeUpReader {
    rows: i64,
    partition: TopicPartition,
    at: i64,
}

#[async_trait]
impl LogReader for MadeUpReader {
    async fn next(&mut self) -> LogEvent {
        if self.at >= self.rows {
            return std::future::pending().await;
        }
        let end = (self.at + 4096).min(self.rows);
        let mut batch = RawBatch::new(self.partition.clone(), Offset(end));
        batch.keys = BinaryArena::with_capacity(4096, 4096 * 8);
        for offset in self.at..end {
            batch.offsets.push(offset);
            batch.timestamps.push(offset);
            let scattered = (offset as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 8;
            batch.keys.push(Some(&scattered.to_be_bytes()));
            batch.values.push(Some(b"some text that is as long as such texts often are"));
        }
        self.at = end;
        LogEvent::Records(batch)
    }
}

#[derive(Debug, Clone)]
struct Copying(Arc<TableSchema>);

impl DecoderFactory for Copying {
    fn decoder(&self) -> Box<dyn Decoder> {
        Box::new(self.clone())
    }
}

impl Decoder for Copying {
    fn decode(&mut self, batch: &RawBatch) -> Decoded {
        let ids: Int64Array = batch.keys.iter().map(|k| Some(i64::from_be_bytes(k?.try_into().ok()?))).collect();
        let texts: StringArray = batch.values.iter().map(|v| std::str::from_utf8(v?).ok()).collect();
        let numbers = Int64Array::from(batch.offsets.clone());
        let columns: Vec<ArrayRef> = vec![Arc::new(ids), Arc::new(texts), Arc::new(numbers)];
        Decoded {
            rows: RecordBatch::try_new(self.0.arrow(), columns).unwrap(),
            ops: vec![Op::Insert; batch.len()],
            offsets: batch.offsets.clone(),
            bad: Vec::new(),
            ignored: 0,
            next: batch.next,
        }
    }
}

/// `VmHWM` of this process in MiB, 0 where there is no procfs.
fn peak_mib() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find(|l| l.starts_with("VmHWM"));
    line.and_then(|l| l.split_whitespace().nth(1)?.parse::<u64>().ok()).unwrap_or(0) / 1024
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let million: i64 = args.get(1).map_or(10, |a| a.parse().unwrap());
    let partitions: i32 = args.get(2).map_or(1, |a| a.parse().unwrap());
    let keyed = args.get(3).is_none_or(|a| a == "keyed");
    let io = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let compute = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let tasks = Tasks::new(io.handle().clone(), compute.handle().clone());
    io.block_on(run(tasks, million * 1_000_000, partitions, keyed));
}

async fn run(tasks: Tasks, rows: i64, partitions: i32, keyed: bool) {
    let dir = tempfile::tempdir().unwrap();
    let memory = MemoryLog::new();
    memory.create_topic("in", partitions);
    let deps = StorageDeps {
        bucket: Bucket::open(&format!("file://{}", dir.path().display()), &[]).unwrap(),
        logs: Arc::new(MadeUp { rows: rows / i64::from(partitions), memory }),
        tasks,
        clock: Arc::new(SystemClock),
        listener: Arc::new(NoListener),
        registry: prometheus::Registry::new(),
        wal_topic: "wal".into(),
        prefix: "t".into(),
        replica: "example".into(),
    };
    let config = StorageConfig { open_fresh_wait: std::time::Duration::ZERO, ..StorageConfig::default() };
    let engine = Engine::start(config, deps).await.unwrap();
    let columns = vec![
        Column::new(1, "id", SqlType::BigInt).not_null(),
        Column::new(2, "text", SqlType::Varchar),
        Column::new(3, "n", SqlType::BigInt),
    ];
    let schema = Arc::new(TableSchema { id: 1, columns, primary_key: if keyed { vec![0] } else { vec![] } });
    let started = Instant::now();
    let mut regions = Vec::new();
    for p in 0..partitions {
        let spec = RegionSpec {
            id: RegionId::new(TableId(1), p as u32),
            schema: schema.clone(),
            wal: WalBinding::Topic { partition: TopicPartition::new("in", p), topic_id: String::new(), start: Seq(0) },
            table_name: "in".into(),
            decoder: Some(Arc::new(Copying(schema.clone()))),
            bad_records: None,
            on_data_loss: OnDataLoss::Fail,
        };
        engine.create_region(&spec).await.unwrap();
        regions.push(engine.open_region(&spec).await.unwrap());
    }
    for region in &regions {
        region.wait_applied(Seq(rows / i64::from(partitions))).await.unwrap();
    }
    let ingested = started.elapsed().as_secs_f64();
    println!("{rows} rows in {ingested:.1} s = {:.0} rows/s, peak {} MiB", rows as f64 / ingested, peak_mib());
    engine.flush_all().await;
    let files: usize = regions.iter().map(|r| r.status().files.len()).sum();
    println!("flushed after {:.1} s, {files} files, peak {} MiB", started.elapsed().as_secs_f64(), peak_mib());
    engine.kill().await;
}
