//! UPDATE.
//!
//! A row whose key stays is replaced in place: its delete and its insert are neighbours in the chunk. When keys move, all
//! deletes come first, so that no insert is undone by the delete of the row that had its key before.

use std::collections::{BTreeSet, HashMap, HashSet};

use arrow::array::{RecordBatch, UInt64Array};
use arrow::compute::{concat_batches, take_record_batch};
use datafusion::sql::sqlparser::ast::{self, AssignmentTarget, Expr};
use weir_common::catalog::Object;
use weir_common::row::ByteRows;
use weir_common::types::SqlType;
use weir_common::{Chunk, TableDef};

use super::assign::{
    check, default, generated, is_default, is_number, is_untyped, last_ident, refuse_if, target, target_table,
};
use super::delete::{Once, all_columns, others, refuse_append_only};
use super::{Changes, Locked, bind_returning, check_not_null, chunk_batch, merged, nullable, show_value};
use crate::batch::{self, relation_keys};
use crate::error::{Result, SqlError, SqlState};
use crate::planner::Bound;
use crate::session::build;
use crate::session::moment::with_values;
use crate::session::query::output_columns;
use crate::session::{Moment, OutputColumn, Params, Reply, Session};
use crate::statement::{Ident, Name};

/// Begins the name of a column of the old row, where those of the new row have theirs.
const OLD: &str = "_weir_old_";

/// The columns that are set, and the query of the old rows with the new values behind them.
struct Rows {
    set: Vec<usize>,
    bound: Bound,
}

impl Session {
    pub(in crate::session) async fn update(&self, update: &ast::Update, params: Params<'_>) -> Result<Reply> {
        let (name, alias) = target_of(update)?;
        let locked = self.lock_table("UPDATE", &name, true).await?;
        refuse_append_only(&locked.object, "update")?;
        let Rows { set, bound } = rows(&locked.moment, &locked.object, update, &alias, params.declared)?;
        let plan = with_values(bound.plan, params)?;
        locked.moment.settle(&bound.relations).await?;
        let state = batch::state(locked.moment.config.clone())?;
        let width = locked.object.columns.len();
        let schema = &locked.table.schema;
        let mut once = Once::new(&locked.table.def);
        let (mut old, mut new) = (Vec::new(), Vec::new());
        for batch in batch::collect(&state, &plan).await? {
            let batch = once.filter(batch)?;
            let mut columns = batch.columns()[..width].to_vec();
            old.push(RecordBatch::try_new(schema.clone(), columns.clone())?);
            for (at, i) in set.iter().enumerate() {
                columns[*i] = batch.column(width + at).clone();
            }
            let row = RecordBatch::try_new(nullable(schema), columns)?;
            check_not_null(&locked.object, &row)?;
            new.push(chunk_batch(schema, &row)?);
        }
        let (old, new) = (concat_batches(schema, &old)?, concat_batches(schema, &new)?);
        let count = new.num_rows();
        let chunk = changes(&locked, &old, &new)?;
        let returning = update.returning.as_ref().map(|items| (items.as_slice(), alias.as_str()));
        self.finish(locked, Changes { chunk: Some(chunk), rows: vec![new], count }, returning, params, "UPDATE").await
    }

    /// The query that computes the rows.
    pub(in crate::session) fn bind_update(&self, moment: &Moment<'_>, update: &ast::Update) -> Result<Bound> {
        let (name, alias) = target_of(update)?;
        Ok(rows(moment, &*moment.writable(&name)?, update, &alias, &[])?.bound)
    }

    pub(in crate::session) fn describe_update(
        &self,
        update: &ast::Update,
        declared: &[Option<SqlType>],
    ) -> Result<(Vec<SqlType>, Option<Vec<OutputColumn>>)> {
        let (name, alias) = target_of(update)?;
        let moment = self.moment()?;
        let object = moment.writable(&name)?;
        let rows = rows(&moment, &object, update, &alias, declared)?;
        let returning = match &update.returning {
            Some(items) => Some(bind_returning(&moment, &object, items, &alias, declared)?),
            None => None,
        };
        Ok((merged(rows.bound.params, returning.as_ref()), returning.as_ref().map(output_columns)))
    }
}

