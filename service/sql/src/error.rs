//! One error for every statement: what is wrong, where in the text, and what to write instead.

use std::fmt;

use datafusion::{
    common::{DataFusionError, SchemaError, diagnostic::Diagnostic},
    sql::sqlparser::{parser::ParserError, tokenizer::Location},
};
use millstream_storage::StorageError;
use millstream_types::{BoxError, Classified, ErrorKind, LogError};

use crate::parser::statement::ObjectKind;

/// Bytes of a message.
const MOST_TEXT: usize = 4096;

/// A refused or failed statement.
#[derive(Debug, thiserror::Error)]
pub struct SqlError {
    kind: ErrorKind,
    /// Stable upper-case name for clients, such as `TABLE_NOT_FOUND`.
    pub code: &'static str,
    pub message: String,
    /// From 1; counted over the whole text that was sent.
    pub line: Option<u32>,
    /// From 1, in characters.
    pub column: Option<u32>,
    /// What to write instead.
    pub hint: Option<String>,
    #[source]
    pub source: Option<BoxError>,
}

impl fmt::Display for SqlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let (Some(line), Some(column)) = (self.line, self.column) {
            write!(f, "line {line}, column {column}: ")?;
        }
        f.write_str(&self.message)?;
        if let Some(hint) = &self.hint {
            write!(f, " (hint: {hint})")?;
        }
        Ok(())
    }
}

impl SqlError {
    pub fn new(kind: ErrorKind, code: &'static str, message: impl Into<String>) -> Self {
        Self { kind, code, message: message.into(), line: None, column: None, hint: None, source: None }
    }

    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, "INVALID_STATEMENT", message)
    }

    pub fn syntax(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, "SYNTAX_ERROR", message)
    }

    /// Valid SQL that Millstream does not do; the hint says what to write instead.
    pub fn unsupported(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, "NOT_SUPPORTED", message).hint(hint)
    }

    pub fn option(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, "INVALID_OPTION", message)
    }

    pub fn not_found(what: &str, name: &str) -> Self {
        let code = match what {
            "table" => "TABLE_NOT_FOUND",
            "view" => "VIEW_NOT_FOUND",
            "sink" => "SINK_NOT_FOUND",
            "topic" => "TOPIC_NOT_FOUND",
            _ => "NOT_FOUND",
        };
        Self::new(ErrorKind::NotFound, code, format!("{what} {name} does not exist"))
    }

    pub fn conflict(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Conflict, code, message)
    }

    /// An object of the catalog whose rows may not be there as its statement says.
    pub(crate) fn broken(kind: ObjectKind, name: &str, reason: &str) -> Self {
        let hint = match kind {
            ObjectKind::Table => {
                "SHOW REGIONS tells where it stands; drop the table and create it again to read its topic anew, or to insert its rows again"
            }
            ObjectKind::View | ObjectKind::Sink => {
                "SHOW CREATE keeps its statement: drop it and create it again, and it is filled from its input; its topic stays"
            }
        };
        Self::conflict("BROKEN", format!("{} {name} cannot be read: {reason}", kind.word())).hint(hint)
    }

    pub fn internal(message: impl Into<String>, source: impl Into<BoxError>) -> Self {
        Self::new(ErrorKind::Internal, "INTERNAL", message).caused_by(source)
    }

    #[must_use]
    pub fn at(mut self, location: Location) -> Self {
        if location.line > 0 && self.line.is_none() {
            self.line = Some(location.line as u32);
            self.column = Some(location.column as u32);
        }
        self
    }

    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// With message and hint cut to what a person reads: they may quote a part of the text, which may be megabytes.
    #[must_use]
    pub(crate) fn shortened(mut self) -> Self {
        for text in [Some(&mut self.message), self.hint.as_mut()].into_iter().flatten() {
            if text.len() > MOST_TEXT {
                text.truncate(text.floor_char_boundary(MOST_TEXT));
                text.push_str(" ..");
            }
        }
        self
    }

    /// Keeps a hint that is there.
    #[must_use]
    pub fn or_hint(self, hint: Option<String>) -> Self {
        match (self.hint.is_none(), hint) {
            (true, Some(hint)) => self.hint(hint),
            _ => self,
        }
    }

    #[must_use]
    pub fn caused_by(mut self, source: impl Into<BoxError>) -> Self {
        self.source = Some(source.into());
        self
    }
}

