//! A catalog in an SQL database, SQLite or PostgreSQL, as other clients of Iceberg lay it out:
//!
//! ```text
//! iceberg_tables                   catalog_name, table_namespace, table_name | metadata_location,
//! previous_metadata_location iceberg_namespace_properties     catalog_name, namespace, property_key | property_value
//! ```
//!
//! `iceberg_type`, which newer catalogs have to tell tables from views, stays null: a table.
//!
//! A swap is an update of a row of `iceberg_tables` under the condition that `metadata_location` is still the one that
//! the new metadata was made from. Whoever writes to the table does it so.

use async_trait::async_trait;
use iceberg::spec::{TableMetadata, TableMetadataBuilder};
use iceberg::{TableCreation, TableIdent, TableUpdate};
use sqlx::any::{AnyPoolOptions, install_default_drivers};
use sqlx::{AnyPool, Row};
use uuid::Uuid;

use super::{Catalog, Compares, Table};
use crate::error::Result;
use crate::iceberg::config::S3Config;
use crate::iceberg::storage::{Storage, unavailable};

/// A committer and a few writers look up tables, one after the other.
const CONNECTIONS_MAX: u32 = 2;
const DELETE_OLD_METADATA: &str = "write.metadata.delete-after-commit.enabled";

/// Tables in an SQL database.
pub struct SqlCatalog {
    pool: AnyPool,
    name: String,
    warehouse: String,
    s3: S3Config,
}

impl SqlCatalog {
    /// Connects, and makes the tables of the catalog where they are missing.
    pub async fn connect(url: &str, name: &str, warehouse: String, s3: S3Config) -> Result<SqlCatalog> {
        install_default_drivers();
        let pool = AnyPoolOptions::new().max_connections(CONNECTIONS_MAX).connect(url).await;
        let pool = pool.map_err(|e| unavailable("connect to the catalog", e))?;
        for statement in [
            "CREATE TABLE IF NOT EXISTS iceberg_tables (catalog_name VARCHAR(255) NOT NULL, \
             table_namespace VARCHAR(255) NOT NULL, table_name VARCHAR(255) NOT NULL, metadata_location VARCHAR(1000), \
             previous_metadata_location VARCHAR(1000), iceberg_type VARCHAR(5), \
             PRIMARY KEY (catalog_name, table_namespace, table_name))",
            "CREATE TABLE IF NOT EXISTS iceberg_namespace_properties (catalog_name VARCHAR(255) NOT NULL, \
             namespace VARCHAR(255) NOT NULL, property_key VARCHAR(255) NOT NULL, \
             property_value VARCHAR(1000) NOT NULL, PRIMARY KEY (catalog_name, namespace, property_key))",
        ] {
            let made = sqlx::query(statement).execute(&pool).await;
            made.map_err(|e| unavailable("make the tables of the catalog", e))?;
        }
        Ok(SqlCatalog { pool, name: name.to_owned(), warehouse, s3 })
    }

    async fn create_namespace(&self, namespace: &str) -> sqlx::Result<()> {
        sqlx::query(
            "INSERT INTO iceberg_namespace_properties (catalog_name, namespace, property_key, property_value) \
             VALUES ($1, $2, 'exists', 'true') ON CONFLICT DO NOTHING",
        )
        .bind(&self.name)
        .bind(namespace)
        .execute(&self.pool)
        .await?;
        Ok(())
    }
}

#[async_trait]
impl Catalog for SqlCatalog {
    fn compares(&self) -> Compares {
        Compares::Metadata
    }

    async fn load(&self, table: &TableIdent) -> Result<Option<Table>> {
        let failed = |e: &dyn std::fmt::Display| unavailable(format!("load table {table}"), e);
        let row = sqlx::query(
            "SELECT metadata_location FROM iceberg_tables \
             WHERE catalog_name = $1 AND table_namespace = $2 AND table_name = $3",
        )
        .bind(&self.name)
        .bind(table.namespace().to_string())
        .bind(table.name())
        .fetch_optional(&self.pool)
        .await
        .map_err(|e| failed(&e))?;
        let Some(row) = row else {
            return Ok(None);
        };
        let location: String = row.try_get(0).map_err(|e| failed(&e))?;
        let storage = Storage::of(&location, &self.s3);
        let metadata = TableMetadata::read_from(storage.io(), &location).await.map_err(|e| failed(&e))?;
        Ok(Some(Table::new(metadata, location, storage)))
    }

