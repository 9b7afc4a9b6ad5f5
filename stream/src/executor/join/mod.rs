//! Joins of two change logs on equal keys: inner, outer, semi and anti, with a residual condition.
//!
//! State     the rows of both inputs, by join key; see [`tables`]. Rows whose key can't match anything (NULL) are not kept.
//! Output    for every change of either input at once what it changes: at any time, the changes add up to the join of
//!           what has come in. At a barrier nothing is held back.
//! Invariant a delete that comes out is identical to the row that came out before, and comes after it.
//!
//! ```text
//! chunk of port 0 ──> keys ──> rows of port 1 by key ──> pairs ──> residual ──> pieces of output
//!   (keys.rs)                  (side.rs: index, arena)              (change.rs, piece.rs)
//!      └──────────────> rows of port 0, after all pairs are out
//! ```
//!
//! A chunk changes one side only. So the rows that it meets on the other side are fixed, and all of the chunk is looked
//! up, paired and checked at once, by columns. What needs care is the other side's rows that come out *alone*: padded
//! with NULLs (outer), or because they have no match (anti) or one (semi). They change when their number of matches
//! leaves or reaches zero:
//!
//! ```text
//! without residual   all rows of a key have the same matches: the rows of the key on this side. Nothing is counted;
//!                    the number of rows of the key before and after the chunk tells.
//! with residual      each row has its own; counted in memory and kept in the column `matches`
//! ```
//!
//! Rows that cease to come out alone are retracted before the pairs of their piece, those that begin come after them.
//! What happens in between (an update deletes the only match and inserts another) brings no padded row out.

mod arena;
mod change;
mod hash_join;
mod index;
mod keys;
mod piece;
#[cfg(test)]
mod scripts;
mod side;
mod tables;
#[cfg(test)]
mod tests;

pub use hash_join::Join;
pub use tables::{MATCHES, full_join_needs_marker, stream_key, tables};
