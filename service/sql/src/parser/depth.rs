//! How long and how deep a statement may be, found out before anything that calls itself once a level touches it.
//!
//! Two steps. The tokens bound what the library's parser may build: it makes one level of a tree of a few words in a row (`a OR b OR ..`), whatever its own
//! limit of nesting says. Then the tree is measured exactly. Not here: what planning makes of the tree (`planner::bounds`).

use std::{
    collections::{HashMap, HashSet},
    hash::{BuildHasher, BuildHasherDefault, DefaultHasher},
    ops::ControlFlow,
};

use datafusion::sql::sqlparser::{
    ast::{
        Expr, Function, GroupByExpr, ObjectName, ObjectNamePart, OrderByKind, Query, Select, Spanned, TableFactor,
        Visit, Visitor, With, visit_relations,
    },
    keywords::Keyword,
    tokenizer::{Location, Token, TokenWithSpan},
};
use millstream_types::ErrorKind;

use crate::{SqlError, planner::bounds::MOST_COLUMNS};

/// Tokens of one text, about 0.3 KiB of memory each until it is planned. An INSERT of 10,000 rows with 50 columns has 1,020,000.
pub(crate) const MOST_TOKENS: usize = 1_200_000;
/// Levels of an expression or of subqueries.
pub(crate) const MOST_LEVELS: usize = 500;
/// Tables, subqueries and set operations of one statement.
pub(crate) const MOST_RELATIONS: usize = 100;
/// Queries that a WITH stands for when each of its names is replaced by its query, as planning does.
const MOST_EXPANDED: u64 = 2_000;
/// WITH within each other: the search for the names of tables looks at each of them twice, so twice the time with each level (24 levels: minutes).
const MOST_WITHS: usize = 8;
/// Columns of one ORDER BY: the time of planning grows with their square, and more (1,000 columns: seconds).
const MOST_ORDER: usize = 500;
/// Different OVER (..) of one statement: each is a sort and a step of its own that hands on all columns of the others (1,000: minutes).
const MOST_WINDOWS: usize = 50;
/// Sets of columns that one GROUP BY stands for: CUBE doubles them with each column.
const MOST_GROUPING_SETS: u64 = 1_000;
/// Subqueries of expressions within each other: DataFusion's rewriting of them to joins takes twice the time with each level (24 levels: minutes).
const MOST_SUBQUERIES: usize = 10;
/// Open brackets at one place; also of types in types.
const MOST_BRACKETS: usize = 64;
/// Words and signs in a row without a comma, over all open brackets. A bound of what the parser builds, far above what the tree is allowed.
const MOST_IN_A_ROW: usize = 20_000;

fn too_long(message: String, at: Location, hint: &str) -> SqlError {
    SqlError::new(ErrorKind::Invalid, "STATEMENT_TOO_LARGE", message).at(at).hint(hint)
}

pub(crate) fn too_deep(message: String, at: Location) -> SqlError {
    SqlError::new(ErrorKind::Invalid, "TOO_DEEP", message).at(at).hint(
        "write x IN (..) for many values, VALUES or a table for many rows, brackets around groups of terms, or a view for a part of the query",
    )
}

/// Refuses a text with more tokens than a statement may have.
pub(super) fn check_length(tokens: &[TokenWithSpan]) -> Result<(), SqlError> {
    match tokens.get(MOST_TOKENS) {
        Some(token) => Err(too_long(
            format!("the text has more than {MOST_TOKENS} words and signs"),
            token.span.start,
            "send it in parts: several INSERTs of fewer rows",
        )),
        None => Ok(()),
    }
}

