//! The table that a sink writes to, checked: that it is there, that its columns and partitions fit.

use iceberg::spec::{FormatVersion, PartitionSpecRef, SchemaRef as IcebergSchemaRef};
use iceberg::{TableCreation, TableUpdate};

use super::catalog::{Catalog, Table};
use super::columns::Columns;
use super::config::IcebergConfig;
use super::partition::{partition_columns, partition_spec};
use super::schema::{extended_schema, table_schema};
use super::storage::unavailable;
use crate::error::{ConnectorError, Result, listed};
use crate::sink::SinkSpec;

/// How often columns are added when others change the table too.
const ATTEMPTS_MAX: usize = 10;

/// A table, and where the columns of a sink are in it.
#[derive(Clone)]
pub struct Target {
    pub table: Table,
    pub columns: Columns,
}

impl Target {
    /// The schema of the table that files are written with.
    pub fn schema(&self) -> &IcebergSchemaRef {
        self.table.metadata.current_schema()
    }

    /// How files are partitioned.
    pub fn spec(&self) -> &PartitionSpecRef {
        self.table.metadata.default_partition_spec()
    }
}

/// Makes the table unless there is one.
pub async fn create(catalog: &dyn Catalog, config: &IcebergConfig, spec: &SinkSpec) -> Result<()> {
    if catalog.load(&config.table).await?.is_some() {
        return Ok(());
    }
    let schema = table_schema(&spec.columns)?;
    let partition_spec = config.partition_by.as_ref().map(|columns| partition_spec(columns, &schema)).transpose()?;
    // Each commit writes a metadata file; old ones go as others come.
    let properties = [
        ("write.metadata.delete-after-commit.enabled".to_owned(), "true".to_owned()),
        ("write.metadata.previous-versions-max".to_owned(), "100".to_owned()),
    ];
    let creation = TableCreation::builder()
        .name(config.table.name().to_owned())
        .schema(schema)
        .partition_spec_opt(partition_spec)
        .properties(properties)
        .build();
    catalog.create(&config.table, creation).await
}

/// Loads the table and checks it. Adds the columns that it lacks, if that was asked for.
pub async fn open(catalog: &dyn Catalog, config: &IcebergConfig, spec: &SinkSpec) -> Result<Target> {
    for _ in 0..ATTEMPTS_MAX {
        let table = catalog.load(&config.table).await?;
        let table = table.ok_or_else(|| ConnectorError::Gone { what: format!("table {}", config.table) })?;
        let schema = table.metadata.current_schema();
        let missing = Columns::missing(&spec.columns, schema);
        if !config.auto_schema_change || missing.is_empty() {
            return check(table, config, spec);
        }
        let extended = extended_schema(schema, &missing, table.metadata.last_column_id())?;
        let changes =
            vec![TableUpdate::AddSchema { schema: extended }, TableUpdate::SetCurrentSchema { schema_id: -1 }];
        catalog.swap(&config.table, &table, changes).await?;
    }
    Err(unavailable(format!("add columns to table {}", config.table), "others change it all the time"))
}

fn check(table: Table, config: &IcebergConfig, spec: &SinkSpec) -> Result<Target> {
    let differs = |reason: String| Err(ConnectorError::Mismatch { reason });
    let metadata = &table.metadata;
    if metadata.format_version() != FormatVersion::V2 {
        return differs(format!("the table has format {}; a sink writes format v2", metadata.format_version()));
    }
    let schema = metadata.current_schema();
    let columns = Columns::find(&spec.columns, schema)?;
    let partitions = partition_columns(metadata.default_partition_spec(), schema);
    if let Some(wanted) = &config.partition_by {
        let same = wanted.len() == partitions.len()
            && wanted
                .iter()
                .zip(&partitions)
                .all(|(w, p)| w.transform == p.transform && w.column.to_lowercase() == p.column.to_lowercase());
        if !same {
            let shown = |columns: &[_]| columns.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            return differs(format!(
                "the table is partitioned by ({}), not by ({})",
                shown(partitions.as_slice()),
                shown(wanted)
            ));
        }
    }
    for field in metadata.default_partition_spec().fields() {
        if columns.schema.field_by_id(field.source_id).is_none() {
            let column = schema.name_by_field_id(field.source_id).unwrap_or("?");
            return differs(format!("the table is partitioned by column `{column}`, which the sink does not have"));
        }
    }
    if !spec.append_only {
        let fields = columns.schema.as_struct().fields();
        let keys = spec.primary_key.iter().filter_map(|i| fields.get(*i));
        let unfit = keys.filter(|f| f.field_type.as_primitive_type().is_none() || f.field_type.is_floating_type());
        let unfit: Vec<&str> = unfit.map(|f| f.name.as_str()).collect();
        if !unfit.is_empty() {
            let reason =
                format!("a key cannot have columns of type real, double precision, list or struct: {}", listed(unfit));
            return differs(reason);
        }
    }
    Ok(Target { table, columns })
}
