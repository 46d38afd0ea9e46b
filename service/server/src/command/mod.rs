//! One command a file; each answers an exit code.

pub(crate) mod check;
#[cfg(feature = "dev")]
pub(crate) mod dev;
pub(crate) mod render;
pub(crate) mod serve;
pub(crate) mod sql;
pub(crate) mod statements;
pub(crate) mod topic;

use std::{fmt::Display, io::Write, path::Path, process::ExitCode};

use millstream_config::Config;

pub(crate) const FAILED: u8 = 1;

/// A line on standard output. A closed pipe is the reader's wish: the process ends quietly.
pub(crate) fn say(text: impl Display) {
    if writeln!(std::io::stdout().lock(), "{text}").is_err() {
        std::process::exit(0);
    }
}

/// A line on standard error for a command that has no log.
pub(crate) fn complain(text: impl Display) {
    // Nobody is left to tell if standard error is gone too.
    drop(writeln!(std::io::stderr().lock(), "{text}"));
}

/// The configuration with what serving needs, or the exit code after saying what is wrong.
pub(crate) fn load(path: &Path) -> Result<Config, ExitCode> {
    let loaded = Config::load(path).and_then(|config| config.validate_serve().map(|()| config));
    loaded.map_err(|e| {
        complain(format_args!("millstream: {}", millstream_types::error::chain(&e)));
        ExitCode::from(FAILED)
    })
}
