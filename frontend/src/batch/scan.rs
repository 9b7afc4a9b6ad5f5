//! Reads a relation from the store: all rows, vnode by vnode, or the rows of some keys.
//!
//! A scan has [`PARTITIONS`] parts that share the vnodes. Each is one blocking task that sends batches through a short
//! channel; a reader that goes away ends it. Rows of an open block come from the first part, after those of the store.

use std::fmt;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::compute::concat_batches;
use arrow::datatypes::SchemaRef;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::stream::RecordBatchReceiverStream;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties, SendableRecordBatchStream,
};
use tokio::sync::mpsc::Sender;
use weir_common::{TableDef, Vnode, VnodeSet};
use weir_storage::Snapshot;

use super::overlay::Overlays;
use super::readers::ReadPoint;
use super::run::BATCH_ROWS;

/// Parts of a scan of all rows.
const PARTITIONS: usize = 2;
/// Batches that a part may be ahead of its reader.
const BATCHES_AHEAD: usize = 2;

/// Which rows are read.
#[derive(Clone, Debug)]
pub(super) enum Rows {
    All,
    /// Those with these values of the key columns.
    Keys(Vec<ArrayRef>),
    /// All, and these are they: so few that they were read while planning.
    Read(RecordBatch),
}

/// Reads a relation.
#[derive(Clone)]
pub(super) struct RelationScan {
    name: String,
    def: Arc<TableDef>,
    projection: Vec<usize>,
    rows: Rows,
    limit: Option<usize>,
    point: ReadPoint,
    overlays: Overlays,
    properties: Arc<PlanProperties>,
}

impl RelationScan {
    #[allow(clippy::too_many_arguments)]
    pub(super) fn new(
        name: String,
        def: Arc<TableDef>,
        schema: SchemaRef,
        projection: Vec<usize>,
        rows: Rows,
        limit: Option<usize>,
        point: ReadPoint,
        overlays: Overlays,
    ) -> RelationScan {
        let parts = match rows {
            Rows::All if !def.distribution.is_empty() => PARTITIONS,
            _ => 1,
        };
        let properties = Arc::new(PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(parts),
            EmissionType::Incremental,
            Boundedness::Bounded,
        ));
        RelationScan { name, def, projection, rows, limit, point, overlays, properties }
    }
}

impl fmt::Debug for RelationScan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RelationScan({})", self.name)
    }
}

impl DisplayAs for RelationScan {
    fn fmt_as(&self, _t: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.rows {
            Rows::All | Rows::Read(_) => "RelationScan",
            Rows::Keys(_) => "RelationLookup",
        };
        write!(f, "{kind}: {}", self.name)?;
        if let Rows::Keys(keys) = &self.rows {
            write!(f, ", keys={}", keys.first().map_or(0, |k| k.len()))?;
        }
        if let Some(limit) = self.limit {
            write!(f, ", limit={limit}")?;
        }
        let schema = self.schema();
        let columns: Vec<&str> = schema.fields().iter().map(|f| f.name().as_str()).collect();
        write!(f, ", columns=[{}]", columns.join(", "))
    }
}

impl ExecutionPlan for RelationScan {
    fn name(&self) -> &str {
        "RelationScan"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![]
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        if children.is_empty() { Ok(self) } else { Err(DataFusionError::Internal("a scan has no input".into())) }
    }

    fn execute(&self, partition: usize, _context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let snapshot = self.point.get()?;
        let parts = self.properties.partitioning.partition_count();
        let mut builder = RecordBatchReceiverStream::builder(self.schema(), BATCHES_AHEAD);
        let mut part = Part {
            scan: self.clone(),
            schema: self.schema(),
            snapshot,
            sender: builder.tx(),
            left: self.limit.unwrap_or(usize::MAX),
            buffer: Vec::new(),
            buffered: 0,
        };
        let vnodes = match self.def.distribution.is_empty() {
            true => vec![Vnode(0)],
            false => VnodeSet::split(parts)[partition].iter().collect(),
        };
        builder.spawn_blocking(move || {
            part.run(&vnodes, partition == 0)?;
            Ok(())
        });
        Ok(builder.build())
    }
}

/// What a part of a scan is doing.
struct Part {
    scan: RelationScan,
    schema: SchemaRef,
    snapshot: Snapshot,
    sender: Sender<Result<RecordBatch>>,
    /// Rows that are still wanted.
    left: usize,
    /// Small batches that leave together.
    buffer: Vec<RecordBatch>,
    buffered: usize,
}

