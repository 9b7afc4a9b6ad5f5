//! Builds the tasks of a job from its plan.
//!
//! ```text
//! fragment  x  parallelism  =  actors          an actor owns a set of vnodes
//! node of the fragment's plan  =  task         tasks of an actor are chained by edges
//! exchange between fragments  =  one edge from every actor of one to every actor of the other
//! ```

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use weir_common::plan::{self, Fragment, JobPlan, Node, StreamPlan};
use weir_common::{ActorId, Epoch, FragmentId, TableDef, VnodeSet};
use weir_storage::StateTable;

use super::{Engine, JobSpec, TaskStats};
use crate::Result;
use crate::align::Align;
use crate::backfill_order::BackfillOrder;
use crate::dispatch::Dispatcher;
use crate::driver::{self, Reader, Reporter, Sealed};
use crate::error::StreamError;
use crate::executor::Executor;
use crate::executor::aggregate::Aggregate;
use crate::executor::dml::{Dml, Statement};
use crate::executor::filter::Filter;
use crate::executor::join::Join;
use crate::executor::log::Log;
use crate::executor::materialize::Materialize;
use crate::executor::project::Project;
use crate::executor::scan::Scan;
use crate::executor::sink::Blackhole;
use crate::executor::source::Source;
use crate::executor::top_n::TopN;
use crate::executor::union::Union;
use crate::executor::unnest::Unnest;
use crate::executor::values::Values;
use crate::expr::Expression;
use crate::message::{Barrier, EDGE_CAPACITY, Message, Output};

/// A job ready to run; its tasks have been spawned.
pub struct Built {
    pub tasks: JoinSet<Result<()>>,
    pub task_count: usize,
    pub sealed: mpsc::UnboundedReceiver<Sealed>,
    pub barriers: Vec<mpsc::UnboundedSender<Barrier>>,
    pub dml: Option<mpsc::UnboundedSender<Statement>>,
    /// Every reader of a relation follows its input at the job's frontier.
    pub following: bool,
}

/// Spawns every task of the job.
pub async fn build(engine: &Engine, spec: &JobSpec, committed: Arc<AtomicU64>) -> Result<Built> {
    let (sealed_tx, sealed) = mpsc::unbounded_channel();
    let mut builder = Builder {
        engine,
        spec,
        committed,
        exchanges: exchanges(&spec.plan),
        order: BackfillOrder::new(&spec.plan),
        tasks: JoinSet::new(),
        stats: Vec::new(),
        sealed: sealed_tx,
        barriers: Vec::new(),
        dml: None,
        following: true,
    };
    let mut actor = 0;
    for fragment in &spec.plan.fragments {
        for (slot, vnodes) in slots(fragment, &spec.plan).into_iter().enumerate() {
            builder.actor(&Actor { fragment, id: ActorId(actor), slot, vnodes }).await?;
            actor += 1;
        }
    }
    spec.stats.restart(builder.stats.clone());
    Ok(Built {
        task_count: builder.stats.len(),
        tasks: builder.tasks,
        sealed,
        barriers: builder.barriers,
        dml: builder.dml,
        following: builder.following,
    })
}

/// The vnodes of each actor of a fragment.
pub fn slots(fragment: &Fragment, plan: &JobPlan) -> Vec<VnodeSet> {
    if fragment.single { vec![VnodeSet::ALL] } else { VnodeSet::split(plan.parallelism) }
}

struct Actor<'a> {
    fragment: &'a Fragment,
    id: ActorId,
    /// Index within the fragment.
    slot: usize,
    vnodes: VnodeSet,
}

/// The edges between two fragments.
struct ExchangeEdges {
    /// For each sending actor: an edge to each receiving actor.
    senders: Vec<Option<Vec<mpsc::Sender<Message>>>>,
    /// For each receiving actor: an edge from each sending actor.
    receivers: Vec<Option<Vec<mpsc::Receiver<Message>>>>,
    /// Vnodes of each receiving actor.
    owned: Vec<VnodeSet>,
}

/// By sending fragment and the index of its output.
type Exchanges = HashMap<(FragmentId, usize), ExchangeEdges>;

fn exchanges(plan: &JobPlan) -> Exchanges {
    let outputs = plan.fragments.iter().flat_map(|f| f.outputs.iter().enumerate().map(move |(i, o)| (f, i, o)));
    outputs
        .map(|(fragment, index, output)| {
            let from = slots(fragment, plan).len();
            let owned = slots(&plan.fragments[output.to.0 as usize], plan);
            let mut senders = vec![Vec::new(); from];
            let mut receivers: Vec<Vec<_>> = owned.iter().map(|_| Vec::new()).collect();
            for sender in &mut senders {
                for receiver in &mut receivers {
                    let (tx, rx) = mpsc::channel(EDGE_CAPACITY);
                    sender.push(tx);
                    receiver.push(rx);
                }
            }
            let edges = ExchangeEdges {
                senders: senders.into_iter().map(Some).collect(),
                receivers: receivers.into_iter().map(Some).collect(),
                owned,
            };
            ((fragment.id, index), edges)
        })
        .collect()
}

