//! Where the files of tables are: a local file system, or an object store of the S3 kind.
//!
//! The `iceberg` crate reads and writes files by location; what it lacks is a listing.

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use futures::TryStreamExt;
use iceberg::io::{
    FileIO, FileIOBuilder, S3_ACCESS_KEY_ID, S3_ENDPOINT, S3_PATH_STYLE_ACCESS, S3_REGION, S3_SECRET_ACCESS_KEY,
};
use iceberg_storage_opendal::OpenDalStorageFactory;
use opendal::{ErrorKind, Operator, services};

use super::config::S3Config;
use crate::error::{ConnectorError, Result};

/// The files under the location of a table.
#[derive(Clone, Debug)]
pub struct Storage {
    io: FileIO,
    s3: Option<S3Config>,
}

impl Storage {
    /// The storage that a location is on.
    pub fn of(location: &str, s3: &S3Config) -> Storage {
        if !is_s3(location) {
            return Storage { io: FileIO::new_with_fs(), s3: None };
        }
        let given = [
            (S3_ENDPOINT, s3.endpoint.clone()),
            (S3_REGION, s3.region.clone()),
            (S3_ACCESS_KEY_ID, s3.access_key.clone()),
            (S3_SECRET_ACCESS_KEY, s3.secret_key.clone()),
            (S3_PATH_STYLE_ACCESS, Some(s3.path_style.to_string())),
        ];
        let properties = given.into_iter().filter_map(|(key, value)| Some((key, value?)));
        let factory = OpenDalStorageFactory::S3 { customized_credential_load: None };
        Storage { io: FileIOBuilder::new(Arc::new(factory)).with_props(properties).build(), s3: Some(s3.clone()) }
    }

    /// Files by location.
    pub fn io(&self) -> &FileIO {
        &self.io
    }

    /// Whether a file may be written in small pieces. An object store takes parts of at least 5 MB.
    pub fn takes_small_writes(&self) -> bool {
        self.s3.is_none()
    }

    /// Writes a file whole; it is durable then.
    pub async fn write(&self, location: &str, bytes: Vec<u8>) -> Result<()> {
        let write = async {
            let mut writer = self.io.new_output(location)?.writer().await?;
            writer.write(Bytes::from(bytes)).await?;
            writer.close().await
        };
        write.await.map_err(|e| unavailable(format!("write {location}"), e))
    }

    /// Whether there is such a file.
    pub async fn exists(&self, location: &str) -> Result<bool> {
        self.io.exists(location).await.map_err(|e| unavailable(format!("look for {location}"), e))
    }

    /// Deletes a file, if it is there.
    pub async fn delete(&self, location: &str) -> Result<()> {
        self.io.delete(location).await.map_err(|e| unavailable(format!("delete {location}"), e))
    }

    /// The locations of all files under a directory.
    pub async fn list(&self, directory: &str) -> Result<Vec<String>> {
        match &self.s3 {
            Some(s3) => list_s3(s3, directory).await,
            None => {
                let walked = directory.to_owned();
                let listed = tokio::task::spawn_blocking(move || list_local(&walked)).await;
                listed.map_err(|e| unavailable(format!("list {directory}"), e))?
            }
        }
    }
}

/// Whether a location is on an object store.
fn is_s3(location: &str) -> bool {
    ["s3://", "s3a://", "s3n://"].iter().any(|scheme| location.starts_with(scheme))
}

/// An error of a storage or catalog as ours.
pub fn unavailable(what: impl Into<String>, error: impl std::fmt::Display) -> ConnectorError {
    ConnectorError::Unavailable { what: what.into(), reason: error.to_string() }
}

fn list_local(directory: &str) -> Result<Vec<String>> {
    let path = directory.strip_prefix("file:").unwrap_or(directory);
    let root = PathBuf::from(format!("/{}", path.trim_start_matches('/')));
    let mut found = Vec::new();
    let mut pending = vec![root.clone()];
    while let Some(directory_path) = pending.pop() {
        let entries = match std::fs::read_dir(&directory_path) {
            Ok(entries) => entries,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => continue,
            Err(source) => return Err(ConnectorError::Read { path: directory_path, source }),
        };
        for entry in entries {
            let entry = entry.map_err(|source| ConnectorError::Read { path: directory_path.clone(), source })?;
            let path = entry.path();
            if path.is_dir() {
                pending.push(path);
            } else if let Some(under) = path.strip_prefix(&root).ok().and_then(|p| p.to_str()) {
                found.push(format!("{directory}/{under}"));
            }
        }
    }
    Ok(found)
}

async fn list_s3(s3: &S3Config, directory: &str) -> Result<Vec<String>> {
    let failed = |e: opendal::Error| unavailable(format!("list {directory}"), e);
    let (scheme, path) = directory.split_once("://").unwrap_or(("s3", directory));
    let (bucket, path) = path.split_once('/').unwrap_or((path, ""));
    let mut builder = services::S3::default().bucket(bucket);
    if let Some(endpoint) = &s3.endpoint {
        builder = builder.endpoint(endpoint);
    }
    if let Some(region) = &s3.region {
        builder = builder.region(region);
    }
    if let Some(key) = &s3.access_key {
        builder = builder.access_key_id(key);
    }
    if let Some(secret) = &s3.secret_key {
        builder = builder.secret_access_key(secret);
    }
    if !s3.path_style {
        builder = builder.enable_virtual_host_style();
    }
    let operator = Operator::new(builder).map_err(failed)?.finish();
    let mut found = Vec::new();
    let mut entries = match operator.lister_with(&format!("{path}/")).recursive(true).await {
        Ok(entries) => entries,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(found),
        Err(e) => return Err(failed(e)),
    };
    while let Some(entry) = entries.try_next().await.map_err(failed)? {
        if entry.metadata().is_file() {
            found.push(format!("{scheme}://{bucket}/{}", entry.path()));
        }
    }
    Ok(found)
}
