//! Errors of definitions and of encoding. A record that cannot be decoded is no error here: it is a `BadRecord`.

use millstream_types::{Classified, ErrorKind};

#[derive(Debug, thiserror::Error)]
pub enum FormatError {
    #[error("unknown option '{name}'{}", .nearest.as_ref().map(|n| format!(", did you mean '{n}'?")).unwrap_or_default())]
    UnknownOption { name: String, nearest: Option<&'static str> },
    #[error("option '{name}' = '{value}': expected {expected}")]
    BadOption { name: String, value: String, expected: String },
    #[error("column {column}: {what}")]
    Column { column: String, what: String },
    #[error("format {format} holds exactly one column, the table has {columns} for it")]
    OneColumn { format: &'static str, columns: usize },
    #[error("key format '{0}' needs 'key.fields'")]
    KeyFieldsMissing(&'static str),
    #[error("column {column}, row {row}: {what}")]
    Encode { column: String, row: usize, what: String },
    #[error("the rows have other columns than the encoder: {0}")]
    OtherColumns(String),
}

impl Classified for FormatError {
    fn kind(&self) -> ErrorKind {
        match self {
            FormatError::OtherColumns(_) => ErrorKind::Internal,
            _ => ErrorKind::Invalid,
        }
    }
}
