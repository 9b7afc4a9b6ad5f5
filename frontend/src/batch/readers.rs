//! Where the relations of one statement get their rows from.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock};

use datafusion::catalog::TableProvider;
use datafusion::common::Result as DFResult;
use weir_common::JobId;
use weir_common::catalog::{Object, ObjectKind};
use weir_storage::Snapshot;

use super::overlay::Overlay;
use super::relation::RelationReader;
use crate::error::SqlError;
use crate::planner::Readers;

/// The moment that all relations of a statement are read at. Plans are bound before it is known: first the session waits
/// until the relations in the plan hold its own writes.
#[derive(Clone, Debug, Default)]
pub struct ReadPoint(Arc<OnceLock<Read>>);

/// What is read: a snapshot, and what takes relations back to an earlier epoch.
struct Read {
    snapshot: Snapshot,
    past: BTreeMap<JobId, Arc<Overlay>>,
}

impl std::fmt::Debug for Read {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Read")
    }
}

impl ReadPoint {
    /// From here on the statement reads this snapshot, with overlays on some relations. A second one changes nothing.
    pub fn set(&self, snapshot: Snapshot, past: BTreeMap<JobId, Arc<Overlay>>) {
        let _ = self.0.set(Read { snapshot, past });
    }

    /// The snapshot.
    pub fn get(&self) -> Result<Snapshot, SqlError> {
        let read = self.0.get();
        let early = || SqlError::internal("a relation was read before the moment was fixed");
        read.map(|read| read.snapshot.clone()).ok_or_else(early)
    }

    /// What takes a relation back to the epoch that is read.
    pub fn past(&self, relation: JobId) -> Option<Arc<Overlay>> {
        self.0.get().and_then(|read| read.past.get(&relation).cloned())
    }
}

/// Relations of the system schemas by schema and name.
pub type SystemTables<'a> = &'a (dyn Fn(&str, &str) -> Result<Option<Arc<dyn TableProvider>>, SqlError> + Send + Sync);

/// Reads relations from the store.
pub struct StoreReaders<'a> {
    pub point: ReadPoint,
    /// Writes of the open block, by table.
    pub overlays: HashMap<JobId, Arc<Overlay>>,
    /// Rows that stand in for those of a relation.
    pub replaced: BTreeMap<JobId, Arc<dyn TableProvider>>,
    pub system: SystemTables<'a>,
}

impl Readers for StoreReaders<'_> {
    fn relation(&self, object: &Arc<Object>) -> DFResult<Option<Arc<dyn TableProvider>>> {
        if let Some(provider) = self.replaced.get(&object.id) {
            return Ok(Some(provider.clone()));
        }
        match object.kind {
            ObjectKind::Table | ObjectKind::MaterializedView | ObjectKind::Index => {
                let table = object.plan.as_ref().and_then(|plan| plan.relation.clone());
                let Some(table) = table else {
                    let message = format!("{} \"{}\" has no rows of its own", object.kind.sql(), object.name);
                    return Err(SqlError::internal(message).into());
                };
                let overlay = self.overlays.get(&object.id).cloned();
                Ok(Some(Arc::new(RelationReader::new(object.clone(), table, self.point.clone(), overlay))))
            }
            ObjectKind::Source => {
                let error = SqlError::unsupported("reading a source in a query").with_hint(format!(
                    "Create a materialized view over \"{}\", or create it as a table with the same options.",
                    object.name
                ));
                Err(error.into())
            }
            ObjectKind::View | ObjectKind::Sink | ObjectKind::Subscription | ObjectKind::Secret => Ok(None),
        }
    }

    fn system(&self, schema: &str, name: &str) -> DFResult<Option<Arc<dyn TableProvider>>> {
        Ok((self.system)(schema, name)?)
    }
}
