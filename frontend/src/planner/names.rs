//! What a column of a select list is called when it was given no name, as PostgreSQL does it.

use datafusion::sql::sqlparser::ast::{
    AccessExpr, CastKind, DataType, Expr, Query, SelectItem, SetExpr, TrimWhereField,
};

/// The name of a column without a useful name.
pub(super) const NAMELESS: &str = "?column?";
/// Stands between a name and a number in the names of plan fields, which must differ where SQL's need not.
pub(super) const NUMBERED: char = '\u{1}';

/// The name of an expression in a select list.
pub(super) fn of_expr(expr: &Expr) -> String {
    figure(expr).map_or_else(|| NAMELESS.to_string(), |f| f.0)
}

/// The name of a plan's field as users see it.
pub(super) fn shown(field: &str) -> &str {
    field.split(NUMBERED).next().unwrap_or(field)
}

/// The name of an intermediate column: DataFusion's name of a window function goes on and on.
pub(super) fn short(field: &str) -> &str {
    let shown = shown(field);
    match shown.split_once('(') {
        Some((function, rest)) if rest.contains(" ORDER BY ") || rest.contains(" PARTITION BY ") => function,
        _ => shown,
    }
}

/// How good a name is: a cast's type and CASE yield to a better one from inside.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
enum Strength {
    Weak,
    Strong,
}

fn strong(name: impl Into<String>) -> Option<(String, Strength)> {
    Some((name.into(), Strength::Strong))
}

fn figure(expr: &Expr) -> Option<(String, Strength)> {
    match expr {
        Expr::Identifier(ident) => strong(normal(ident)),
        Expr::CompoundIdentifier(idents) => idents.last().and_then(|i| strong(normal(i))),
        Expr::CompoundFieldAccess { root, access_chain } => {
            let field = access_chain.iter().rev().find_map(|access| match access {
                AccessExpr::Dot(Expr::Identifier(ident)) => Some(normal(ident)),
                _ => None,
            });
            field.map_or_else(|| figure(root), strong)
        }
        Expr::Function(function) => {
            let name = function.name.0.last().and_then(|part| part.as_ident());
            name.and_then(|ident| strong(normal(ident)))
        }
        // The mark of an integer literal.
        Expr::Cast { kind: CastKind::Cast, data_type: DataType::Int32, .. } => None,
        Expr::Cast { expr, data_type, .. } => match figure(expr) {
            Some((name, Strength::Strong)) => strong(name),
            _ => Some((type_name(data_type), Strength::Weak)),
        },
        Expr::TypedString(typed) => Some((type_name(&typed.data_type), Strength::Weak)),
        Expr::Interval(_) => Some(("interval".into(), Strength::Weak)),
        Expr::Case { else_result, .. } => match else_result.as_deref().and_then(figure) {
            Some((name, Strength::Strong)) => strong(name),
            _ => Some(("case".into(), Strength::Weak)),
        },
        Expr::Nested(inner) | Expr::Collate { expr: inner, .. } => figure(inner),
        Expr::Subquery(query) => of_query(query),
        Expr::Exists { .. } => strong("exists"),
        Expr::Array(_) => strong("array"),
        Expr::Extract { .. } => strong("extract"),
        Expr::Ceil { .. } => strong("ceil"),
        Expr::Floor { .. } => strong("floor"),
        Expr::Position { .. } => strong("position"),
        Expr::Substring { .. } => strong("substring"),
        Expr::Overlay { .. } => strong("overlay"),
        Expr::Trim { trim_where, .. } => strong(match trim_where {
            Some(TrimWhereField::Leading) => "ltrim",
            Some(TrimWhereField::Trailing) => "rtrim",
            Some(TrimWhereField::Both) | None => "btrim",
        }),
        Expr::AtTimeZone { .. } => strong("timezone"),
        Expr::Tuple(_) | Expr::Struct { .. } => strong("row"),
        _ => None,
    }
}

/// A scalar subquery is named after its column.
fn of_query(query: &Query) -> Option<(String, Strength)> {
    let mut body = &*query.body;
    loop {
        match body {
            SetExpr::Select(select) => {
                return match select.projection.first()? {
                    SelectItem::ExprWithAlias { alias, .. } => strong(shown(&normal(alias))),
                    SelectItem::UnnamedExpr(expr) => figure(expr),
                    _ => None,
                };
            }
            SetExpr::Query(inner) => body = &inner.body,
            SetExpr::SetOperation { left, .. } => body = left,
            _ => return None,
        }
    }
}

fn normal(ident: &datafusion::sql::sqlparser::ast::Ident) -> String {
    if ident.quote_style.is_some() { ident.value.clone() } else { ident.value.to_lowercase() }
}

/// The name of a type in `pg_type`.
fn type_name(data_type: &DataType) -> String {
    use weir_common::SqlType;
    match super::types::sql_type(data_type) {
        Ok(SqlType::Boolean) => "bool".into(),
        Ok(SqlType::SmallInt) => "int2".into(),
        Ok(SqlType::Integer) => "int4".into(),
        Ok(SqlType::BigInt) => "int8".into(),
        Ok(SqlType::Real) => "float4".into(),
        Ok(SqlType::Double) => "float8".into(),
        Ok(SqlType::Numeric(_)) => "numeric".into(),
        Ok(SqlType::Varchar) if matches!(data_type, DataType::Text) => "text".into(),
        Ok(SqlType::Varchar) => "varchar".into(),
        Ok(SqlType::Time) => "time".into(),
        Ok(SqlType::Timestamp) => "timestamp".into(),
        Ok(SqlType::TimestampTz) => "timestamptz".into(),
        Ok(SqlType::Array(_)) => "array".into(),
        Ok(SqlType::Struct(_)) => "row".into(),
        Ok(other) => other.to_string(),
        Err(_) => data_type.to_string().to_lowercase(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;

    #[test]
    fn names_are_postgresqls() {
        for (sql, name) in [
            ("count(*)", "count"),
            ("Sum(x) + 1", "?column?"),
            ("t.\"A\"", "A"),
            ("B", "b"),
            ("1", "?column?"),
            ("1::int", "int4"),
            ("x::int", "x"),
            ("(x::varchar)", "x"),
            ("'1'::text", "text"),
            ("date '2030-01-01'", "date"),
            ("interval '1 day'", "interval"),
            ("case when a then 1 end", "case"),
            ("case when a then 1 else b end", "b"),
            ("coalesce(a, b)", "coalesce"),
            ("extract(day from d)", "extract"),
            ("trim(a)", "btrim"),
            ("(select max(v) from t)", "max"),
            ("exists (select 1)", "exists"),
            ("array[1]", "array"),
            ("a[1]", "a"),
            ("not a", "?column?"),
        ] {
            let expr = Parser::new(&PostgreSqlDialect {}).try_with_sql(sql).unwrap().parse_expr().unwrap();
            assert_eq!(of_expr(&expr), name, "{sql}");
        }
        assert_eq!(shown("count\u{1}2"), "count");
    }
}
