//! Grammar of CREATE TABLE, CREATE MATERIALIZED VIEW, CREATE SINK.

use datafusion::sql::sqlparser::tokenizer::{Location, Token};
use millstream_types::MetadataField;

use super::{
    column_type::{STOPS, column_type},
    cursor::{self, Cursor},
    options::with_clause,
    statement::{ColumnDef, CreateDerived, CreateTable, DerivedKind, Name, Statement},
};
use crate::{SqlError, planner::bounds::MOST_COLUMNS};

/// After CREATE.
pub(super) fn create(c: &mut Cursor<'_>) -> Result<Statement, SqlError> {
    let at = c.location();
    if c.words(&["OR", "REPLACE"]) {
        return Err(SqlError::unsupported(
            "CREATE OR REPLACE is not supported yet",
            "drop the object and create it again",
        )
        .at(at));
    }
    if c.word("TABLE") {
        return Ok(Statement::CreateTable(create_table(c)?));
    }
    if c.words(&["MATERIALIZED", "VIEW"]) {
        return Ok(Statement::CreateDerived(create_derived(c, DerivedKind::View)?));
    }
    if c.word("SINK") {
        return Ok(Statement::CreateDerived(create_derived(c, DerivedKind::Sink)?));
    }
    let refused = [
        ("VIEW", "views that are only a stored query", "write CREATE MATERIALIZED VIEW"),
        ("SOURCE", "CREATE SOURCE", "write CREATE TABLE .. WITH (topic = ..)"),
        ("CONNECTION", "CREATE CONNECTION", "the cluster is section kafka of the configuration file"),
        ("INDEX", "CREATE INDEX", "read by primary key, or create a materialized view with that key"),
        ("TEMP", "temporary tables", "use WITH name AS (SELECT ..) in the query"),
        ("TEMPORARY", "temporary tables", "use WITH name AS (SELECT ..) in the query"),
        ("SCHEMA", "schemas", "all objects are in schema public"),
        ("DATABASE", "databases", "run one Millstream per database"),
        ("FUNCTION", "CREATE FUNCTION", "write the expression in the query"),
    ];
    for (word, what, hint) in refused {
        if c.peek_word(word) {
            return Err(SqlError::unsupported(format!("{what}: not supported yet"), hint).at(at));
        }
    }
    Err(c.expected("TABLE, MATERIALIZED VIEW or SINK"))
}

fn if_not_exists(c: &mut Cursor<'_>) -> bool {
    c.words(&["IF", "NOT", "EXISTS"])
}

fn create_table(c: &mut Cursor<'_>) -> Result<CreateTable, SqlError> {
    let if_not_exists = if_not_exists(c);
    let name = c.object_name()?;
    let at = c.location();
    if c.peek_word("FROM") {
        return Err(SqlError::unsupported(
            "CREATE TABLE .. FROM TOPIC needs a schema registry, which is not supported yet",
            "list the columns",
        )
        .at(at));
    }
    if c.peek_word("AS") {
        return Err(SqlError::unsupported(
            "CREATE TABLE .. AS SELECT is not supported",
            "write CREATE MATERIALIZED VIEW .. AS SELECT, or create the table and INSERT INTO it",
        )
        .at(at));
    }
    let mut columns: Vec<ColumnDef> = Vec::new();
    let mut primary_key: Vec<Name> = Vec::new();
    c.expect_symbol(&Token::LParen)?;
    loop {
        if columns.len() == MOST_COLUMNS {
            return Err(SqlError::invalid(format!("a table has at most {MOST_COLUMNS} columns")).at(c.location()));
        }
        table_element(c, &mut columns, &mut primary_key)?;
        if !c.symbol(&Token::Comma) {
            break;
        }
    }
    if !c.symbol(&Token::RParen) {
        return Err(c.expected(", or )"));
    }
    let at = c.location();
    if c.peek_word("PARTITION") || c.peek_word("PARTITIONED") {
        return Err(SqlError::unsupported(
            "PARTITION BY is not supported",
            "a table has one region per partition of its topic",
        )
        .at(at));
    }
    let options = with_clause(c)?;
    Ok(CreateTable { if_not_exists, name, columns, primary_key, options })
}

/// A column, or one of the table's constraints.
fn table_element(
    c: &mut Cursor<'_>,
    columns: &mut Vec<ColumnDef>,
    primary_key: &mut Vec<Name>,
) -> Result<(), SqlError> {
    let at = c.location();
    if c.peek_word("WATERMARK") && c.peek_word_at(1, "FOR") {
        return Err(SqlError::unsupported(
            "WATERMARK is not supported yet",
            "leave it out; windows come in a later version",
        )
        .at(at));
    }
    if c.word("CONSTRAINT") {
        c.name("the name of the constraint")?;
    }
    if c.words(&["PRIMARY", "KEY"]) {
        c.expect_symbol(&Token::LParen)?;
        let mut names = Vec::new();
        loop {
            if names.len() == MOST_COLUMNS {
                return Err(SqlError::invalid(format!("a table has at most {MOST_COLUMNS} columns")).at(c.location()));
            }
            names.push(c.name("a column name")?);
            if !c.symbol(&Token::Comma) {
                break;
            }
        }
        c.expect_symbol(&Token::RParen)?;
        return set_primary_key(primary_key, names, at);
    }
    for (word, next) in [("UNIQUE", "("), ("CHECK", "("), ("EXCLUDE", "USING"), ("FOREIGN", "KEY")] {
        if c.peek_word(word) && c.peek_at(1).is_some_and(|t| t.to_string().eq_ignore_ascii_case(next)) {
            return Err(SqlError::unsupported(
                format!("{word} constraints are not supported"),
                "only PRIMARY KEY and NOT NULL are checked",
            )
            .at(at));
        }
    }
    let column = column(c, primary_key)?;
    if columns.iter().any(|other| other.name.value == column.name.value) {
        return Err(SqlError::invalid(format!("column {} is given twice", column.name.value)).at(column.name.at));
    }
    columns.push(column);
    Ok(())
}

