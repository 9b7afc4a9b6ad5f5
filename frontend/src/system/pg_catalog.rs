//! `pg_catalog`: Weir's objects as PostgreSQL's clients look for them.
//!
//! The oid of an object is its id, in every relation and every query. Primary keys are constraints and unique indexes with
//! oids of their own, far above (see [`PRIMARY_KEY_OIDS`]).

use std::sync::Arc;

use weir_common::JobId;
use weir_common::catalog::{Object, ObjectKind};
use weir_common::types::SqlType;
use weir_meta::Catalog;

use super::relation::Type::{Bool, Float8, Int2, Int2Array, Int4, Int4Array, Int8, Text, TextArray, TimestampTz};
use super::weir_catalog::is_relation;
use super::{Relation, SCHEMAS, SystemRelations, Value};
use crate::error::Result;
use crate::pg::oid::{self, BUILTIN_TYPES};
use crate::session::DATABASE;

type Rows = Result<Vec<Vec<Value>>>;

/// Added to a table's oid it is the oid of its primary key.
const PRIMARY_KEY_OIDS: u32 = 1 << 30;
/// The oid of the only role.
pub(super) const OWNER: u32 = 10;
/// The oid of the only database.
const DATABASE_OID: u32 = 1;
/// Oids of schemas: PostgreSQL's own ones, then by position.
const PG_CATALOG_OID: u32 = 11;
const PUBLIC_OID: u32 = 2200;
const SYSTEM_SCHEMA_OIDS: u32 = 13_000;
const USER_SCHEMA_OIDS: u32 = 14_000;
/// The access method of tables and of indexes.
const HEAP: u32 = 2;
const BTREE: u32 = 403;

