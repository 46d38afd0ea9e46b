//! REST over real sockets with scripted services behind it. Goal: statuses, shapes, encodings and limits of every kind of route; not here: SQL, storage, jobs.

mod fakes;
mod probes;
mod rest;
mod rows;
mod sql;
