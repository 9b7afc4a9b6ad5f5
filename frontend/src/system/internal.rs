//! The state tables of jobs as relations: `SHOW INTERNAL TABLES`, and `SELECT` from any of them by name.

use std::sync::Arc;

use datafusion::catalog::TableProvider;
use weir_common::TableDef;
use weir_common::catalog::Object;

use super::SystemRelations;
use crate::batch;

const PREFIX: &str = "__internal_";

/// The names of all internal tables.
pub(crate) fn names<'a>(objects: impl Iterator<Item = &'a Arc<Object>>) -> Vec<String> {
    let mut names: Vec<_> = objects.flat_map(|o| tables(o)).map(|(name, _)| name).collect();
    names.sort();
    names
}

/// The internal table of this name, with the rows that are committed.
pub(super) fn table(source: &SystemRelations<'_>, name: &str) -> Option<Arc<dyn TableProvider>> {
    if !name.starts_with(PREFIX) {
        return None;
    }
    let (name, def) = source.moment.catalog.objects().flat_map(|o| tables(o)).find(|(table, _)| table == name)?;
    Some(batch::state_table(name, def.clone(), source.moment.read_point()))
}

/// The state tables of an object's job, but for the relation itself: `__internal_view_2_aggregate_17`, where 2 is the fragment
/// and 17 the id of the table.
fn tables(object: &Object) -> Vec<(String, &TableDef)> {
    let mut tables = Vec::new();
    let relation = object.plan.as_ref().and_then(|p| p.relation.as_ref()).map(|t| t.id);
    for fragment in object.plan.iter().flat_map(|plan| &plan.fragments) {
        fragment.plan.visit(&mut |plan| {
            let node = plan.node.name().to_lowercase();
            for table in plan.node.tables().into_iter().filter(|t| Some(t.id) != relation) {
                let name = format!("{PREFIX}{}_{}_{node}_{}", object.name, fragment.id, table.id);
                tables.push((name, table));
            }
        });
    }
    tables
}
