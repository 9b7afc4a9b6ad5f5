//! The messages of the protocol: frames in, messages out.
//!
//! ```text
//! frame      tag u8 | length i32, itself included | body
//! start-up   length i32 | code i32 | body            the only ones without a tag
//! ```
//!
//! The message types are pgwire's. Its decoder is not used: it reads counts without checking that the bytes are there, and
//! panics when they are not. Here a frame is cut first and every read inside it is checked, so a lying client gets an error.

use std::collections::BTreeMap;

use bytes::{Buf, Bytes};
use pgwire::messages::copy::{CopyData, CopyDone, CopyFail};
use pgwire::messages::extendedquery::{Bind, Close, Describe, Execute, Flush, Parse, Sync};
use pgwire::messages::response::{ErrorResponse, NoticeResponse};
use pgwire::messages::simplequery::Query;
use pgwire::messages::terminate::Terminate;
use pgwire::messages::{PgWireBackendMessage, PgWireFrontendMessage};

use crate::error::{Result, Severity, SqlError, SqlState};

/// Largest frame of a message that carries a query or values.
pub const FRAME_BYTES_MAX: usize = 256 << 20;
/// Largest frame of any other message, and of a start-up packet.
pub const SMALL_FRAME_BYTES_MAX: usize = 10_000;

/// Bytes that cannot be decoded as text.
pub const CHARACTER_NOT_IN_REPERTOIRE: SqlState = SqlState("22021");

/// The first packet of a connection.
#[derive(Debug, PartialEq, Eq)]
pub enum Startup {
    /// May this connection be encrypted? (SSLRequest, GSSENCRequest)
    Encryption,
    Cancel {
        pid: i32,
        secret: i32,
    },
    Session {
        minor_version: u16,
        parameters: BTreeMap<String, String>,
    },
}

/// The largest frame that may carry this tag; `None`: no message has it.
pub fn frame_limit(tag: u8) -> Option<usize> {
    match tag {
        b'Q' | b'P' | b'B' | b'd' | b'F' => Some(FRAME_BYTES_MAX),
        b'D' | b'E' | b'C' | b'H' | b'S' | b'X' | b'c' | b'f' => Some(SMALL_FRAME_BYTES_MAX),
        _ => None,
    }
}

/// Decodes a start-up packet without its length.
pub fn decode_startup(body: &[u8]) -> Result<Startup> {
    const CANCEL: u32 = 80_877_102;
    const SSL: u32 = 80_877_103;
    const GSS_ENCRYPTION: u32 = 80_877_104;
    let mut reader = Reader { bytes: body };
    match reader.u32()? {
        SSL | GSS_ENCRYPTION => Ok(Startup::Encryption),
        CANCEL => {
            let (pid, secret) = (reader.i32()?, reader.i32()?);
            reader.end()?;
            Ok(Startup::Cancel { pid, secret })
        }
        version if version >> 16 == 3 => {
            let mut parameters = BTreeMap::new();
            loop {
                let name = reader.string()?;
                if name.is_empty() {
                    break;
                }
                parameters.insert(name, reader.string()?);
            }
            reader.end()?;
            Ok(Startup::Session { minor_version: (version & 0xffff) as u16, parameters })
        }
        version => Err(SqlError::new(
            SqlState::FEATURE_NOT_SUPPORTED,
            format!("unsupported frontend protocol {}.{}: server supports 3.0 to 3.0", version >> 16, version & 0xffff),
        )),
    }
}

/// Decodes the body of a frame.
///
/// An error with state 08P01 means that client and server no longer understand each other; any other is about this
/// message alone.
pub fn decode(tag: u8, body: Bytes) -> Result<PgWireFrontendMessage> {
    let mut reader = Reader { bytes: &body };
    let message = match tag {
        b'Q' => PgWireFrontendMessage::Query(Query::new(reader.string()?)),
        b'P' => {
            let (name, query) = (reader.name()?, reader.string()?);
            let count = reader.count()?;
            let oids = (0..count).map(|_| reader.u32()).collect::<Result<_>>()?;
            PgWireFrontendMessage::Parse(Parse::new(name, query, oids))
        }
        b'B' => PgWireFrontendMessage::Bind(bind(&mut reader, &body)?),
        b'D' => PgWireFrontendMessage::Describe(Describe::new(reader.target("DESCRIBE")?, reader.name()?)),
        b'C' => PgWireFrontendMessage::Close(Close::new(reader.target("CLOSE")?, reader.name()?)),
        b'E' => PgWireFrontendMessage::Execute(Execute::new(reader.name()?, reader.i32()?)),
        b'H' => PgWireFrontendMessage::Flush(Flush::new()),
        b'S' => PgWireFrontendMessage::Sync(Sync::new()),
        b'X' => PgWireFrontendMessage::Terminate(Terminate::new()),
        b'd' => return Ok(PgWireFrontendMessage::CopyData(CopyData::new(body))),
        b'c' => PgWireFrontendMessage::CopyDone(CopyDone::new()),
        b'f' => PgWireFrontendMessage::CopyFail(CopyFail::new(reader.string()?)),
        b'F' => return Err(SqlError::unsupported("a function call message")),
        _ => return Err(unknown_tag(tag)),
    };
    reader.end()?;
    Ok(message)
}