/// The reader has all that it wants.
struct Enough;

impl Part {
    fn run(&mut self, vnodes: &[Vnode], first: bool) -> Result<()> {
        if let Err(Enough) = self.read(vnodes, first)? {
            return Ok(());
        }
        let _ = self.send()?;
        Ok(())
    }

    fn read(&mut self, vnodes: &[Vnode], first: bool) -> Result<Result<(), Enough>> {
        match self.scan.rows.clone() {
            Rows::All => {
                for vnode in vnodes {
                    if let Err(Enough) = self.vnode(*vnode)? {
                        return Ok(Err(Enough));
                    }
                }
            }
            Rows::Keys(keys) => {
                let def = self.scan.def.clone();
                let keys = self.snapshot.keys(&def, &keys).map_err(external)?;
                let found = self.snapshot.get_many(&def, &keys).map_err(external)?;
                if let Err(Enough) = self.committed(found.rows)? {
                    return Ok(Err(Enough));
                }
            }
            Rows::Read(batch) => {
                if let Err(Enough) = self.committed(batch)? {
                    return Ok(Err(Enough));
                }
            }
        }
        let overlays = if first { self.scan.overlays.clone() } else { Overlays::new() };
        for (i, overlay) in overlays.iter().enumerate() {
            for rows in overlay.rows(&self.scan.def, &self.snapshot)? {
                if let Err(Enough) = self.seen(rows, i + 1)? {
                    return Ok(Err(Enough));
                }
            }
        }
        Ok(Ok(()))
    }

    fn vnode(&mut self, vnode: Vnode) -> Result<Result<(), Enough>> {
        let mut after: Option<Vec<u8>> = None;
        loop {
            // Rows that an overlay hides don't count towards the limit.
            let rows = if !self.scan.overlays.is_empty() { BATCH_ROWS } else { self.left.min(BATCH_ROWS) };
            let read = self.snapshot.scan(&self.scan.def, vnode, after.as_deref(), rows);
            let (batch, last) = read.map_err(external)?;
            if let Err(Enough) = self.committed(batch)? {
                return Ok(Err(Enough));
            }
            match last {
                Some(last) => after = Some(last),
                None => return Ok(Ok(())),
            }
        }
    }

    /// Takes rows of the store.
    fn committed(&mut self, batch: RecordBatch) -> Result<Result<(), Enough>> {
        self.seen(batch, 0)
    }

    /// Takes rows, but for those that overlays from this one on hide.
    fn seen(&mut self, mut batch: RecordBatch, first: usize) -> Result<Result<(), Enough>> {
        for overlay in &self.scan.overlays[first..] {
            batch = overlay.filter(&self.scan.def, batch)?;
        }
        self.push(batch)
    }

    /// Takes rows with all columns of the table.
    fn push(&mut self, batch: RecordBatch) -> Result<Result<(), Enough>> {
        let batch = batch.slice(0, batch.num_rows().min(self.left));
        if batch.num_rows() == 0 {
            return Ok(if self.left == 0 { Err(Enough) } else { Ok(()) });
        }
        self.left -= batch.num_rows();
        let columns = self.scan.projection.iter().map(|i| batch.column(*i).clone()).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        self.buffered += batch.num_rows();
        self.buffer.push(RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)?);
        if self.buffered >= BATCH_ROWS || self.left == 0 {
            let sent = self.send()?;
            return Ok(if self.left == 0 { Err(Enough) } else { sent });
        }
        Ok(Ok(()))
    }

    fn send(&mut self) -> Result<Result<(), Enough>> {
        let buffer = std::mem::take(&mut self.buffer);
        let rows = std::mem::take(&mut self.buffered);
        let batch = match buffer.as_slice() {
            [] => return Ok(Ok(())),
            [one] => one.clone(),
            _ if self.schema.fields().is_empty() => {
                let options = RecordBatchOptions::new().with_row_count(Some(rows));
                RecordBatch::try_new_with_options(self.schema.clone(), vec![], &options)?
            }
            many => concat_batches(&self.schema, many)?,
        };
        Ok(self.sender.blocking_send(Ok(batch)).map_err(|_| Enough))
    }
}

fn external(error: weir_storage::StorageError) -> DataFusionError {
    DataFusionError::from(crate::error::SqlError::from(error))
}
