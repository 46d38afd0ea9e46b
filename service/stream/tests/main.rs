//! Tests of the stream engine through its public doors.

mod aggregation;
mod end_to_end;
mod machine;
mod operators;
mod support;
