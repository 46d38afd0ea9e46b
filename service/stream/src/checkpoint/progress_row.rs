//! The layout of a job's progress region: where each input region stands, and one row for the job itself.
//!
//! Key (input, region); the job's own row has input [`JOB_INPUT`]. Versioned by `format`; a row that cannot be read quarantines the job, it is never
//! taken for "nothing done yet".

use std::sync::Arc;

use arrow::{
    array::{
        Array, ArrayRef, BinaryBuilder, Int16Builder, Int32Builder, Int64Array, Int64Builder, RecordBatch,
        StringBuilder, cast::AsArray,
    },
    datatypes::{Int16Type, Int32Type, Int64Type},
};
use millstream_types::{Column, Epoch, InputId, Key, Op, Pos, RegionId, Seq, SqlType, TableSchema};

use crate::{
    StreamError,
    executor::backfill::{machine::Position, progress::RegionProgress},
};

/// Input number of the job's own row.
pub const JOB_INPUT: i32 = 65535;

/// Written into each row.
pub const FORMAT: i16 = 1;

/// Schema of every progress region.
pub fn progress_schema() -> TableSchema {
    let names = [
        ("input", SqlType::Int),
        ("region", SqlType::BigInt),
        ("format", SqlType::SmallInt),
        ("pass", SqlType::Int),
        ("above", SqlType::BigInt),
        ("below", SqlType::BigInt),
        ("at", SqlType::Bytea),
        ("rows", SqlType::BigInt),
        ("scanned", SqlType::BigInt),
        ("total", SqlType::BigInt),
        ("finish_epoch", SqlType::BigInt),
        ("epoch", SqlType::BigInt),
        ("starts", SqlType::BigInt),
        ("plan_hash", SqlType::BigInt),
        ("certificate", SqlType::Varchar),
    ];
    let columns = names.into_iter().enumerate().map(|(i, (name, t))| {
        let c = Column::new(i as u32 + 1, name, t);
        if i < 2 { c.not_null() } else { c }
    });
    TableSchema { id: 1, columns: columns.collect(), primary_key: vec![0, 1] }
}

/// Everything a job's progress region says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Progress {
    /// Epoch of the newest transaction; 0 = there is none.
    pub epoch: Epoch,
    pub starts: u64,
    pub plan_hash: u64,
    pub regions: Vec<RegionProgress>,
}

fn at_bytes(at: &Pos) -> Vec<u8> {
    match at {
        Pos::NotStarted => vec![0],
        Pos::At(k) => [&[1], k.as_bytes()].concat(),
        Pos::End => vec![2],
    }
}

fn at_from(bytes: &[u8]) -> Option<Pos> {
    match bytes.split_first()? {
        (0, []) => Some(Pos::NotStarted),
        (1, key) => Some(Pos::At(Key::from(key))),
        (2, []) => Some(Pos::End),
        _ => None,
    }
}

/// The rows to write: one per region, the job's last.
pub fn encode(input: InputId, p: &Progress) -> Result<(RecordBatch, Vec<Op>), StreamError> {
    let n = p.regions.len() + 1;
    let (mut inputs, mut format, mut pass) = (Int32Builder::new(), Int16Builder::new(), Int32Builder::new());
    let mut ints: Vec<Int64Builder> = (0..10).map(|_| Int64Builder::new()).collect();
    let (mut at, mut certificate) = (BinaryBuilder::new(), StringBuilder::new());
    for r in &p.regions {
        inputs.append_value(i32::from(input.0));
        format.append_value(FORMAT);
        pass.append_value(r.pass as i32);
        at.append_value(at_bytes(&r.position.at));
        certificate.append_null();
        let finish = r.finish_epoch.map(|e| e.0 as i64);
        let values = [
            Some(r.region.as_u64() as i64),
            r.position.above.map(|s| s.0),
            Some(r.position.below.0),
            Some(r.rows as i64),
            Some(r.scanned as i64),
            Some(r.total as i64),
            finish,
            None,
            None,
            None,
        ];
        ints.iter_mut().zip(values).for_each(|(b, v)| b.append_option(v));
    }
    inputs.append_value(JOB_INPUT);
    format.append_value(FORMAT);
    pass.append_null();
    at.append_null();
    certificate.append_null();
    let values = [
        Some(0),
        None,
        None,
        None,
        None,
        None,
        None,
        Some(p.epoch.0 as i64),
        Some(p.starts as i64),
        Some(p.plan_hash as i64),
    ];
    ints.iter_mut().zip(values).for_each(|(b, v)| b.append_option(v));
    let mut ints = ints.into_iter().map(|mut b| Arc::new(b.finish()) as ArrayRef);
    let mut int = || ints.next().unwrap_or_else(|| Arc::new(Int64Array::new_null(n)));
    let columns: Vec<ArrayRef> = vec![
        Arc::new(inputs.finish()),
        int(),
        Arc::new(format.finish()),
        Arc::new(pass.finish()),
        int(),
        int(),
        Arc::new(at.finish()),
        int(),
        int(),
        int(),
        int(),
        int(),
        int(),
        int(),
        Arc::new(certificate.finish()),
    ];
    let rows = RecordBatch::try_new(progress_schema().arrow(), columns)?;
    Ok((rows, vec![Op::Insert; n]))
}

