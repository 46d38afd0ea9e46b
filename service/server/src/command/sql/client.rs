//! `POST /v1/sql` and what comes back. Owns: the two ways in which it can fail. Not here: how that is shown.

use std::time::Duration;

use millstream_types::error::chain;
use serde::Deserialize;
use serde_json::json;

use crate::command::render::StatementResult;

/// Longer than the service's own limit of a request, so that its answer is seen.
const TIMEOUT: Duration = Duration::from_secs(660);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug, Deserialize)]
struct Answer {
    results: Vec<StatementResult>,
}

/// The body of a refused request; the place is in the text of the statement, from 1.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct Refusal {
    pub(crate) error_code: String,
    pub(crate) message: String,
    #[serde(default)]
    pub(crate) details: Details,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct Details {
    pub(crate) line: Option<usize>,
    pub(crate) column: Option<usize>,
    pub(crate) hint: Option<String>,
    pub(crate) cause: Option<String>,
}

#[derive(Debug)]
pub(crate) enum Failure {
    /// The service answered that it will not.
    Refused(Box<Refusal>),
    /// No answer, or none that can be read.
    NoAnswer(String),
}

#[derive(Debug, Clone)]
pub(crate) struct Client {
    http: reqwest::Client,
    url: String,
}

/// Where statements go. `HOST:PORT` is what people have at hand, so it is enough.
fn address(url: &str) -> Result<String, String> {
    let full = if url.contains("://") { url.to_owned() } else { format!("http://{url}") };
    let wrong = |why: &str| format!("--url {url} {why}: write http://HOST:PORT, as in http://127.0.0.1:8080");
    let parsed = reqwest::Url::parse(&full).map_err(|e| wrong(&format!("is no address ({e})")))?;
    if !matches!(parsed.scheme(), "http" | "https") {
        return Err(wrong("is neither http nor https"));
    }
    if parsed.query().is_some() || parsed.fragment().is_some() {
        return Err(wrong("has more than an address"));
    }
    Ok(format!("{}/v1/sql", full.trim_end_matches('/')))
}

impl Client {
    pub(crate) fn new(url: &str) -> Result<Self, String> {
        let http = reqwest::Client::builder().timeout(TIMEOUT).connect_timeout(CONNECT_TIMEOUT).build();
        Ok(Self { http: http.map_err(|e| chain(&e))?, url: address(url)? })
    }

    /// Returns when the statements are done. Dropping it closes the connection, which ends a query in the service.
    pub(crate) async fn execute(&self, text: &str) -> Result<Vec<StatementResult>, Failure> {
        let sent = self.http.post(&self.url).json(&json!({ "query": text })).send().await;
        let answer = sent.map_err(|e| {
            let hint = if e.is_connect() { "; is `millstream serve` running there? (--url)" } else { "" };
            Failure::NoAnswer(format!("{}{hint}", chain(&e)))
        })?;
        let status = answer.status();
        let text = answer.text().await.map_err(|e| Failure::NoAnswer(chain(&e)))?;
        if status.is_success() {
            let parsed: Result<Answer, _> = serde_json::from_str(&text);
            return parsed
                .map(|a| a.results)
                .map_err(|e| Failure::NoAnswer(format!("unexpected answer of {}: {e}", self.url)));
        }
        Err(match serde_json::from_str(&text) {
            Ok(refusal) => Failure::Refused(Box::new(refusal)),
            Err(_) => Failure::NoAnswer(format!("{} answered {status}: {}", self.url, text.trim())),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_needs_no_scheme_and_a_wrong_one_is_told_with_the_right_form() {
        for (given, address_of) in [
            ("127.0.0.1:8080", "http://127.0.0.1:8080/v1/sql"),
            ("localhost:8080/", "http://localhost:8080/v1/sql"),
            ("[::1]:8080", "http://[::1]:8080/v1/sql"),
            ("http://a/prefix/", "http://a/prefix/v1/sql"),
            ("https://a", "https://a/v1/sql"),
        ] {
            assert_eq!(address(given).unwrap(), address_of);
        }
        for given in ["", "ftp://a", "http://", "a:port", "http://a?b"] {
            assert!(address(given).unwrap_err().contains("write http://HOST:PORT"), "{given}");
        }
    }
}
