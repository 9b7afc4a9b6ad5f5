//! Which rows of a partition are in the result.

use weir_common::plan::{Rank, TopN};

use super::arena::At;
use super::partition::{Ranked, Row};

/// The ranks that are wanted: above `offset`, up to `last`.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    rank: Rank,
    offset: usize,
    /// `None`: no upper limit.
    last: Option<usize>,
    emit_rank: bool,
}

impl Window {
    /// The window of a plan.
    pub fn new(plan: &TopN) -> Window {
        let rows = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        let offset = rows(plan.offset);
        let last = plan.limit.map(|limit| offset.saturating_add(rows(limit)));
        Window { rank: plan.rank, offset, last, emit_rank: plan.emit_rank }
    }

    /// Whether the window is told by the number of rows before it alone.
    pub fn counts_rows(&self) -> bool {
        self.rank == Rank::RowNumber
    }

    /// The last rank in the window.
    pub fn last(&self) -> Option<usize> {
        self.last
    }

    /// How many of the first rows of a partition tell the window, whatever rows follow; `None` if those are too few.
    pub fn needed(&self, rows: &[Row]) -> Option<usize> {
        let last = self.last?;
        if last == 0 {
            return Some(0);
        }
        match self.rank {
            Rank::RowNumber => (last <= rows.len()).then_some(last),
            // The first row after the last one's ties must be seen to know that there are no more ties.
            Rank::Rank => {
                let tied = rows.get(last - 1)?.order();
                Some(last + rows[last..].iter().position(|r| r.order() != tied)? + 1)
            }
            Rank::DenseRank => {
                let mut starts = (0..rows.len()).filter(|i| *i == 0 || rows[*i].order() != rows[i - 1].order());
                Some(starts.nth(last)? + 1)
            }
        }
    }

    /// The rows in the window, in order, of a partition that starts with these rows.
    pub fn of(&self, rows: &[Row]) -> Vec<Ranked> {
        let last = self.last.unwrap_or(usize::MAX);
        if self.rank == Rank::RowNumber {
            let end = last.min(rows.len());
            let window = rows.get(self.offset..end).unwrap_or_default();
            return window.iter().enumerate().map(|(i, row)| self.ranked(row.at, self.offset + i + 1)).collect();
        }
        let mut window = Vec::new();
        let mut rank = 0;
        for (i, row) in rows.iter().enumerate() {
            if i == 0 || row.order() != rows[i - 1].order() {
                rank = if self.rank == Rank::Rank { i + 1 } else { rank + 1 };
            }
            if rank > last {
                break;
            }
            if rank > self.offset {
                window.push(self.ranked(row.at, rank));
            }
        }
        window
    }

    fn ranked(&self, at: At, rank: usize) -> Ranked {
        Ranked { at, rank: if self.emit_rank { rank as i64 } else { 0 } }
    }
}
