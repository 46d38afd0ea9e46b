//! Time per record of the JSON decoder on a 144-byte order, beside plain `serde_json::Value` in the same run.
//!
//! `cargo run --release -p millstream-format --example decode_rate`. Times are CPU time of the one thread.

#![expect(clippy::print_stdout, reason = "a measuring tool")]

use std::{error::Error, hint::black_box, sync::Arc};

use millstream_format::{JsonEncoder, JsonOptions, TableFormat};
use millstream_types::{
    BinaryArena, Column, DecoderFactory, Encoder, Offset, RawBatch, SqlType, TableSchema, TopicPartition,
};

const RECORDS: usize = 4_096;
const ROUNDS: usize = 50;

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let columns = [
        ("order_id", SqlType::BigInt),
        ("customer_id", SqlType::BigInt),
        ("amount", SqlType::Decimal(12, 2)),
        ("status", SqlType::Varchar),
        ("placed_at", SqlType::TimestampTz),
        ("note", SqlType::Varchar),
    ];
    let columns: Vec<Column> = (1..).zip(columns).map(|(id, (name, t))| Column::new(id, name, t)).collect();
    let schema = TableSchema { id: 1, columns, primary_key: vec![0] };
    let batch = orders();
    let bytes: usize = batch.values.iter().flatten().map(<[u8]>::len).sum();
    println!("{} records of {} bytes on average", batch.len(), bytes / batch.len());

    let mut decoder = TableFormat::json(Arc::new(schema.clone()))?.decoder();
    let decoded = decoder.decode(&batch);
    if decoded.rows.num_rows() != RECORDS {
        return Err(format!("{} bad records", decoded.bad.len()).into());
    }
    let millstream = time(|| black_box(decoder.decode(black_box(&batch))).rows.num_rows());
    let plain = time(|| {
        let parse = |v: &[u8]| black_box(serde_json::from_slice::<serde_json::Value>(v)).is_ok();
        batch.values.iter().flatten().filter(|v| parse(v)).count()
    });
    let encoder = JsonEncoder::new(&schema.columns, JsonOptions::default());
    let mut arena = BinaryArena::default();
    let encode = time(|| {
        arena.clear();
        let done = encoder.encode(black_box(&decoded.rows), &mut arena).is_ok();
        arena.len() * usize::from(done)
    });
    println!("decode to Arrow:        {millstream:.3} CPU us/record");
    println!("serde_json::Value only: {plain:.3} CPU us/record ({:.1} x)", plain / millstream);
    println!("encode from Arrow:      {encode:.3} CPU us/record");
    Ok(())
}

/// CPU microseconds per record: the best of twenty runs.
fn time(mut work: impl FnMut() -> usize) -> f64 {
    let run = |work: &mut dyn FnMut() -> usize| {
        let start = cpu_seconds();
        let done: usize = (0..ROUNDS).map(|_| work()).sum();
        (cpu_seconds() - start) * 1e6 / done as f64
    };
    (0..20).map(|_| run(&mut work)).fold(f64::INFINITY, f64::min)
}

/// Time that this thread has had a core, so that a busy machine does not count (Linux; field 1 of schedstat is nanoseconds).
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = stat.split_whitespace().next().and_then(|n| n.parse::<f64>().ok());
    nanos.expect("Linux tells the CPU time of a thread") / 1e9
}

fn orders() -> RawBatch {
    let mut batch = RawBatch::new(TopicPartition::new("orders", 0), Offset(RECORDS as i64));
    for i in 0..RECORDS {
        batch.offsets.push(i as i64);
        batch.timestamps.push(1_790_000_000_000);
        batch.keys.push(Some(i.to_string().as_bytes()));
        let status = ["new", "paid", "sent", "done"][i % 4];
        let value = format!(
            r#"{{"order_id":{},"customer_id":{},"amount":"{}.{:02}","status":"{status}","placed_at":"2026-11-30T17:{:02}:{:02}Z","note":"leave at the door {:03}"}}"#,
            1_000_000 + i,
            i * 7 % 100_000,
            i % 1_000,
            i % 100,
            i / 60 % 60,
            i % 60,
            i % 1_000
        );
        batch.values.push(Some(value.as_bytes()));
    }
    batch
}
