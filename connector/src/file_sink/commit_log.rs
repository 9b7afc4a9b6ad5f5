//! The log of a sink: its commits and the generations that have taken it over, in one order.
//!
//! Entry `n` is the file `<n>.entry`, JSON, complete and durable when it appears. Invariant: along the log, generations do not
//! decrease; so the newest entry says which generation has the sink.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use uuid::Uuid;
use weir_common::Generation;

use super::disk::{self, failed};
use super::layout::{DataFile, Layout};
use crate::error::{ConnectorError, Result};
use crate::sink::Stamp;

/// A commit that is visible.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Committed {
    pub stamp: Stamp,
    pub files: Vec<DataFile>,
}

/// An entry.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Entry {
    /// Who added it. Not always the generation of the stamp: a commit that was left behind is carried out by the next one.
    generation: Generation,
    /// `None`: the generation takes over.
    commit: Option<Committed>,
}

/// The log, read as far as `newest`.
pub struct CommitLog {
    layout: Layout,
    /// Number of the newest entry that was read; the first one is 1.
    newest: u64,
    /// Of the newest entry.
    generation: Generation,
    /// The newest commit.
    last: Option<Committed>,
}

impl CommitLog {
    /// Reads to the end.
    pub fn open(layout: Layout) -> Result<CommitLog> {
        let names = disk::names(&layout.log())?;
        let newest = names.iter().filter_map(|n| n.strip_suffix(".entry")?.parse().ok()).max().unwrap_or(0);
        let mut log = CommitLog { layout, newest, generation: Generation(0), last: None };
        if newest > 0 {
            log.generation = log.entry(newest)?.generation;
            let last = log.commits().next().transpose()?;
            log.last = last;
        }
        Ok(log)
    }

    /// Adds that `generation` takes over, after which no older one adds anything.
    pub fn take_over(&mut self, generation: Generation) -> Result<()> {
        loop {
            self.check(generation)?;
            if self.add(Entry { generation, commit: None })? {
                break;
            }
        }
        // Nobody else can add a commit now, so this one is the last that may lack something.
        self.finish()
    }

    /// Moves what was left of the newest commit, unless a newer generation has taken over.
    pub fn settle(&mut self, generation: Generation) -> Result<()> {
        self.check(generation)?;
        self.finish()
    }

    /// Adds a commit, unless it is there, and moves its files to their places.
    pub fn commit(&mut self, generation: Generation, commit: Committed) -> Result<()> {
        loop {
            self.read_on()?;
            if self.holds(&commit.stamp)? {
                return Ok(());
            }
            self.check(generation)?;
            for file in &commit.files {
                let staged = self.layout.absolute(&file.staged);
                if !exists(&staged)? {
                    return Err(ConnectorError::Gone { what: staged.display().to_string() });
                }
            }
            self.finish()?;
            if self.add(Entry { generation, commit: Some(commit.clone()) })? {
                return self.finish();
            }
        }
    }

    /// Whether a commit is visible. If it is, its files are in their places afterwards.
    pub fn holds(&mut self, stamp: &Stamp) -> Result<bool> {
        self.read_on()?;
        let mut found = None;
        for commit in self.commits() {
            let commit = commit?;
            if commit.stamp.commit == stamp.commit {
                found = Some(commit);
                break;
            }
            // Commits are made in the order of their epochs.
            if commit.stamp.epoch < stamp.epoch {
                break;
            }
        }
        match found {
            None => Ok(false),
            Some(commit) => self.put_in_place(&commit).map(|_| true),
        }
    }

    /// The commits, the newest first.
    fn commits(&self) -> impl Iterator<Item = Result<Committed>> {
        (1..=self.newest).rev().filter_map(|n| self.entry(n).map(|entry| entry.commit).transpose())
    }

    fn check(&mut self, ours: Generation) -> Result<()> {
        self.read_on()?;
        match self.generation {
            newer if newer > ours => Err(ConnectorError::Fenced { ours: ours.0, newer: newer.0 }),
            _ => Ok(()),
        }
    }

    fn read_on(&mut self) -> Result<()> {
        while exists(&self.path(self.newest + 1))? {
            let entry = self.entry(self.newest + 1)?;
            self.apply(entry);
        }
        Ok(())
    }

    fn apply(&mut self, entry: Entry) {
        self.newest += 1;
        self.generation = entry.generation;
        self.last = entry.commit.or(self.last.take());
    }

    fn path(&self, number: u64) -> PathBuf {
        // Names in order are entries in order. Some readers look into hidden directories too, so a pattern for data files must
        // not match.
        self.layout.log().join(format!("{number:020}.entry"))
    }

    fn entry(&self, number: u64) -> Result<Entry> {
        let path = self.path(number);
        let bytes = fs::read(&path).map_err(|e| failed("read", &path, e))?;
        serde_json::from_slice(&bytes).map_err(|e| failed("read", &path, e))
    }

    /// Adds an entry after the newest; `false` when somebody else has added one.
    fn add(&mut self, entry: Entry) -> Result<bool> {
        let scratch = self.layout.staged_by(entry.generation);
        disk::create_directory(&scratch)?;
        disk::create_directory(&self.layout.log())?;
        let scratch = scratch.join(format!("entry-{}", Uuid::new_v4()));
        let text = serde_json::to_vec_pretty(&entry).map_err(|e| failed("write", &scratch, e))?;
        File::create_new(&scratch)
            .and_then(|mut file| file.write_all(&text).and_then(|_| file.sync_all()))
            .map_err(|e| failed("write", &scratch, e))?;
        let path = self.path(self.newest + 1);
        let linked = fs::hard_link(&scratch, &path);
        fs::remove_file(&scratch).map_err(|e| failed("remove", &scratch, e))?;
        match linked {
            Ok(()) => {
                disk::sync_directory(&self.layout.log())?;
                self.apply(entry);
                Ok(true)
            }
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(e) => Err(failed("link", &path, e)),
        }
    }

    /// Adds a commit after what was read last, whatever has come since.
    #[cfg(test)]
    pub fn add_for_test(&mut self, generation: Generation, commit: Committed) -> Result<bool> {
        self.add(Entry { generation, commit: Some(commit) })
    }

    /// Moves the files of the newest commit to their places.
    fn finish(&self) -> Result<()> {
        self.last.as_ref().map_or(Ok(()), |commit| self.put_in_place(commit))
    }

    fn put_in_place(&self, commit: &Committed) -> Result<()> {
        let mut directories = vec![];
        for file in &commit.files {
            let (staged, path) = (self.layout.absolute(&file.staged), self.layout.absolute(&file.path));
            let parent = path.parent().unwrap_or(self.layout.root()).to_owned();
            disk::create_directory(&parent)?;
            match fs::rename(&staged, &path) {
                Ok(()) => {}
                // Moved already. It may be gone from its place too: readers may do with it what they want.
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => return Err(failed("put in place", &path, e)),
            }
            directories.push(parent);
        }
        directories.sort_unstable();
        directories.dedup();
        directories.iter().try_for_each(|directory| disk::sync_directory(directory))
    }
}

fn exists(path: &std::path::Path) -> Result<bool> {
    path.try_exists().map_err(|e| failed("look for", path, e))
}