pub(super) static RELATIONS: &[Relation] = &[
    Relation {
        name: "pg_class",
        columns: &[
            ("oid", Int4),
            ("relname", Text),
            ("relnamespace", Int4),
            ("reltype", Int4),
            ("reloftype", Int4),
            ("relowner", Int4),
            ("relam", Int4),
            ("relfilenode", Int4),
            ("reltablespace", Int4),
            ("relpages", Int4),
            ("reltuples", Float8),
            ("relallvisible", Int4),
            ("reltoastrelid", Int4),
            ("relhasindex", Bool),
            ("relisshared", Bool),
            ("relpersistence", Text),
            ("relkind", Text),
            ("relnatts", Int2),
            ("relchecks", Int2),
            ("relhasrules", Bool),
            ("relhastriggers", Bool),
            ("relhassubclass", Bool),
            ("relrowsecurity", Bool),
            ("relforcerowsecurity", Bool),
            ("relispopulated", Bool),
            ("relreplident", Text),
            ("relispartition", Bool),
            ("relrewrite", Int4),
            ("relfrozenxid", Int4),
            ("relminmxid", Int4),
            ("relacl", TextArray),
            ("reloptions", TextArray),
            ("relpartbound", Text),
        ],
        rows: pg_class,
    },
    Relation {
        name: "pg_namespace",
        columns: &[("oid", Int4), ("nspname", Text), ("nspowner", Int4), ("nspacl", TextArray)],
        rows: pg_namespace,
    },
    Relation {
        name: "pg_attribute",
        columns: &[
            ("attrelid", Int4),
            ("attname", Text),
            ("atttypid", Int4),
            ("attstattarget", Int4),
            ("attlen", Int2),
            ("attnum", Int2),
            ("attndims", Int4),
            ("attcacheoff", Int4),
            ("atttypmod", Int4),
            ("attbyval", Bool),
            ("attalign", Text),
            ("attstorage", Text),
            ("attcompression", Text),
            ("attnotnull", Bool),
            ("atthasdef", Bool),
            ("atthasmissing", Bool),
            ("attidentity", Text),
            ("attgenerated", Text),
            ("attisdropped", Bool),
            ("attislocal", Bool),
            ("attinhcount", Int4),
            ("attcollation", Int4),
            ("attacl", TextArray),
            ("attoptions", TextArray),
            ("attfdwoptions", TextArray),
        ],
        rows: pg_attribute,
    },
    Relation {
        name: "pg_type",
        columns: &[
            ("oid", Int4),
            ("typname", Text),
            ("typnamespace", Int4),
            ("typowner", Int4),
            ("typlen", Int2),
            ("typbyval", Bool),
            ("typtype", Text),
            ("typcategory", Text),
            ("typispreferred", Bool),
            ("typisdefined", Bool),
            ("typdelim", Text),
            ("typrelid", Int4),
            ("typelem", Int4),
            ("typarray", Int4),
            ("typinput", Text),
            ("typoutput", Text),
            ("typreceive", Text),
            ("typsend", Text),
            ("typnotnull", Bool),
            ("typbasetype", Int4),
            ("typtypmod", Int4),
            ("typndims", Int4),
            ("typcollation", Int4),
            ("typdefault", Text),
        ],
        rows: pg_type,
    },
    Relation {
        name: "pg_database",
        columns: &[
            ("oid", Int4),
            ("datname", Text),
            ("datdba", Int4),
            ("encoding", Int4),
            ("datlocprovider", Text),
            ("datistemplate", Bool),
            ("datallowconn", Bool),
            ("datconnlimit", Int4),
            ("dattablespace", Int4),
            ("datcollate", Text),
            ("datctype", Text),
            ("daticulocale", Text),
            ("datcollversion", Text),
            ("datacl", TextArray),
        ],
        rows: pg_database,
    },
    Relation {
        name: "pg_tables",
        columns: &[
            ("schemaname", Text),
            ("tablename", Text),
            ("tableowner", Text),
            ("tablespace", Text),
            ("hasindexes", Bool),
            ("hasrules", Bool),
            ("hastriggers", Bool),
            ("rowsecurity", Bool),
        ],
        rows: pg_tables,
    },
    Relation {
        name: "pg_views",
        columns: &[("schemaname", Text), ("viewname", Text), ("viewowner", Text), ("definition", Text)],
        rows: pg_views,
    },
    Relation {
        name: "pg_matviews",
        columns: &[
            ("schemaname", Text),
            ("matviewname", Text),
            ("matviewowner", Text),
            ("tablespace", Text),
            ("hasindexes", Bool),
            ("ispopulated", Bool),
            ("definition", Text),
        ],
        rows: pg_matviews,
    },
    Relation {
        name: "pg_indexes",
        columns: &[
            ("schemaname", Text),
            ("tablename", Text),
            ("indexname", Text),
            ("tablespace", Text),
            ("indexdef", Text),
        ],
        rows: pg_indexes,
    },
    Relation {
        name: "pg_index",
        columns: &[
            ("indexrelid", Int4),
            ("indrelid", Int4),
            ("indnatts", Int2),
            ("indnkeyatts", Int2),
            ("indisunique", Bool),
            ("indnullsnotdistinct", Bool),
            ("indisprimary", Bool),
            ("indisexclusion", Bool),
            ("indimmediate", Bool),
            ("indisclustered", Bool),
            ("indisvalid", Bool),
            ("indcheckxmin", Bool),
            ("indisready", Bool),
            ("indislive", Bool),
            ("indisreplident", Bool),
            ("indkey", Int2Array),
            ("indcollation", Int4Array),
            ("indclass", Int4Array),
            ("indoption", Int2Array),
            ("indexprs", Text),
            ("indpred", Text),
        ],
        rows: pg_index,
    },
    Relation {
        name: "pg_constraint",
        columns: &[
            ("oid", Int4),
            ("conname", Text),
            ("connamespace", Int4),
            ("contype", Text),
            ("condeferrable", Bool),
            ("condeferred", Bool),
            ("convalidated", Bool),
            ("conrelid", Int4),
            ("contypid", Int4),
            ("conindid", Int4),
            ("conparentid", Int4),
            ("confrelid", Int4),
            ("confupdtype", Text),
            ("confdeltype", Text),
            ("confmatchtype", Text),
            ("conislocal", Bool),
            ("coninhcount", Int4),
            ("connoinherit", Bool),
            ("conkey", Int2Array),
            ("confkey", Int2Array),
            ("conbin", Text),
        ],
        rows: pg_constraint,
    },
    Relation {
        name: "pg_settings",
        columns: &[
            ("name", Text),
            ("setting", Text),
            ("unit", Text),
            ("category", Text),
            ("short_desc", Text),
            ("extra_desc", Text),
            ("context", Text),
            ("vartype", Text),
            ("source", Text),
            ("min_val", Text),
            ("max_val", Text),
            ("enumvals", TextArray),
            ("boot_val", Text),
            ("reset_val", Text),
            ("pending_restart", Bool),
        ],
        rows: pg_settings,
    },
    Relation {
        name: "pg_roles",
        columns: &[
            ("oid", Int4),
            ("rolname", Text),
            ("rolsuper", Bool),
            ("rolinherit", Bool),
            ("rolcreaterole", Bool),
            ("rolcreatedb", Bool),
            ("rolcanlogin", Bool),
            ("rolreplication", Bool),
            ("rolconnlimit", Int4),
            ("rolpassword", Text),
            ("rolvaliduntil", TimestampTz),
            ("rolbypassrls", Bool),
            ("rolconfig", TextArray),
        ],
        rows: pg_roles,
    },
    Relation {
        name: "pg_user",
        columns: &[("usename", Text), ("usesysid", Int4), ("usecreatedb", Bool), ("usesuper", Bool)],
        rows: |source| Ok(vec![vec![source.moment.session.user().into(), OWNER.into(), true.into(), true.into()]]),
    },
    Relation {
        name: "pg_am",
        columns: &[("oid", Int4), ("amname", Text), ("amhandler", Text), ("amtype", Text)],
        rows: |_| {
            Ok(vec![
                vec![HEAP.into(), "heap".into(), "heap_tableam_handler".into(), "t".into()],
                vec![BTREE.into(), "btree".into(), "bthandler".into(), "i".into()],
            ])
        },
    },
    Relation {
        name: "pg_attrdef",
        columns: &[("oid", Int4), ("adrelid", Int4), ("adnum", Int2), ("adbin", Text)],
        rows: pg_attrdef,
    },
    Relation {
        name: "pg_stat_activity",
        columns: &[
            ("datid", Int4),
            ("datname", Text),
            ("pid", Int4),
            ("usesysid", Int4),
            ("usename", Text),
            ("application_name", Text),
            ("client_addr", Text),
            ("backend_start", TimestampTz),
            ("query_start", TimestampTz),
            ("state", Text),
            ("query", Text),
            ("backend_type", Text),
            ("backend_xid", Int8),
        ],
        rows: super::relation::none,
    },
];

