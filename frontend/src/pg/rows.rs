//! The rows of a result on their way to a client.
//!
//! One batch at a time is in memory. The next one is asked for when the client has taken this one, so a slow client holds
//! the query back, and a portal that is suspended holds it until the client wants more.

use bytes::BufMut;
use datafusion::execution::SendableRecordBatchStream;
use futures::StreamExt;
use pgwire::messages::PgWireBackendMessage;
use pgwire::messages::data::{FieldDescription, RowDescription};
use weir_common::SqlType;
use weir_common::text::TextFormat;

use super::encode::{Cells, Format};
use super::oid;
use super::wire::{Failure, Wire};
use crate::error::{Result, SqlError, SqlState};
use crate::session::OutputColumn;

/// Columns of a result, as in PostgreSQL.
const COLUMNS_MAX: usize = 1664;

/// A result that is being read.
pub struct Rows {
    batches: SendableRecordBatchStream,
    types: Vec<(SqlType, Format, TextFormat)>,
    batch: Batch,
    tag: &'static str,
    scratch: String,
}

/// The batch that is being sent.
#[derive(Default)]
struct Batch {
    cells: Vec<Cells>,
    next: usize,
    rows: usize,
}

/// How far a result has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// There are no more rows; this many were sent since it was last asked for rows.
    Done(u64),
    /// As many rows as were asked for have been sent.
    Suspended,
}

impl Rows {
    /// `formats` has one entry per column.
    pub fn new(
        columns: &[OutputColumn],
        formats: &[Format],
        settings: &TextFormat,
        batches: SendableRecordBatchStream,
        tag: &'static str,
    ) -> Rows {
        let types = cell_types(columns, formats, settings);
        Rows { batches, types, batch: Batch::default(), tag, scratch: String::new() }
    }

    /// Sends rows, at most `limit`.
    pub async fn send(&mut self, wire: &mut Wire, limit: u64) -> Result<Progress, Failure> {
        let mut sent = 0;
        loop {
            while self.batch.next < self.batch.rows {
                if sent == limit {
                    return Ok(Progress::Suspended);
                }
                self.put_row(wire)?;
                sent += 1;
                wire.relieve().await?;
            }
            // PostgreSQL does not look whether there is another row after the last that was asked for.
            if sent == limit {
                return Ok(Progress::Suspended);
            }
            match self.batches.next().await {
                Some(batch) => {
                    let batch = batch.map_err(SqlError::from)?;
                    let cells = Cells::of_batch(&batch, &self.types)?;
                    self.batch = Batch { cells, next: 0, rows: batch.num_rows() };
                }
                None => {
                    self.batch = Batch::default();
                    return Ok(Progress::Done(sent));
                }
            }
        }
    }

    fn put_row(&mut self, wire: &mut Wire) -> Result<()> {
        let (cells, row, scratch) = (&self.batch.cells, self.batch.next, &mut self.scratch);
        wire.put_with(b'D', |out| {
            out.put_u16(cells.len() as u16);
            cells.iter().try_for_each(|cells| cells.write_sized(row, scratch, out))
        })?;
        self.batch.next += 1;
        Ok(())
    }

    /// The command tag after `rows` rows.
    pub fn tag(&self, rows: u64) -> String {
        match self.tag {
            "SELECT" | "INSERT 0" | "UPDATE" | "DELETE" | "MERGE" | "FETCH" | "MOVE" | "COPY" => {
                format!("{} {rows}", self.tag)
            }
            tag => tag.to_string(),
        }
    }
}

/// What the cells of a result are made of. `formats` has one entry per column.
pub fn cell_types(
    columns: &[OutputColumn],
    formats: &[Format],
    settings: &TextFormat,
) -> Vec<(SqlType, Format, TextFormat)> {
    let types = columns.iter().zip(formats).map(|(column, format)| {
        let text = TextFormat { declared_scale: column.declared_scale, ..settings.clone() };
        (column.sql_type.clone(), *format, text)
    });
    types.collect()
}

/// The message that announces the columns of a result. `formats` has one entry per column.
pub fn row_description(columns: &[OutputColumn], formats: &[Format]) -> Result<PgWireBackendMessage> {
    if columns.len() > COLUMNS_MAX {
        let message = format!("target lists can have at most {COLUMNS_MAX} entries");
        return Err(SqlError::new(SqlState("54011"), message));
    }
    let fields = columns.iter().zip(formats).map(|(column, format)| {
        let (table, number) = column.table.unwrap_or_default();
        FieldDescription::new(
            column.name.replace('\0', ""),
            table as i32,
            number,
            oid::of(&column.sql_type),
            oid::length(&column.sql_type),
            oid::modifier(&column.sql_type, column.declared_scale),
            format.code(),
        )
    });
    Ok(PgWireBackendMessage::RowDescription(RowDescription::new(fields.collect())))
}
