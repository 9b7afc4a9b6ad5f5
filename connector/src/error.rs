//! What can go wrong with a connector.

use std::io;
use std::path::PathBuf;

use arrow::error::ArrowError;
use thiserror::Error;
use weir_common::Remedy;

/// `Result` of this crate.
pub type Result<T> = std::result::Result<T, ConnectorError>;

/// An error of a connector. A record that cannot be read is not one, see [`crate::BadRecord`].
#[derive(Debug, Error)]
pub enum ConnectorError {
    #[error("option `connector` is missing; it is one of {known}")]
    MissingConnector { known: String },
    #[error("there is no connector `{name}`; it is one of {known}")]
    UnknownConnector { name: String, known: String },
    #[error("connector `{connector}` needs option `{option}`: {expected}")]
    MissingOption { connector: &'static str, option: &'static str, expected: &'static str },
    #[error("connector `{connector}` has no option `{option}`; it has {known}")]
    UnknownOption { connector: &'static str, option: String, known: String },
    #[error("option `{option}` cannot be '{value}': {expected}")]
    InvalidOption { option: String, value: String, expected: &'static str },
    #[error("option `{option}` was refused: {reason}")]
    Property { option: String, reason: String },
    #[error("connector `{connector}` cannot read FORMAT {format} ENCODE {encode}; {expected}")]
    UnsupportedFormat { connector: &'static str, format: String, encode: String, expected: &'static str },
    #[error("connector `{connector}` needs a format, such as FORMAT PLAIN ENCODE JSON")]
    MissingFormat { connector: &'static str },
    #[error("{what} has no column `{column}`; it has {known}")]
    UnknownColumn { what: String, column: String, known: String },
    #[error("column `{column}` of {what} has type {actual}, not {declared}")]
    ColumnType { what: String, column: String, actual: String, declared: String },
    #[error("the columns must be declared: {reason}")]
    ColumnsUnknown { reason: String },
    #[error("the columns do not fit file {file}: {reason}")]
    ColumnsDiffer { file: String, reason: String },
    #[error("column `{column}` has type {data_type}, which {what} cannot fill")]
    UnsupportedType { what: &'static str, column: String, data_type: String },
    #[error("there is no split `{split}`")]
    UnknownSplit { split: String },
    #[error("split `{split}` cannot be read from offset `{offset}`")]
    InvalidOffset { split: String, offset: String },
    #[error("read {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("build columns: {0}")]
    Arrow(#[from] ArrowError),
    #[error("the sink was taken over by generation {newer}; this is generation {ours}")]
    Fenced { ours: u64, newer: u64 },
    #[error("{what} is gone")]
    Gone { what: String },
    #[error("the destination does not fit: {reason}")]
    Mismatch { reason: String },
    #[error("{what}: {reason}")]
    Unavailable { what: String, reason: String },
    #[error("{what} refused: {reason}")]
    Refused { what: String, reason: String },
}

impl ConnectorError {
    /// What the caller does about it.
    pub fn remedy(&self) -> Remedy {
        match self {
            ConnectorError::MissingConnector { .. }
            | ConnectorError::UnknownConnector { .. }
            | ConnectorError::MissingOption { .. }
            | ConnectorError::UnknownOption { .. }
            | ConnectorError::InvalidOption { .. }
            | ConnectorError::Property { .. }
            | ConnectorError::UnsupportedFormat { .. }
            | ConnectorError::MissingFormat { .. }
            | ConnectorError::UnknownColumn { .. }
            | ConnectorError::ColumnType { .. }
            | ConnectorError::ColumnsUnknown { .. }
            | ConnectorError::ColumnsDiffer { .. }
            | ConnectorError::UnsupportedType { .. } => Remedy::Reject,
            ConnectorError::Mismatch { .. } | ConnectorError::Gone { .. } | ConnectorError::Fenced { .. } => {
                Remedy::Stop
            }
            ConnectorError::Read { .. }
            | ConnectorError::Arrow(_)
            | ConnectorError::Unavailable { .. }
            | ConnectorError::Refused { .. } => Remedy::Retry,
            ConnectorError::UnknownSplit { .. } | ConnectorError::InvalidOffset { .. } => Remedy::Stop,
        }
    }
}

/// Names as they stand in messages: `a`, `b` and `c`.
pub(crate) fn listed<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<String> = names.into_iter().map(|n| format!("`{n}`")).collect();
    match names.as_slice() {
        [] => "none".into(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}
