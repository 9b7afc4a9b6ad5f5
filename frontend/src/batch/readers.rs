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
pub struct ReadPoint(Arc<OnceLock<SnapshotCell>>);

/// A snapshot that can be shown in debug output.
#[derive(Clone)]
struct SnapshotCell(Snapshot);

impl std::fmt::Debug for SnapshotCell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Snapshot")
    }
}

impl ReadPoint {
    /// From here on the statement reads this snapshot. A second one changes nothing.
    pub fn set(&self, snapshot: Snapshot) {
        let _ = self.0.set(SnapshotCell(snapshot));
    }

    /// The snapshot.
    pub fn get(&self) -> Result<Snapshot, SqlError> {
        let cell = self.0.get();
        cell.map(|c| c.0.clone()).ok_or_else(|| SqlError::internal("a relation was read before the moment was fixed"))
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
            ObjectKind::View | ObjectKind::Sink => Ok(None),
        }
    }

    fn system(&self, schema: &str, name: &str) -> DFResult<Option<Arc<dyn TableProvider>>> {
        Ok((self.system)(schema, name)?)
    }
}
