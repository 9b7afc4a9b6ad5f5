//! `rw_catalog`: names that clients of RisingWave look for.

use weir_common::catalog::{Object, ObjectKind};

use super::relation::Type::{Int4, Text, TimestampTz};
use super::weir_catalog::progress;
use super::{Relation, SCHEMAS, SystemRelations, Value};
use crate::error::Result;
use crate::system::pg_catalog::namespace_oid;

type Rows = Result<Vec<Vec<Value>>>;

/// Columns of `rw_tables` and its like.
const OBJECT: &[(&str, super::relation::Type)] = &[
    ("id", Int4),
    ("name", Text),
    ("schema_id", Int4),
    ("owner", Int4),
    ("definition", Text),
    ("created_at", TimestampTz),
];

pub(super) static RELATIONS: &[Relation] = &[
    Relation {
        name: "rw_ddl_progress",
        columns: &[
            ("ddl_id", Int4),
            ("ddl_statement", Text),
            ("create_type", Text),
            ("progress", Text),
            ("initialized_at", TimestampTz),
        ],
        rows: ddl_progress,
    },
    Relation {
        name: "rw_relations",
        columns: &[
            ("id", Int4),
            ("name", Text),
            ("relation_type", Text),
            ("schema_id", Int4),
            ("owner", Int4),
            ("definition", Text),
            ("created_at", TimestampTz),
        ],
        rows: relations,
    },
    Relation { name: "rw_schemas", columns: &[("id", Int4), ("name", Text), ("owner", Int4)], rows: schemas },
    Relation { name: "rw_databases", columns: &[("id", Int4), ("name", Text), ("owner", Int4)], rows: databases },
    Relation { name: "rw_tables", columns: OBJECT, rows: |s| of_kind(s, ObjectKind::Table) },
    Relation { name: "rw_sources", columns: OBJECT, rows: |s| of_kind(s, ObjectKind::Source) },
    Relation { name: "rw_views", columns: OBJECT, rows: |s| of_kind(s, ObjectKind::View) },
    Relation { name: "rw_materialized_views", columns: OBJECT, rows: |s| of_kind(s, ObjectKind::MaterializedView) },
    Relation { name: "rw_indexes", columns: OBJECT, rows: |s| of_kind(s, ObjectKind::Index) },
    Relation { name: "rw_sinks", columns: OBJECT, rows: |s| of_kind(s, ObjectKind::Sink) },
];

fn micros(object: &Object) -> Value {
    object.created_ms.saturating_mul(1000).into()
}

fn ddl_progress(source: &SystemRelations<'_>) -> Rows {
    let jobs = source.jobs();
    let creating = jobs.iter().filter(|job| !job.state.created);
    let row = |job: &weir_meta::JobStatus| {
        vec![
            job.object.id.0.into(),
            (&job.object.definition).into(),
            Value::Null,
            progress(job).into(),
            micros(&job.object),
        ]
    };
    Ok(creating.map(row).collect())
}

fn relations(source: &SystemRelations<'_>) -> Rows {
    let row = |o: &std::sync::Arc<Object>| {
        vec![
            o.id.0.into(),
            (&o.name).into(),
            o.kind.sql().into(),
            namespace_oid(&source.moment.catalog, &o.schema).into(),
            10.into(),
            (&o.definition).into(),
            micros(o),
        ]
    };
    Ok(source.moment.catalog.objects().map(row).collect())
}

fn of_kind(source: &SystemRelations<'_>, kind: ObjectKind) -> Rows {
    let objects = source.moment.catalog.objects().filter(|o| o.kind == kind);
    let row = |o: &std::sync::Arc<Object>| {
        vec![
            o.id.0.into(),
            (&o.name).into(),
            namespace_oid(&source.moment.catalog, &o.schema).into(),
            10.into(),
            (&o.definition).into(),
            micros(o),
        ]
    };
    Ok(objects.map(row).collect())
}

fn schemas(source: &SystemRelations<'_>) -> Rows {
    let catalog = &source.moment.catalog;
    let names = catalog.schemas().chain(SCHEMAS);
    Ok(names.map(|name| vec![namespace_oid(catalog, name).into(), name.into(), 10.into()]).collect())
}

fn databases(_: &SystemRelations<'_>) -> Rows {
    Ok(vec![vec![1.into(), crate::session::DATABASE.into(), 10.into()]])
}
