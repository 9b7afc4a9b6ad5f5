//! Where things are below the directory of a sink.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use weir_common::Generation;

/// A file of a commit. Paths are relative to the directory, with `/` between their parts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataFile {
    /// Where it is for readers.
    pub path: String,
    /// Where it is before.
    pub staged: String,
    pub rows: u64,
    pub bytes: u64,
}

/// The directory of a sink.
#[derive(Clone, Debug)]
pub struct Layout {
    root: PathBuf,
    id: String,
}

impl Layout {
    /// `id` is one name of a path, see [`directory_name`].
    pub fn new(root: PathBuf, id: String) -> Layout {
        Layout { root, id }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Of a path that a [`DataFile`] has.
    pub fn absolute(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    pub fn log(&self) -> PathBuf {
        self.root.join(".weir").join(&self.id).join("log")
    }

    /// What generations have staged: a directory for each.
    pub fn staged(&self) -> PathBuf {
        self.root.join(".weir").join(&self.id).join("staged")
    }

    pub fn staged_by(&self, generation: Generation) -> PathBuf {
        self.staged().join(generation.to_string())
    }

    /// A file, in a partition's directory (empty: none), that this generation writes.
    pub fn data_file(&self, generation: Generation, partition: &str, name: &str) -> DataFile {
        let path = if partition.is_empty() { name.to_owned() } else { format!("{partition}/{name}") };
        // Another ending, so that no pattern for data files finds it.
        let staged = format!(".weir/{}/staged/{generation}/{name}.part", self.id);
        DataFile { path, staged, rows: 0, bytes: 0 }
    }
}

/// A name for a directory: what is not a letter, digit, `_`, `-` or `.` becomes `_`.
pub fn directory_name(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.') { c } else { '_' }).collect()
}
