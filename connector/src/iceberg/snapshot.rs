//! Makes a snapshot: manifests of new files, and a list of these and of the manifests that the table has.
//!
//! Manifests are written once; a list is written anew whenever the table has moved on in the meantime. Rows of data
//! files and of delete files of one snapshot have the same sequence number: an equality delete is for the rows of older
//! ones, a position delete for those of this one as well.

use std::collections::HashMap;
use std::time::{SystemTime, UNIX_EPOCH};

use iceberg::TableUpdate;
use iceberg::spec::{
    DataContentType, DataFile, MAIN_BRANCH, ManifestFile, ManifestList, ManifestListWriter, ManifestWriterBuilder,
    Operation, PartitionSpecRef, SchemaRef, Snapshot, SnapshotReference, SnapshotRetention, Summary,
};
use uuid::Uuid;

use super::catalog::Table;
use super::part::PartFiles;
use super::storage::{Storage, unavailable};
use crate::error::Result;

/// Manifest entries without a sequence number take that of their snapshot.
const INHERITED: i64 = -1;

/// A snapshot that is being made.
pub struct NewSnapshot {
    id: i64,
    operation: Operation,
    /// What it says of itself.
    summary: HashMap<String, String>,
    manifests: Vec<ManifestFile>,
    /// Of its files; a number follows.
    prefix: String,
    /// How many lists were written.
    lists: u32,
}

impl NewSnapshot {
    /// Writes the manifests of these files. `name` begins the names of its own files.
    pub async fn begin(
        table: &Table,
        parts: Vec<PartFiles>,
        name: &str,
        mut summary: HashMap<String, String>,
    ) -> Result<NewSnapshot> {
        let prefix = format!("{}/{name}-{}", table.metadata_directory(), Uuid::new_v4());
        let id = new_id(table);
        let mut added = Added::default();
        let mut manifests = Vec::new();
        let mut groups: Vec<(bool, SchemaRef, PartitionSpecRef, Vec<DataFile>)> = Vec::new();
        for part in parts {
            for file in part.files {
                let is_delete = file.content_type() != DataContentType::Data;
                added.count(&file);
                let group = groups.iter_mut().find(|(delete, schema, spec, _)| {
                    *delete == is_delete
                        && schema.schema_id() == part.schema.schema_id()
                        && spec.spec_id() == part.spec.spec_id()
                });
                match group {
                    Some((.., files)) => files.push(file),
                    None => groups.push((is_delete, part.schema.clone(), part.spec.clone(), vec![file])),
                }
            }
        }
        for (n, (is_delete, schema, spec, files)) in groups.into_iter().enumerate() {
            let location = format!("{prefix}-m{n}.avro");
            let write = write_manifest(&table.storage, &location, id, (schema, spec), is_delete, files);
            manifests.push(write.await.map_err(|e| unavailable(format!("write {location}"), e))?);
        }
        summary.extend(added.in_summary());
        Ok(NewSnapshot { id, operation: added.operation(), summary, manifests, prefix, lists: 0 })
    }

    /// The id.
    pub fn id(&self) -> i64 {
        self.id
    }

    /// Makes the snapshot the current one after that of `base`.
    pub async fn after(&mut self, base: &Table) -> Result<Vec<TableUpdate>> {
        let metadata = &base.metadata;
        let parent = metadata.current_snapshot();
        let mut manifests = self.manifests.clone();
        if let Some(parent) = parent {
            let read = async {
                let bytes = base.storage.io().new_input(parent.manifest_list())?.read().await?;
                ManifestList::parse_with_version(&bytes, metadata.format_version())
            };
            let list = read.await.map_err(|e| unavailable(format!("read {}", parent.manifest_list()), e))?;
            manifests
                .extend(list.consume_entries().into_iter().filter(|m| m.has_added_files() || m.has_existing_files()));
        }
        let location = format!("{}-list{}.avro", self.prefix, self.lists);
        self.lists += 1;
        let sequence = metadata.next_sequence_number();
        let write = async {
            let output = base.storage.io().new_output(&location)?.writer().await?;
            let mut list = ManifestListWriter::v2(output, self.id, metadata.current_snapshot_id(), sequence);
            list.add_manifests(manifests.into_iter())?;
            list.close().await
        };
        write.await.map_err(|e| unavailable(format!("write {location}"), e))?;
        let mut additional_properties = self.summary.clone();
        additional_properties.extend(totals(&self.summary, parent.map(|p| p.summary())));
        let snapshot = Snapshot::builder()
            .with_snapshot_id(self.id)
            .with_parent_snapshot_id(metadata.current_snapshot_id())
            .with_sequence_number(sequence)
            .with_timestamp_ms(now_ms().max(metadata.last_updated_ms()))
            .with_manifest_list(location)
            .with_schema_id(metadata.current_schema_id())
            .with_summary(Summary { operation: self.operation.clone(), additional_properties })
            .build();
        let reference = SnapshotReference::new(self.id, SnapshotRetention::branch(None, None, None));
        Ok(vec![
            TableUpdate::AddSnapshot { snapshot },
            TableUpdate::SetSnapshotRef { ref_name: MAIN_BRANCH.to_owned(), reference },
        ])
    }
}

