//! SQL to plans: queries for DataFusion to run once, and jobs that keep a query's answer true.
//!
//! ```text
//! sqlparser Query ──rewrite──> Query ──SqlToRel──> LogicalPlan ──logical──> Bound.plan ──> batch: DataFusion runs it
//!                  (literals,          (scope, types,          (PostgreSQL's                │
//!                   names)              postgres, windows)      meaning)                     └─> streaming:
//!   optimize (analyze, decorrelate, push down) ──stream──> StreamPlan ──fragment──> JobPlan
//! ```
//!
//! # For sessions
//!
//! * [`Scope`] says what names mean: relations of the catalog, a search path, functions, settings. It is cheap to make,
//!   once per statement.
//! * [`plan_query`] binds a query: [`Bound`]. The plan is bound but neither analyzed nor optimized: hand it to
//!   `SessionState::execute_logical_plan`/`create_physical_plan` (which analyze and optimize it) for a batch query, to
//!   [`plan_view`] for a materialized view, to [`plan_sink`] for a sink. Output columns have PostgreSQL's names in
//!   [`Bound::columns`]; the fields of the plan itself may be named otherwise (they must be unique), so go by position.
//! * Parameters `$1` get their types from [`Bound::params`]; bind values with
//!   `LogicalPlan::with_param_values` before running.
//! * [`plan_expr`] binds an expression alone over given columns: defaults, generated columns, SET clauses, VALUES.
//!
//! ## Reading relations
//!
//! Every relation in a bound plan is a `TableScan` whose source is DataFusion's `DefaultTableSource` around a
//! [`RelationTable`]. That names the catalog [`Object`], has the visible columns as its schema (and the hidden ones too
//! where the query names one of them), and hands `scan` on to the `TableProvider` that [`Readers::relation`] made for the
//! object. That provider's schema must be *all* columns of `Object::columns`, in order, nullable as declared
//! ([`relation_schema`]); [`RelationTable`] maps projections. For plans that are never run (views, EXPLAIN of a view) use
//! [`NoReaders`].
//!
//! Relations of `pg_catalog`, `information_schema` and `weir_catalog` come from [`Readers::system`], and a view cannot
//! read them. Views (kind `View`) are bound from their stored query and inlined; [`Bound::relations`] lists every object
//! that a query depends on, the views too.
//!
//! ## Jobs
//!
//! [`plan_view`], [`plan_table`], [`plan_index`], [`plan_sink`] return a [`Planned`]: the [`JobPlan`], the columns of the
//! relation (visible ones first), its primary key, whether it is append-only: what goes into the [`Object`]. State tables
//! are only numbered so far. Ask meta for `1 + planned.ids_needed()` ids; the first is the job's, which is the relation's
//! table too: `planned.number(JobId(first), first + 1)`.
//!
//! [`explain`] shows a [`JobPlan`] to people.
//!
//! # Invariants
//!
//! * A stream plan below a logical node has the node's columns first, in order, of the same types; columns that only
//!   identify rows follow, hidden.
//! * The stream key of a plan includes the columns that its rows are spread by. So all changes of a key come from one
//!   actor, in order, and no exchange can reorder them.
//! * What cannot be maintained is refused here, with SQLSTATE 0A000, the construct's name and what to write instead.
//! * No plan opens a file: tables come from the catalog, table functions are a closed list.

mod aggregates;
mod averages;
mod bind;
mod checks;
mod context;
mod explain;
mod fragment;
mod functions;
mod job;
mod literals;
mod logical;
mod names;
mod optimize;
mod outer;
mod postgres;
mod properties;
mod ranks;
mod relation;
mod rewrite;
mod rows;
mod share;
mod stream;
mod texts;
mod types;
mod using;
mod windows;

pub use bind::{Bound, BoundColumn, plan_expr, plan_query};
pub use explain::explain;
pub use functions::FunctionSet;
pub use job::{Planned, SourceSpec, TableSpec, plan_index, plan_log, plan_sink, plan_table, plan_view};
pub(crate) use postgres::{is_float, without_sign};
pub use relation::{NoReaders, Readers, RelationTable, Relations, relation_schema};
pub use types::sql_type;

use datafusion::config::ConfigOptions;
#[cfg(doc)]
use weir_common::{catalog::Object, plan::JobPlan};

/// What names mean in a statement.
pub struct Scope<'a> {
    pub relations: &'a dyn Relations,
    pub readers: &'a dyn Readers,
    /// The database that three-part names may give.
    pub database: &'a str,
    /// Schemas that an unqualified name is looked up in, in order. `pg_catalog` is implied, first.
    pub search_path: &'a [String],
    pub functions: &'a FunctionSet,
    /// DataFusion's settings of the session. The planner reads `execution.time_zone`: what timestamps without a zone mean
    /// where one is needed, fixed in a view when it is made.
    pub config: &'a ConfigOptions,
}