impl Classified for SqlError {
    fn kind(&self) -> ErrorKind {
        self.kind
    }
}

/// `did you mean amount?` for the nearest of `names`, if any is near enough to be a typing error.
pub(crate) fn nearest<'a>(wrong: &str, names: impl IntoIterator<Item = &'a str>) -> Option<String> {
    // comparing takes memory for each pair of characters, and nobody mistypes something that long
    const LONGEST: usize = 100;
    if wrong.len() > LONGEST {
        return None;
    }
    let wrong = wrong.to_lowercase();
    let limit = (wrong.chars().count() / 3).clamp(1, 4);
    let (best, distance) = names
        .into_iter()
        .filter(|n| n.len() <= LONGEST)
        .map(|n| (n, strsim::damerau_levenshtein(&wrong, &n.to_lowercase())))
        .min_by_key(|(_, d)| *d)?;
    (distance <= limit).then(|| format!("did you mean {best}?"))
}

impl From<ParserError> for SqlError {
    fn from(e: ParserError) -> Self {
        let text = match &e {
            ParserError::TokenizerError(t) | ParserError::ParserError(t) => t.as_str(),
            ParserError::RecursionLimitExceeded => {
                let message = "expressions and subqueries are nested more than 50 levels deep".to_owned();
                return crate::parser::depth::too_deep(message, Location::empty());
            }
        };
        // the parser puts the place at the end of its text
        let (message, place) = text.rsplit_once(" at Line: ").unwrap_or((text, ""));
        let mut error = Self::syntax(lower_first(message));
        if let Some((line, column)) = place.split_once(", Column: ") {
            error.line = line.trim().parse().ok();
            error.column = column.trim().parse().ok();
        }
        error
    }
}

pub(crate) fn lower_first(text: &str) -> String {
    let mut chars = text.chars();
    match chars.next() {
        // "SQL ..." and "CAST(..." stay as they are
        Some(c) if !text.chars().nth(1).is_some_and(|n| n.is_uppercase()) => c.to_lowercase().chain(chars).collect(),
        _ => text.to_owned(),
    }
}

fn from_diagnostic(error: &mut SqlError, diagnostic: &Diagnostic) {
    error.message = lower_first(&diagnostic.message);
    if let Some(span) = diagnostic.span {
        error.line = Some(span.start.line as u32);
        error.column = Some(span.start.column as u32);
    }
    if let Some(note) = diagnostic.helps.first().map(|h| &h.message).or(diagnostic.notes.first().map(|n| &n.message)) {
        error.hint = Some(lower_first(note));
    }
}

impl SqlError {
    /// An error of planning. What DataFusion calls internal there is a type or shape that one of its rules did not expect: the statement is what must change.
    pub(crate) fn of_planning(e: DataFusionError) -> Self {
        let unexpected = match e.find_root() {
            DataFusionError::Internal(text) => text.lines().next().map(lower_first),
            _ => None,
        };
        let mut error = Self::from(e);
        if let Some(text) = unexpected {
            error.kind = ErrorKind::Invalid;
            error.code = "NOT_PLANNED";
            error.message = format!("the statement cannot be planned: {text}");
        }
        error
    }
}

