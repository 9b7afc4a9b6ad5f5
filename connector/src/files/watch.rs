//! The files as splits, and what is told about a file that cannot be read.

use async_trait::async_trait;

use super::config::{Encode, FilesConfig};
use super::csv::Csv;
use super::json::JsonLines;
use super::parquet::ParquetReader;
use super::records::RecordReader;
use super::rows::Rows;
use crate::error::Result;
use crate::source::{Source, SplitId, SplitReader};
use arrow::datatypes::SchemaRef;

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
