//! CREATE TABLE and CREATE SOURCE.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::{RecordBatch, new_null_array};
use arrow::datatypes::{Field, Schema};
use datafusion::common::DFSchema;
use datafusion::sql::sqlparser::ast;
use weir_common::Chunk;
use weir_common::catalog::{ColumnDef, Object, ObjectKind, ROW_ID};
use weir_common::parse::parse_text;
use weir_common::plan::Conflict;
use weir_common::types::SqlType;

use super::{Planned, rename, tag, unrecognized};
use crate::batch;
use crate::error::{Result, SqlError, SqlState};
use crate::planner::{self, Bound, SourceSpec, TableSpec};
use crate::session::pending::WrittenTable;
use crate::session::{Moment, Reply, Session};
use crate::statement::{Column, CreateTable, Ident, OnConflict, Statement};

/// Options of WITH that say something about the table itself and not about its connector.
const TABLE_OPTIONS: [&str; 4] = ["appendonly", "source_rate_limit", "dml_rate_limit", weir_meta::logs::LIMIT_OPTION];

impl Session {
    pub(in crate::session) async fn create_table(&self, table: &CreateTable, statement: &Statement) -> Result<Reply> {
        let moment = self.moment()?;
        let new = match self.place(&moment, &table.name, ObjectKind::Table, table.if_not_exists, statement)? {
            Ok(new) => new,
            Err(reply) => return Ok(reply),
        };
        let (query, planned) = self.plan_table(&moment, table)?;
        let mut object = new.object(&self.user);
        object.options = self.job_options(&moment, ObjectKind::Table, &table.options)?;
        object.parallelism = self.wanted_parallelism(&moment, ObjectKind::Table);
        object.format = table.format.clone();
        match query {
            None => self.create(object, Some(planned), true, table.if_not_exists).await,
            Some(query) => {
                moment.settle(&query.relations).await?;
                let state = batch::state(moment.config.clone())?;
                let batches = batch::collect(&state, &query.plan).await?;
                let count: usize = batches.iter().map(RecordBatch::num_rows).sum();
                self.register(object, Some(planned), true, |object| first_rows(object, &batches)).await?;
                Ok(Reply::command(format!("SELECT {count}")))
            }
        }
    }

    /// The query of CREATE TABLE AS, if it is one, and the plan of the table's job.
    pub(in crate::session) fn plan_table(
        &self,
        moment: &Moment<'_>,
        table: &CreateTable,
    ) -> Result<(Option<Bound>, Planned)> {
        if let Some(refused) = &table.refused {
            return Err(refused.clone());
        }
        let query = match &table.query {
            Some(query) => Some(moment.plan(query, &[])?),
            None => None,
        };
        let spec = match &query {
            Some(bound) => as_query(table, bound)?,
            None => spec(moment, table)?,
        };
        let planned = planner::plan_table(&moment.kept_scope(), &spec, self.parallelism(moment, ObjectKind::Table))?;
        Ok((query, planned))
    }

    pub(in crate::session) async fn create_source(&self, source: &CreateTable, statement: &Statement) -> Result<Reply> {
        let moment = self.moment()?;
        let new = match self.place(&moment, &source.name, ObjectKind::Source, source.if_not_exists, statement)? {
            Ok(new) => new,
            Err(reply) => return Ok(reply),
        };
        if let Some(refused) = &source.refused {
            return Err(refused.clone());
        }
        if source.query.is_some() {
            return Err(SqlError::syntax("CREATE SOURCE takes no query"));
        }
        if let Some(key) = source.primary_key.first() {
            return Err(key.mark(SqlError::unsupported("a primary key of a source")).with_hint("Use CREATE TABLE."));
        }
        if !source.options.contains_key("connector") {
            let hint = "Use CREATE SOURCE name (columns) WITH (connector = '…').";
            return Err(SqlError::syntax("a source needs a connector").with_hint(hint));
        }
        let mut object = new.object(&self.user);
        object.columns = columns(&moment, source)?;
        object.append_only = true;
        object.options = self.job_options(&moment, ObjectKind::Source, &source.options)?;
        object.format = source.format.clone();
        self.create(object, None, true, source.if_not_exists).await?;
        Ok(Reply::command(tag("CREATE", ObjectKind::Source)))
    }
}

/// The rows of CREATE TABLE AS, with room for the columns that the query does not give.
fn first_rows(object: &Object, batches: &[RecordBatch]) -> Result<Vec<Chunk>> {
    let table = WrittenTable::new(object)?;
    let mut chunks = Vec::new();
    for batch in batches.iter().filter(|batch| batch.num_rows() > 0) {
        let mut columns = batch.columns().to_vec();
        for field in table.schema.fields().iter().skip(columns.len()) {
            columns.push(new_null_array(field.data_type(), batch.num_rows()));
        }
        chunks.push(Chunk::inserts(RecordBatch::try_new(table.schema.clone(), columns)?));
    }
    Ok(chunks)
}

