//! `millstream sql`: statements over REST, each shown before the next runs. A script stops at the first failure; a person at a terminal goes on.

pub(crate) mod client;
mod complete;
mod failure;
mod meta;
mod session;
mod shell;

use std::{
    fs,
    io::{self, IsTerminal, Read},
    path::Path,
    process::ExitCode,
};

use self::session::{Ended, Session};
use super::{FAILED, complain};
use crate::cli::SqlArgs;

pub(crate) fn run(args: &SqlArgs) -> ExitCode {
    match command(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            complain(e);
            ExitCode::from(FAILED)
        }
    }
}

fn command(args: &SqlArgs) -> Result<(), String> {
    let shell = args.query.is_none() && args.file.is_none() && io::stdin().is_terminal();
    let mut session = Session::new(args, shell).map_err(|e| format!("error: {e}"))?;
    if shell {
        return shell::run(&mut session, args.history.as_deref());
    }
    let text = match (&args.query, &args.file) {
        (Some(query), _) => query.clone(),
        (None, file) => read(file.as_deref())?,
    };
    match session.script(&text) {
        Ok(()) | Err(Ended::Quit | Ended::Closed) => Ok(()),
        Err(Ended::Failed(e)) => Err(e),
    }
}

/// A file; none and `-` are standard input.
fn read(file: Option<&Path>) -> Result<String, String> {
    match file.filter(|f| f.as_os_str() != "-") {
        Some(file) => fs::read_to_string(file).map_err(|e| format!("error: cannot read {}: {e}", file.display())),
        None => {
            let mut text = String::new();
            let read = io::stdin().read_to_string(&mut text);
            read.map(|_| text).map_err(|e| format!("error: cannot read standard input: {e}"))
        }
    }
}
