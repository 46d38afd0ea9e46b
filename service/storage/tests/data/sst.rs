//! Files hold any schema, are found by column id, and are checked against the manifest.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayData, ArrayRef, AsArray, RecordBatch, StringArray, make_array},
    buffer::Buffer,
    datatypes::DataType,
};
use bytes::Bytes;
use futures::TryStreamExt;
use millstream_storage::{
    KeyMatch, ScanItem, ScanRequest, StorageError,
    compaction::KeepRule,
    layout::Layout,
    manifest::FileEntry,
    memtable::{Run, merge_runs},
    object_store::Bucket,
    read::{lookup, scan},
    region::version::Version,
    sst::{CacheLimits, SstOptions, SstReader, write_runs},
};
use millstream_types::{Classified, Column, ErrorKind, Key, Op, Seq, SqlType, TableSchema};
use proptest::prelude::*;
use rand::{Rng, SeedableRng, rngs::StdRng};

use super::rig::{REGION, Rig};

fn sql_type() -> impl Strategy<Value = SqlType> {
    let leaf = prop::sample::select(vec![
        SqlType::Boolean,
        SqlType::SmallInt,
        SqlType::Int,
        SqlType::BigInt,
        SqlType::Real,
        SqlType::Double,
        SqlType::Decimal(12, 2),
        SqlType::Decimal(60, 5),
        SqlType::Varchar,
        SqlType::Bytea,
        SqlType::Date,
        SqlType::Time,
        SqlType::Timestamp,
        SqlType::TimestampTz,
        SqlType::Interval,
        SqlType::Jsonb,
    ]);
    leaf.prop_recursive(3, 8, 3, |inner| {
        prop_oneof![
            inner.clone().prop_map(|t| SqlType::Array(Box::new(t))),
            proptest::collection::vec(inner.clone(), 1..3).prop_map(|ts| SqlType::Struct(
                ts.into_iter().enumerate().map(|(i, t)| (format!("f{i}"), t)).collect()
            )),
            inner.prop_map(|t| SqlType::Map(Box::new(SqlType::Varchar), Box::new(t))),
        ]
    })
}

/// Random values of a type, a fifth of them null where that is allowed.
fn random(t: &DataType, n: usize, nullable: bool, rng: &mut StdRng) -> ArrayRef {
    let nulls = nullable.then(|| (0..n).map(|_| rng.random_ratio(4, 5)).collect::<arrow::buffer::NullBuffer>());
    let data = match t {
        DataType::Utf8 | DataType::Binary => {
            let texts: StringArray = (0..n).map(|_| Some("xyz\u{e4}".repeat(rng.random_range(0..3)))).collect();
            texts.to_data().into_builder().data_type(t.clone())
        }
        DataType::List(f) | DataType::Map(f, _) => {
            let lengths: Vec<usize> = (0..n).map(|_| rng.random_range(0..3)).collect();
            let child = random(f.data_type(), lengths.iter().sum(), f.is_nullable(), rng);
            let offsets = arrow::buffer::OffsetBuffer::<i32>::from_lengths(lengths);
            ArrayData::builder(t.clone())
                .len(n)
                .add_buffer(offsets.into_inner().into_inner())
                .add_child_data(child.to_data())
        }
        DataType::Struct(fields) => {
            let children = fields.iter().map(|f| random(f.data_type(), n, f.is_nullable(), rng).to_data()).collect();
            ArrayData::builder(t.clone()).len(n).child_data(children)
        }
        DataType::Boolean => {
            let bits: arrow::buffer::BooleanBuffer = (0..n).map(|_| rng.random::<bool>()).collect();
            ArrayData::builder(t.clone()).len(n).add_buffer(bits.into_inner())
        }
        fixed => {
            let width = fixed.primitive_width().unwrap();
            // Small digits keep decimals and times in their ranges.
            let bytes: Vec<u8> = (0..n)
                .flat_map(|_| {
                    let mut v = vec![0; width];
                    v[0] = rng.random_range(0..100);
                    v
                })
                .collect();
            ArrayData::builder(t.clone()).len(n).add_buffer(Buffer::from(bytes)).align_buffers(true)
        }
    };
    make_array(data.nulls(nulls).build().unwrap())
}

struct Stored {
    layout: Arc<Layout>,
    bucket: Arc<Bucket>,
    files: Vec<Arc<FileEntry>>,
}

