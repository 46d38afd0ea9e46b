//! The one error of this crate: it lists everything that is wrong, each with the full path of its key.

use std::{fmt, io, path::PathBuf};

#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read the config file {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{origin} is not valid YAML")]
    Yaml { origin: String, source: serde_yaml_ng::Error },
    #[error("{origin}: {}", list(problems))]
    Invalid { origin: String, problems: Vec<Problem> },
}

impl ConfigError {
    /// What is wrong with single keys; empty when the file could not be read at all.
    pub fn problems(&self) -> &[Problem] {
        match self {
            ConfigError::Invalid { problems, .. } => problems,
            ConfigError::Read { .. } | ConfigError::Yaml { .. } => &[],
        }
    }
}

/// One thing to correct.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// `stream.backfill.quantum`; empty for the document as a whole.
    pub key: String,
    /// What is wrong and what would be right. Never holds the value of a secret.
    pub message: String,
}

impl Problem {
    pub(crate) fn new(key: impl Into<String>, message: impl Into<String>) -> Problem {
        Problem { key: key.into(), message: message.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.key.is_empty() { f.write_str(&self.message) } else { write!(f, "`{}` {}", self.key, self.message) }
    }
}

fn list(problems: &[Problem]) -> String {
    match problems {
        [one] => one.to_string(),
        many => {
            let lines: Vec<String> = many.iter().map(|problem| format!("\n  - {problem}")).collect();
            format!("{} problems{}", many.len(), lines.concat())
        }
    }
}
