//! Writes each commit in a transaction, together with its stamp.
//!
//! ```text
//! transaction: messages of the commit | position of the group: offset = epoch, metadata = generation and stamp
//! ```
//!
//! The position stands where a consumer group keeps its offsets, at partition 0 of the sink's topic: brokers make it
//! visible with the messages or not at all. Transactional id and group have the same name.
//!
//! A writer takes the place of an older one in three steps: it looks whether a newer generation was there, takes the
//! transactional id, by which brokers end what the older one has begun and refuse it from then on, and commits its own
//! generation. An older generation that comes later finds that, and leaves the id alone.
//!
//! Brokers forget the position of a group that has not moved for `offsets.retention.minutes`, by default seven days.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::producer::Producer as _;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use weir_common::{Chunk, Generation};

use super::client::{ANSWER_TIMEOUT, Connection, Elsewhere, Trouble, blocking, refused};
use super::encode::Encoder;
use super::writer::Sending;
use crate::error::{ConnectorError, Result};
use crate::sink::{SinkWriter, Stamp};

/// A transaction that takes longer is ended by the brokers. What they allow by default.
const TRANSACTION_TIMEOUT_MS: &str = "900000";
/// How long the steps of a commit are tried, each.
const STEP_TIMEOUT: Duration = Duration::from_secs(60);

/// What is committed with the messages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Position {
    /// The newest that has written here.
    generation: Generation,
    /// The newest commit; `None` before the first.
    stamp: Option<Stamp>,
}

/// See the module.
pub struct TransactionalWriter {
    sending: Sending,
    store: Arc<PositionStore>,
    generation: Generation,
    /// A transaction has begun.
    open: bool,
}

/// Where the position is.
struct PositionStore {
    connection: Connection,
    consumer: Elsewhere<BaseConsumer<Trouble>>,
    trouble: Trouble,
}

impl TransactionalWriter {
    pub fn new(
        connection: Connection,
        encoder: Encoder,
        id: &str,
        generation: Generation,
    ) -> Result<TransactionalWriter> {
        let defaults = [("transaction.timeout.ms", TRANSACTION_TIMEOUT_MS)];
        let sending = Sending::new(connection.clone(), &defaults, &[("transactional.id", id)], encoder)?;
        let store = Arc::new(PositionStore::new(connection, id)?);
        Ok(TransactionalWriter { sending, store, generation, open: false })
    }

    /// Begins a transaction if none has begun.
    fn begin(&mut self) -> Result<()> {
        if !self.open {
            self.sending.producer.client.begin_transaction().map_err(|e| self.sending.producer.failed(&e))?;
            self.open = true;
        }
        Ok(())
    }

    /// Ends the transaction with this position.
    async fn commit(&mut self, position: Position) -> Result<()> {
        let (client, store) = (self.sending.producer.client.clone(), self.store.clone());
        let ours = self.generation;
        let commit = move || {
            let offsets = store.offsets(&position)?;
            let group = store.consumer.group_metadata().ok_or_else(|| store.lost("it has no group"))?;
            let stored = attempt(|| client.send_offsets_to_transaction(&offsets, &group, ANSWER_TIMEOUT));
            let outcome = stored.and_then(|()| attempt(|| client.commit_transaction(STEP_TIMEOUT)));
            outcome.map_err(|error| {
                if needs_abort(&error)
                    && let Err(error) = client.abort_transaction(ANSWER_TIMEOUT)
                {
                    tracing::debug!(%error, "a transaction is left to be ended by the next writer");
                }
                store.explain(&error, ours)
            })
        };
        blocking(commit).await?;
        self.open = false;
        Ok(())
    }
}

#[async_trait]
impl SinkWriter for TransactionalWriter {
    async fn resume(&mut self) -> Result<Option<Stamp>> {
        let (client, store) = (self.sending.producer.client.clone(), self.store.clone());
        let ours = self.generation;
        let take_over = move || {
            store.position(ours)?;
            attempt(|| client.init_transactions(STEP_TIMEOUT)).map_err(|error| store.explain(&error, ours))?;
            // Again, for only now an older writer can commit no more.
            store.position(ours)
        };
        let stamp = blocking(take_over).await?.stamp;
        self.begin()?;
        self.commit(Position { generation: ours, stamp: stamp.clone() }).await?;
        Ok(stamp)
    }

