//! Makes commits visible: a swap of table metadata.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use iceberg::{TableIdent, TableUpdate};
use weir_common::{Generation, JobId};

use super::catalog::{Catalog, Compares, Table};
use super::clean::clean;
use super::ledger::{self, Ledger};
use super::part::parts;
use super::snapshot::NewSnapshot;
use crate::error::{ConnectorError, Result};
use crate::sink::{Commit, Committer};

/// How often a commit is tried when others write to the table too.
const ATTEMPTS_MAX: u32 = 20;
/// The pause after the first attempt; it grows with each one.
const PAUSE: Duration = Duration::from_millis(10);

/// The committer of a sink.
pub struct IcebergCommitter {
    catalog: Arc<dyn Catalog>,
    table: TableIdent,
    /// Who we are, once we have taken the sink over.
    generation: Option<Generation>,
}

impl IcebergCommitter {
    pub fn new(catalog: Arc<dyn Catalog>, table: TableIdent) -> IcebergCommitter {
        IcebergCommitter { catalog, table, generation: None }
    }

    async fn load(&self) -> Result<Table> {
        let table = self.catalog.load(&self.table).await?;
        table.ok_or_else(|| ConnectorError::Gone { what: format!("table {}", self.table) })
    }

    fn contended(&self) -> ConnectorError {
        ConnectorError::Refused {
            what: format!("table {}", self.table),
            reason: format!("it was changed by others during each of {ATTEMPTS_MAX} attempts to commit"),
        }
    }
}

#[async_trait]
impl Committer for IcebergCommitter {
    async fn fence(&mut self, sink: JobId, generation: Generation) -> Result<()> {
        for attempt in 1..=ATTEMPTS_MAX {
            let base = self.load().await?;
            let ledger = Ledger::of(&base.metadata, sink);
            ledger.check_generation(generation)?;
            ledger.check_history()?;
            let mut changes = match self.catalog.compares() {
                Compares::Metadata => Vec::new(),
                // Whoever has loaded the table before now finds another current snapshot.
                Compares::CurrentSnapshot => {
                    let summary = [("weir.sink", sink.to_string()), ("weir.generation", generation.to_string())];
                    let summary = summary.map(|(key, value)| (key.to_owned(), value)).into();
                    let name = format!("weir-{sink}-{generation}");
                    NewSnapshot::begin(&base, Vec::new(), &name, summary).await?.after(&base).await?
                }
            };
            changes.push(TableUpdate::SetProperties { updates: ledger::taken_over(sink, generation) });
            if self.catalog.swap(&self.table, &base, changes).await? {
                self.generation = Some(generation);
                return Ok(());
            }
            tokio::time::sleep(PAUSE * attempt).await;
        }
        Err(self.contended())
    }

    async fn commit(&mut self, commit: &Commit) -> Result<()> {
        let stamp = &commit.stamp;
        // A commit left behind by an older generation is carried out by us, in our name.
        let generation = self.generation.unwrap_or(stamp.generation);
        let parts = parts(commit)?;
        let mut snapshot = None;
        for attempt in 1..=ATTEMPTS_MAX {
            let base = self.load().await?;
            let ledger = Ledger::of(&base.metadata, stamp.sink);
            if ledger.holds(stamp)? {
                return Ok(());
            }
            ledger.check_generation(generation)?;
            let files = parts.iter().map(|p| p.files(&base.metadata)).collect::<Result<Vec<_>>>()?;
            let mut changes = Vec::new();
            if files.iter().any(|part| !part.files.is_empty()) {
                let new = match &mut snapshot {
                    Some(new) => new,
                    None => {
                        let name = format!("weir-{}-{generation}", stamp.sink);
                        snapshot.insert(NewSnapshot::begin(&base, files, &name, ledger::summary(stamp)).await?)
                    }
                };
                changes = new.after(&base).await?;
            }
            let properties = ledger::committed(stamp, generation, snapshot.as_ref().map(NewSnapshot::id));
            changes.push(TableUpdate::SetProperties { updates: properties });
            if self.catalog.swap(&self.table, &base, changes).await? {
                return Ok(());
            }
            tokio::time::sleep(PAUSE * attempt).await;
        }
        // Manifests stay behind, as after an error: a swap that was given up may have succeeded. Cleaning looks.
        Err(self.contended())
    }

    async fn is_committed(&mut self, commit: &Commit) -> Result<bool> {
        let table = self.load().await?;
        // A look at the uuid: what another table of the same name holds is no answer.
        for part in parts(commit)? {
            part.files(&table.metadata)?;
        }
        Ledger::of(&table.metadata, commit.stamp.sink).holds(&commit.stamp)
    }

    async fn is_intact(&mut self, commit: &Commit) -> Result<bool> {
        let storage = self.load().await?.storage;
        for location in parts(commit)?.iter().flat_map(|part| &part.locations) {
            if !storage.exists(location).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn discard(&mut self, commit: &Commit) -> Result<()> {
        let storage = self.load().await?.storage;
        for location in parts(commit)?.iter().flat_map(|part| &part.locations) {
            storage.delete(location).await?;
        }
        Ok(())
    }

    async fn clean(&mut self, sink: JobId, generation: Generation) -> Result<u64> {
        clean(&self.load().await?, sink, generation).await
    }
}
