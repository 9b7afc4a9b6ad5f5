//! INSERT.

use std::collections::BTreeSet;

use arrow::array::{Array, ArrayRef, RecordBatch, new_null_array};
use datafusion::sql::sqlparser::ast::{self, Expr, SelectItem, SetExpr};
use weir_common::Chunk;
use weir_common::catalog::Object;
use weir_common::types::SqlType;

use super::assign::{check, default, generated, is_default, is_number, is_untyped, last_ident, refuse_if, target};
use super::{Changes, bind_returning, check_not_null, chunk_batch, literals, merged, nullable, table_name};
use crate::batch;
use crate::error::{Result, SqlError, SqlState};
use crate::planner::Bound;
use crate::session::build;
use crate::session::moment::with_values;
use crate::session::query::output_columns;
use crate::session::{Moment, OutputColumn, Params, Reply, Session};
use crate::statement::{Ident, Name};

/// The alias of the rows to insert.
const SOURCE: &str = "source";

/// The rows of an INSERT as a query whose columns are those of the table, converted.
struct Source {
    bound: Bound,
    /// The table's column that each column of the query is for.
    columns: Vec<usize>,
}

impl Session {
    pub(in crate::session) async fn insert(&self, insert: &ast::Insert, params: Params<'_>) -> Result<Reply> {
        let (name, alias) = target_of(insert)?;
        let locked = self.lock_table("INSERT", &name, false).await?;
        let (columns, batches) = match literal_rows(&locked.moment, &locked.object, insert)? {
            Some((columns, arrays)) => {
                locked.moment.settle(&[]).await?;
                (columns, vec![arrays])
            }
            None => {
                let source = source(&locked.moment, &locked.object, insert, params.declared)?;
                let plan = with_values(source.bound.plan, params)?;
                locked.moment.settle(&source.bound.relations).await?;
                let state = batch::state(locked.moment.config.clone())?;
                let batches = batch::collect(&state, &plan).await?;
                (source.columns, batches.iter().map(|batch| batch.columns().to_vec()).collect())
            }
        };
        let schema = &locked.table.schema;
        let mut rows = Vec::new();
        for values in batches {
            let count = values.first().map_or(0, |v| v.len());
            let column = |i: usize| match columns.iter().position(|c| *c == i) {
                Some(at) => values[at].clone(),
                None => new_null_array(schema.field(i).data_type(), count),
            };
            let columns = (0..schema.fields().len()).map(column).collect();
            // NULLs are looked for with better words than Arrow's.
            let batch = RecordBatch::try_new(nullable(schema), columns)?;
            check_not_null(&locked.object, &batch)?;
            rows.push(chunk_batch(schema, &batch)?);
        }
        let count = rows.iter().map(RecordBatch::num_rows).sum();
        let chunks: Vec<_> = rows.iter().cloned().map(Chunk::inserts).collect();
        let chunk = if chunks.is_empty() { None } else { Some(Chunk::concat(schema, &chunks)?) };
        let returning = insert.returning.as_ref().map(|items| (items.as_slice(), alias.as_str()));
        self.finish(locked, Changes { chunk, rows, count }, returning, params, "INSERT 0").await
    }

    /// The query that computes the rows.
    pub(in crate::session) fn bind_insert(&self, moment: &Moment<'_>, insert: &ast::Insert) -> Result<Bound> {
        let (name, _) = target_of(insert)?;
        Ok(source(moment, &*moment.writable(&name)?, insert, &[])?.bound)
    }

    pub(in crate::session) fn describe_insert(
        &self,
        insert: &ast::Insert,
        declared: &[Option<SqlType>],
    ) -> Result<(Vec<SqlType>, Option<Vec<OutputColumn>>)> {
        let (name, alias) = target_of(insert)?;
        let moment = self.moment()?;
        let object = moment.writable(&name)?;
        let source = source(&moment, &object, insert, declared)?;
        let returning = match &insert.returning {
            Some(items) => Some(bind_returning(&moment, &object, items, &alias, declared)?),
            None => None,
        };
        Ok((merged(source.bound.params, returning.as_ref()), returning.as_ref().map(output_columns)))
    }
}

