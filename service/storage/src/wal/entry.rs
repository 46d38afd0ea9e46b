//! One entry of the shared WAL as bytes: a fixed header, then an Arrow IPC stream with an op column, or the payload of an epoch's end.
//!
//! Owns: the format (magic `MSW1`), its checksum, splitting by rows. Not here: who writes entries (`appender`, `epoch_batch`) and who reads them (`replay`).
//!
//! ```text
//!  0 magic "MSW1"   4 kind u8   5 origin u8   6 zero u16   8 region u64   16 leader epoch u64   24 schema id u32   28 partition version u32
//! 32 id 16 bytes: write id, or job u64 and epoch u64      48 rows u32    52 crc32c u32 over bytes 0..52 and the payload       56 payload
//! ```
//! All numbers are big-endian. A batch above the entry limit is cut by rows into whole entries of the same transaction, so there is nothing to reassemble.

use std::{io::Cursor, sync::Arc};

use arrow::{
    array::{Array, AsArray, Int8Array, RecordBatch},
    datatypes::{DataType, Field, Int8Type, Schema},
    ipc::{reader::StreamReader, writer::StreamWriter},
};
use millstream_types::{Epoch, JobId, LeaderEpoch, Op, RegionId};

use crate::StorageError;

const MAGIC: &[u8; 4] = b"MSW1";
const HEADER: usize = 56;
const CRC_AT: usize = 52;
/// Name of the op column inside an entry; user columns cannot start with two underscores.
const OP_COLUMN: &str = "__op";

/// Who wrote an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Origin {
    /// A client write (INSERT, DELETE), told apart by its write id.
    Write(u128),
    /// A checkpoint of a job.
    Job { job: JobId, epoch: Epoch },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Rows of one region.
    Rows,
    /// The checkpoint is whole: everything of this job and epoch stands before it, in the same transaction.
    EpochEnd,
}

/// What stands before the payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    pub kind: Kind,
    pub origin: Origin,
    /// All zero in an `EpochEnd`.
    pub region: RegionId,
    pub leader_epoch: LeaderEpoch,
    pub schema_id: u32,
    /// Version of the table's partition map; 0 until a table can be split.
    pub partition_version: u32,
    pub rows: u32,
}

/// Why bytes are not an entry of ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reject {
    /// No magic: somebody else's record; skipped and counted.
    Foreign,
    /// Our magic but broken content: the region of its key is quarantined.
    Corrupt(String),
}

/// Limits of one entry in bytes.
#[derive(Debug, Clone, Copy)]
pub struct EntryLimits {
    /// Larger batches are cut by rows.
    pub entry_bytes: usize,
    /// A single row above it is refused.
    pub max_row_bytes: usize,
}

impl Default for EntryLimits {
    fn default() -> Self {
        Self { entry_bytes: 1 << 20, max_row_bytes: 8 << 20 }
    }
}

/// Kafka key of a region's entries.
pub fn record_key(region: RegionId) -> [u8; 8] {
    region.as_u64().to_be_bytes()
}

/// Reverse of [`record_key`].
pub fn region_of_key(key: &[u8]) -> Option<RegionId> {
    Some(RegionId::from_u64(u64::from_be_bytes(key.try_into().ok()?)))
}

/// Encodes `rows` as one or more entries, each within the limit, and hands each over with its place `(first row, rows)`.
pub fn encode_rows(
    header: Header,
    rows: &RecordBatch,
    ops: &[Op],
    limits: EntryLimits,
    emit: &mut dyn FnMut(Vec<u8>, usize, usize),
) -> Result<(), StorageError> {
    let with_ops = with_op_column(rows, ops)?;
    encode_range(header, &with_ops, 0, limits, emit)
}