/// A table with the columns of a query.
fn as_query(table: &CreateTable, bound: &Bound) -> Result<TableSpec> {
    if let Some(key) = table.primary_key.first() {
        return Err(key.mark(SqlError::unsupported("a primary key in CREATE TABLE AS")));
    }
    if table.options.contains_key("connector") {
        return Err(SqlError::syntax("a table takes its rows from a query or a connector"));
    }
    let mut bound = bound.clone();
    let names: Vec<Ident> = table.columns.iter().map(|c| c.name.clone()).collect();
    rename(&mut bound, &names, "CREATE TABLE AS")?;
    let mut columns: Vec<ColumnDef> =
        bound.columns.iter().map(|c| ColumnDef::new(c.name.clone(), c.sql_type.clone())).collect();
    check_names(columns.iter().map(|c| (c.name.as_str(), None)))?;
    columns.push(row_id());
    let append_only = table.append_only;
    Ok(TableSpec { columns, primary_key: vec![], append_only, conflict: Conflict::Checked, source: None })
}

fn spec(moment: &Moment<'_>, table: &CreateTable) -> Result<TableSpec> {
    let append_only = table.append_only || table.options.get("appendonly").is_some_and(|v| v == "true");
    let mut columns = columns(moment, table)?;
    let primary_key = primary_key(table, &columns)?;
    for i in &primary_key {
        columns[*i].not_null = true;
    }
    // The row id comes last, and only where no key identifies rows.
    if !primary_key.is_empty() {
        columns.retain(|c| !c.hidden);
    }
    let has_connector = table.options.contains_key("connector");
    if !has_connector && let Some(option) = table.options.keys().find(|k| !TABLE_OPTIONS.contains(&k.as_str())) {
        return Err(unrecognized(option).with_hint("A table with a connector needs the option \"connector\"."));
    }
    let conflict = match (table.conflict, primary_key.is_empty()) {
        (Some(_), true) => {
            return Err(SqlError::new(SqlState::INVALID_OBJECT_DEFINITION, "ON CONFLICT needs a primary key"));
        }
        (None, true) => Conflict::Checked,
        (Some(OnConflict::DoNothing), false) => Conflict::DoNothing,
        (None, false) if append_only => Conflict::DoNothing,
        (Some(OnConflict::Overwrite), false) if append_only => {
            let message = "a table that is append only cannot overwrite rows";
            return Err(
                SqlError::new(SqlState::INVALID_OBJECT_DEFINITION, message).with_hint("Use ON CONFLICT DO NOTHING.")
            );
        }
        (None | Some(OnConflict::Overwrite), false) => Conflict::Overwrite,
    };
    let source = SourceSpec { options: table.options.clone(), format: table.format.clone() };
    Ok(TableSpec { columns, primary_key, append_only, conflict, source: has_connector.then_some(source) })
}

fn row_id() -> ColumnDef {
    ColumnDef { hidden: true, ..ColumnDef::new(ROW_ID, SqlType::BigInt) }
}

/// The columns as the catalog keeps them, with a row id as the last.
fn columns(moment: &Moment<'_>, table: &CreateTable) -> Result<Vec<ColumnDef>> {
    check_names(table.columns.iter().map(|c| (c.name.value.as_str(), Some(&c.name))))?;
    let mut columns = Vec::with_capacity(table.columns.len() + 1);
    for column in &table.columns {
        columns.push(ColumnDef {
            not_null: column.not_null,
            ..ColumnDef::new(
                &column.name.value,
                planner::sql_type(&column.data_type).map_err(|e| match e.line_column {
                    Some(_) => e,
                    None => column.name.mark(e),
                })?,
            )
        });
    }
    if table.options.contains_key("connector") {
        columns = connected(table, columns)?;
    }
    for (i, column) in table.columns.iter().enumerate() {
        columns[i].default = default(moment, column, &columns[i].sql_type)?;
        columns[i].generated = generated(moment, column, table, &columns)?;
    }
    columns.push(row_id());
    Ok(columns)
}

