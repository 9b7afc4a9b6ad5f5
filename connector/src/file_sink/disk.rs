//! Durable changes of directories.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use crate::error::{ConnectorError, Result};

/// The error of an act on a path.
pub fn failed(act: &str, path: &Path, error: impl ToString) -> ConnectorError {
    ConnectorError::Unavailable { what: format!("{act} {}", path.display()), reason: error.to_string() }
}

/// Makes the names in a directory durable.
pub fn sync_directory(path: &Path) -> Result<()> {
    File::open(path).and_then(|d| d.sync_all()).map_err(|e| failed("make durable", path, e))
}

/// Makes a directory and those above it that are missing, durably.
pub fn create_directory(path: &Path) -> Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    create_directory(parent)?;
    match fs::create_dir(path) {
        Ok(()) => sync_directory(parent),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        Err(e) => Err(failed("make directory", path, e)),
    }
}

/// The names in a directory; none when it is not there.
pub fn names(path: &Path) -> Result<Vec<String>> {
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(vec![]),
        Err(e) => return Err(failed("list", path, e)),
    };
    let mut names = vec![];
    for entry in entries {
        let entry = entry.map_err(|e| failed("list", path, e))?;
        names.extend(entry.file_name().into_string());
    }
    Ok(names)
}

/// Runs file work that may take long off the threads of the runtime.
pub async fn off_runtime<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(e) => Err(ConnectorError::Unavailable { what: "work on files".into(), reason: e.to_string() }),
    }
}
