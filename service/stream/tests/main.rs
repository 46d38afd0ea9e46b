//! Tests of the stream engine through its public doors.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod aggregation;
mod end_to_end;
mod machine;
mod operators;
mod outcomes;
mod real_storage;
mod support;
