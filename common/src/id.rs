//! Ids, each a type of its own so that they can't be mixed up.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A job: a table, source, view, index or sink as the unit of scheduling, checkpoint and failure. It is also the id of
/// the catalog object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct JobId(pub u32);

/// A state table in the store. The rows of a job's relation are one of its state tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TableId(pub u32);

/// A part of a plan between exchanges. Numbered from 0 within its job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FragmentId(pub u32);

/// A parallel instance of a fragment, owner of some vnodes. Numbered from 0 within its job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ActorId(pub u32);

/// The number of a start of a job. An event that carries an older one than the job's changes nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Generation(pub u64);

impl Generation {
    /// The generation of the next start.
    pub fn next(self) -> Generation {
        Generation(self.0 + 1)
    }
}

macro_rules! display {
    ($($id:ty),*) => {
        $(impl fmt::Display for $id {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        })*
    };
}
display!(JobId, TableId, FragmentId, ActorId, Generation);