/// The oid of a schema.
pub(super) fn namespace_oid(catalog: &Catalog, schema: &str) -> u32 {
    match schema {
        "pg_catalog" => PG_CATALOG_OID,
        "public" => PUBLIC_OID,
        _ => match SCHEMAS.iter().position(|s| *s == schema) {
            Some(at) => SYSTEM_SCHEMA_OIDS + at as u32,
            None => USER_SCHEMA_OIDS + catalog.schemas().position(|s| s == schema).unwrap_or(0) as u32,
        },
    }
}

/// The oids that PostgreSQL gives to its own relations; clients have them built in.
pub(super) fn relation_oid(name: &str) -> Option<u32> {
    const OIDS: [(&str, u32); 8] = [
        ("pg_type", 1247),
        ("pg_attribute", 1249),
        ("pg_proc", 1255),
        ("pg_class", 1259),
        ("pg_database", 1262),
        ("pg_attrdef", 2604),
        ("pg_constraint", 2606),
        ("pg_namespace", 2615),
    ];
    OIDS.iter().find(|(relation, _)| *relation == name).map(|(_, oid)| *oid)
}

/// Objects that clients see as relations.
fn relations<'a>(source: &'a SystemRelations<'_>) -> impl Iterator<Item = &'a Arc<Object>> {
    source.moment.catalog.objects().filter(|o| is_relation(o.kind))
}