fn set_primary_key(primary_key: &mut Vec<Name>, names: Vec<Name>, at: Location) -> Result<(), SqlError> {
    if !primary_key.is_empty() {
        return Err(SqlError::invalid("PRIMARY KEY is given twice").at(at).hint("write one PRIMARY KEY (a, b)"));
    }
    for (i, name) in names.iter().enumerate() {
        if names[..i].iter().any(|n| n.value == name.value) {
            return Err(SqlError::invalid(format!("column {} is in the primary key twice", name.value)).at(name.at));
        }
    }
    *primary_key = names;
    Ok(())
}

fn column(c: &mut Cursor<'_>, primary_key: &mut Vec<Name>) -> Result<ColumnDef, SqlError> {
    let name = c.name("a column name")?;
    let (sql_type, bare_decimal) = column_type(c, &name.value)?;
    let mut column = ColumnDef { name, sql_type, bare_decimal, not_null: false, default: None, metadata: None };
    loop {
        let at = c.location();
        if c.words(&["NOT", "NULL"]) {
            column.not_null = true;
        } else if c.word("NULL") {
        } else if c.words(&["PRIMARY", "KEY"]) {
            set_primary_key(primary_key, vec![column.name.clone()], at)?;
        } else if c.word("DEFAULT") {
            let from = c.location();
            let tokens = c.take_until(STOPS);
            if tokens.is_empty() {
                return Err(c.expected("a constant"));
            }
            column.default = Some((c.source.slice(tokens).to_owned(), cursor::expression(tokens)?, from));
        } else if c.word("METADATA") {
            column.metadata = Some(metadata(c, &column.name.value)?);
        } else if matches!(c.peek(), Some(Token::Comma | Token::RParen) | None) {
            return Ok(column);
        } else if let Some(word) = ["UNIQUE", "CHECK", "REFERENCES", "GENERATED", "COLLATE", "AS", "CONSTRAINT"]
            .iter()
            .find(|w| c.peek_word(w))
        {
            return Err(SqlError::unsupported(
                format!("{word} of a column is not supported"),
                "a column has a type and NOT NULL, DEFAULT, METADATA FROM or PRIMARY KEY",
            )
            .at(at));
        } else {
            return Err(c.expected("NOT NULL, DEFAULT, METADATA FROM, PRIMARY KEY, a comma or )"));
        }
    }
}

const METADATA_NAMES: &[&str] = &["topic", "partition", "offset", "timestamp", "headers_map", "key", "value"];

/// After METADATA: nothing (the column's own name), `FROM 'offset'` or `FROM header('x')`.
fn metadata(c: &mut Cursor<'_>, column: &str) -> Result<MetadataField, SqlError> {
    let mut at = c.location();
    let mut text = column.to_owned();
    if c.word("FROM") {
        at = c.location();
        if c.word("HEADER") {
            c.expect_symbol(&Token::LParen)?;
            let name = c.string().ok_or_else(|| c.expected("the name of the header in quotes"))?;
            c.expect_symbol(&Token::RParen)?;
            return Ok(MetadataField::Header(name));
        }
        text = c.string().ok_or_else(|| c.expected("'offset', another name in quotes, or header('name')"))?;
    }
    Ok(match text.as_str() {
        "topic" => MetadataField::Topic,
        "partition" => MetadataField::Partition,
        "offset" => MetadataField::Offset,
        "timestamp" => MetadataField::Timestamp,
        "headers_map" => MetadataField::HeadersMap,
        "key" => MetadataField::Key,
        "value" => MetadataField::Value,
        "headers" => {
            return Err(SqlError::unsupported(
                "METADATA FROM 'headers' is not supported yet",
                "use 'headers_map' or header('name')",
            )
            .at(at));
        }
        other => {
            let hint = crate::error::nearest(other, METADATA_NAMES.iter().copied());
            return Err(SqlError::invalid(format!("a record has no metadata {other}"))
                .at(at)
                .hint(hint.unwrap_or_else(|| format!("there are {} and header('name')", METADATA_NAMES.join(", ")))));
        }
    })
}

fn create_derived(c: &mut Cursor<'_>, kind: DerivedKind) -> Result<CreateDerived, SqlError> {
    let if_not_exists = if_not_exists(c);
    let name = c.object_name()?;
    let at = c.location();
    if c.symbol(&Token::LParen) {
        return Err(SqlError::unsupported(
            "a column list after the name is not supported",
            "name the columns in the query: SELECT x AS name",
        )
        .at(at));
    }
    let options = with_clause(c)?;
    if c.word("FROM") {
        return Err(SqlError::unsupported("CREATE SINK .. FROM is not supported", "write AS SELECT * FROM ..").at(at));
    }
    c.expect_word("AS")?;
    let query_at = c.location();
    let query = c.rest_query()?;
    Ok(CreateDerived { kind, if_not_exists, name, options, query, query_at })
}
