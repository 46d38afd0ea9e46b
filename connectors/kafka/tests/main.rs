//! The connector against a real Apache Kafka.
//!
//! Goal: the promises of `millstream_types::log` hold on the wire: positions are exact (K1), a transaction has exactly one of four outcomes and the
//! caller can act on it. Method: one broker for all tests (`MILLSTREAM_E2E_KAFKA=host:port`, else started by `e2e/kafka/kafka.sh`), a topic of its own
//! for each test; tests that hurt a broker start a private one, behind a proxy that can lose an answer.

#![expect(clippy::unwrap_used, reason = "tests")]

mod admin;
mod broker;
mod outcomes;
mod proxy;
mod reading;
mod writing;
