//! The first word of a statement decides; the verbs that are not CREATE are parsed here.

use datafusion::sql::sqlparser::{ast, tokenizer::Token};

use super::{
    cursor::Cursor,
    ddl,
    statement::{AlterAction, ExplainTarget, Listing, Name, ObjectKind, Statement},
};
use crate::SqlError;

pub(super) fn statement(c: &mut Cursor<'_>) -> Result<Statement, SqlError> {
    if c.word("CREATE") {
        return ddl::create(c);
    }
    if c.word("DROP") {
        return drop(c);
    }
    if c.word("ALTER") {
        return alter(c);
    }
    if c.word("SHOW") {
        return show(c);
    }
    if c.word("DESCRIBE") || c.word("DESC") {
        c.word("TABLE");
        return Ok(Statement::Describe(c.object_name()?));
    }
    if c.word("EXPLAIN") {
        return explain(c);
    }
    if c.word("FLUSH") {
        if c.at_end() {
            return Ok(Statement::Flush(None));
        }
        c.expect_word("TABLE")?;
        return Ok(Statement::Flush(Some(c.object_name()?)));
    }
    if c.word("COMPACT") {
        c.expect_word("TABLE")?;
        return Ok(Statement::Compact(c.object_name()?));
    }
    if c.word("CHECKPOINT") {
        return Ok(Statement::Checkpoint);
    }
    if c.word("WAIT") {
        c.expect_word("FOR")?;
        return Ok(Statement::WaitFor(c.object_name()?));
    }
    if c.peek_word("INSERT") {
        return insert(c);
    }
    if c.peek_word("DELETE") {
        return delete(c);
    }
    if ["SELECT", "WITH", "VALUES", "TABLE"].iter().any(|w| c.peek_word(w)) || c.peek() == Some(&Token::LParen) {
        return Ok(Statement::Query(c.rest_query()?));
    }
    Err(unknown(c))
}

fn unknown(c: &Cursor<'_>) -> SqlError {
    let refused = [
        ("UPDATE", "INSERT with the same primary key replaces the row"),
        ("TRUNCATE", "write DELETE FROM t, or drop the table"),
        ("MERGE", "INSERT with the same primary key replaces the row"),
        ("SUBSCRIBE", "read the derived topic of the view"),
        ("COPY", "use INSERT INTO, or produce to the topic"),
        ("SET", "settings are in the configuration file"),
        ("BEGIN", "each statement is a transaction of its own"),
        ("START", "each statement is a transaction of its own"),
        ("COMMIT", "each statement is a transaction of its own"),
        ("ROLLBACK", "each statement is a transaction of its own"),
        ("GRANT", "access is a matter of the configuration file"),
        ("ANALYZE", "statistics are always up to date"),
        ("VACUUM", "write COMPACT TABLE t"),
        ("REFRESH", "a materialized view is always up to date"),
    ];
    if let Some((word, hint)) = refused.iter().find(|(w, _)| c.peek_word(w)) {
        return SqlError::unsupported(format!("{word} is not supported"), *hint).at(c.location());
    }
    let error = c.expected("a statement");
    let Some(Token::Word(w)) = c.peek() else { return error };
    let verbs = [
        "CREATE",
        "DROP",
        "ALTER",
        "SHOW",
        "DESCRIBE",
        "EXPLAIN",
        "SELECT",
        "INSERT",
        "DELETE",
        "FLUSH",
        "COMPACT",
        "CHECKPOINT",
        "WAIT",
        "WITH",
    ];
    error.or_hint(crate::error::nearest(&w.value, verbs))
}

fn object_kind(c: &mut Cursor<'_>, verb: &str) -> Result<ObjectKind, SqlError> {
    let at = c.location();
    if c.word("TABLE") {
        return Ok(ObjectKind::Table);
    }
    if c.words(&["MATERIALIZED", "VIEW"]) {
        return Ok(ObjectKind::View);
    }
    if c.word("SINK") {
        return Ok(ObjectKind::Sink);
    }
    if c.peek_word("VIEW") {
        return Err(SqlError::syntax(format!("{verb} VIEW is not a statement"))
            .at(at)
            .hint(format!("write {verb} MATERIALIZED VIEW")));
    }
    Err(c.expected("TABLE, MATERIALIZED VIEW or SINK"))
}

