//! REST over real sockets with scripted services behind it. Goal: statuses, shapes, encodings and limits of every kind of route; not here: SQL, storage, jobs.
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod fakes;
mod probes;
mod rest;
mod rows;
mod sql;
