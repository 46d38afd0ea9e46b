//! The binary without anything outside: usage, exit codes and what is said when something is not there.
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod command_line;
