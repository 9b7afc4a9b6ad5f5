//! The statements that bring rows into the table.

use super::config::PostgresConfig;
use super::session::quoted;
use crate::sink::SinkSpec;

/// The statements of a sink.
pub struct Statements {
    /// Takes the rows as text.
    pub copy: String,
    /// Not append-only: how changes become rows.
    pub changes: Option<Changes>,
}

/// Changes wait in a temporary table until the commit; of each key the last one counts.
pub struct Changes {
    /// Makes the temporary table.
    pub create: String,
    /// Removes the rows of keys whose last change is a delete.
    pub delete: String,
    /// Adds or replaces the rows of keys whose last change is an insert.
    pub upsert: String,
}

impl Statements {
    pub fn new(config: &PostgresConfig, spec: &SinkSpec) -> Statements {
        let table = format!("{}.{}", quoted(&config.schema), quoted(&config.table));
        let names: Vec<String> = spec.columns.fields().iter().map(|f| quoted(f.name())).collect();
        let columns = names.join(", ");
        if spec.append_only {
            return Statements { copy: format!("COPY {table} ({columns}) FROM STDIN"), changes: None };
        }
        let key: Vec<&str> = spec.primary_key.iter().map(|k| names[*k].as_str()).collect();
        let others: Vec<&str> =
            (0..names.len()).filter(|c| !spec.primary_key.contains(c)).map(|c| names[c].as_str()).collect();
        let keys = key.join(", ");
        let last = format!("SELECT DISTINCT ON ({keys}) * FROM pg_temp.weir_changes ORDER BY {keys}, weir_change DESC");
        let same_key: Vec<String> = key.iter().map(|k| format!("t.{k} = c.{k}")).collect();
        let set: Vec<String> = others.iter().map(|c| format!("{c} = excluded.{c}")).collect();
        let action = if set.is_empty() { "NOTHING".into() } else { format!("UPDATE SET {}", set.join(", ")) };
        // The types are the table's, its constraints are not.
        let create = format!(
            "CREATE TEMPORARY TABLE weir_changes ON COMMIT DELETE ROWS AS \
             SELECT 0::bigint AS weir_change, true AS weir_insert, {columns} FROM {table} WITH NO DATA"
        );
        let delete = format!(
            "DELETE FROM {table} AS t USING ({last}) AS c WHERE NOT c.weir_insert AND {}",
            same_key.join(" AND ")
        );
        let upsert = format!(
            "INSERT INTO {table} ({columns}) SELECT {columns} FROM ({last}) AS c WHERE c.weir_insert \
             ON CONFLICT ({keys}) DO {action}"
        );
        let copy = format!("COPY pg_temp.weir_changes (weir_change, weir_insert, {columns}) FROM STDIN");
        Statements { copy, changes: Some(Changes { create, delete, upsert }) }
    }
}
