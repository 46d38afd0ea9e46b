//! What one run of `millstream sql` remembers and does: settings, the last statement, running pieces one after the other.

use std::{
    fmt::Display,
    time::{Duration, Instant},
};

use tokio::runtime::Runtime;

use super::{
    client::{Client, Failure},
    failure, meta,
};
use crate::{
    cli::{Output, SqlArgs},
    command::{
        Unwritten, complain, escape, print,
        render::{Reader, StatementResult, expanded, render},
        statements::{self, Piece},
    },
};

/// Why a script does not go on.
#[derive(Debug)]
pub(crate) enum Ended {
    /// `\q`.
    Quit,
    /// Nobody reads the output any more.
    Closed,
    /// What to say.
    Failed(String),
}

impl From<String> for Ended {
    fn from(text: String) -> Self {
        Ended::Failed(text)
    }
}

impl From<Unwritten> for Ended {
    fn from(e: Unwritten) -> Self {
        match e {
            Unwritten::Closed => Ended::Closed,
            e @ Unwritten::Failed(_) => Ended::Failed(format!("error: {e}")),
        }
    }
}

/// A line on standard output.
pub(super) fn say(text: impl Display) -> Result<(), Ended> {
    Ok(print(text)?)
}

pub(crate) struct Session {
    runtime: Runtime,
    client: Client,
    pub(crate) output: Output,
    pub(crate) timing: bool,
    pub(crate) expanded: bool,
    /// For `\watch`.
    pub(crate) last: Option<String>,
    /// Files that `\i` is inside of.
    pub(crate) depth: usize,
    /// Ctrl-C ends what runs and not the process.
    at_terminal: bool,
    /// A statement may have changed what completion offers.
    pub(crate) names_stale: bool,
}

impl Session {
    pub(crate) fn new(args: &SqlArgs, at_terminal: bool) -> Result<Self, String> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
        Ok(Self {
            runtime,
            client: Client::new(&args.url)?,
            output: args.output,
            timing: false,
            expanded: false,
            last: None,
            depth: 0,
            at_terminal,
            names_stale: true,
        })
    }

    /// All pieces of the text, the last one with or without a semicolon.
    pub(crate) fn script(&mut self, text: &str) -> Result<(), Ended> {
        let mut pieces = statements::all(text).into_iter();
        while let Some(piece) = pieces.next() {
            let done = match piece {
                Piece::Statement { text, line } => self.statement(text, line),
                Piece::Command(command) => meta::run(self, command),
            };
            if matches!(done, Err(Ended::Closed)) {
                return Err(not_run(pieces));
            }
            done?;
        }
        Ok(())
    }

    /// Runs and shows one statement. `line` is where it stands in its script.
    pub(crate) fn statement(&mut self, text: &str, line: usize) -> Result<(), Ended> {
        let begun = Instant::now();
        let results = self.ask(text).map_err(|e| match e {
            Some(e) => failure::show(&e, text, line),
            None => "cancelled".to_owned(),
        })?;
        let took = begun.elapsed();
        self.last = Some(text.to_owned());
        self.names_stale |= changes_names(text);
        for result in &results {
            self.show(result)?;
        }
        if self.timing {
            say(format_args!("Time: {:.3} ms", took.as_secs_f64() * 1000.0))?;
        }
        Ok(())
    }

    fn show(&self, result: &StatementResult) -> Result<(), Ended> {
        for notice in &result.notices {
            complain(format_args!("notice: {}", escape::lines(notice)));
        }
        let text = match &result.rows {
            Some(rows) if self.expanded && self.output == Output::Table => Some(expanded(&result.columns, rows)),
            _ => render(result, self.output, Reader::of_stdout()),
        };
        text.map_or(Ok(()), say)
    }

    /// `None` = Ctrl-C.
    pub(crate) fn ask(&self, text: &str) -> Result<Vec<StatementResult>, Option<Failure>> {
        self.runtime.block_on(async {
            tokio::select! {
                answer = self.client.execute(text) => answer.map_err(Some),
                () = interrupted(self.at_terminal) => Err(None),
            }
        })
    }

    /// An answer that nobody waits for longer than `limit`.
    pub(crate) fn ask_within(&self, text: &str, limit: Duration) -> Option<Vec<StatementResult>> {
        self.runtime.block_on(async { tokio::time::timeout(limit, self.client.execute(text)).await.ok()?.ok() })
    }

    /// `false` = Ctrl-C came first.
    pub(crate) fn sleep(&self, time: Duration) -> bool {
        self.runtime.block_on(async {
            tokio::select! {
                () = tokio::time::sleep(time) => true,
                () = interrupted(self.at_terminal) => false,
            }
        })
    }
}

/// In a script Ctrl-C ends the process, as nobody catches it here.
async fn interrupted(at_terminal: bool) {
    if !at_terminal || tokio::signal::ctrl_c().await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// How a script ends whose reader is gone: quietly, unless statements are left that may have been there to change something.
fn not_run<'a>(mut rest: impl Iterator<Item = Piece<'a>>) -> Ended {
    let statement = rest.find_map(|piece| match piece {
        Piece::Statement { line, .. } => Some(line),
        Piece::Command(_) => None,
    });
    match statement {
        None => Ended::Closed,
        Some(line) => Ended::Failed(format!(
            "error: nobody reads the output any more: the statements from line {line} on were not run"
        )),
    }
}

fn changes_names(text: &str) -> bool {
    let first = text.split_whitespace().next().unwrap_or_default();
    ["CREATE", "DROP", "ALTER"].iter().any(|w| first.eq_ignore_ascii_case(w))
}
