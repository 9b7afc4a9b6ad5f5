//! The options of a nexmark source, and its columns.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use weir_common::types::SqlType;

use super::reader::NexmarkSource;
use super::sequence::EventType;
use crate::error::{ConnectorError, Result, listed};
use crate::options::Options;
use crate::source::Source;

const TABLE_TYPE: &str = "nexmark.table.type";
const SPLIT_NUM: &str = "nexmark.split.num";
const EVENT_NUM: &str = "nexmark.event.num";
const MIN_EVENT_GAP: &str = "nexmark.min.event.gap.in.ns";
const MAX_CHUNK_SIZE: &str = "nexmark.max.chunk.size";

/// Splits, unless the option says otherwise. Never taken from the machine: the meaning of an offset depends on it.
const SPLITS: u64 = 4;
const SPLITS_MAX: u64 = 1_024;
/// The pace of the events' own time, 10,000 a second.
const GAP_NS: u64 = 100_000;

/// What a nexmark source reads.
#[derive(Clone, Debug)]
pub struct NexmarkConfig {
    pub(super) event_type: EventType,
    pub(super) splits: u64,
    /// Events of all types together; `None`: without end.
    pub(super) events: Option<u64>,
    /// Real time between two events; 0: none.
    pub(super) gap_ns: u64,
    pub(super) batch_rows_max: usize,
}

impl NexmarkConfig {
    pub(crate) fn parse(
        options: &BTreeMap<String, String>,
        format: Option<&(String, String)>,
    ) -> Result<NexmarkConfig> {
        if let Some((format, encode)) = format {
            let native = |f: &str| ["plain", "native"].iter().any(|n| f.eq_ignore_ascii_case(n));
            if !native(format) || !encode.eq_ignore_ascii_case("native") {
                let (format, encode) = (format.clone(), encode.clone());
                let expected = "it makes its rows itself and takes no FORMAT";
                return Err(ConnectorError::UnsupportedFormat { connector: "nexmark", format, encode, expected });
            }
        }
        let known = [TABLE_TYPE, SPLIT_NUM, EVENT_NUM, MIN_EVENT_GAP, MAX_CHUNK_SIZE];
        let options = Options::new("nexmark", options, &known)?;
        let event_type = match options.get(TABLE_TYPE).map(str::to_ascii_lowercase).as_deref() {
            Some("person") => EventType::Person,
            Some("auction") => EventType::Auction,
            Some("bid") => EventType::Bid,
            Some(_) => return Err(options.invalid(TABLE_TYPE, "it is 'person', 'auction' or 'bid'")),
            None => {
                let hint = "'person', 'auction' or 'bid'; make a source for each type, they read the same events";
                return Err(options.missing(TABLE_TYPE, hint));
            }
        };
        let events = options.parse(EVENT_NUM, -1, |n| *n >= -1i64, "a number of events, or -1 for no end")?;
        Ok(NexmarkConfig {
            event_type,
            splits: options.parse(SPLIT_NUM, SPLITS, |n| (1..=SPLITS_MAX).contains(n), "a number from 1 to 1024")?,
            events: u64::try_from(events).ok(),
            gap_ns: options.parse(MIN_EVENT_GAP, GAP_NS, |_| true, "a number of nanoseconds, or 0 for no gap")?,
            batch_rows_max: options.parse(MAX_CHUNK_SIZE, usize::MAX, |n| *n > 0, "a number of rows above 0")?,
        })
    }

    pub(crate) fn validate(&self, columns: Option<&SchemaRef>) -> Result<SchemaRef> {
        match columns {
            Some(columns) => self.places(columns).map(|_| columns.clone()),
            None => Ok(Arc::new(self.schema())),
        }
    }

    pub(crate) fn open(self, columns: &SchemaRef) -> Result<Box<dyn Source>> {
        let places = self.places(columns)?;
        Ok(Box::new(NexmarkSource::new(self, columns.clone(), places)))
    }

    /// All columns of the type.
    fn schema(&self) -> Schema {
        let timestamp = DataType::Timestamp(TimeUnit::Microsecond, None);
        let (bigint, varchar) = (DataType::Int64, DataType::Utf8);
        let columns: Vec<(&str, &DataType)> = match self.event_type {
            EventType::Person => vec![
                ("id", &bigint),
                ("name", &varchar),
                ("email_address", &varchar),
                ("credit_card", &varchar),
                ("city", &varchar),
                ("state", &varchar),
                ("date_time", &timestamp),
                ("extra", &varchar),
            ],
            EventType::Auction => vec![
                ("id", &bigint),
                ("item_name", &varchar),
                ("description", &varchar),
                ("initial_bid", &bigint),
                ("reserve", &bigint),
                ("date_time", &timestamp),
                ("expires", &timestamp),
                ("seller", &bigint),
                ("category", &bigint),
                ("extra", &varchar),
            ],
            EventType::Bid => vec![
                ("auction", &bigint),
                ("bidder", &bigint),
                ("price", &bigint),
                ("channel", &varchar),
                ("url", &varchar),
                ("date_time", &timestamp),
                ("extra", &varchar),
            ],
        };
        Schema::new(columns.into_iter().map(|(n, t)| Field::new(n, t.clone(), true)).collect::<Vec<_>>())
    }

    /// Where the columns stand among all columns of the type.
    fn places(&self, columns: &SchemaRef) -> Result<Vec<usize>> {
        let all = self.schema();
        let what = || format!("nexmark's {:?}", self.event_type).to_lowercase();
        let name = |t: &DataType| SqlType::from_arrow(t).map_or_else(|| t.to_string(), |t| t.to_string());
        columns
            .fields()
            .iter()
            .map(|column| {
                let place = all.fields().iter().position(|f| f.name().eq_ignore_ascii_case(column.name()));
                let place = place.ok_or_else(|| ConnectorError::UnknownColumn {
                    what: what(),
                    column: column.name().clone(),
                    known: listed(all.fields().iter().map(|f| f.name().as_str())),
                })?;
                let actual = all.field(place).data_type();
                if actual == column.data_type() {
                    return Ok(place);
                }
                Err(ConnectorError::ColumnType {
                    what: what(),
                    column: column.name().clone(),
                    actual: name(actual),
                    declared: name(column.data_type()),
                })
            })
            .collect()
    }
}