struct Builder<'a> {
    engine: &'a Engine,
    spec: &'a JobSpec,
    committed: Arc<AtomicU64>,
    exchanges: Exchanges,
    order: BackfillOrder,
    tasks: JoinSet<Result<()>>,
    stats: Vec<TaskStats>,
    sealed: mpsc::UnboundedSender<Sealed>,
    barriers: Vec<mpsc::UnboundedSender<Barrier>>,
    dml: Option<mpsc::UnboundedSender<Statement>>,
    following: bool,
}

/// The edges into one port of an executor.
type Port = Vec<mpsc::Receiver<Message>>;

impl Builder<'_> {
    async fn actor(&mut self, actor: &Actor<'_>) -> Result<()> {
        let plan = &actor.fragment.plan;
        let out = match (actor.fragment.outputs.is_empty(), &plan.node) {
            (false, _) => Output::exchanges(self.dispatchers(actor)?),
            (true, Node::Materialize(_) | Node::Log(_)) => Output::log(),
            (true, _) => Output::nowhere(),
        };
        self.node(actor, plan, out).await
    }

    fn dispatchers(&mut self, actor: &Actor<'_>) -> Result<Vec<Dispatcher>> {
        let outputs = actor.fragment.outputs.iter().enumerate();
        let dispatcher = |(index, output): (usize, &plan::Output)| {
            let edges = self.exchanges.get_mut(&(actor.fragment.id, index));
            let edges = edges.ok_or(StreamError::Plan("an exchange is missing"))?;
            let senders = edges.senders[actor.slot].take().ok_or(StreamError::Plan("an actor is there twice"))?;
            Ok(Dispatcher::new(&output.distribution, senders, &edges.owned))
        };
        outputs.map(dispatcher).collect()
    }

    /// Spawns the task of a node and, first, those of its inputs.
    fn node<'b>(
        &'b mut self,
        actor: &'b Actor<'b>,
        plan: &'b StreamPlan,
        out: Output,
    ) -> Pin<Box<dyn Future<Output = Result<()>> + Send + 'b>> {
        Box::pin(async move {
            let mut ports = Vec::new();
            for input in plan.node.inputs() {
                ports.push(self.port(actor, input).await?);
            }
            self.spawn_node(actor, plan, ports, out).await
        })
    }

    async fn port(&mut self, actor: &Actor<'_>, plan: &StreamPlan) -> Result<Port> {
        if let Node::Receive(receive) = &plan.node {
            let edges = self.exchanges.get_mut(&(receive.from, receive.output));
            let edges = edges.ok_or(StreamError::Plan("an exchange is missing"))?;
            return edges.receivers[actor.slot].take().ok_or(StreamError::Plan("an output is received twice"));
        }
        let (tx, rx) = mpsc::channel(EDGE_CAPACITY);
        self.node(actor, plan, Output::edge(tx)).await?;
        Ok(vec![rx])
    }

    async fn spawn_node(&mut self, actor: &Actor<'_>, plan: &StreamPlan, ports: Vec<Port>, out: Output) -> Result<()> {
        let memory = self.engine.memory.clone();
        let input = |i: usize| &plan.node.inputs()[i].schema;
        match &plan.node {
            Node::Scan(scan) => {
                let progress = self.table(&scan.progress, VnodeSet::ALL);
                let (store, limit) = (self.engine.store.clone(), self.spec.limits.backfill.clone());
                let schema = plan.schema.clone();
                let frontier = self.spec.frontier;
                let (order, courtesy) = (self.order.clone(), self.engine.courtesy.clone());
                let reader =
                    Scan::open(scan, schema, store, actor.vnodes, progress, frontier, limit, order, courtesy).await?;
                self.following &= reader.following();
                self.spawn_reader(actor, plan, reader, out);
            }
            Node::Source(source) => {
                let offsets = self.table(&source.offsets, actor.vnodes);
                let (stats, limit) = (self.spec.stats.clone(), self.spec.limits.source.clone());
                let uncommitted = self.engine.store.uncommitted().clone();
                let courtesy = self.engine.courtesy.clone();
                let reader =
                    Source::open(source, plan.schema.clone(), offsets, uncommitted, stats, limit, courtesy).await?;
                self.spawn_reader(actor, plan, reader, out);
            }
            Node::Dml(dml) => {
                let (tx, rx) = mpsc::unbounded_channel();
                self.dml = Some(tx);
                let marks = self.table(&dml.marks, actor.vnodes);
                let reader = Dml::new(rx, dml.row_id, marks, self.engine.courtesy.clone());
                self.spawn_reader(actor, plan, reader, out);
            }
            Node::Values(values) => {
                let emitted = self.table(&values.emitted, actor.vnodes);
                let reader = Values::open(values, plan.schema.clone(), emitted).await?;
                self.spawn_reader(actor, plan, reader, out);
            }
            Node::Project(project) => {
                let exprs = project.exprs.iter().map(|e| self.expression(e, input(0))).collect::<Result<_>>()?;
                self.spawn(actor, plan, Project::new(exprs, plan.schema.clone()), ports, out);
            }
            Node::Filter(filter) => {
                let predicate = self.expression(&filter.predicate, input(0))?;
                self.spawn(actor, plan, Filter::new(predicate), ports, out);
            }
            Node::Aggregate(aggregate) => {
                let groups = self.table(&aggregate.groups, actor.vnodes);
                let values = aggregate.calls.iter().map(|c| c.values.as_ref().map(|t| self.table(t, actor.vnodes)));
                let values = values.collect();
                let executor = Aggregate::new(aggregate, input(0), &plan.schema, groups, values, memory)?;
                self.spawn(actor, plan, executor, ports, out);
            }
            Node::Join(join) => {
                let left = self.table(&join.left_rows, actor.vnodes);
                let right = self.table(&join.right_rows, actor.vnodes);
                let both = Arc::new(joined_schema(&join.left, &join.right));
                let residual = join.residual.as_ref().map(|e| self.expression(e, &both)).transpose()?;
                let executor = Join::new(join, input(0), input(1), &plan.schema, left, right, residual, memory)?;
                self.spawn(actor, plan, executor, ports, out);
            }
            Node::TopN(top_n) => {
                let rows = self.table(&top_n.rows, actor.vnodes);
                self.spawn(actor, plan, TopN::new(top_n, input(0), &plan.schema, rows, memory)?, ports, out);
            }
            Node::Union(_) => self.spawn(actor, plan, Union::new(plan.schema.clone()), ports, out),
            Node::Unnest(unnest) => self.spawn(actor, plan, Unnest::new(unnest, plan.schema.clone()), ports, out),
            Node::Materialize(materialize) => {
                let table = self.table(&materialize.table, actor.vnodes);
                self.spawn(actor, plan, Materialize::new(table, materialize.conflict), ports, out);
            }
            Node::Log(log) => self.spawn(actor, plan, Log::new(log), ports, out),
            Node::Sink(_) => self.spawn(actor, plan, Blackhole::new(self.spec.limits.sink.clone()), ports, out),
            Node::Receive(_) => return Err(StreamError::Plan("a fragment that only receives")),
            Node::Exchange(_) => return Err(StreamError::Plan("an exchange within a fragment")),
        }
        Ok(())
    }

    fn table(&self, def: &TableDef, vnodes: VnodeSet) -> StateTable {
        StateTable::open(self.engine.store.clone(), def.clone(), vnodes, self.committed.clone())
    }

    fn expression(&self, expr: &weir_common::plan::Expr, input: &arrow::datatypes::SchemaRef) -> Result<Expression> {
        Ok(Expression::decode(expr, input)?.counting(self.spec.stats.expression_errors.clone()))
    }

    fn spawn<E: Executor>(&mut self, actor: &Actor<'_>, plan: &StreamPlan, executor: E, ports: Vec<Port>, out: Output) {
        let reporter = self.reporter(actor, plan);
        self.tasks.spawn(driver::drive(executor, Align::new(ports), out, reporter));
    }

    fn spawn_reader<R: Reader>(&mut self, actor: &Actor<'_>, plan: &StreamPlan, reader: R, out: Output) {
        let reporter = self.reporter(actor, plan);
        let (tx, rx) = mpsc::unbounded_channel();
        self.barriers.push(tx);
        self.tasks.spawn(driver::read(reader, rx, out, reporter));
    }

    fn reporter(&mut self, actor: &Actor<'_>, plan: &StreamPlan) -> Reporter {
        let task = self.stats.len();
        self.stats.push(TaskStats {
            fragment: actor.fragment.id,
            actor: actor.id,
            node: plan.node.name(),
            rows: 0,
            epoch: Epoch::ZERO,
        });
        Reporter { task, sealed: self.sealed.clone() }
    }
}

fn joined_schema(left: &StreamPlan, right: &StreamPlan) -> arrow::datatypes::Schema {
    let fields = left.schema.fields().iter().chain(right.schema.fields().iter()).cloned();
    arrow::datatypes::Schema::new(fields.collect::<Vec<_>>())
}
