//! The source and the readers of its splits.

use std::time::Duration;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use tokio::time::{Instant, sleep_until};

use super::config::NexmarkConfig;
use super::sequence::{EventType, Sequence};
use super::{auction, bid, person};
use crate::error::{ConnectorError, Result};
use crate::source::{Source, SourceBatch, SplitId, SplitReader};

/// At a pace, a batch holds the events of at least this time.
const BATCH_TIME: Duration = Duration::from_millis(10);
/// No split gives more rows, so that the numbers and times of its events fit 64 bits.
const ROWS_MAX: u64 = 1 << 44;

/// A share of the events in each split.
pub struct NexmarkSource {
    config: NexmarkConfig,
    schema: SchemaRef,
    /// Where the columns of `schema` stand among all columns of the type.
    places: Vec<usize>,
}

impl NexmarkSource {
    pub fn new(config: NexmarkConfig, schema: SchemaRef, places: Vec<usize>) -> NexmarkSource {
        NexmarkSource { config, schema, places }
    }
}

#[async_trait]
impl Source for NexmarkSource {
    async fn splits(&mut self) -> Result<Vec<SplitId>> {
        Ok((0..self.config.splits).map(|split| split.to_string()).collect())
    }

    fn reader(&mut self, split: &str, offset: Option<&str>) -> Result<Box<dyn SplitReader>> {
        let config = &self.config;
        let number = split.parse().ok().filter(|s| *s < config.splits);
        let number = number.ok_or_else(|| ConnectorError::UnknownSplit { split: split.to_owned() })?;
        let sequence = Sequence::new(config.event_type, number, config.splits);
        let rows = match offset {
            None => 0,
            Some(offset) => {
                let rows = offset.parse().ok().filter(|rows| *rows <= ROWS_MAX);
                rows.ok_or_else(|| ConnectorError::InvalidOffset { split: split.into(), offset: offset.into() })?
            }
        };
        Ok(Box::new(NexmarkReader {
            event_type: config.event_type,
            sequence,
            schema: self.schema.clone(),
            places: self.places.clone(),
            rows,
            rows_end: config.events.map_or(ROWS_MAX, |events| sequence.rows_before(events).min(ROWS_MAX)),
            batch_rows_max: config.batch_rows_max,
            pace: (config.gap_ns > 0).then(|| Pace { gap_ns: config.gap_ns, started: None, resumed: Instant::now() }),
        }))
    }
}

/// The events of one split.
struct NexmarkReader {
    event_type: EventType,
    sequence: Sequence,
    schema: SchemaRef,
    places: Vec<usize>,
    /// Rows given so far; the offset.
    rows: u64,
    rows_end: u64,
    batch_rows_max: usize,
    pace: Option<Pace>,
}

/// Holds events back until their time has come.
struct Pace {
    gap_ns: u64,
    /// The first event that this reader gives, and when it does.
    started: Option<(u64, Instant)>,
    /// Not before this instant comes the next batch.
    resumed: Instant,
}

impl Pace {
    /// The event before which all are due.
    fn due(&mut self, next_event: u64, now: Instant) -> u64 {
        let (first, start) = *self.started.get_or_insert((next_event, now));
        let passed = now.duration_since(start).as_nanos() / u128::from(self.gap_ns);
        first + u64::try_from(passed).unwrap_or(u64::MAX - first)
    }
}

impl NexmarkReader {
    /// The row before which all are due.
    async fn rows_due(&mut self) -> u64 {
        let Some(pace) = &mut self.pace else { return self.rows_end };
        sleep_until(pace.resumed).await;
        let now = Instant::now();
        pace.resumed = now + BATCH_TIME;
        let next_event = self.sequence.events_at(self.rows).next().map_or(0, |event| event.number());
        self.sequence.rows_before(pace.due(next_event, now)).clamp(self.rows, self.rows_end)
    }

    fn generate(&self, rows: usize) -> Result<RecordBatch> {
        let events = self.sequence.events_at(self.rows);
        let columns = match self.event_type {
            EventType::Person => person::generate(events, rows, &self.places),
            EventType::Auction => auction::generate(events, rows, &self.places),
            EventType::Bid => bid::generate(events, rows, &self.places),
        };
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        Ok(RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)?)
    }
}

#[async_trait]
impl SplitReader for NexmarkReader {
    async fn next(&mut self, max_rows: usize) -> Result<Option<SourceBatch>> {
        if self.is_finished() {
            return Ok(None);
        }
        // The only point to wait at, and nothing is changed before it.
        let due = self.rows_due().await;
        let rows = (due - self.rows).min(max_rows.min(self.batch_rows_max) as u64);
        if rows == 0 {
            return Ok(None);
        }
        let batch = self.generate(rows as usize)?;
        self.rows += rows;
        Ok(Some(SourceBatch { batch, offset: self.rows.to_string(), bad: vec![] }))
    }

    fn is_finished(&self) -> bool {
        self.rows >= self.rows_end
    }
}
