//! `key = constant` (or `key IN (..)`) on every column of the key that users know -> encoded keys for `Region::lookup`.

use arrow::array::ArrayRef;
use datafusion::{
    logical_expr::{BinaryExpr, Expr, Operator},
    scalar::ScalarValue,
};
use millstream_storage::KeyMatch;
use millstream_types::{Key, KeyCodec, TableSchema};

use crate::SqlError;

/// Most keys of one look-up; above it a scan is no slower.
const MOST_KEYS: usize = 1024;

/// The key column that a filter binds, and its values: of the column's own type, never null (`= NULL` finds nothing).
pub(super) fn key_values(filter: &Expr, schema: &TableSchema) -> Option<(usize, Vec<ScalarValue>)> {
    match filter {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) => match (left.as_ref(), right.as_ref()) {
            (Expr::Column(c), Expr::Literal(v, _)) | (Expr::Literal(v, _), Expr::Column(c)) => {
                bind(&c.name, vec![v.clone()], schema)
            }
            _ => None,
        },
        Expr::InList(list) if !list.negated && list.list.len() <= MOST_KEYS => {
            let Expr::Column(c) = list.expr.as_ref() else { return None };
            let values = list.list.iter().map(|e| match e {
                Expr::Literal(v, _) => Some(v.clone()),
                _ => None,
            });
            bind(&c.name, values.collect::<Option<_>>()?, schema)
        }
        // the optimiser turns short IN lists into ORs
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Or, right }) => {
            let (column, mut values) = key_values(left, schema)?;
            let (other, more) = key_values(right, schema)?;
            values.extend(more);
            (column == other && values.len() <= MOST_KEYS).then_some((column, values))
        }
        _ => None,
    }
}

fn bind(name: &str, values: Vec<ScalarValue>, schema: &TableSchema) -> Option<(usize, Vec<ScalarValue>)> {
    let column = schema.position(name).filter(|i| schema.is_key(*i) && !schema.columns[*i].hidden)?;
    let own = schema.columns[column].sql_type.arrow();
    values.iter().all(|v| v.data_type() == own && !v.is_null()).then_some((column, values))
}

/// The keys that all filters together allow, sorted and distinct; `None` = some column of the key is free, scan.
pub(super) fn keys(filters: &[Expr], schema: &TableSchema) -> Result<Option<(Vec<Key>, KeyMatch)>, SqlError> {
    let key = schema.user_key();
    if key.is_empty() {
        return Ok(None);
    }
    let by = if key.len() == schema.primary_key.len() { KeyMatch::Whole } else { KeyMatch::Prefix };
    let bound: Vec<(usize, Vec<ScalarValue>)> = filters.iter().filter_map(|f| key_values(f, schema)).collect();
    let mut combinations: Vec<Vec<ScalarValue>> = vec![Vec::new()];
    for column in key {
        let Some((_, values)) = bound.iter().find(|(c, _)| c == column) else { return Ok(None) };
        if combinations.len() * values.len() > MOST_KEYS {
            return Ok(None);
        }
        combinations = combinations
            .iter()
            .flat_map(|head| values.iter().map(|v| [head.as_slice(), std::slice::from_ref(v)].concat()))
            .collect();
    }
    let mut columns: Vec<ArrayRef> = Vec::with_capacity(key.len());
    for i in 0..key.len() {
        columns.push(ScalarValue::iter_to_array(combinations.iter().map(|c| c[i].clone()))?);
    }
    let codec = KeyCodec::new(key.iter().map(|k| schema.columns[*k].sql_type.arrow()))?;
    let rows = codec.encode(&columns)?;
    let mut keys: Vec<Key> = (0..rows.num_rows()).map(|i| Key::from(rows.row(i).as_ref())).collect();
    keys.sort_unstable();
    keys.dedup();
    Ok(Some((keys, by)))
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::{col, lit};
    use millstream_types::{Column, SqlType};

    use super::*;

    fn int_column(values: Vec<i64>) -> ArrayRef {
        std::sync::Arc::new(arrow::array::Int64Array::from(values))
    }

    fn schema() -> TableSchema {
        let columns = vec![
            Column::new(1, "a", SqlType::BigInt),
            Column::new(2, "b", SqlType::BigInt),
            Column::new(3, "c", SqlType::BigInt),
        ];
        TableSchema { id: 1, columns, primary_key: vec![0, 1] }
    }

    #[test]
    fn every_key_column_must_be_bound() {
        assert!(keys(&[col("a").eq(lit(1_i64))], &schema()).unwrap().is_none());
        assert!(keys(&[col("a").eq(lit(1_i64)), col("c").eq(lit(1_i64))], &schema()).unwrap().is_none());
        let found = keys(&[col("a").eq(lit(1_i64)), lit(7_i64).eq(col("b"))], &schema()).unwrap().unwrap();
        let codec = KeyCodec::new([arrow::datatypes::DataType::Int64, arrow::datatypes::DataType::Int64]).unwrap();
        let rows = codec.encode(&[int_column(vec![1]), int_column(vec![7])]).unwrap();
        assert_eq!(found, (vec![Key::from(rows.row(0).as_ref())], KeyMatch::Whole));
    }

    #[test]
    fn the_number_of_a_region_is_left_open() {
        let mut region = Column::new(4, millstream_types::schema::REGION_COLUMN, SqlType::Int).not_null();
        region.hidden = true;
        let mut schema = schema();
        schema.columns.push(region);
        let whole = keys(&[col("a").eq(lit(1_i64)), col("b").eq(lit(7_i64))], &schema).unwrap().unwrap();
        schema.primary_key.push(3);
        let prefix = keys(&[col("a").eq(lit(1_i64)), col("b").eq(lit(7_i64))], &schema).unwrap().unwrap();
        assert_eq!(prefix, (whole.0, KeyMatch::Prefix));
    }

    #[test]
    fn in_lists_multiply_and_come_sorted() {
        let filters = [
            col("a").in_list(vec![lit(2_i64), lit(1_i64), lit(2_i64)], false),
            col("b").eq(lit(5_i64)).or(col("b").eq(lit(4_i64))),
        ];
        let found = keys(&filters, &schema()).unwrap().unwrap();
        assert_eq!(found.0.len(), 4);
        assert!(found.0.is_sorted());
    }

    #[test]
    fn another_type_or_null_is_left_to_the_scan() {
        assert!(key_values(&col("a").eq(lit(1_i32)), &schema()).is_none());
        assert!(key_values(&col("a").eq(lit(ScalarValue::Int64(None))), &schema()).is_none());
    }
}