fn drop(c: &mut Cursor<'_>) -> Result<Statement, SqlError> {
    let kind = object_kind(c, "DROP")?;
    let if_exists = c.words(&["IF", "EXISTS"]);
    let mut names = vec![c.object_name()?];
    while c.symbol(&Token::Comma) {
        names.push(c.object_name()?);
    }
    let cascade = c.word("CASCADE");
    if !cascade {
        c.word("RESTRICT");
    }
    Ok(Statement::Drop { kind, names, if_exists, cascade })
}

fn alter(c: &mut Cursor<'_>) -> Result<Statement, SqlError> {
    let at = c.location();
    let kind = object_kind(c, "ALTER")?;
    if kind == ObjectKind::Table {
        return Err(SqlError::unsupported(
            "ALTER TABLE is not supported yet",
            "create a new table over the same topic",
        )
        .at(at));
    }
    c.words(&["IF", "EXISTS"]);
    let name = c.object_name()?;
    let at = c.location();
    if c.word("PAUSE") {
        return Ok(Statement::Alter { kind, name, action: AlterAction::Pause });
    }
    if c.word("RESUME") {
        return Ok(Statement::Alter { kind, name, action: AlterAction::Resume });
    }
    if c.peek_word("STOP") || c.peek_word("RENAME") {
        return Err(SqlError::unsupported(
            "STOP and RENAME are not supported yet",
            "PAUSE, RESUME and SET (backfill_rate_limit = n) are",
        )
        .at(at));
    }
    if !c.word("SET") {
        return Err(c.expected("PAUSE, RESUME or SET (backfill_rate_limit = n)"));
    }
    let in_brackets = c.symbol(&Token::LParen);
    let option = c.name("backfill_rate_limit")?;
    if option.value != "backfill_rate_limit" {
        return Err(SqlError::option(format!("option {} cannot be changed", option.value))
            .at(option.at)
            .hint("backfill_rate_limit can; for others drop and create again"));
    }
    if !c.symbol(&Token::Eq) {
        c.expect_word("TO")?;
    }
    let limit = rate_limit(c)?;
    if in_brackets {
        c.expect_symbol(&Token::RParen)?;
    }
    Ok(Statement::Alter { kind, name, action: AlterAction::SetRateLimit(limit) })
}

fn rate_limit(c: &mut Cursor<'_>) -> Result<Option<u64>, SqlError> {
    if c.word("DEFAULT") {
        return Ok(None);
    }
    if let Some(Token::Number(n, _)) = c.peek()
        && let Ok(n) = n.parse()
    {
        c.advance();
        return Ok(Some(n));
    }
    Err(c.expected("rows per second as a whole number, or DEFAULT"))
}

fn show(c: &mut Cursor<'_>) -> Result<Statement, SqlError> {
    if c.word("CREATE") {
        if !c.words(&["MATERIALIZED", "VIEW"]) {
            let position = c.position();
            // a table may be called "table" or "sink": SHOW CREATE sink
            if (c.word("TABLE") || c.word("SINK")) && c.at_end() {
                c.rewind(position);
            }
        }
        return Ok(Statement::ShowCreate(c.object_name()?));
    }
    let listings = [
        ("TABLES", Listing::Tables),
        ("VIEWS", Listing::Views),
        ("SINKS", Listing::Sinks),
        ("JOBS", Listing::Jobs),
        ("BACKFILLS", Listing::Backfills),
        ("REGIONS", Listing::Regions),
        ("TOPICS", Listing::Topics),
    ];
    c.word("MATERIALIZED");
    for (word, listing) in listings {
        if c.word(word) {
            return Ok(Statement::Show(listing));
        }
    }
    let error = c.expected("TABLES, VIEWS, SINKS, JOBS, BACKFILLS, REGIONS, TOPICS or CREATE");
    match c.peek() {
        Some(Token::Word(w)) => Err(error.or_hint(crate::error::nearest(&w.value, listings.map(|(n, _)| n)))),
        _ => Err(error),
    }
}

