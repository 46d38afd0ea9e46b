//! Statements as data, each name with its place in the text. Not here: whether the names exist (`ddl`, `planner`).

use datafusion::sql::sqlparser::{ast, tokenizer::Location};
use millstream_types::{MetadataField, SqlType};

/// An object or column name as SQL folds it: lower case unless quoted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name {
    pub value: String,
    pub at: Location,
}

/// `key = value` of a WITH clause; values are kept as text, whatever they looked like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OptionEntry {
    pub key: Name,
    pub value: String,
    pub value_at: Location,
}

#[derive(Debug, Clone)]
pub struct ColumnDef {
    pub name: Name,
    pub sql_type: SqlType,
    /// `DECIMAL` without digits; the result of the DDL says which digits it got.
    pub bare_decimal: bool,
    pub not_null: bool,
    /// SQL text of the constant, its expression, and its place.
    pub default: Option<(String, ast::Expr, Location)>,
    pub metadata: Option<MetadataField>,
}

#[derive(Debug, Clone)]
pub struct CreateTable {
    pub if_not_exists: bool,
    pub name: Name,
    pub columns: Vec<ColumnDef>,
    pub primary_key: Vec<Name>,
    pub options: Vec<OptionEntry>,
}

/// CREATE MATERIALIZED VIEW or CREATE SINK.
#[derive(Debug, Clone)]
pub struct CreateDerived {
    pub kind: DerivedKind,
    pub if_not_exists: bool,
    pub name: Name,
    pub options: Vec<OptionEntry>,
    pub query: Box<ast::Query>,
    pub query_at: Location,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DerivedKind {
    View,
    Sink,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ObjectKind {
    Table,
    View,
    Sink,
}

impl ObjectKind {
    pub fn word(self) -> &'static str {
        match self {
            ObjectKind::Table => "table",
            ObjectKind::View => "view",
            ObjectKind::Sink => "sink",
        }
    }

    pub fn sql(self) -> &'static str {
        match self {
            ObjectKind::Table => "TABLE",
            ObjectKind::View => "MATERIALIZED VIEW",
            ObjectKind::Sink => "SINK",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Listing {
    Tables,
    Views,
    Sinks,
    Jobs,
    Backfills,
    Regions,
    Topics,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AlterAction {
    Pause,
    Resume,
    /// `None` = DEFAULT, no limit of its own.
    SetRateLimit(Option<u64>),
}

#[derive(Debug, Clone)]
pub enum ExplainTarget {
    Derived(CreateDerived),
    Query(Box<ast::Query>),
}

#[derive(Debug, Clone)]
pub enum Statement {
    CreateTable(CreateTable),
    CreateDerived(CreateDerived),
    Drop { kind: ObjectKind, names: Vec<Name>, if_exists: bool, cascade: bool },
    Show(Listing),
    ShowCreate(Name),
    Describe(Name),
    Explain { verbose: bool, target: ExplainTarget },
    Query(Box<ast::Query>),
    Insert { table: Name, statement: Box<ast::Statement> },
    Delete { table: Name, statement: Box<ast::Statement> },
    Flush(Option<Name>),
    Compact(Name),
    Checkpoint,
    WaitFor(Name),
    Alter { kind: ObjectKind, name: Name, action: AlterAction },
}

/// One statement of a text, with its own words.
#[derive(Debug, Clone)]
pub struct Parsed {
    pub statement: Statement,
    /// The statement as written, without the semicolon.
    pub text: String,
    pub at: Location,
}
