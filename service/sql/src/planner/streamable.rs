//! What cannot be kept up to date yet, and why: judged on the text, so that each refusal has its place and says what to write instead.
//!
//! Not here: names and types (DataFusion), layout of columns (`draft`). What slips through is refused by `draft` without a place.

use std::ops::ControlFlow;

use datafusion::{
    execution::context::SessionState,
    logical_expr::Volatility,
    sql::sqlparser::{
        ast::{
            self, DuplicateTreatment, Expr, FunctionArguments, GroupByExpr, Query, Select, SetExpr, Spanned,
            TableFactor,
        },
        tokenizer::Location,
    },
};

use crate::SqlError;

const AGGREGATES: &[&str] = &["count", "sum", "avg", "mean", "min", "max"];

/// Refuses the query with the first reason found.
pub(crate) fn check(state: &SessionState, query: &Query, at: Location) -> Result<(), SqlError> {
    check_query(query, at)?;
    let found = ast::visit_expressions(query, |expr| match refused_expression(state, expr) {
        Some(error) => ControlFlow::Break(Box::new(error)),
        None => ControlFlow::Continue(()),
    });
    match found {
        ControlFlow::Break(error) => Err(error.at(at)),
        ControlFlow::Continue(()) => Ok(()),
    }
}

fn refuse(what: &str, hint: &str, at: Location, fallback: Location) -> SqlError {
    SqlError::unsupported(format!("{what} cannot be kept up to date yet"), hint).at(at).at(fallback)
}

fn check_query(query: &Query, at: Location) -> Result<(), SqlError> {
    if let Some(with) = &query.with {
        if with.recursive {
            return Err(refuse("WITH RECURSIVE", "write the steps as views of their own", with.span().start, at));
        }
        for cte in &with.cte_tables {
            check_query(&cte.query, at)?;
        }
    }
    if let Some(order) = &query.order_by {
        return Err(refuse(
            "ORDER BY",
            "the rows of a view have no order: leave it out, and write ORDER BY when you read the view",
            order.span().start,
            at,
        ));
    }
    if query.limit_clause.is_some() || query.fetch.is_some() {
        let place = query.limit_clause.as_ref().map_or(at, |l| l.span().start);
        return Err(refuse("LIMIT", "leave it out, and write LIMIT when you read the view", place, at));
    }
    if !query.locks.is_empty() || query.for_clause.is_some() || !query.pipe_operators.is_empty() {
        return Err(refuse("FOR and |>", "write a plain SELECT", at, at));
    }
    match query.body.as_ref() {
        SetExpr::Select(select) => check_select(select, at),
        SetExpr::Query(inner) => check_query(inner, at),
        SetExpr::SetOperation { op, right, .. } => {
            Err(refuse(&op.to_string(), "create one view per part", right.span().start, at))
        }
        SetExpr::Values(_) => Err(refuse("VALUES", "read a table: SELECT .. FROM t", at, at)),
        _ => Err(refuse("this form of query", "write SELECT .. FROM t", at, at)),
    }
}

fn check_select(select: &Select, at: Location) -> Result<(), SqlError> {
    let Some(first) = select.from.first() else {
        return Err(SqlError::invalid("the query reads no table")
            .at(select.span().start)
            .at(at)
            .hint("write SELECT .. FROM t"));
    };
    let join_hint = "create a view per table and join them when you read them";
    if let Some(second) = select.from.get(1) {
        return Err(refuse("a join", join_hint, second.span().start, at));
    }
    if let Some(join) = first.joins.first() {
        return Err(refuse("a join", join_hint, join.span().start, at));
    }
    match &first.relation {
        TableFactor::Table { args: None, sample: None, version: None, .. } => {}
        TableFactor::Derived { lateral: false, subquery, sample: None, .. } => check_query(subquery, at)?,
        TableFactor::NestedJoin { table_with_joins, .. } => {
            return Err(refuse("a join", join_hint, table_with_joins.span().start, at));
        }
        other => return Err(refuse("this kind of FROM", "read a table or view by its name", other.span().start, at)),
    }
    if let Some(ast::Distinct::On(exprs)) = &select.distinct {
        let place = exprs.first().map_or(at, |e| e.span().start);
        return Err(refuse("DISTINCT ON", "write GROUP BY with min or max", place, at));
    }
    if select.top.is_some()
        || select.into.is_some()
        || select.qualify.is_some()
        || !select.lateral_views.is_empty()
        || !select.connect_by.is_empty()
    {
        return Err(refuse(
            "TOP, INTO, QUALIFY, LATERAL VIEW and CONNECT BY",
            "write a plain SELECT",
            select.span().start,
            at,
        ));
    }
    match &select.group_by {
        GroupByExpr::All(_) => Err(refuse("GROUP BY ALL", "name the columns", select.span().start, at)),
        GroupByExpr::Expressions(exprs, modifiers) => {
            let grouping = exprs.iter().find(|e| matches!(e, Expr::Rollup(_) | Expr::Cube(_) | Expr::GroupingSets(_)));
            if grouping.is_some() || !modifiers.is_empty() {
                let place = grouping.or(exprs.first()).map_or(at, |e| e.span().start);
                return Err(refuse("ROLLUP, CUBE and GROUPING SETS", "create one view per grouping", place, at));
            }
            Ok(())
        }
    }
}

fn refused_expression(state: &SessionState, expr: &Expr) -> Option<SqlError> {
    let at = expr.span().start;
    match expr {
        Expr::Subquery(_) | Expr::Exists { .. } | Expr::InSubquery { .. } => {
            Some(refuse("a subquery in an expression", "create a view of the subquery and join when you read", at, at))
        }
        Expr::Function(f) => refused_function(state, f),
        Expr::Value(v) if matches!(v.value, ast::Value::Placeholder(_)) => {
            Some(SqlError::invalid("a view has no parameters").at(at).hint("write the value into the query"))
        }
        _ => None,
    }
}

fn refused_function(state: &SessionState, f: &ast::Function) -> Option<SqlError> {
    let at = f.name.span().start;
    let name = f.name.0.last().and_then(|p| p.as_ident()).map(|i| i.value.to_lowercase())?;
    if f.over.is_some() {
        return Some(refuse(
            "a window function",
            "use GROUP BY, or write the window function when you read the view",
            at,
            at,
        ));
    }
    if state.aggregate_functions().contains_key(&name) {
        if !AGGREGATES.contains(&name.as_str()) {
            return Some(refuse(&format!("{name}()"), "count, sum, avg, min and max can", at, at));
        }
        if let FunctionArguments::List(list) = &f.args {
            if list.duplicate_treatment == Some(DuplicateTreatment::Distinct) {
                return Some(refuse(
                    &format!("{name}(DISTINCT ..)"),
                    "create a view with GROUP BY of that column, and a second view that counts it",
                    at,
                    at,
                ));
            }
            if !list.clauses.is_empty() {
                return Some(refuse(
                    "an ORDER BY inside an aggregate",
                    "leave it out: the result does not depend on it",
                    at,
                    at,
                ));
            }
        }
        if !f.within_group.is_empty() {
            return Some(refuse("WITHIN GROUP", "count, sum, avg, min and max can", at, at));
        }
        return None;
    }
    let volatile =
        state.scalar_functions().get(&name).is_some_and(|udf| udf.signature().volatility != Volatility::Immutable);
    volatile.then(|| {
        SqlError::unsupported(
            format!("{name}() gives another value each time it is asked, so that a delete could not undo what its insert did"),
            "use a column of the record, such as one with METADATA FROM 'timestamp'",
        )
        .at(at)
    })
}
