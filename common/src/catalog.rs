//! Catalog entries, as meta keeps them and the frontend reads them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::epoch::Epoch;
use crate::id::JobId;
use crate::plan::JobPlan;
use crate::types::SqlType;

/// The schema that users' objects are in when none is named.
pub const PUBLIC_SCHEMA: &str = "public";
/// The hidden column that identifies the rows of a table or source without a primary key.
pub const ROW_ID: &str = "_row_id";

/// What an object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ObjectKind {
    Table,
    Source,
    View,
    MaterializedView,
    Index,
    Sink,
    /// Keeps the change log of a relation, for cursors.
    Subscription,
    /// A value that options name and nobody is shown.
    Secret,
}

impl ObjectKind {
    /// The name in messages and `DROP …`.
    pub fn sql(self) -> &'static str {
        match self {
            ObjectKind::Table => "table",
            ObjectKind::Source => "source",
            ObjectKind::View => "view",
            ObjectKind::MaterializedView => "materialized view",
            ObjectKind::Index => "index",
            ObjectKind::Sink => "sink",
            ObjectKind::Subscription => "subscription",
            ObjectKind::Secret => "secret",
        }
    }
}

/// A column of a relation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ColumnDef {
    pub name: String,
    pub sql_type: SqlType,
    pub not_null: bool,
    /// Not shown by `SELECT *`: row ids, and stream-key columns that the query did not select.
    pub hidden: bool,
    /// A numeric whose scale comes from a computation and not from a declaration: shown without trailing zeros.
    #[serde(default)]
    pub computed: bool,
    /// The DEFAULT expression as SQL.
    pub default: Option<String>,
    /// The expression of a generated column as SQL.
    pub generated: Option<String>,
}

impl ColumnDef {
    /// A visible nullable column without default.
    pub fn new(name: impl Into<String>, sql_type: SqlType) -> ColumnDef {
        ColumnDef {
            name: name.into(),
            sql_type,
            not_null: false,
            hidden: false,
            computed: false,
            default: None,
            generated: None,
        }
    }
}

/// What a subscription keeps of a change log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retention {
    /// Changes after this epoch are kept ...
    pub since: Epoch,
    /// ... for so many milliseconds.
    pub keep_ms: u64,
}

impl Retention {
    /// At a time, in milliseconds since 1970, changes after this epoch are kept.
    pub fn kept_after(&self, now_ms: u64) -> Epoch {
        self.since.max(Epoch::from_unix_ms(now_ms.saturating_sub(self.keep_ms)))
    }
}

/// An object of the catalog.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Object {
    /// Unique for ever, also after a drop. The oid of the object in pg_catalog.
    pub id: JobId,
    pub schema: String,
    pub name: String,
    pub kind: ObjectKind,
    /// All columns, hidden ones included, in the order of the relation's table.
    pub columns: Vec<ColumnDef>,
    /// Columns of the declared primary key; of an index, its key. Empty: none.
    pub primary_key: Vec<usize>,
    /// Never deletes or updates.
    pub append_only: bool,
    /// The statement that created it.
    pub definition: String,
    /// The query of a view, as SQL with every name resolved when the view was created.
    pub query: Option<String>,
    /// The options of WITH.
    pub options: BTreeMap<String, String>,
    /// `FORMAT … ENCODE …`.
    pub format: Option<(String, String)>,
    /// The objects that must exist for this one.
    pub depends_on: Vec<JobId>,
    /// What runs; `None` for views and for sources, which each reader reads for itself.
    pub plan: Option<JobPlan>,
    pub owner: String,
    /// When it is created it takes the place of this object, and its name.
    #[serde(default)]
    pub replaces: Option<JobId>,
    /// The table that a sink delivers to.
    #[serde(default)]
    pub into: Option<JobId>,
    /// Of a subscription.
    #[serde(default)]
    pub retention: Option<Retention>,
    /// Actors of each fragment of the job; `None`: one per core, of whatever machine it runs on.
    #[serde(default)]
    pub parallelism: Option<usize>,
    /// The job does not run until it is resumed.
    #[serde(default)]
    pub paused: bool,
    /// Unix time in milliseconds.
    pub created_ms: u64,
}

impl Object {
    /// `schema.name`, quoted nowhere: for messages.
    pub fn full_name(&self) -> String {
        format!("{}.{}", self.schema, self.name)
    }
}
