//! The connector against the embedded broker and Apache Kafka.
//!
//! Goal: the promises of `millstream_types::log` hold on the wire: positions are exact (K1), a transaction has exactly one of four outcomes and the
//! caller can act on it. Method: each test runs on both brokers as `millstream_e2e::broker` chooses them, with topics of its own; tests that hurt a broker
//! start a private one, behind a proxy that can lose an answer.

#![expect(clippy::unwrap_used, reason = "tests")]

mod admin;
mod broker;
mod outcomes;
mod proxy;
mod reading;
mod writing;
