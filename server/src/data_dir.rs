//! The data directory: one process owns it, and only what Weir made is opened.
//!
//! ```text
//! LOCK        locked while a process runs; says its id, then the addresses of its SQL and HTTP listeners, a line each
//! VERSION     format of the directory
//! store/      state (RocksDB)
//! spill/      what queries have no memory for; emptied at each start
//! meta.db     catalog (SQLite), unless a meta store is given by URL
//! ```

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use rustix::fs::{FlockOperation, flock};

/// Format of the directory that this Weir writes, and the newest that it reads.
const VERSION: u32 = 1;

/// An open data directory. Unlocked when dropped, or when the process ends in whatever way.
pub struct DataDir {
    path: PathBuf,
    lock: File,
}

impl DataDir {
    /// Makes or opens the directory.
    pub fn open(path: &Path) -> Result<DataDir> {
        fs::create_dir_all(path).with_context(|| format!("create data directory {}", path.display()))?;
        let version = path.join("VERSION");
        let found = match fs::read_to_string(&version) {
            Ok(text) => Some(text),
            Err(e) if e.kind() == ErrorKind::NotFound => None,
            Err(e) => return Err(e).with_context(|| format!("read {}", version.display())),
        };
        if found.is_none() && is_foreign(path)? {
            bail!("{} has files in it but is not a Weir data directory; give another --data-dir", path.display());
        }
        let lock = lock(path)?;
        match found {
            None => {
                fs::write(&version, format!("{VERSION}\n")).with_context(|| format!("write {}", version.display()))?
            }
            Some(text) => match text.trim().parse::<u32>() {
                Ok(found) if found <= VERSION => {}
                Ok(found) => {
                    bail!("{} has format {found}; this Weir reads up to {VERSION}: use a newer one", path.display())
                }
                Err(_) => bail!("{} is not a Weir data directory: VERSION says `{}`", path.display(), text.trim()),
            },
        }
        Ok(DataDir { path: path.to_owned(), lock })
    }

    /// Says in the lock file who owns the directory and where it answers, in one write.
    pub fn say_ready(&self, sql: SocketAddr, http: SocketAddr) -> Result<()> {
        let text = format!("{}\n{sql}\n{http}\n", std::process::id());
        (&self.lock).write_all(text.as_bytes()).with_context(|| format!("write {}", self.path.join("LOCK").display()))
    }

    /// Where the state store is.
    pub fn store(&self) -> PathBuf {
        self.path.join("store")
    }

    /// An empty folder for what queries spill.
    pub fn spill(&self) -> Result<PathBuf> {
        let path = self.path.join("spill");
        match fs::remove_dir_all(&path) {
            Err(e) if e.kind() != ErrorKind::NotFound => {
                return Err(e).with_context(|| format!("empty {}", path.display()));
            }
            _ => {}
        }
        fs::create_dir(&path).with_context(|| format!("create {}", path.display()))?;
        Ok(path)
    }

    /// URL of the meta store in this directory.
    pub fn meta_store_url(&self) -> String {
        format!("sqlite://{}?mode=rwc", self.path.join("meta.db").display())
    }
}

fn is_foreign(path: &Path) -> Result<bool> {
    let mut entries = fs::read_dir(path).with_context(|| format!("list {}", path.display()))?;
    Ok(entries.any(|e| e.is_ok_and(|e| e.file_name() != "LOCK")))
}

fn lock(path: &Path) -> Result<File> {
    let path_of_lock = path.join("LOCK");
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path_of_lock);
    let file = file.with_context(|| format!("open {}", path_of_lock.display()))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {
            file.set_len(0).with_context(|| format!("empty {}", path_of_lock.display()))?;
            Ok(file)
        }
        Err(rustix::io::Errno::WOULDBLOCK) => {
            bail!("data directory {} is in use by another Weir process", path.display())
        }
        Err(e) => Err(e).with_context(|| format!("lock {}", path_of_lock.display())),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn refusal(path: &Path) -> String {
        DataDir::open(path).err().unwrap().to_string()
    }

    #[test]
    fn one_process_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let first = DataDir::open(dir.path()).unwrap();
        assert!(refusal(dir.path()).contains("in use"));
        drop(first);
        DataDir::open(dir.path()).unwrap();
    }

    #[test]
    fn foreign_and_newer_directories_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("thesis.tex"), "").unwrap();
        assert!(refusal(dir.path()).contains("not a Weir data directory"));

        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("VERSION"), "999\n").unwrap();
        assert!(refusal(dir.path()).contains("newer"));
    }
}
