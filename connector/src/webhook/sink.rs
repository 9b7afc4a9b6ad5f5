//! A web server as a [`Sink`].

use async_trait::async_trait;
use weir_common::Generation;

use super::config::WebhookConfig;
use super::writer::WebhookWriter;
use crate::error::{ConnectorError, Result};
use crate::sink::{Committer, Protocol, Sink, SinkSpec, SinkWriter};

/// The sink that options describe. Does no I/O.
pub fn open(spec: &SinkSpec) -> Result<Box<dyn Sink>> {
    Ok(Box::new(WebhookSink { config: WebhookConfig::parse(spec)?, spec: spec.clone() }))
}

struct WebhookSink {
    config: WebhookConfig,
    spec: SinkSpec,
}

#[async_trait]
impl Sink for WebhookSink {
    fn protocol(&self) -> Protocol {
        Protocol::AtLeastOnce
    }

    /// Whether a receiver is there shows with the first change: there is no request that asks without sending one.
    async fn prepare(&self) -> Result<()> {
        Ok(())
    }

    async fn writer(&self, generation: Generation, index: usize) -> Result<Box<dyn SinkWriter>> {
        Ok(Box::new(WebhookWriter::new(&self.config, &self.spec, generation, index)?))
    }

    async fn committer(&self) -> Result<Box<dyn Committer>> {
        let what = "a committer".to_owned();
        Err(ConnectorError::Refused { what, reason: "what a webhook is sent is visible at once".into() })
    }
}
