//! How a topic is reached: the options that source and sink share, and what a client of librdkafka needs around it.

use std::collections::BTreeMap;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rdkafka::client::{Client, ClientContext};
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::consumer::ConsumerContext;
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::message::DeliveryResult;
use rdkafka::producer::{BaseProducer, Producer, ProducerContext};
use tokio::task::spawn_blocking;

use crate::error::{ConnectorError, Result};
use crate::options::Options;

pub const CONNECTOR: &str = "kafka";
pub const TOPIC: &str = "topic";
pub const PROPERTIES: &str = "properties.";
/// Stands for all properties where the known options are listed.
pub const ANY_PROPERTY: &str = "properties.*";
const BOOTSTRAP_SERVER: &str = "properties.bootstrap.server";
const BOOTSTRAP_SERVERS: &str = "properties.bootstrap.servers";
/// Brokers may make topics that a producer asks for; a sink does not bring back one that was dropped.
pub const NO_NEW_TOPIC: (&str, &str) = ("allow.auto.create.topics", "false");
/// The longest wait for an answer about topics and offsets.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// A topic and the properties of its clients.
#[derive(Clone, Debug)]
pub struct Connection {
    pub topic: String,
    properties: BTreeMap<String, String>,
}

/// The options in `properties.`, without that, and the others.
pub fn split_properties(options: &BTreeMap<String, String>) -> (BTreeMap<String, String>, BTreeMap<String, String>) {
    let (properties, rest): (BTreeMap<_, _>, BTreeMap<_, _>) =
        options.iter().map(|(k, v)| (k.clone(), v.clone())).partition(|(k, _)| k.starts_with(PROPERTIES));
    (properties.into_iter().map(|(k, v)| (k[PROPERTIES.len()..].to_owned(), v)).collect(), rest)
}

impl Connection {
    /// `options` has `topic`; `reserved` are the properties that are not the user's to set.
    pub fn parse(
        options: &Options<'_>,
        mut properties: BTreeMap<String, String>,
        reserved: &[&str],
    ) -> Result<Connection> {
        let topic = options.get(TOPIC).filter(|t| !t.is_empty());
        let topic = topic.ok_or_else(|| options.missing(TOPIC, "the name of the topic"))?.to_owned();
        let servers = properties.remove("bootstrap.server").or_else(|| properties.get("bootstrap.servers").cloned());
        let servers = servers.filter(|s| !s.trim().is_empty());
        let servers =
            servers.ok_or_else(|| options.missing(BOOTSTRAP_SERVER, "brokers to begin with, 'host:port,…'"))?;
        properties.insert("bootstrap.servers".into(), servers);
        if let Some(property) = properties.keys().find(|p| reserved.contains(&p.as_str())) {
            let reason = "it is set by what the source or sink promises".to_owned();
            return Err(ConnectorError::Property { option: format!("{PROPERTIES}{property}"), reason });
        }
        let connection = Connection { topic, properties };
        connection.config(&[], &[]).create_native_config().map_err(refused)?;
        Ok(connection)
    }

    /// The configuration of a client. `defaults` count where the user says nothing.
    pub fn config(&self, defaults: &[(&str, &str)], fixed: &[(&str, &str)]) -> ClientConfig {
        let mut config = ClientConfig::new();
        for (property, value) in defaults {
            config.set(*property, *value);
        }
        for (property, value) in &self.properties {
            config.set(property, value);
        }
        for (property, value) in fixed {
            config.set(*property, *value);
        }
        config
    }

    /// Whether the user has set the property.
    pub fn sets(&self, property: &str) -> bool {
        self.properties.contains_key(property)
    }

    /// The topic, as in messages.
    pub fn what(&self) -> String {
        format!("topic `{}`", self.topic)
    }

    /// The numbers of the topic's partitions, in order, asked by a client made for that. Blocks.
    pub fn look(&self) -> Result<Vec<i32>> {
        let trouble = Trouble::default();
        let config = self.config(&[], &[NO_NEW_TOPIC]);
        // A producer, for it tells what went wrong in full.
        let client: BaseProducer<Trouble> = config.create_with_context(trouble.clone()).map_err(refused)?;
        partitions(self, client.client()).map_err(|error| {
            client.poll(Duration::from_millis(10));
            self.failed(&error, &trouble)
        })
    }

