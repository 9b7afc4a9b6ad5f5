//! Interrupting what another connection does.
//!
//! A client that wants its statement stopped opens a second connection and names the first by the pid and secret that it
//! was given at start-up. The server stops all of them when it shuts down. A connection hears of both through its
//! [`Signals`], at every await.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// All connections of a server.
#[derive(Default)]
pub struct Registry {
    connections: Mutex<Connections>,
}

#[derive(Default)]
struct Connections {
    by_pid: HashMap<i32, (i32, Arc<Signals>)>,
    last_pid: i32,
    /// No more connections: the server shuts down.
    closed: bool,
}

/// What reaches a connection from outside.
#[derive(Debug, Default)]
pub struct Signals {
    cancel: Notify,
    terminate: Notify,
}

impl Signals {
    /// Ready when someone asks, from now on, that the statement that runs be cancelled.
    pub fn cancelled(&self) -> Notified<'_> {
        self.cancel.notified()
    }

    /// Ready once the connection must end.
    pub fn terminated(&self) -> Notified<'_> {
        self.terminate.notified()
    }
}

/// The place of a connection in the registry, until dropped.
pub struct Registration {
    registry: Arc<Registry>,
    pub pid: i32,
    pub secret: i32,
    pub signals: Arc<Signals>,
}

impl Registry {
    /// Enters a connection. `None` once the server shuts down.
    pub fn register(self: &Arc<Self>) -> Option<Registration> {
        let mut connections = self.lock();
        if connections.closed {
            return None;
        }
        let mut pid = connections.last_pid;
        loop {
            pid = if pid == i32::MAX { 1 } else { pid + 1 };
            if !connections.by_pid.contains_key(&pid) {
                break;
            }
        }
        connections.last_pid = pid;
        let (secret, signals) = (rand::random(), Arc::<Signals>::default());
        connections.by_pid.insert(pid, (secret, signals.clone()));
        Some(Registration { registry: self.clone(), pid, secret, signals })
    }

    /// Cancels the statement that runs on a connection, if the secret is right. Does nothing to an idle connection.
    pub fn cancel(&self, pid: i32, secret: i32) {
        if let Some((expected, signals)) = self.lock().by_pid.get(&pid)
            && *expected == secret
        {
            signals.cancel.notify_waiters();
        }
    }

    /// Like [`Registry::cancel`] for those who need no secret: `pg_cancel_backend`. False: there is no such connection.
    pub fn cancel_pid(&self, pid: i32) -> bool {
        self.lock().by_pid.get(&pid).map(|(_, signals)| signals.cancel.notify_waiters()).is_some()
    }

    /// Ends a connection: `pg_terminate_backend`. False: there is no such connection.
    pub fn terminate(&self, pid: i32) -> bool {
        self.lock().by_pid.get(&pid).map(|(_, signals)| signals.terminate.notify_one()).is_some()
    }

    /// Ends all connections and admits no more.
    pub fn shut_down(&self) {
        let mut connections = self.lock();
        connections.closed = true;
        connections.by_pid.values().for_each(|(_, signals)| signals.terminate.notify_one());
    }

    /// How many connections there are.
    pub fn len(&self) -> usize {
        self.lock().by_pid.len()
    }

    /// Whether there is no connection.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn lock(&self) -> MutexGuard<'_, Connections> {
        // Nothing between lock and unlock can leave the map half changed.
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.registry.lock().by_pid.remove(&self.pid);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use futures::FutureExt;

    use super::*;

    #[test]
    fn only_the_right_secret_cancels_and_only_what_runs() {
        let registry = Arc::new(Registry::default());
        let registration = registry.register().unwrap();
        registry.cancel(registration.pid, registration.secret);
        let mut cancelled = Box::pin(registration.signals.cancelled());
        assert!(cancelled.as_mut().now_or_never().is_none());
        registry.cancel(registration.pid, registration.secret.wrapping_add(1));
        assert!(cancelled.as_mut().now_or_never().is_none());
        registry.cancel(registration.pid, registration.secret);
        assert!(cancelled.as_mut().now_or_never().is_some());
    }

    #[test]
    fn termination_is_heard_later_too() {
        let registry = Arc::new(Registry::default());
        let registration = registry.register().unwrap();
        assert!(registry.terminate(registration.pid));
        assert!(registration.signals.terminated().now_or_never().is_some());
        registry.shut_down();
        assert!(registration.signals.terminated().now_or_never().is_some());
        assert!(registry.register().is_none());
        let pid = registration.pid;
        drop(registration);
        assert!(registry.is_empty() && !registry.terminate(pid));
    }
}
