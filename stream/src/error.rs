//! What can go wrong in a running job.

use datafusion::error::DataFusionError;
use thiserror::Error;
use weir_common::{CodecError, Epoch};
use weir_connector::ConnectorError;
use weir_storage::StorageError;

/// `Result` of this crate.
pub type Result<T> = std::result::Result<T, StreamError>;

pub use weir_storage::Remedy;

/// An error of a running job.
#[derive(Debug, Error)]
pub enum StreamError {
    #[error("state of the job: {0}")]
    Storage(#[from] StorageError),
    #[error("encode rows: {0}")]
    Codec(#[from] CodecError),
    #[error("compute columns: {0}")]
    Arrow(#[from] arrow::error::ArrowError),
    #[error("source or sink: {0}")]
    Connector(#[from] ConnectorError),
    #[error("decode expression `{expression}`: {source}")]
    Expression { expression: String, source: Box<DataFusionError> },
    #[error("the plan is not valid: {0}")]
    Plan(&'static str),
    #[error("null value in column \"{column}\" of relation \"{relation}\" violates not-null constraint")]
    NullValue { column: String, relation: String },
    #[error("an executor upstream has stopped")]
    UpstreamGone,
    #[error("an executor downstream has stopped")]
    DownstreamGone,
    #[error("barrier {got} arrived where {expected} was due")]
    Misaligned { expected: Epoch, got: Epoch },
    #[error("executor panicked: {0}")]
    Panicked(String),
}

impl StreamError {
    /// What the job does about it.
    pub fn remedy(&self) -> Remedy {
        match self {
            StreamError::Storage(e) => e.remedy(),
            StreamError::Connector(e) => e.remedy(),
            StreamError::Codec(_) | StreamError::Arrow(_) => Remedy::Retry,
            StreamError::Expression { .. } | StreamError::Plan(_) => Remedy::Stop,
            StreamError::NullValue { .. } => Remedy::Retry,
            StreamError::UpstreamGone | StreamError::DownstreamGone => Remedy::Retry,
            StreamError::Misaligned { .. } | StreamError::Panicked(_) => Remedy::Retry,
        }
    }

    /// Whether this error only echoes another one: the channel to a task broke because that task failed first.
    pub fn is_echo(&self) -> bool {
        matches!(self, StreamError::UpstreamGone | StreamError::DownstreamGone)
    }
}
