//! The options of a source.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use weir_common::types::SqlType;

use super::client::{ANY_PROPERTY, CONNECTOR, Connection, TOPIC, split_properties};
use super::decode::Decoder;
use super::source::KafkaSource;
use crate::error::{ConnectorError, Result};
use crate::files::csv::{CsvDialect, parse_delimiter};
use crate::options::Options;
use crate::source::Source;

const STARTUP_MODE: &str = "scan.startup.mode";
const STARTUP_MILLIS: &str = "scan.startup.timestamp.millis";
const WITHOUT_HEADER: &str = "without_header";
const DELIMITER: &str = "delimiter";
const INCLUDE_KEY: &str = "include.key";
const INCLUDE_OFFSET: &str = "include.offset";
const INCLUDE_PARTITION: &str = "include.partition";
const INCLUDE_TIMESTAMP: &str = "include.timestamp";
const KNOWN: [&str; 11] = [
    TOPIC,
    "properties.bootstrap.server",
    ANY_PROPERTY,
    STARTUP_MODE,
    STARTUP_MILLIS,
    WITHOUT_HEADER,
    DELIMITER,
    INCLUDE_KEY,
    INCLUDE_OFFSET,
    INCLUDE_PARTITION,
    INCLUDE_TIMESTAMP,
];
/// Offsets are in the engine's own commit, nothing uncommitted is read, and a gap is an error.
const RESERVED: [&str; 6] = [
    "enable.auto.commit",
    "auto.commit.enable",
    "enable.auto.offset.store",
    "auto.offset.reset",
    "enable.partition.eof",
    "isolation.level",
];
/// The column of ENCODE BYTES when none is declared.
const BYTES_COLUMN: &str = "data";

/// What is in the value of a message.
#[derive(Clone, Copy, Debug)]
pub enum Encode {
    Json,
    Csv(CsvDialect),
    /// One column takes all of it.
    Bytes,
}

/// Where a partition is begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    Earliest,
    /// With what comes from now on.
    Latest,
    /// With the first message of this time, in milliseconds since 1970.
    Timestamp(i64),
}

/// A part of a message that can be a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Include {
    Key,
    Value,
    Offset,
    Partition,
    Timestamp,
}

impl Include {
    /// As in messages.
    pub fn what(self) -> &'static str {
        match self {
            Include::Key => "the key of a message",
            Include::Value => "the value of a message",
            Include::Offset => "the offset of a message",
            Include::Partition => "the partition of a message",
            Include::Timestamp => "the time of a message",
        }
    }

    /// Whether it is bytes by itself.
    pub fn is_bytes(self) -> bool {
        matches!(self, Include::Key | Include::Value)
    }

    /// Whether a column of the type can be filled from its text.
    pub fn fits(self, data_type: &DataType) -> bool {
        match self {
            Include::Key => SqlType::from_arrow(data_type).is_some(),
            Include::Value => *data_type == DataType::Utf8,
            Include::Offset => matches!(data_type, DataType::Int64 | DataType::Utf8),
            Include::Partition => matches!(data_type, DataType::Int32 | DataType::Int64 | DataType::Utf8),
            Include::Timestamp => {
                matches!(data_type, DataType::Timestamp(TimeUnit::Microsecond, _) | DataType::Int64)
            }
        }
    }

    /// The type when none is declared.
    fn sql_type(self) -> SqlType {
        match self {
            Include::Key | Include::Value => SqlType::Bytea,
            Include::Offset => SqlType::BigInt,
            Include::Partition => SqlType::Integer,
            Include::Timestamp => SqlType::TimestampTz,
        }
    }
}

/// The columns that are not filled by reading the value.
#[derive(Clone, Debug)]
pub struct SourceColumns {
    included: Vec<(Include, String)>,
}

impl SourceColumns {
    /// The part that fills the column, or `None` if it is found in the value.
    pub fn part(&self, column: &str, encode: Encode) -> Option<Include> {
        let included = self.included.iter().find(|(_, name)| name == column).map(|(part, _)| *part);
        included.or(matches!(encode, Encode::Bytes).then_some(Include::Value))
    }
}

/// Which topic is read, and how.
#[derive(Clone, Debug)]
pub struct KafkaConfig {
    pub(super) connection: Connection,
    pub(super) start: Start,
    pub(super) encode: Encode,
    pub(super) columns: SourceColumns,
}

