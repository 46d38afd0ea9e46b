//! The binary without anything outside: usage, exit codes and what is said when something is not there.

mod command_line;
