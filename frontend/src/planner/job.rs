//! Jobs: the plan of a view, table, index or sink, and what the catalog keeps about its relation.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{BinaryExpr, Column, Literal};
use weir_common::catalog::{ColumnDef, Object};
use weir_common::key::{KeyOrder, SortColumn};
use weir_common::plan::{
    Conflict, Distribution, Dml, JobPlan, Log, Materialize, Node, Project, Sink, StreamPlan, Union,
};
use weir_common::{JobId, SqlState, SqlType, TableDef, TableId};
use weir_stream::executor::dml::marks_table;

use super::bind::{Bound, plan_expr};
use super::fragment::fragment;
use super::optimize::optimize;
use super::stream::{Builder, Phys, encode, physical};
use super::{Scope, properties};
use crate::error::{Result, SqlError};
use crate::statement;

/// The number of the relation's own table until [`Planned::number`].
const RELATION: TableId = TableId(0);

/// A planned job. Its state tables are numbered from 0 until they get their ids.
#[derive(Clone, Debug)]
pub struct Planned {
    pub plan: JobPlan,
    /// The columns of the relation, visible ones first; of a sink, what goes out.
    pub columns: Vec<ColumnDef>,
    /// What the catalog keeps as the primary key.
    pub primary_key: Vec<usize>,
    pub append_only: bool,
}

impl Planned {
    /// How many ids the state tables need, beside the job's own, which is that of the relation's table.
    pub fn ids_needed(&self) -> u32 {
        self.plan.tables().into_iter().map(|t| t.id.0).max().unwrap_or(0)
    }

    /// Gives the tables their ids: the job's to the relation's, `first` and the following to the others.
    pub fn number(mut self, job: JobId, first: u32) -> Planned {
        let renumber = |id: &mut TableId| id.0 = if *id == RELATION { job.0 } else { first + id.0 - 1 };
        for fragment in &mut self.plan.fragments {
            for_each_table(&mut fragment.plan, &mut |table| renumber(&mut table.id));
        }
        if let Some(relation) = &mut self.plan.relation {
            renumber(&mut relation.id);
        }
        self
    }
}

/// Calls `f` for every state table of a plan.
pub(super) fn for_each_table(plan: &mut StreamPlan, f: &mut dyn FnMut(&mut TableDef)) {
    match &mut plan.node {
        // The table of a scan is another job's.
        Node::Scan(n) => f(&mut n.progress),
        Node::Source(n) => f(&mut n.offsets),
        Node::Dml(n) => f(&mut n.marks),
        Node::Values(n) => f(&mut n.emitted),
        Node::Aggregate(n) => {
            f(&mut n.groups);
            n.calls.iter_mut().filter_map(|c| c.values.as_mut()).for_each(&mut *f);
        }
        Node::Join(n) => {
            f(&mut n.left_rows);
            f(&mut n.right_rows);
        }
        Node::TopN(n) => f(&mut n.rows),
        Node::Materialize(n) => f(&mut n.table),
        Node::Log(n) => f(&mut n.table),
        Node::Receive(_)
        | Node::Project(_)
        | Node::Filter(_)
        | Node::Union(_)
        | Node::Unnest(_)
        | Node::Exchange(_)
        | Node::Sink(_) => {}
    }
    for input in plan.node.inputs_mut() {
        for_each_table(input, f);
    }
}

/// A table to be created.
#[derive(Clone, Debug)]
pub struct TableSpec {
    /// All columns; without a primary key the hidden row id is the last.
    pub columns: Vec<ColumnDef>,
    pub primary_key: Vec<usize>,
    pub append_only: bool,
    /// What an insert of a key does that is there; without a primary key it cannot happen.
    pub conflict: Conflict,
    pub source: Option<SourceSpec>,
}

/// The connector that fills a table beside DML.
#[derive(Clone, Debug, Default)]
pub struct SourceSpec {
    /// The options of WITH.
    pub options: BTreeMap<String, String>,
    /// `FORMAT … ENCODE …`.
    pub format: Option<(String, String)>,
}

