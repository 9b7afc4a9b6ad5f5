//! The files as splits, and what is told about a file that cannot be read.

use std::time::{Duration, Instant};

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;

use super::config::{Encode, FilesConfig};
use super::csv::Csv;
use super::json::JsonLines;
use super::parquet::ParquetReader;
use super::records::RecordReader;
use super::rows::Rows;
use crate::error::Result;
use crate::source::{Source, SplitId, SplitReader};

/// How often a file is looked at that had nothing new.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// A directory that is watched.
pub struct FilesSource {
    config: FilesConfig,
    schema: SchemaRef,
}

impl FilesSource {
    pub fn new(config: FilesConfig, schema: SchemaRef) -> FilesSource {
        FilesSource { config, schema }
    }
}

#[async_trait]
impl Source for FilesSource {
    async fn splits(&mut self) -> Result<Vec<SplitId>> {
        self.config.directory.list()
    }

    fn reader(&mut self, split: &str, offset: Option<&str>) -> Result<Box<dyn SplitReader>> {
        let path = self.config.directory.path(split);
        let schema = self.schema.clone();
        Ok(match self.config.encode {
            Encode::Json => Box::new(RecordReader::new(split, path, JsonLines, Rows::new(schema)?, offset)?),
            Encode::Csv(dialect) => {
                let format = Csv::new(dialect, schema.clone());
                Box::new(RecordReader::new(split, path, format, Rows::new(schema)?, offset)?)
            }
            Encode::Parquet => Box::new(ParquetReader::new(split, path, schema, offset)?),
        })
    }
}

/// Tells once what is wrong with a file, and again only after something else was.
#[derive(Default)]
pub struct Complaints {
    last: Option<String>,
}

impl Complaints {
    /// What to tell, if the outcome is a failure that was not told last time.
    pub fn news(&mut self, outcome: std::result::Result<(), String>) -> Option<String> {
        let message = outcome.err();
        let news = message.clone().filter(|m| self.last.as_ref() != Some(m));
        self.last = message;
        news
    }
}

/// When to look at a file again; many files may be watched.
pub struct Looks {
    every: Duration,
    last: Option<Instant>,
}

impl Default for Looks {
    fn default() -> Looks {
        Looks { every: LOOK_EVERY, last: None }
    }
}

impl Looks {
    /// Whether it is time to look.
    pub fn due(&mut self) -> bool {
        let now = Instant::now();
        let due = self.last.is_none_or(|last| now.duration_since(last) >= self.every);
        if due {
            self.last = Some(now);
        }
        due
    }

    /// Always look: for tests, which do not wait.
    #[cfg(test)]
    pub fn always() -> Looks {
        Looks { every: Duration::ZERO, last: None }
    }
}
