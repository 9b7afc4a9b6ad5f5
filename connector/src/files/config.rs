//! The options of a source of files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use arrow::datatypes::SchemaRef;

use super::csv::{CsvDialect, parse_delimiter};
use super::directory::Directory;
use super::glob::{Glob, has_wildcards};
use super::rows::Rows;
use super::watch::FilesSource;
use super::{infer, parquet};
use crate::error::{ConnectorError, Result};
use crate::options::Options;
use crate::source::Source;

const CONNECTOR: &str = "posix_fs";
const ROOT: &str = "posix_fs.root";
const MATCH_PATTERN: &str = "match_pattern";
const PATH: &str = "path";
const WITHOUT_HEADER: &str = "without_header";
const DELIMITER: &str = "delimiter";

/// What is in the files.
#[derive(Clone, Copy, Debug)]
pub enum Encode {
    Json,
    Csv(CsvDialect),
    Parquet,
}

/// Which files are read, and how.
#[derive(Clone, Debug)]
pub struct FilesConfig {
    pub(super) directory: Directory,
    pub(super) encode: Encode,
    /// The option that names the directory.
    option: &'static str,
}

impl FilesConfig {
    pub(crate) fn parse(options: &BTreeMap<String, String>, format: Option<&(String, String)>) -> Result<FilesConfig> {
        let options = Options::new(CONNECTOR, options, &[ROOT, MATCH_PATTERN, PATH, WITHOUT_HEADER, DELIMITER])?;
        let directory = parse_directory(&options)?;
        let expected = "it is FORMAT PLAIN ENCODE JSON, CSV or PARQUET";
        let (format, encode) = format.ok_or(ConnectorError::MissingFormat { connector: CONNECTOR })?;
        let dialect = CsvDialect {
            delimiter: parse_delimiter(&options, DELIMITER)?,
            header: !options.flag(WITHOUT_HEADER, false)?,
        };
        let encode = match encode.to_ascii_lowercase().as_str() {
            "json" if format.eq_ignore_ascii_case("plain") => Encode::Json,
            "csv" if format.eq_ignore_ascii_case("plain") => Encode::Csv(dialect),
            "parquet" if format.eq_ignore_ascii_case("plain") => Encode::Parquet,
            _ => {
                let (format, encode) = (format.clone(), encode.clone());
                return Err(ConnectorError::UnsupportedFormat { connector: CONNECTOR, format, encode, expected });
            }
        };
        for option in [WITHOUT_HEADER, DELIMITER] {
            if options.get(option).is_some() && !matches!(encode, Encode::Csv(_)) {
                return Err(options.invalid(option, "it is for ENCODE CSV"));
            }
        }
        let option = if options.get(ROOT).is_some() { ROOT } else { PATH };
        Ok(FilesConfig { directory, encode, option })
    }

    pub(crate) fn reads_by_position(&self) -> bool {
        matches!(self.encode, Encode::Csv(CsvDialect { header: false, .. }))
    }

    pub(crate) fn open(self, columns: &SchemaRef) -> Result<Box<dyn Source>> {
        Rows::new(columns.clone())?;
        Ok(Box::new(FilesSource::new(self, columns.clone())))
    }

    /// Compares the columns with those of the first file, or takes them from there. When there is no file yet, declared
    /// columns are believed.
    pub(crate) fn validate(&self, columns: Option<&SchemaRef>) -> Result<SchemaRef> {
        if !self.directory.root.is_dir() {
            let (option, value) = (self.option.to_owned(), self.directory.root.display().to_string());
            let expected = "it is not a directory that can be read";
            return Err(ConnectorError::InvalidOption { option, value, expected });
        }
        let first = self.directory.list()?.into_iter().next();
        let Some(columns) = columns else {
            let unknown = |reason| ConnectorError::ColumnsUnknown { reason };
            let file =
                first.ok_or_else(|| unknown(format!("there is no file in {}", self.directory.root.display())))?;
            return self.infer(&file).map_err(|reason| unknown(format!("{file}: {reason}")));
        };
        Rows::new(columns.clone())?;
        if let Some(file) = first
            && let Err(reason) = self.compare(columns, &file)
        {
            return Err(ConnectorError::ColumnsDiffer { file, reason });
        }
        Ok(columns.clone())
    }

    fn infer(&self, file: &str) -> std::result::Result<SchemaRef, String> {
        let path = self.directory.path(file);
        match self.encode {
            Encode::Json => infer::json(&path),
            Encode::Csv(CsvDialect { header: false, .. }) => Err("without a header, columns have no names".into()),
            Encode::Csv(dialect) => infer::csv(&path, dialect),
            Encode::Parquet => infer::parquet(&path),
        }
    }

    /// Whether the first file has the columns.
    fn compare(&self, columns: &SchemaRef, file: &str) -> std::result::Result<(), String> {
        let path = self.directory.path(file);
        match self.encode {
            Encode::Json | Encode::Csv(CsvDialect { header: false, .. }) => Ok(()),
            Encode::Csv(dialect) => {
                let header = infer::csv(&path, dialect)?;
                let names: Vec<&str> = header.fields().iter().map(|f| f.name().as_str()).collect();
                super::csv::places(columns, &names).map(|_| ())
            }
            Encode::Parquet => {
                let schema = parquet::file_schema(&path)?;
                parquet::conversions(columns, &schema).map(|_| ())
            }
        }
    }
}

/// Root and pattern; `path` stands for both.
fn parse_directory(options: &Options<'_>) -> Result<Directory> {
    let glob = |option: &'static str, pattern: &str| {
        Glob::parse(pattern).ok_or_else(|| options.invalid(option, "a `[` is not closed"))
    };
    match (options.get(ROOT), options.get(PATH)) {
        (Some(_), Some(_)) => Err(options.invalid(PATH, "`posix_fs.root` is given already")),
        (Some(root), None) => {
            let pattern = glob(MATCH_PATTERN, options.get(MATCH_PATTERN).unwrap_or("*"))?;
            Ok(Directory { root: PathBuf::from(root), pattern })
        }
        (None, Some(_)) if options.get(MATCH_PATTERN).is_some() => {
            Err(options.invalid(MATCH_PATTERN, "it goes with `posix_fs.root`; a `path` may have wildcards itself"))
        }
        (None, Some(path)) if has_wildcards(path) => {
            let fixed = path.find(['*', '?', '[']).unwrap_or(path.len());
            let (root, pattern) = match path[..fixed].rfind('/') {
                Some(0) => ("/", &path[1..]),
                Some(slash) => (&path[..slash], &path[slash + 1..]),
                None => (".", path),
            };
            Ok(Directory { root: PathBuf::from(root), pattern: glob(PATH, pattern)?.anchored() })
        }
        (None, Some(path)) if Path::new(path).is_file() => {
            let (root, name) = path.rsplit_once('/').unwrap_or((".", path));
            let root = if root.is_empty() { "/" } else { root };
            Ok(Directory { root: PathBuf::from(root), pattern: glob(PATH, name)?.anchored() })
        }
        (None, Some(path)) => Ok(Directory { root: PathBuf::from(path), pattern: glob(PATH, "*")? }),
        (None, None) => Err(options.missing(ROOT, "the directory with the files")),
    }
}
