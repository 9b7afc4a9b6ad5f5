//! Reads one partition.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use rdkafka::consumer::Consumer;
use rdkafka::consumer::base_consumer::PartitionQueue;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::Message;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use tokio::task::{JoinHandle, spawn_blocking};

use super::client::{Elsewhere, Trouble, joined};
use super::config::Start;
use super::decode::Decoder;
use super::source::Consumption;
use crate::error::{ConnectorError, Result};
use crate::source::{BadRecord, SourceBatch, SplitReader};

/// Messages of a batch have at most so many bytes together, the last one aside.
const BATCH_BYTES_MAX: usize = 16 << 20;

/// A reader of a partition. What it has read is behind `offset`; what is fetched ahead is librdkafka's.
pub struct PartitionReader {
    consumption: Arc<Consumption>,
    partition: i32,
    /// Of the next message; `None` until the first one is known.
    offset: Option<i64>,
    /// The look for the first offset.
    looking: Option<JoinHandle<Result<Option<i64>>>>,
    /// Messages as they come, once it is known where to begin.
    queue: Option<Elsewhere<PartitionQueue<Trouble>>>,
    decoder: Decoder,
    /// Met after messages that had to be given first.
    error: Option<ConnectorError>,
}

impl PartitionReader {
    pub fn new(
        consumption: Arc<Consumption>,
        partition: i32,
        offset: Option<i64>,
        decoder: Decoder,
    ) -> PartitionReader {
        PartitionReader { consumption, partition, offset, looking: None, queue: None, decoder, error: None }
    }

    fn place(&self, offset: Offset) -> Result<TopicPartitionList> {
        let mut place = TopicPartitionList::new();
        let added = place.add_partition_offset(&self.consumption.connection.topic, self.partition, offset);
        added.map(|()| place).map_err(|e| self.consumption.failed(&e))
    }

    /// Finds where to begin. A place that another look may not find again is given as a batch without rows.
    async fn begin(&mut self) -> Result<Option<SourceBatch>> {
        if self.offset.is_some() || self.consumption.start == Start::Earliest {
            self.fetch(self.offset)?;
            return Ok(None);
        }
        let (consumption, partition) = (self.consumption.clone(), self.partition);
        let looking = self.looking.get_or_insert_with(|| spawn_blocking(move || consumption.first_offset(partition)));
        let outcome = looking.await;
        self.looking = None;
        let first = joined(outcome)?;
        self.fetch(first)?;
        self.offset = first;
        let found = |offset: i64| {
            let batch = self.decoder.finish()?;
            Ok(SourceBatch { batch, offset: offset.to_string(), bad: vec![] })
        };
        first.map(found).transpose()
    }

    /// Has messages fetched from the offset, or from the first one there is.
    fn fetch(&mut self, offset: Option<i64>) -> Result<()> {
        let consumer = &**self.consumption.consumer;
        // Before the partition is assigned, or else some of its messages could come in the queue of the consumer.
        let queue = consumer.split_partition_queue(&self.consumption.connection.topic, self.partition);
        let queue = queue.ok_or_else(|| ConnectorError::UnknownSplit { split: self.partition.to_string() })?;
        let place = self.place(offset.map_or(Offset::Beginning, Offset::Offset))?;
        consumer.incremental_assign(&place).map_err(|e| self.consumption.failed(&e))?;
        self.queue = Some(Elsewhere::new(queue));
        Ok(())
    }

    /// Takes what was fetched.
    fn take(&mut self, max_rows: usize) -> Result<Option<SourceBatch>> {
        let Some(queue) = &self.queue else { return Ok(None) };
        let (mut records, mut bytes) = (0, 0);
        let mut bad = vec![];
        while records < max_rows && bytes < BATCH_BYTES_MAX {
            match queue.poll(Duration::ZERO) {
                None => break,
                Some(Err(error)) => {
                    self.error = Some(self.explain(&error));
                    break;
                }
                Some(Ok(message)) => {
                    records += 1;
                    bytes += message.key_len() + message.payload_len();
                    if let Err(problem) = self.decoder.push(&message) {
                        let place = format!("partition {}, offset {}", self.partition, message.offset());
                        bad.push(BadRecord::new(problem, message.payload().unwrap_or_default(), place));
                    }
                    self.offset = Some(message.offset() + 1);
                }
            }
        }
        match self.offset {
            Some(offset) if records > 0 => {
                Ok(Some(SourceBatch { batch: self.decoder.finish()?, offset: offset.to_string(), bad }))
            }
            _ => self.error.take().map_or(Ok(None), Err),
        }
    }

    /// The consumer's queue has no messages, but what went wrong.
    fn serve(&self) -> Result<()> {
        match self.consumption.consumer.poll(Duration::ZERO) {
            Some(Err(error @ KafkaError::MessageConsumptionFatal(_))) => Err(self.consumption.failed(&error)),
            // librdkafka goes on trying; `Trouble` has told it.
            Some(Err(_)) => Ok(()),
            Some(Ok(message)) => {
                let reason = format!("a message of partition {} came in no queue of a partition", message.partition());
                Err(ConnectorError::Unavailable { what: self.consumption.connection.what(), reason })
            }
            None => Ok(()),
        }
    }

    fn explain(&self, error: &KafkaError) -> ConnectorError {
        match (error.rdkafka_error_code(), self.offset) {
            (Some(RDKafkaErrorCode::AutoOffsetReset | RDKafkaErrorCode::OffsetOutOfRange), Some(offset)) => {
                let what = self.consumption.connection.what();
                ConnectorError::Gone { what: format!("offset {offset} of partition {} of {what}", self.partition) }
            }
            _ => self.consumption.failed(error),
        }
    }
}

#[async_trait]
impl SplitReader for PartitionReader {
    async fn next(&mut self, max_rows: usize) -> Result<Option<SourceBatch>> {
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        if self.queue.is_none()
            && let Some(batch) = self.begin().await?
        {
            return Ok(Some(batch));
        }
        self.serve()?;
        self.take(max_rows)
    }

    /// More messages may always come.
    fn is_finished(&self) -> bool {
        false
    }
}

impl Drop for PartitionReader {
    /// So that another reader of the partition can be made.
    fn drop(&mut self) {
        if self.queue.is_some()
            && let Ok(place) = self.place(Offset::Invalid)
            && let Err(error) = self.consumption.consumer.incremental_unassign(&place)
        {
            tracing::debug!(%error, "a partition is not given back");
        }
    }
}
