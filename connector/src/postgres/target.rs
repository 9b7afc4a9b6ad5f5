//! Whether the table fits what is delivered.

use std::collections::BTreeMap;

use tokio_postgres::Client;
use weir_common::SqlType;

use super::config::PostgresConfig;
use super::session::failed;
use crate::error::{ConnectorError, Result, listed};
use crate::sink::SinkSpec;

/// A column of the table.
struct TargetColumn {
    /// As `pg_type` has it: `int4`, `_text`.
    type_name: String,
    /// `b`: base, `e`: enum, `c`: composite, `d`: domain.
    kind: String,
    /// As users write it.
    shown: String,
    not_null: bool,
    /// Has a value where none is given.
    has_default: bool,
    /// Takes no value.
    generated: bool,
}

/// Every column has a type that PostgreSQL has.
pub fn check_types(spec: &SinkSpec) -> Result<()> {
    spec.columns.fields().iter().try_for_each(|field| match SqlType::from_arrow(field.data_type()) {
        Some(_) => Ok(()),
        None => Err(ConnectorError::UnsupportedType {
            what: "PostgreSQL",
            column: field.name().clone(),
            data_type: field.data_type().to_string(),
        }),
    })
}

/// Checks columns, types and key. All that does not fit is told at once.
pub async fn check(client: &Client, config: &PostgresConfig, spec: &SinkSpec) -> Result<()> {
    let table = format!("{}.{}", config.schema, config.table);
    let columns = columns(client, config).await?;
    if columns.is_empty() {
        return Err(ConnectorError::Mismatch { reason: format!("there is no table {table}, or it has no columns") });
    }
    let mut problems = vec![];
    for field in spec.columns.fields() {
        let name = field.name();
        let Some(column) = columns.get(name) else {
            let known = listed(columns.keys().map(String::as_str));
            problems.push(format!("it has no column `{name}`, but {known}"));
            continue;
        };
        if column.generated {
            problems.push(format!("column `{name}` is generated"));
        }
        let sql_type = SqlType::from_arrow(field.data_type());
        if let Some(sql_type) = sql_type.filter(|t| !fits(t, &column.type_name, &column.kind)) {
            problems.push(format!("column `{name}` has type {}, which {sql_type} does not fit", column.shown));
        }
    }
    for (name, column) in &columns {
        let given = spec.columns.column_with_name(name).is_some();
        if !given && column.not_null && !column.has_default && !column.generated {
            problems.push(format!("column `{name}` is NOT NULL, and the sink does not have it"));
        }
    }
    if problems.is_empty() && !spec.append_only {
        problems.extend(check_key(client, config, spec, &columns).await?);
    }
    match problems.is_empty() {
        true => Ok(()),
        false => Err(ConnectorError::Mismatch { reason: format!("table {table}: {}", problems.join("; ")) }),
    }
}

async fn columns(client: &Client, config: &PostgresConfig) -> Result<BTreeMap<String, TargetColumn>> {
    // A domain counts as its base type; domains of domains are rare.
    let query = "
        SELECT a.attname::text, coalesce(b.typname, t.typname)::text, coalesce(b.typtype, t.typtype)::text,
               format_type(a.atttypid, a.atttypmod), a.attnotnull, a.atthasdef OR a.attidentity <> '',
               a.attgenerated <> '' OR a.attidentity = 'a'
        FROM pg_attribute a
        JOIN pg_class c ON c.oid = a.attrelid
        JOIN pg_namespace n ON n.oid = c.relnamespace
        JOIN pg_type t ON t.oid = a.atttypid
        LEFT JOIN pg_type b ON t.typtype = 'd' AND b.oid = t.typbasetype
        WHERE n.nspname = $1 AND c.relname = $2 AND c.relkind IN ('r', 'p', 'f')
          AND a.attnum > 0 AND NOT a.attisdropped";
    let read = async {
        let mut columns = BTreeMap::new();
        for row in client.query(query, &[&config.schema, &config.table]).await? {
            let column = TargetColumn {
                type_name: row.try_get(1)?,
                kind: row.try_get(2)?,
                shown: row.try_get(3)?,
                not_null: row.try_get(4)?,
                has_default: row.try_get(5)?,
                generated: row.try_get(6)?,
            };
            columns.insert(row.try_get(0)?, column);
        }
        Ok(columns)
    };
    read.await.map_err(|e| failed("read the columns of the table", &e))
}

