//! What a writer reports of a commit: its files, as they will stand in manifests. It is kept as JSON, so that another
//! process can commit it, later.

use std::sync::Arc;

use iceberg::spec::{
    DataFile, FormatVersion, PartitionSpecRef, SchemaRef, TableMetadata, deserialize_data_file_from_json,
    serialize_data_file_to_json,
};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::storage::unavailable;
use crate::error::{ConnectorError, Result};
use crate::sink::Commit;

/// The files that one writer has for a commit.
#[derive(Debug, Serialize, Deserialize)]
pub struct Part {
    /// The table they were written for; one that has only its name is another table.
    pub table: Uuid,
    /// The schema and the partition spec of the table that they were written with.
    pub schema_id: i32,
    pub spec_id: i32,
    /// Locations, for those who need not know more.
    pub locations: Vec<String>,
    /// Data and delete files in the JSON of the `iceberg` crate.
    files: Vec<String>,
}

/// The files of a part, with the schema and the partition spec that their manifests are written with.
pub struct PartFiles {
    pub schema: SchemaRef,
    pub spec: PartitionSpecRef,
    pub files: Vec<DataFile>,
}

impl Part {
    /// Describes files.
    pub fn new(table: Uuid, schema: &SchemaRef, spec: &PartitionSpecRef, files: Vec<DataFile>) -> Result<Part> {
        let failed = |e| unavailable("describe data files", e);
        let partition_type = spec.partition_type(schema).map_err(failed)?;
        let locations = files.iter().map(|f| f.file_path().to_owned()).collect();
        let files = files.into_iter().map(|f| serialize_data_file_to_json(f, &partition_type, FormatVersion::V2));
        let files = files.collect::<iceberg::Result<Vec<_>>>().map_err(failed)?;
        Ok(Part { table, schema_id: schema.schema_id(), spec_id: spec.spec_id(), locations, files })
    }

    /// The files, for a table that has had their schema and partition spec.
    pub fn files(&self, table: &TableMetadata) -> Result<PartFiles> {
        if table.uuid() != self.table {
            let reason = format!("the table was replaced: it is {} now and was {}", table.uuid(), self.table);
            return Err(ConnectorError::Mismatch { reason });
        }
        // Schemas that no snapshot has may have been removed; ids of columns stay what they are.
        let schema = table.schema_by_id(self.schema_id).unwrap_or_else(|| table.current_schema()).clone();
        let spec = table.partition_spec_by_id(self.spec_id).cloned().ok_or_else(|| {
            let reason = format!("the table has no partition spec {} any more", self.spec_id);
            ConnectorError::Mismatch { reason }
        })?;
        let failed = |e| unavailable("read the record of a commit", e);
        let partition_type = spec.partition_type(&schema).map_err(failed)?;
        let read = |json: &String| deserialize_data_file_from_json(json, self.spec_id, &partition_type, &schema);
        let files = self.files.iter().map(read).collect::<iceberg::Result<Vec<_>>>().map_err(failed)?;
        Ok(PartFiles { schema: Arc::clone(&schema), spec, files })
    }
}

/// The parts of a commit.
pub fn parts(commit: &Commit) -> Result<Vec<Part>> {
    let read = |part: &serde_json::Value| Part::deserialize(part);
    commit
        .parts
        .iter()
        .map(read)
        .collect::<serde_json::Result<_>>()
        .map_err(|e| unavailable("read the record of a commit", e))
}
