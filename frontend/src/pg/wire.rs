//! The socket of a connection: whole frames in, whole messages out.
//!
//! Output is gathered and leaves when the client waits for it (Sync, Flush, the end of a query) or when there is much of
//! it; [`Wire::relieve`] then waits for the client to read, which is what holds a large result back. An idle connection
//! keeps no buffers.

use std::io;
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use pgwire::messages::PgWireBackendMessage;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::message::{self, SMALL_FRAME_BYTES_MAX, protocol_violation};
use crate::error::{Severity, SqlError};

/// Output that is gathered before it is written.
const OUTPUT_BYTES: usize = 64 << 10;
/// Bytes that a read makes room for, at least.
const INPUT_BYTES: usize = 8 << 10;
/// Bytes that a read makes room for, at most: room is made as bytes arrive, not as they are promised.
const INPUT_STEP_BYTES_MAX: usize = 1 << 20;
/// How long the last words to a client may take.
const FAREWELL: Duration = Duration::from_millis(500);

/// Why a message was not done.
#[derive(Debug)]
pub enum Failure {
    /// To be told to the client. If it is fatal the connection ends, else it goes on.
    Sql(SqlError),
    /// The client is gone.
    Io(io::Error),
}

impl From<SqlError> for Failure {
    fn from(error: SqlError) -> Failure {
        Failure::Sql(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::Io(error)
    }
}

impl Failure {
    /// An error that ends the connection.
    pub fn fatal(error: SqlError) -> Failure {
        Failure::Sql(SqlError { severity: Severity::Fatal, ..error })
    }
}

/// The socket of one connection.
pub struct Wire {
    stream: TcpStream,
    input: BytesMut,
    output: BytesMut,
    /// Where the message starts that is being put into the output.
    open: Option<usize>,
}

impl Wire {
    pub fn new(stream: TcpStream) -> Wire {
        Wire { stream, input: BytesMut::new(), output: BytesMut::new(), open: None }
    }

    /// The next start-up packet without its length. `None`: the client has closed the connection.
    pub async fn read_startup(&mut self) -> Result<Option<Bytes>, Failure> {
        loop {
            if self.input.len() >= 4 {
                let length = (&self.input[..4]).get_u32() as usize;
                if !(8..=SMALL_FRAME_BYTES_MAX).contains(&length) {
                    return Err(Failure::fatal(protocol_violation("invalid length of startup packet")));
                }
                if self.input.len() >= length {
                    return Ok(Some(self.input.split_to(length).freeze().slice(4..)));
                }
            }
            if !self.fill(SMALL_FRAME_BYTES_MAX).await? {
                return Ok(None);
            }
        }
    }

    /// The next frame: its tag and body. `None`: the client has closed the connection. May be dropped while it waits.
    pub async fn read(&mut self) -> Result<Option<(u8, Bytes)>, Failure> {
        loop {
            let mut missing = INPUT_BYTES;
            if let Some(tag) = self.input.first().copied() {
                let limit = message::frame_limit(tag).ok_or_else(|| Failure::fatal(message::unknown_tag(tag)))?;
                if self.input.len() >= 5 {
                    let length = (&self.input[1..5]).get_u32() as usize;
                    if !(4..=limit).contains(&length) {
                        return Err(Failure::fatal(protocol_violation("invalid message length")));
                    }
                    if self.input.len() > length {
                        return Ok(Some((tag, self.input.split_to(1 + length).freeze().slice(5..))));
                    }
                    missing = 1 + length - self.input.len();
                }
            }
            if !self.fill(missing).await? {
                return Ok(None);
            }
        }
    }

    /// Waits for bytes. False: there will be none.
    async fn fill(&mut self, expected: usize) -> io::Result<bool> {
        if self.input.is_empty() {
            self.input = BytesMut::new();
        }
        loop {
            self.stream.readable().await?;
            self.input.reserve(expected.clamp(INPUT_BYTES, INPUT_STEP_BYTES_MAX));
            match self.stream.try_read_buf(&mut self.input) {
                Ok(read) => return Ok(read > 0),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Appends a message.
    pub fn put(&mut self, message: PgWireBackendMessage) -> Result<(), SqlError> {
        self.open = Some(self.output.len());
        message.encode(&mut self.output).map_err(|error| {
            self.discard_open();
            SqlError::internal(format!("encode a message for the client: {error}"))
        })?;
        self.open = None;
        Ok(())
    }

    /// Appends a message whose body `write` appends. When it fails nothing is appended.
    pub fn put_with(
        &mut self,
        tag: u8,
        write: impl FnOnce(&mut BytesMut) -> Result<(), SqlError>,
    ) -> Result<(), SqlError> {
        let start = self.output.len();
        self.open = Some(start);
        self.output.put_u8(tag);
        self.output.put_i32(0);
        let written = write(&mut self.output).and_then(|()| {
            i32::try_from(self.output.len() - start - 1)
                .map_err(|_| SqlError::new(crate::error::SqlState("54000"), "out of memory: a row is larger than 2 GB"))
        });
        match written {
            Ok(length) => self.output[start + 1..start + 5].copy_from_slice(&length.to_be_bytes()),
            Err(error) => {
                self.discard_open();
                return Err(error);
            }
        }
        self.open = None;
        Ok(())
    }

    /// Appends a byte that is no message: the answer to a request for encryption.
    pub fn put_byte(&mut self, byte: u8) {
        self.output.put_u8(byte);
    }

    /// Forgets the message that was begun and not finished, because writing it panicked.
    pub fn discard_open(&mut self) {
        if let Some(start) = self.open.take() {
            self.output.truncate(start);
        }
    }

    /// Writes all output. May be dropped while it waits: what has been written is no longer in the output.
    pub async fn flush(&mut self) -> io::Result<()> {
        while self.output.has_remaining() {
            if self.stream.write_buf(&mut self.output).await? == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
        }
        self.output = BytesMut::new();
        Ok(())
    }

    /// Writes the output when there is much of it.
    pub async fn relieve(&mut self) -> io::Result<()> {
        if self.output.len() >= OUTPUT_BYTES {
            self.flush().await?;
            self.output.reserve(OUTPUT_BYTES + INPUT_BYTES);
        }
        Ok(())
    }

    /// Says the last words and closes. Reads on for a moment: closing a socket with unread input would reset the
    /// connection and take the words back.
    pub async fn close(mut self, last: Option<SqlError>) {
        self.discard_open();
        if let Some(error) = last
            && self.put(message::report(&error)).is_err()
        {
            return;
        }
        let farewell = async {
            self.flush().await?;
            self.stream.shutdown().await?;
            while self.fill(INPUT_BYTES).await? {
                self.input.clear();
            }
            io::Result::Ok(())
        };
        // It matters to nobody whether the client was still there.
        let _ = timeout(FAREWELL, farewell).await;
    }
}
