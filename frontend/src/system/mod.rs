//! System relations and functions: what Weir tells about itself, in SQL.
//!
//! ```text
//! weir_catalog         jobs, fragments, actors, backfill, change logs, errors, tables     weir_catalog.rs, sinks.rs
//! pg_catalog           objects as PostgreSQL's clients look for them                     pg_catalog.rs, pg_empty.rs
//! information_schema   the same by the standard                                          information_schema.rs
//! rw_catalog           names that RisingWave's clients use; found without a schema too   rw_catalog.rs
//! ```
//!
//! A relation is a [`Relation`]: its columns, and a function that makes its rows from the catalog and meta as they are at
//! that moment. No row is kept anywhere.

use std::sync::Arc;

use datafusion::catalog::TableProvider;
use datafusion::datasource::MemTable;
use weir_meta::JobStatus;

use crate::error::Result;
use crate::session::Moment;

mod functions;
mod information_schema;
pub(crate) mod internal;
mod pg_catalog;
mod pg_empty;
mod relation;
mod rw_catalog;
mod sinks;
mod weir_catalog;

pub(crate) use functions::functions;
pub(crate) use pg_catalog::quoted;
pub use weir_catalog::progress;

use relation::{Relation, Value};

/// The schemas that hold system relations.
pub const SCHEMAS: [&str; 4] = ["information_schema", "pg_catalog", "rw_catalog", "weir_catalog"];

/// What system relations are made of.
pub(crate) struct SystemRelations<'a> {
    pub moment: &'a Moment<'a>,
}

impl SystemRelations<'_> {
    fn jobs(&self) -> Vec<JobStatus> {
        self.moment.session.meta().jobs()
    }
}

/// The system relation with that name, with its rows as they are now.
pub(crate) fn table(source: &SystemRelations<'_>, schema: &str, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
    let Some(relation) = find(schema, name) else { return Ok(internal::table(source, name)) };
    let batch = relation.batch(source)?;
    Ok(Some(Arc::new(MemTable::try_new(batch.schema(), vec![vec![batch]])?)))
}

/// Whether there is a system relation with that name.
pub fn exists(schema: &str, name: &str) -> bool {
    find(schema, name).is_some()
}

/// Whether a relation of `pg_catalog` never has rows.
pub fn is_empty(name: &str) -> bool {
    pg_empty::RELATIONS.iter().any(|r| r.name == name)
}

/// Whether a schema is one of the system's.
pub fn is_system_schema(name: &str) -> bool {
    SCHEMAS.contains(&name)
}

fn find(schema: &str, name: &str) -> Option<&'static Relation> {
    let lists: &[&'static [Relation]] = match schema {
        // pg_catalog is searched first for every name without a schema; RisingWave finds its own that way too.
        "pg_catalog" => &[pg_catalog::RELATIONS, pg_empty::RELATIONS, rw_catalog::RELATIONS],
        "information_schema" => &[information_schema::RELATIONS],
        "weir_catalog" => &[weir_catalog::RELATIONS, sinks::RELATIONS],
        "rw_catalog" => &[rw_catalog::RELATIONS],
        _ => &[],
    };
    lists.iter().flat_map(|list| list.iter()).find(|r| r.name == name)
}
