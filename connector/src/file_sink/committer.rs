//! Makes commits visible: entries of the log.

use std::fs;
use std::io;

use async_trait::async_trait;
use weir_common::{Generation, JobId};

use super::commit_log::{CommitLog, Committed};
use super::disk::{self, failed, off_runtime};
use super::layout::{DataFile, Layout};
use crate::error::{ConnectorError, Result};
use crate::sink::{Commit, Committer};

/// The committer of a sink. The log is opened for each call: others may write to it at any time.
pub struct FileCommitter {
    layout: Layout,
    /// Who we are, once we have taken the sink over.
    generation: Option<Generation>,
}

impl FileCommitter {
    pub fn new(layout: Layout) -> FileCommitter {
        FileCommitter { layout, generation: None }
    }

    /// Works on the log.
    async fn with_log<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut CommitLog) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let layout = self.layout.clone();
        off_runtime(move || work(&mut CommitLog::open(layout)?)).await
    }
}

/// The files of a commit.
fn files(commit: &Commit) -> Result<Vec<DataFile>> {
    let mut files = vec![];
    for part in &commit.parts {
        let of_part: Vec<DataFile> = serde_json::from_value(part.clone()).map_err(|e| ConnectorError::Mismatch {
            reason: format!("commit {} is none of files: {e}", commit.stamp.commit),
        })?;
        files.extend(of_part);
    }
    Ok(files)
}

#[async_trait]
impl Committer for FileCommitter {
    async fn fence(&mut self, _sink: JobId, generation: Generation) -> Result<()> {
        self.with_log(move |log| log.take_over(generation)).await?;
        self.generation = Some(generation);
        Ok(())
    }

    async fn commit(&mut self, commit: &Commit) -> Result<()> {
        // A commit left behind by an older generation is carried out by us, in our name.
        let generation = self.generation.unwrap_or(commit.stamp.generation);
        let commit = Committed { stamp: commit.stamp.clone(), files: files(commit)? };
        self.with_log(move |log| log.commit(generation, commit)).await
    }

    async fn is_committed(&mut self, commit: &Commit) -> Result<bool> {
        let stamp = commit.stamp.clone();
        self.with_log(move |log| log.holds(&stamp)).await
    }

    async fn is_intact(&mut self, commit: &Commit) -> Result<bool> {
        for file in files(commit)? {
            let staged = self.layout.absolute(&file.staged);
            if !staged.try_exists().map_err(|e| failed("look for", &staged, e))? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn discard(&mut self, commit: &Commit) -> Result<()> {
        for file in files(commit)? {
            let staged = self.layout.absolute(&file.staged);
            match fs::remove_file(&staged) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(failed("remove", &staged, e)),
                _ => {}
            }
        }
        Ok(())
    }

    async fn clean(&mut self, _sink: JobId, generation: Generation) -> Result<u64> {
        let layout = self.layout.clone();
        off_runtime(move || {
            // The files of the newest commit may still be among those that are staged.
            CommitLog::open(layout.clone())?.settle(generation)?;
            let mut removed = 0;
            for name in disk::names(&layout.staged())? {
                if name.parse().is_ok_and(|of: u64| of < generation.0) {
                    let path = layout.staged().join(name);
                    removed += disk::names(&path)?.len() as u64;
                    fs::remove_dir_all(&path).map_err(|e| failed("remove", &path, e))?;
                }
            }
            Ok(removed)
        })
        .await
    }
}
