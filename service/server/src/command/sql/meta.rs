//! Backslash commands: what is said to the shell and not to the service. The names are those of psql.

use std::time::Duration;

use super::session::{Ended, Session, say};
use crate::command::{
    escape,
    statements::{Piece, all},
};

/// Files that call each other.
const MAX_DEPTH: usize = 16;
const WATCH: f64 = 2.0;

pub(crate) const HELP: &str = r"  \d              tables, views and sinks
  \d NAME         columns of one of them, and the statement that made it
  \dt \dv \ds     tables; views; sinks
  \dj \db         jobs; backfills
  \timing [on|off]  how long each statement takes
  \x [on|off]     one line for each value
  \watch [SECONDS]  repeat the last statement until Ctrl-C
  \i FILE         run a file
  \?              this help
  \q              leave, as does Ctrl-D

A statement ends with ; and may have many lines. Ctrl-C drops the line or cancels the running query, Tab completes, Ctrl-R searches the history.";

/// For completion.
pub(crate) const NAMES: [&str; 12] =
    ["\\d", "\\dt", "\\dv", "\\ds", "\\dj", "\\db", "\\timing", "\\x", "\\watch", "\\i", "\\?", "\\q"];

const ALL: &str = "SELECT 'table' AS kind, name, topic, CAST(NULL AS VARCHAR) AS state, \"rows\" FROM millstream.tables \
    UNION ALL SELECT 'view', name, topic, state, \"rows\" FROM millstream.views \
    UNION ALL SELECT 'sink', name, topic, state, CAST(NULL AS BIGINT) FROM millstream.sinks ORDER BY kind, name";

/// `command` is without its backslash.
pub(crate) fn run(session: &mut Session, command: &str) -> Result<(), Ended> {
    let (name, argument) = command.split_once(char::is_whitespace).unwrap_or((command, ""));
    let argument = argument.trim().trim_end_matches(';').trim_end();
    match name.trim_end_matches(';') {
        "q" | "quit" => Err(Ended::Quit),
        "?" | "h" | "help" => say(HELP),
        "d" if argument.is_empty() => listing(session, ALL),
        "d" | "d+" => describe(session, argument),
        "dt" => listing(session, "SHOW TABLES"),
        "dv" => listing(session, "SHOW VIEWS"),
        "ds" => listing(session, "SHOW SINKS"),
        "dj" => listing(session, "SHOW JOBS"),
        "db" => listing(session, "SHOW BACKFILLS"),
        "timing" => {
            session.timing = switched("timing", argument, session.timing)?;
            say(format_args!("timing is {}", if session.timing { "on" } else { "off" }))
        }
        "x" => {
            session.expanded = switched("x", argument, session.expanded)?;
            say(format_args!("expanded display is {}", if session.expanded { "on" } else { "off" }))
        }
        "watch" => watch(session, argument),
        "i" => include(session, argument),
        other => Err(Ended::Failed(format!("error: there is no command \\{other}: \\? lists them"))),
    }
}

/// Runs a statement of ours; `\watch` still repeats the user's last one.
fn listing(session: &mut Session, statement: &str) -> Result<(), Ended> {
    let last = session.last.take();
    let done = session.statement(statement, 1);
    session.last = last;
    done
}

fn describe(session: &mut Session, name: &str) -> Result<(), Ended> {
    // Anything but a name would be a second statement.
    if all(name) != [(Piece::Statement { text: name, line: 1 })] {
        return Err(Ended::Failed("error: write \\d NAME".to_owned()));
    }
    listing(session, &format!("DESCRIBE {name}"))?;
    // System tables have no statement.
    let Ok(results) = session.ask(&format!("SHOW CREATE {name}")) else { return Ok(()) };
    let text = results.first().and_then(|r| r.rows.as_ref()?.first()?.last()?.as_str());
    if let Some(text) = text {
        say(format_args!("made by: {}", escape::lines(text)))?;
    }
    Ok(())
}

fn switched(name: &str, argument: &str, now: bool) -> Result<bool, Ended> {
    match argument {
        "" => Ok(!now),
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(Ended::Failed(format!("error: write \\{name}, \\{name} on or \\{name} off"))),
    }
}

/// Sleeps first: the statement has just been shown.
fn watch(session: &mut Session, argument: &str) -> Result<(), Ended> {
    let seconds = if argument.is_empty() { Some(WATCH) } else { argument.parse().ok() };
    let Some(seconds) = seconds.filter(|s| (0.1..=86_400.0).contains(s)) else {
        return Err(Ended::Failed("error: write \\watch or \\watch SECONDS, from 0.1 to 86400".to_owned()));
    };
    let Some(statement) = session.last.clone() else {
        return Err(Ended::Failed("error: there is no statement to repeat yet".to_owned()));
    };
    while session.sleep(Duration::from_secs_f64(seconds)) {
        say(format_args!("\n{} every {seconds} s", chrono::Local::now().format("%Y-%m-%d %H:%M:%S")))?;
        session.statement(&statement, 1)?;
    }
    Ok(())
}

fn include(session: &mut Session, file: &str) -> Result<(), Ended> {
    let file = file.trim_matches('\'');
    if file.is_empty() {
        return Err(Ended::Failed("error: write \\i FILE".to_owned()));
    }
    if session.depth >= MAX_DEPTH {
        return Err(Ended::Failed(format!("error: \\i is {MAX_DEPTH} files deep: do they call each other?")));
    }
    let text = std::fs::read_to_string(file).map_err(|e| format!("error: cannot read {file}: {e}"))?;
    session.depth += 1;
    let done = session.script(&text);
    session.depth -= 1;
    done.map_err(|e| match e {
        Ended::Failed(text) => Ended::Failed(format!("{file}: {text}")),
        other => other,
    })
}
