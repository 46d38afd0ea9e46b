//! PostgreSQL's dialect for the library's parser, with an end to its attempts.
//!
//! The parser tries a word like CAST as what it usually means and, when that fails further in, as a name: each level of such words doubles the work, and nothing
//! can stop it. Here the number of expressions that it may begin is bounded by the length of the statement. All else is the library's.

use std::{any::TypeId, cell::Cell};

use datafusion::sql::sqlparser::{
    ast::Expr,
    dialect::{Dialect, PostgreSqlDialect, Precedence},
    keywords::Keyword,
    parser::{Parser, ParserError},
};

use super::cursor::DIALECT;
use crate::stack;

#[derive(Debug)]
pub(super) struct BoundedDialect {
    attempts_left: Cell<usize>,
}

impl BoundedDialect {
    /// A statement that is right begins an expression about once a token.
    pub(super) fn of(tokens: usize) -> Self {
        Self { attempts_left: Cell::new(tokens * 16 + 10_000) }
    }
}

impl Dialect for BoundedDialect {
    fn dialect(&self) -> TypeId {
        TypeId::of::<PostgreSqlDialect>()
    }

    fn parse_prefix(&self, _parser: &mut Parser<'_>) -> Option<Result<Expr, ParserError>> {
        // the library counts levels, but not those of each rule (`INTERVAL INTERVAL ..`)
        if stack::is_short() {
            return Some(Err(ParserError::RecursionLimitExceeded));
        }
        match self.attempts_left.get().checked_sub(1) {
            Some(left) => {
                self.attempts_left.set(left);
                None
            }
            None => Some(Err(ParserError::RecursionLimitExceeded)),
        }
    }

    fn identifier_quote_style(&self, identifier: &str) -> Option<char> {
        DIALECT.identifier_quote_style(identifier)
    }

    fn is_delimited_identifier_start(&self, ch: char) -> bool {
        DIALECT.is_delimited_identifier_start(ch)
    }

    fn is_identifier_start(&self, ch: char) -> bool {
        DIALECT.is_identifier_start(ch)
    }

    fn is_identifier_part(&self, ch: char) -> bool {
        DIALECT.is_identifier_part(ch)
    }

    fn supports_unicode_string_literal(&self) -> bool {
        DIALECT.supports_unicode_string_literal()
    }

    fn is_reserved_for_identifier(&self, kw: Keyword) -> bool {
        DIALECT.is_reserved_for_identifier(kw)
    }

    fn is_custom_operator_part(&self, ch: char) -> bool {
        DIALECT.is_custom_operator_part(ch)
    }

    fn get_next_precedence(&self, parser: &Parser<'_>) -> Option<Result<u8, ParserError>> {
        DIALECT.get_next_precedence(parser)
    }

    fn supports_filter_during_aggregation(&self) -> bool {
        DIALECT.supports_filter_during_aggregation()
    }

    fn supports_group_by_expr(&self) -> bool {
        DIALECT.supports_group_by_expr()
    }

    fn prec_value(&self, prec: Precedence) -> u8 {
        DIALECT.prec_value(prec)
    }

    fn allow_extract_custom(&self) -> bool {
        DIALECT.allow_extract_custom()
    }

    fn allow_extract_single_quotes(&self) -> bool {
        DIALECT.allow_extract_single_quotes()
    }

    fn supports_create_index_with_clause(&self) -> bool {
        DIALECT.supports_create_index_with_clause()
    }

    fn supports_explain_with_utility_options(&self) -> bool {
        DIALECT.supports_explain_with_utility_options()
    }

    fn supports_listen_notify(&self) -> bool {
        DIALECT.supports_listen_notify()
    }

    fn supports_factorial_operator(&self) -> bool {
        DIALECT.supports_factorial_operator()
    }

    fn supports_bitwise_shift_operators(&self) -> bool {
        DIALECT.supports_bitwise_shift_operators()
    }

    fn supports_comment_on(&self) -> bool {
        DIALECT.supports_comment_on()
    }

    fn supports_load_extension(&self) -> bool {
        DIALECT.supports_load_extension()
    }

    fn supports_named_fn_args_with_colon_operator(&self) -> bool {
        DIALECT.supports_named_fn_args_with_colon_operator()
    }

    fn supports_named_fn_args_with_expr_name(&self) -> bool {
        DIALECT.supports_named_fn_args_with_expr_name()
    }

    fn supports_empty_projections(&self) -> bool {
        DIALECT.supports_empty_projections()
    }

    fn supports_nested_comments(&self) -> bool {
        DIALECT.supports_nested_comments()
    }

    fn supports_string_escape_constant(&self) -> bool {
        DIALECT.supports_string_escape_constant()
    }

    fn supports_numeric_literal_underscores(&self) -> bool {
        DIALECT.supports_numeric_literal_underscores()
    }

    fn supports_array_typedef_with_brackets(&self) -> bool {
        DIALECT.supports_array_typedef_with_brackets()
    }

    fn supports_geometric_types(&self) -> bool {
        DIALECT.supports_geometric_types()
    }

    fn supports_set_names(&self) -> bool {
        DIALECT.supports_set_names()
    }

    fn supports_alter_column_type_using(&self) -> bool {
        DIALECT.supports_alter_column_type_using()
    }

    fn supports_notnull_operator(&self) -> bool {
        DIALECT.supports_notnull_operator()
    }

    fn supports_interval_options(&self) -> bool {
        DIALECT.supports_interval_options()
    }

    fn supports_insert_table_alias(&self) -> bool {
        DIALECT.supports_insert_table_alias()
    }

    fn supports_create_table_like_parenthesized(&self) -> bool {
        DIALECT.supports_create_table_like_parenthesized()
    }

    fn supports_select_wildcard_with_alias(&self) -> bool {
        DIALECT.supports_select_wildcard_with_alias()
    }

    fn supports_comma_separated_trim(&self) -> bool {
        DIALECT.supports_comma_separated_trim()
    }

    fn supports_xml_expressions(&self) -> bool {
        DIALECT.supports_xml_expressions()
    }

    fn supports_comment_optimizer_hint(&self) -> bool {
        DIALECT.supports_comment_optimizer_hint()
    }
}
