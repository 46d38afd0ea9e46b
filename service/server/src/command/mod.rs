//! One command a file; each answers an exit code.

pub(crate) mod check;
#[cfg(feature = "dev")]
pub(crate) mod dev;
pub(crate) mod escape;
pub(crate) mod render;
pub(crate) mod serve;
pub(crate) mod sql;
pub(crate) mod statements;
pub(crate) mod topic;

use std::{
    fmt::Display,
    io::{self, Write},
    path::Path,
    process::ExitCode,
};

use millstream_config::Config;

pub(crate) const FAILED: u8 = 1;

/// Why standard output did not take something.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unwritten {
    /// The reader has what it wanted, as `head` does.
    #[error("nobody reads the output any more")]
    Closed,
    /// A full disk, mostly: what should be there is not, so the command has failed.
    #[error("the output cannot be written: {0}")]
    Failed(io::Error),
}

impl From<io::Error> for Unwritten {
    fn from(e: io::Error) -> Self {
        if e.kind() == io::ErrorKind::BrokenPipe { Unwritten::Closed } else { Unwritten::Failed(e) }
    }
}

/// Bytes on standard output, now.
pub(crate) fn write_out(bytes: &[u8]) -> Result<(), Unwritten> {
    let mut out = io::stdout().lock();
    Ok(out.write_all(bytes).and_then(|()| out.flush())?)
}

/// A line on standard output.
pub(crate) fn print(text: impl Display) -> Result<(), Unwritten> {
    write_out(format!("{text}\n").as_bytes())
}

/// A line for whoever looks on while something goes on that does not depend on it: a reader who is gone is no reason to stop.
pub(crate) fn mention(text: impl Display) -> Result<(), String> {
    unless_closed(print(text))
}

pub(crate) fn unless_closed(written: Result<(), Unwritten>) -> Result<(), String> {
    match written {
        Ok(()) | Err(Unwritten::Closed) => Ok(()),
        Err(e) => Err(e.to_string()),
    }
}

/// The last thing that a command does: its answer. Nobody who reads it is a quiet end.
pub(crate) fn answer(text: impl Display) -> Result<ExitCode, String> {
    mention(text).map(|()| ExitCode::SUCCESS)
}

/// A line on standard error for a command that has no log.
pub(crate) fn complain(text: impl Display) {
    // Nobody is left to tell if standard error is gone too.
    drop(writeln!(io::stderr().lock(), "{text}"));
}

/// The configuration with what serving needs, or the exit code after saying what is wrong.
pub(crate) fn load(path: &Path) -> Result<Config, ExitCode> {
    let loaded = Config::load(path).and_then(|config| config.validate_serve().map(|()| config));
    loaded.map_err(|e| {
        complain(format_args!("millstream: {}", millstream_types::error::chain(&e)));
        ExitCode::from(FAILED)
    })
}
