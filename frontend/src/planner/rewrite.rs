//! What a query's text means in PostgreSQL, written so that DataFusion's binder understands it.
//!
//! * number literals get their types ([`super::literals`]),
//! * columns of select lists get PostgreSQL's names, numbered where they repeat ([`super::names`]),
//! * `FETCH FIRST` becomes LIMIT; WITH TIES marks its limit for [`super::logical`],
//! * `x AT TIME ZONE z` and `x::regclass` become function calls,
//! * a wildcard leaves out hidden columns that the query names elsewhere,
//! * clauses that the binder would silently ignore are refused.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    self, BinaryOperator, CastKind, DataType, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList,
    FunctionArguments, GroupByExpr, Ident, LimitClause, ObjectName, OrderByExpr, OrderByKind, Query, Select,
    SelectItem, TableAlias, TableAliasColumnDef, TableFactor, UnaryOperator, VisitMut, VisitorMut, WindowFrameBound,
    WindowSpec, WindowType,
};

use super::literals::{self, bare, narrow};
use super::{names, rows, texts};
use crate::error::{Result, SqlError};
use crate::statement;

/// The function around the number of `FETCH FIRST n ROWS WITH TIES`, until [`super::logical`] resolves it.
pub(super) const WITH_TIES: &str = "weir_with_ties";

/// The name under which the binder finds the `generate_series` that gives an array.
pub(super) const SERIES_ARRAY: &str = "weir_series";

/// Rewrites a query for the binder.
pub(super) fn query(query: &Query) -> Result<Query> {
    let mut query = query.clone();
    match VisitMut::visit(&mut query, &mut Rewrite) {
        ControlFlow::Continue(()) => Ok(query),
        ControlFlow::Break(error) => Err(*error),
    }
}

/// Rewrites an expression for the binder.
pub(super) fn expr(expr: &Expr) -> Result<Expr> {
    let mut expr = expr.clone();
    match VisitMut::visit(&mut expr, &mut Rewrite) {
        ControlFlow::Continue(()) => Ok(expr),
        ControlFlow::Break(error) => Err(*error),
    }
}

/// Every identifier that a query uses as (part of) a column's name.
pub(super) fn identifiers(query: &Query) -> HashSet<String> {
    let mut found = HashSet::new();
    let _ = ast::visit_expressions(query, |expr| {
        match expr {
            Expr::Identifier(ident) => found.insert(ident.value.clone()),
            Expr::CompoundIdentifier(idents) => idents.last().is_some_and(|i| found.insert(i.value.clone())),
            _ => false,
        };
        ControlFlow::<()>::Continue(())
    });
    found
}

struct Rewrite;

type Flow = ControlFlow<Box<SqlError>>;

fn refuse(error: SqlError) -> Flow {
    ControlFlow::Break(Box::new(error))
}

impl VisitorMut for Rewrite {
    type Break = Box<SqlError>;

