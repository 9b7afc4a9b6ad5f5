//! COPY … TO STDOUT and COPY … FROM STDIN: rows as a stream of bytes inside the protocol.
//!
//! ```text
//! out    CopyOutResponse, CopyData per row, CopyDone, CommandComplete       writer   rows to text, CSV, binary
//! in     CopyInResponse; the client sends CopyData*, then CopyDone or
//!        CopyFail; CommandComplete                                          reader   the way back
//! ```
//!
//! The session says what is copied ([`Reply::CopyOut`], [`Reply::CopyIn`]); nothing here knows a table.
//!
//! [`Reply::CopyOut`]: crate::session::Reply::CopyOut
//! [`Reply::CopyIn`]: crate::session::Reply::CopyIn

use arrow::array::RecordBatch;
use datafusion::execution::SendableRecordBatchStream;
use futures::StreamExt;
use futures::future::BoxFuture;
use pgwire::messages::copy::{CopyData, CopyDone, CopyInResponse, CopyOutResponse};
use pgwire::messages::{PgWireBackendMessage, PgWireFrontendMessage};

use super::backend::Backend;
use super::connection::Connection;
use super::encode::{Cells, Format};
use super::message::{self, protocol_violation};
use super::rows::cell_types;
use super::wire::Failure;
use crate::error::{Result, SqlError, SqlState};
use crate::session::OutputColumn;

mod options;
mod reader;
mod writer;

pub use options::{CopyFormat, CopyOptions};

use reader::CopyReader;
use writer::CopyWriter;

/// Where the rows of COPY … FROM STDIN go. Dropped before it is finished, it has changed nothing.
pub trait CopyTarget: Send {
    /// Takes rows. Their columns are those that were announced.
    fn write(&mut self, batch: RecordBatch) -> BoxFuture<'_, Result<()>>;

    /// All rows have come: ready when they are committed. How many there were.
    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<u64>>;
}

impl<B: Backend> Connection<B> {
    /// Sends rows as the data of a copy.
    pub(super) async fn copy_out(
        &mut self,
        columns: &[OutputColumn],
        options: CopyOptions,
        mut batches: SendableRecordBatchStream,
    ) -> Result<(), Failure> {
        let format = options.format.of_values();
        let formats = vec![format.code(); columns.len()];
        let response = CopyOutResponse::new(format.code() as i8, columns.len() as i16, formats);
        self.wire.put(PgWireBackendMessage::CopyOutResponse(response))?;
        let types = cell_types(columns, &vec![format; columns.len()], &self.session.text_format());
        let mut writer = CopyWriter::new(columns, options);
        if let Some(header) = writer.header() {
            self.wire.put(PgWireBackendMessage::CopyData(CopyData::new(header.freeze())))?;
        }
        let mut rows = 0u64;
        while let Some(batch) = batches.next().await {
            let batch = batch.map_err(SqlError::from)?;
            let cells = Cells::of_batch(&batch, &types)?;
            for row in 0..batch.num_rows() {
                self.wire.put_with(b'd', |out| writer.write_row(&cells, row, out))?;
                self.wire.relieve().await?;
            }
            rows += batch.num_rows() as u64;
        }
        if let Some(trailer) = writer.trailer() {
            self.wire.put(PgWireBackendMessage::CopyData(CopyData::new(trailer.freeze())))?;
        }
        self.wire.put(PgWireBackendMessage::CopyDone(CopyDone::new()))?;
        Ok(self.complete(format!("COPY {rows}"))?)
    }

    /// Takes the data of a copy from the client.
    pub(super) async fn copy_in(
        &mut self,
        columns: &[OutputColumn],
        options: CopyOptions,
        mut target: Box<dyn CopyTarget>,
    ) -> Result<(), Failure> {
        let format = options.format.of_values().code();
        let response = CopyInResponse::new(format as i8, columns.len() as i16, vec![format; columns.len()]);
        self.wire.put(PgWireBackendMessage::CopyInResponse(response))?;
        self.wire.flush().await?;
        let mut reader = CopyReader::new(columns, options, self.session.text_format());
        loop {
            let Some((tag, body)) = self.wire.read().await? else {
                return Err(Failure::Io(std::io::ErrorKind::UnexpectedEof.into()));
            };
            match message::decode(tag, body)? {
                PgWireFrontendMessage::CopyData(data) => {
                    reader.feed(&data.data)?;
                    if let Some(batch) = reader.take_batch(false)? {
                        target.write(batch).await?;
                    }
                }
                PgWireFrontendMessage::CopyDone(_) => break,
                PgWireFrontendMessage::CopyFail(fail) => {
                    let message = format!("COPY from stdin failed: {}", fail.message);
                    return Err(SqlError::new(SqlState::QUERY_CANCELED, message).into());
                }
                // Clients that send them ahead need not know that they started a copy.
                PgWireFrontendMessage::Flush(_) | PgWireFrontendMessage::Sync(_) => {}
                PgWireFrontendMessage::Terminate(_) => {
                    return Err(Failure::Io(std::io::ErrorKind::ConnectionAborted.into()));
                }
                _ => {
                    let message = format!("unexpected message type 0x{tag:02X} during COPY from stdin");
                    return Err(Failure::fatal(protocol_violation(message)));
                }
            }
        }
        reader.end()?;
        if let Some(batch) = reader.take_batch(true)? {
            target.write(batch).await?;
        }
        let rows = target.finish().await?;
        Ok(self.complete(format!("COPY {rows}"))?)
    }
}

/// Data that does not have the form that the options announce.
fn bad_data(message: impl Into<String>) -> SqlError {
    SqlError::new(SqlState("22P04"), message)
}

impl CopyFormat {
    /// How each value is written inside the data.
    fn of_values(self) -> Format {
        match self {
            CopyFormat::Text | CopyFormat::Csv => Format::Text,
            CopyFormat::Binary => Format::Binary,
        }
    }
}
