//! The executor.

use std::sync::Arc;

use arrow::array::{Array, AsArray, BooleanArray};
use arrow::compute::prep_null_mask_filter;
use arrow::datatypes::{DataType, Schema, SchemaRef};
use hashbrown::HashMap;
use weir_common::Chunk;
use weir_common::chunk::CHUNK_ROWS;
use weir_common::plan::{self, JoinKind};
use weir_storage::{MemoryLimit, StateTable};

use super::arena::RowId;
use super::index::EntryId;
use super::keys::{KeyRule, Keys};
use super::piece::{Columns, Piece};
use super::side::Side;
use crate::executor::Executor;
use crate::expr::Expression;
use crate::message::Output;
use crate::{Result, StreamError};

/// Rows of a piece of output, unless one row has more matches or an update would be torn.
const PIECE_ROWS: usize = CHUNK_ROWS;
/// Rows of a piece of output.
const PIECE_ROWS_MAX: usize = 4 * CHUNK_ROWS;
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
struct Port {
    keys: KeyRule,
    columns: Columns,
    /// Whether pairs of matching rows come out.
    pairs: bool,
    own_alone: Alone,
    other_alone: Alone,
}

/// When a row comes out by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Alone {
    Never,
    /// While it has no match: outer joins (padded with NULLs) and anti joins.
    Unmatched,
    /// While it has one: semi joins.
    Matched,
}

impl Alone {
    fn holds(self, matches: i64) -> bool {
        match self {
            Alone::Never => false,
            Alone::Unmatched => matches == 0,
            Alone::Matched => matches > 0,
        }
    }
}

/// Rows of the other side that come out alone and cease to, and those that begin to.
struct Turns<T> {
    ceasing: Vec<T>,
    beginning: Vec<T>,
}

impl<T: Copy> Turns<T> {
    fn none() -> Turns<T> {
        Turns { ceasing: Vec::new(), beginning: Vec::new() }
    }

