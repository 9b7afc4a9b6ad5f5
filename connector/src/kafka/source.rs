//! The partitions of a topic as splits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use tokio::task::{JoinHandle, spawn_blocking};

use super::client::{ANSWER_TIMEOUT, Connection, Elsewhere, Trouble, blocking, joined, partitions, refused};
use super::config::{KafkaConfig, Start};
use super::decode::Decoder;
use super::reader::PartitionReader;
use crate::error::{ConnectorError, Result};
use crate::source::{Source, SplitId, SplitReader};

/// The group that a consumer must name. Nothing is committed for it and nobody joins it.
const GROUP: &str = "weir";
/// Kilobytes that are fetched ahead, for each partition.
const FETCHED_KB_MAX: &str = "4096";

/// One consumer, with a queue for each partition that is read.
pub struct Consumption {
    pub connection: Connection,
    pub consumer: Arc<Elsewhere<Arc<BaseConsumer<Trouble>>>>,
    pub trouble: Trouble,
    pub start: Start,
    /// Some partition is read from a stored offset: what has none is new since then.
    pub resumed: AtomicBool,
}

impl Consumption {
    fn new(config: &KafkaConfig) -> Result<Consumption> {
        let connection = config.connection.clone();
        let trouble = Trouble::default();
        let defaults = [("group.id", GROUP), ("queued.max.messages.kbytes", FETCHED_KB_MAX)];
        let fixed = [
            ("enable.auto.commit", "false"),
            ("enable.auto.offset.store", "false"),
            ("auto.offset.reset", "error"),
            ("isolation.level", "read_committed"),
        ];
        let consumer: BaseConsumer<Trouble> =
            connection.config(&defaults, &fixed).create_with_context(trouble.clone()).map_err(refused)?;
        Ok(Consumption {
            connection,
            consumer: Arc::new(Elsewhere::new(Arc::new(consumer))),
            trouble,
            start: config.start,
            resumed: AtomicBool::new(false),
        })
    }

    /// The error of a call.
    pub fn failed(&self, error: &KafkaError) -> ConnectorError {
        self.connection.failed(error, &self.trouble)
    }

    fn partitions(&self) -> Result<Vec<i32>> {
        partitions(&self.connection, self.consumer.client()).map_err(|error| self.failed(&error))
    }

    /// The offset to begin a partition at, or `None` for the first one there is. Blocks.
    pub fn first_offset(&self, partition: i32) -> Result<Option<i64>> {
        let topic = &self.connection.topic;
        let end = || {
            let watermarks = self.consumer.fetch_watermarks(topic, partition, ANSWER_TIMEOUT);
            watermarks.map(|(_, end)| Some(end)).map_err(|e| self.failed(&e))
        };
        match self.start {
            // What came before the partition was known would be lost.
            Start::Latest if self.resumed.load(Ordering::Relaxed) => Ok(None),
            Start::Earliest => Ok(None),
            Start::Latest => end(),
            Start::Timestamp(millis) => {
                let mut times = TopicPartitionList::new();
                let added = times.add_partition_offset(topic, partition, Offset::Offset(millis));
                let found = added.and_then(|()| self.consumer.offsets_for_times(times, ANSWER_TIMEOUT));
                let found = found.map_err(|e| self.failed(&e))?;
                match found.find_partition(topic, partition).map(|p| (p.error(), p.offset())) {
                    Some((Err(error), _)) => Err(self.failed(&error)),
                    Some((Ok(()), Offset::Offset(offset))) => Ok(Some(offset)),
                    // Nothing is that young.
                    _ => end(),
                }
            }
        }
    }
}

/// A topic that is read.
pub struct KafkaSource {
    config: KafkaConfig,
    schema: SchemaRef,
    consumption: Option<Arc<Consumption>>,
    known: Vec<i32>,
    /// A look for new partitions, so that readers need not wait for it.
    looking: Option<JoinHandle<Result<Vec<i32>>>>,
}

impl KafkaSource {
    pub fn new(config: KafkaConfig, schema: SchemaRef) -> KafkaSource {
        KafkaSource { config, schema, consumption: None, known: vec![], looking: None }
    }

    fn consumption(&mut self) -> Result<Arc<Consumption>> {
        let consumption = match self.consumption.take() {
            Some(consumption) => consumption,
            None => Arc::new(Consumption::new(&self.config)?),
        };
        Ok(self.consumption.insert(consumption).clone())
    }
}

#[async_trait]
impl Source for KafkaSource {
    /// Waits for the brokers the first time only; later, new partitions are known one call after they were looked for.
    async fn splits(&mut self) -> Result<Vec<SplitId>> {
        let consumption = self.consumption()?;
        if self.known.is_empty() {
            self.known = blocking(move || consumption.connection.look()).await?;
        } else if let Some(looking) = self.looking.take_if(|l| l.is_finished()) {
            match joined(looking.await) {
                Ok(partitions) => self.known = partitions,
                Err(error @ ConnectorError::Gone { .. }) => return Err(error),
                // librdkafka goes on trying, for the readers as well.
                Err(error) => tracing::warn!(%error, "partitions cannot be listed"),
            }
        } else if self.looking.is_none() {
            self.looking = Some(spawn_blocking(move || consumption.partitions()));
        }
        Ok(self.known.iter().map(i32::to_string).collect())
    }

    fn reader(&mut self, split: &str, offset: Option<&str>) -> Result<Box<dyn SplitReader>> {
        let partition = split.parse().ok().filter(|p| *p >= 0);
        let partition = partition.ok_or_else(|| ConnectorError::UnknownSplit { split: split.to_owned() })?;
        let invalid = |offset: &str| ConnectorError::InvalidOffset { split: split.into(), offset: offset.into() };
        let parse = |offset: &str| offset.parse().ok().filter(|o: &i64| *o >= 0).ok_or_else(|| invalid(offset));
        let offset = offset.map(parse).transpose()?;
        let consumption = self.consumption()?;
        if offset.is_some() {
            consumption.resumed.store(true, Ordering::Relaxed);
        }
        let decoder = Decoder::new(&self.config.columns, self.config.encode, self.schema.clone())?;
        Ok(Box::new(PartitionReader::new(consumption, partition, offset, decoder)))
    }
}
