//! The limits: what the libraries below do with the same bytes when nothing of Millstream is in the way.
#![expect(unsafe_code, reason = "batch consume exists only in librdkafka's C interface")]

use std::{
    fs::File,
    path::{Path, PathBuf},
    time::Instant,
};

use millstream_e2e::topic;
use parquet::{
    arrow::{ArrowWriter, arrow_reader::ParquetRecordBatchReaderBuilder},
    basic::{Compression, ZstdLevel},
    file::properties::WriterProperties,
};
use rdkafka::{
    ClientConfig, Offset, TopicPartitionList, bindings as c,
    consumer::{BaseConsumer, Consumer},
};

/// Reads a whole topic in batches of 4,096 and drops the records. Time of the last record, not of the end event.
pub(crate) fn consume(bootstrap: &str, topic: &str) -> (u64, f64) {
    let ends = topic::ends(bootstrap, topic);
    let want: i64 = ends.values().sum();
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        .set("group.id", "raw")
        .set("enable.auto.commit", "false")
        .set("isolation.level", "read_committed")
        .set("check.crcs", "true")
        .set("fetch.queue.backoff.ms", "10")
        .set("queued.max.messages.kbytes", "65536")
        .create()
        .expect("a consumer can be made");
    let mut list = TopicPartitionList::new();
    for p in ends.keys() {
        list.add_partition_offset(topic, *p, Offset::Beginning).expect("a valid partition");
    }
    let start = Instant::now();
    consumer.assign(&list).expect("partitions can be assigned");
    let mut seen = 0u64;
    let mut last = 0.0;
    // SAFETY: the queue is owned until destroyed below; each message returned is destroyed once.
    unsafe {
        let queue = c::rd_kafka_queue_get_consumer(consumer.client().native_ptr());
        let mut messages = vec![std::ptr::null_mut(); 4096];
        while (seen as i64) < want {
            let n = c::rd_kafka_consume_batch_queue(queue, 100, messages.as_mut_ptr(), messages.len());
            for m in &messages[..n.max(0) as usize] {
                if (**m).err as i32 == 0 {
                    seen += 1;
                }
                c::rd_kafka_message_destroy(*m);
            }
            if n > 0 {
                last = start.elapsed().as_secs_f64();
            }
        }
        c::rd_kafka_queue_destroy(queue);
    }
    (seen, last)
}

fn parquet_files(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            parquet_files(&path, found);
        } else if path.extension().is_some_and(|e| e == "parquet") {
            found.push(path);
        }
    }
}

pub(crate) fn folder_bytes(dir: &Path) -> u64 {
    let mut sum = 0;
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        sum += if path.is_dir() { folder_bytes(&path) } else { entry.metadata().map_or(0, |m| m.len()) };
    }
    sum
}

#[derive(Debug, Default)]
pub(crate) struct Raw {
    pub(crate) files: usize,
    pub(crate) bytes: u64,
    pub(crate) rows: u64,
    pub(crate) seconds: f64,
    pub(crate) write_seconds: f64,
}

/// Scans all columns of every SST, one thread.
pub(crate) fn scan_parquet(bucket: &Path) -> Raw {
    let mut files = Vec::new();
    parquet_files(bucket, &mut files);
    let mut raw = Raw { files: files.len(), ..Raw::default() };
    let start = Instant::now();
    for f in files {
        let file = File::open(&f).expect("an SST can be opened");
        raw.bytes += file.metadata().map_or(0, |m| m.len());
        let reader = ParquetRecordBatchReaderBuilder::try_new(file)
            .and_then(|b| b.with_batch_size(8192).build())
            .expect("an SST is Parquet");
        for batch in reader {
            raw.rows += batch.expect("an SST is readable").num_rows() as u64;
        }
    }
    raw.seconds = start.elapsed().as_secs_f64();
    raw
}

/// Writes the rows of every SST again with zstd 1; only the writing is timed.
pub(crate) fn rewrite_parquet(bucket: &Path) -> Raw {
    let mut files = Vec::new();
    parquet_files(bucket, &mut files);
    let mut raw = Raw { files: files.len(), ..Raw::default() };
    for f in files {
        let file = File::open(&f).expect("an SST can be opened");
        raw.bytes += file.metadata().map_or(0, |m| m.len());
        let builder = ParquetRecordBatchReaderBuilder::try_new(file).expect("an SST is Parquet");
        let schema = builder.schema().clone();
        let batches: Vec<_> =
            builder.with_batch_size(8192).build().expect("an SST is readable").map(|b| b.expect("readable")).collect();
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(1).expect("level 1 exists")))
            .build();
        let out = tempfile::tempfile().expect("a temporary file can be made");
        let start = Instant::now();
        let mut writer = ArrowWriter::try_new(out, schema, Some(properties)).expect("a writer can be made");
        for b in &batches {
            writer.write(b).expect("a batch can be written");
            raw.rows += b.num_rows() as u64;
        }
        writer.close().expect("a file can be closed");
        raw.write_seconds += start.elapsed().as_secs_f64();
    }
    raw
}
