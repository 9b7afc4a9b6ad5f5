//! The `weir` binary as a process under test.

use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tokio_postgres::{Client, NoTls};

/// How long a start may take on a busy machine.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a clean stop may take.
const STOP_TIMEOUT: Duration = Duration::from_secs(30);

/// A server with a data directory of its own. Killed when dropped.
pub struct Server {
    dir: tempfile::TempDir,
    /// Of the running process: SQL and HTTP. The operating system chooses them at each start.
    ports: Option<(u16, u16)>,
    child: Option<Child>,
    /// More environment for the process, such as failpoints.
    pub env: Vec<(String, String)>,
    /// More arguments.
    pub args: Vec<String>,
}

impl Server {
    /// Starts on an empty data directory and waits until it answers.
    pub async fn start() -> Result<Server> {
        let mut server = Server::prepare()?;
        server.restart().await?;
        Ok(server)
    }

    /// A server that does not run yet.
    pub fn prepare() -> Result<Server> {
        let dir = tempfile::tempdir().context("make a directory for the server")?;
        Ok(Server { dir, ports: None, child: None, env: Vec::new(), args: Vec::new() })
    }

    /// The port for SQL of the running process.
    pub fn port(&self) -> Result<u16> {
        Ok(self.ports.context("the server does not run")?.0)
    }

    /// A directory for files of the test; also where the server runs.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The data directory of the server.
    pub fn data_dir(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// Sends the running process a signal, such as `-STOP`.
    pub fn signal(&self, signal: &str) -> Result<()> {
        let pid = self.child.as_ref().context("the server does not run")?.id();
        let status = Command::new("kill").args([signal.to_owned(), pid.to_string()]).status().context("kill")?;
        if status.success() { Ok(()) } else { bail!("kill {signal}: {status}") }
    }

    /// Takes the data of another server, which stands still, in place of its own.
    pub fn take_copy_of(&self, other: &Server) -> Result<()> {
        let copied = Command::new("cp").arg("-r").arg(other.data_dir()).arg(self.data_dir()).status().context("cp")?;
        if !copied.success() {
            bail!("cp: {copied}");
        }
        std::fs::remove_file(self.data_dir().join("LOCK")).context("remove the other server's lock")
    }

    /// Starts the process on the same data directory (it must not be running) and waits until it answers.
    pub async fn restart(&mut self) -> Result<()> {
        self.launch()?;
        self.answering().await
    }

    /// Starts the process and does not wait for anything.
    pub fn launch(&mut self) -> Result<()> {
        assert!(self.child.is_none(), "the server is still running");
        let log = File::options().create(true).append(true).open(self.log_path()).context("open the server's log")?;
        let child = Command::new(binary()?)
            .arg("serve")
            .args(["--listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0"])
            .arg("--data-dir")
            .arg(self.data_dir())
            .args(&self.args)
            .current_dir(self.dir.path())
            .envs(self.env.iter().cloned())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .context("start the server")?;
        self.child = Some(child);
        self.ports = None;
        Ok(())
    }

    async fn answering(&mut self) -> Result<()> {
        let begun = Instant::now();
        loop {
            self.ports = self.ready_ports();
            if self.ports.is_some() && self.connect().await.is_ok() {
                return Ok(());
            }
            let child = self.child.as_mut().context("the server runs")?;
            if let Some(status) = child.try_wait().context("look at the server")? {
                self.child = None;
                bail!("the server ended with {status} at its start:\n{}", self.log_tail());
            }
            if begun.elapsed() > START_TIMEOUT {
                bail!("the server does not answer:\n{}", self.log_tail());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Ends the process with SIGKILL.
    pub fn kill(&mut self) -> Result<()> {
        if let Some(mut child) = self.child.take() {
            child.kill().context("kill the server")?;
            child.wait().context("wait for the killed server")?;
        }
        Ok(())
    }

    /// Ends the process with SIGTERM and checks that it ends cleanly.
    pub async fn stop(&mut self) -> Result<()> {
        let Some(mut child) = self.child.take() else { return Ok(()) };
        let status = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().context("send SIGTERM")?;
        if !status.success() {
            bail!("SIGTERM could not be sent: {status}");
        }
        let begun = Instant::now();
        loop {
            match child.try_wait().context("wait for the server")? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => bail!("the server ended with {status}:\n{}", self.log_tail()),
                None if begun.elapsed() > STOP_TIMEOUT => {
                    child.kill().context("kill the server")?;
                    bail!("the server did not stop on SIGTERM:\n{}", self.log_tail());
                }
                None => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    }

    /// Waits until the process ends by itself.
    pub async fn ended(&mut self) -> Result<ExitStatus> {
        let mut child = self.child.take().context("the server runs")?;
        let begun = Instant::now();
        loop {
            if let Some(status) = child.try_wait().context("look at the server")? {
                return Ok(status);
            }
            if begun.elapsed() > STOP_TIMEOUT {
                self.child = Some(child);
                bail!("the server does not end:\n{}", self.log_tail());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Whether the process has not ended by itself.
    pub fn is_running(&mut self) -> bool {
        self.child.as_mut().is_some_and(|c| matches!(c.try_wait(), Ok(None)))
    }

    /// A connection as user `root` to database `dev`.
    pub async fn connect(&self) -> Result<Client> {
        let config = format!("host=127.0.0.1 port={} user=root dbname=dev", self.port()?);
        let (client, connection) = tokio_postgres::connect(&config, NoTls).await.context("connect")?;
        tokio::spawn(connection);
        Ok(client)
    }

    /// What the lock file says, once the process that we started has written it.
    fn ready_ports(&self) -> Option<(u16, u16)> {
        let said = std::fs::read_to_string(self.dir.path().join("data/LOCK")).ok()?;
        let lines: Vec<_> = said.lines().collect();
        let [process, sql, http] = lines[..] else { return None };
        let port = |address: &str| address.parse::<SocketAddr>().ok().map(|a| a.port());
        (process.parse() == Ok(self.child.as_ref()?.id())).then(|| Some((port(sql)?, port(http)?))).flatten()
    }

    /// The end of what the server has logged.
    pub fn log_tail(&self) -> String {
        let log = std::fs::read_to_string(self.log_path()).unwrap_or_default();
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }

    fn log_path(&self) -> PathBuf {
        self.dir.path().join("server.log")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

/// The binary: `WEIR_BIN`, or the one built into the same target directory as this test.
fn binary() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("WEIR_BIN") {
        return Ok(path.into());
    }
    let test = std::env::current_exe().context("path of the test")?;
    let found = test.ancestors().skip(1).take(3).map(|dir| dir.join("weir")).find(|path| path.is_file());
    found.with_context(|| format!("no `weir` binary beside {}; run `make build` first", test.display()))
}