impl From<DataFusionError> for SqlError {
    fn from(e: DataFusionError) -> Self {
        let root = e.find_root();
        let mut error = match root {
            // our own errors pass through DataFusion as external ones
            DataFusionError::External(inner) => match inner.downcast_ref::<SqlError>() {
                Some(own) => SqlError {
                    kind: own.kind,
                    code: own.code,
                    message: own.message.clone(),
                    line: own.line,
                    column: own.column,
                    hint: own.hint.clone(),
                    source: None,
                },
                None => match inner.downcast_ref::<StorageError>() {
                    Some(storage) => storage_error(storage),
                    None => Self::new(ErrorKind::Internal, "QUERY_FAILED", inner.to_string()),
                },
            },
            DataFusionError::ResourcesExhausted(text) => Self::new(
                ErrorKind::Exhausted,
                "QUERY_MEMORY",
                format!("the query needs more memory than sql.query_memory allows: {text}"),
            )
            .hint("add a LIMIT, fewer groups, or keep the result up to date as a materialized view"),
            DataFusionError::SQL(parser, _) => SqlError::from(ParserError::clone(parser)),
            DataFusionError::SchemaError(schema, _) => {
                let mut error = Self::new(ErrorKind::Invalid, "UNKNOWN_COLUMN", lower_first(&schema.to_string()));
                if let SchemaError::FieldNotFound { field, valid_fields } = schema.as_ref() {
                    error.message = format!("unknown column {}", field.name);
                    error.hint = nearest(&field.name, valid_fields.iter().map(|c| c.name.as_str()));
                }
                error
            }
            DataFusionError::Plan(text) => Self::invalid(lower_first(text)),
            DataFusionError::NotImplemented(text) => Self::new(ErrorKind::Invalid, "NOT_SUPPORTED", lower_first(text)),
            DataFusionError::Execution(text) => Self::new(ErrorKind::Invalid, "QUERY_FAILED", lower_first(text)),
            DataFusionError::ArrowError(arrow, _) => {
                Self::new(ErrorKind::Invalid, "QUERY_FAILED", lower_first(&arrow.to_string()))
            }
            other => Self::new(ErrorKind::Internal, "QUERY_FAILED", lower_first(&other.strip_backtrace())),
        };
        if let Some(diagnostic) = e.diagnostic() {
            from_diagnostic(&mut error, diagnostic);
        }
        error
    }
}

fn storage_error(e: &StorageError) -> SqlError {
    let code = match e {
        StorageError::WriteBufferFull { .. } => "WRITE_BUFFER_FULL",
        StorageError::AppendUnknown { .. } => "OUTCOME_UNKNOWN",
        StorageError::WrongState { .. } => "WRONG_STATE",
        StorageError::SequenceNotKept { .. } => "READ_POINT_GONE",
        _ => "STORAGE",
    };
    // With its causes: what the bucket or the broker answered is what helps.
    let error = SqlError::new(e.kind(), code, millstream_types::error::chain(e));
    match e {
        StorageError::Invalid { what, .. } if what.contains("above the limit") => {
            error.hint("raise storage.wal.max_row_bytes and the broker's max.message.bytes, or keep the value elsewhere")
        }
        StorageError::WriteBufferFull { .. } => {
            error.hint("the rows are refused while memory is flushed: send them again, in smaller parts, or raise storage.region_buffer_bytes")
        }
        _ => error,
    }
}

impl From<StorageError> for SqlError {
    fn from(e: StorageError) -> Self {
        storage_error(&e)
    }
}

impl From<LogError> for SqlError {
    fn from(e: LogError) -> Self {
        SqlError::new(e.kind, "KAFKA", millstream_types::error::chain(&e))
    }
}

impl From<arrow::error::ArrowError> for SqlError {
    fn from(e: arrow::error::ArrowError) -> Self {
        SqlError::new(ErrorKind::Invalid, "QUERY_FAILED", lower_first(&e.to_string())).caused_by(e)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_offered_only_when_near() {
        assert_eq!(nearest("amout", ["id", "amount"]).as_deref(), Some("did you mean amount?"));
        assert_eq!(nearest("zzz", ["id", "amount"]), None);
    }

    #[test]
    fn a_parser_error_gives_its_place_as_numbers() {
        let e = SqlError::from(ParserError::ParserError("Expected: ), found: EOF at Line: 2, Column: 14".to_owned()));
        assert_eq!((e.line, e.column, e.message.as_str()), (Some(2), Some(14), "expected: ), found: EOF"));
    }
}