/// Tables with a primary key.
fn keyed<'a>(source: &'a SystemRelations<'_>) -> impl Iterator<Item = &'a Arc<Object>> {
    relations(source).filter(|o| o.kind == ObjectKind::Table && !o.primary_key.is_empty())
}

fn is_indexed(catalog: &Catalog, object: &Object) -> bool {
    let has_key = object.kind == ObjectKind::Table && !object.primary_key.is_empty();
    has_key || catalog.dependants(object.id).iter().any(|d| d.kind == ObjectKind::Index)
}

fn pg_class(source: &SystemRelations<'_>) -> Rows {
    let catalog = &source.moment.catalog;
    let mut rows = Vec::new();
    for object in relations(source) {
        let (kind, method) = match object.kind {
            ObjectKind::Table => ("r", HEAP),
            ObjectKind::MaterializedView => ("m", HEAP),
            ObjectKind::Index => ("i", BTREE),
            ObjectKind::Source => ("f", 0),
            ObjectKind::View | ObjectKind::Sink | ObjectKind::Subscription | ObjectKind::Secret => ("v", 0),
        };
        let columns = object.columns.iter().filter(|c| !c.hidden).count();
        let class = Class {
            oid: object.id.0,
            name: &object.name,
            namespace: namespace_oid(catalog, &object.schema),
            method,
            kind,
            columns,
            indexed: is_indexed(catalog, object),
        };
        rows.push(class.row());
    }
    for object in keyed(source) {
        let class = Class {
            oid: PRIMARY_KEY_OIDS + object.id.0,
            name: &format!("{}_pkey", object.name),
            namespace: namespace_oid(catalog, &object.schema),
            method: BTREE,
            kind: "i",
            columns: object.primary_key.len(),
            indexed: false,
        };
        rows.push(class.row());
    }
    Ok(rows)
}

/// What differs between rows of pg_class.
struct Class<'a> {
    oid: u32,
    name: &'a str,
    namespace: u32,
    method: u32,
    kind: &'a str,
    columns: usize,
    indexed: bool,
}

impl Class<'_> {
    fn row(&self) -> Vec<Value> {
        vec![
            self.oid.into(),
            self.name.into(),
            self.namespace.into(),
            0.into(),
            0.into(),
            OWNER.into(),
            self.method.into(),
            self.oid.into(),
            0.into(),
            0.into(),
            Value::Float(-1.0),
            0.into(),
            0.into(),
            self.indexed.into(),
            false.into(),
            "p".into(),
            self.kind.into(),
            self.columns.into(),
            0.into(),
            (self.kind == "v").into(),
            false.into(),
            false.into(),
            false.into(),
            false.into(),
            true.into(),
            "d".into(),
            false.into(),
            0.into(),
            0.into(),
            0.into(),
            Value::Null,
            Value::Null,
            Value::Null,
        ]
    }
}

fn pg_namespace(source: &SystemRelations<'_>) -> Rows {
    let catalog = &source.moment.catalog;
    let names = SCHEMAS.into_iter().chain(catalog.schemas());
    Ok(names.map(|name| vec![namespace_oid(catalog, name).into(), name.into(), OWNER.into(), Value::Null]).collect())
}