fn encode_range(
    header: Header,
    rows: &RecordBatch,
    first: usize,
    limits: EntryLimits,
    emit: &mut dyn FnMut(Vec<u8>, usize, usize),
) -> Result<(), StorageError> {
    let count = rows.num_rows();
    let mut bytes = vec![0_u8; HEADER];
    {
        let mut writer = StreamWriter::try_new(&mut bytes, &rows.schema())?;
        writer.write(rows)?;
        writer.finish()?;
    }
    if bytes.len() <= limits.entry_bytes || count <= 1 {
        if bytes.len() > limits.max_row_bytes {
            let (bytes, limit) = (bytes.len(), limits.max_row_bytes);
            return Err(StorageError::RowTooLarge { region: header.region, row: first, bytes, limit });
        }
        seal(Header { rows: count as u32, ..header }, &mut bytes);
        emit(bytes, first, count);
        return Ok(());
    }
    // Aim a little below the limit, since rows differ in size; a piece that is still too large is cut again.
    let pieces = (bytes.len() * 9 / 8).div_ceil(limits.entry_bytes).clamp(2, count);
    drop(bytes);
    let step = count.div_ceil(pieces);
    let mut at = 0;
    while at < count {
        let len = step.min(count - at);
        encode_range(header, &rows.slice(at, len), first + at, limits, emit)?;
        at += len;
    }
    Ok(())
}

/// The entry that ends a checkpoint; `payload` is the job's own (positions, counts), opaque here.
pub fn encode_epoch_end(job: JobId, epoch: Epoch, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0_u8; HEADER];
    bytes.extend_from_slice(payload);
    let header = Header {
        kind: Kind::EpochEnd,
        origin: Origin::Job { job, epoch },
        region: RegionId::from_u64(0),
        leader_epoch: LeaderEpoch(0),
        schema_id: 0,
        partition_version: 0,
        rows: 0,
    };
    seal(header, &mut bytes);
    bytes
}

fn with_op_column(rows: &RecordBatch, ops: &[Op]) -> Result<RecordBatch, StorageError> {
    let schema = rows.schema();
    let mut fields: Vec<Arc<Field>> = schema.fields().iter().cloned().collect();
    fields.push(Arc::new(Field::new(OP_COLUMN, DataType::Int8, false)));
    let mut columns = rows.columns().to_vec();
    columns.push(Arc::new(ops.iter().map(|op| *op as i8).collect::<Int8Array>()));
    Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)?)
}

fn seal(header: Header, bytes: &mut [u8]) {
    bytes[0..4].copy_from_slice(MAGIC);
    bytes[4] = match header.kind {
        Kind::Rows => 0,
        Kind::EpochEnd => 1,
    };
    bytes[8..16].copy_from_slice(&header.region.as_u64().to_be_bytes());
    bytes[16..24].copy_from_slice(&header.leader_epoch.0.to_be_bytes());
    bytes[24..28].copy_from_slice(&header.schema_id.to_be_bytes());
    bytes[28..32].copy_from_slice(&header.partition_version.to_be_bytes());
    match header.origin {
        Origin::Write(id) => {
            bytes[5] = 0;
            bytes[32..48].copy_from_slice(&id.to_be_bytes());
        }
        Origin::Job { job, epoch } => {
            bytes[5] = 1;
            bytes[32..40].copy_from_slice(&job.0.to_be_bytes());
            bytes[40..48].copy_from_slice(&epoch.0.to_be_bytes());
        }
    }
    bytes[48..52].copy_from_slice(&header.rows.to_be_bytes());
    let crc = crc(bytes);
    bytes[CRC_AT..HEADER].copy_from_slice(&crc.to_be_bytes());
}

fn crc(bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&bytes[..CRC_AT]), &bytes[HEADER..])
}