/// The columns that the connector agrees to fill; its own when none were declared.
fn connected(table: &CreateTable, declared: Vec<ColumnDef>) -> Result<Vec<ColumnDef>> {
    let filled = declared.iter().zip(&table.columns).filter(|(_, c)| c.generated.is_none());
    let fields: Vec<Field> = filled.map(|(c, _)| Field::new(&c.name, c.sql_type.to_arrow(), true)).collect();
    let schema = Arc::new(Schema::new(fields));
    let declared_schema = (!declared.is_empty()).then_some(&schema);
    let found = weir_connector::validate(&table.options, table.format.as_ref(), declared_schema)?;
    if !declared.is_empty() {
        return Ok(declared);
    }
    let column = |field: &Arc<Field>| {
        let sql_type = SqlType::from_arrow(field.data_type()).ok_or_else(|| {
            SqlError::unsupported(format!("column \"{}\" of type {}", field.name(), field.data_type()))
        })?;
        Ok(ColumnDef::new(field.name(), sql_type))
    };
    found.fields().iter().map(column).collect()
}

/// Names that are the same, or the system's.
fn check_names<'a>(names: impl Iterator<Item = (&'a str, Option<&'a Ident>)>) -> Result<()> {
    let mut seen = BTreeSet::new();
    for (name, ident) in names {
        let message = if name == ROW_ID {
            format!("column name \"{name}\" conflicts with a system column name")
        } else if !seen.insert(name) {
            format!("column \"{name}\" specified more than once")
        } else {
            continue;
        };
        let error = SqlError::new(SqlState::DUPLICATE_COLUMN, message);
        return Err(match ident {
            Some(ident) => ident.mark(error),
            None => error,
        });
    }
    Ok(())
}

fn primary_key(table: &CreateTable, columns: &[ColumnDef]) -> Result<Vec<usize>> {
    let mut key = Vec::with_capacity(table.primary_key.len());
    for name in &table.primary_key {
        let Some(column) = columns.iter().position(|c| c.name == name.value && !c.hidden) else {
            let message = format!("column \"{}\" named in key does not exist", name.value);
            return Err(name.mark(SqlError::new(SqlState::UNDEFINED_COLUMN, message)));
        };
        if key.contains(&column) {
            let message = format!("column \"{}\" appears twice in primary key constraint", name.value);
            return Err(name.mark(SqlError::new(SqlState::DUPLICATE_COLUMN, message)));
        }
        if columns[column].generated.is_some() {
            return Err(name.mark(SqlError::unsupported("a generated column in a primary key")));
        }
        key.push(column);
    }
    Ok(key)
}

/// A default, once it is known that it makes sense.
fn default(moment: &Moment<'_>, column: &Column, sql_type: &SqlType) -> Result<Option<String>> {
    let Some(expr) = &column.default else { return Ok(None) };
    let bound = moment.plan_expr(expr, &DFSchema::empty(), None);
    let bound = bound.map_err(|error| match error.state {
        SqlState::UNDEFINED_COLUMN => {
            SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, "cannot use column reference in DEFAULT expression")
        }
        _ => error,
    })?;
    let from = datafusion::logical_expr::ExprSchemable::get_type(&bound, &DFSchema::empty())?;
    let from = SqlType::from_arrow(&from).unwrap_or(SqlType::Varchar);
    let untyped = crate::session::dml::assign::is_untyped(expr);
    if !untyped && !crate::session::dml::assign::is_assignable(&from, sql_type) {
        let message =
            format!("column \"{}\" is of type {sql_type} but default expression is of type {from}", column.name.value);
        return Err(column.name.mark(SqlError::new(SqlState::DATATYPE_MISMATCH, message)));
    }
    if let ast::Expr::Value(value) = expr
        && let ast::Value::SingleQuotedString(text) = &value.value
    {
        parse_text(text, sql_type, moment.settings.time_zone())?;
    }
    moment.plan_expr(expr, &DFSchema::empty(), Some(sql_type))?;
    Ok(Some(expr.to_string()))
}

/// The expression of a generated column, once it is known that it makes sense.
fn generated(
    moment: &Moment<'_>,
    column: &Column,
    table: &CreateTable,
    columns: &[ColumnDef],
) -> Result<Option<String>> {
    let Some(expr) = &column.generated else { return Ok(None) };
    if column.default.is_some() {
        let message = format!("both default and generation expression specified for column \"{}\"", column.name.value);
        return Err(column.name.mark(SqlError::syntax(message)));
    }
    let others = columns.iter().zip(&table.columns).filter(|(_, c)| c.generated.is_none());
    let fields: Vec<Field> = others.map(|(c, _)| Field::new(&c.name, c.sql_type.to_arrow(), true)).collect();
    let schema = DFSchema::try_from(Schema::new(fields))?;
    let target = columns.iter().find(|c| c.name == column.name.value).map(|c| &c.sql_type);
    let bound = moment.plan_expr(expr, &schema, target)?;
    if bound.is_volatile() {
        let message = "generation expression is not immutable";
        return Err(column.name.mark(SqlError::new(SqlState::INVALID_OBJECT_DEFINITION, message)));
    }
    Ok(Some(expr.to_string()))
}
