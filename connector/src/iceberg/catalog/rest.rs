//! A catalog that speaks the REST protocol of Iceberg.
//!
//! A swap names what must still hold: the table, its current snapshot, its current schema and partition spec. The
//! catalog compares and writes in one step.

use std::collections::HashMap;

use async_trait::async_trait;
use iceberg::spec::{MAIN_BRANCH, TableMetadata};
use iceberg::{TableCreation, TableIdent, TableRequirement, TableUpdate};
use reqwest::{Client, Method, Response, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Catalog, Compares, Table};
use crate::error::{ConnectorError, Result};
use crate::iceberg::config::S3Config;
use crate::iceberg::storage::{Storage, unavailable};

const TIMEOUT: std::time::Duration = std::time::Duration::from_secs(60);

/// Tables behind a REST server.
pub struct RestCatalog {
    client: Client,
    /// With the version of the protocol and the prefix that the server has asked for.
    base: String,
    token: Option<String>,
    s3: S3Config,
}

#[derive(Deserialize)]
struct ServerConfig {
    #[serde(default)]
    defaults: HashMap<String, String>,
    #[serde(default)]
    overrides: HashMap<String, String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct LoadedTable {
    metadata_location: Option<String>,
    metadata: TableMetadata,
    #[serde(default)]
    config: HashMap<String, String>,
}

impl RestCatalog {
    /// Asks the server how it wants to be talked to.
    pub async fn connect(uri: &str, token: Option<&str>, warehouse: Option<&str>, s3: S3Config) -> Result<RestCatalog> {
        let client =
            Client::builder().timeout(TIMEOUT).build().map_err(|e| unavailable("connect to the catalog", e))?;
        let base = format!("{uri}/v1");
        let mut catalog = RestCatalog { client, base, token: token.map(str::to_owned), s3 };
        let query = warehouse.map(|w| format!("?warehouse={}", encode(w))).unwrap_or_default();
        let what = "connect to the catalog";
        let response = catalog.call(Method::GET, &format!("/config{query}"), None, what).await?;
        let config: ServerConfig = read(success(response, what).await?, what).await?;
        let mut properties = config.defaults;
        properties.extend(config.overrides);
        if let Some(prefix) = properties.get("prefix").filter(|p| !p.is_empty()) {
            catalog.base = format!("{}/{prefix}", catalog.base);
        }
        catalog.s3 = with_properties(&catalog.s3, &properties);
        Ok(catalog)
    }

    async fn call(&self, method: Method, path: &str, body: Option<Value>, what: &str) -> Result<Response> {
        let mut request = self.client.request(method, format!("{}{path}", self.base));
        if let Some(token) = &self.token {
            request = request.bearer_auth(token);
        }
        if let Some(body) = body {
            request = request.json(&body);
        }
        request.send().await.map_err(|e| unavailable(what, e.without_url()))
    }
}

#[async_trait]
impl Catalog for RestCatalog {
    fn compares(&self) -> Compares {
        Compares::CurrentSnapshot
    }

    async fn load(&self, table: &TableIdent) -> Result<Option<Table>> {
        let what = format!("load table {table}");
        let response = self.call(Method::GET, &table_path(table), None, &what).await?;
        if response.status() == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        let loaded: LoadedTable = read(success(response, &what).await?, &what).await?;
        let storage = Storage::of(loaded.metadata.location(), &with_properties(&self.s3, &loaded.config));
        Ok(Some(Table::new(loaded.metadata, loaded.metadata_location.unwrap_or_default(), storage)))
    }

    async fn create(&self, table: &TableIdent, creation: TableCreation) -> Result<()> {
        let what = format!("create table {table}");
        let failed = |e: serde_json::Error| unavailable(what.clone(), e);
        let namespace = json!({ "namespace": table.namespace().to_vec(), "properties": {} });
        let made = self.call(Method::POST, "/namespaces", Some(namespace), &what).await?;
        if made.status() != StatusCode::CONFLICT {
            success(made, &what).await?;
        }
        let mut body = json!({
            "name": creation.name,
            "schema": serde_json::to_value(&creation.schema).map_err(failed)?,
            "properties": creation.properties,
        });
        if let Some(spec) = &creation.partition_spec {
            body["partition-spec"] = serde_json::to_value(spec).map_err(failed)?;
        }
        let path = format!("/namespaces/{}/tables", namespace_path(table));
        let made = self.call(Method::POST, &path, Some(body), &what).await?;
        if made.status() != StatusCode::CONFLICT {
            success(made, &what).await?;
        }
        Ok(())
    }

    async fn swap(&self, table: &TableIdent, base: &Table, changes: Vec<TableUpdate>) -> Result<bool> {
        let metadata = &base.metadata;
        let requirements = [
            TableRequirement::UuidMatch { uuid: metadata.uuid() },
            TableRequirement::RefSnapshotIdMatch {
                r#ref: MAIN_BRANCH.to_owned(),
                snapshot_id: metadata.current_snapshot_id(),
            },
            TableRequirement::CurrentSchemaIdMatch { current_schema_id: metadata.current_schema_id() },
            TableRequirement::LastAssignedFieldIdMatch { last_assigned_field_id: metadata.last_column_id() },
        ];
        let what = format!("commit to table {table}");
        let body = json!({
            "identifier": { "namespace": table.namespace().to_vec(), "name": table.name() },
            "requirements": serde_json::to_value(requirements).map_err(|e| unavailable(what.clone(), e))?,
            "updates": serde_json::to_value(changes).map_err(|e| unavailable(what.clone(), e))?,
        });
        let response = self.call(Method::POST, &table_path(table), Some(body), &what).await?;
        match response.status() {
            StatusCode::CONFLICT => Ok(false),
            StatusCode::NOT_FOUND => Err(ConnectorError::Gone { what: format!("table {table}") }),
            _ => success(response, &what).await.map(|_| true),
        }
    }
}

/// The response, unless it is an error.
async fn success(response: Response, what: &str) -> Result<Response> {
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    let body: Value = response.json().await.unwrap_or_default();
    let message = body["error"]["message"].as_str().unwrap_or("it gave no reason");
    let reason = format!("{status}: {message}");
    if status.is_client_error() {
        return Err(ConnectorError::Refused { what: what.to_owned(), reason });
    }
    Err(ConnectorError::Unavailable { what: what.to_owned(), reason })
}

async fn read<T: serde::de::DeserializeOwned>(response: Response, what: &str) -> Result<T> {
    let bytes = response.bytes().await.map_err(|e| unavailable(what, e.without_url()))?;
    serde_json::from_slice(&bytes).map_err(|e| unavailable(what, e))
}

/// What the options say, and for the rest what the catalog says.
fn with_properties(s3: &S3Config, properties: &HashMap<String, String>) -> S3Config {
    let or = |given: &Option<String>, key: &str| given.clone().or_else(|| properties.get(key).cloned());
    S3Config {
        endpoint: or(&s3.endpoint, "s3.endpoint"),
        region: or(&s3.region, "s3.region"),
        access_key: or(&s3.access_key, "s3.access-key-id"),
        secret_key: or(&s3.secret_key, "s3.secret-access-key"),
        path_style: s3.path_style || properties.get("s3.path-style-access").is_some_and(|v| v == "true"),
    }
}

fn table_path(table: &TableIdent) -> String {
    format!("/namespaces/{}/tables/{}", namespace_path(table), encode(table.name()))
}

/// Levels have the unit separator between them.
fn namespace_path(table: &TableIdent) -> String {
    encode(&table.namespace().join("\u{1f}"))
}

fn encode(text: &str) -> String {
    super::super::partition::escaped(text, "-_.~")
}
