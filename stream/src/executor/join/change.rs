//! A chunk on its way through the join: what it changes in the output.

use std::hash::Hash;

use arrow::array::{Array, AsArray, BooleanArray};
use arrow::compute::prep_null_mask_filter;
use arrow::datatypes::DataType;
use hashbrown::HashMap;
use weir_common::Chunk;
use weir_common::chunk::CHUNK_ROWS;

use super::arena::RowId;
use super::hash_join::{Alone, Port};
use super::index::EntryId;
use super::keys::Keys;
use super::piece::{Columns, Piece};
use super::side::Side;
use crate::expr::Expression;
use crate::message::Output;
use crate::{Result, StreamError};

/// Rows of a piece of output, unless one row has more matches or an update would be torn.
const PIECE_ROWS: usize = CHUNK_ROWS;
/// Rows of a piece of output.
const PIECE_ROWS_MAX: usize = 4 * CHUNK_ROWS;
/// A chunk on its way through. The other side's rows stay as they are meanwhile, only their matches change; so all rows
/// of the chunk are matched at once, and their own side is changed at the end.
pub(super) struct Change<'a> {
    pub port: &'a Port,
    pub chunk: &'a Chunk,
    pub keys: &'a Keys,
    /// The other side's entry for each row of the chunk.
    pub found: Vec<EntryId>,
    pub own: &'a mut Side,
    pub other: &'a mut Side,
    pub out: &'a mut Output,
}

impl Change<'_> {
    /// Without a residual condition: all rows of a join key have the same matches, the other side's rows of the key.
    /// Counts by row are not needed. Returns what to store in their place.
    pub async fn by_key(&mut self) -> Result<Vec<i64>> {
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
        let rows = self.found.iter().copied().enumerate();
        let touched = rows.filter(|(_, entry)| !self.other.rows(*entry).is_empty()).map(|(row, entry)| (entry, row));
        for (entry, row, change) in self.totals(touched) {
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
    pub async fn by_row(&mut self, condition: &Expression, columns: &Columns) -> Result<Vec<i64>> {
        let mut matches = vec![0; self.chunk.len()];
        let mut cursor = Cursor { row: 0, at: 0 };
        while cursor.row < self.chunk.len() {
            let first = cursor.row;
            let candidates = self.candidates(&mut cursor);
            let passed = self.passed(&candidates, condition, columns)?;
            let turns = self.count(&candidates, &passed);
            let mut piece = Piece::default();
            turns.ceasing.into_iter().for_each(|row| piece.other(row, -1));
            let mut pairs = candidates.iter().zip(passed).peekable();
            for (row, matches) in matches.iter_mut().enumerate().take(cursor.row + 1).skip(first) {
                let sign = self.chunk.sign(row);
                while let Some(((_, other), passed)) = pairs.next_if(|((own, _), _)| *own == row) {
                    *matches += i64::from(passed);
                    if passed && self.port.pairs {
                        piece.pair(row, *other, sign);
                    }
                }
                // A row that has further candidates is not done, so it can't come out alone yet.
                if row < cursor.row && self.port.own_alone.holds(*matches) {
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
        let matched = candidates.iter().zip(passed).filter(|(_, passed)| **passed);
        for (row, _, change) in self.totals(matched.map(|((own, other), _)| (*other, *own))) {
            let before = self.other.add_matches(row, change);
            turns.add(row, self.port, before, before + change);
        }
        turns
    }

    /// For each key that rows of the chunk touch: the first of these rows, and how many more are inserted than deleted.
    fn totals<K: Copy + Eq + Hash>(&self, touched: impl Iterator<Item = (K, usize)>) -> Vec<(K, usize, i64)> {
        let mut totals: Vec<(K, usize, i64)> = Vec::new();
        let mut position: HashMap<K, usize> = HashMap::new();
        for (key, row) in touched {
            let at = *position.entry(key).or_insert(totals.len());
            if at == totals.len() {
                totals.push((key, row, 0));
            }
            totals[at].2 += i64::from(self.chunk.sign(row));
        }
        totals
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
