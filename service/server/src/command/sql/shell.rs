//! The shell: reads with rustyline, runs, goes on. An input is complete at its semicolon or when it is a backslash command, so lines may be broken anywhere
//! and the history holds whole statements.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use rustyline::{
    Context, Editor, Helper,
    completion::Completer,
    config::{CompletionType, Config},
    error::ReadlineError,
    highlight::Highlighter,
    hint::Hinter,
    history::FileHistory,
    validate::{ValidationContext, ValidationResult, Validator},
};

use super::{
    complete::{Names, candidates},
    session::{Ended, Session},
};
use crate::command::{
    complain, mention,
    statements::{is_blank, split},
};

const PROMPT: &str = "millstream=> ";
const HISTORY_FILE: &str = ".millstream_history";
const HISTORY_ENTRIES: usize = 10_000;
/// A prompt must not wait long for names to complete.
const NAMES_LIMIT: Duration = Duration::from_secs(2);
/// Others make tables too.
const NAMES_AGE: Duration = Duration::from_secs(60);

struct SqlHelper {
    names: Arc<Mutex<Names>>,
}

impl Helper for SqlHelper {}
impl Highlighter for SqlHelper {}

impl Hinter for SqlHelper {
    type Hint = String;
}

impl Completer for SqlHelper {
    type Candidate = String;

    fn complete(&self, line: &str, at: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<String>)> {
        Ok(candidates(&self.names.lock().unwrap_or_else(PoisonError::into_inner), line, at))
    }
}

impl Validator for SqlHelper {
    fn validate(&self, input: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        Ok(if is_complete(input.input()) { ValidationResult::Valid(None) } else { ValidationResult::Incomplete })
    }
}

/// Nothing is open at the end, or the whole is a word that leaves.
fn is_complete(input: &str) -> bool {
    leaves(input) || is_blank(split(input).1)
}

fn leaves(input: &str) -> bool {
    matches!(input.trim(), "quit" | "exit")
}

pub(crate) fn run(session: &mut Session, history: Option<&Path>) -> Result<(), String> {
    let failed = |e: ReadlineError| format!("error: the terminal cannot be used: {e}");
    let config = Config::builder().completion_type(CompletionType::List).max_history_size(HISTORY_ENTRIES);
    let mut editor: Editor<SqlHelper, FileHistory> =
        Editor::with_config(config.map_err(failed)?.build()).map_err(failed)?;
    let names = Arc::new(Mutex::new(Names::default()));
    editor.set_helper(Some(SqlHelper { names: Arc::clone(&names) }));
    let history = history.map(Path::to_path_buf).or_else(default_history);
    if let Some(path) = history.as_ref().filter(|p| p.exists())
        && let Err(e) = editor.load_history(path)
    {
        complain(format_args!("the history {} cannot be read: {e}", path.display()));
    }
    mention("millstream sql: a statement ends with ;  \\? helps, \\q leaves")?;
    let mut named: Option<Instant> = None;
    loop {
        if session.names_stale || named.is_none_or(|at| at.elapsed() > NAMES_AGE) {
            // Without an answer the old names stay; the next statement tells what is wrong.
            if let Some(found) = Names::load(session, NAMES_LIMIT) {
                *names.lock().unwrap_or_else(PoisonError::into_inner) = found;
            }
            (session.names_stale, named) = (false, Some(Instant::now()));
        }
        match editor.readline(PROMPT) {
            Ok(input) if is_blank(&input) => {}
            Ok(input) => {
                remember(&mut editor, history.as_deref(), &input);
                if leaves(&input) || matches!(session.script(&input).map_err(told), Err(true)) {
                    return Ok(());
                }
            }
            // The line is dropped.
            Err(ReadlineError::Interrupted) => {}
            Err(ReadlineError::Eof) => return Ok(()),
            Err(e) => return Err(failed(e)),
        }
    }
}

/// Whether it was the wish to leave; a failure is said, and the shell goes on.
fn told(ended: Ended) -> bool {
    match ended {
        Ended::Quit | Ended::Closed => true,
        Ended::Failed(text) => {
            complain(text);
            false
        }
    }
}

fn default_history() -> Option<PathBuf> {
    std::env::home_dir().map(|home| home.join(HISTORY_FILE))
}

/// Written at once, so that a second shell and a crash lose nothing.
fn remember(editor: &mut Editor<SqlHelper, FileHistory>, history: Option<&Path>, input: &str) {
    let kept = editor.add_history_entry(input.trim_end()).and_then(|_| match history {
        Some(path) => editor.append_history(path),
        None => Ok(()),
    });
    if let Err(e) = kept {
        complain(format_args!("the history cannot be kept: {e}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_is_complete_at_its_semicolon_or_as_a_command() {
        for complete in ["SELECT 1;", "SELECT\n1; -- x", "\\d", "\\d orders", "", "quit", "SELECT 1 \\watch", "-- x"] {
            assert!(is_complete(complete), "{complete}");
        }
        for open in ["SELECT 1", "SELECT ';", "SELECT 1; SELECT", "quit now", "/* ;"] {
            assert!(!is_complete(open), "{open}");
        }
    }
}
