//! A table of PostgreSQL as a [`Sink`].

use async_trait::async_trait;
use weir_common::Generation;

use super::config::PostgresConfig;
use super::offsets::Offsets;
use super::session::connect;
use super::target;
use super::writer::PostgresWriter;
use crate::error::{ConnectorError, Result};
use crate::sink::{Committer, Protocol, Sink, SinkSpec, SinkWriter};

/// The sink that options describe. Does no I/O.
pub fn open(spec: &SinkSpec) -> Result<Box<dyn Sink>> {
    let config = PostgresConfig::parse(spec)?;
    target::check_types(spec)?;
    Ok(Box::new(PostgresSink { spec: spec.clone(), config }))
}

struct PostgresSink {
    spec: SinkSpec,
    config: PostgresConfig,
}

#[async_trait]
impl Sink for PostgresSink {
    fn protocol(&self) -> Protocol {
        Protocol::Transactional
    }

    async fn prepare(&self) -> Result<()> {
        let client = connect(&self.config, None).await?;
        target::check(&client, &self.config, &self.spec).await?;
        Offsets::new(&self.config, self.spec.sink).create(&client).await
    }

    async fn writer(&self, generation: Generation, _index: usize) -> Result<Box<dyn SinkWriter>> {
        Ok(Box::new(PostgresWriter::new(self.config.clone(), &self.spec, generation)))
    }

    async fn committer(&self) -> Result<Box<dyn Committer>> {
        let what = "a committer".to_owned();
        Err(ConnectorError::Refused { what, reason: "a writer to PostgreSQL commits itself".into() })
    }
}
