//! Rows to bytes: [`json`], [`csv`], Arrow IPC ([`respond`] chooses by `Accept`). Lossless: what a format cannot hold becomes text, never a rounded number.

pub mod csv;
pub mod json;
pub mod respond;
mod value;

pub use value::{ColumnWriter, normalise};
