//! Hands the change log of a sink to the writers of its destination.
//!
//! Each writer is a task of its own. Rows are divided by vnode, so that the changes of a key stay in order. What is dropped
//! without [`Writers::flush`] was never written, or is written again.

use std::sync::Arc;

use arrow::array::{Array, BooleanArray, RecordBatch, new_null_array};
use arrow::datatypes::{Field, Schema, SchemaRef};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use weir_common::catalog::{ColumnDef, Object};
use weir_common::{Chunk, Generation, VNODE_COUNT};
use weir_connector::{Sink, SinkSpec, SinkWriter, Stamp};
use weir_storage::LogChunk;

use crate::Result;
use crate::error::StreamError;

/// Chunks that wait at a writer.
const QUEUE: usize = 4;

/// What of the log is delivered.
#[derive(Clone, Debug)]
pub struct Selection {
    /// The first columns of the log; the others only identify rows.
    pub columns: usize,
    /// Deletes are left out, and what replaces a row is an insert.
    pub inserts_only: bool,
}

impl Selection {
    /// The rows to deliver.
    pub fn of(&self, chunk: &Chunk) -> Result<Chunk> {
        let columns: Vec<usize> = (0..self.columns).collect();
        let batch: RecordBatch = chunk.batch().project(&columns)?;
        let chunk = chunk.with_batch(batch);
        if !self.inserts_only || chunk.is_append_only() {
            return Ok(chunk);
        }
        let inserts: BooleanArray = (0..chunk.len()).map(|i| Some(chunk.sign(i) > 0)).collect();
        Ok(chunk.filter(&inserts)?)
    }
}

/// The writers of a generation.
pub struct Writers {
    selection: Selection,
    writers: Vec<Writer>,
    /// Rows since the last flush.
    rows: u64,
}

struct Writer {
    orders: mpsc::Sender<Order>,
    task: Option<JoinHandle<Result<()>>>,
}

enum Order {
    Write(Chunk),
    Flush(Stamp, oneshot::Sender<Option<serde_json::Value>>),
}

impl Drop for Writer {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

impl Writers {
    /// Opens so many writers.
    pub async fn open(sink: &dyn Sink, generation: Generation, count: usize, selection: Selection) -> Result<Writers> {
        let mut writers = Vec::with_capacity(count);
        for index in 0..count {
            writers.push(Writer::start(sink.writer(generation, index).await?));
        }
        Ok(Writers { selection, writers, rows: 0 })
    }

    /// Over writers that are open.
    pub fn over(writers: Vec<Box<dyn SinkWriter>>, selection: Selection) -> Writers {
        Writers { selection, writers: writers.into_iter().map(Writer::start).collect(), rows: 0 }
    }

    /// Rows since the last flush.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Hands a piece of the log over. Waits while the writers are behind.
    pub async fn write(&mut self, logged: &LogChunk) -> Result<()> {
        let count = self.writers.len();
        if count == 1 {
            let chunk = self.selection.of(&logged.chunk)?;
            return self.hand(0, chunk).await;
        }
        for index in 0..count {
            let of_writer = |vnode: &u8| Some(usize::from(*vnode) * count / VNODE_COUNT == index);
            let mask: BooleanArray = logged.vnodes.iter().map(of_writer).collect();
            let share = self.selection.of(&logged.chunk.filter(&mask)?)?;
            self.hand(index, share).await?;
        }
        Ok(())
    }

    async fn hand(&mut self, index: usize, chunk: Chunk) -> Result<()> {
        if chunk.is_empty() {
            return Ok(());
        }
        self.rows += chunk.len() as u64;
        self.writers[index].order(Order::Write(chunk)).await
    }

    /// Ends a commit. What the writers report.
    pub async fn flush(&mut self, stamp: &Stamp) -> Result<Vec<serde_json::Value>> {
        self.rows = 0;
        let mut answers = Vec::with_capacity(self.writers.len());
        for writer in &mut self.writers {
            let (sender, receiver) = oneshot::channel();
            writer.order(Order::Flush(stamp.clone(), sender)).await?;
            answers.push(receiver);
        }
        let mut parts = Vec::new();
        for (writer, answer) in self.writers.iter_mut().zip(answers) {
            match answer.await {
                Ok(part) => parts.extend(part),
                Err(_) => return Err(writer.error().await),
            }
        }
        Ok(parts)
    }
}

impl Writer {
    fn start(writer: Box<dyn SinkWriter>) -> Writer {
        let (orders, received) = mpsc::channel(QUEUE);
        Writer { orders, task: Some(tokio::spawn(run(writer, received))) }
    }

    async fn order(&mut self, order: Order) -> Result<()> {
        match self.orders.send(order).await {
            Ok(()) => Ok(()),
            Err(_) => Err(self.error().await),
        }
    }

    /// Why the writer has ended.
    async fn error(&mut self) -> StreamError {
        match self.task.take() {
            Some(task) => match task.await {
                Ok(Err(error)) => error,
                Ok(Ok(())) => StreamError::DownstreamGone,
                Err(panic) => StreamError::Panicked(format!("a writer of the sink: {panic}")),
            },
            None => StreamError::DownstreamGone,
        }
    }
}

async fn run(mut writer: Box<dyn SinkWriter>, mut orders: mpsc::Receiver<Order>) -> Result<()> {
    while let Some(order) = orders.recv().await {
        match order {
            Order::Write(chunk) => writer.write(chunk).await?,
            Order::Flush(stamp, answer) => {
                fail::fail_point!("sink::flush::before", |_| std::process::abort());
                let part = writer.flush(&stamp).await?;
                fail::fail_point!("sink::flush::after", |_| std::process::abort());
                // Whoever asked is gone when the delivery is stopped.
                let _ = answer.send(part);
            }
        }
    }
    Ok(())
}

/// What a connector is told of a sink.
pub fn spec(sink: &Object) -> SinkSpec {
    let visible = sink.columns.iter().filter(|c| !c.hidden);
    let field = |c: &ColumnDef| Field::new(&c.name, c.sql_type.to_arrow(), !c.not_null);
    SinkSpec {
        sink: sink.id,
        name: sink.name.clone(),
        columns: Arc::new(Schema::new(visible.map(field).collect::<Vec<_>>())),
        primary_key: sink.primary_key.clone(),
        append_only: sink.append_only,
        options: sink.options.clone(),
        format: sink.format.clone(),
    }
}

/// Rows for a table: its columns in their order, found by name; those that are not there are null.
///
/// Fails when a column is null that must not be.
pub fn for_table(chunk: &Chunk, table: &Object, schema: &SchemaRef) -> Result<Chunk> {
    let from = chunk.schema();
    let mut columns = Vec::with_capacity(schema.fields().len());
    for field in schema.fields() {
        columns.push(match from.index_of(field.name()) {
            Ok(i) => chunk.column(i).clone(),
            Err(_) => new_null_array(field.data_type(), chunk.len()),
        });
    }
    for (i, column) in table.columns.iter().enumerate().filter(|(_, column)| !column.hidden) {
        let needed = column.not_null || table.primary_key.contains(&i);
        if needed && columns.get(i).is_some_and(|values| values.null_count() > 0) {
            let (column, relation) = (column.name.clone(), table.name.clone());
            return Err(StreamError::NullValue { column, relation });
        }
    }
    Ok(chunk.with_batch(RecordBatch::try_new(schema.clone(), columns)?))
}
