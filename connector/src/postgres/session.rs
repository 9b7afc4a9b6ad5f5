//! A connection to the server, and what its errors mean.

use std::time::Duration;

use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config, NoTls};
use weir_common::Generation;
use xxhash_rust::xxh3::xxh3_64;

use super::config::PostgresConfig;
use crate::error::{ConnectorError, Result};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the other side may be silent before a connection counts as lost.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// Texts are read in the formats that [`weir_common::text`] writes. Nobody waits for a lock for ever. A commit that was
/// acknowledged is durable, whatever the server's default: the log behind it is deleted.
const SETTINGS: &str = "
    SET datestyle = 'ISO, YMD';
    SET intervalstyle = 'postgres';
    SET timezone = 'UTC';
    SET lock_timeout = '30s';
    SET statement_timeout = 0;
    SET idle_in_transaction_session_timeout = 0;
    SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'";

/// How the sessions of a sink begin their `application_name`; the generation follows. It is cut at 63 bytes, so the name of
/// the sink is hashed.
pub fn application_prefix(id: &str) -> String {
    format!("weir sink {:016x} generation ", xxh3_64(id.as_bytes()))
}

/// Connects; `generation` where a writer does.
pub async fn connect(config: &PostgresConfig, generation: Option<Generation>) -> Result<Client> {
    let mut connect = Config::new();
    connect
        .host(&config.host)
        .port(config.port)
        .user(&config.user)
        .dbname(&config.database)
        .connect_timeout(CONNECT_TIMEOUT)
        .keepalives_idle(SILENCE_MAX)
        .tcp_user_timeout(SILENCE_MAX);
    if let Some(password) = &config.password {
        connect.password(password);
    }
    match generation {
        Some(generation) => connect.application_name(format!("{}{generation}", application_prefix(&config.id))),
        None => connect.application_name("weir"),
    };
    let (client, connection) = connect.connect(NoTls).await.map_err(|e| failed("connect to PostgreSQL", &e))?;
    // Ends when the client is dropped. Its error reaches whoever uses the client.
    tokio::spawn(connection);
    client.batch_execute(SETTINGS).await.map_err(|e| failed("connect to PostgreSQL", &e))?;
    Ok(client)
}

/// The error of an act. What the server says about rows or statements is a refusal; all else may pass.
pub fn failed(act: &str, error: &tokio_postgres::Error) -> ConnectorError {
    let Some(told) = error.as_db_error() else {
        // Its message names the kind, its source the cause.
        let cause = std::error::Error::source(error).map(|cause| format!(": {cause}")).unwrap_or_default();
        return ConnectorError::Unavailable { what: act.to_owned(), reason: format!("{error}{cause}") };
    };
    let mut reason = format!("{} (SQLSTATE {})", told.message(), told.code().code());
    for more in [told.detail(), told.hint(), told.where_()].into_iter().flatten() {
        reason.push_str("; ");
        reason.push_str(more);
    }
    match is_passing(told.code()) {
        true => ConnectorError::Unavailable { what: act.to_owned(), reason },
        false => ConnectorError::Refused { what: format!("PostgreSQL, asked to {act},"), reason },
    }
}

/// Connections, resources, shutdowns, conflicts of transactions and locks.
fn is_passing(code: &SqlState) -> bool {
    *code == SqlState::LOCK_NOT_AVAILABLE || ["08", "40", "53", "57", "58"].contains(&&code.code()[..2])
}

/// A name in quotes.
pub fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
