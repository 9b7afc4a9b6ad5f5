//! Finds filters that name whole keys, `k = 5` or `k IN (5, 6)`, so that those rows are fetched instead of all scanned.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::{BinaryExpr, Expr, Operator};
use weir_common::TableDef;
use weir_common::key::is_exact;

/// Lists longer than this are scanned for.
const KEYS_MAX: usize = 1000;

/// Values that a column must have one of.
struct Choice {
    column: usize,
    values: Vec<ScalarValue>,
}

/// The key columns of the rows that can match, one array per key column, when the filters (which are all to be true)
/// name them all. Rows that match no key cannot match the filters; rows that do may still not.
pub(super) fn keys(def: &TableDef, filters: &[Expr]) -> Option<Vec<ArrayRef>> {
    let choices: Vec<Choice> = filters.iter().filter_map(|f| choice(def, f)).collect();
    // Every combination of the values of each column.
    let mut rows: Vec<Vec<ScalarValue>> = vec![vec![]];
    for key in &def.key {
        // NaN and -0 make equality of floats something else than equality of keys' bytes.
        let data_type = def.schema.field(key.column).data_type();
        let choice = choices.iter().find(|c| c.column == key.column).filter(|_| is_exact(data_type))?;
        if rows.len() * choice.values.len() > KEYS_MAX {
            return None;
        }
        let with = |row: &Vec<ScalarValue>, value: &ScalarValue| row.iter().cloned().chain([value.clone()]).collect();
        rows = rows.iter().flat_map(|row| choice.values.iter().map(move |value| with(row, value))).collect();
    }
    if rows.is_empty() {
        return None;
    }
    let columns = (0..def.key.len()).map(|i| ScalarValue::iter_to_array(rows.iter().map(|row| row[i].clone())).ok());
    columns.collect()
}

/// Whether a filter helps to find keys.
pub(super) fn is_useful(def: &TableDef, filter: &Expr) -> bool {
    choice(def, filter).is_some()
}

fn choice(def: &TableDef, filter: &Expr) -> Option<Choice> {
    match filter {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) => {
            let (column, value) = match (left.as_ref(), right.as_ref()) {
                (Expr::Column(column), Expr::Literal(value, _)) | (Expr::Literal(value, _), Expr::Column(column)) => {
                    (column, value)
                }
                _ => return None,
            };
            let column = key_column(def, &column.name)?;
            Some(Choice { column, values: typed(def, column, std::iter::once(value))? })
        }
        Expr::BinaryExpr(BinaryExpr { op: Operator::Or, .. }) => {
            let mut alternatives = Vec::new();
            or_terms(filter, &mut alternatives);
            let choices = alternatives.into_iter().map(|e| choice(def, e)).collect::<Option<Vec<_>>>()?;
            let column = choices.first()?.column;
            let same = choices.iter().all(|c| c.column == column);
            let values = choices.into_iter().flat_map(|c| c.values);
            same.then(|| Choice { column, values: distinct(values) })
        }
        Expr::InList(list) if !list.negated => {
            let Expr::Column(column) = list.expr.as_ref() else { return None };
            let column = key_column(def, &column.name)?;
            let literal = |e: &Expr| match e {
                Expr::Literal(value, _) => Some(value.clone()),
                _ => None,
            };
            let values = list.list.iter().map(literal).collect::<Option<Vec<_>>>()?;
            Some(Choice { column, values: typed(def, column, values.iter())? })
        }
        _ => None,
    }
}

/// The sides of a chain of ORs.
fn or_terms<'a>(expr: &'a Expr, terms: &mut Vec<&'a Expr>) {
    let mut open = vec![expr];
    while let Some(expr) = open.pop() {
        match expr {
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::Or, right }) => open.extend([left.as_ref(), right]),
            other => terms.push(other),
        }
    }
}

fn key_column(def: &TableDef, name: &str) -> Option<usize> {
    let column = def.schema.index_of(name).ok()?;
    def.key.iter().any(|k| k.column == column).then_some(column)
}

/// The values, none of them NULL, when all have the column's own type: nothing else compares as keys do.
fn typed<'a>(def: &TableDef, column: usize, values: impl Iterator<Item = &'a ScalarValue>) -> Option<Vec<ScalarValue>> {
    let data_type = def.schema.field(column).data_type();
    let values: Vec<ScalarValue> = values.filter(|v| !v.is_null()).cloned().collect();
    values.iter().all(|v| v.data_type() == *data_type).then(|| distinct(values.into_iter()))
}

fn distinct(values: impl Iterator<Item = ScalarValue>) -> Vec<ScalarValue> {
    let mut seen = std::collections::HashSet::new();
    values.filter(|v| seen.insert(v.clone())).collect()
}

/// A shared empty array is what no key is.
pub(super) fn is_empty(keys: &[ArrayRef]) -> bool {
    keys.first().is_none_or(|k: &Arc<dyn Array>| k.is_empty())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use arrow::datatypes::{DataType, Field, Schema};
    use datafusion::logical_expr::{col, lit};
    use weir_common::TableId;

    use super::*;

    fn def() -> TableDef {
        let fields = [("a", DataType::Int32), ("b", DataType::Utf8), ("f", DataType::Float64)];
        let schema = Schema::new(fields.map(|(n, t)| Field::new(n, t, true)).to_vec());
        TableDef::ascending(TableId(1), schema, &[0, 1], &[0])
    }

    fn found(filters: &[Expr]) -> Option<usize> {
        keys(&def(), filters).map(|k| k[0].len())
    }

    #[test]
    fn whole_keys_are_found() {
        assert_eq!(found(&[col("a").eq(lit(1i32)), col("b").eq(lit("x"))]), Some(1));
        assert_eq!(found(&[lit(1i32).eq(col("a")), col("b").in_list(vec![lit("x"), lit("y")], false)]), Some(2));
        let either = col("a").eq(lit(1i32)).or(col("a").eq(lit(2i32))).or(col("a").eq(lit(2i32)));
        assert_eq!(found(&[either, col("b").eq(lit("x"))]), Some(2));
    }

    #[test]
    fn anything_else_is_scanned() {
        assert_eq!(found(&[col("a").eq(lit(1i32))]), None);
        assert_eq!(found(&[col("a").eq(lit(1i64)), col("b").eq(lit("x"))]), None);
        assert_eq!(found(&[col("a").not_eq(lit(1i32)), col("b").eq(lit("x"))]), None);
        assert_eq!(found(&[col("a").in_list(vec![lit(1i32)], true), col("b").eq(lit("x"))]), None);
        let mut float_key = def();
        float_key.key[1].column = 2;
        assert!(keys(&float_key, &[col("a").eq(lit(1i32)), col("f").eq(lit(0.0))]).is_none());
    }
}
