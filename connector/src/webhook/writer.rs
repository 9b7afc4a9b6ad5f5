//! Sends changes, and learns whether they were taken.

use async_trait::async_trait;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Client, Response, StatusCode};
use weir_common::{Chunk, Generation};

use super::batch::{Batch, Op, ops};
use super::config::WebhookConfig;
use crate::error::{ConnectorError, Result};
use crate::sink::{SinkSpec, SinkWriter, Stamp};

/// A request is sent when it has this size, however few changes that are.
const REQUEST_BYTES: usize = 4 << 20;
/// As much of an answer stands in the error.
const ANSWER_BYTES: usize = 300;

/// The writer of a sink.
pub struct WebhookWriter {
    client: Client,
    config: WebhookConfig,
    primary_key: Vec<usize>,
    /// Of every request.
    headers: HeaderMap,
    batch: Batch,
    /// Requests sent.
    sequence: u64,
    /// Whether requests of the commit were sent that has not ended.
    within_commit: bool,
}

impl WebhookWriter {
    pub fn new(config: &WebhookConfig, spec: &SinkSpec, generation: Generation, index: usize) -> Result<WebhookWriter> {
        let client = Client::builder().timeout(config.timeout).redirect(Policy::none()).build();
        let client = client.map_err(|e| ConnectorError::Unavailable { what: config.shown(), reason: causes(&e) })?;
        let mut headers = config.headers.clone();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert("weir-sink", u64::from(spec.sink.0).into());
        headers.insert("weir-generation", generation.0.into());
        headers.insert("weir-writer", index.into());
        Ok(WebhookWriter {
            client,
            config: config.clone(),
            primary_key: spec.primary_key.clone(),
            headers,
            batch: Batch::default(),
            sequence: 0,
            within_commit: false,
        })
    }

    /// Sends the batch; `ends`: the commit that ends with it.
    async fn send(&mut self, ends: Option<&Stamp>) -> Result<()> {
        self.sequence += 1;
        let mut headers = self.headers.clone();
        headers.insert("weir-sequence", self.sequence.into());
        if let Some(stamp) = ends {
            let commit = stamp.commit.parse::<HeaderValue>().map_err(|e| self.unavailable(e.to_string()))?;
            headers.insert(HeaderName::from_static("weir-commit"), commit);
            headers.insert(HeaderName::from_static("weir-epoch"), stamp.epoch.0.into());
        }
        self.within_commit = ends.is_none();
        let request = self.client.post(self.config.url.clone()).headers(headers).body(self.batch.take());
        let response = request.send().await.map_err(|e| self.unavailable(causes(&e)))?;
        let status = response.status();
        if status.is_success() {
            return Ok(());
        }
        let reason = format!("{status}: {}", start(response).await);
        Err(match is_passing(status) {
            true => self.unavailable(reason),
            false => ConnectorError::Refused { what: self.config.shown(), reason },
        })
    }

    fn unavailable(&self, reason: String) -> ConnectorError {
        ConnectorError::Unavailable { what: self.config.shown(), reason }
    }
}

fn is_passing(status: StatusCode) -> bool {
    status.is_server_error()
        || matches!(status, StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS)
}

/// The start of an answer; what cannot be read of it is left out, for the status is known.
async fn start(mut response: Response) -> String {
    let mut bytes = vec![];
    while bytes.len() < ANSWER_BYTES
        && let Ok(Some(more)) = response.chunk().await
    {
        bytes.extend_from_slice(&more);
    }
    bytes.truncate(ANSWER_BYTES);
    String::from_utf8_lossy(&bytes).trim().to_owned()
}

/// An error with its causes. Its address is left out: it may hold a secret.
fn causes(error: &reqwest::Error) -> String {
    let what = match error {
        e if e.is_timeout() => "no answer in time",
        e if e.is_connect() => "no connection",
        _ => "the request failed",
    };
    let mut told = what.to_owned();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        told.push_str(": ");
        told.push_str(&error.to_string());
        cause = error.source();
    }
    told
}

#[async_trait]
impl SinkWriter for WebhookWriter {
    async fn write(&mut self, chunk: Chunk) -> Result<()> {
        for (row, op) in ops(&chunk, &self.primary_key).into_iter().enumerate() {
            self.batch.push(op, chunk.batch(), row);
            let full = self.batch.rows() >= self.config.batch_rows || self.batch.len() >= REQUEST_BYTES;
            if full && op != Op::UpdateBefore {
                self.send(None).await?;
            }
        }
        Ok(())
    }

    async fn flush(&mut self, stamp: &Stamp) -> Result<Option<serde_json::Value>> {
        if self.within_commit || self.batch.rows() > 0 {
            self.send(Some(stamp)).await?;
        }
        Ok(None)
    }

    fn memory_bytes(&self) -> usize {
        self.batch.memory_bytes()
    }
}
