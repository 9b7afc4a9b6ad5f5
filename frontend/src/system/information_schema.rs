//! `information_schema`: relations and columns by the standard.

use std::sync::Arc;

use weir_common::catalog::{ColumnDef, Object, ObjectKind};
use weir_common::types::SqlType;

use super::relation::Type::{Int4, Text};
use super::weir_catalog::is_relation;
use super::{Relation, SCHEMAS, SystemRelations, Value};
use crate::error::Result;
use crate::pg::oid;
use crate::session::DATABASE;

type Rows = Result<Vec<Vec<Value>>>;

pub(super) static RELATIONS: &[Relation] = &[
    Relation {
        name: "tables",
        columns: &[
            ("table_catalog", Text),
            ("table_schema", Text),
            ("table_name", Text),
            ("table_type", Text),
            ("self_referencing_column_name", Text),
            ("reference_generation", Text),
            ("user_defined_type_catalog", Text),
            ("user_defined_type_schema", Text),
            ("user_defined_type_name", Text),
            ("is_insertable_into", Text),
            ("is_typed", Text),
            ("commit_action", Text),
        ],
        rows: tables,
    },
    Relation {
        name: "columns",
        columns: &[
            ("table_catalog", Text),
            ("table_schema", Text),
            ("table_name", Text),
            ("column_name", Text),
            ("ordinal_position", Int4),
            ("column_default", Text),
            ("is_nullable", Text),
            ("data_type", Text),
            ("character_maximum_length", Int4),
            ("character_octet_length", Int4),
            ("numeric_precision", Int4),
            ("numeric_precision_radix", Int4),
            ("numeric_scale", Int4),
            ("datetime_precision", Int4),
            ("collation_name", Text),
            ("udt_catalog", Text),
            ("udt_schema", Text),
            ("udt_name", Text),
            ("is_identity", Text),
            ("is_generated", Text),
            ("generation_expression", Text),
            ("is_updatable", Text),
        ],
        rows: columns,
    },
    Relation {
        name: "schemata",
        columns: &[
            ("catalog_name", Text),
            ("schema_name", Text),
            ("schema_owner", Text),
            ("default_character_set_catalog", Text),
            ("default_character_set_schema", Text),
            ("default_character_set_name", Text),
            ("sql_path", Text),
        ],
        rows: schemata,
    },
    Relation {
        name: "views",
        columns: &[
            ("table_catalog", Text),
            ("table_schema", Text),
            ("table_name", Text),
            ("view_definition", Text),
            ("check_option", Text),
            ("is_updatable", Text),
            ("is_insertable_into", Text),
        ],
        rows: views,
    },
    Relation {
        name: "table_constraints",
        columns: &[
            ("constraint_catalog", Text),
            ("constraint_schema", Text),
            ("constraint_name", Text),
            ("table_catalog", Text),
            ("table_schema", Text),
            ("table_name", Text),
            ("constraint_type", Text),
            ("is_deferrable", Text),
            ("initially_deferred", Text),
            ("enforced", Text),
        ],
        rows: table_constraints,
    },
    Relation {
        name: "key_column_usage",
        columns: &[
            ("constraint_catalog", Text),
            ("constraint_schema", Text),
            ("constraint_name", Text),
            ("table_catalog", Text),
            ("table_schema", Text),
            ("table_name", Text),
            ("column_name", Text),
            ("ordinal_position", Int4),
            ("position_in_unique_constraint", Int4),
        ],
        rows: key_column_usage,
    },
];

fn relations<'a>(source: &'a SystemRelations<'_>) -> impl Iterator<Item = &'a Arc<Object>> {
    source.moment.catalog.objects().filter(|o| is_relation(o.kind) && o.kind != ObjectKind::Index)
}

fn yes_no(yes: bool) -> Value {
    if yes { "YES" } else { "NO" }.into()
}

fn tables(source: &SystemRelations<'_>) -> Rows {
    let row = |o: &Arc<Object>| {
        let table_type = match o.kind {
            ObjectKind::Table => "BASE TABLE",
            ObjectKind::Source => "FOREIGN",
            ObjectKind::MaterializedView => "MATERIALIZED VIEW",
            _ => "VIEW",
        };
        vec![
            DATABASE.into(),
            (&o.schema).into(),
            (&o.name).into(),
            table_type.into(),
            Value::Null,
            Value::Null,
            Value::Null,
            Value::Null,
            Value::Null,
            yes_no(o.kind == ObjectKind::Table),
            "NO".into(),
            Value::Null,
        ]
    };
    Ok(relations(source).map(row).collect())
}

/// The visible columns with their numbers.
fn visible(object: &Object) -> impl Iterator<Item = (usize, &ColumnDef)> {
    object.columns.iter().enumerate().filter(|(_, c)| !c.hidden)
}