/// Checks an entry and reads its header; the payload is decoded only if somebody needs it.
pub fn parse(bytes: &[u8]) -> Result<(Header, &[u8]), Reject> {
    if bytes.len() < 4 || &bytes[..4] != MAGIC {
        return Err(Reject::Foreign);
    }
    if bytes.len() < HEADER {
        return Err(Reject::Corrupt(format!("entry of {} bytes is shorter than its header", bytes.len())));
    }
    let stored = u32_at(bytes, CRC_AT);
    let computed = crc(bytes);
    if stored != computed {
        return Err(Reject::Corrupt(format!("entry checksum is {computed:08x}, stored {stored:08x}")));
    }
    let kind = match bytes[4] {
        0 => Kind::Rows,
        1 => Kind::EpochEnd,
        other => return Err(Reject::Corrupt(format!("entry kind {other} is unknown, written by a newer version"))),
    };
    let origin = match bytes[5] {
        0 => Origin::Write((u128::from(u64_at(bytes, 32)) << 64) | u128::from(u64_at(bytes, 40))),
        1 => Origin::Job { job: JobId(u64_at(bytes, 32)), epoch: Epoch(u64_at(bytes, 40)) },
        other => return Err(Reject::Corrupt(format!("entry origin {other} is unknown, written by a newer version"))),
    };
    let header = Header {
        kind,
        origin,
        region: RegionId::from_u64(u64_at(bytes, 8)),
        leader_epoch: LeaderEpoch(u64_at(bytes, 16)),
        schema_id: u32_at(bytes, 24),
        partition_version: u32_at(bytes, 28),
        rows: u32_at(bytes, 48),
    };
    Ok((header, &bytes[HEADER..]))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().expect("the header length was checked"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(bytes[at..at + 8].try_into().expect("the header length was checked"))
}

/// Rows and ops of a `Rows` payload.
pub fn decode_rows(payload: &[u8], rows: u32) -> Result<(RecordBatch, Vec<Op>), String> {
    let reader =
        StreamReader::try_new(Cursor::new(payload), None).map_err(|e| format!("entry is no arrow stream: {e}"))?;
    let batches = reader.collect::<Result<Vec<_>, _>>().map_err(|e| format!("entry has a broken batch: {e}"))?;
    let [batch] = batches.as_slice() else {
        return Err(format!("entry has {} batches, not one", batches.len()));
    };
    if batch.num_rows() != rows as usize {
        return Err(format!("entry has {} rows, its header says {rows}", batch.num_rows()));
    }
    let last = batch.num_columns().checked_sub(1).ok_or("entry has no columns")?;
    if batch.schema_ref().field(last).name() != OP_COLUMN {
        return Err("entry has no op column".to_owned());
    }
    let ops = batch.column(last).as_primitive_opt::<Int8Type>().ok_or("op column is not int8")?;
    if ops.null_count() > 0 {
        return Err("op column has nulls".to_owned());
    }
    let ops = ops
        .values()
        .iter()
        .map(|v| Op::from_i8(*v).ok_or_else(|| format!("op {v} is unknown")))
        .collect::<Result<_, _>>()?;
    let columns: Vec<usize> = (0..last).collect();
    Ok((batch.project(&columns).map_err(|e| e.to_string())?, ops))
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, Int64Array, StringArray};
    use millstream_types::TableId;
    use proptest::prelude::*;

    use super::*;

    fn header(rows: u32) -> Header {
        Header {
            kind: Kind::Rows,
            origin: Origin::Write(0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10),
            region: RegionId::new(TableId(7), 2),
            leader_epoch: LeaderEpoch(3),
            schema_id: 1,
            partition_version: 0,
            rows,
        }
    }

    fn batch(texts: &[Option<String>]) -> RecordBatch {
        let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(0..texts.len() as i64));
        RecordBatch::try_from_iter([("id", ids), ("t", Arc::new(StringArray::from_iter(texts.iter())) as ArrayRef)])
            .unwrap()
    }

    fn round_trip(texts: &[Option<String>], ops: &[Op], limit: usize) -> (usize, RecordBatch, Vec<Op>) {
        let rows = batch(texts);
        let mut entries = Vec::new();
        let limits = EntryLimits { entry_bytes: limit, max_row_bytes: 1 << 20 };
        encode_rows(header(0), &rows, ops, limits, &mut |b, at, n| entries.push((b, at, n))).unwrap();
        let mut parts = Vec::new();
        let mut all_ops = Vec::new();
        for (bytes, at, n) in &entries {
            let (h, payload) = parse(bytes).unwrap();
            assert_eq!(h, header(*n as u32));
            assert_eq!(*at, all_ops.len());
            let (rows, ops) = decode_rows(payload, h.rows).unwrap();
            parts.push(rows);
            all_ops.extend(ops);
        }
        (entries.len(), arrow::compute::concat_batches(&parts[0].schema(), &parts).unwrap(), all_ops)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn entry_codec_round_trip(texts in proptest::collection::vec(proptest::option::of(".{0,200}"), 1..120), limit in 900_usize..20_000) {
            let ops: Vec<Op> = (0..texts.len()).map(|i| Op::from_i8((i % 4) as i8).unwrap()).collect();
            let (_, rows, back) = round_trip(&texts, &ops, limit);
            prop_assert_eq!(rows, batch(&texts));
            prop_assert_eq!(back, ops);
        }
    }

    #[test]
    fn a_large_batch_is_cut_by_rows() {
        let texts: Vec<_> = (0..5000).map(|i| Some(format!("{i:0>200}"))).collect();
        let (entries, rows, _) = round_trip(&texts, &vec![Op::Insert; 5000], 64 << 10);
        assert!(entries > 10, "{entries} entries");
        assert_eq!(rows, batch(&texts));
    }

    #[test]
    fn a_row_above_the_limit_is_refused() {
        let rows = batch(&[Some("x".repeat(5000))]);
        let limits = EntryLimits { entry_bytes: 1000, max_row_bytes: 4000 };
        let e = encode_rows(header(0), &rows, &[Op::Insert], limits, &mut |_, _, _| panic!("nothing may be emitted"))
            .unwrap_err();
        assert!(e.to_string().contains("above the limit of 4000 bytes"), "{e}");
    }

    #[test]
    fn foreign_and_broken_bytes_are_told_apart() {
        assert_eq!(parse(b"hello"), Err(Reject::Foreign));
        assert_eq!(parse(b""), Err(Reject::Foreign));
        let mut bytes = encode_epoch_end(JobId(4), Epoch(9), b"payload");
        let (h, payload) = parse(&bytes).unwrap();
        assert_eq!(
            (h.kind, h.origin, payload),
            (Kind::EpochEnd, Origin::Job { job: JobId(4), epoch: Epoch(9) }, &b"payload"[..])
        );
        for i in 4..bytes.len() {
            bytes[i] ^= 1;
            assert!(matches!(parse(&bytes), Err(Reject::Corrupt(_))), "byte {i}");
            bytes[i] ^= 1;
        }
    }

    #[test]
    fn the_v1_sample_loads() {
        let sample = |name: &str| std::fs::read(format!("{}/testdata/v1/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap();
        let (rows, end) = (sample("wal_rows.bin"), sample("wal_epoch_end.bin"));
        let (h, payload) = parse(&rows).unwrap();
        assert_eq!(h, header(3));
        let (rows, ops) = decode_rows(payload, h.rows).unwrap();
        assert_eq!(rows, batch(&[Some("a".into()), None, Some("c".into())]));
        assert_eq!(ops, [Op::Insert, Op::Delete, Op::UpdateInsert]);
        let (h, payload) = parse(&end).unwrap();
        assert_eq!((h.origin, payload), (Origin::Job { job: JobId(4), epoch: Epoch(9) }, &b"payload"[..]));
    }

    /// Writes the samples of this version: `cargo test -p millstream-storage write_the_v1_sample -- --ignored`.
    #[test]
    #[ignore = "writes files; run by hand when a new format version starts"]
    fn write_the_v1_sample() {
        let rows = batch(&[Some("a".into()), None, Some("c".into())]);
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/v1");
        std::fs::create_dir_all(folder).unwrap();
        encode_rows(
            header(0),
            &rows,
            &[Op::Insert, Op::Delete, Op::UpdateInsert],
            EntryLimits::default(),
            &mut |b, _, _| {
                std::fs::write(format!("{folder}/wal_rows.bin"), b).unwrap();
            },
        )
        .unwrap();
        std::fs::write(format!("{folder}/wal_epoch_end.bin"), encode_epoch_end(JobId(4), Epoch(9), b"payload"))
            .unwrap();
    }
}
