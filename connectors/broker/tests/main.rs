//! The embedded broker with a real client (librdkafka).
//!
//! Goal: what a client can see is what Apache Kafka shows, and nothing acknowledged is lost, whatever ends the process. Method: a broker of its own for each
//! test, in this process; tests that kill start `embedded-broker`. No fixed sleeps: every wait has a condition and a deadline.

#![expect(clippy::unwrap_used, reason = "tests")]

mod admin;
mod crash;
#[cfg(feature = "faults")]
mod faults;
mod foreign;
mod groups;
mod records;
mod suite;
mod support;
mod transactions;
