//! The catalogs: who knows which metadata file is the table.

mod rest;
mod sql;

use std::sync::Arc;

use async_trait::async_trait;
use iceberg::spec::{TableMetadata, TableMetadataRef};
use iceberg::{TableCreation, TableIdent, TableUpdate};

use super::config::{CatalogConfig, IcebergConfig};
use super::storage::Storage;
use crate::error::Result;

/// A table as it is at one moment.
#[derive(Clone, Debug)]
pub struct Table {
    pub metadata: TableMetadataRef,
    /// Of the metadata file.
    pub metadata_location: String,
    pub storage: Storage,
}

impl Table {
    fn new(metadata: TableMetadata, metadata_location: String, storage: Storage) -> Table {
        Table { metadata: Arc::new(metadata), metadata_location, storage }
    }

    /// The directory of data files.
    pub fn data_location(&self) -> String {
        match self.metadata.properties().get("write.data.path") {
            Some(path) => path.trim_end_matches('/').to_owned(),
            None => format!("{}/data", self.metadata.location().trim_end_matches('/')),
        }
    }

    /// The directory of manifests, their lists and table metadata.
    pub fn metadata_directory(&self) -> String {
        match self.metadata.properties().get("write.metadata.path") {
            Some(path) => path.trim_end_matches('/').to_owned(),
            None => format!("{}/metadata", self.metadata.location().trim_end_matches('/')),
        }
    }
}

/// What [`Catalog::swap`] compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compares {
    /// Everything: the metadata is the very file that was loaded.
    Metadata,
    /// The table, its current snapshot and its current schema. Properties may be others by then.
    CurrentSnapshot,
}

/// A catalog of tables.
#[async_trait]
pub trait Catalog: Send + Sync {
    /// What a swap compares.
    fn compares(&self) -> Compares;

    /// The table, if there is one.
    async fn load(&self, table: &TableIdent) -> Result<Option<Table>>;

    /// Makes a table, and its name space. When somebody else has made it in the meantime, that one stays.
    async fn create(&self, table: &TableIdent, creation: TableCreation) -> Result<()>;

    /// Changes a table, provided that it is still `base`. `false`: it is not, and nothing was changed. After an error
    /// it may have been changed or not.
    async fn swap(&self, table: &TableIdent, base: &Table, changes: Vec<TableUpdate>) -> Result<bool>;
}

/// The catalog that the options name.
pub async fn connect(config: &IcebergConfig) -> Result<Arc<dyn Catalog>> {
    Ok(match &config.catalog {
        CatalogConfig::Sql { url, name } => {
            let warehouse = config.warehouse.clone().unwrap_or_default();
            Arc::new(sql::SqlCatalog::connect(url, name, warehouse, config.s3.clone()).await?)
        }
        CatalogConfig::Rest { uri, token } => {
            let warehouse = config.warehouse.as_deref();
            Arc::new(rest::RestCatalog::connect(uri, token.as_deref(), warehouse, config.s3.clone()).await?)
        }
    })
}