/// The job of a materialized view.
pub fn plan_view(bound: &Bound, parallelism: usize) -> Result<Planned> {
    let mut builder = Builder::default();
    let (plan, columns) = settled(&mut builder, bound)?;
    let key = properties::stream_key(&plan);
    refuse_key_types(&plan.schema, &key)?;
    let (plan, distribution) = distributed(&builder, plan, &key);
    let append_only = properties::append_only(&plan);
    let table = relation_table(&columns, &plan.schema, &key, distribution);
    let plan = materialize(plan, table.clone(), Conflict::Checked);
    let plan = fragment(plan, Some(table), parallelism);
    Ok(Planned { plan, columns, primary_key: vec![], append_only })
}

/// The job of a table.
pub fn plan_table(scope: &Scope<'_>, spec: &TableSpec, parallelism: usize) -> Result<Planned> {
    let mut builder = Builder::default();
    let row_id = spec.primary_key.is_empty().then(|| spec.columns.len() - 1);
    let key = row_id.map_or_else(|| spec.primary_key.clone(), |row_id| vec![row_id]);
    let field = |(i, c): (usize, &ColumnDef)| {
        Field::new(&c.name, c.sql_type.to_arrow(), !(c.not_null || spec.primary_key.contains(&i)))
    };
    let schema: SchemaRef = Arc::new(Schema::new(spec.columns.iter().enumerate().map(field).collect::<Vec<_>>()));
    refuse_key_types(&schema, &key)?;
    let dml = Node::Dml(Dml { row_id, marks: marks_table(builder.table_id()) });
    let mut plan = StreamPlan { schema: schema.clone(), node: dml };
    if let Some(source) = &spec.source {
        let inputs = vec![fed(scope, &mut builder, spec, source, &schema)?, plan];
        plan = StreamPlan { schema: schema.clone(), node: Node::Union(Union { inputs }) };
    }
    let plan = builder.spread(plan, Distribution::Hash(key.clone()));
    let table = TableDef::ascending(RELATION, schema.as_ref().clone(), &key, &key);
    let conflict = if row_id.is_some() { Conflict::Checked } else { spec.conflict };
    let plan = materialize(plan, table.clone(), conflict);
    let plan = fragment(plan, Some(table), parallelism);
    Ok(Planned {
        plan,
        columns: spec.columns.clone(),
        primary_key: spec.primary_key.clone(),
        append_only: spec.append_only,
    })
}

/// What a table's connector reads, as rows of the table.
fn fed(
    scope: &Scope<'_>,
    builder: &mut Builder,
    spec: &TableSpec,
    source: &SourceSpec,
    schema: &SchemaRef,
) -> Result<StreamPlan> {
    let (plan, places) = builder.connector(&spec.columns, &source.options, source.format.as_ref(), |_| true);
    let read = DFSchema::try_from(plan.schema.as_ref().clone())?;
    let mut exprs = Vec::with_capacity(places.len());
    for (column, place) in spec.columns.iter().zip(places) {
        let expr: Phys = match (place, &column.generated) {
            // Ids of DML count up from 0, those of the connector down from -1, so they never meet.
            (Some(at), _) if column.hidden => {
                let minus_one = Arc::new(Literal::new(ScalarValue::Int64(Some(-1))));
                Arc::new(BinaryExpr::new(minus_one, Operator::Minus, Arc::new(Column::new(&column.name, at))))
            }
            (Some(at), _) => Arc::new(Column::new(&column.name, at)),
            (None, Some(generated)) => {
                let expr = statement::parse_expr(generated).map_err(|e| SqlError::syntax(e.to_string()))?;
                physical(&plan_expr(scope, &expr, &read, Some(&column.sql_type), &[])?, &read)?
            }
            (None, None) => return Err(SqlError::internal("every column is read or generated")),
        };
        exprs.push(encode(&expr)?);
    }
    Ok(StreamPlan { schema: schema.clone(), node: Node::Project(Project { input: Box::new(plan), exprs }) })
}

