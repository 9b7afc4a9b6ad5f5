//! Sends rows as messages.

use async_trait::async_trait;
use serde_json::Value;
use weir_common::Chunk;

use super::client::Connection;
use super::encode::{Encoder, Outgoing};
use super::producer::Producer;
use crate::error::Result;
use crate::sink::{SinkWriter, Stamp};

/// Rows on their way.
pub struct Sending {
    pub producer: Producer,
    encoder: Encoder,
    /// Messages of one row for which the queue had no room, key and value.
    waiting: Vec<(Option<String>, Option<String>)>,
}

impl Sending {
    /// `defaults` and `fixed` are properties of the producer.
    pub fn new(
        connection: Connection,
        defaults: &[(&str, &str)],
        fixed: &[(&str, &str)],
        encoder: Encoder,
    ) -> Result<Sending> {
        Ok(Sending { producer: Producer::new(connection, defaults, fixed)?, encoder, waiting: vec![] })
    }

    pub async fn write(&mut self, chunk: &Chunk) -> Result<()> {
        for row in 0..chunk.len() {
            let Sending { producer, encoder, waiting } = self;
            encoder.push(chunk, row, &mut |message| send(producer, waiting, message))?;
            self.send_waiting().await?;
        }
        Ok(())
    }

    /// Everything that was written is acknowledged afterwards.
    pub async fn finish(&mut self) -> Result<()> {
        let Sending { producer, encoder, waiting } = self;
        encoder.finish(&mut |message| send(producer, waiting, message))?;
        self.send_waiting().await?;
        self.producer.acknowledged().await
    }

    pub fn memory_bytes(&self) -> usize {
        self.producer.memory_bytes() + self.encoder.memory_bytes()
    }

    async fn send_waiting(&mut self) -> Result<()> {
        for (key, value) in std::mem::take(&mut self.waiting) {
            while !self.producer.send(Outgoing { key: key.as_deref(), value: value.as_deref() })? {
                self.producer.room().await?;
            }
        }
        Ok(())
    }
}

/// Sends a message, or keeps it if there is no room for it or one before it.
fn send(producer: &Producer, waiting: &mut Vec<(Option<String>, Option<String>)>, message: Outgoing<'_>) -> Result<()> {
    if !waiting.is_empty() || !producer.send(message)? {
        waiting.push((message.key.map(str::to_owned), message.value.map(str::to_owned)));
    }
    Ok(())
}

/// Writes at least once: what is acknowledged is visible, and was so before.
pub struct Writer {
    sending: Sending,
}

impl Writer {
    pub fn new(sending: Sending) -> Writer {
        Writer { sending }
    }
}

#[async_trait]
impl SinkWriter for Writer {
    async fn write(&mut self, chunk: Chunk) -> Result<()> {
        self.sending.write(&chunk).await
    }

    async fn flush(&mut self, _stamp: &Stamp) -> Result<Option<Value>> {
        self.sending.finish().await.map(|()| None)
    }

    fn memory_bytes(&self) -> usize {
        self.sending.memory_bytes()
    }
}
