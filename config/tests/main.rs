//! Goal: a wrong file never starts a service, and the person who wrote it learns every mistake with its key and the way out.
//!
//! Method: each `testdata/bad/*.yaml` opens with the messages it must give as `#! ` lines; `testdata/v1/` keeps samples that every release must load; the
//! generated reference and schema are compared with the types.

mod bad;
mod chart;
mod generated;
mod load;
mod values;
