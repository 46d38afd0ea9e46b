//! The binary as a script or a person at a terminal meets it: usage, exit codes, what is said when something is not there, the shell against a scripted service.
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod cluster;
mod command_line;
#[cfg(feature = "dev")]
mod dev;
mod fake_service;
mod output;
mod shell;
mod terminal;
mod topic;
mod topic_trouble;
mod topic_usage;
