//! A directory as a [`Sink`].

use std::path::PathBuf;

use async_trait::async_trait;
use weir_common::Generation;

use super::committer::FileCommitter;
use super::config::FileSinkConfig;
use super::disk::{self, off_runtime};
use super::layout::Layout;
use super::writer::FileWriter;
use crate::error::{ConnectorError, Result};
use crate::sink::{Committer, Protocol, Sink, SinkSpec, SinkWriter};

/// The sink that options describe. Does no I/O.
pub fn open(spec: &SinkSpec) -> Result<Box<dyn Sink>> {
    let config = FileSinkConfig::parse(spec)?;
    let layout = Layout::new(PathBuf::from(&config.path), config.id.clone());
    Ok(Box::new(FileSink { spec: spec.clone(), config, layout }))
}

struct FileSink {
    spec: SinkSpec,
    config: FileSinkConfig,
    layout: Layout,
}

#[async_trait]
impl Sink for FileSink {
    fn protocol(&self) -> Protocol {
        Protocol::TwoPhase
    }

    async fn prepare(&self) -> Result<()> {
        let root = self.layout.root().to_owned();
        if root.exists() && !root.is_dir() {
            return Err(ConnectorError::Mismatch { reason: format!("{} is not a directory", root.display()) });
        }
        off_runtime(move || disk::create_directory(&root)).await
    }

    async fn writer(&self, generation: Generation, index: usize) -> Result<Box<dyn SinkWriter>> {
        let directory = self.layout.staged_by(generation);
        off_runtime(move || disk::create_directory(&directory)).await?;
        let prefix = format!("weir-{}-{generation}-{index}", self.spec.sink);
        Ok(Box::new(FileWriter::new(self.layout.clone(), &self.config, &self.spec, generation, &prefix)?))
    }

    async fn committer(&self) -> Result<Box<dyn Committer>> {
        Ok(Box::new(FileCommitter::new(self.layout.clone())))
    }
}