impl Stored {
    fn version(&self, layout: &Arc<Layout>) -> Arc<Version> {
        Arc::new(Version {
            layout: layout.clone(),
            applied: Seq::MAX,
            flushed: Seq::MAX,
            history_from: Seq::ZERO,
            runs: Arc::new([]),
            files: self.files.clone().into(),
            manifest_version: 0,
        })
    }

    async fn read(&self, layout: &Arc<Layout>, columns: Option<Vec<usize>>) -> Result<RecordBatch, StorageError> {
        let reader = SstReader::new(self.bucket.clone(), CacheLimits::default());
        let request = ScanRequest { columns, max_rows: 10, ..ScanRequest::snapshot(Seq::MAX) };
        let items: Vec<ScanItem> = scan(self.version(layout), reader, request).try_collect().await?;
        let chunks: Vec<RecordBatch> = items
            .into_iter()
            .filter_map(|i| if let ScanItem::Rows { chunk, .. } = i { Some(chunk.rows) } else { None })
            .collect();
        Ok(arrow::compute::concat_batches(&chunks[0].schema(), &chunks)?)
    }
}

async fn store(schema: TableSchema, rows: &RecordBatch, ops: &[Op]) -> Stored {
    let layout = Layout::new(Arc::new(schema)).unwrap();
    let bucket = Bucket::memory();
    let seqs: Vec<i64> = (100..).take(ops.len()).collect();
    let run = Arc::new(Run::build(&layout, rows, ops, &seqs, 0).unwrap());
    let options = SstOptions { row_group_rows: 16, ..SstOptions::default() };
    let range = (Seq(100), Seq(100 + ops.len() as i64));
    let files = write_runs(&bucket, &layout, REGION, &[run], &KeepRule::everything(), range, &options).await.unwrap();
    Stored { layout, bucket, files: files.into_iter().map(Arc::new).collect() }
}

fn block_on<T>(test: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn sst_round_trip_any_schema(types in proptest::collection::vec(sql_type(), 1..6), keyed in any::<bool>(), seed in any::<u64>()) {
        let n = 50;
        let mut rng = StdRng::seed_from_u64(seed);
        let mut columns: Vec<Column> =
            types.into_iter().enumerate().map(|(i, t)| Column::new(i as u32 + 10, format!("c {i}"), t)).collect();
        columns.push(Column::new(99, "key", SqlType::Int).not_null());
        let key = columns.len() - 1;
        let schema = TableSchema { id: 1, columns, primary_key: if keyed { vec![key] } else { vec![] } };
        let arrow = schema.arrow();
        let mut arrays: Vec<ArrayRef> = arrow.fields().iter().map(|f| random(f.data_type(), n, true, &mut rng)).collect();
        arrays[key] = Arc::new((0..n as i32).collect::<arrow::array::Int32Array>());
        let rows = RecordBatch::try_new(arrow, arrays).unwrap();
        let stored = block_on(store(schema, &rows, &vec![Op::Insert; n]));
        let back = block_on(stored.read(&stored.layout, None)).unwrap();
        prop_assert_eq!(&back, &rows);
        let reverse: Vec<usize> = (0..=key).rev().collect();
        let back = block_on(stored.read(&stored.layout, Some(reverse.clone()))).unwrap();
        prop_assert_eq!(back, rows.project(&reverse).unwrap());
    }
}

/// Nulls in lists, and a list of lists, as one reads them again (pitfall 79).
#[tokio::test]
async fn nulls_in_lists_and_recursive_types() {
    let t = SqlType::Array(Box::new(SqlType::Array(Box::new(SqlType::Interval))));
    let schema = TableSchema { id: 1, columns: vec![Column::new(1, "l", t)], primary_key: vec![] };
    let mut rng = StdRng::seed_from_u64(7);
    let rows =
        RecordBatch::try_new(schema.arrow(), vec![random(schema.arrow().field(0).data_type(), 200, true, &mut rng)])
            .unwrap();
    let stored = store(schema, &rows, &[Op::Insert; 200]).await;
    assert_eq!(stored.read(&stored.layout, None).await.unwrap(), rows);
}