/// The job of an index: the relation's key columns and included ones, sorted by the former.
pub fn plan_index(relation: &Object, key: &[SortColumn], include: &[usize], parallelism: usize) -> Result<Planned> {
    let mut builder = Builder::default();
    let mut wanted: Vec<usize> = Vec::new();
    let mut sort: Vec<SortColumn> = Vec::new();
    for column in key {
        if !wanted.contains(&column.column) {
            sort.push(SortColumn { column: wanted.len(), order: column.order });
            wanted.push(column.column);
        }
    }
    let indexed = wanted.len();
    for column in include {
        if !wanted.contains(column) {
            wanted.push(*column);
        }
    }
    let shown = wanted.len();
    let plan = builder.relation(relation, &wanted)?;
    refuse_key_types(&plan.schema, &(0..indexed).collect::<Vec<_>>())?;
    for column in properties::stream_key(&plan) {
        if sort.iter().all(|s| s.column != column) {
            sort.push(SortColumn { column, order: KeyOrder::ASC });
        }
    }
    let Node::Scan(scan) = &plan.node else { return Err(SqlError::internal("an index reads a relation")) };
    let column = |(i, c): (usize, &usize)| {
        let column = relation.columns[*c].clone();
        ColumnDef { hidden: column.hidden || i >= shown, default: None, generated: None, ..column }
    };
    let columns: Vec<ColumnDef> = scan.columns.iter().enumerate().map(column).collect();
    // By the first column: then all entries for a value of it are in one place, whatever else is asked for.
    let distribution = vec![0];
    let plan = builder.spread(plan, Distribution::Hash(distribution.clone()));
    let table = TableDef { id: RELATION, schema: plan.schema.clone(), key: sort, distribution };
    let plan = materialize(plan, table.clone(), Conflict::Checked);
    let plan = fragment(plan, Some(table), parallelism);
    Ok(Planned { plan, columns, primary_key: (0..indexed).collect(), append_only: relation.append_only })
}

/// The job of a sink with a delivery: it keeps the log of the query's changes. `key`: the columns that identify a row where it is
/// delivered to. `from_now`: without what exists.
pub fn plan_log(bound: &Bound, key: Option<&[usize]>, from_now: bool, parallelism: usize) -> Result<Planned> {
    let mut builder = Builder::default();
    let (mut plan, columns) = settled(&mut builder, bound)?;
    if from_now {
        start_now(&mut plan)?;
    }
    let stream_key = properties::stream_key(&plan);
    let append_only = properties::append_only(&plan);
    // Rows with one key outside have one stream key, and so come from one place in order; or else they must be brought there.
    let scattered = key.filter(|key| !append_only && stream_key.iter().any(|column| !key.contains(column)));
    let ((plan, distribution), key) = match scattered {
        Some(key) => {
            refuse_key_types(&plan.schema, key)?;
            ((builder.spread(plan, Distribution::Hash(key.to_vec())), key.to_vec()), key.to_vec())
        }
        None => {
            refuse_key_types(&plan.schema, &stream_key)?;
            (distributed(&builder, plan, &stream_key), stream_key)
        }
    };
    let table = relation_table(&columns, &plan.schema, &key, distribution);
    let node = Node::Log(Log { input: Box::new(plan), table: table.clone(), consolidate: scattered.is_some() });
    let plan = fragment(StreamPlan { schema: table.schema.clone(), node }, Some(table), parallelism);
    Ok(Planned { plan, columns, primary_key: vec![], append_only })
}

/// Leaves out what exists, which is for queries that look at each row by itself.
fn start_now(plan: &mut StreamPlan) -> Result<()> {
    match &mut plan.node {
        Node::Scan(scan) => scan.from_now = true,
        Node::Project(_) | Node::Filter(_) | Node::Unnest(_) => {}
        _ => {
            let error = SqlError::unsupported("snapshot = 'false' for a query that keeps state");
            return Err(error.with_hint("Create a materialized view of the query, and the sink from it."));
        }
    }
    plan.node.inputs_mut().into_iter().try_for_each(start_now)
}

/// The job of a sink's query: its root hands on the query's changes.
pub fn plan_sink(bound: &Bound, options: &BTreeMap<String, String>, parallelism: usize) -> Result<Planned> {
    let columns = visible_columns(bound)?;
    let mut builder = Builder::default();
    let rel = builder.plan(&optimize(bound.plan.clone())?)?;
    let plan = rel.with_names(columns.iter().map(|c| c.name.clone())).settle_exactly()?;
    let append_only = properties::append_only(&plan);
    let schema = plan.schema.clone();
    let node = Node::Sink(Sink { input: Box::new(plan), options: options.clone() });
    let plan = fragment(StreamPlan { schema, node }, None, parallelism);
    Ok(Planned { plan, columns, primary_key: vec![], append_only })
}