fn pg_attribute(source: &SystemRelations<'_>) -> Rows {
    let mut rows = Vec::new();
    for object in relations(source) {
        for (i, column) in object.columns.iter().enumerate().filter(|(_, c)| !c.hidden) {
            let not_null = column.not_null || object.primary_key.contains(&i) && object.kind == ObjectKind::Table;
            rows.push(attribute(
                object.id.0,
                &column.name,
                &column.sql_type,
                i + 1,
                not_null,
                column.default.is_some(),
            ));
        }
    }
    for object in keyed(source) {
        for (n, column) in object.primary_key.iter().filter_map(|i| object.columns.get(*i)).enumerate() {
            let index = PRIMARY_KEY_OIDS + object.id.0;
            rows.push(attribute(index, &column.name, &column.sql_type, n + 1, false, false));
        }
    }
    Ok(rows)
}

fn attribute(
    relation: u32,
    name: &str,
    sql_type: &SqlType,
    number: usize,
    not_null: bool,
    default: bool,
) -> Vec<Value> {
    let scale = match sql_type {
        SqlType::Numeric(Some((_, scale))) => Some(*scale),
        _ => None,
    };
    let dimensions = i32::from(matches!(sql_type, SqlType::Array(_)));
    vec![
        relation.into(),
        name.into(),
        oid::of(sql_type).into(),
        (-1).into(),
        i32::from(oid::length(sql_type)).into(),
        number.into(),
        dimensions.into(),
        (-1).into(),
        oid::modifier(sql_type, scale).into(),
        (oid::length(sql_type) > 0).into(),
        "i".into(),
        "p".into(),
        "".into(),
        not_null.into(),
        default.into(),
        false.into(),
        "".into(),
        "".into(),
        false.into(),
        true.into(),
        0.into(),
        0.into(),
        Value::Null,
        Value::Null,
        Value::Null,
    ]
}

fn pg_type(_: &SystemRelations<'_>) -> Rows {
    let mut rows = Vec::new();
    for builtin in BUILTIN_TYPES {
        let pseudo = builtin.category == 'P';
        let functions = |name: &str| ["in", "out", "recv", "send"].map(|f| Value::from(format!("{name}{f}")));
        let row = |name: String, oid: u32, length: i16, category: char, elem: u32, array: u32, io: [Value; 4]| {
            let mut row: Vec<Value> = vec![
                oid.into(),
                name.into(),
                PG_CATALOG_OID.into(),
                OWNER.into(),
                i32::from(length).into(),
                (length > 0 && length <= 8).into(),
                if pseudo { "p" } else { "b" }.into(),
                category.to_string().into(),
                false.into(),
                true.into(),
                ",".into(),
                0.into(),
                elem.into(),
                array.into(),
            ];
            row.extend(io);
            row.extend([false.into(), 0.into(), (-1).into(), 0.into(), 0.into(), Value::Null]);
            row
        };
        let io = functions(builtin.name);
        rows.push(row(builtin.name.into(), builtin.oid, builtin.length, builtin.category, 0, builtin.array_oid, io));
        let name = format!("_{}", builtin.name);
        rows.push(row(name, builtin.array_oid, -1, 'A', builtin.oid, 0, functions("array_")));
    }
    Ok(rows)
}

fn pg_database(_: &SystemRelations<'_>) -> Rows {
    Ok(vec![vec![
        DATABASE_OID.into(),
        DATABASE.into(),
        OWNER.into(),
        6.into(),
        "c".into(),
        false.into(),
        true.into(),
        (-1).into(),
        0.into(),
        "C".into(),
        "C".into(),
        Value::Null,
        Value::Null,
        Value::Null,
    ]])
}

fn pg_tables(source: &SystemRelations<'_>) -> Rows {
    let catalog = &source.moment.catalog;
    let row = |o: &Arc<Object>| {
        vec![
            (&o.schema).into(),
            (&o.name).into(),
            (&o.owner).into(),
            Value::Null,
            is_indexed(catalog, o).into(),
            false.into(),
            false.into(),
            false.into(),
        ]
    };
    Ok(relations(source).filter(|o| o.kind == ObjectKind::Table).map(row).collect())
}