impl KafkaConfig {
    pub(crate) fn parse(options: &BTreeMap<String, String>, format: Option<&(String, String)>) -> Result<KafkaConfig> {
        let (properties, rest) = split_properties(options);
        let options = Options::new(CONNECTOR, &rest, &KNOWN)?;
        let connection = Connection::parse(&options, properties, &RESERVED)?;
        let (format, encode) = format.ok_or(ConnectorError::MissingFormat { connector: CONNECTOR })?;
        let dialect = CsvDialect { delimiter: parse_delimiter(&options, DELIMITER)?, header: false };
        let encode = match encode.to_ascii_lowercase().as_str() {
            "json" if format.eq_ignore_ascii_case("plain") => Encode::Json,
            "csv" if format.eq_ignore_ascii_case("plain") => Encode::Csv(dialect),
            "bytes" if format.eq_ignore_ascii_case("plain") => Encode::Bytes,
            _ => {
                let (format, encode) = (format.clone(), encode.clone());
                let expected = "it is FORMAT PLAIN ENCODE JSON, CSV or BYTES";
                return Err(ConnectorError::UnsupportedFormat { connector: CONNECTOR, format, encode, expected });
            }
        };
        for option in [WITHOUT_HEADER, DELIMITER] {
            if options.get(option).is_some() && !matches!(encode, Encode::Csv(_)) {
                return Err(options.invalid(option, "it is for ENCODE CSV"));
            }
        }
        if !options.flag(WITHOUT_HEADER, true)? {
            return Err(options.invalid(WITHOUT_HEADER, "messages have no header, so columns go by position"));
        }
        let start = parse_start(&options)?;
        Ok(KafkaConfig { connection, start, encode, columns: parse_included(&options)? })
    }

    pub(crate) fn reads_by_position(&self) -> bool {
        matches!(self.encode, Encode::Csv(_))
    }

    pub(crate) fn open(self, columns: &SchemaRef) -> Result<Box<dyn Source>> {
        Decoder::new(&self.columns, self.encode, columns.clone())?;
        Ok(Box::new(KafkaSource::new(self, columns.clone())))
    }

    /// Declared columns, and those included that are not declared. Asks no broker.
    pub(crate) fn validate(&self, columns: Option<&SchemaRef>) -> Result<SchemaRef> {
        let mut fields: Vec<Arc<Field>> = match (columns, self.encode) {
            (Some(columns), _) => columns.fields().to_vec(),
            (None, Encode::Bytes) => vec![Arc::new(Field::new(BYTES_COLUMN, DataType::Binary, true))],
            (None, _) => {
                let reason = "a topic does not tell what is in its messages".to_owned();
                return Err(ConnectorError::ColumnsUnknown { reason });
            }
        };
        for (part, name) in &self.columns.included {
            if !fields.iter().any(|f| f.name() == name) {
                fields.push(Arc::new(Field::new(name, part.sql_type().to_arrow(), true)));
            }
        }
        let is_value = |field: &&Arc<Field>| self.columns.part(field.name(), self.encode) == Some(Include::Value);
        let values = fields.iter().filter(is_value).count();
        if matches!(self.encode, Encode::Bytes) && values != 1 {
            let reason = format!("ENCODE BYTES fills one column beside those included, not {values}");
            return Err(ConnectorError::ColumnsUnknown { reason });
        }
        let schema = Arc::new(Schema::new(fields));
        Decoder::new(&self.columns, self.encode, schema.clone())?;
        Ok(schema)
    }
}

fn parse_start(options: &Options<'_>) -> Result<Start> {
    let start = match options.get(STARTUP_MODE).map(str::to_ascii_lowercase).as_deref() {
        None | Some("earliest") => Start::Earliest,
        Some("latest") => Start::Latest,
        Some("timestamp") if options.get(STARTUP_MILLIS).is_none() => {
            return Err(options.missing(STARTUP_MILLIS, "milliseconds since 1970"));
        }
        Some("timestamp") => {
            Start::Timestamp(options.parse(STARTUP_MILLIS, 0, |m| *m >= 0, "milliseconds since 1970")?)
        }
        Some(_) => return Err(options.invalid(STARTUP_MODE, "it is 'earliest', 'latest' or 'timestamp'")),
    };
    if options.get(STARTUP_MILLIS).is_some() && !matches!(start, Start::Timestamp(_)) {
        return Err(options.invalid(STARTUP_MILLIS, "it goes with scan.startup.mode = 'timestamp'"));
    }
    Ok(start)
}

fn parse_included(options: &Options<'_>) -> Result<SourceColumns> {
    let all = [
        (Include::Key, INCLUDE_KEY),
        (Include::Offset, INCLUDE_OFFSET),
        (Include::Partition, INCLUDE_PARTITION),
        (Include::Timestamp, INCLUDE_TIMESTAMP),
    ];
    let mut included: Vec<(Include, String)> = vec![];
    for (part, option) in all {
        let Some(name) = options.get(option) else { continue };
        if name.is_empty() {
            return Err(options.invalid(option, "it is the name of a column"));
        }
        if included.iter().any(|(_, n)| n == name) {
            return Err(options.invalid(option, "the column is filled with another part already"));
        }
        included.push((part, name.to_owned()));
    }
    Ok(SourceColumns { included })
}