/// A column was added in the middle, one dropped, one renamed, one widened: files are read by column id (pitfalls 80, 104).
#[tokio::test]
async fn mixed_schemas_read_as_one_table() {
    let old = TableSchema {
        id: 1,
        columns: vec![
            Column::new(1, "id", SqlType::Int).not_null(),
            Column::new(2, "gone", SqlType::Varchar),
            Column::new(3, "n", SqlType::Int),
        ],
        primary_key: vec![0],
    };
    let rows = RecordBatch::try_new(
        old.arrow(),
        vec![
            Arc::new(arrow::array::Int32Array::from(vec![1, 2])),
            Arc::new(StringArray::from(vec!["x", "y"])),
            Arc::new(arrow::array::Int32Array::from(vec![Some(10), None])),
        ],
    )
    .unwrap();
    let stored = store(old, &rows, &[Op::Insert; 2]).await;
    let new = TableSchema {
        id: 2,
        columns: vec![
            Column::new(3, "number", SqlType::BigInt),
            Column::new(4, "gone", SqlType::Varchar),
            Column::new(1, "id", SqlType::Int).not_null(),
        ],
        primary_key: vec![2],
    };
    let layout = Layout::new(Arc::new(new)).unwrap();
    let back = stored.read(&layout, None).await.unwrap();
    assert_eq!(
        back.column(0).as_primitive::<arrow::datatypes::Int64Type>().iter().collect::<Vec<_>>(),
        [Some(10), None]
    );
    assert_eq!((back.column(1).null_count(), back.column(2).len()), (2, 2));
}

#[tokio::test]
async fn a_file_that_disagrees_with_the_manifest_is_corrupt() {
    let mut rig = Rig::new(true);
    rig.horizon = i64::MAX;
    rig.write(&[((1, "a".to_owned()), Some(Some(1))), ((2, "b".to_owned()), None)]);
    rig.flush().await;
    let good = rig.files[0].as_ref().clone();
    let stored = |entry: FileEntry| Stored {
        layout: rig.layout.clone(),
        bucket: rig.bucket.clone(),
        files: vec![Arc::new(entry)],
    };
    assert_eq!((good.rows, good.deletes, good.single_version), (1, 0, true));
    let error = stored(FileEntry { rows: 9, ..good.clone() }).read(&rig.layout, None).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains(&good.name), "{error}");

    let gone = stored(FileEntry { name: "gone".to_owned(), ..good.clone() }).read(&rig.layout, None).await.unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::NotFound);

    let bytes = rig.bucket.get(&good.path()).await.unwrap().unwrap();
    let mut broken = bytes.to_vec();
    let middle = broken.len() - 40;
    broken[middle..].fill(0x5a);
    rig.bucket.put(&good.path(), Bytes::from(broken)).await.unwrap();
    assert_eq!(stored(good.clone()).read(&rig.layout, None).await.unwrap_err().kind(), ErrorKind::Corrupt);
    rig.bucket.put(&good.path(), bytes.slice(..bytes.len() / 2)).await.unwrap();
    let error = stored(good).read(&rig.layout, None).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Unavailable), "{error}");
}

/// Every release reads the files of all releases before. `MILLSTREAM_WRITE_SAMPLES=1` writes the sample of the format in force.
#[tokio::test]
async fn old_sst_samples_load() {
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/v1");
    let mut rig = Rig::new(true);
    rig.write(&[((1, "a".to_owned()), Some(Some(1))), ((2, "b".to_owned()), Some(None))]);
    rig.write(&[((1, "a".to_owned()), Some(Some(7))), ((3, "c".to_owned()), None)]);
    if std::env::var_os("MILLSTREAM_WRITE_SAMPLES").is_some() {
        rig.flush().await;
        std::fs::write(dir.join("sst.parquet"), rig.bucket.get(&rig.files[0].path()).await.unwrap().unwrap()).unwrap();
        std::fs::write(dir.join("sst.json"), serde_json::to_string_pretty(&*rig.files[0]).unwrap()).unwrap();
        rig.files.clear();
    }
    let entry: FileEntry = serde_json::from_str(&std::fs::read_to_string(dir.join("sst.json")).unwrap()).unwrap();
    rig.bucket.put(&entry.path(), std::fs::read(dir.join("sst.parquet")).unwrap().into()).await.unwrap();
    rig.memtable.take();
    rig.files.push(Arc::new(entry));
    for at in [10, 13, 16] {
        assert_eq!(rig.snapshot(at).await, rig.model_at(at));
    }
    assert_eq!(rig.changes(13, 16).await, rig.model_changes(13, 16));
}