fn bind(reader: &mut Reader, body: &Bytes) -> Result<Bind> {
    let (portal, statement) = (reader.name()?, reader.name()?);
    let count = reader.count()?;
    let formats = (0..count).map(|_| reader.i16()).collect::<Result<_>>()?;
    let count = reader.count()?;
    let values = (0..count)
        .map(|_| match reader.i32()? {
            -1 => Ok(None),
            length => Ok(Some(body.slice_ref(reader.take(usize::try_from(length).map_err(|_| invalid_format())?)?))),
        })
        .collect::<Result<_>>()?;
    let count = reader.count()?;
    let result_formats = (0..count).map(|_| reader.i16()).collect::<Result<_>>()?;
    Ok(Bind::new(portal, statement, formats, values, result_formats))
}

/// Client and server no longer understand each other.
pub fn protocol_violation(message: impl Into<String>) -> SqlError {
    SqlError::new(SqlState::PROTOCOL_VIOLATION, message)
}

/// The error for a frame with a tag that no message has.
pub fn unknown_tag(tag: u8) -> SqlError {
    protocol_violation(format!("invalid frontend message type {tag}"))
}

fn invalid_format() -> SqlError {
    protocol_violation("insufficient data left in message")
}

/// Text of the client, which always is UTF-8.
pub fn utf8(bytes: &[u8]) -> Result<&str> {
    let invalid = |bytes: &[u8]| {
        let hex: Vec<String> = bytes.iter().map(|b| format!("{b:#04x}")).collect();
        SqlError::new(
            CHARACTER_NOT_IN_REPERTOIRE,
            format!("invalid byte sequence for encoding \"UTF8\": {}", hex.join(" ")),
        )
    };
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let rest = &bytes[error.valid_up_to()..];
        invalid(&rest[..error.error_len().unwrap_or(rest.len())])
    })?;
    if text.contains('\0') { Err(invalid(&[0])) } else { Ok(text) }
}

/// Reads a body from the front, and never past its end.
struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.bytes.split_at_checked(length).ok_or_else(invalid_format)?;
        self.bytes = rest;
        Ok(taken)
    }

    fn i16(&mut self) -> Result<i16> {
        Ok(self.take(2)?.get_i16())
    }

    fn i32(&mut self) -> Result<i32> {
        Ok(self.take(4)?.get_i32())
    }

    fn u32(&mut self) -> Result<u32> {
        Ok(self.take(4)?.get_u32())
    }

    fn count(&mut self) -> Result<usize> {
        Ok(self.take(2)?.get_u16().into())
    }

    /// A string that ends with a zero byte.
    fn string(&mut self) -> Result<String> {
        let end = self.bytes.iter().position(|b| *b == 0);
        let end = end.ok_or_else(|| protocol_violation("invalid string in message"))?;
        let text = self.take(end)?;
        self.bytes = &self.bytes[1..];
        Ok(utf8(text)?.to_string())
    }

    /// A name, where the empty one is that of the unnamed statement or portal.
    fn name(&mut self) -> Result<Option<String>> {
        Ok(Some(self.string()?).filter(|name| !name.is_empty()))
    }

    /// Whether a message is about a statement (`S`) or a portal (`P`).
    fn target(&mut self, message: &str) -> Result<u8> {
        match self.take(1)?[0] {
            target @ (b'S' | b'P') => Ok(target),
            other => Err(protocol_violation(format!("invalid {message} message subtype {other}"))),
        }
    }

    fn end(&self) -> Result<()> {
        if self.bytes.is_empty() { Ok(()) } else { Err(protocol_violation("invalid message format")) }
    }
}