/// What a snapshot adds.
#[derive(Default)]
struct Added {
    data_files: u64,
    records: u64,
    files_size: u64,
    equality_delete_files: u64,
    equality_deletes: u64,
    position_delete_files: u64,
    position_deletes: u64,
}

impl Added {
    fn count(&mut self, file: &DataFile) {
        let (files, rows) = match file.content_type() {
            DataContentType::Data => (&mut self.data_files, &mut self.records),
            DataContentType::EqualityDeletes => (&mut self.equality_delete_files, &mut self.equality_deletes),
            DataContentType::PositionDeletes => (&mut self.position_delete_files, &mut self.position_deletes),
        };
        *files += 1;
        *rows += file.record_count();
        self.files_size += file.file_size_in_bytes();
    }

    fn operation(&self) -> Operation {
        match (self.data_files, self.equality_delete_files + self.position_delete_files) {
            (_, 0) => Operation::Append,
            (0, _) => Operation::Delete,
            (_, _) => Operation::Overwrite,
        }
    }

    /// In the words of the format; what is nothing is left out.
    fn in_summary(&self) -> impl Iterator<Item = (String, String)> {
        let counts = [
            ("added-data-files", self.data_files),
            ("added-records", self.records),
            ("added-files-size", self.files_size),
            ("added-delete-files", self.equality_delete_files + self.position_delete_files),
            ("added-equality-delete-files", self.equality_delete_files),
            ("added-equality-deletes", self.equality_deletes),
            ("added-position-delete-files", self.position_delete_files),
            ("added-position-deletes", self.position_deletes),
        ];
        counts.into_iter().filter(|(_, n)| *n > 0).map(|(key, n)| (key.to_owned(), n.to_string()))
    }
}

async fn write_manifest(
    storage: &Storage,
    location: &str,
    snapshot: i64,
    (schema, spec): (SchemaRef, PartitionSpecRef),
    is_delete: bool,
    files: Vec<DataFile>,
) -> iceberg::Result<ManifestFile> {
    let output = storage.io().new_output(location)?;
    let builder = ManifestWriterBuilder::new(output, Some(snapshot), schema, spec.as_ref().clone());
    let mut writer = if is_delete { builder.build_v2_deletes() } else { builder.build_v2_data() };
    for file in files {
        writer.add_file(file, INHERITED)?;
    }
    writer.write_manifest_file().await
}

/// How much there is in the table after a snapshot, from what there was before it and what it adds.
fn totals(summary: &HashMap<String, String>, parent: Option<&Summary>) -> HashMap<String, String> {
    let number = |properties: &HashMap<String, String>, key: &str| properties.get(key).map(|v| v.parse::<u64>());
    let mut totals = HashMap::new();
    for (total, added) in [
        ("total-data-files", "added-data-files"),
        ("total-delete-files", "added-delete-files"),
        ("total-records", "added-records"),
        ("total-files-size", "added-files-size"),
        ("total-position-deletes", "added-position-deletes"),
        ("total-equality-deletes", "added-equality-deletes"),
    ] {
        let before = match parent {
            None => 0,
            // A writer that does not count leaves no total for those after it.
            Some(parent) => match number(&parent.additional_properties, total) {
                Some(Ok(before)) => before,
                _ => continue,
            },
        };
        let added = number(summary, added).and_then(|n| n.ok()).unwrap_or(0);
        totals.insert(total.to_owned(), before.saturating_add(added).to_string());
    }
    totals
}

fn new_id(table: &Table) -> i64 {
    loop {
        let (high, low) = Uuid::new_v4().as_u64_pair();
        let id = ((high ^ low) >> 1).cast_signed();
        if table.metadata.snapshot_by_id(id).is_none() {
            return id;
        }
    }
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