/// Adds the rows of one batch of the progress region, all columns in the order of [`progress_schema`].
pub fn decode(rows: &RecordBatch, into: &mut Progress) -> Result<(), StreamError> {
    let int = |c: usize, i: usize| {
        let a = rows.column(c).as_primitive::<Int64Type>();
        a.is_valid(i).then(|| a.value(i))
    };
    for i in 0..rows.num_rows() {
        let format = rows.column(2).as_primitive::<Int16Type>();
        if format.is_null(i) || format.value(i) != FORMAT {
            return Err(StreamError::Progress { what: format!("layout {:?} is not known", format.value(i)) });
        }
        let need = |c: usize, name: &str| {
            int(c, i).ok_or_else(|| StreamError::Progress { what: format!("{name} is missing") })
        };
        if rows.column(0).as_primitive::<Int32Type>().value(i) == JOB_INPUT {
            into.epoch = Epoch(need(11, "epoch")? as u64);
            into.starts = need(12, "starts")? as u64;
            into.plan_hash = need(13, "plan_hash")? as u64;
            continue;
        }
        let at = rows.column(6).as_binary::<i32>();
        let at = (at.is_valid(i)).then(|| at_from(at.value(i))).flatten();
        let at = at.ok_or_else(|| StreamError::Progress { what: "position is not readable".into() })?;
        let pass = rows.column(3).as_primitive::<Int32Type>();
        into.regions.push(RegionProgress {
            region: RegionId::from_u64(need(1, "region")? as u64),
            position: Position { above: int(4, i).map(Seq), below: Seq(need(5, "below")?), at },
            pass: if pass.is_null(i) { 1 } else { pass.value(i) as u32 },
            rows: int(7, i).unwrap_or(0) as u64,
            scanned: int(8, i).unwrap_or(0) as u64,
            total: int(9, i).unwrap_or(0) as u64,
            finish_epoch: int(10, i).map(|e| Epoch(e as u64)),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use millstream_types::TableId;

    use super::*;

    #[test]
    fn progress_survives_its_rows() {
        let region = |n, at| RegionProgress {
            region: RegionId::new(TableId(3), n),
            position: Position { above: (n == 1).then_some(Seq(7)), below: Seq(90), at },
            pass: 2,
            rows: 5,
            scanned: 6,
            total: 7,
            finish_epoch: (n == 2).then_some(Epoch(8)),
        };
        let regions = vec![
            region(0, Pos::NotStarted),
            region(1, Pos::At(Key(vec![]))),
            region(2, Pos::End),
            region(3, Pos::At(Key(vec![2, 0]))),
        ];
        let p = Progress { epoch: Epoch(9), starts: 3, plan_hash: u64::MAX - 1, regions };
        let (rows, ops) = encode(InputId(0), &p).unwrap();
        assert_eq!(ops.len(), 5);
        let mut back = Progress::default();
        decode(&rows, &mut back).unwrap();
        assert_eq!(back, p);
    }

    #[test]
    fn a_row_that_cannot_be_read_is_an_error_and_not_a_fresh_start() {
        let p = Progress { epoch: Epoch(9), ..Progress::default() };
        let (rows, _) = encode(InputId(0), &p).unwrap();
        let mut columns = rows.columns().to_vec();
        columns[2] = Arc::new(arrow::array::Int16Array::from(vec![99]));
        let rows = RecordBatch::try_new(rows.schema(), columns).unwrap();
        assert!(decode(&rows, &mut Progress::default()).is_err());
    }
}