/// Files of an append region end between sequences, even if every batch begins within one.
#[tokio::test]
async fn append_files_are_disjoint_in_sequence() {
    let mut rig = Rig::new(false);
    for _ in 0..400 {
        rig.write(
            &(0..100).map(|i| ((i, "x".to_owned()), Some(Some(i64::from(i) * 1_234_567 % 89_123)))).collect::<Vec<_>>(),
        );
    }
    let one = merge_runs(&rig.layout, &rig.memtable.take()).unwrap();
    rig.memtable.push(Arc::new(one)).unwrap();
    rig.options = SstOptions { row_group_rows: 4000, target_bytes: 1, ..SstOptions::default() };
    rig.flush().await;
    assert!(rig.files.len() > 3, "{} files", rig.files.len());
    assert!(rig.files.windows(2).all(|w| w[0].end <= w[1].from));
    let found = rig.rows(ScanRequest::changes(Seq(40), Seq(940))).await;
    assert_eq!(found.len(), 30_000);
}

/// Above 8 MiB an object goes up in parts.
#[tokio::test]
async fn large_uploads_arrive_whole() {
    let dir = tempfile::tempdir().unwrap();
    for bucket in [Bucket::memory(), Bucket::open(&format!("file://{}", dir.path().display()), &[]).unwrap()] {
        let mut upload = millstream_storage::object_store::Upload::new(bucket.clone(), "big".to_owned());
        let piece: Vec<u8> = (0..3_000_000u32).map(|i| (i / 7) as u8).collect();
        for _ in 0..7 {
            upload.write(&piece).await.unwrap();
        }
        assert_eq!(upload.finish().await.unwrap(), 21_000_000);
        assert_eq!(bucket.get("big").await.unwrap().unwrap(), piece.repeat(7));
    }
}

/// Of a delete only the key is stored, and a small cache gives the same answers.
#[tokio::test]
async fn caches_stay_under_limit_and_deletes_are_small() {
    let mut rig = Rig::new(true);
    rig.write(&[((1, "a".to_owned()), Some(Some(1)))]);
    rig.write(&[((1, "a".to_owned()), None), ((2, "b".to_owned()), Some(Some(5)))]);
    rig.pins.insert(11);
    rig.flush().await;
    assert_eq!((rig.files[0].rows, rig.files[0].deletes, rig.files[0].single_version), (3, 1, false));
    let limits = CacheLimits { footers: 1, filters: 1, pages: 2000 };
    let reader = SstReader::new(rig.bucket.clone(), limits);
    for _ in 0..3 {
        let whole = KeyMatch::Whole;
        for (key, by, want) in [
            (rig.key(1, Some("a")), whole, 0),
            (rig.key(2, Some("b")), whole, 1),
            (Key::default(), KeyMatch::Prefix, 1),
        ] {
            let found =
                lookup(rig.version(), reader.clone(), vec![key], by, Seq(rig.applied), Some(vec![1])).await.unwrap();
            assert_eq!((found.rows.num_rows(), found.which.len(), found.rows.num_columns()), (want, want, 1));
            let (footers, pages) = reader.cached_bytes();
            assert!(footers <= 1 && pages <= 2000);
        }
    }
}

/// The filter of the row group knows that a key is not there, although its range says that it could be.
#[tokio::test]
async fn a_key_that_is_not_there_decodes_nothing() {
    let mut rig = Rig::new(true);
    let rows: Vec<_> = (0..500).map(|a| ((a * 2, "x".to_owned()), Some(Some(1)))).collect();
    rig.write(&rows);
    rig.flush().await;
    let reader = SstReader::new(rig.bucket.clone(), CacheLimits::default());
    let ask = async |keys: Vec<Key>| {
        let found = lookup(rig.version(), reader.clone(), keys, KeyMatch::Whole, Seq(rig.applied), None).await.unwrap();
        (found.which.len(), reader.cached_bytes().1)
    };
    assert_eq!(ask(vec![rig.key(7, Some("x")), rig.key(501, Some("x"))]).await, (0, 0));
    let (found, decoded) = ask(vec![rig.key(8, Some("x")), rig.key(9, Some("x"))]).await;
    assert!(found == 1 && decoded > 0);
}
