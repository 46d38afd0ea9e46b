//! Text forms of single values, exact in both directions: what a column reads is what it writes.

pub(crate) mod interval;
pub(crate) mod number;
pub(crate) mod temporal;