fn pg_views(source: &SystemRelations<'_>) -> Rows {
    let row = |o: &Arc<Object>| vec![(&o.schema).into(), (&o.name).into(), (&o.owner).into(), o.query.clone().into()];
    Ok(relations(source).filter(|o| o.kind == ObjectKind::View).map(row).collect())
}

fn pg_matviews(source: &SystemRelations<'_>) -> Rows {
    let catalog = &source.moment.catalog;
    let row = |o: &Arc<Object>| {
        vec![
            (&o.schema).into(),
            (&o.name).into(),
            (&o.owner).into(),
            Value::Null,
            is_indexed(catalog, o).into(),
            true.into(),
            o.query.clone().unwrap_or_else(|| o.definition.clone()).into(),
        ]
    };
    Ok(relations(source).filter(|o| o.kind == ObjectKind::MaterializedView).map(row).collect())
}

/// The relation that an index is on.
fn indexed<'a>(catalog: &'a Catalog, index: &Object) -> Option<&'a Arc<Object>> {
    index.depends_on.first().and_then(|id| catalog.get(*id))
}

/// The relation and key columns of an index or of a primary key, by its oid.
fn key_of(catalog: &Catalog, oid: u32) -> Option<(&Arc<Object>, String, Vec<&str>)> {
    let names = |o: &'_ Arc<Object>| o.primary_key.clone();
    if let Some(table) = oid.checked_sub(PRIMARY_KEY_OIDS) {
        let table = catalog.get(JobId(table)).filter(|o| o.kind == ObjectKind::Table)?;
        let columns = names(table).iter().filter_map(|i| table.columns.get(*i)).map(|c| c.name.as_str()).collect();
        return Some((table, format!("{}_pkey", table.name), columns));
    }
    let index = catalog.get(JobId(oid)).filter(|o| o.kind == ObjectKind::Index)?;
    let columns = names(index).iter().filter_map(|i| index.columns.get(*i)).map(|c| c.name.as_str()).collect();
    Some((indexed(catalog, index)?, index.name.clone(), columns))
}

/// `CREATE INDEX …` as PostgreSQL writes it, or the name of one of its columns (from 1).
pub(super) fn index_definition(catalog: &Catalog, oid: u32, column: i32) -> Option<String> {
    let (table, name, columns) = key_of(catalog, oid)?;
    if column > 0 {
        return columns.get(column as usize - 1).map(|c| quoted(c));
    }
    let unique = if oid >= PRIMARY_KEY_OIDS { "UNIQUE " } else { "" };
    let columns: Vec<String> = columns.into_iter().map(quoted).collect();
    Some(format!(
        "CREATE {unique}INDEX {} ON {}.{} USING btree ({})",
        quoted(&name),
        quoted(&table.schema),
        quoted(&table.name),
        columns.join(", ")
    ))
}

/// `PRIMARY KEY (…)`.
pub(super) fn constraint_definition(catalog: &Catalog, oid: u32) -> Option<String> {
    let (_, _, columns) = key_of(catalog, oid).filter(|_| oid >= PRIMARY_KEY_OIDS)?;
    let columns: Vec<String> = columns.into_iter().map(quoted).collect();
    Some(format!("PRIMARY KEY ({})", columns.join(", ")))
}

