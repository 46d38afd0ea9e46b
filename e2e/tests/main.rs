//! End-to-end scenarios on a real Apache Kafka and a real server process. Every scenario ends with the oracle.
//!
//! `MILLSTREAM_E2E_SCALE=1` runs them at full size (0.2 unless set), `MILLSTREAM_SEED=n` repeats one, `MILLSTREAM_BIN=path` tests a given binary.
#![expect(clippy::print_stdout, reason = "scenarios print their seed and figures")]

mod bad_input;
mod fencing;
mod history;
mod kills;
mod object_store;
mod other_clients;
mod splice;
mod tails;