    async fn create(&self, table: &TableIdent, mut creation: TableCreation) -> Result<()> {
        let failed = |e: &dyn std::fmt::Display| unavailable(format!("create table {table}"), e);
        let levels = table.namespace().join("/");
        creation.location = Some(format!("{}/{levels}/{}", self.warehouse, table.name()));
        let metadata = TableMetadataBuilder::from_table_creation(creation).and_then(TableMetadataBuilder::build);
        let metadata = metadata.map_err(|e| failed(&e))?.metadata;
        let location = new_metadata_location(&metadata, None);
        let storage = Storage::of(&location, &self.s3);
        storage.write(&location, serde_json::to_vec(&metadata).map_err(|e| failed(&e))?).await?;
        self.create_namespace(&table.namespace().to_string()).await.map_err(|e| failed(&e))?;
        let inserted = sqlx::query(
            "INSERT INTO iceberg_tables (catalog_name, table_namespace, table_name, metadata_location) \
             VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING",
        )
        .bind(&self.name)
        .bind(table.namespace().to_string())
        .bind(table.name())
        .bind(&location)
        .execute(&self.pool)
        .await
        .map_err(|e| failed(&e))?;
        if inserted.rows_affected() == 0 {
            storage.delete(&location).await?;
        }
        Ok(())
    }

    async fn swap(&self, table: &TableIdent, base: &Table, changes: Vec<TableUpdate>) -> Result<bool> {
        let failed = |e: &dyn std::fmt::Display| unavailable(format!("commit to table {table}"), e);
        let mut builder = base.metadata.as_ref().clone().into_builder(Some(base.metadata_location.clone()));
        for change in changes {
            builder = change.apply(builder).map_err(|e| failed(&e))?;
        }
        let built = builder.build().map_err(|e| failed(&e))?;
        let location = new_metadata_location(&built.metadata, Some(&base.metadata_location));
        base.storage.write(&location, serde_json::to_vec(&built.metadata).map_err(|e| failed(&e))?).await?;
        let updated = sqlx::query(
            "UPDATE iceberg_tables SET metadata_location = $1, previous_metadata_location = $2 \
             WHERE catalog_name = $3 AND table_namespace = $4 AND table_name = $5 AND metadata_location = $6",
        )
        .bind(&location)
        .bind(&base.metadata_location)
        .bind(&self.name)
        .bind(table.namespace().to_string())
        .bind(table.name())
        .bind(&base.metadata_location)
        .execute(&self.pool)
        .await
        .map_err(|e| failed(&e))?;
        if updated.rows_affected() == 0 {
            base.storage.delete(&location).await?;
            return Ok(false);
        }
        if built.metadata.properties().get(DELETE_OLD_METADATA).is_some_and(|v| v == "true") {
            for old in built.expired_metadata_logs {
                if let Err(error) = base.storage.delete(&old.metadata_file).await {
                    tracing::warn!(%table, %error, "an old metadata file stays behind");
                }
            }
        }
        Ok(true)
    }
}

/// Where metadata goes: `<version>-<uuid>.metadata.json`, with the version after that of the metadata before it.
fn new_metadata_location(metadata: &TableMetadata, before: Option<&str>) -> String {
    let version = before.and_then(|location| {
        let name = location.rsplit('/').next()?.trim_start_matches('v');
        let digits = name.find(|c: char| !c.is_ascii_digit()).map_or(name, |end| &name[..end]);
        digits.parse::<u32>().ok()
    });
    let version = version.map_or(0, |v| v.saturating_add(1));
    let directory = match metadata.properties().get("write.metadata.path") {
        Some(path) => path.trim_end_matches('/').to_owned(),
        None => format!("{}/metadata", metadata.location().trim_end_matches('/')),
    };
    format!("{directory}/{version:05}-{}.metadata.json", Uuid::new_v4())
}
