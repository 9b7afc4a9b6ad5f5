//! What a table says about a sink, in its properties:
//!
//! | property | |
//! |---|---|
//! | `weir.sink.<id>.generation` | the newest generation that has taken the sink over |
//! | `weir.sink.<id>.commit` | the newest commit |
//! | `weir.sink.<id>.epoch` | the changes up to it are in the table |
//! | `weir.sink.<id>.snapshot` | the snapshot of the newest commit that had files |
//!
//! A snapshot of ours says the same of itself in its summary: `weir.sink`, `weir.commit`, `weir.epoch`,
//! `weir.generation`.

use std::collections::HashMap;
use std::str::FromStr;

use iceberg::spec::{SnapshotRef, TableMetadata};
use weir_common::{Generation, JobId};

use crate::error::{ConnectorError, Result};
use crate::sink::Stamp;

/// What a table says about one sink.
pub struct Ledger<'a> {
    metadata: &'a TableMetadata,
    sink: JobId,
}

impl<'a> Ledger<'a> {
    /// The ledger of a sink.
    pub fn of(metadata: &'a TableMetadata, sink: JobId) -> Ledger<'a> {
        Ledger { metadata, sink }
    }

    /// Refuses a generation that is older than the newest.
    pub fn check_generation(&self, ours: Generation) -> Result<()> {
        match self.get::<u64>("generation")? {
            Some(newer) if newer > ours.0 => Err(ConnectorError::Fenced { ours: ours.0, newer }),
            _ => Ok(()),
        }
    }

    /// Whether a commit is in the table. An error when the table has lost what was committed to it.
    pub fn holds(&self, stamp: &Stamp) -> Result<bool> {
        self.check_history()?;
        if self.get::<String>("commit")?.is_some_and(|newest| newest == stamp.commit) {
            return Ok(true);
        }
        let is_commit = |s: SnapshotRef| s.summary().additional_properties.get("weir.commit") == Some(&stamp.commit);
        // Commits come in the order of their epochs; the snapshot of an older one may be gone.
        Ok(self.history().any(is_commit) || self.get::<u64>("epoch")?.is_some_and(|newest| newest >= stamp.epoch.0))
    }

    /// Refuses a table that was rolled back to before our newest commit: its rows are not to be had again by going on.
    pub fn check_history(&self) -> Result<()> {
        let Some(newest) = self.get::<i64>("snapshot")? else {
            return Ok(());
        };
        let mut oldest = None;
        for snapshot in self.history() {
            if snapshot.snapshot_id() == newest {
                return Ok(());
            }
            oldest = Some(snapshot);
        }
        // The history ends where older snapshots have expired; there ours may have been.
        let cut = oldest.is_some_and(|s| s.parent_snapshot_id().is_some());
        if cut && self.metadata.snapshot_by_id(newest).is_none() {
            return Ok(());
        }
        let reason = format!(
            "the table was rolled back or replaced: snapshot {newest}, the newest commit of this sink, is not in its \
             history; remove the table properties `weir.sink.{}.…` to let a sink begin anew",
            self.sink
        );
        Err(ConnectorError::Mismatch { reason })
    }

    /// The current snapshot, its parent, and so on.
    fn history(&self) -> impl Iterator<Item = SnapshotRef> + 'a {
        let metadata = self.metadata;
        let parent = move |s: &SnapshotRef| metadata.snapshot_by_id(s.parent_snapshot_id()?).cloned();
        std::iter::successors(metadata.current_snapshot().cloned(), parent)
    }

    fn get<T: FromStr>(&self, what: &str) -> Result<Option<T>> {
        let key = property(self.sink, what);
        match self.metadata.properties().get(&key) {
            None => Ok(None),
            Some(value) => value.parse().map(Some).map_err(|_| ConnectorError::Mismatch {
                reason: format!("table property `{key}` cannot be '{value}'"),
            }),
        }
    }
}

/// The properties that say that a generation has taken a sink over.
pub fn taken_over(sink: JobId, generation: Generation) -> HashMap<String, String> {
    HashMap::from([(property(sink, "generation"), generation.to_string())])
}

/// The properties that say that a commit is in the table; `snapshot` unless it was empty.
pub fn committed(stamp: &Stamp, generation: Generation, snapshot: Option<i64>) -> HashMap<String, String> {
    let mut properties = taken_over(stamp.sink, generation);
    properties.insert(property(stamp.sink, "commit"), stamp.commit.clone());
    properties.insert(property(stamp.sink, "epoch"), stamp.epoch.0.to_string());
    if let Some(snapshot) = snapshot {
        properties.insert(property(stamp.sink, "snapshot"), snapshot.to_string());
    }
    properties
}

/// What the summary of a snapshot says about its commit.
pub fn summary(stamp: &Stamp) -> HashMap<String, String> {
    HashMap::from([
        ("weir.sink".to_owned(), stamp.sink.to_string()),
        ("weir.commit".to_owned(), stamp.commit.clone()),
        ("weir.epoch".to_owned(), stamp.epoch.0.to_string()),
        ("weir.generation".to_owned(), stamp.generation.to_string()),
    ])
}

fn property(sink: JobId, what: &str) -> String {
    format!("weir.sink.{sink}.{what}")
}