    /// What a call led to that did not lead to what it should.
    pub fn failed(&self, error: &KafkaError, trouble: &Trouble) -> ConnectorError {
        let what = self.what();
        use RDKafkaErrorCode as Code;
        match error.rdkafka_error_code() {
            Some(Code::UnknownTopic | Code::UnknownTopicOrPartition | Code::UnknownPartition) => {
                ConnectorError::Gone { what }
            }
            Some(
                code @ (Code::TopicAuthorizationFailed
                | Code::GroupAuthorizationFailed
                | Code::ClusterAuthorizationFailed
                | Code::TransactionalIdAuthorizationFailed
                | Code::MessageSizeTooLarge
                | Code::PolicyViolation
                | Code::InvalidRecord),
            ) => ConnectorError::Refused { what, reason: code.to_string() },
            code => {
                let reason = code.map_or_else(|| error.to_string(), |code| code.to_string());
                let reason = match trouble.last() {
                    Some(last) => format!("{reason} ({last})"),
                    None => reason,
                };
                ConnectorError::Unavailable { what, reason }
            }
        }
    }
}

/// The numbers of the topic's partitions, in order. Blocks.
pub fn partitions<C: ClientContext>(connection: &Connection, client: &Client<C>) -> KafkaResult<Vec<i32>> {
    let metadata = client.fetch_metadata(Some(&connection.topic), ANSWER_TIMEOUT)?;
    let unknown = KafkaError::MetadataFetch(RDKafkaErrorCode::UnknownTopic);
    let topic = metadata.topics().iter().find(|t| t.name() == connection.topic).ok_or(unknown.clone())?;
    if let Some(error) = topic.error() {
        return Err(KafkaError::MetadataFetch(error.into()));
    }
    let mut partitions: Vec<i32> = topic.partitions().iter().map(|p| p.id()).collect();
    partitions.sort_unstable();
    if partitions.is_empty() { Err(unknown) } else { Ok(partitions) }
}

/// Runs calls that wait for brokers on a thread for that.
pub async fn blocking<T: Send + 'static>(call: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    joined(spawn_blocking(call).await)
}

/// The outcome of a call on another thread.
pub fn joined<T>(outcome: std::result::Result<Result<T>, tokio::task::JoinError>) -> Result<T> {
    outcome.unwrap_or_else(|error| {
        Err(ConnectorError::Unavailable { what: "a call of librdkafka".into(), reason: error.to_string() })
    })
}

/// The error for properties that librdkafka does not take. Says nothing of their values, which may be secret.
pub fn refused(error: KafkaError) -> ConnectorError {
    match error {
        KafkaError::ClientConfig(_, reason, property, _) => {
            let option = match property.as_str() {
                "bootstrap.servers" => BOOTSTRAP_SERVERS.to_owned(),
                _ => format!("{PROPERTIES}{property}"),
            };
            ConnectorError::Property { option, reason }
        }
        error => ConnectorError::Property { option: ANY_PROPERTY.into(), reason: error.to_string() },
    }
}

/// What librdkafka reports by the way; the last of it explains an error that says little itself.
#[derive(Clone, Debug, Default)]
pub struct Trouble {
    last: Arc<Mutex<Option<String>>>,
}

impl Trouble {
    /// The last report, if there is one.
    pub fn last(&self) -> Option<String> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn note(&self, text: &str) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(text.to_owned());
    }
}

impl ClientContext for Trouble {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        match level {
            RDKafkaLogLevel::Emerg | RDKafkaLogLevel::Alert | RDKafkaLogLevel::Critical | RDKafkaLogLevel::Error => {
                tracing::warn!(facility, message, "librdkafka")
            }
            _ => tracing::debug!(facility, message, "librdkafka"),
        }
    }

    fn error(&self, error: KafkaError, reason: &str) {
        // That all brokers are down follows from what was wrong with the last of them.
        if error.rdkafka_error_code() != Some(RDKafkaErrorCode::AllBrokersDown) {
            self.note(reason);
        }
        tracing::warn!(%error, reason, "librdkafka");
    }
}

impl ConsumerContext for Trouble {}

impl ProducerContext for Trouble {
    type DeliveryOpaque = ();

    fn delivery(&self, _result: &DeliveryResult<'_>, (): ()) {}
}

/// A client that is dropped on a thread of its own, since librdkafka waits for brokers then.
pub struct Elsewhere<T: Send + 'static> {
    client: ManuallyDrop<T>,
}

impl<T: Send + 'static> Elsewhere<T> {
    pub fn new(client: T) -> Elsewhere<T> {
        Elsewhere { client: ManuallyDrop::new(client) }
    }
}

impl<T: Send + 'static> Deref for Elsewhere<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.client
    }
}

impl<T: Send + 'static> Drop for Elsewhere<T> {
    fn drop(&mut self) {
        // SAFETY: the value is taken once, for `drop` runs once and nothing uses it afterwards.
        let client = unsafe { ManuallyDrop::take(&mut self.client) };
        thread::spawn(move || drop(client));
    }
}