/// The table that is inserted into, and its alias.
fn target_of(insert: &ast::Insert) -> Result<(Name, String)> {
    refuse_if(insert.or.is_some() || insert.ignore || insert.overwrite, "this kind of INSERT")?;
    if !insert.into {
        return Err(SqlError::syntax("INSERT must be followed by INTO"));
    }
    refuse_if(insert.partitioned.is_some() || !insert.after_columns.is_empty(), "PARTITION in INSERT")?;
    refuse_if(
        insert.output.is_some() || insert.settings.is_some() || insert.format_clause.is_some(),
        "this clause of INSERT",
    )?;
    refuse_if(!insert.assignments.is_empty() || insert.insert_alias.is_some(), "INSERT … SET")?;
    if insert.on.is_some() {
        let error = SqlError::unsupported("ON CONFLICT in INSERT");
        return Err(error.with_hint(
            "A table with a primary key replaces rows with the same key; CREATE TABLE … ON CONFLICT DO NOTHING keeps them.",
        ));
    }
    let ast::TableObject::TableName(name) = &insert.table else {
        return Err(SqlError::syntax("INSERT must name a table"));
    };
    let name = table_name(name)?;
    let alias = insert.table_alias.as_ref().map(|a| Ident::from(&a.alias).value);
    Ok((name.clone(), alias.unwrap_or(name.name.value)))
}

/// The list of columns.
fn listed(insert: &ast::Insert) -> Result<Vec<Ident>> {
    insert.columns.iter().map(|name| Ok(Ident::from(last_ident(name)?))).collect()
}

/// The columns that values are given for, in the order of the values.
fn targets(object: &Object, columns: &[Ident]) -> Result<Vec<usize>> {
    if columns.is_empty() {
        let visible = object.columns.iter().enumerate().filter(|(_, c)| !c.hidden && c.generated.is_none());
        return Ok(visible.map(|(i, _)| i).collect());
    }
    let mut seen = BTreeSet::new();
    let mut places = Vec::with_capacity(columns.len());
    for ident in columns {
        let column = target(object, ident)?;
        if !seen.insert(column) {
            let message = format!("column \"{}\" specified more than once", object.columns[column].name);
            return Err(ident.mark(SqlError::new(SqlState::DUPLICATE_COLUMN, message)));
        }
        places.push(column);
    }
    Ok(places)
}

/// Checks how many values there are, and cuts the targets to those.
fn fit(targets: &mut Vec<usize>, values: usize, has_list: bool) -> Result<()> {
    if values > targets.len() {
        return Err(SqlError::syntax("INSERT has more expressions than target columns"));
    }
    if values < targets.len() && has_list {
        return Err(SqlError::syntax("INSERT has more target columns than expressions"));
    }
    targets.truncate(values);
    Ok(())
}

/// The columns of an INSERT of literals, and which of the table's they are.
fn literal_rows(
    moment: &Moment<'_>,
    object: &Object,
    insert: &ast::Insert,
) -> Result<Option<(Vec<usize>, Vec<ArrayRef>)>> {
    let Some(query) = insert.source.as_deref() else { return Ok(None) };
    let SetExpr::Values(values) = query.body.as_ref() else { return Ok(None) };
    let plain =
        query.with.is_none() && query.order_by.is_none() && query.limit_clause.is_none() && query.fetch.is_none();
    if !plain || object.columns.iter().any(|c| c.generated.is_some()) {
        return Ok(None);
    }
    let mut targets = targets(object, &listed(insert)?)?;
    let width = values.rows.first().map_or(0, |row| row.content.len());
    if values.rows.iter().any(|row| row.content.len() != width) || width == 0 {
        return Ok(None);
    }
    fit(&mut targets, width, !insert.columns.is_empty())?;
    let columns: Vec<usize> = targets.iter().copied().chain(with_default(object, &targets)).collect();
    let rows: Vec<&[Expr]> = values.rows.iter().map(|row| row.content.as_slice()).collect();
    let arrays = literals::columns(object, &columns, &rows, moment.settings.time_zone())?;
    Ok(arrays.map(|arrays| (columns, arrays)))
}

