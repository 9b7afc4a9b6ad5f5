//! From the options of a source or sink to the source or sink.

use std::collections::BTreeMap;

use arrow::datatypes::SchemaRef;

use crate::error::{ConnectorError, Result, listed};
use crate::file_sink;
use crate::files::FilesConfig;
use crate::iceberg;
use crate::kafka::{KafkaConfig, KafkaSink};
use crate::nexmark::NexmarkConfig;
use crate::postgres;
use crate::sink::{Sink, SinkSpec};
use crate::sink_settings;
use crate::source::Source;
use crate::webhook;

/// The connectors by the names that `connector = '…'` takes.
const CONNECTORS: [&str; 5] = ["nexmark", "posix_fs", "file", "fs", "kafka"];

/// What the options describe.
enum Connector {
    Nexmark(NexmarkConfig),
    Files(FilesConfig),
    Kafka(KafkaConfig),
}

impl Connector {
    fn parse(options: &BTreeMap<String, String>, format: Option<&(String, String)>) -> Result<Connector> {
        let known = || listed(CONNECTORS);
        let name = options.get("connector").ok_or_else(|| ConnectorError::MissingConnector { known: known() })?;
        match name.trim().to_ascii_lowercase().as_str() {
            "nexmark" => Ok(Connector::Nexmark(NexmarkConfig::parse(options, format)?)),
            "posix_fs" | "file" | "fs" => Ok(Connector::Files(FilesConfig::parse(options, format)?)),
            "kafka" => Ok(Connector::Kafka(KafkaConfig::parse(options, format)?)),
            _ => Err(ConnectorError::UnknownConnector { name: name.clone(), known: known() }),
        }
    }
}

/// The source that the options describe, giving these columns: a subset of the declared ones will do, and costs less,
/// unless the source [reads by position](reads_by_position). Keys of the options are in lower case.
pub fn open(
    options: &BTreeMap<String, String>,
    format: Option<&(String, String)>,
    columns: &SchemaRef,
) -> Result<Box<dyn Source>> {
    match Connector::parse(options, format)? {
        Connector::Nexmark(config) => config.open(columns),
        Connector::Files(config) => config.open(columns),
        Connector::Kafka(config) => config.open(columns),
    }
}

/// Checks what a source is created with. The columns come back as declared; when none were declared, those that the
/// connector has or finds in the data.
pub fn validate(
    options: &BTreeMap<String, String>,
    format: Option<&(String, String)>,
    columns: Option<&SchemaRef>,
) -> Result<SchemaRef> {
    match Connector::parse(options, format)? {
        Connector::Nexmark(config) => config.validate(columns),
        Connector::Files(config) => config.validate(columns),
        Connector::Kafka(config) => config.validate(columns),
    }
}

/// Whether columns are told apart by where they stand and not by name, so that [`open`] needs all declared columns in
/// their order: CSV without a header.
pub fn reads_by_position(options: &BTreeMap<String, String>, format: Option<&(String, String)>) -> Result<bool> {
    Ok(match Connector::parse(options, format)? {
        Connector::Nexmark(_) => false,
        Connector::Files(config) => config.reads_by_position(),
        Connector::Kafka(config) => config.reads_by_position(),
    })
}

/// The connectors of sinks by the names that `connector = '…'` takes, beside `blackhole`, which no delivery is needed for.
const SINK_CONNECTORS: [&str; 7] = ["iceberg", "kafka", "postgres", "fs", "posix_fs", "file", "webhook"];

/// The destination that a sink's options describe: no input or output yet. Options that all sinks share are left out for it.
pub fn open_sink(spec: &SinkSpec) -> Result<Box<dyn Sink>> {
    let known = || listed(SINK_CONNECTORS);
    let name = spec.options.get("connector").ok_or_else(|| ConnectorError::MissingConnector { known: known() })?;
    let own = SinkSpec { options: sink_settings::of_destination(&spec.options), ..spec.clone() };
    match name.trim().to_ascii_lowercase().as_str() {
        "iceberg" => iceberg::open(&own),
        "kafka" => Ok(Box::new(KafkaSink::open(&own)?)),
        "postgres" => postgres::open(&own),
        "fs" | "posix_fs" | "file" => file_sink::open(&own),
        "webhook" => webhook::open(&own),
        _ => Err(ConnectorError::UnknownConnector { name: name.clone(), known: known() }),
    }
}
