//! How a connection begins.
//!
//! ```text
//! client  SSLRequest | GSSENCRequest, at most twice      server  N: not encrypted
//! client  CancelRequest                                  server  closes
//! client  StartupMessage                                 server  AuthenticationOk; the rest is `connection`'s
//! ```
//!
//! Whoever can connect is let in; the session decides what it makes of user and database.

use std::collections::BTreeMap;
use std::sync::Arc;

use pgwire::messages::PgWireBackendMessage;
use pgwire::messages::startup::{Authentication, NegotiateProtocolVersion};

use super::cancel::{Registration, Registry};
use super::message::{Startup, decode_startup, protocol_violation};
use super::wire::{Failure, Wire};
use crate::error::{Result, SqlError, SqlState};

/// The newest version of the protocol that is spoken: 3.0.
const PROTOCOL_VERSION: i32 = 3 << 16;
/// Kinds of encryption that a client may ask for.
const ENCRYPTION_REQUESTS_MAX: usize = 2;

/// Lets a client in. `None`: there is no session to serve, since the client has left or wanted something else.
pub async fn login<B>(
    wire: &mut Wire,
    registry: &Registry,
    registration: &Registration,
    connect: &impl Fn(&BTreeMap<String, String>, i32) -> Result<Arc<B>>,
) -> Result<Option<Arc<B>>, Failure> {
    let mut requests = 0;
    let (minor_version, parameters) = loop {
        let Some(packet) = wire.read_startup().await? else { return Ok(None) };
        match decode_startup(&packet).map_err(Failure::fatal)? {
            Startup::Encryption if requests < ENCRYPTION_REQUESTS_MAX => {
                requests += 1;
                wire.put_byte(b'N');
                wire.flush().await?;
            }
            Startup::Encryption => {
                return Err(Failure::fatal(protocol_violation("expected a startup message")));
            }
            Startup::Cancel { pid, secret } => {
                registry.cancel(pid, secret);
                return Ok(None);
            }
            Startup::Session { minor_version, parameters } => break (minor_version, parameters),
        }
    };
    let unknown: Vec<String> = parameters.keys().filter(|name| name.starts_with("_pq_.")).cloned().collect();
    if minor_version > 0 || !unknown.is_empty() {
        let negotiate = NegotiateProtocolVersion::new(PROTOCOL_VERSION, unknown);
        wire.put(PgWireBackendMessage::NegotiateProtocolVersion(negotiate)).map_err(Failure::fatal)?;
    }
    check(&parameters).map_err(Failure::fatal)?;
    let session = connect(&parameters, registration.pid).map_err(Failure::fatal)?;
    wire.put(PgWireBackendMessage::Authentication(Authentication::Ok)).map_err(Failure::fatal)?;
    Ok(Some(session))
}

/// What only the protocol can know to be wrong.
fn check(parameters: &BTreeMap<String, String>) -> Result<()> {
    if parameters.get("user").is_none_or(String::is_empty) {
        return Err(SqlError::new(SqlState("28000"), "no PostgreSQL user name specified in startup packet"));
    }
    match parameters.get("replication").map(String::as_str) {
        None | Some("false" | "off" | "no" | "0") => Ok(()),
        Some(_) => Err(SqlError::unsupported("a connection for replication")),
    }
}
