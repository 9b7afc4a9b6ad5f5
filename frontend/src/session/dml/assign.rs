//! What may be assigned to a column of which type.

use std::ops::Deref;

use datafusion::sql::sqlparser::ast::{self, Expr, UnaryOperator, Value};
use weir_common::catalog::{ColumnDef, Object};
use weir_common::types::SqlType;

use crate::error::{Result, SqlError, SqlState};
use crate::session::build;
use crate::statement::{Ident, parse_expr};

/// Whether PostgreSQL converts a value of one type to another when it is assigned.
pub(in crate::session) fn is_assignable(from: &SqlType, to: &SqlType) -> bool {
    use SqlType::*;
    let is_number = |t: &SqlType| matches!(t, SmallInt | Integer | BigInt | Real | Double | Numeric(_));
    let is_moment = |t: &SqlType| matches!(t, Date | Timestamp | TimestampTz);
    match (from, to) {
        (from, to) if from == to => true,
        (_, Varchar) => true,
        (from, to) if is_number(from) && is_number(to) => true,
        (from, to) if is_moment(from) && is_moment(to) => true,
        (Timestamp | TimestampTz | Interval, Time) | (Time, Interval) => true,
        (Array(from), Array(to)) => is_assignable(from, to),
        (Struct(from), Struct(to)) => {
            from.len() == to.len() && from.iter().zip(to).all(|(f, t)| is_assignable(&f.1, &t.1))
        }
        _ => false,
    }
}

/// Refuses a value of the wrong type.
pub(in crate::session) fn check(column: &ColumnDef, from: &SqlType) -> Result<()> {
    if is_assignable(from, &column.sql_type) {
        return Ok(());
    }
    let message = format!("column \"{}\" is of type {} but expression is of type {from}", column.name, column.sql_type);
    let error = SqlError::new(SqlState::DATATYPE_MISMATCH, message);
    Err(error.with_hint("You will need to rewrite or cast the expression."))
}

/// Whether an expression takes the type of the column that it is assigned to: a string, NULL or parameter.
pub(in crate::session) fn is_untyped(expr: &Expr) -> bool {
    match expr {
        Expr::Value(value) => matches!(
            value.value,
            Value::SingleQuotedString(_)
                | Value::EscapedStringLiteral(_)
                | Value::DollarQuotedString(_)
                | Value::UnicodeStringLiteral(_)
                | Value::Null
                | Value::Placeholder(_)
        ),
        Expr::Nested(inner) => is_untyped(inner),
        _ => false,
    }
}

/// Whether an expression is a number, with or without a sign.
pub(in crate::session) fn is_number(expr: &Expr) -> bool {
    match expr {
        Expr::Value(value) => matches!(value.value, Value::Number(..)),
        Expr::UnaryOp { op: UnaryOperator::Minus | UnaryOperator::Plus, expr } => is_number(expr),
        Expr::Nested(inner) => is_number(inner),
        _ => false,
    }
}

/// Whether an expression is the word DEFAULT.
pub(in crate::session) fn is_default(expr: &Expr) -> bool {
    matches!(expr, Expr::Identifier(ident) if ident.quote_style.is_none() && ident.value.eq_ignore_ascii_case("default"))
}

/// The value that a column gets when none is given.
pub(in crate::session) fn default(column: &ColumnDef) -> Result<Expr> {
    Ok(stored_default(column)?.unwrap_or_else(build::null))
}

/// The DEFAULT of a column, if it has one.
pub(in crate::session) fn stored_default(column: &ColumnDef) -> Result<Option<Expr>> {
    column.default.as_ref().map(|text| stored_expr(column, text)).transpose()
}

/// The generated columns of a table with their expressions.
pub(in crate::session) fn generated(object: &Object) -> Result<Vec<(usize, Expr)>> {
    let columns = object.columns.iter().enumerate();
    let generated = columns.filter_map(|(i, c)| Some((i, c, c.generated.as_ref()?)));
    generated.map(|(i, column, text)| Ok((i, stored_expr(column, text)?))).collect()
}

fn stored_expr(column: &ColumnDef, text: &str) -> Result<Expr> {
    parse_expr(text)
        .map_err(|e| SqlError::internal(format!("the expression of column \"{}\" cannot be read: {e}", column.name)))
}

/// The column of a table that a statement writes to.
pub(in crate::session) fn target(object: &Object, ident: &Ident) -> Result<usize> {
    let found = object.columns.iter().position(|c| c.name == ident.value && !c.hidden);
    let index = found.ok_or_else(|| {
        let message = format!("column \"{}\" of relation \"{}\" does not exist", ident.value, object.name);
        ident.mark(SqlError::new(SqlState::UNDEFINED_COLUMN, message))
    })?;
    if object.columns[index].generated.is_some() {
        let message = format!("column \"{}\" can only be updated to DEFAULT", ident.value);
        let error = SqlError::new(SqlState("428C9"), message);
        return Err(ident.mark(error).with_detail(format!("Column \"{}\" is a generated column.", ident.value)));
    }
    Ok(index)
}

/// The last part of a possibly qualified name.
pub(in crate::session) fn last_ident(name: &ast::ObjectName) -> Result<&ast::Ident> {
    let last = name.0.last().and_then(|part| part.as_ident());
    last.ok_or_else(|| SqlError::syntax(format!("invalid column name: {name}")))
}

/// Refuses a clause of another database.
pub(in crate::session) fn refuse_if(present: bool, clause: &str) -> Result<()> {
    if present { Err(SqlError::unsupported(clause)) } else { Ok(()) }
}

/// The table and alias of an UPDATE or DELETE.
pub(in crate::session) fn target_table(table: &ast::TableWithJoins) -> Result<(crate::statement::Name, String)> {
    let ast::TableFactor::Table { name, alias, args: None, version: None, sample: None, .. } = &table.relation else {
        return Err(SqlError::syntax("a statement that writes must name a table"));
    };
    refuse_if(!table.joins.is_empty(), "a join as the target of a write")?;
    let name = super::table_name(name)?;
    let alias = alias.as_ref().map_or_else(
        || name.name.value.clone(),
        |alias| crate::statement::Ident::from(&alias.name).value.deref().to_string(),
    );
    Ok((name, alias))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn assignments_follow_postgresql() {
        use SqlType::*;
        for (from, to) in [
            (Integer, BigInt),
            (Double, Integer),
            (Numeric(None), SmallInt),
            (Integer, Varchar),
            (Jsonb, Varchar),
            (Date, Timestamp),
            (TimestampTz, Date),
            (Array(Box::new(Integer)), Array(Box::new(BigInt))),
        ] {
            assert!(is_assignable(&from, &to), "{from} to {to}");
        }
        for (from, to) in [
            (Varchar, Integer),
            (Varchar, Date),
            (Varchar, Jsonb),
            (Boolean, Integer),
            (Integer, Boolean),
            (Integer, Date),
            (Date, Integer),
            (Time, Timestamp),
            (Array(Box::new(Varchar)), Array(Box::new(Integer))),
        ] {
            assert!(!is_assignable(&from, &to), "{from} to {to}");
        }
    }
}