fn explain(c: &mut Cursor<'_>) -> Result<Statement, SqlError> {
    let at = c.location();
    if c.word("ANALYZE") {
        return Err(
            SqlError::unsupported("EXPLAIN ANALYZE is not supported yet", "write EXPLAIN, or EXPLAIN VERBOSE").at(at)
        );
    }
    let verbose = c.word("VERBOSE");
    let at = c.location();
    if c.word("CREATE") {
        return match ddl::create(c)? {
            Statement::CreateDerived(derived) => {
                Ok(Statement::Explain { verbose, target: ExplainTarget::Derived(derived) })
            }
            _ => Err(SqlError::syntax("EXPLAIN needs a query, CREATE MATERIALIZED VIEW or CREATE SINK").at(at)),
        };
    }
    Ok(Statement::Explain { verbose, target: ExplainTarget::Query(c.rest_query()?) })
}

/// The one name of a table as the library parsed it.
fn single_name(name: &ast::ObjectName, fallback: Name) -> Result<Name, SqlError> {
    let parts: Vec<&ast::Ident> = name.0.iter().filter_map(|p| p.as_ident()).collect();
    let ident = match parts.as_slice() {
        [one] => one,
        [schema, one] if schema.value.eq_ignore_ascii_case("public") => one,
        _ => return Err(SqlError::invalid(format!("rows cannot be written to {name}")).at(fallback.at)),
    };
    let value = if ident.quote_style.is_some() { ident.value.clone() } else { ident.value.to_lowercase() };
    Ok(Name { value, at: ident.span.start })
}

fn insert(c: &mut Cursor<'_>) -> Result<Statement, SqlError> {
    let here = Name { value: String::new(), at: c.location() };
    let statement = c.rest_statement()?;
    let ast::Statement::Insert(insert) = &statement else {
        return Err(SqlError::syntax("expected INSERT INTO t VALUES (..) or INSERT INTO t SELECT ..").at(here.at));
    };
    if insert.on.is_some() {
        return Err(SqlError::unsupported(
            "ON CONFLICT is not supported",
            "a row with the same primary key is replaced always",
        )
        .at(here.at));
    }
    if insert.returning.is_some() {
        return Err(SqlError::unsupported("RETURNING is not supported yet", "SELECT the rows afterwards").at(here.at));
    }
    let ast::TableObject::TableName(name) = &insert.table else {
        return Err(SqlError::syntax("expected the name of a table after INSERT INTO").at(here.at));
    };
    Ok(Statement::Insert { table: single_name(name, here)?, statement: Box::new(statement) })
}

fn delete(c: &mut Cursor<'_>) -> Result<Statement, SqlError> {
    let here = Name { value: String::new(), at: c.location() };
    let statement = c.rest_statement()?;
    let ast::Statement::Delete(delete) = &statement else {
        return Err(SqlError::syntax("expected DELETE FROM t WHERE ..").at(here.at));
    };
    if delete.using.is_some() || delete.returning.is_some() || delete.limit.is_some() || !delete.order_by.is_empty() {
        return Err(SqlError::unsupported("DELETE has only a WHERE here", "write WHERE key IN (SELECT ..)").at(here.at));
    }
    let ast::FromTable::WithFromKeyword(tables) = &delete.from else {
        return Err(SqlError::syntax("expected DELETE FROM t").at(here.at));
    };
    let name = match tables.as_slice() {
        [ast::TableWithJoins { relation: ast::TableFactor::Table { name, .. }, joins }] if joins.is_empty() => name,
        _ => {
            return Err(
                SqlError::unsupported("DELETE works on one table", "write WHERE key IN (SELECT ..)").at(here.at)
            );
        }
    };
    Ok(Statement::Delete { table: single_name(name, here)?, statement: Box::new(statement) })
}
