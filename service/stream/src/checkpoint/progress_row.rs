//! The layout of a job's progress region: where each input region stands, and one row for the job itself.
//!
//! Key (input, region); the job's own row has input [`JOB_INPUT`]. Versioned by `format`; a row that cannot be read quarantines the job, it is never
//! taken for "nothing done yet".

use millstream_types::{Column, SqlType, TableSchema};

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