/// The table that is updated, and its alias.
fn target_of(update: &ast::Update) -> Result<(Name, String)> {
    refuse_if(update.or.is_some() || update.output.is_some(), "this clause of UPDATE")?;
    refuse_if(!update.order_by.is_empty() || update.limit.is_some(), "ORDER BY and LIMIT in UPDATE")?;
    target_table(&update.table)
}

/// Columns and what they are set to.
fn assignments(object: &Object, update: &ast::Update) -> Result<Vec<(usize, Expr)>> {
    let mut set = Vec::new();
    for assignment in &update.assignments {
        match &assignment.target {
            AssignmentTarget::ColumnName(name) => set.push((last_ident(name)?, assignment.value.clone())),
            AssignmentTarget::Tuple(names) => {
                let values = match &assignment.value {
                    Expr::Tuple(values) => values.as_slice(),
                    Expr::Nested(value) => std::slice::from_ref(value.as_ref()),
                    _ => return Err(SqlError::unsupported("a query as the source of several columns in UPDATE")),
                };
                if values.len() != names.len() {
                    return Err(SqlError::syntax("number of columns does not match number of values"));
                }
                for (name, value) in names.iter().zip(values) {
                    set.push((last_ident(name)?, value.clone()));
                }
            }
        }
    }
    let mut seen = BTreeSet::new();
    let mut out = Vec::with_capacity(set.len());
    for (ident, value) in set {
        let column = target(object, &Ident::from(ident))?;
        if !seen.insert(column) {
            let message = format!("multiple assignments to same column \"{}\"", object.columns[column].name);
            return Err(Ident::from(ident).mark(SqlError::syntax(message)));
        }
        out.push((column, value));
    }
    Ok(out)
}

fn rows(
    moment: &Moment<'_>,
    object: &Object,
    update: &ast::Update,
    alias: &str,
    declared: &[Option<SqlType>],
) -> Result<Rows> {
    let assignments = assignments(object, update)?;
    let mut from = vec![build::table(&object.schema, &object.name, alias)];
    from.extend(others(update.from.as_ref()));
    let mut items = all_columns(object, alias);
    let (mut checked, mut checked_items) = (Vec::new(), Vec::new());
    for (i, value) in &assignments {
        let column = &object.columns[*i];
        let value = if is_default(value) { default(column)? } else { value.clone() };
        if is_number(&value) {
            check(column, &SqlType::Numeric(None))?;
        } else if !is_untyped(&value) {
            checked_items.push(build::named(value.clone(), &format!("v{i}")));
            checked.push(column);
        }
        items.push(build::named(build::cast(value, &column.sql_type), &format!("n{i}")));
    }
    if !checked.is_empty() {
        // The types before the conversion, without running anything.
        let bound = moment.plan(&build::select(checked_items, from.clone(), None), declared)?;
        checked.iter().zip(&bound.columns).try_for_each(|(column, value)| check(column, &value.sql_type))?;
    }
    let mut set: Vec<usize> = assignments.iter().map(|(i, _)| *i).collect();
    let generated = generated(object)?;
    if generated.is_empty() {
        let query = build::select(items, from, update.selection.clone());
        return Ok(Rows { set, bound: moment.plan(&query, declared)? });
    }
    // The columns that are not set follow, so that all generated ones can be computed from the new row.
    let stored = |i: &usize| !object.columns[*i].hidden && object.columns[*i].generated.is_none();
    let kept: Vec<usize> = (0..object.columns.len()).filter(|i| stored(i) && !set.contains(i)).collect();
    for i in &kept {
        items.push(build::named(build::column(alias, &object.columns[*i].name), &format!("k{i}")));
    }
    let name = |i: &usize| object.columns[*i].name.clone();
    let names: Vec<String> = (0..object.columns.len())
        .map(|i| format!("{OLD}{i}"))
        .chain(set.iter().map(name))
        .chain(kept.iter().map(name))
        .collect();
    let mut outer: Vec<_> = names[..object.columns.len() + set.len()]
        .iter()
        .map(|name| build::named(build::column(alias, name), name))
        .collect();
    for (i, expr) in generated {
        let column = &object.columns[i];
        outer.push(build::named(build::cast(expr, &column.sql_type), &format!("g{i}")));
        set.push(i);
    }
    let inner = build::select(items, from, update.selection.clone());
    let query = build::select(outer, vec![build::derived(inner, alias, &names)], None);
    Ok(Rows { set, bound: moment.plan(&query, declared)? })
}

