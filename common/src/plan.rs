//! The stream plan of a job: data without behaviour, persisted as JSON.
//!
//! A job's plan is a graph of fragments. A fragment is a tree of nodes whose leaves read (a relation's change log, a
//! source, the rows of DML statements, another fragment), and whose root ends the job (materialize, sink) or sends to
//! another fragment. Recovery starts jobs from here and never plans SQL again, so what is written here is a contract:
//! [`PLAN_VERSION`] grows with every change that an older Weir could not read.

use std::collections::BTreeMap;

use arrow::datatypes::{DataType, SchemaRef};
use serde::{Deserialize, Serialize};

use crate::id::{FragmentId, JobId};
use crate::key::SortColumn;
use crate::table::TableDef;

/// Version of the persisted form of [`JobPlan`].
pub const PLAN_VERSION: u32 = 3;

/// The plan of a job.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct JobPlan {
    /// [`PLAN_VERSION`] of the Weir that wrote it.
    pub version: u32,
    /// Fragment `i` has id `i`. The root is the last; a fragment comes after those it receives from.
    pub fragments: Vec<Fragment>,
    /// The relation that the job materializes, or keeps the change log of; `None` for a sink without a log.
    pub relation: Option<TableDef>,
    /// The jobs whose relations the job reads, each once.
    pub inputs: Vec<JobId>,
    /// Actors of a fragment that is not single.
    pub parallelism: usize,
}

impl JobPlan {
    /// Where the rows of statements enter, and their columns; `None`: the job takes none.
    pub fn dml(&self) -> Option<(&Dml, &SchemaRef)> {
        let mut found = None;
        for fragment in &self.fragments {
            fragment.plan.visit(&mut |plan| {
                if let Node::Dml(dml) = &plan.node {
                    found = Some((dml, &plan.schema));
                }
            });
        }
        found
    }

    /// Every state table of the job, the relation included.
    pub fn tables(&self) -> Vec<&TableDef> {
        let mut tables = Vec::new();
        for fragment in &self.fragments {
            fragment.plan.visit(&mut |plan| tables.extend(plan.node.tables()));
        }
        tables
    }
}

/// A part of a plan between exchanges.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Fragment {
    pub id: FragmentId,
    /// The tree of nodes that each actor runs.
    pub plan: StreamPlan,
    /// One actor that owns all vnodes, else [`JobPlan::parallelism`] actors that share them.
    pub single: bool,
    /// Where the rows of the root go, all of them to each. None for the root fragment.
    pub outputs: Vec<Output>,
}

/// An exchange at the root of a fragment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Output {
    /// The fragment that receives.
    pub to: FragmentId,
    pub distribution: Distribution,
}

/// How the rows of a plan are spread over actors.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Distribution {
    /// All rows at one actor.
    Single,
    /// A row is at the owner of its vnode, which is the hash of these columns.
    Hash(Vec<usize>),
}

/// An expression of DataFusion over the input's columns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Expr {
    /// For people: shown by EXPLAIN and in errors.
    pub text: String,
    /// The physical expression as datafusion-proto writes it, in hex.
    pub proto: String,
}

/// A node and the columns that come out of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StreamPlan {
    pub schema: SchemaRef,
    pub node: Node,
}

/// What a node does. Executors of the same name are in `weir_stream::executor`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Node {
    Scan(Scan),
    Source(Source),
    Dml(Dml),
    Values(Values),
    Receive(Receive),
    Project(Project),
    Filter(Filter),
    Aggregate(Aggregate),
    Join(Join),
    TopN(TopN),
    Union(Union),
    Unnest(Unnest),
    /// Cut away by the fragmenter; never in a [`Fragment`].
    Exchange(Exchange),
    Materialize(Materialize),
    Log(Log),
    Sink(Sink),
}

/// Reads the relation of another job: first what exists (backfill), then its change log.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Scan {
    pub job: JobId,
    /// The relation's table.
    pub table: TableDef,
    /// The relation's columns that come out, by index.
    pub columns: Vec<usize>,
    /// The relation never deletes or updates.
    pub append_only: bool,
    /// What exists is left out: only changes are read.
    #[serde(default)]
    pub from_now: bool,
    /// The relations of the job that are read before this one.
    #[serde(default)]
    pub after: Vec<JobId>,
    /// Backfill progress by vnode, keyed by vnode, single vnode;
    /// see `weir_stream::executor::scan::progress_table`.
    pub progress: TableDef,
}

/// Reads a source of the outside world. Its last column is the row id.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Source {
    /// `connector = …` and the other options, as given in WITH.
    pub options: BTreeMap<String, String>,
    /// `FORMAT … ENCODE …`, if given, e.g. `("PLAIN", "JSON")`.
    pub format: Option<(String, String)>,
    /// The columns that the connector fills; the node's schema without the row id.
    pub columns: SchemaRef,
    /// Where reading stands: `split varchar | offset varchar | next row id bigint`, keyed by split, single vnode.
    pub offsets: TableDef,
}