fn source(moment: &Moment<'_>, object: &Object, insert: &ast::Insert, declared: &[Option<SqlType>]) -> Result<Source> {
    let targets = targets(object, &listed(insert)?)?;
    match insert.source.as_deref() {
        None => from_values(moment, object, targets, &[vec![]], None, declared),
        Some(query) => match query.body.as_ref() {
            SetExpr::Values(values)
                if query.order_by.is_none() && query.limit_clause.is_none() && query.fetch.is_none() =>
            {
                let rows: Vec<_> = values.rows.iter().map(|row| row.content.clone()).collect();
                let mut targets = targets;
                let width = rows.first().map_or(0, Vec::len);
                if rows.iter().any(|row| row.len() != width) {
                    return Err(SqlError::syntax("VALUES lists must all be the same length"));
                }
                fit(&mut targets, width, !insert.columns.is_empty())?;
                from_values(moment, object, targets, &rows, query.with.clone(), declared)
            }
            _ => {
                let (query, columns) =
                    from_query(moment, object, targets, query, !insert.columns.is_empty(), declared)?;
                Ok(Source { bound: moment.plan(&query, declared)?, columns })
            }
        },
    }
}

/// Columns that get their default, as they are in no list. Where columns are generated, all others are given, since they
/// may be computed from any of them.
fn with_default(object: &Object, targets: &[usize]) -> Vec<usize> {
    let generates = object.columns.iter().any(|c| c.generated.is_some());
    let is_missing = |i: &usize| {
        let column = &object.columns[*i];
        let stored = !column.hidden && column.generated.is_none();
        (column.default.is_some() || generates && stored) && !targets.contains(i)
    };
    (0..object.columns.len()).filter(is_missing).collect()
}

/// The query with generated columns at its end, computed from its own, which are those of the table in `columns`.
fn with_generated(object: &Object, query: ast::Query, mut columns: Vec<usize>) -> Result<(ast::Query, Vec<usize>)> {
    let generated = generated(object)?;
    if generated.is_empty() {
        return Ok((query, columns));
    }
    let names: Vec<String> = columns.iter().map(|i| object.columns[*i].name.clone()).collect();
    let mut items: Vec<SelectItem> =
        names.iter().map(|name| build::named(build::column(&object.name, name), name)).collect();
    for (i, expr) in generated {
        let column = &object.columns[i];
        items.push(build::named(build::cast(expr, &column.sql_type), &column.name));
        columns.push(i);
    }
    Ok((build::select(items, vec![build::derived(query, &object.name, &names)], None), columns))
}

fn from_values(
    moment: &Moment<'_>,
    object: &Object,
    targets: Vec<usize>,
    rows: &[Vec<Expr>],
    with: Option<ast::With>,
    declared: &[Option<SqlType>],
) -> Result<Source> {
    check_types(moment, object, &targets, rows, with.as_ref(), declared)?;
    let defaults = with_default(object, &targets);
    // A row without values still is a row.
    let columns: Vec<usize> = match (targets.is_empty(), defaults.is_empty()) {
        (true, true) => vec![first_visible(object)?],
        _ => targets.iter().chain(&defaults).copied().collect(),
    };
    let mut converted = Vec::with_capacity(rows.len());
    for row in rows {
        let mut exprs = Vec::with_capacity(columns.len());
        for (at, i) in columns.iter().enumerate() {
            let column = &object.columns[*i];
            let expr = match row.get(at) {
                Some(expr) if !is_default(expr) => expr.clone(),
                _ => default(column)?,
            };
            exprs.push(build::cast(expr, &column.sql_type));
        }
        converted.push(exprs);
    }
    let mut query = build::query(build::rows(converted));
    query.with = with;
    let (query, columns) = with_generated(object, query, columns)?;
    Ok(Source { bound: moment.plan(&query, declared)?, columns })
}