/// Refuses one statement from which the parser would build a deeper tree than it can take apart again.
pub(super) fn check_tokens(tokens: &[TokenWithSpan]) -> Result<(), SqlError> {
    // words since the last comma, for each open bracket
    let mut open: Vec<usize> = vec![0];
    let (mut in_a_row, mut set_operations, mut types, mut subscripts) = (0, 0, 0, 0);
    for (i, token) in tokens.iter().enumerate() {
        let at = token.span.start;
        let before = i.checked_sub(1).map(|b| &tokens[b].token);
        match &token.token {
            Token::LParen | Token::LBracket | Token::LBrace => {
                let subscript = token.token == Token::LBracket && before == Some(&Token::RBracket);
                subscripts = if subscript { subscripts + 1 } else { 0 };
                add(&mut open, &mut in_a_row);
                open.push(0);
            }
            Token::RParen | Token::RBracket | Token::RBrace => {
                if open.len() > 1 {
                    in_a_row -= open.pop().unwrap_or_default();
                }
            }
            Token::Comma => {
                let last = open.last_mut().expect("the statement itself is never closed");
                in_a_row -= std::mem::take(last);
            }
            other => {
                set_operations += usize::from(is_set_operation(other));
                types += usize::from(*other == Token::Lt && before.is_some_and(is_type_of_types));
                add(&mut open, &mut in_a_row);
            }
        }
        if open.len() > MOST_BRACKETS || subscripts > MOST_BRACKETS || types > MOST_BRACKETS {
            return Err(too_deep(format!("more than {MOST_BRACKETS} brackets within each other"), at));
        }
        if in_a_row > MOST_IN_A_ROW {
            return Err(too_deep(format!("more than {MOST_IN_A_ROW} words in a row without a comma"), at));
        }
        if set_operations > MOST_RELATIONS {
            return Err(too_deep(format!("more than {MOST_RELATIONS} UNION, EXCEPT or INTERSECT"), at));
        }
    }
    Ok(())
}

fn add(open: &mut [usize], in_a_row: &mut usize) {
    *open.last_mut().expect("the statement itself is never closed") += 1;
    *in_a_row += 1;
}

fn keyword(token: &Token) -> Option<Keyword> {
    match token {
        Token::Word(w) if w.quote_style.is_none() => Some(w.keyword),
        _ => None,
    }
}

fn is_set_operation(token: &Token) -> bool {
    matches!(keyword(token), Some(Keyword::UNION | Keyword::EXCEPT | Keyword::INTERSECT | Keyword::MINUS))
}

fn is_type_of_types(token: &Token) -> bool {
    matches!(keyword(token), Some(Keyword::ARRAY | Keyword::STRUCT | Keyword::MAP))
}

/// Refuses a tree that is deeper than planning and execution can take.
pub(super) fn check_tree(tree: &impl Visit) -> Result<(), SqlError> {
    let mut levels = Levels::default();
    match tree.visit(&mut levels) {
        ControlFlow::Break(error) => Err(*error),
        ControlFlow::Continue(()) if levels.too_deep => Err(deeper(Location::empty())),
        ControlFlow::Continue(()) => Ok(()),
    }
}

fn deeper(at: Location) -> SqlError {
    too_deep(format!("an expression has more than {MOST_LEVELS} levels: operators in a row count as levels"), at)
}

/// How many queries a query with these names becomes.
fn expanded(query: &Query, with: &With) -> u64 {
    let mut sizes: HashMap<&str, u64> = HashMap::default();
    for cte in &with.cte_tables {
        let size = size(&cte.query, &sizes);
        sizes.insert(&cte.alias.name.value, size);
    }
    size(&query.body, &sizes)
}

/// One for the tree itself, and what the names in it stand for.
fn size(tree: &impl Visit, sizes: &HashMap<&str, u64>) -> u64 {
    let mut sum = 1_u64;
    let walked: ControlFlow<()> = visit_relations(tree, |name: &ObjectName| {
        if let [ObjectNamePart::Identifier(name)] = &name.0[..] {
            sum = sum.saturating_add(sizes.get(name.value.as_str()).copied().unwrap_or(0));
        }
        ControlFlow::Continue(())
    });
    debug_assert!(walked.is_continue(), "nothing above breaks off");
    sum
}

fn has_subquery(expr: &Expr) -> bool {
    matches!(expr, Expr::Subquery(_) | Expr::Exists { .. } | Expr::InSubquery { .. })
}

fn grouping_sets(group_by: &GroupByExpr) -> u64 {
    let GroupByExpr::Expressions(list, _) = group_by else { return 1 };
    let sets = list.iter().map(|part| match part {
        Expr::Cube(columns) => 2_u64.saturating_pow(columns.len() as u32),
        Expr::Rollup(columns) => columns.len() as u64 + 1,
        Expr::GroupingSets(sets) => sets.len() as u64,
        _ => 1,
    });
    sets.fold(1, u64::saturating_mul)
}

/// Planning compares each column of a list with each other one.
fn check_list(of: &str, length: usize, most: usize, at: Location) -> ControlFlow<Box<SqlError>> {
    if length <= most {
        return ControlFlow::Continue(());
    }
    let error = too_long(format!("{length} {of}, the limit is {most}"), at, "keep parts of it as views, and join them");
    ControlFlow::Break(Box::new(error))
}

