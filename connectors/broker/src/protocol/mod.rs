//! The wire: frames of a connection (`frame.rs`), which APIs in which versions (`versions.rs`), a look at a request's lengths before it is decoded
//! (`shape.rs`), and answers as parts that may lie in files (`reply.rs`). Messages themselves are encoded and decoded by `kafka-protocol`, with two
//! exceptions that say why: the fetch answer (`fetch_response.rs`) and Produce before version 3 (`old_produce.rs`).

pub(crate) mod fetch_response;
pub(crate) mod frame;
pub(crate) mod old_produce;
pub(crate) mod reply;
pub(crate) mod shape;
mod shape_table;
pub(crate) mod versions;
