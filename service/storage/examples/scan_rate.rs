//! How fast a snapshot scan of a compacted keyed region is, against reading the same Parquet file with the plain reader.
//!
//! `cargo run --release -p millstream-storage --example scan_rate [rows]`. Prints rows per second of both and their ratio; the aim is 0.6.
#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a tool for people, which stops at the first surprise")]

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use futures::StreamExt;
use millstream_storage::{
    KeyMatch, ScanItem, ScanRequest,
    compaction::{KeepRule, pick_all, rewrite},
    layout::Layout,
    manifest::FileEntry,
    memtable::{Memtable, Run},
    object_store::Bucket,
    read::{lookup, scan},
    region::version::Version,
    sst::{CacheLimits, SstOptions, SstReader, write_runs},
};
use millstream_types::{Column, Key, Op, RegionId, Seq, SqlType, TableId, TableSchema};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

const REGION: RegionId = RegionId { table: TableId(1), number: 0 };
const BATCH: usize = 50_000;

fn schema() -> TableSchema {
    TableSchema {
        id: 1,
        columns: vec![
            Column::new(1, "id", SqlType::BigInt).not_null(),
            Column::new(2, "customer", SqlType::BigInt),
            Column::new(3, "amount", SqlType::BigInt),
            Column::new(4, "status", SqlType::Varchar),
            Column::new(5, "note", SqlType::Varchar),
        ],
        primary_key: vec![0],
    }
}

/// Rows with ids spread over all of `0..total`, each once over all batches.
fn batch(layout: &Layout, start: usize, total: usize) -> RecordBatch {
    let ids: Vec<i64> = (start..start + BATCH).map(|i| ((i * 7_654_321) % total) as i64).collect();
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from(ids.clone())),
        Arc::new(ids.iter().map(|i| (i * 31) % 10_007).collect::<Int64Array>()),
        Arc::new(ids.iter().map(|i| (i * 17) % 1_000_003).collect::<Int64Array>()),
        Arc::new(StringArray::from_iter_values(ids.iter().map(|i| ["new", "paid", "sent", "done"][(*i % 4) as usize]))),
        Arc::new(StringArray::from_iter_values(ids.iter().map(|i| format!("note {}", (i * 13) % 100_003)))),
    ];
    RecordBatch::try_new(layout.table.clone(), columns).unwrap()
}

