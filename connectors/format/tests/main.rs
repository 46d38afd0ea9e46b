//! The formats from outside: options to decoder, records to rows, rows to records.
//!
//! Method: small tables, records as text, rows as text. Each case also asserts that rows, ignored and bad records add up to the records.

#![expect(clippy::unwrap_used, reason = "tests may")]

mod garbage;
mod keys;
mod metadata;
mod round_trip;
mod support;
mod values;
