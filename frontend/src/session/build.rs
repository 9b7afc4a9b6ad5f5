//! Builds pieces of queries.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::helpers::attached_token::AttachedToken;
use datafusion::sql::sqlparser::ast::{
    ArrayElemTypeDef, CastKind, CharacterLength, DataType, ExactNumberInfo, Expr, FunctionArguments, GroupByExpr,
    Ident, ObjectName, Parens, Query, Select, SelectFlavor, SelectItem, SetExpr, SetOperator, SetQuantifier,
    StructBracketKind, StructField, TableAlias, TableAliasColumnDef, TableFactor, TableWithJoins, TimezoneInfo, Value,
    Values, visit_expressions,
};
use weir_common::types::SqlType;

/// A quoted identifier.
pub(super) fn ident(name: &str) -> Ident {
    Ident::with_quote('"', name)
}

/// `"table"."column"`.
pub(super) fn column(table: &str, column: &str) -> Expr {
    Expr::CompoundIdentifier(vec![ident(table), ident(column)])
}

/// `expr AS "name"`.
pub(super) fn named(expr: Expr, name: &str) -> SelectItem {
    SelectItem::ExprWithAlias { expr, alias: ident(name) }
}

/// NULL.
pub(super) fn null() -> Expr {
    Expr::Value(Value::Null.into())
}

/// `CAST(expr AS type)`.
pub(super) fn cast(expr: Expr, to: &SqlType) -> Expr {
    Expr::Cast {
        kind: CastKind::DoubleColon,
        expr: Box::new(expr),
        data_type: data_type(to),
        array: false,
        format: None,
    }
}

/// A type, as it is written.
pub(super) fn data_type(sql_type: &SqlType) -> DataType {
    match sql_type {
        SqlType::Boolean => DataType::Boolean,
        SqlType::SmallInt => DataType::SmallInt(None),
        SqlType::Integer => DataType::Integer(None),
        SqlType::BigInt => DataType::BigInt(None),
        SqlType::Real => DataType::Real,
        SqlType::Double => DataType::DoublePrecision,
        SqlType::Numeric(None) => DataType::Numeric(ExactNumberInfo::None),
        SqlType::Numeric(Some((precision, scale))) => {
            DataType::Numeric(ExactNumberInfo::PrecisionAndScale((*precision).into(), (*scale).into()))
        }
        SqlType::Varchar => DataType::Varchar(None::<CharacterLength>),
        SqlType::Bytea => DataType::Bytea,
        SqlType::Date => DataType::Date,
        SqlType::Time => DataType::Time(None, TimezoneInfo::None),
        SqlType::Timestamp => DataType::Timestamp(None, TimezoneInfo::None),
        SqlType::TimestampTz => DataType::Timestamp(None, TimezoneInfo::WithTimeZone),
        SqlType::Interval => DataType::Interval { fields: None, precision: None },
        SqlType::Jsonb => DataType::JSONB,
        SqlType::Array(item) => DataType::Array(ArrayElemTypeDef::SquareBracket(Box::new(data_type(item)), None)),
        SqlType::Struct(fields) => {
            let field = |(name, field_type): &(String, SqlType)| StructField {
                field_name: Some(ident(name)),
                field_type: data_type(field_type),
                options: None,
            };
            DataType::Struct(fields.iter().map(field).collect(), StructBracketKind::AngleBrackets)
        }
    }
}

/// `"schema"."name" AS "alias"`.
pub(super) fn table(schema: &str, name: &str, alias: &str) -> TableWithJoins {
    let relation = TableFactor::Table {
        name: ObjectName::from(vec![ident(schema), ident(name)]),
        alias: Some(table_alias(alias, &[])),
        args: None,
        with_hints: vec![],
        version: None,
        with_ordinality: false,
        partitions: vec![],
        json_path: None,
        sample: None,
        index_hints: vec![],
    };
    TableWithJoins { relation, joins: vec![] }
}

/// `(query) AS "alias" ("column", …)`.
pub(super) fn derived(query: Query, alias: &str, columns: &[String]) -> TableWithJoins {
    let relation = TableFactor::Derived {
        lateral: false,
        subquery: Box::new(query),
        alias: Some(table_alias(alias, columns)),
        sample: None,
    };
    TableWithJoins { relation, joins: vec![] }
}

fn table_alias(name: &str, columns: &[String]) -> TableAlias {
    let column = |name: &String| TableAliasColumnDef { name: ident(name), data_type: None };
    TableAlias { explicit: true, name: ident(name), columns: columns.iter().map(column).collect(), at: None }
}

/// `SELECT items FROM from WHERE selection`.
pub(super) fn select(projection: Vec<SelectItem>, from: Vec<TableWithJoins>, selection: Option<Expr>) -> Query {
    query(SetExpr::Select(Box::new(Select {
        select_token: AttachedToken::empty(),
        optimizer_hints: vec![],
        distinct: None,
        select_modifiers: None,
        top: None,
        top_before_distinct: false,
        projection,
        exclude: None,
        into: None,
        from,
        lateral_views: vec![],
        prewhere: None,
        selection,
        connect_by: vec![],
        group_by: GroupByExpr::Expressions(vec![], vec![]),
        cluster_by: vec![],
        distribute_by: vec![],
        sort_by: vec![],
        having: None,
        named_window: vec![],
        qualify: None,
        window_before_qualify: false,
        value_table_mode: None,
        flavor: SelectFlavor::Standard,
    })))
}

/// A query without clauses around its body.
pub(super) fn query(body: SetExpr) -> Query {
    Query {
        with: None,
        body: Box::new(body),
        order_by: None,
        limit_clause: None,
        fetch: None,
        locks: vec![],
        for_clause: None,
        settings: None,
        format_clause: None,
        pipe_operators: vec![],
    }
}

/// `VALUES (…), …`; as a union when there are subqueries in it, which DataFusion would evaluate too late.
pub(super) fn rows(mut rows: Vec<Vec<Expr>>) -> SetExpr {
    let has_subquery = |expr: &Expr| {
        let is_subquery = |e: &Expr| match e {
            Expr::Subquery(_) | Expr::Exists { .. } | Expr::InSubquery { .. } => ControlFlow::Break(()),
            Expr::Function(function) if matches!(function.args, FunctionArguments::Subquery(_)) => {
                ControlFlow::Break(())
            }
            _ => ControlFlow::Continue(()),
        };
        visit_expressions(expr, is_subquery).is_break()
    };
    if !rows.iter().flatten().any(has_subquery) {
        return SetExpr::Values(values(rows));
    }
    if rows.len() <= 1 {
        let row = rows.pop().unwrap_or_default().into_iter().enumerate();
        let items = row.map(|(i, expr)| named(expr, &format!("column{}", i + 1))).collect();
        return *select(items, vec![], None).body;
    }
    // Halves, so that the depth stays small.
    let right = rows.split_off(rows.len() / 2);
    SetExpr::SetOperation {
        op: SetOperator::Union,
        set_quantifier: SetQuantifier::All,
        left: Box::new(self::rows(rows)),
        right: Box::new(self::rows(right)),
    }
}

/// `VALUES (…), …`.
fn values(rows: Vec<Vec<Expr>>) -> Values {
    let row =
        |content| Parens { opening_token: AttachedToken::empty(), content, closing_token: AttachedToken::empty() };
    Values { explicit_row: false, value_keyword: false, rows: rows.into_iter().map(row).collect() }
}
