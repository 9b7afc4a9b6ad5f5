//! A topic as a destination.

use async_trait::async_trait;
use weir_common::Generation;

use super::client::{ANY_PROPERTY, CONNECTOR, Connection, TOPIC, blocking, split_properties};
use super::encode::{Encoder, Envelope};
use super::transaction::TransactionalWriter;
use super::writer::{Sending, Writer};
use crate::error::{ConnectorError, Result};
use crate::options::Options;
use crate::sink::{Committer, Protocol, Sink, SinkSpec, SinkWriter};

const TRANSACTIONAL: &str = "transactional";
const TRANSACTIONAL_ID: &str = "transactional.id";
const KNOWN: [&str; 5] = [TOPIC, "properties.bootstrap.server", ANY_PROPERTY, TRANSACTIONAL, TRANSACTIONAL_ID];
/// The order of messages and the meaning of an acknowledgement hang on these.
const RESERVED: [&str; 8] = [
    "acks",
    "request.required.acks",
    "enable.idempotence",
    "partitioner",
    "allow.auto.create.topics",
    "transactional.id",
    "group.id",
    "isolation.level",
];

/// See the module.
pub struct KafkaSink {
    connection: Connection,
    envelope: Envelope,
    key_columns: Vec<usize>,
    /// Names the transactions and their position; `None`: there are none.
    transactional_id: Option<String>,
}

impl KafkaSink {
    /// Checks the options. Asks no broker.
    pub fn open(spec: &SinkSpec) -> Result<KafkaSink> {
        let (properties, rest) = split_properties(&spec.options);
        let options = Options::new(CONNECTOR, &rest, &KNOWN)?;
        let connection = Connection::parse(&options, properties, &RESERVED)?;
        let envelope = parse_envelope(spec, &options)?;
        let transactional = options.flag(TRANSACTIONAL, false)?;
        let transactional_id = match options.get(TRANSACTIONAL_ID) {
            Some(_) if !transactional => {
                return Err(options.invalid(TRANSACTIONAL_ID, "it goes with transactional = 'true'"));
            }
            Some("") => return Err(options.invalid(TRANSACTIONAL_ID, "it is a name that no other sink has")),
            id => transactional.then(|| id.map_or_else(|| format!("weir-sink-{}", spec.sink.0), str::to_owned)),
        };
        Ok(KafkaSink { connection, envelope, key_columns: spec.primary_key.clone(), transactional_id })
    }
}

fn parse_envelope(spec: &SinkSpec, options: &Options<'_>) -> Result<Envelope> {
    let (format, encode) = spec.format.as_ref().ok_or(ConnectorError::MissingFormat { connector: CONNECTOR })?;
    let unsupported = |expected| ConnectorError::UnsupportedFormat {
        connector: CONNECTOR,
        format: format.clone(),
        encode: encode.clone(),
        expected,
    };
    let envelope = match format.to_ascii_lowercase().as_str() {
        _ if !encode.eq_ignore_ascii_case("json") => None,
        "plain" => Some(Envelope::Plain),
        "upsert" => Some(Envelope::Upsert),
        "debezium" => Some(Envelope::Debezium),
        _ => None,
    };
    match envelope {
        None => Err(unsupported("it is FORMAT PLAIN, UPSERT or DEBEZIUM with ENCODE JSON")),
        Some(Envelope::Plain) if !spec.append_only => {
            Err(unsupported("there are updates and deletes, which need FORMAT UPSERT or DEBEZIUM"))
        }
        Some(Envelope::Upsert | Envelope::Debezium) if spec.primary_key.is_empty() => {
            Err(options.missing("primary_key", "the columns of the key that messages have"))
        }
        Some(envelope) => Ok(envelope),
    }
}

#[async_trait]
impl Sink for KafkaSink {
    fn protocol(&self) -> Protocol {
        if self.transactional_id.is_some() { Protocol::Transactional } else { Protocol::AtLeastOnce }
    }

    /// The topic must be there. What it is made with is not for a sink to guess.
    async fn prepare(&self) -> Result<()> {
        let connection = self.connection.clone();
        blocking(move || connection.look()).await.map(|_| ())
    }

    async fn writer(&self, generation: Generation, _index: usize) -> Result<Box<dyn SinkWriter>> {
        let connection = self.connection.clone();
        let encoder = Encoder::new(self.envelope, self.key_columns.clone());
        Ok(match &self.transactional_id {
            Some(id) => Box::new(TransactionalWriter::new(connection, encoder, id, generation)?),
            None => Box::new(Writer::new(Sending::new(connection, &[], &[], encoder)?)),
        })
    }

    async fn committer(&self) -> Result<Box<dyn Committer>> {
        Err(ConnectorError::Refused { what: self.connection.what(), reason: "it has no commit in two phases".into() })
    }
}