    fn pre_visit_query(&mut self, query: &mut Query) -> Flow {
        if let Some(with) = &mut query.with
            && with.recursive
        {
            with.cte_tables.iter_mut().for_each(name_recursive);
        }
        if let Some(fetch) = query.fetch.take() {
            if fetch.percent {
                return refuse(SqlError::unsupported("FETCH FIRST … PERCENT"));
            }
            let number = fetch.quantity.unwrap_or_else(|| number("1"));
            let offset = match query.limit_clause.take() {
                Some(LimitClause::LimitOffset { limit: None, offset, .. }) => offset,
                None => None,
                Some(_) => return refuse(SqlError::syntax("multiple LIMIT clauses not allowed")),
            };
            if fetch.with_ties && query.order_by.is_none() {
                return refuse(SqlError::syntax("WITH TIES cannot be specified without ORDER BY clause"));
            }
            if fetch.with_ties && offset.is_some() {
                return refuse(SqlError::unsupported("OFFSET with FETCH FIRST … WITH TIES"));
            }
            let limit = if fetch.with_ties { call(WITH_TIES, vec![number]) } else { number };
            query.limit_clause = Some(LimitClause::LimitOffset { limit: Some(limit), offset, limit_by: vec![] });
        }
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &mut Query) -> Flow {
        if let Some(order_by) = &mut query.order_by
            && let OrderByKind::Expressions(exprs) = &mut order_by.kind
        {
            exprs.iter_mut().for_each(|e| bare(&mut e.expr));
        }
        match &mut query.limit_clause {
            Some(LimitClause::LimitOffset { limit, offset, .. }) => {
                // LIMIT ALL and LIMIT NULL mean no limit.
                if matches!(limit, Some(Expr::Value(v)) if v.value == ast::Value::Null) {
                    *limit = None;
                }
                if let Some(limit) = limit {
                    bare(limit);
                }
                if let Some(offset) = offset {
                    bare(&mut offset.value);
                }
            }
            Some(LimitClause::OffsetCommaLimit { offset, limit }) => {
                bare(offset);
                bare(limit);
            }
            None => {}
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> Flow {
        name_columns(&mut select.projection);
        ControlFlow::Continue(())
    }

    fn post_visit_select(&mut self, select: &mut Select) -> Flow {
        if let GroupByExpr::Expressions(exprs, _) = &mut select.group_by {
            for expr in exprs {
                bare(expr);
                if let Expr::Rollup(sets) | Expr::Cube(sets) | Expr::GroupingSets(sets) = expr {
                    sets.iter_mut().flatten().for_each(bare);
                }
            }
        }
        for window in &mut select.named_window {
            if let ast::NamedWindowExpr::WindowSpec(spec) = &mut window.1 {
                bare_frame(spec);
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> Flow {
        match factor {
            TableFactor::Table { name, .. } if reserved_name(name).is_some() => {
                let error = SqlError::syntax(format!("syntax error at or near \"{name}\""));
                refuse(match reserved_name(name) {
                    Some(ident) => crate::statement::Ident::from(ident).mark(error),
                    None => error,
                })
            }
            TableFactor::Table { version: Some(_), .. } => refuse(
                SqlError::unsupported("FOR SYSTEM_TIME AS OF")
                    .with_hint("A plain join keeps its answer true when either side changes."),
            ),
            TableFactor::Table { sample: Some(_), .. } | TableFactor::Derived { sample: Some(_), .. } => {
                refuse(SqlError::unsupported("TABLESAMPLE"))
            }
            TableFactor::Table { json_path: Some(_), .. } => refuse(SqlError::unsupported("a JSON path after a table")),
            TableFactor::Table { with_ordinality: true, .. }
            | TableFactor::Function { with_ordinality: true, .. }
            | TableFactor::UNNEST { with_ordinality: true, .. } => refuse(SqlError::unsupported("WITH ORDINALITY")),
            _ => {
                unnest_functions(factor);
                ControlFlow::Continue(())
            }
        }
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> Flow {
        match expr {
            Expr::AtTimeZone { timestamp, time_zone } => {
                let args = vec![take(time_zone), take(timestamp)];
                *expr = call("timezone", args);
            }
            Expr::Cast { kind: CastKind::Cast | CastKind::DoubleColon, expr: inner, data_type, .. } => {
                if let Some(function) = reg_function(data_type) {
                    *expr = call(function, vec![take(inner)]);
                } else if is_float(data_type) {
                    literals::as_float(inner);
                } else if matches!(data_type, DataType::Text | DataType::Varchar(_))
                    && let Some(shown) = name_of_oid(inner)
                {
                    *expr = shown;
                }
            }
            Expr::Interval(interval) => match interval_text(interval) {
                Some(text) => *expr = cast_text(text, DataType::Interval { fields: None, precision: None }),
                None => bare(&mut interval.value),
            },
            Expr::Identifier(ident) if ident.quote_style.is_none() && is_reserved(&ident.value) => {
                *expr = call(&ident.value.to_lowercase(), vec![]);
            }
            Expr::UnaryOp { op, expr: inner } if operator_function(*op).is_some() => {
                *expr = unary(*op, take(inner));
            }
            Expr::CompoundFieldAccess { access_chain, .. } => access_chain.iter_mut().for_each(bound_slice),
            Expr::Function(function) if is_array_of_query(function) => {
                if let FunctionArguments::Subquery(query) = &function.args {
                    match array_of(query) {
                        Ok(query) => *expr = Expr::Subquery(Box::new(query)),
                        Err(error) => return refuse(error),
                    }
                }
            }
            // The binder would not find columns of outer queries in a literal.
            Expr::Array(array) => *expr = call("make_array", std::mem::take(&mut array.elem)),
            Expr::AnyOp { left, compare_op: BinaryOperator::Eq, right, .. } => {
                if let Expr::Subquery(subquery) = &**right {
                    *expr = Expr::InSubquery { expr: left.clone(), subquery: subquery.clone(), negated: false };
                }
            }
            Expr::AllOp { left, compare_op: BinaryOperator::NotEq, right } => {
                if let Expr::Subquery(subquery) = &**right {
                    *expr = Expr::InSubquery { expr: left.clone(), subquery: subquery.clone(), negated: true };
                }
            }
            Expr::Function(function) => {
                // In a select list, likewise.
                if function.over.is_none()
                    && let Some(set) = set_function(&function.name.to_string().to_lowercase())
                {
                    function.name = ObjectName::from(vec![Ident::new(set.array)]);
                    *expr = call("unnest", vec![expr.clone()]);
                    return ControlFlow::Continue(());
                }
                if let Some(WindowType::WindowSpec(spec)) = &mut function.over {
                    bare_frame(spec);
                }
            }
            _ => narrow(expr),
        }
        if let Err(error) = rows::compare(expr).and_then(|()| texts::rewrite(expr)) {
            return refuse(error);
        }
        ControlFlow::Continue(())
    }
}

/// The name of a relation, if it is a word that is none without quotes.
fn reserved_name(name: &ObjectName) -> Option<&Ident> {
    const WORDS: [&str; 22] = [
        "all",
        "and",
        "as",
        "case",
        "distinct",
        "except",
        "from",
        "group",
        "having",
        "intersect",
        "into",
        "limit",
        "not",
        "null",
        "offset",
        "on",
        "or",
        "order",
        "select",
        "union",
        "when",
        "where",
    ];
    let ident = name.0.last()?.as_ident()?;
    let reserved = ident.quote_style.is_none() && WORDS.iter().any(|w| ident.value.eq_ignore_ascii_case(w));
    reserved.then_some(ident)
}

/// A function that gives several rows, in FROM, is the unnesting of one that gives an array. There it may use columns of
/// what stands before it.
fn unnest_functions(factor: &mut TableFactor) {
    let (name, args, alias) = match factor {
        TableFactor::Table { name, args: Some(args), alias, .. } => (name, &args.args, alias),
        TableFactor::Function { name, args, alias, .. } => (name, &*args, alias),
        TableFactor::UNNEST { alias, array_exprs, .. } if array_exprs.len() == 1 => {
            // The column goes by the alias.
            let alias = alias.get_or_insert_with(|| named("unnest"));
            if alias.columns.is_empty() {
                alias.columns.push(column(alias.name.clone()));
            }
            return;
        }
        _ => return,
    };
    let name = name.to_string().to_lowercase();
    let unnest = SetFunction { name: "unnest", array: "", column: None, constant_is_table: false };
    let Some(set) = set_function(&name).or((name == "unnest").then_some(unnest)) else { return };
    let exprs: Option<Vec<Expr>> = args
        .iter()
        .map(|arg| match arg {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr.clone()),
            _ => None,
        })
        .collect();
    let Some(exprs) = exprs else { return };
    if set.constant_is_table && !exprs.iter().any(names_column) {
        return;
    }
    let mut alias = alias.take().unwrap_or_else(|| named(set.name));
    if alias.columns.is_empty() {
        let name = set.column.map_or_else(|| alias.name.clone(), Ident::new);
        alias.columns.push(column(name));
    }
    *factor = TableFactor::UNNEST {
        alias: Some(alias),
        array_exprs: if set.array.is_empty() { exprs } else { vec![call(set.array, exprs)] },
        with_offset: false,
        with_offset_alias: None,
        with_ordinality: false,
    };
}

/// A function that gives several rows.
struct SetFunction {
    name: &'static str,
    /// The function that gives them as an array.
    array: &'static str,
    /// The name of the column, if not that of the alias.
    column: Option<&'static str>,
    /// With constants, it is a table function of its own.
    constant_is_table: bool,
}

fn set_function(name: &str) -> Option<SetFunction> {
    let (name, array, column, constant_is_table) = match name {
        "generate_series" => ("generate_series", SERIES_ARRAY, None, true),
        "jsonb_array_elements" => ("jsonb_array_elements", "jsonb_elements", Some("value"), false),
        "jsonb_array_elements_text" => ("jsonb_array_elements_text", "jsonb_elements_text", Some("value"), false),
        "jsonb_object_keys" => ("jsonb_object_keys", "jsonb_keys", None, false),
        "string_to_table" => ("string_to_table", "string_to_array", None, false),
        "regexp_split_to_table" => ("regexp_split_to_table", "regexp_split_to_array", None, false),
        _ => return None,
    };
    Some(SetFunction { name, array, column, constant_is_table })
}

fn names_column(expr: &Expr) -> bool {
    ast::visit_expressions(expr, |e| match e {
        Expr::Identifier(_) | Expr::CompoundIdentifier(_) => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    })
    .is_break()
}

fn named(name: &str) -> TableAlias {
    TableAlias { explicit: true, name: Ident::new(name), columns: vec![], at: None }
}

fn column(name: Ident) -> TableAliasColumnDef {
    TableAliasColumnDef { name, data_type: None }
}

/// Words that are functions without parentheses.
fn is_reserved(word: &str) -> bool {
    const WORDS: [&str; 8] = [
        "current_user",
        "session_user",
        "user",
        "current_role",
        "current_catalog",
        "current_schema",
        "localtime",
        "localtimestamp",
    ];
    WORDS.iter().any(|w| w.eq_ignore_ascii_case(word))
}

fn operator_function(op: UnaryOperator) -> Option<&'static str> {
    match op {
        UnaryOperator::PGSquareRoot => Some("sqrt"),
        UnaryOperator::PGCubeRoot => Some("cbrt"),
        UnaryOperator::PGAbs => Some("abs"),
        UnaryOperator::BitwiseNot => Some("pg_xor"),
        _ => None,
    }
}

fn unary(op: UnaryOperator, operand: Expr) -> Expr {
    let Some(function) = operator_function(op) else { return Expr::UnaryOp { op, expr: Box::new(operand) } };
    match op {
        // Every bit is the other one.
        UnaryOperator::BitwiseNot => {
            let mut ones = Expr::UnaryOp { op: UnaryOperator::Minus, expr: Box::new(number("1")) };
            narrow(&mut ones);
            call(function, vec![operand, ones])
        }
        UnaryOperator::PGAbs => call(function, vec![operand]),
        _ => call(function, vec![cast(operand, DataType::DoublePrecision)]),
    }
}

fn cast(expr: Expr, data_type: DataType) -> Expr {
    Expr::Cast { kind: CastKind::Cast, expr: Box::new(expr), data_type, array: false, format: None }
}

fn cast_text(text: String, data_type: DataType) -> Expr {
    cast(Expr::Value(ast::Value::SingleQuotedString(text).into()), data_type)
}

/// The text of an interval literal, its unit included.
fn interval_text(interval: &ast::Interval) -> Option<String> {
    let Expr::Value(value) = &*interval.value else { return None };
    let ast::Value::SingleQuotedString(text) = &value.value else { return None };
    match (&interval.leading_field, &interval.last_field) {
        (None, _) => Some(text.clone()),
        (Some(unit), None) => Some(format!("{text} {unit}")),
        // `'1-2' YEAR TO MONTH` and the like say themselves what is what.
        (Some(_), Some(_)) => Some(text.clone()),
    }
}

/// Bounds that a slice leaves out.
fn bound_slice(access: &mut ast::AccessExpr) {
    if let ast::AccessExpr::Subscript(ast::Subscript::Slice { lower_bound, upper_bound, .. }) = access {
        lower_bound.get_or_insert_with(|| number("1"));
        upper_bound.get_or_insert_with(|| number("2147483647"));
    }
}

fn is_array_of_query(function: &Function) -> bool {
    matches!(function.args, FunctionArguments::Subquery(_)) && function.name.to_string().eq_ignore_ascii_case("array")
}

/// `ARRAY(SELECT x … ORDER BY y)` collects the rows of a query.
fn array_of(query: &Query) -> Result<Query> {
    let sql = "SELECT array_agg(\"x\u{1}\") FROM (SELECT 1) AS \"a\u{1}\" (\"x\u{1}\")";
    let parsed = statement::parse_query(sql);
    let mut outer = *parsed.map_err(|e| SqlError::internal(e.to_string()))?;
    let mut inner = query.clone();
    // The order goes into the aggregate: that of a subquery in FROM is nobody's.
    let simple = inner.limit_clause.is_none();
    if let (Some(order_by), true) = (inner.order_by.clone(), simple)
        && let OrderByKind::Expressions(order) = order_by.kind
        && let ast::SetExpr::Select(select) = &mut *inner.body
        && let [SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }] = &select.projection[..]
        && select.distinct.is_none()
        && matches!(&select.group_by, GroupByExpr::Expressions(groups, _) if groups.is_empty())
    {
        let expr = expr.clone();
        let order = order.into_iter().map(|o| match &o.expr {
            Expr::Value(_) => OrderByExpr { expr: expr.clone(), ..o },
            _ => o,
        });
        let mut function = call("array_agg", vec![expr.clone()]);
        if let Expr::Function(Function { args: FunctionArguments::List(list), .. }) = &mut function {
            list.clauses.push(ast::FunctionArgumentClause::OrderBy(order.collect()));
        }
        select.projection = vec![SelectItem::UnnamedExpr(function)];
        inner.order_by = None;
        return Ok(inner);
    }
    if let ast::SetExpr::Select(select) = &mut *outer.body
        && let Some(TableFactor::Derived { subquery, .. }) = select.from.first_mut().map(|f| &mut f.relation)
    {
        **subquery = inner;
    }
    Ok(outer)
}

/// Columns of a recursive WITH get their names in its first query, for that is where the binder looks for them.
fn name_recursive(cte: &mut ast::Cte) {
    let names: Vec<Ident> = cte.alias.columns.iter().map(|c| c.name.clone()).collect();
    let mut body = &mut *cte.query.body;
    loop {
        match body {
            ast::SetExpr::SetOperation { left, .. } => body = left,
            ast::SetExpr::Query(query) => body = &mut query.body,
            ast::SetExpr::Select(select) if select.projection.len() == names.len() && !names.is_empty() => {
                for (item, alias) in select.projection.iter_mut().zip(names) {
                    if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = item {
                        *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias };
                    }
                }
                cte.alias.columns.clear();
                return;
            }
            _ => return,
        }
    }
}

fn is_float(data_type: &DataType) -> bool {
    use DataType::{Double, DoublePrecision, Float, Float4, Float8, Real};
    matches!(data_type, Real | Float4 | Float8 | DoublePrecision | Double(_) | Float(_))
}

/// Casts to object identifiers look names up, which a function does.
fn reg_function(data_type: &DataType) -> Option<&'static str> {
    match data_type {
        DataType::Regclass => Some("regclass"),
        DataType::Custom(name, _) => match name.to_string().to_lowercase().trim_start_matches("pg_catalog.") {
            "regclass" => Some("regclass"),
            "regtype" => Some("regtype"),
            "regproc" => Some("regproc"),
            "regnamespace" => Some("regnamespace"),
            _ => None,
        },
        _ => None,
    }
}

/// The text of what [`reg_function`] made: the name again.
fn name_of_oid(oid: &Expr) -> Option<Expr> {
    let Expr::Function(function) = oid else { return None };
    match function.name.to_string().as_str() {
        "regclass" => Some(call("regclass_name", vec![oid.clone()])),
        "regtype" => Some(call("format_type", vec![oid.clone(), Expr::Value(ast::Value::Null.into())])),
        _ => None,
    }
}

fn bare_frame(spec: &mut WindowSpec) {
    let Some(frame) = &mut spec.window_frame else { return };
    for bound in std::iter::once(&mut frame.start_bound).chain(&mut frame.end_bound) {
        if let WindowFrameBound::Preceding(Some(expr)) | WindowFrameBound::Following(Some(expr)) = bound {
            bare(expr);
        }
    }
}

fn take(expr: &mut Box<Expr>) -> Expr {
    std::mem::replace(&mut **expr, Expr::Value(ast::Value::Null.into()))
}

fn number(digits: &str) -> Expr {
    Expr::Value(ast::Value::Number(digits.into(), false).into())
}

pub(super) fn call(name: &str, args: Vec<Expr>) -> Expr {
    let args = args.into_iter().map(|e| FunctionArg::Unnamed(FunctionArgExpr::Expr(e))).collect();
    Expr::Function(Function {
        name: ObjectName::from(vec![Ident::new(name)]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList { duplicate_treatment: None, args, clauses: vec![] }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: vec![],
    })
}

/// Gives every column of a select list the name it has in PostgreSQL. Fields of a plan must have different names, so from
/// the second on a name gets a number, which [`names::shown`] takes off again.
fn name_columns(projection: &mut [SelectItem]) {
    let mut used = HashSet::new();
    let mut wildcard = false;
    for (i, item) in projection.iter_mut().enumerate() {
        // A name that was given stays, for it can be referred to; only its repetition is numbered.
        let (name, plain, given) = match item {
            SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..) => {
                wildcard = true;
                continue;
            }
            SelectItem::ExprWithAlias { alias, .. } => {
                let folded = if alias.quote_style.is_some() { alias.value.clone() } else { alias.value.to_lowercase() };
                (folded, false, true)
            }
            SelectItem::UnnamedExpr(expr) => {
                let plain = matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_));
                (names::of_expr(expr), plain, !plain)
            }
            SelectItem::ExprWithAliases { .. } => continue,
        };
        let repeated = !used.insert(name.clone()) || wildcard && !given;
        if plain && !repeated {
            continue;
        }
        let name = if repeated { format!("{name}{}{i}", names::NUMBERED) } else { name };
        let alias = Ident::with_quote('"', name);
        *item = match std::mem::replace(item, SelectItem::UnnamedExpr(Expr::Value(ast::Value::Null.into()))) {
            SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => {
                SelectItem::ExprWithAlias { expr, alias }
            }
            other => other,
        };
    }
}
