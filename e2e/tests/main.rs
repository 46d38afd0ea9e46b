//! End-to-end scenarios on the embedded broker and on Apache Kafka, with a real server process. Every scenario ends with the oracle.
//!
//! `cargo test -p millstream-e2e -- embedded` runs those on one broker, `-- splice` one scenario on both. `MILLSTREAM_E2E_BROKERS` (`src/broker/choice.rs`) and
//! `MILLSTREAM_E2E_S3=0|1` (`src/s3.rs`) ask for what a machine may not have; without them what is missing is skipped, which is told. `MILLSTREAM_E2E_SCALE=1`
//! is full size, `MILLSTREAM_SEED=n` repeats a random scenario, `MILLSTREAM_BIN=path` tests a given binary.
#![expect(clippy::print_stdout, reason = "scenarios print their seed and figures")]

mod bad_input;
mod faults;
mod fencing;
mod history;
mod kills;
mod object_store;
mod other_clients;
mod splice;
mod tails;
mod trims;
