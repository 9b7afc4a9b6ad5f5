//! A PostgreSQL server of the tests' own, on a free port of this machine, in a temporary directory. It runs as user
//! `postgres` where the tests run as root, which PostgreSQL refuses.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex, Weak};

use tempfile::TempDir;
use tokio_postgres::{Client, NoTls};
use xxhash_rust::xxh3::xxh3_64;

pub struct Server {
    pub port: u16,
    directory: TempDir,
    binaries: PathBuf,
    /// User and group to run as; `None`: our own.
    user: Option<(u32, u32)>,
}

/// The server that is running, if a test still needs it.
static SHARED: Mutex<Weak<Server>> = Mutex::new(Weak::new());

impl Server {
    /// The server that all tests of the process share. It stops with the last one.
    pub fn shared() -> Arc<Server> {
        let mut shared = SHARED.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        shared.upgrade().unwrap_or_else(|| {
            let server = Arc::new(Server::start());
            *shared = Arc::downgrade(&server);
            server
        })
    }

    fn start() -> Server {
        let binaries = binaries();
        let root = fs::metadata("/proc/self").unwrap().uid() == 0;
        let server =
            Server { port: free_port(), directory: TempDir::new().unwrap(), binaries, user: root.then(postgres_user) };
        if let Some((user, group)) = server.user {
            chown(server.directory.path(), Some(user), Some(group)).unwrap();
        }
        server.run("initdb", &["-D", "data", "-U", "postgres", "-A", "trust", "--locale=C", "-E", "UTF8", "--no-sync"]);
        let socket = server.directory.path().display();
        let options = format!("-p {} -c listen_addresses=127.0.0.1 -k {socket} -c fsync=off", server.port);
        server.run("pg_ctl", &["-D", "data", "-w", "-l", "log", "-o", &options, "start"]);
        server
    }

    pub async fn connect(&self) -> Client {
        let config = format!("host=127.0.0.1 port={} user=postgres", self.port);
        let (client, connection) = tokio_postgres::connect(&config, NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }

    fn run(&self, program: &str, arguments: &[&str]) {
        let output = self.command(program, arguments).output().unwrap();
        assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    }

    fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.binaries.join(program));
        command.args(arguments).current_dir(self.directory.path());
        if let Some((user, group)) = self.user {
            command.uid(user).gid(group);
        }
        command
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A failure to stop must not hide why a test has failed.
        let _ = self.command("pg_ctl", &["-D", "data", "-m", "immediate", "stop"]).output();
    }
}

/// Where the server's programs are. Debian keeps those of each version apart, and out of the path; its `pg_config` tells only
/// those who build extensions.
fn binaries() -> PathBuf {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let debian = versions.map(|version| version.path().join("bin")).filter(|bin| bin.join("initdb").exists()).max();
    debian.unwrap_or_else(|| {
        let found = Command::new("pg_config").arg("--bindir").output().unwrap().stdout;
        PathBuf::from(String::from_utf8(found).unwrap().trim())
    })
}

/// How the sessions of a sink's writers call themselves.
pub fn application_name(id: &str, generation: u64) -> String {
    format!("weir sink {:016x} generation {generation}", xxh3_64(id.as_bytes()))
}

/// A port that nobody listens on.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn postgres_user() -> (u32, u32) {
    let users = fs::read_to_string("/etc/passwd").unwrap();
    let user = users.lines().find(|line| line.starts_with("postgres:")).unwrap();
    let fields: Vec<&str> = user.split(':').collect();
    (fields[2].parse().unwrap(), fields[3].parse().unwrap())
}