fn report(what: &str, rows: usize, time: Duration) -> f64 {
    let rate = rows as f64 / time.as_secs_f64();
    println!("{what:<46} {rows:>9} rows {:>8.0} ms {:>7.2} M rows/s", time.as_secs_f64() * 1e3, rate / 1e6);
    rate
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let total: usize = std::env::args().nth(1).map_or(5_000_000, |n| n.parse().unwrap());
    let total = total.next_multiple_of(BATCH);
    let layout = Layout::new(Arc::new(schema())).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let bucket = Bucket::open(&format!("file://{}", dir.path().display()), &[]).unwrap();
    let reader = SstReader::new(bucket.clone(), CacheLimits::default());

    let mut files: Vec<Arc<FileEntry>> = Vec::new();
    let mut next = 0;
    let (mut building, mut flushing) = (Duration::ZERO, Duration::ZERO);
    for tenth in 0..10 {
        let mut memtable = Memtable::new(layout.clone());
        let from = next;
        let start = Instant::now();
        while next < total * (tenth + 1) / 10 {
            let rows = batch(&layout, next, total);
            let seqs: Vec<i64> = (next as i64..).take(BATCH).collect();
            memtable.push(Arc::new(Run::build(&layout, &rows, &[Op::Insert; BATCH], &seqs, 0).unwrap())).unwrap();
            next += BATCH;
        }
        building += start.elapsed();
        let start = Instant::now();
        let (runs, range) = (memtable.take(), (Seq(from as i64), Seq(next as i64)));
        let keep = KeepRule { all_from: Seq(next as i64), ..KeepRule::default() };
        let added = write_runs(&bucket, &layout, REGION, &runs, &keep, range, &SstOptions::default()).await.unwrap();
        files.extend(added.into_iter().map(Arc::new));
        flushing += start.elapsed();
    }
    report("build runs (sort, generate included)", total, building);
    report("flush (merge, encode, write)", total, flushing);
    let version = |files: &[Arc<FileEntry>], runs: Vec<Arc<Run>>, applied: usize| {
        Arc::new(Version {
            layout: layout.clone(),
            applied: Seq(applied as i64),
            flushed: Seq(total as i64),
            history_from: Seq(0),
            runs: runs.into(),
            files: files.into(),
            manifest_version: 1,
        })
    };
    let count = async |version: Arc<Version>, request: ScanRequest| {
        let mut items = scan(version, reader.clone(), request);
        let mut rows = 0;
        while let Some(item) = items.next().await {
            if let ScanItem::Rows { chunk, .. } = item.unwrap() {
                rows += chunk.len();
            }
        }
        rows
    };
    let start = Instant::now();
    let rows = count(version(&files, vec![], total), ScanRequest::snapshot(Seq(total as i64))).await;
    report("scan of 10 runs that all overlap", rows, start.elapsed());

    let start = Instant::now();
    let plan = pick_all(&files).unwrap();
    let keep = KeepRule { all_from: Seq(total as i64), exact: vec![], bottom: true };
    let options = SstOptions { zstd_level: 3, ..SstOptions::default() };
    let added = rewrite(&bucket, &reader, &layout, REGION, &plan.inputs, &keep, &options).await.unwrap();
    let files: Vec<_> = added.into_iter().map(Arc::new).collect();
    report("compaction", total, start.elapsed());
    println!("{} files, {} MB", files.len(), files.iter().map(|f| f.size).sum::<u64>() >> 20);

    let (mut raw, mut ours) = (0.0_f64, 0.0_f64);
    for _ in 0..3 {
        let start = Instant::now();
        let mut rows = 0;
        for file in &files {
            let open = std::fs::File::open(dir.path().join(file.path())).unwrap();
            let batches =
                ParquetRecordBatchReaderBuilder::try_new(open).unwrap().with_batch_size(8192).build().unwrap();
            rows += batches.map(|b| b.unwrap().num_rows()).sum::<usize>();
        }
        raw = raw.max(report("raw parquet, all columns", rows, start.elapsed()));
        let start = Instant::now();
        let rows = count(version(&files, vec![], total), ScanRequest::snapshot(Seq(total as i64))).await;
        ours = ours.max(report("snapshot scan of the compacted region", rows, start.elapsed()));
        assert_eq!(rows, total);
    }
    println!("ratio {:.2}", ours / raw);

    let rows = batch(&layout, 0, total);
    let seqs: Vec<i64> = (total as i64..).take(BATCH).collect();
    let run = Arc::new(Run::build(&layout, &rows, &[Op::Insert; BATCH], &seqs, 0).unwrap());
    let applied = total + BATCH;
    let newer = version(&files, vec![run], applied);
    let start = Instant::now();
    let n = count(newer.clone(), ScanRequest::snapshot(Seq(applied as i64))).await;
    report("snapshot scan with 50,000 rows in memory", n, start.elapsed());
    let start = Instant::now();
    let n = count(newer.clone(), ScanRequest::changes(Seq(total as i64), Seq(applied as i64))).await;
    report("changes of 50,000 keys (all to equal rows)", n, start.elapsed());

    for (what, keys) in [("look-up of 1,000 keys, cold", 1000), ("look-up of the same keys", 1000)] {
        let step = total / keys;
        let ids: ArrayRef = Arc::new((0..keys).map(|i| (i * step) as i64).collect::<Int64Array>());
        let encoded = layout.encode_key_columns(&[ids]).unwrap();
        let prefixes = (0..keys).map(|i| Key::from(encoded.get(i))).collect();
        let start = Instant::now();
        let found =
            lookup(newer.clone(), reader.clone(), prefixes, KeyMatch::Whole, Seq(applied as i64), None).await.unwrap();
        report(what, found.rows.num_rows(), start.elapsed());
    }
}
