//! The invariants of the design, each with its sentence, and the macro that runs them.

use std::fmt;

/// A named promise of the design. A breach stops the region or the job, never the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Invariant {
    R1,
    R2,
    R3,
    R4,
    S1,
    S2,
    S3,
    S4,
    K1,
    K2,
    M1,
    M2,
    M3,
    M4,
    M5,
    B1,
    B2,
    B4,
    B6,
    B7,
}

impl Invariant {
    pub fn sentence(self) -> &'static str {
        match self {
            Invariant::R1 => "a region's manifest versions are contiguous and its flushed sequence never goes back",
            Invariant::R2 => "rows below flushed are in SSTs of that manifest, rows at or after it are in the WAL",
            Invariant::R3 => {
                "no SST is listed twice in a manifest, none is deleted while a version, snapshot or pin can see it"
            }
            Invariant::R4 => "only the holder of the newest leader epoch can add a manifest version",
            Invariant::S1 => {
                "at each barrier downstream of a backfill equals the upstream rows as of that epoch up to the position"
            }
            Invariant::S2 => "at each checkpoint a view equals its query over the inputs as of the committed positions",
            Invariant::S3 => "a read_committed consumer of a derived topic sees every epoch once, whole, in order",
            Invariant::S4 => "epochs are strictly increasing in every stream",
            Invariant::K1 => {
                "completion is judged by consumer position against a captured end offset, never by the last record seen"
            }
            Invariant::K2 => "our offsets live in our commits; group offsets are for lag tools only",
            Invariant::M1 => "rows between two barriers belong to the later one",
            Invariant::M2 => "an update's old row is followed at once, in the same chunk, by its new row",
            Invariant::M3 => {
                "per stream key inserts and deletes alternate, and a deleted row equals the row last inserted"
            }
            Invariant::M4 => "watermarks never fall",
            Invariant::M5 => "a chunk has at least one row and at most the chunk size",
            Invariant::B1 => {
                "at every barrier what downstream has received equals content(P), and P is part of that checkpoint"
            }
            Invariant::B2 => "a backfill position never falls within a pass",
            Invariant::B4 => "each sequence in a persisted position is pinned",
            Invariant::B6 => "rows, scanned and progress never fall, across restarts too",
            Invariant::B7 => {
                "memory of one backfill is bounded by its chunk, its quantum and one row group per open SST"
            }
        }
    }
}

/// A broken invariant with its coordinates.
#[derive(Debug, Clone, thiserror::Error)]
#[error("invariant {invariant:?} broken: {}: {coordinates}", .invariant.sentence())]
pub struct Broken {
    pub invariant: Invariant,
    pub coordinates: String,
}

impl Broken {
    pub fn new(invariant: Invariant, coordinates: impl fmt::Display) -> Self {
        Self { invariant, coordinates: coordinates.to_string() }
    }
}

/// `invariant!(R1, next.flushed >= prev.flushed, "region {region}: {} then {}", a, b)` returns `Err(Broken.into())` when the condition is false.
#[macro_export]
macro_rules! invariant {
    ($name:ident, $cond:expr, $($arg:tt)+) => {
        if !$cond {
            return Err($crate::invariant::Broken::new($crate::invariant::Invariant::$name, format_args!($($arg)+)).into());
        }
    };
}