#[derive(Default)]
struct Levels {
    now: usize,
    /// Expressions with a subquery around this place.
    subqueries: usize,
    /// Queries with a WITH around this place.
    withs: usize,
    relations: usize,
    /// Hashes of the OVER (..) seen.
    windows: HashSet<u64>,
    too_deep: bool,
}

impl Levels {
    fn down(&mut self) {
        self.now += 1;
        self.too_deep |= self.now > MOST_LEVELS;
    }
}

impl Visitor for Levels {
    type Break = Box<SqlError>;

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<Self::Break> {
        self.down();
        if let Some(with) = &query.with {
            let at = with.with_token.0.span.start;
            self.withs += 1;
            if self.withs > MOST_WITHS {
                let error = too_deep(format!("more than {MOST_WITHS} WITH within each other"), at);
                return ControlFlow::Break(Box::new(error.hint("write the names side by side in one WITH")));
            }
            self.relations += with.cte_tables.len();
            if self.relations > MOST_RELATIONS {
                return ControlFlow::Break(Box::new(too_deep(
                    format!("more than {MOST_RELATIONS} tables and subqueries"),
                    at,
                )));
            }
            if expanded(query, with) > MOST_EXPANDED {
                let message = format!(
                    "the names of WITH stand for more than {MOST_EXPANDED} queries when each is replaced by its query"
                );
                return ControlFlow::Break(Box::new(too_deep(message, at)));
            }
        }
        if let Some(OrderByKind::Expressions(list)) = query.order_by.as_ref().map(|o| &o.kind)
            && list.len() > MOST_ORDER
        {
            let at = list.first().map_or(Location::empty(), |first| first.expr.span().start);
            return check_list("columns of an ORDER BY", list.len(), MOST_ORDER, at);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<Self::Break> {
        let at = select.select_token.0.span.start;
        let groups = match &select.group_by {
            GroupByExpr::Expressions(list, _) => list.len(),
            GroupByExpr::All(_) => 0,
        };
        let sets = grouping_sets(&select.group_by);
        if sets > MOST_GROUPING_SETS {
            let message = format!("the GROUP BY stands for {sets} sets of columns, the limit is {MOST_GROUPING_SETS}");
            let hint = "name the sets that you need in GROUPING SETS";
            return ControlFlow::Break(Box::new(too_long(message, at, hint)));
        }
        check_list("columns of a SELECT", select.projection.len(), MOST_COLUMNS, at)?;
        check_list("columns of a GROUP BY", groups, MOST_COLUMNS, at)
    }

    fn post_visit_query(&mut self, query: &Query) -> ControlFlow<Self::Break> {
        self.now -= 1;
        self.withs -= usize::from(query.with.is_some());
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<Self::Break> {
        self.relations += 1;
        if self.relations > MOST_RELATIONS {
            let at = match factor {
                TableFactor::Table { name, .. } => name.span().start,
                _ => Location::empty(),
            };
            let message = format!("more than {MOST_RELATIONS} tables and subqueries");
            return ControlFlow::Break(Box::new(too_deep(message, at)));
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<Self::Break> {
        self.down();
        self.subqueries += usize::from(has_subquery(expr));
        if self.subqueries > MOST_SUBQUERIES {
            let message = format!("more than {MOST_SUBQUERIES} subqueries within each other in expressions");
            return ControlFlow::Break(Box::new(too_deep(message, Location::empty())));
        }
        if let Expr::Function(Function { over: Some(window), .. }) = expr {
            self.windows.insert(BuildHasherDefault::<DefaultHasher>::default().hash_one(window));
            if self.windows.len() > MOST_WINDOWS {
                let message = format!("more than {MOST_WINDOWS} different OVER (..)");
                let hint = "give functions the same OVER (..), or work in several statements";
                return ControlFlow::Break(Box::new(too_long(message, expr.span().start, hint)));
            }
        }
        // the place of a leaf is known without walking down once more
        if self.too_deep && matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_) | Expr::Value(_)) {
            return ControlFlow::Break(Box::new(deeper(expr.span().start)));
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &Expr) -> ControlFlow<Self::Break> {
        self.now -= 1;
        self.subqueries -= usize::from(has_subquery(expr));
        ControlFlow::Continue(())
    }
}
