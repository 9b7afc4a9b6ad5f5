//! The events of the Nexmark benchmark: people, their auctions, and bids on them.
//!
//! There is one sequence of events. In every cycle of 50, the first is a person, the next three are auctions, and 46
//! are bids; event `n` happens `n / 10` milliseconds after 2015-07-15 00:00:00. A source reads the events of one type
//! (`nexmark.table.type`), so three sources read three parts of one story: the people that bid exist.
//!
//! An event depends on nothing but its number. A split takes every `nexmark.split.num`-th cycle, and its offset is how
//! many rows it has given, so reading starts anywhere at no cost.
//!
//! The values are those of the `nexmark` crate, number by number, and so those that RisingWave's connector gives with
//! its default settings; a test compares them. Two things differ on purpose: time starts at a fixed point and not at
//! the wall clock, so that runs repeat, and it is computed in integers, for the crate's 32-bit floats stand still after
//! some hours of events. The crate makes a `String` per field; here the random numbers are drawn in the same order, but
//! the bytes go straight into Arrow's buffers, and drawing stops at the last column that is asked for.
//!
//! | option | |
//! |---|---|
//! | `nexmark.table.type` | `person`, `auction` or `bid`; required |
//! | `nexmark.event.num` | events of all types together; absent or -1: without end |
//! | `nexmark.split.num` | splits; 4 |
//! | `nexmark.min.event.gap.in.ns` | real time between two events of the sequence; 100000, the pace of the events' own time; 0: as fast as can be |
//! | `nexmark.max.chunk.size` | rows of a batch at most |

mod auction;
mod bid;
mod channels;
mod config;
mod lanes;
mod person;
mod random;
mod reader;
mod sequence;
mod strings;

pub use config::NexmarkConfig;

#[cfg(test)]
mod tests;
