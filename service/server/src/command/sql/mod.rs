//! `millstream sql`: statements over REST, each shown before the next runs. A script stops at the first failure; a person at a terminal goes on.

use std::{
    fs,
    io::{self, BufRead, IsTerminal, Read, Write},
    process::ExitCode,
    time::Duration,
};

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::{
    FAILED, complain,
    render::{StatementResult, render},
    say,
    statements::{is_blank, split},
};
use crate::cli::{Output, SqlArgs};

/// Longer than the service's own limit of a request, so that its answer is seen.
const TIMEOUT: Duration = Duration::from_secs(660);

#[derive(Debug, Deserialize)]
struct Answer {
    results: Vec<StatementResult>,
}

struct Client {
    runtime: Runtime,
    http: reqwest::Client,
    url: String,
    output: Output,
}

pub(crate) fn run(args: &SqlArgs) -> ExitCode {
    let client = match Client::new(args) {
        Ok(client) => client,
        Err(e) => {
            complain(format_args!("millstream sql: {e}"));
            return ExitCode::from(FAILED);
        }
    };
    let text = match (&args.query, &args.file) {
        (Some(query), _) => Ok(query.clone()),
        (None, Some(file)) if file.as_os_str() != "-" => {
            fs::read_to_string(file).map_err(|e| format!("cannot read {}: {e}", file.display()))
        }
        (None, None) if io::stdin().is_terminal() => return client.interactive(),
        (None, Some(_) | None) => {
            let mut text = String::new();
            io::stdin().read_to_string(&mut text).map(|_| text).map_err(|e| format!("cannot read standard input: {e}"))
        }
    };
    match text.and_then(|text| client.script(&text)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            complain(format_args!("error: {e}"));
            ExitCode::from(FAILED)
        }
    }
}

impl Client {
    fn new(args: &SqlArgs) -> Result<Self, String> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
        let http = reqwest::Client::builder().timeout(TIMEOUT).build().map_err(|e| e.to_string())?;
        Ok(Self { runtime, http, url: args.url.trim_end_matches('/').to_owned(), output: args.output })
    }

    /// All statements of the text, the last one with or without a semicolon.
    fn script(&self, text: &str) -> Result<(), String> {
        let (statements, rest) = split(text);
        let last = (!is_blank(rest)).then_some(rest);
        statements.into_iter().chain(last).try_for_each(|s| self.execute(s))
    }

    fn interactive(&self) -> ExitCode {
        say("millstream sql: end a statement with ; and leave with \\q");
        let mut pending = String::new();
        loop {
            if write!(io::stdout(), "{}", if pending.is_empty() { "millstream=> " } else { "millstream-> " }).is_err()
                || io::stdout().flush().is_err()
            {
                return ExitCode::SUCCESS;
            }
            let mut line = String::new();
            match io::stdin().lock().read_line(&mut line) {
                Ok(0) => return ExitCode::SUCCESS,
                Ok(_) if is_blank(&pending) && matches!(line.trim(), "\\q" | "quit" | "exit") => {
                    return ExitCode::SUCCESS;
                }
                Ok(_) => pending.push_str(&line),
                Err(e) => {
                    complain(format_args!("error: cannot read standard input: {e}"));
                    return ExitCode::from(FAILED);
                }
            }
            let (statements, rest) = split(&pending);
            for statement in statements {
                if let Err(e) = self.execute(statement) {
                    complain(format_args!("error: {e}"));
                    break;
                }
            }
            pending = if is_blank(rest) { String::new() } else { rest.to_owned() };
        }
    }

    fn execute(&self, statement: &str) -> Result<(), String> {
        let answer = self.runtime.block_on(self.post(statement.trim()))?;
        for result in &answer.results {
            for notice in &result.notices {
                complain(format_args!("notice: {notice}"));
            }
            if let Some(text) = render(result, self.output) {
                say(text);
            }
        }
        Ok(())
    }

    async fn post(&self, statement: &str) -> Result<Answer, String> {
        let url = format!("{}/v1/sql", self.url);
        let sent = self.http.post(&url).json(&json!({ "query": statement })).send().await;
        let answer = sent.map_err(|e| {
            let hint = if e.is_connect() { "; is `millstream serve` running there? (--url)" } else { "" };
            format!("{}{hint}", millstream_types::error::chain(&e))
        })?;
        let status = answer.status();
        let text = answer.text().await.map_err(|e| millstream_types::error::chain(&e))?;
        if status.is_success() {
            return serde_json::from_str(&text).map_err(|e| format!("unexpected answer of {url}: {e}"));
        }
        Err(refused(&text).unwrap_or_else(|| format!("{url} answered {status}: {}", text.trim())))
    }
}

/// `message (CODE)` and where in the statement, from the error body.
fn refused(text: &str) -> Option<String> {
    let body: Value = serde_json::from_str(text).ok()?;
    let message = body.get("message")?.as_str()?;
    let code = body.get("error_code")?.as_str()?;
    Some(format!("{message} ({code})"))
}