/// Rows of DML statements on the job's table. Comes out: the table's columns.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Dml {
    /// The hidden column that gets a new row id where it is null, for tables without a primary key.
    pub row_id: Option<usize>,
    /// `id bigint | value bigint`, keyed by id, single vnode: under 0 the next row id; under the id of a sink into the table the
    /// epoch up to which its log is applied.
    pub marks: TableDef,
}

/// Rows that are there from the start.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Values {
    /// One Arrow IPC stream in hex.
    pub rows: String,
    /// Whether they were emitted: `id smallint`, keyed by it, single vnode; a row is there when they were.
    pub emitted: TableDef,
}

/// Receives what another fragment of the job sends.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Receive {
    pub from: FragmentId,
    /// Which of the fragment's outputs.
    pub output: usize,
}

/// Column `i` of the output is expression `i` of the input.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Project {
    pub input: Box<StreamPlan>,
    pub exprs: Vec<Expr>,
}

/// The rows for which the predicate is true.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Filter {
    pub input: Box<StreamPlan>,
    pub predicate: Expr,
}

/// One row per group: the group columns, then the result of each call. Without group columns there is always exactly
/// one row. Without calls it is DISTINCT.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Aggregate {
    pub input: Box<StreamPlan>,
    /// Input columns.
    pub group_by: Vec<usize>,
    pub calls: Vec<AggCall>,
    /// The input has no deletes: then min and max keep one value instead of all.
    pub append_only: bool,
    /// One row per group: group columns, `count bigint` (rows of the group), then the state columns of each call (see
    /// `weir_stream::executor::aggregate`). Keyed and distributed by the group columns.
    pub groups: TableDef,
}

/// One aggregate function of an [`Aggregate`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AggCall {
    pub function: AggFunction,
    /// Input columns. `count(*)` has none.
    pub args: Vec<usize>,
    /// A boolean input column; only rows where it is true count.
    pub filter: Option<usize>,
    pub distinct: bool,
    /// Order of the values, by input columns; for `string_agg`, `array_agg`, `first_value`, `last_value`.
    pub order_by: Vec<SortColumn>,
    pub output: DataType,
    /// For calls that must remember values (`min`/`max` with deletes, DISTINCT, ordered ones): a table of them. Key: group
    /// columns, then what orders and identifies a value (see `weir_stream::executor::aggregate`).
    pub values: Option<TableDef>,
}

/// An aggregate function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AggFunction {
    Count,
    Sum,
    Avg,
    Min,
    Max,
    BoolAnd,
    BoolOr,
    StringAgg,
    ArrayAgg,
    FirstValue,
    LastValue,
}

/// A join of two inputs on equal keys and, where given, a residual condition.
///
/// Comes out: the left columns, then the right ones; of semi and anti joins only the left ones.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Join {
    pub left: Box<StreamPlan>,
    pub right: Box<StreamPlan>,
    pub kind: JoinKind,
    /// Pairs of (left column, right column). Empty: a cross join, with both sides single.
    pub on: Vec<(usize, usize)>,
    /// NULL keys match each other.
    pub null_equals_null: bool,
    /// Over the left columns followed by the right ones.
    pub residual: Option<Expr>,
    /// Rows of the left input, key: join key, then its stream key. Has one more column at the end, `matches bigint`, where
    /// the kind needs the number of right rows that match.
    pub left_rows: TableDef,
    /// Likewise for the right input.
    pub right_rows: TableDef,
}

/// The kind of a [`Join`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum JoinKind {
    Inner,
    Left,
    Right,
    Full,
    LeftSemi,
    LeftAnti,
}

impl JoinKind {
    /// Whether unmatched left rows come out or decide, so that the left rows' matches are counted.
    pub fn counts_left(self) -> bool {
        matches!(self, JoinKind::Left | JoinKind::Full | JoinKind::LeftSemi | JoinKind::LeftAnti)
    }

    /// Whether unmatched right rows come out, so that the right rows' matches are counted.
    pub fn counts_right(self) -> bool {
        matches!(self, JoinKind::Right | JoinKind::Full)
    }
}

/// The first rows of each partition in an order.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TopN {
    pub input: Box<StreamPlan>,
    /// Empty: one partition.
    pub partition_by: Vec<usize>,
    pub order_by: Vec<SortColumn>,
    pub offset: u64,
    /// `None`: all after the offset.
    pub limit: Option<u64>,
    pub rank: Rank,
    /// Append the rank, a bigint that counts from 1, as the last column.
    pub emit_rank: bool,
    /// All input rows. Key: partition, order, then the rest of the input's stream key; distributed by the partition.
    pub rows: TableDef,
}

/// What is compared with offset and limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Rank {
    /// Every row has a number of its own; rows that are equal in the order are numbered by the stream key.
    RowNumber,
    /// Equal rows share a number, with gaps after them; `FETCH FIRST … WITH TIES` too.
    Rank,
    /// Equal rows share a number, without gaps.
    DenseRank,
}

/// All rows of all inputs. The inputs have the same columns.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Union {
    pub inputs: Vec<StreamPlan>,
}

/// For each input row, one row per element of a list column (none for an empty or NULL list).
///
/// Comes out: the input columns with the list replaced by its element, then the element's position (bigint, from 1).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Unnest {
    pub input: Box<StreamPlan>,
    pub column: usize,
}

