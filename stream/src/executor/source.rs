//! Reads a source of the outside world.
//!
//! State     `offsets`: `split | offset | next row id`, one row per split that was read.
//! Output    inserts; the last column is the row id.
//! Invariant rows up to the stored offset of a split, and no others, are in the epochs that are committed. Row ids count the
//!           rows of a split, so a row that is read again after a crash gets its old id.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
use weir_common::chunk::CHUNK_ROWS;
use weir_common::{Chunk, TableDef, TableId, Vnode, plan};
use weir_connector::{Source as Connector, SourceBatch, SplitReader};
use weir_storage::{ScanRange, StateTable, Uncommitted};

use crate::Result;
use crate::courtesy::Courtesy;
use crate::driver::{Backfill, Reader};
use crate::job::JobStats;
use crate::message::{Barrier, Output};
use crate::rate_limit::{Allowance, RateLimit};

/// How often the connector is asked for new splits.
const DISCOVERY_INTERVAL: Duration = Duration::from_secs(1);
/// How long a reader waits when no split had rows.
const IDLE_PAUSE: Duration = Duration::from_millis(20);
/// Row ids of one split are below this; the number of the split is above it.
const SPLIT_SHIFT: u32 = 44;

/// See the module.
pub struct Source {
    connector: Box<dyn Connector>,
    splits: BTreeMap<String, Split>,
    /// Names of the splits, in the order in which they take turns.
    turns: Vec<String>,
    turn: usize,
    discovered: Option<Instant>,
    offsets: StateTable,
    uncommitted: Arc<Uncommitted>,
    output: SchemaRef,
    stats: Arc<JobStats>,
    allowance: Allowance,
    courtesy: Arc<Courtesy>,
}

struct Split {
    /// `None` for a split that was read before and that the connector does not list (any more).
    reader: Option<Box<dyn SplitReader>>,
    offset: Option<String>,
    next_row_id: i64,
    /// Moved since the last barrier.
    moved: bool,
}

/// The table of a source's offsets.
pub fn offsets_table(id: TableId) -> TableDef {
    let schema = Schema::new(vec![
        Field::new("split", DataType::Utf8, false),
        Field::new("offset", DataType::Utf8, true),
        Field::new("next_row_id", DataType::Int64, false),
    ]);
    TableDef::ascending(id, schema, &[0], &[])
}

impl Source {
    /// Continues where the offsets table says. `output` is the connector's columns and the row id.
    pub async fn open(
        plan: &plan::Source,
        output: SchemaRef,
        mut offsets: StateTable,
        uncommitted: Arc<Uncommitted>,
        stats: Arc<JobStats>,
        limit: RateLimit,
        courtesy: Arc<Courtesy>,
    ) -> Result<Source> {
        let connector = weir_connector::open(&plan.options, plan.format.as_ref(), &plan.columns)?;
        let stored = offsets.scan(&[ScanRange::prefix(&Vnode(0).prefix())]).await?.rows;
        let names = stored.column(0).as_string::<i32>();
        let positions = stored.column(1).as_string::<i32>();
        let row_ids = stored.column(2).as_primitive::<Int64Type>();
        let splits = (0..stored.num_rows())
            .map(|row| {
                let offset = positions.is_valid(row).then(|| positions.value(row).to_owned());
                let split = Split { reader: None, offset, next_row_id: row_ids.value(row), moved: false };
                (names.value(row).to_owned(), split)
            })
            .collect();
        Ok(Source {
            connector,
            splits,
            turns: Vec::new(),
            turn: 0,
            discovered: None,
            offsets,
            uncommitted,
            output,
            stats,
            allowance: Allowance::new(limit),
            courtesy,
        })
    }

    async fn discover(&mut self) -> Result<()> {
        if self.discovered.is_some_and(|at| at.elapsed() < DISCOVERY_INTERVAL) {
            return Ok(());
        }
        let listed = self.connector.splits().await?;
        self.discovered = Some(Instant::now());
        for name in &listed {
            // Splits that gave nothing yet are not stored, so their numbers may be given out again after a restart; those of
            // stored splits are not.
            let number = self.splits.values().map(|s| (s.next_row_id >> SPLIT_SHIFT) + 1).max().unwrap_or(0);
            let split = self.splits.entry(name.clone()).or_insert_with(|| Split {
                reader: None,
                offset: None,
                next_row_id: number << SPLIT_SHIFT,
                moved: false,
            });
            if split.reader.is_none() {
                split.reader = Some(self.connector.reader(name, split.offset.as_deref())?);
            }
        }
        self.turns = listed;
        Ok(())
    }

    /// A batch of the next split that has one. Cancel-safe: a split gives its turn away only after its batch is taken in.
    async fn poll_splits(&mut self, rows: usize) -> Result<Option<Chunk>> {
        for _ in 0..self.turns.len() {
            let name = &self.turns[self.turn % self.turns.len()];
            let split = self.splits.get_mut(name).expect("every split with a turn is known");
            if let Some(reader) = split.reader.as_mut().filter(|r| !r.is_finished())
                && let Some(batch) = reader.next(rows).await?
            {
                self.turn += 1;
                return take_in(split, batch, &self.output, &self.stats).map(Some);
            }
            self.turn += 1;
        }
        Ok(None)
    }
}

/// From here on nothing waits: the rows are on their way and the offset has moved, together.
fn take_in(split: &mut Split, read: SourceBatch, output: &SchemaRef, stats: &JobStats) -> Result<Chunk> {
    let rows = read.batch.num_rows();
    let ids = Int64Array::from_iter_values(split.next_row_id..split.next_row_id + rows as i64);
    let mut columns = read.batch.columns().to_vec();
    columns.push(Arc::new(ids));
    let chunk = Chunk::inserts(RecordBatch::try_new(output.clone(), columns)?);
    split.next_row_id += rows as i64;
    split.offset = Some(read.offset);
    split.moved = true;
    stats.bad_records(read.bad);
    Ok(chunk)
}

impl Reader for Source {
    async fn next(&mut self) -> Result<Chunk> {
        loop {
            self.uncommitted.room().await;
            self.discover().await?;
            let rows = self.allowance.wait(CHUNK_ROWS).await;
            match self.poll_splits(rows).await? {
                Some(chunk) => {
                    self.allowance.spend(chunk.len());
                    self.courtesy.rows_came();
                    // A batch of nothing but bad records has no rows, yet its offset counts.
                    return Ok(chunk);
                }
                None => tokio::time::sleep(IDLE_PAUSE).await,
            }
        }
    }

    async fn finish(&mut self, _barrier: Barrier, _out: &mut Output) -> Result<()> {
        let moved: Vec<_> = self.splits.iter().filter(|(_, s)| s.moved).collect();
        if moved.is_empty() {
            return Ok(());
        }
        let columns: Vec<ArrayRef> = vec![
            Arc::new(StringArray::from_iter_values(moved.iter().map(|(name, _)| name.as_str()))),
            Arc::new(StringArray::from_iter(moved.iter().map(|(_, s)| s.offset.as_deref()))),
            Arc::new(Int64Array::from_iter_values(moved.iter().map(|(_, s)| s.next_row_id))),
        ];
        let rows = RecordBatch::try_new(self.offsets.def().schema.clone(), columns)?;
        self.offsets.write(&Chunk::inserts(rows))?;
        self.splits.values_mut().for_each(|s| s.moved = false);
        Ok(())
    }

    fn tables(&mut self) -> Vec<&mut StateTable> {
        vec![&mut self.offsets]
    }

    fn backfill(&self) -> Option<Backfill> {
        None
    }
}