/// The message that carries an error or a notice.
pub fn report(error: &SqlError) -> PgWireBackendMessage {
    // A zero byte would end the field early.
    let text = |text: &str| text.replace('\0', "");
    let mut fields = vec![
        (b'S', error.severity.name().to_string()),
        (b'V', error.severity.name().to_string()),
        (b'C', error.state.0.to_string()),
        (b'M', text(&error.message)),
    ];
    fields.extend(error.detail.as_deref().map(|detail| (b'D', text(detail))));
    fields.extend(error.hint.as_deref().map(|hint| (b'H', text(hint))));
    fields.extend(error.position.map(|position| (b'P', position.to_string())));
    match error.severity {
        Severity::Error | Severity::Fatal => PgWireBackendMessage::ErrorResponse(ErrorResponse::new(fields)),
        Severity::Warning | Severity::Notice => PgWireBackendMessage::NoticeResponse(NoticeResponse::new(fields)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use bytes::{BufMut, BytesMut};

    use super::*;

    /// pgwire's encoding of a message comes back from our decoder, and no prefix of it or longer body does.
    fn check(message: PgWireFrontendMessage) -> PgWireFrontendMessage {
        let mut frame = BytesMut::new();
        message.encode(&mut frame).unwrap();
        let tag = frame.get_u8();
        assert_eq!(frame.get_i32() as usize, frame.len() + 4);
        let body = frame.freeze();
        for length in 0..body.len() {
            let error = decode(tag, body.slice(..length)).unwrap_err();
            assert_eq!(error.state, SqlState::PROTOCOL_VIOLATION, "{tag} cut to {length}");
        }
        let longer = Bytes::from([&body[..], b"x"].concat());
        assert_eq!(decode(tag, longer).unwrap_err().state, SqlState::PROTOCOL_VIOLATION);
        decode(tag, body).unwrap()
    }

    #[test]
    fn messages_come_back_and_cut_ones_are_refused() {
        let bind =
            || Bind::new(Some("p".into()), None, vec![1], vec![Some(Bytes::from_static(b"\0\x01")), None], vec![0, 1]);
        match check(PgWireFrontendMessage::Bind(bind())) {
            PgWireFrontendMessage::Bind(decoded) => assert_eq!(decoded, bind()),
            other => panic!("{other:?}"),
        }
        let parse = || Parse::new(Some("s".into()), "SELECT $1".into(), vec![23, 0]);
        match check(PgWireFrontendMessage::Parse(parse())) {
            PgWireFrontendMessage::Parse(decoded) => assert_eq!(decoded, parse()),
            other => panic!("{other:?}"),
        }
        check(PgWireFrontendMessage::Query(Query::new("SELECT 1".into())));
        check(PgWireFrontendMessage::Describe(Describe::new(b'S', None)));
        check(PgWireFrontendMessage::Close(Close::new(b'P', Some("p".into()))));
        check(PgWireFrontendMessage::Execute(Execute::new(None, 5)));
        check(PgWireFrontendMessage::Sync(Sync::new()));
        check(PgWireFrontendMessage::CopyFail(CopyFail::new("no".into())));
    }

    #[test]
    fn lies_are_refused() {
        // 65,535 parameters of a gigabyte each, none of them there.
        let mut body = BytesMut::new();
        body.put_slice(b"\0\0\0\0\xff\xff\x3f\xff\xff\xff");
        assert_eq!(decode(b'B', body.freeze()).unwrap_err().state, SqlState::PROTOCOL_VIOLATION);
        let negative = Bytes::from_static(b"\0\0\0\0\0\x01\xff\xff\xff\xfe\0\0");
        assert_eq!(decode(b'B', negative).unwrap_err().state, SqlState::PROTOCOL_VIOLATION);
        assert_eq!(decode(b'D', Bytes::from_static(b"X\0")).unwrap_err().state, SqlState::PROTOCOL_VIOLATION);
        assert_eq!(decode(b'Q', Bytes::from_static(b"\xff\0")).unwrap_err().state, CHARACTER_NOT_IN_REPERTOIRE);
        assert_eq!(frame_limit(b'!'), None);
    }

    #[test]
    fn start_up_packets() {
        let session = decode_startup(b"\0\x03\0\x02user\0root\0database\0dev\0\0").unwrap();
        let parameters = [("user".into(), "root".into()), ("database".into(), "dev".into())].into();
        assert_eq!(session, Startup::Session { minor_version: 2, parameters });
        assert_eq!(decode_startup(&80_877_103u32.to_be_bytes()).unwrap(), Startup::Encryption);
        assert_eq!(
            decode_startup(b"\x04\xd2\x16\x2e\0\0\0\x07\0\0\0\x09").unwrap(),
            Startup::Cancel { pid: 7, secret: 9 }
        );
        assert_eq!(decode_startup(b"\0\x02\0\0").unwrap_err().state, SqlState::FEATURE_NOT_SUPPORTED);
        assert_eq!(decode_startup(b"\0\x03\0\0user\0ro").unwrap_err().state, SqlState::PROTOCOL_VIOLATION);
        assert_eq!(decode_startup(b"\0\x03").unwrap_err().state, SqlState::PROTOCOL_VIOLATION);
    }
}