/// The changes from old rows to new ones, row by row.
fn changes(locked: &Locked<'_>, old: &RecordBatch, new: &RecordBatch) -> Result<Chunk> {
    let def = &locked.table.def;
    let old_keys = relation_keys(def, |i| old.column(i))?;
    let new_keys = relation_keys(def, |i| new.column(i))?;
    let rows = old.num_rows();
    let keys_stay = old_keys.iter().zip(new_keys.iter()).all(|(old, new)| old == new);
    let both = concat_batches(&locked.table.schema, [old, new])?;
    if keys_stay {
        let pairs: UInt64Array = (0..rows as u64).flat_map(|i| [i, i + rows as u64]).collect();
        let signs = (0..2 * rows).map(|i| if i % 2 == 0 { -1 } else { 1 }).collect();
        return Ok(Chunk::new(take_record_batch(&both, &pairs)?, signs));
    }
    check_unique(locked, new, &old_keys, &new_keys)?;
    let signs = (0..2 * rows).map(|i| if i < rows { -1 } else { 1 }).collect();
    Ok(Chunk::new(both, signs))
}

/// No two rows may end with one key, and none with the key of a row that stays.
fn check_unique(locked: &Locked<'_>, new: &RecordBatch, old_keys: &ByteRows, new_keys: &ByteRows) -> Result<()> {
    let def = &locked.table.def;
    let leaving: HashSet<&[u8]> = old_keys.iter().collect();
    let mut arriving: HashMap<&[u8], usize> = HashMap::new();
    let mut foreign = Vec::new();
    for (row, key) in new_keys.iter().enumerate() {
        if arriving.insert(key, row).is_some() {
            return Err(duplicate(locked, def, new, row));
        }
        if !leaving.contains(key) {
            foreign.push(row);
        }
    }
    if foreign.is_empty() {
        return Ok(());
    }
    let rows: UInt64Array = foreign.iter().map(|r| *r as u64).collect();
    let candidates = take_record_batch(new, &rows)?;
    let overlay = locked.moment.overlay(locked.object.id);
    let taken = batch::existing(def, &locked.moment.snapshot()?, overlay.map(AsRef::as_ref), &candidates)?;
    match taken.iter().position(|taken| *taken) {
        Some(at) => Err(duplicate(locked, def, new, foreign[at])),
        None => Ok(()),
    }
}

fn duplicate(locked: &Locked<'_>, def: &TableDef, rows: &RecordBatch, row: usize) -> SqlError {
    let object = &locked.object;
    let message = format!("duplicate key value violates unique constraint \"{}_pkey\"", object.name);
    let names: Vec<&str> = def.key.iter().map(|k| object.columns[k.column].name.as_str()).collect();
    let values: Vec<String> = def.key.iter().map(|k| show_value(rows.column(k.column), row)).collect();
    let detail = format!("Key ({})=({}) already exists.", names.join(", "), values.join(", "));
    SqlError::new(SqlState::UNIQUE_VIOLATION, message).with_detail(detail)
}