/// A name as SQL has to write it.
pub(crate) fn quoted(name: &str) -> String {
    let plain = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    if plain { name.to_string() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}

fn pg_indexes(source: &SystemRelations<'_>) -> Rows {
    let catalog = &source.moment.catalog;
    let indexes = relations(source).filter(|o| o.kind == ObjectKind::Index).map(|o| o.id.0);
    let oids = indexes.chain(keyed(source).map(|o| PRIMARY_KEY_OIDS + o.id.0));
    let row = |oid: u32| {
        let (table, name, _) = key_of(catalog, oid)?;
        Some(vec![
            (&table.schema).into(),
            (&table.name).into(),
            name.into(),
            Value::Null,
            index_definition(catalog, oid, 0).into(),
        ])
    };
    Ok(oids.filter_map(row).collect())
}

fn pg_index(source: &SystemRelations<'_>) -> Rows {
    let catalog = &source.moment.catalog;
    let mut rows = Vec::new();
    for index in relations(source).filter(|o| o.kind == ObjectKind::Index) {
        let Some(table) = indexed(catalog, index) else { continue };
        let number = |i: &usize| {
            let name = index.columns.get(*i).map(|c| c.name.as_str())?;
            table.columns.iter().position(|c| c.name == name).map(|n| n as i64 + 1)
        };
        let key: Vec<i64> = index.primary_key.iter().map(|i| number(i).unwrap_or(0)).collect();
        rows.push(index_row(index.id.0, table.id.0, key, false));
    }
    for object in keyed(source) {
        rows.push(index_row(PRIMARY_KEY_OIDS + object.id.0, object.id.0, key_numbers(object), true));
    }
    Ok(rows)
}

/// Numbers of the columns of a primary key.
fn key_numbers(object: &Object) -> Vec<i64> {
    object.primary_key.iter().map(|i| *i as i64 + 1).collect()
}

fn index_row(index: u32, table: u32, key: Vec<i64>, primary: bool) -> Vec<Value> {
    let zeros = Value::Ints(vec![0; key.len()]);
    vec![
        index.into(),
        table.into(),
        key.len().into(),
        key.len().into(),
        primary.into(),
        false.into(),
        primary.into(),
        false.into(),
        true.into(),
        false.into(),
        true.into(),
        false.into(),
        true.into(),
        true.into(),
        false.into(),
        Value::Ints(key),
        zeros.clone(),
        zeros.clone(),
        zeros,
        Value::Null,
        Value::Null,
    ]
}

fn pg_constraint(source: &SystemRelations<'_>) -> Rows {
    let catalog = &source.moment.catalog;
    let row = |o: &Arc<Object>| {
        vec![
            (PRIMARY_KEY_OIDS + o.id.0).into(),
            format!("{}_pkey", o.name).into(),
            namespace_oid(catalog, &o.schema).into(),
            "p".into(),
            false.into(),
            false.into(),
            true.into(),
            o.id.0.into(),
            0.into(),
            (PRIMARY_KEY_OIDS + o.id.0).into(),
            0.into(),
            0.into(),
            " ".into(),
            " ".into(),
            " ".into(),
            true.into(),
            0.into(),
            true.into(),
            Value::Ints(key_numbers(o)),
            Value::Null,
            Value::Null,
        ]
    };
    Ok(keyed(source).map(row).collect())
}

fn pg_settings(source: &SystemRelations<'_>) -> Rows {
    let row = |(name, value, about): (String, String, &'static str)| {
        vec![
            name.into(),
            value.clone().into(),
            Value::Null,
            "Weir".into(),
            about.into(),
            Value::Null,
            "user".into(),
            "string".into(),
            "session".into(),
            Value::Null,
            Value::Null,
            Value::Null,
            value.clone().into(),
            value.into(),
            false.into(),
        ]
    };
    Ok(source.moment.settings.all().into_iter().map(row).collect())
}

fn pg_roles(source: &SystemRelations<'_>) -> Rows {
    Ok(vec![vec![
        OWNER.into(),
        source.moment.session.user().into(),
        true.into(),
        true.into(),
        true.into(),
        true.into(),
        true.into(),
        false.into(),
        (-1).into(),
        "********".into(),
        Value::Null,
        true.into(),
        Value::Null,
    ]])
}

fn pg_attrdef(source: &SystemRelations<'_>) -> Rows {
    let mut rows = Vec::new();
    for object in relations(source) {
        for (i, column) in object.columns.iter().enumerate() {
            if let Some(default) = &column.default {
                let oid = PRIMARY_KEY_OIDS / 2 + object.id.0;
                rows.push(vec![oid.into(), object.id.0.into(), (i + 1).into(), default.into()]);
            }
        }
    }
    Ok(rows)
}
