//! Deletes what earlier generations of a sink have left behind.
//!
//! A file of ours carries its sink and generation in its name: `weir-<sink>-<generation>-…`. One of an earlier
//! generation that no snapshot of the table refers to will never be committed, once the commits that were recorded
//! before are settled. Files of others are not touched.

use std::collections::HashSet;

use iceberg::spec::ManifestList;
use weir_common::{Generation, JobId};

use super::catalog::Table;
use super::storage::unavailable;
use crate::error::Result;

/// Deletes the files of a sink and generations before this one that nothing refers to. How many these were.
pub async fn clean(table: &Table, sink: JobId, generation: Generation) -> Result<u64> {
    let mut left = Vec::new();
    for directory in [table.data_location(), table.metadata_directory()] {
        let files = table.storage.list(&directory).await?;
        left.extend(files.into_iter().filter(|f| generation_of(f, sink).is_some_and(|g| g < generation.0)));
    }
    if left.is_empty() {
        return Ok(0);
    }
    let referred = referred(table).await?;
    let mut deleted = 0;
    for location in left.iter().filter(|location| !referred.contains(path(location))) {
        table.storage.delete(location).await?;
        deleted += 1;
    }
    Ok(deleted)
}

/// The generation in the name of a file of this sink.
fn generation_of(location: &str, sink: JobId) -> Option<u64> {
    let name = location.rsplit('/').next()?.strip_prefix("weir-")?.strip_prefix(&sink.to_string())?;
    name.strip_prefix('-')?.split('-').next()?.parse().ok()
}

/// A location as it is compared: schemes and slashes before the path are written in more than one way.
fn path(location: &str) -> &str {
    let path = location.split_once(':').filter(|(scheme, _)| !scheme.contains('/')).map_or(location, |(_, path)| path);
    path.trim_start_matches('/')
}

/// Every file that a snapshot refers to, as [`path`].
async fn referred(table: &Table) -> Result<HashSet<String>> {
    let mut referred = HashSet::new();
    let version = table.metadata.format_version();
    for snapshot in table.metadata.snapshots() {
        let location = snapshot.manifest_list();
        let failed = |e| unavailable(format!("read {location}"), e);
        let bytes = table.storage.io().new_input(location).map_err(failed)?.read().await.map_err(failed)?;
        referred.insert(path(location).to_owned());
        for manifest in ManifestList::parse_with_version(&bytes, version).map_err(failed)?.entries() {
            if !referred.insert(path(&manifest.manifest_path).to_owned()) {
                continue;
            }
            let entries = manifest.load_manifest(table.storage.io()).await;
            let entries = entries.map_err(|e| unavailable(format!("read {}", manifest.manifest_path), e))?;
            referred.extend(entries.entries().iter().map(|entry| path(entry.file_path()).to_owned()));
        }
    }
    Ok(referred)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_ours() {
        for (name, generation) in [
            ("file:///t/data/weir-7-12-0-0-x.parquet", Some(12)),
            ("s3://b/t/data/p=1/weir-7-3-x.parquet", Some(3)),
            ("/t/data/weir-71-3-x.parquet", None),
            ("/t/data/weir-7-x.parquet", None),
            ("/t/data/00000-0-x.parquet", None),
        ] {
            assert_eq!(generation_of(name, JobId(7)), generation, "{name}");
        }
        assert_eq!(path("file:///a/b"), path("/a/b"));
        assert_eq!(path("s3://bucket/b:c"), "bucket/b:c");
        assert_eq!(path("/a/b:c"), "a/b:c");
    }
}
