//! Sends messages and waits until they are acknowledged.
//!
//! Memory is bounded by librdkafka's queue: when it is full, sending waits for acknowledgements. An error of a message is
//! the error of all that are sent after it, so that nothing is acknowledged with a gap before it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::DeliveryResult;
use rdkafka::producer::{BaseRecord, ProducerContext, ThreadedProducer};
use tokio::sync::Notify;

use super::client::{Connection, Elsewhere, NO_NEW_TOPIC, Trouble, refused};
use super::encode::Outgoing;
use crate::error::{ConnectorError, Result};

/// Kilobytes of messages that are not acknowledged yet.
const QUEUE_KB_MAX: &str = "65536";
/// How long a message is tried.
const MESSAGE_TIMEOUT_MS: &str = "60000";

/// What became of the messages.
#[derive(Clone, Default)]
pub struct Deliveries {
    shared: Arc<Shared>,
    trouble: Trouble,
}

#[derive(Default)]
struct Shared {
    messages: AtomicUsize,
    bytes: AtomicUsize,
    error: Mutex<Option<KafkaError>>,
    /// Some message was acknowledged or failed.
    changed: Notify,
}

impl ClientContext for Deliveries {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        self.trouble.log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.trouble.error(error, reason);
    }
}

impl ProducerContext for Deliveries {
    /// Bytes of the message.
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, bytes: usize) {
        if let Err((error, _)) = result {
            let mut first = self.shared.error.lock().unwrap_or_else(PoisonError::into_inner);
            first.get_or_insert_with(|| error.clone());
        }
        self.shared.bytes.fetch_sub(bytes, Ordering::AcqRel);
        self.shared.messages.fetch_sub(1, Ordering::AcqRel);
        self.shared.changed.notify_waiters();
    }
}

/// Sends to one topic.
pub struct Producer {
    connection: Connection,
    deliveries: Deliveries,
    pub client: Arc<Elsewhere<ThreadedProducer<Deliveries>>>,
}

impl Producer {
    /// `fixed`: properties beside those that every producer has.
    pub fn new(connection: Connection, defaults: &[(&str, &str)], fixed: &[(&str, &str)]) -> Result<Producer> {
        let deliveries = Deliveries::default();
        let mut all = vec![("queue.buffering.max.kbytes", QUEUE_KB_MAX)];
        if !connection.sets("delivery.timeout.ms") {
            all.push(("message.timeout.ms", MESSAGE_TIMEOUT_MS));
        }
        all.extend(defaults);
        // Keeps the order of messages and doubles none, even when they are sent again.
        let fixed =
            [fixed, &[("enable.idempotence", "true"), ("partitioner", "murmur2_random"), NO_NEW_TOPIC]].concat();
        let client: ThreadedProducer<Deliveries> =
            connection.config(&all, &fixed).create_with_context(deliveries.clone()).map_err(refused)?;
        Ok(Producer { connection, deliveries, client: Arc::new(Elsewhere::new(client)) })
    }

    /// Puts a message into the queue. `false`: it is full, see [`Producer::room`].
    pub fn send(&self, message: Outgoing<'_>) -> Result<bool> {
        self.check()?;
        let bytes = message.key.map_or(0, str::len) + message.value.map_or(0, str::len);
        let record = BaseRecord::with_opaque_to(&self.connection.topic, bytes);
        let record = BaseRecord { key: message.key, payload: message.value, ..record };
        // Counted first, for the acknowledgement may be there before `send` returns.
        let shared = &self.deliveries.shared;
        shared.messages.fetch_add(1, Ordering::AcqRel);
        shared.bytes.fetch_add(bytes, Ordering::AcqRel);
        let Err((error, _)) = self.client.send(record) else { return Ok(true) };
        shared.messages.fetch_sub(1, Ordering::AcqRel);
        shared.bytes.fetch_sub(bytes, Ordering::AcqRel);
        match error.rdkafka_error_code() {
            Some(RDKafkaErrorCode::QueueFull) => Ok(false),
            Some(RDKafkaErrorCode::MessageSizeTooLarge) => {
                let reason = format!("a message has {bytes} bytes, more than `properties.message.max.bytes` allows");
                Err(ConnectorError::Refused { what: self.connection.what(), reason })
            }
            _ => Err(self.failed(&error)),
        }
    }

    /// Waits until some message is acknowledged.
    pub async fn room(&self) -> Result<()> {
        let all = self.deliveries.shared.messages.load(Ordering::Acquire);
        self.wait(|messages| messages == 0 || messages < all).await
    }

    /// Waits until all messages are acknowledged.
    pub async fn acknowledged(&self) -> Result<()> {
        self.wait(|messages| messages == 0).await
    }

    /// Bytes of messages that are not acknowledged.
    pub fn memory_bytes(&self) -> usize {
        self.deliveries.shared.bytes.load(Ordering::Acquire)
    }

    /// The error of a call.
    pub fn failed(&self, error: &KafkaError) -> ConnectorError {
        self.connection.failed(error, &self.deliveries.trouble)
    }

    async fn wait(&self, enough: impl Fn(usize) -> bool) -> Result<()> {
        loop {
            // Made before the count is read, so that no news are missed in between.
            let changed = self.deliveries.shared.changed.notified();
            self.check()?;
            if enough(self.deliveries.shared.messages.load(Ordering::Acquire)) {
                return self.check();
            }
            changed.await;
        }
    }

    fn check(&self) -> Result<()> {
        let error = self.deliveries.shared.error.lock().unwrap_or_else(PoisonError::into_inner);
        error.as_ref().map_or(Ok(()), |error| Err(self.failed(error)))
    }
}
