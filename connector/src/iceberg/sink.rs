//! An Iceberg table as a [`Sink`].

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use async_trait::async_trait;
use tokio::sync::OnceCell;
use weir_common::Generation;

use super::catalog::{self, Catalog};
use super::committer::IcebergCommitter;
use super::config::IcebergConfig;
use super::target;
use super::writer::IcebergWriter;
use crate::error::{ConnectorError, Result};
use crate::sink::{Committer, Protocol, Sink, SinkSpec, SinkWriter};

/// The sink that options describe. Does no I/O.
///
/// An upsert sink needs a primary key, and all changes of a key in the same writer.
pub fn open(spec: &SinkSpec) -> Result<Box<dyn Sink>> {
    let config = IcebergConfig::parse(&spec.options)?;
    if let Some((format, encode)) = &spec.format {
        let (format, encode) = (format.clone(), encode.clone());
        let expected = "an Iceberg table has no FORMAT";
        return Err(ConnectorError::UnsupportedFormat { connector: "iceberg", format, encode, expected });
    }
    if !spec.append_only && spec.primary_key.is_empty() {
        let expected = "the columns that identify a row, as rows are updated and deleted";
        return Err(ConnectorError::MissingOption { connector: "iceberg", option: "primary_key", expected });
    }
    let open_bytes = Arc::new(AtomicUsize::new(0));
    Ok(Box::new(IcebergSink { spec: spec.clone(), config, catalog: OnceCell::new(), open_bytes }))
}

struct IcebergSink {
    spec: SinkSpec,
    config: IcebergConfig,
    catalog: OnceCell<Arc<dyn Catalog>>,
    /// Bytes of memory that the open files of all writers take.
    open_bytes: Arc<AtomicUsize>,
}

impl IcebergSink {
    async fn catalog(&self) -> Result<&Arc<dyn Catalog>> {
        self.catalog.get_or_try_init(|| catalog::connect(&self.config)).await
    }
}

#[async_trait]
impl Sink for IcebergSink {
    fn protocol(&self) -> Protocol {
        Protocol::TwoPhase
    }

    async fn prepare(&self) -> Result<()> {
        let catalog = self.catalog().await?;
        if self.config.create_table {
            target::create(catalog.as_ref(), &self.config, &self.spec).await?;
        }
        target::open(catalog.as_ref(), &self.config, &self.spec).await.map(|_| ())
    }

    async fn writer(&self, generation: Generation, index: usize) -> Result<Box<dyn SinkWriter>> {
        let target = target::open(self.catalog().await?.as_ref(), &self.config, &self.spec).await?;
        let name = format!("weir-{}-{generation}-{index}", self.spec.sink);
        let open_bytes = self.open_bytes.clone();
        Ok(Box::new(IcebergWriter::new(target, &self.config, &self.spec, name, open_bytes)?))
    }

    async fn committer(&self) -> Result<Box<dyn Committer>> {
        let catalog = self.catalog().await?.clone();
        Ok(Box::new(IcebergCommitter::new(catalog, self.config.table.clone())))
    }
}
