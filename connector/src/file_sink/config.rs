//! The options of a sink into files.

use parquet::basic::{Compression, GzipLevel, ZstdLevel};

use super::encode::Encode;
use super::layout::directory_name;
use crate::error::{ConnectorError, Result, listed};
use crate::options::Options;
use crate::sink::SinkSpec;

const CONNECTOR: &str = "fs";
const PATH: &str = "fs.path";
const PARTITION_BY: &str = "partition_by";
const TARGET_FILE_SIZE_MB: &str = "target_file_size_mb";
const OPEN_FILES_MAX: &str = "open_files_max";
const COMPRESSION: &str = "compression";
const DELIMITER: &str = "delimiter";
const WITHOUT_HEADER: &str = "without_header";
const SINK_ID: &str = "sink_id";

/// Where files go, and how they are written.
#[derive(Clone, Debug)]
pub struct FileSinkConfig {
    pub path: String,
    /// The name of the sink below `.weir`.
    pub id: String,
    pub encode: Encode,
    /// Columns whose values become directories, by index.
    pub partition_by: Vec<usize>,
    /// A file is ended at this size.
    pub file_bytes: u64,
    pub open_files_max: usize,
}

impl FileSinkConfig {
    pub fn parse(spec: &SinkSpec) -> Result<FileSinkConfig> {
        let known =
            [PATH, PARTITION_BY, TARGET_FILE_SIZE_MB, OPEN_FILES_MAX, COMPRESSION, DELIMITER, WITHOUT_HEADER, SINK_ID];
        let options = Options::new(CONNECTOR, &spec.options, &known)?;
        if !spec.append_only {
            let (option, value) = ("type".to_owned(), "upsert".to_owned());
            let expected = "files are only added to: it is 'append-only'";
            return Err(ConnectorError::InvalidOption { option, value, expected });
        }
        let path = match options.get(PATH) {
            Some(path) if !path.is_empty() => path.to_owned(),
            _ => return Err(options.missing(PATH, "the directory for the files")),
        };
        let name = || format!("{}", spec.sink);
        let id = options.get(SINK_ID).map_or_else(name, str::to_owned);
        if id.is_empty() || id.starts_with('.') || id.len() > 200 {
            return Err(options.invalid(SINK_ID, "a name of up to 200 bytes that does not start with a dot"));
        }
        let expected = "a number of MiB from 1 to 10000";
        let megabytes: u64 = options.parse(TARGET_FILE_SIZE_MB, 128, |n| (1..=10_000).contains(n), expected)?;
        let expected = "a number from 1 to 10000";
        Ok(FileSinkConfig {
            path,
            id: directory_name(&id),
            encode: encode(&options, spec)?,
            partition_by: partition_by(&options, spec)?,
            file_bytes: megabytes << 20,
            open_files_max: options.parse(OPEN_FILES_MAX, 100, |n| (1..=10_000).contains(n), expected)?,
        })
    }
}

fn encode(options: &Options<'_>, spec: &SinkSpec) -> Result<Encode> {
    let (format, encode) = spec.format.as_ref().ok_or(ConnectorError::MissingFormat { connector: CONNECTOR })?;
    let refused = || ConnectorError::UnsupportedFormat {
        connector: CONNECTOR,
        format: format.clone(),
        encode: encode.clone(),
        expected: "it is FORMAT PLAIN ENCODE PARQUET, JSON or CSV",
    };
    if !format.eq_ignore_ascii_case("plain") {
        return Err(refused());
    }
    let header = !options.flag(WITHOUT_HEADER, false)?;
    let encode = match encode.to_ascii_lowercase().as_str() {
        "parquet" => Encode::Parquet { compression: compression(options)? },
        "json" => Encode::Json,
        "csv" => Encode::Csv { delimiter: delimiter(options)?, header },
        _ => return Err(refused()),
    };
    if options.get(COMPRESSION).is_some() && !matches!(encode, Encode::Parquet { .. }) {
        return Err(options.invalid(COMPRESSION, "it is for ENCODE PARQUET"));
    }
    for option in [DELIMITER, WITHOUT_HEADER] {
        if options.get(option).is_some() && !matches!(encode, Encode::Csv { .. }) {
            return Err(options.invalid(option, "it is for ENCODE CSV"));
        }
    }
    Ok(encode)
}

fn compression(options: &Options<'_>) -> Result<Compression> {
    Ok(match options.get(COMPRESSION).map(str::to_ascii_lowercase).as_deref() {
        None | Some("zstd") => Compression::ZSTD(ZstdLevel::default()),
        Some("snappy") => Compression::SNAPPY,
        Some("lz4") => Compression::LZ4_RAW,
        Some("gzip") => Compression::GZIP(GzipLevel::default()),
        Some("none" | "uncompressed") => Compression::UNCOMPRESSED,
        Some(_) => return Err(options.invalid(COMPRESSION, "it is 'zstd', 'snappy', 'lz4', 'gzip' or 'none'")),
    })
}

fn delimiter(options: &Options<'_>) -> Result<char> {
    // Not trimmed, for a tab is one.
    match options.get_exact(DELIMITER) {
        None => Ok(','),
        Some("\\t") => Ok('\t'),
        Some(text) => match text.as_bytes() {
            [byte] if byte.is_ascii() && !matches!(byte, b'"' | b'\n' | b'\r') => Ok(char::from(*byte)),
            _ => Err(options.invalid(DELIMITER, "it is one character of ASCII, or '\\t'")),
        },
    }
}

fn partition_by(options: &Options<'_>, spec: &SinkSpec) -> Result<Vec<usize>> {
    let names = options.get(PARTITION_BY).unwrap_or_default();
    let mut columns = vec![];
    for name in names.split(',').map(str::trim).filter(|name| !name.is_empty()) {
        let fields = spec.columns.fields();
        let Some(column) = fields.iter().position(|f| f.name() == name) else {
            let known = listed(fields.iter().map(|f| f.name().as_str()));
            let (what, column) = (format!("sink `{}`", spec.name), name.to_owned());
            return Err(ConnectorError::UnknownColumn { what, column, known });
        };
        if fields[column].data_type().is_nested() {
            return Err(options.invalid(PARTITION_BY, "a column of arrays or structs has no name for a directory"));
        }
        if columns.contains(&column) {
            return Err(options.invalid(PARTITION_BY, "a column stands there twice"));
        }
        columns.push(column);
    }
    if columns.len() == spec.columns.fields().len() {
        return Err(options.invalid(PARTITION_BY, "a column must be left for the files"));
    }
    Ok(columns)
}