/// What is wrong with the key: without just this unique index, ON CONFLICT is refused; a NULL in it would never conflict.
async fn check_key(
    client: &Client,
    config: &PostgresConfig,
    spec: &SinkSpec,
    columns: &BTreeMap<String, TargetColumn>,
) -> Result<Option<String>> {
    let mut key: Vec<&str> = spec.primary_key.iter().map(|k| spec.columns.field(*k).name().as_str()).collect();
    key.sort_unstable();
    let nullable: Vec<&str> = key.iter().copied().filter(|k| columns.get(*k).is_some_and(|c| !c.not_null)).collect();
    if !nullable.is_empty() {
        return Ok(Some(format!("columns of the key may be NULL there: {}", listed(nullable))));
    }
    let query = "
        SELECT 1
        FROM pg_index i
        JOIN pg_class c ON c.oid = i.indrelid
        JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = $1 AND c.relname = $2 AND i.indisunique AND i.indimmediate AND i.indisvalid
          AND i.indpred IS NULL AND i.indexprs IS NULL
          AND (SELECT array_agg(a.attname::text ORDER BY a.attname::text COLLATE \"C\")
               FROM unnest(i.indkey::int2[]) WITH ORDINALITY AS k (number, place)
               JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number
               WHERE k.place <= i.indnkeyatts) = $3";
    let found = client.query(query, &[&config.schema, &config.table, &key]).await;
    let found = found.map_err(|e| failed("read the indexes of the table", &e))?;
    let missing = || format!("there is no unique index on just {}", listed(key.iter().copied()));
    Ok(found.is_empty().then(missing))
}

/// Whether every value of the type can be written to a column of a type of PostgreSQL. Lengths are not compared.
fn fits(sql_type: &SqlType, name: &str, kind: &str) -> bool {
    let takes: &[&str] = match sql_type {
        SqlType::Boolean => &["bool"],
        SqlType::SmallInt => &["int2", "int4", "int8", "numeric"],
        SqlType::Integer => &["int4", "int8", "numeric"],
        SqlType::BigInt => &["int8", "numeric"],
        SqlType::Real => &["float4", "float8"],
        SqlType::Double => &["float8"],
        SqlType::Numeric(_) => &["numeric"],
        SqlType::Varchar if kind == "e" => return true,
        SqlType::Varchar => &["text", "varchar", "bpchar", "uuid", "citext"],
        SqlType::Bytea => &["bytea"],
        SqlType::Date => &["date"],
        SqlType::Time => &["time"],
        SqlType::Timestamp => &["timestamp"],
        SqlType::TimestampTz => &["timestamptz"],
        SqlType::Interval => &["interval"],
        SqlType::Jsonb => &["jsonb", "json", "text"],
        SqlType::Array(item) => {
            let mut innermost = item;
            // An array of PostgreSQL has one type, however many dimensions.
            while let SqlType::Array(item) = innermost.as_ref() {
                innermost = item;
            }
            return name.strip_prefix('_').is_some_and(|item| fits(innermost, item, "b"));
        }
        // A record, as text: its fields are checked when rows come.
        SqlType::Struct(_) => return kind == "c" || name == "text",
    };
    takes.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_fit_where_no_value_is_lost() {
        let array = |item| SqlType::Array(Box::new(item));
        assert!(fits(&SqlType::Integer, "int8", "b"));
        assert!(!fits(&SqlType::BigInt, "int4", "b"));
        assert!(!fits(&SqlType::Double, "float4", "b"));
        assert!(fits(&SqlType::Varchar, "mood", "e"));
        assert!(fits(&array(array(SqlType::Varchar)), "_text", "b"));
        assert!(!fits(&array(SqlType::Varchar), "text", "b"));
        assert!(fits(&SqlType::Struct(vec![]), "pair", "c"));
        assert!(!fits(&SqlType::TimestampTz, "timestamp", "b"));
    }
}