/// The plan of a query, and its columns: those that the query names, then hidden ones that only identify its rows.
fn settled(builder: &mut Builder, bound: &Bound) -> Result<(StreamPlan, Vec<ColumnDef>)> {
    let mut columns = visible_columns(bound)?;
    let rel = builder.plan(&optimize(bound.plan.clone())?)?;
    let plan = rel.with_names(columns.iter().map(|c| c.name.clone())).settle()?;
    let visible = columns.len();
    for (i, field) in plan.schema.fields().iter().enumerate().skip(visible) {
        let sql_type = SqlType::from_arrow(field.data_type()).ok_or_else(|| {
            SqlError::unsupported(format!("identifying rows by a column of type {}", field.data_type()))
        })?;
        columns.push(ColumnDef { hidden: true, ..ColumnDef::new(hidden_name(&columns, i - visible), sql_type) });
    }
    Ok((plan, columns))
}

/// The table of a query's rows, or of their log.
fn relation_table(columns: &[ColumnDef], schema: &SchemaRef, key: &[usize], distribution: Vec<usize>) -> TableDef {
    let ascending = |column: &usize| SortColumn { column: *column, order: KeyOrder::ASC };
    let key = key.iter().map(ascending).collect();
    TableDef { id: RELATION, schema: table_schema(columns, schema), key, distribution }
}

fn materialize(plan: StreamPlan, table: TableDef, conflict: Conflict) -> StreamPlan {
    let schema = table.schema.clone();
    StreamPlan { schema, node: Node::Materialize(Materialize { input: Box::new(plan), table, conflict }) }
}

/// The columns that a query names, which must differ.
fn visible_columns(bound: &Bound) -> Result<Vec<ColumnDef>> {
    let mut seen = HashSet::new();
    for column in &bound.columns {
        if !seen.insert(&column.name) {
            let message = format!("column \"{}\" specified more than once", column.name);
            return Err(SqlError::new(SqlState::DUPLICATE_COLUMN, message).with_hint("Name it with AS."));
        }
    }
    Ok(bound.columns.iter().map(|c| ColumnDef::new(c.name.clone(), c.sql_type.clone())).collect())
}

fn hidden_name(columns: &[ColumnDef], number: usize) -> String {
    let free = |name: &String| columns.iter().all(|c| c.name != *name);
    (number..).map(|n| format!("_k{n}")).find(free).unwrap_or_default()
}

/// The plan at the actors where the relation's rows are kept, and the columns that these are spread by: as they are, if
/// the key includes that, else by the key.
fn distributed(builder: &Builder, plan: StreamPlan, key: &[usize]) -> (StreamPlan, Vec<usize>) {
    let ways = properties::distributions(&plan);
    if ways.contains(&Distribution::Single) {
        // One actor owns every vnode. Readers of the relation may be many.
        return (plan, key.to_vec());
    }
    let fits = ways.into_iter().find_map(|way| match way {
        Distribution::Hash(columns) if columns.iter().all(|c| key.contains(c)) => Some(columns),
        _ => None,
    });
    match fits {
        Some(columns) => (plan, columns),
        None => (builder.spread(plan, Distribution::Hash(key.to_vec())), key.to_vec()),
    }
}

/// The relation's own names, with what is known about NULLs.
fn table_schema(columns: &[ColumnDef], schema: &SchemaRef) -> SchemaRef {
    let field = |(c, f): (&ColumnDef, &Arc<Field>)| Field::new(&c.name, f.data_type().clone(), f.is_nullable());
    Arc::new(Schema::new(columns.iter().zip(schema.fields()).map(field).collect::<Vec<_>>()))
}

/// Types that have no order have no key.
fn refuse_key_types(schema: &SchemaRef, key: &[usize]) -> Result<()> {
    for column in key {
        let field = schema.field(*column);
        if let DataType::Struct(_) | DataType::Map(..) | DataType::Union(..) = field.data_type() {
            return Err(SqlError::unsupported(format!(
                "identifying rows by column \"{}\" of type {}",
                field.name(),
                crate::error::type_name(field.data_type())
            )));
        }
    }
    Ok(())
}