    /// Adds a row whose number of matches has changed, maybe there and back again.
    fn add(&mut self, row: T, port: &Port, before: i64, after: i64) {
        let (was, is) = (port.other_alone.holds(before), port.other_alone.holds(after));
        // With pairs in between, the padded row makes place for them: it may have the same key.
        let between = was && is && port.pairs;
        if between || (was && !is) {
            self.ceasing.push(row);
        }
        if between || (is && !was) {
            self.beginning.push(row);
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

/// A chunk on its way through. The other side's rows stay as they are meanwhile, only their matches change; so all rows
/// of the chunk are matched at once, and their own side is changed at the end.
struct Change<'a> {
    port: &'a Port,
    chunk: &'a Chunk,
    keys: &'a Keys,
    /// The other side's entry for each row of the chunk.
    found: Vec<EntryId>,
    own: &'a mut Side,
    other: &'a mut Side,
    out: &'a mut Output,
}

impl Change<'_> {
    /// Without a residual condition: all rows of a join key have the same matches, the other side's rows of the key.
    /// Counts by row are not needed. Returns what to store in their place.
    async fn by_key(&mut self) -> Result<Vec<i64>> {
        let mut piece = Piece::default();
        let turns = self.turns_by_key();
        for entry in turns.ceasing {
            self.others_alone(&mut piece, entry, -1).await?;
        }
        for row in 0..self.chunk.len() {
            let sign = self.chunk.sign(row);
            let matches = self.other.rows(self.found[row]).len();
            if self.port.own_alone.holds(matches as i64) {
                piece.own(row, sign);
            }
            let mut done = if self.port.pairs { 0 } else { matches };
            while done < matches {
                let next = matches.min(done + PIECE_ROWS_MAX - piece.len());
                piece.pairs(row, &self.other.rows(self.found[row])[done..next], sign);
                done = next;
                if piece.len() >= PIECE_ROWS_MAX {
                    self.push(&mut piece).await?;
                }
            }
            if piece.len() >= PIECE_ROWS && !self.tears_update(row) {
                self.push(&mut piece).await?;
            }
        }
        for entry in turns.beginning {
            self.others_alone(&mut piece, entry, 1).await?;
        }
        self.push(&mut piece).await?;
        Ok(vec![0; self.chunk.len()])
    }

    /// The keys whose rows on the other side begin or cease to come out alone by this chunk.
    fn turns_by_key(&self) -> Turns<EntryId> {
        let mut turns = Turns::none();
        if self.port.other_alone == Alone::Never {
            return turns;
        }
        // The entry, a row of the chunk with its key, and how many rows more its own side has.
        let mut keys: Vec<(EntryId, usize, i64)> = Vec::new();
        let mut position: HashMap<EntryId, usize> = HashMap::new();
        for (row, entry) in self.found.iter().enumerate().filter(|(_, entry)| !self.other.rows(**entry).is_empty()) {
            let at = *position.entry(*entry).or_insert(keys.len());
            if at == keys.len() {
                keys.push((*entry, row, 0));
            }
            keys[at].2 += i64::from(self.chunk.sign(row));
        }
        for (entry, row, change) in keys {
            let before = self.own.count(self.keys, row) as i64;
            turns.add(entry, self.port, before, before + change);
        }
        turns
    }

    async fn others_alone(&mut self, piece: &mut Piece, entry: EntryId, sign: i8) -> Result<()> {
        for i in 0..self.other.rows(entry).len() {
            piece.other(self.other.rows(entry)[i], sign);
            if piece.len() >= PIECE_ROWS_MAX {
                self.push(piece).await?;
            }
        }
        Ok(())
    }

    /// With a residual condition: a row matches those rows of its key for which it is true. Matches are counted by row.
    /// Returns those of the chunk's rows.
    async fn by_row(&mut self, condition: &Expression, columns: &Columns) -> Result<Vec<i64>> {
        let mut matches = vec![0; self.chunk.len()];
        let mut cursor = Cursor { row: 0, at: 0 };
        while cursor.row < self.chunk.len() {
            let first = cursor.row;
            let candidates = self.candidates(&mut cursor);
            let passed = self.passed(&candidates, condition, columns)?;
            let mut piece = Piece::default();
            let turns = self.count(&candidates, &passed);
            turns.ceasing.into_iter().for_each(|row| piece.other(row, -1));
            let mut next = 0;
            // A row that has further candidates is not done, so it can't come out alone yet.
            for row in first..(cursor.row + 1).min(self.chunk.len()) {
                let sign = self.chunk.sign(row);
                while let Some((_, other)) = candidates.get(next).filter(|(own, _)| *own == row) {
                    if passed[next] {
                        matches[row] += 1;
                        if self.port.pairs {
                            piece.pair(row, *other, sign);
                        }
                    }
                    next += 1;
                }
                if row < cursor.row && self.port.own_alone.holds(matches[row]) {
                    piece.own(row, sign);
                }
            }
            turns.beginning.into_iter().for_each(|row| piece.other(row, 1));
            self.push(&mut piece).await?;
        }
        Ok(matches)
    }

    /// The next pairs of rows with the same join key.
    fn candidates(&self, cursor: &mut Cursor) -> Vec<(usize, RowId)> {
        let mut candidates = Vec::new();
        while cursor.row < self.chunk.len() {
            let rows = &self.other.rows(self.found[cursor.row])[cursor.at..];
            let room = PIECE_ROWS_MAX - candidates.len();
            candidates.extend(rows.iter().take(room).map(|other| (cursor.row, *other)));
            if rows.len() > room {
                cursor.at += room;
                break;
            }
            let tears = self.tears_update(cursor.row);
            *cursor = Cursor { row: cursor.row + 1, at: 0 };
            if candidates.len() >= PIECE_ROWS && !tears {
                break;
            }
        }
        candidates
    }

    /// Whether the condition is true for each candidate.
    fn passed(
        &mut self,
        candidates: &[(usize, RowId)],
        condition: &Expression,
        columns: &Columns,
    ) -> Result<Vec<bool>> {
        if candidates.is_empty() {
            return Ok(Vec::new());
        }
        let mut piece = Piece::default();
        candidates.iter().for_each(|(own, other)| piece.pair(*own, *other, 1));
        let batch = piece.build(columns, self.chunk, self.other)?;
        let result = condition.eval(&batch);
        if *result.data_type() == DataType::Null {
            return Ok(vec![false; candidates.len()]);
        }
        let result: &BooleanArray = result.as_boolean_opt().ok_or(StreamError::Plan("a join condition is boolean"))?;
        Ok(match result.null_count() {
            0 => result.values().iter().collect(),
            _ => prep_null_mask_filter(result).values().iter().collect(),
        })
    }

    /// Counts the matches of the other side's rows, and returns the rows that begin or cease to come out alone.
    fn count(&mut self, candidates: &[(usize, RowId)], passed: &[bool]) -> Turns<RowId> {
        let mut turns = Turns::none();
        if self.port.other_alone == Alone::Never {
            return turns;
        }
        let mut rows: Vec<(RowId, i64)> = Vec::new();
        let mut position: HashMap<RowId, usize> = HashMap::new();
        for ((own, other), _) in candidates.iter().zip(passed).filter(|(_, passed)| **passed) {
            let at = *position.entry(*other).or_insert(rows.len());
            if at == rows.len() {
                rows.push((*other, 0));
            }
            rows[at].1 += i64::from(self.chunk.sign(*own));
        }
        for (row, change) in rows {
            let before = self.other.add_matches(row, change);
            turns.add(row, self.port, before, before + change);
        }
        turns
    }

    /// Whether the next row is the second half of an update that this row begins.
    fn tears_update(&self, row: usize) -> bool {
        row + 1 < self.chunk.len() && self.chunk.sign(row) < 0 && self.chunk.sign(row + 1) > 0
    }

    async fn push(&mut self, piece: &mut Piece) -> Result<()> {
        if piece.len() == 0 {
            return Ok(());
        }
        let changes = piece.take_chunk(&self.port.columns, self.chunk, self.other)?;
        self.out.push(changes).await
    }
}

/// How far the rows of a chunk and their matches are.
struct Cursor {
    row: usize,
    /// Matches of the row that are done.
    at: usize,
}
