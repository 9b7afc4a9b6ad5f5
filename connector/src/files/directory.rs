//! The files below a directory.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::glob::Glob;
use crate::error::{ConnectorError, Result};

/// Directories inside each other that are searched; a bound for links that lead back up.
const DEPTH_MAX: usize = 32;

/// A directory and which files of it are meant.
#[derive(Clone, Debug)]
pub struct Directory {
    pub root: PathBuf,
    pub pattern: Glob,
}

impl Directory {
    /// The paths of the files below the root, `/` between their parts, in order.
    pub fn list(&self) -> Result<Vec<String>> {
        let mut files = vec![];
        self.visit(&self.root, "", 0, &mut files)?;
        files.sort_unstable();
        Ok(files)
    }

    /// Where a file is that was listed.
    pub fn path(&self, file: &str) -> PathBuf {
        self.root.join(file)
    }

    fn visit(&self, directory: &Path, below: &str, depth: usize, files: &mut Vec<String>) -> Result<()> {
        let entries = match fs::read_dir(directory) {
            Ok(entries) => entries,
            // Gone since its parent was read.
            Err(e) if depth > 0 && e.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(source) => return Err(ConnectorError::Read { path: directory.to_owned(), source }),
        };
        for entry in entries {
            let entry = entry.map_err(|source| ConnectorError::Read { path: directory.to_owned(), source })?;
            let Ok(name) = entry.file_name().into_string() else {
                tracing::warn!(path = %entry.path().display(), "a file is left out because its name is not UTF-8");
                continue;
            };
            if name.starts_with('.') {
                continue;
            }
            // Follows links; a link to nothing is left out.
            let Ok(metadata) = fs::metadata(entry.path()) else { continue };
            let file = if below.is_empty() { name } else { format!("{below}/{name}") };
            if metadata.is_dir() {
                if depth < DEPTH_MAX {
                    self.visit(&entry.path(), &file, depth + 1, files)?;
                }
            } else if metadata.is_file() && self.pattern.matches(&file) {
                files.push(file);
            }
        }
        Ok(())
    }
}