/// Rows move to where their distribution wants them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Exchange {
    pub input: Box<StreamPlan>,
    pub distribution: Distribution,
}

/// Keeps the relation of the job, and its change log for readers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Materialize {
    pub input: Box<StreamPlan>,
    pub table: TableDef,
    pub conflict: Conflict,
}

/// What an insert of a key does that is there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Conflict {
    /// Can't happen: the input is a change log with this key (views), or never repeats a key (row ids).
    Checked,
    /// The new row replaces the old one. A delete may name a key that is not there, and deletes what is.
    Overwrite,
    /// The old row stays.
    DoNothing,
}

/// Keeps the change log of its input and nothing else, for a sink's delivery.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Log {
    pub input: Box<StreamPlan>,
    /// Where the log is; there are no rows in it.
    pub table: TableDef,
    /// The rows of a key may come from several keys of the input, in any order within an epoch: what cancels out is left out,
    /// and deletes go before inserts.
    pub consolidate: bool,
}

/// Hands the rows to the outside within the job, without a log in between.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sink {
    pub input: Box<StreamPlan>,
    /// `connector = …` and the other options, as given in WITH.
    pub options: BTreeMap<String, String>,
}

impl StreamPlan {
    /// Calls `f` for this plan and all below it, inputs first.
    pub fn visit<'a>(&'a self, f: &mut impl FnMut(&'a StreamPlan)) {
        for input in self.node.inputs() {
            input.visit(f);
        }
        f(self);
    }
}

impl Node {
    /// The inputs, in order.
    pub fn inputs(&self) -> Vec<&StreamPlan> {
        match self {
            Node::Scan(_) | Node::Source(_) | Node::Dml(_) | Node::Values(_) | Node::Receive(_) => vec![],
            Node::Project(n) => vec![&n.input],
            Node::Filter(n) => vec![&n.input],
            Node::Aggregate(n) => vec![&n.input],
            Node::Join(n) => vec![&n.left, &n.right],
            Node::TopN(n) => vec![&n.input],
            Node::Union(n) => n.inputs.iter().collect(),
            Node::Unnest(n) => vec![&n.input],
            Node::Exchange(n) => vec![&n.input],
            Node::Materialize(n) => vec![&n.input],
            Node::Log(n) => vec![&n.input],
            Node::Sink(n) => vec![&n.input],
        }
    }

    /// The inputs, to change.
    pub fn inputs_mut(&mut self) -> Vec<&mut StreamPlan> {
        match self {
            Node::Scan(_) | Node::Source(_) | Node::Dml(_) | Node::Values(_) | Node::Receive(_) => vec![],
            Node::Project(n) => vec![&mut n.input],
            Node::Filter(n) => vec![&mut n.input],
            Node::Aggregate(n) => vec![&mut n.input],
            Node::Join(n) => vec![&mut n.left, &mut n.right],
            Node::TopN(n) => vec![&mut n.input],
            Node::Union(n) => n.inputs.iter_mut().collect(),
            Node::Unnest(n) => vec![&mut n.input],
            Node::Exchange(n) => vec![&mut n.input],
            Node::Materialize(n) => vec![&mut n.input],
            Node::Log(n) => vec![&mut n.input],
            Node::Sink(n) => vec![&mut n.input],
        }
    }

    /// The state tables of the node itself.
    pub fn tables(&self) -> Vec<&TableDef> {
        match self {
            Node::Scan(n) => vec![&n.progress],
            Node::Source(n) => vec![&n.offsets],
            Node::Dml(n) => vec![&n.marks],
            Node::Values(n) => vec![&n.emitted],
            Node::Aggregate(n) => {
                std::iter::once(&n.groups).chain(n.calls.iter().filter_map(|c| c.values.as_ref())).collect()
            }
            Node::Join(n) => vec![&n.left_rows, &n.right_rows],
            Node::TopN(n) => vec![&n.rows],
            Node::Materialize(n) => vec![&n.table],
            Node::Log(n) => vec![&n.table],
            Node::Receive(_)
            | Node::Project(_)
            | Node::Filter(_)
            | Node::Union(_)
            | Node::Unnest(_)
            | Node::Exchange(_)
            | Node::Sink(_) => vec![],
        }
    }

    /// The name of the node in EXPLAIN and system views.
    pub fn name(&self) -> &'static str {
        match self {
            Node::Scan(_) => "Scan",
            Node::Source(_) => "Source",
            Node::Dml(_) => "Dml",
            Node::Values(_) => "Values",
            Node::Receive(_) => "Receive",
            Node::Project(_) => "Project",
            Node::Filter(_) => "Filter",
            Node::Aggregate(_) => "Aggregate",
            Node::Join(_) => "Join",
            Node::TopN(_) => "TopN",
            Node::Union(_) => "Union",
            Node::Unnest(_) => "Unnest",
            Node::Exchange(_) => "Exchange",
            Node::Materialize(_) => "Materialize",
            Node::Log(_) => "Log",
            Node::Sink(_) => "Sink",
        }
    }
}
