//! The listener: a task for each connection, until the server shuts down.

use std::collections::BTreeMap;
use std::io;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tracing::{debug, warn};
use weir_meta::Meta;

use super::backend::Backend;
use super::cancel::Registry;
use super::connection::{Connection, terminated};
use super::message::protocol_violation;
use super::startup::login;
use super::wire::{Failure, Wire};
use crate::Session;
use crate::error::{Result, SqlError, SqlState};

/// Connections at a time.
const CONNECTIONS_MAX: usize = 5_000;
/// How long a client may take to log in.
const LOGIN: Duration = Duration::from_secs(60);
/// How long connections may take to end when the server shuts down.
const SHUTDOWN: Duration = Duration::from_secs(5);
/// How long to wait when no connection can be accepted, because the process has no file descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves SQL to all who connect, until `shutdown` is ready; then ends their sessions.
pub async fn serve(meta: Arc<Meta>, listener: TcpListener, shutdown: impl Future<Output = ()>) -> io::Result<()> {
    let registry = Arc::new(Registry::default());
    listen(registry, listener, shutdown, move |startup, _pid| Session::new(meta.clone(), startup)).await;
    Ok(())
}

/// Serves sessions that `connect` makes from start-up parameters and a pid.
pub async fn listen<B: Backend>(
    registry: Arc<Registry>,
    listener: TcpListener,
    shutdown: impl Future<Output = ()>,
    connect: impl Fn(&BTreeMap<String, String>, i32) -> Result<Arc<B>> + Send + Sync + 'static,
) {
    let connect = Arc::new(connect);
    let mut connections = JoinSet::new();
    let mut shutdown = std::pin::pin!(shutdown);
    loop {
        let stream = tokio::select! {
            () = &mut shutdown => break,
            Some(_) = connections.join_next() => continue,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    warn!(%error, "accept a connection");
                    sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            },
        };
        let (registry, connect) = (registry.clone(), connect.clone());
        connections.spawn(async move {
            // A panic here is a bug of the protocol and costs one connection.
            let served = AssertUnwindSafe(attend(stream, registry, &*connect)).catch_unwind().await;
            if served.is_err() {
                warn!("a connection ended in a panic");
            }
        });
    }
    drop(listener);
    registry.shut_down();
    let all = async { while connections.join_next().await.is_some() {} };
    if timeout(SHUTDOWN, all).await.is_err() {
        warn!("connections did not end in time");
        connections.shutdown().await;
    }
}

/// One connection from beginning to end.
async fn attend<B: Backend>(
    stream: TcpStream,
    registry: Arc<Registry>,
    connect: &impl Fn(&BTreeMap<String, String>, i32) -> Result<Arc<B>>,
) {
    // Without it small answers would wait for the acknowledgement of the ones before them.
    if let Err(error) = stream.set_nodelay(true) {
        debug!(%error, "set TCP_NODELAY");
    }
    let mut wire = Wire::new(stream);
    let Some(registration) = registry.register() else { return };
    let full = registry.len() > CONNECTIONS_MAX;
    let signals = registration.signals.clone();
    let entered = tokio::select! {
        biased;
        () = signals.terminated() => Err(terminated()),
        entered = timeout(LOGIN, login(&mut wire, &registry, &registration, connect)) => match entered {
            Ok(Ok(Some(_))) if full => {
                Err(Failure::fatal(SqlError::new(SqlState("53300"), "sorry, too many clients already")))
            }
            Ok(entered) => entered,
            Err(_) => Err(Failure::fatal(protocol_violation("the startup message did not come in time"))),
        },
    };
    match entered {
        Ok(Some(session)) => Connection::new(wire, session, registration).serve().await,
        Ok(None) | Err(Failure::Io(_)) => wire.close(None).await,
        Err(Failure::Sql(error)) => wire.close(Some(error)).await,
    }
}