    async fn write(&mut self, chunk: Chunk) -> Result<()> {
        self.begin()?;
        self.sending.write(&chunk).await
    }

    /// Commits even when nothing was written, so that the stamp outside is the newest.
    async fn flush(&mut self, stamp: &Stamp) -> Result<Option<Value>> {
        self.begin()?;
        self.sending.finish().await?;
        self.commit(Position { generation: self.generation, stamp: Some(stamp.clone()) }).await?;
        Ok(None)
    }

    fn memory_bytes(&self) -> usize {
        self.sending.memory_bytes()
    }
}

impl PositionStore {
    fn new(connection: Connection, group: &str) -> Result<PositionStore> {
        let trouble = Trouble::default();
        let fixed = [("group.id", group), ("enable.auto.commit", "false"), ("isolation.level", "read_committed")];
        let consumer = connection.config(&[], &fixed).create_with_context(trouble.clone()).map_err(refused)?;
        Ok(PositionStore { connection, consumer: Elsewhere::new(consumer), trouble })
    }

    /// The position outside, unless a newer generation was there. Blocks.
    fn position(&self, ours: Generation) -> Result<Position> {
        let position = self.read()?;
        if position.generation > ours {
            return Err(ConnectorError::Fenced { ours: ours.0, newer: position.generation.0 });
        }
        Ok(position)
    }

    fn read(&self) -> Result<Position> {
        let failed = |error: KafkaError| self.connection.failed(&error, &self.trouble);
        let mut asked = TopicPartitionList::new();
        asked.add_partition(&self.connection.topic, 0);
        let found = self.consumer.committed_offsets(asked, ANSWER_TIMEOUT).map_err(failed)?;
        let Some(place) = found.find_partition(&self.connection.topic, 0) else { return Ok(Position::default()) };
        place.error().map_err(failed)?;
        match (place.offset(), place.metadata()) {
            (Offset::Offset(_), metadata) => {
                serde_json::from_str(metadata).map_err(|_| self.lost("the position of its group is not of a sink"))
            }
            _ => Ok(Position::default()),
        }
    }

    fn offsets(&self, position: &Position) -> Result<TopicPartitionList> {
        let epoch = position.stamp.as_ref().map_or(0, |s| s.epoch.0);
        let offset = Offset::Offset(i64::try_from(epoch).unwrap_or(i64::MAX));
        let text = serde_json::to_string(position).map_err(|_| self.lost("the position cannot be written"))?;
        let mut offsets = TopicPartitionList::new();
        let mut place = offsets.add_partition(&self.connection.topic, 0);
        place.set_metadata(text);
        place.set_offset(offset).map_err(|e| self.connection.failed(&e, &self.trouble))?;
        Ok(offsets)
    }

    fn lost(&self, reason: &str) -> ConnectorError {
        ConnectorError::Unavailable { what: self.connection.what(), reason: reason.to_owned() }
    }

    /// The error of a transaction. A producer that another one has replaced is fenced if that was a newer generation;
    /// or else it was an older one that came late, and trying again with a new generation helps. Blocks.
    fn explain(&self, error: &KafkaError, ours: Generation) -> ConnectorError {
        use RDKafkaErrorCode as Code;
        let replaced = matches!(
            error.rdkafka_error_code(),
            Some(Code::Fenced | Code::ProducerFenced | Code::InvalidProducerEpoch | Code::InvalidProducerIdMapping)
        );
        match self.position(ours) {
            Err(fenced @ ConnectorError::Fenced { .. }) if replaced => fenced,
            _ => self.connection.failed(error, &self.trouble),
        }
    }
}

/// Calls again as long as librdkafka says that this helps.
fn attempt(call: impl Fn() -> KafkaResult<()>) -> KafkaResult<()> {
    let begun = Instant::now();
    loop {
        match call() {
            Err(KafkaError::Transaction(error)) if error.is_retriable() && begun.elapsed() < STEP_TIMEOUT => {}
            outcome => return outcome,
        }
    }
}

fn needs_abort(error: &KafkaError) -> bool {
    matches!(error, KafkaError::Transaction(error) if error.txn_requires_abort())
}
