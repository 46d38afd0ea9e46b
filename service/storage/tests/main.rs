//! Integration tests of the storage crate, in one binary.
#![expect(clippy::unwrap_used, reason = "tests stop at the first surprise")]

mod data;
mod engine;
