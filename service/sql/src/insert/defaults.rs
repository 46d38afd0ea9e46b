//! Column defaults: constants, checked and brought to one spelling at CREATE TABLE, so that decoders read a literal and not SQL.

use std::{collections::HashMap, sync::Arc};

use arrow::datatypes::DataType;
use datafusion::{
    common::{DFSchema, DataFusionError},
    logical_expr::Expr,
    scalar::ScalarValue,
};
use millstream_types::TableSchema;

use crate::{SqlError, parser::statement::ColumnDef, planner::expr, service::Core};

/// Replaces each default in `schema` by its literal: `TRUE`, a number, or a quoted text that casts to the column's type.
pub(crate) fn check(core: &Arc<Core>, columns: &[ColumnDef], schema: &mut TableSchema) -> Result<(), SqlError> {
    let session = core.session()?;
    for (def, column) in columns.iter().zip(&mut schema.columns) {
        let Some((text, ast, at)) = &def.default else { continue };
        let wanted = column.sql_type.arrow();
        let refuse = |e: &dyn std::fmt::Display| {
            SqlError::invalid(format!(
                "DEFAULT {text} of column {} is not a constant of type {}: {e}",
                column.name, column.sql_type
            ))
            .at(*at)
        };
        let empty = DFSchema::empty();
        let planned = session
            .state
            .create_logical_expr_from_sql_expr(
                datafusion::sql::sqlparser::ast::ExprWithAlias { expr: ast.clone(), alias: None },
                &empty,
            )
            .and_then(|e| cast(session.bound_expr(e)?, &wanted, &empty))
            .map_err(|e| refuse(&SqlError::from(e).message))?;
        let value = match expr::simplify(&session.state, &planned, DFSchema::empty_ref()) {
            Ok(Expr::Literal(value, _)) => value,
            Ok(_) => return Err(refuse(&"it has another value each time")),
            Err(e) => return Err(refuse(&e.message)),
        };
        column.default = if value.is_null() { None } else { Some(literal(&value).map_err(|e| refuse(&e))?) };
    }
    Ok(())
}

fn cast(expr: Expr, to: &DataType, schema: &DFSchema) -> Result<Expr, DataFusionError> {
    use datafusion::logical_expr::ExprSchemable;
    expr.cast_to(to, schema)
}

fn literal(value: &ScalarValue) -> Result<String, DataFusionError> {
    Ok(match value {
        ScalarValue::Boolean(Some(b)) => b.to_string().to_uppercase(),
        v if v.data_type().is_integer() => v.to_string(),
        v if v.data_type().is_nested() => {
            return Err(DataFusionError::Plan("arrays, structs and maps cannot be a default yet".to_owned()));
        }
        v => match v.cast_to(&DataType::Utf8)? {
            ScalarValue::Utf8(Some(text)) if v.data_type().is_numeric() => text,
            ScalarValue::Utf8(Some(text)) => format!("'{}'", text.replace('\'', "''")),
            _ => return Err(DataFusionError::Plan("it has no text form".to_owned())),
        },
    })
}

/// The stored literals as expressions, for columns that an INSERT leaves out.
pub(crate) fn expressions(schema: &TableSchema) -> Result<HashMap<String, Expr>, SqlError> {
    let mut all = HashMap::new();
    for column in &schema.columns {
        let Some(text) = &column.default else { continue };
        let plain = match text.strip_prefix('\'').and_then(|t| t.strip_suffix('\'')) {
            Some(quoted) => quoted.replace("''", "'"),
            None => text.clone(),
        };
        let value = ScalarValue::Utf8(Some(plain)).cast_to(&column.sql_type.arrow())?;
        all.insert(column.name.clone(), Expr::Literal(value, None));
    }
    Ok(all)
}