fn first_visible(object: &Object) -> Result<usize> {
    let first = object.columns.iter().position(|c| !c.hidden);
    first.ok_or_else(|| SqlError::unsupported("INSERT into a table without columns"))
}

/// Refuses values whose type cannot become the column's. Literals need no look: their conversion fails if it must.
fn check_types(
    moment: &Moment<'_>,
    object: &Object,
    targets: &[usize],
    rows: &[Vec<Expr>],
    with: Option<&ast::With>,
    declared: &[Option<SqlType>],
) -> Result<()> {
    let mut items = Vec::new();
    let mut columns = Vec::new();
    for row in rows {
        for (expr, i) in row.iter().zip(targets) {
            let column = &object.columns[*i];
            if is_number(expr) {
                check(column, &SqlType::Numeric(None))?;
            } else if !is_untyped(expr) && !is_default(expr) {
                items.push(build::named(expr.clone(), &format!("v{}", items.len())));
                columns.push(column);
            }
        }
    }
    if items.is_empty() {
        return Ok(());
    }
    let mut query = build::select(items, vec![], None);
    query.with = with.cloned();
    let bound = moment.plan(&query, declared)?;
    columns.iter().zip(&bound.columns).try_for_each(|(column, value)| check(column, &value.sql_type))
}

fn from_query(
    moment: &Moment<'_>,
    object: &Object,
    mut targets: Vec<usize>,
    query: &ast::Query,
    has_list: bool,
    declared: &[Option<SqlType>],
) -> Result<(ast::Query, Vec<usize>)> {
    let mut query = query.clone();
    let untyped = type_literals(object, &targets, &mut query);
    let inner = moment.plan(&query, declared)?;
    fit(&mut targets, inner.columns.len(), has_list)?;
    for (at, (i, value)) in targets.iter().zip(&inner.columns).enumerate() {
        if !untyped.contains(&at) {
            check(&object.columns[*i], &value.sql_type)?;
        }
    }
    let names: Vec<String> = (0..targets.len()).map(|at| format!("c{at}")).collect();
    let mut items: Vec<SelectItem> = Vec::new();
    for (name, i) in names.iter().zip(&targets) {
        items.push(build::named(build::cast(build::column(SOURCE, name), &object.columns[*i].sql_type), name));
    }
    let defaults = with_default(object, &targets);
    for i in &defaults {
        let column = &object.columns[*i];
        items.push(build::named(build::cast(default(column)?, &column.sql_type), &format!("d{i}")));
    }
    let outer = build::select(items, vec![build::derived(query, SOURCE, &names)], None);
    let columns = targets.iter().chain(&defaults).copied().collect();
    with_generated(object, outer, columns)
}

/// A query that gives rows to a table as a query of the table's columns, converted, and which columns those are.
pub(in crate::session) fn query_into(
    moment: &Moment<'_>,
    object: &Object,
    columns: &[Ident],
    query: &ast::Query,
) -> Result<(ast::Query, Vec<usize>)> {
    let targets = targets(object, columns)?;
    from_query(moment, object, targets, query, !columns.is_empty(), &[])
}

/// Gives strings, NULLs and parameters that stand alone in a select list the types of their columns. Returns where.
fn type_literals(object: &Object, targets: &[usize], query: &mut ast::Query) -> BTreeSet<usize> {
    let mut typed = BTreeSet::new();
    let SetExpr::Select(select) = query.body.as_mut() else { return typed };
    for (at, item) in select.projection.iter_mut().enumerate() {
        let expr = match item {
            SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => expr,
            // From here on positions are not known.
            _ => return typed,
        };
        if let (true, Some(i)) = (is_untyped(expr), targets.get(at)) {
            *expr = build::cast(expr.clone(), &object.columns[*i].sql_type);
            typed.insert(at);
        }
    }
    typed
}
