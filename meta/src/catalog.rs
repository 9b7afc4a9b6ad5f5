//! The objects of the database, as an immutable snapshot.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use weir_common::JobId;
use weir_common::catalog::{Object, PUBLIC_SCHEMA};

/// All objects at one moment.
#[derive(Clone, Debug)]
pub struct Catalog {
    objects: BTreeMap<JobId, Arc<Object>>,
    names: BTreeMap<(String, String), JobId>,
    schemas: BTreeSet<String>,
}

impl Default for Catalog {
    /// No object, one schema.
    fn default() -> Catalog {
        Catalog { objects: BTreeMap::new(), names: BTreeMap::new(), schemas: BTreeSet::from([PUBLIC_SCHEMA.into()]) }
    }
}

impl Catalog {
    /// The object with this name. All kinds share one space of names, as in PostgreSQL.
    pub fn find(&self, schema: &str, name: &str) -> Option<&Arc<Object>> {
        let id = self.names.get(&(schema.to_owned(), name.to_owned()))?;
        self.objects.get(id)
    }

    /// The object with this id.
    pub fn get(&self, id: JobId) -> Option<&Arc<Object>> {
        self.objects.get(&id)
    }

    /// All objects, oldest first.
    pub fn objects(&self) -> impl Iterator<Item = &Arc<Object>> {
        self.objects.values()
    }

    /// The objects that use this one directly.
    pub fn dependants(&self, id: JobId) -> Vec<Arc<Object>> {
        self.objects.values().filter(|o| o.depends_on.contains(&id)).cloned().collect()
    }

    /// The jobs that read the log of this one.
    pub fn readers(&self, id: JobId) -> impl Iterator<Item = JobId> + '_ {
        let reads = move |o: &&Arc<Object>| o.plan.as_ref().is_some_and(|p| p.inputs.contains(&id));
        self.objects.values().filter(reads).map(|o| o.id)
    }

    /// Names of the schemas.
    pub fn schemas(&self) -> impl Iterator<Item = &str> {
        self.schemas.iter().map(String::as_str)
    }

    /// Whether there is such a schema.
    pub fn has_schema(&self, name: &str) -> bool {
        self.schemas.contains(name)
    }

    pub(crate) fn insert(&mut self, object: Arc<Object>) {
        self.names.insert((object.schema.clone(), object.name.clone()), object.id);
        self.objects.insert(object.id, object);
    }

    /// Puts entries in the place of those of the same ids, which may exchange names.
    pub(crate) fn change(&mut self, changed: &[Arc<Object>]) {
        changed.iter().for_each(|object| self.remove(object.id));
        changed.iter().for_each(|object| self.insert(object.clone()));
    }

    pub(crate) fn remove(&mut self, id: JobId) {
        if let Some(object) = self.objects.remove(&id) {
            self.names.remove(&(object.schema.clone(), object.name.clone()));
        }
    }

    pub(crate) fn insert_schema(&mut self, name: String) {
        self.schemas.insert(name);
    }

    pub(crate) fn remove_schema(&mut self, name: &str) {
        self.schemas.remove(name);
    }
}