fn columns(source: &SystemRelations<'_>) -> Rows {
    let mut rows = Vec::new();
    for object in relations(source) {
        for (i, column) in visible(object) {
            rows.push(column_row(object, i, column));
        }
    }
    Ok(rows)
}

fn column_row(object: &Object, i: usize, column: &ColumnDef) -> Vec<Value> {
    let (precision, radix, scale): (Value, Value, Value) = match &column.sql_type {
        SqlType::SmallInt => (16.into(), 2.into(), 0.into()),
        SqlType::Integer => (32.into(), 2.into(), 0.into()),
        SqlType::BigInt => (64.into(), 2.into(), 0.into()),
        SqlType::Real => (24.into(), 2.into(), Value::Null),
        SqlType::Double => (53.into(), 2.into(), Value::Null),
        SqlType::Numeric(Some((p, s))) => (i32::from(*p).into(), 10.into(), i32::from(*s).into()),
        SqlType::Numeric(None) => (Value::Null, 10.into(), Value::Null),
        _ => (Value::Null, Value::Null, Value::Null),
    };
    let datetime: Value = match column.sql_type {
        SqlType::Date => 0.into(),
        SqlType::Time | SqlType::Timestamp | SqlType::TimestampTz | SqlType::Interval => 6.into(),
        _ => Value::Null,
    };
    let data_type = match &column.sql_type {
        SqlType::Array(_) => "ARRAY".to_string(),
        SqlType::Numeric(_) => "numeric".to_string(),
        other => other.to_string(),
    };
    let type_oid = oid::of(&column.sql_type);
    let udt = oid::BUILTIN_TYPES.iter().find_map(|t| match type_oid {
        oid if oid == t.oid => Some(t.name.to_string()),
        oid if oid == t.array_oid => Some(format!("_{}", t.name)),
        _ => None,
    });
    vec![
        DATABASE.into(),
        (&object.schema).into(),
        (&object.name).into(),
        (&column.name).into(),
        (i + 1).into(),
        column.default.clone().into(),
        yes_no(!column.not_null && !object.primary_key.contains(&i)),
        data_type.into(),
        Value::Null,
        (column.sql_type == SqlType::Varchar).then_some(1_073_741_824).into(),
        precision,
        radix,
        scale,
        datetime,
        Value::Null,
        DATABASE.into(),
        "pg_catalog".into(),
        udt.into(),
        "NO".into(),
        if column.generated.is_some() { "ALWAYS" } else { "NEVER" }.into(),
        column.generated.clone().into(),
        yes_no(object.kind == ObjectKind::Table),
    ]
}

fn schemata(source: &SystemRelations<'_>) -> Rows {
    let names = source.moment.catalog.schemas().chain(SCHEMAS);
    let row = |name: &str| {
        vec![DATABASE.into(), name.into(), "root".into(), Value::Null, Value::Null, Value::Null, Value::Null]
    };
    Ok(names.map(row).collect())
}

fn views(source: &SystemRelations<'_>) -> Rows {
    let row = |o: &Arc<Object>| {
        vec![
            DATABASE.into(),
            (&o.schema).into(),
            (&o.name).into(),
            o.query.clone().into(),
            "NONE".into(),
            "NO".into(),
            "NO".into(),
        ]
    };
    Ok(relations(source).filter(|o| o.kind == ObjectKind::View).map(row).collect())
}

/// Tables with a primary key.
fn keyed<'a>(source: &'a SystemRelations<'_>) -> impl Iterator<Item = &'a Arc<Object>> {
    relations(source).filter(|o| o.kind == ObjectKind::Table && !o.primary_key.is_empty())
}

fn table_constraints(source: &SystemRelations<'_>) -> Rows {
    let row = |o: &Arc<Object>| {
        vec![
            DATABASE.into(),
            (&o.schema).into(),
            format!("{}_pkey", o.name).into(),
            DATABASE.into(),
            (&o.schema).into(),
            (&o.name).into(),
            "PRIMARY KEY".into(),
            "NO".into(),
            "NO".into(),
            "YES".into(),
        ]
    };
    Ok(keyed(source).map(row).collect())
}

fn key_column_usage(source: &SystemRelations<'_>) -> Rows {
    let mut rows = Vec::new();
    for object in keyed(source) {
        for (n, i) in object.primary_key.iter().enumerate() {
            rows.push(vec![
                DATABASE.into(),
                (&object.schema).into(),
                format!("{}_pkey", object.name).into(),
                DATABASE.into(),
                (&object.schema).into(),
                (&object.name).into(),
                object.columns.get(*i).map(|c| c.name.clone()).into(),
                (n + 1).into(),
                Value::Null,
            ]);
        }
    }
    Ok(rows)
}
