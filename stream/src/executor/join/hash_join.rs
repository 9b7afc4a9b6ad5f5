//! The executor.

use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use weir_common::Chunk;
use weir_common::plan::{self, JoinKind};
use weir_storage::{MemoryLimit, StateTable};

use super::change::Change;
use super::keys::{KeyRule, Keys};
use super::piece::Columns;
use super::side::Side;
use crate::executor::Executor;
use crate::expr::Expression;
use crate::message::Output;
use crate::{Result, StreamError};

/// Memory pressure at which rows are evicted before the epoch ends.
const URGENT_PRESSURE: f64 = 0.25;

/// Joins two inputs on equal keys; see [`crate::executor::join`].
pub struct Join {
    /// By port.
    sides: [Side; 2],
    ports: [Port; 2],
    residual: Option<Residual>,
    memory: Arc<MemoryLimit>,
}

/// What a port does. "Own" is the side that its chunks change, "other" the one that they are matched with.
pub(super) struct Port {
    keys: KeyRule,
    pub columns: Columns,
    /// Whether pairs of matching rows come out.
    pub pairs: bool,
    pub own_alone: Alone,
    pub other_alone: Alone,
}

/// When a row comes out by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Alone {
    Never,
    /// While it has no match: outer joins (padded with NULLs) and anti joins.
    Unmatched,
    /// While it has one: semi joins.
    Matched,
}

impl Alone {
    /// Whether a row with so many matches does.
    pub fn holds(self, matches: i64) -> bool {
        match self {
            Alone::Never => false,
            Alone::Unmatched => matches == 0,
            Alone::Matched => matches > 0,
        }
    }
}

/// The condition beside the equal keys.
struct Residual {
    condition: Expression,
    /// By port.
    columns: [Columns; 2],
}

impl Join {
    /// Over the rows of both inputs, in tables that [`super::tables`] has made.
    #[allow(clippy::too_many_arguments)] // As many as a join has parts.
    pub fn new(
        plan: &plan::Join,
        left_schema: &SchemaRef,
        right_schema: &SchemaRef,
        output_schema: &SchemaRef,
        left_rows: StateTable,
        right_rows: StateTable,
        residual: Option<Expression>,
        memory: Arc<MemoryLimit>,
    ) -> Result<Join> {
        let (left_on, right_on): (Vec<_>, Vec<_>) = plan.on.iter().copied().unzip();
        let by_row = residual.is_some();
        let rules = [KeyRule::new(plan.null_equals_null, &right_on), KeyRule::new(plan.null_equals_null, &left_on)];
        let left = Side::new(left_rows, left_schema.fields().len(), left_on, by_row, memory.clone())?;
        let right = Side::new(right_rows, right_schema.fields().len(), right_on, by_row, memory.clone())?;
        if left.counted() != plan.kind.counts_left() || right.counted() != plan.kind.counts_right() {
            return Err(StreamError::Plan("the tables of a join are of its kind"));
        }
        let both: Vec<_> = left_schema.fields().iter().chain(right_schema.fields()).cloned().collect();
        let residual = residual.map(|condition| {
            let columns =
                |own_first| Columns { schema: Arc::new(Schema::new(both.clone())), own_first, own: true, other: true };
            Residual { condition, columns: [columns(true), columns(false)] }
        });
        Ok(Join { sides: [left, right], ports: ports(plan.kind, output_schema, rules), residual, memory })
    }

    fn relieve(&mut self, pressure: f64) -> Result<()> {
        for side in &mut self.sides {
            side.write_matches()?;
            if pressure > 0.0 {
                side.evict(pressure)?;
            }
        }
        Ok(())
    }
}

fn ports(kind: JoinKind, output: &SchemaRef, rules: [KeyRule; 2]) -> [Port; 2] {
    let pairs = !matches!(kind, JoinKind::LeftSemi | JoinKind::LeftAnti);
    let left = match kind {
        JoinKind::Inner | JoinKind::Right => Alone::Never,
        JoinKind::Left | JoinKind::Full | JoinKind::LeftAnti => Alone::Unmatched,
        JoinKind::LeftSemi => Alone::Matched,
    };
    let right = match kind {
        JoinKind::Right | JoinKind::Full => Alone::Unmatched,
        JoinKind::Inner | JoinKind::Left | JoinKind::LeftSemi | JoinKind::LeftAnti => Alone::Never,
    };
    let [left_rule, right_rule] = rules;
    let columns = |own_first, own, other| Columns { schema: output.clone(), own_first, own, other };
    [
        Port { keys: left_rule, columns: columns(true, true, pairs), pairs, own_alone: left, other_alone: right },
        Port { keys: right_rule, columns: columns(false, pairs, true), pairs, own_alone: right, other_alone: left },
    ]
}

impl Executor for Join {
    async fn apply(&mut self, port: usize, chunk: Chunk, out: &mut Output) -> Result<()> {
        if chunk.is_empty() {
            return Ok(());
        }
        let [left, right] = &mut self.sides;
        let (own, other) = if port == 0 { (left, right) } else { (right, left) };
        own.start().await?;
        other.start().await?;
        let port_of = &self.ports[port];
        let columns = chunk.columns(own.on());
        let keys = Keys::new(&columns, chunk.len(), &port_of.keys)?;
        let mut rows: Vec<usize> = (0..chunk.len()).collect();
        other.load(&keys, &columns, &rows).await?;
        let found = other.find(&keys);
        if self.residual.is_none() && port_of.other_alone != Alone::Never {
            rows.retain(|row| !other.rows(found[*row]).is_empty());
            own.load(&keys, &columns, &rows).await?;
        }
        let mut change = Change { port: port_of, chunk: &chunk, keys: &keys, found, own, other, out };
        let matches = match &self.residual {
            None => change.by_key().await?,
            Some(residual) => change.by_row(&residual.condition, &residual.columns[port]).await?,
        };
        change.own.apply(&chunk, &keys, &matches)?;
        let pressure = self.memory.pressure();
        if pressure > URGENT_PRESSURE { self.relieve(pressure) } else { Ok(()) }
    }

    async fn flush(&mut self, _out: &mut Output) -> Result<()> {
        self.relieve(self.memory.pressure())
    }

    fn tables(&mut self) -> Vec<&mut StateTable> {
        self.sides.iter_mut().map(Side::table).collect()
    }
}
