//! What meta refuses or fails at.

use thiserror::Error;
use weir_common::{Epoch, JobId, SqlState};
use weir_storage::StorageError;

/// `Result` of this crate.
pub type Result<T> = std::result::Result<T, MetaError>;

/// An error of meta.
#[derive(Debug, Error)]
pub enum MetaError {
    #[error("{kind} \"{name}\" already exists")]
    Exists { kind: &'static str, name: String },
    #[error("object {0} does not exist")]
    NoSuchObject(JobId),
    #[error("object {0} does not exist any more")]
    InputGone(JobId),
    #[error("cannot drop \"{name}\" because other objects depend on it")]
    HasDependants { name: String },
    #[error("schema \"{0}\" does not exist")]
    NoSuchSchema(String),
    #[error("job {0} takes no rows")]
    NotATable(JobId),
    #[error("the write was lost because the table restarted before it was durable; try again")]
    WriteLost,
    #[error("job {0} was dropped")]
    Dropped(JobId),
    #[error("\"{name}\" has not reached epoch {epoch}{why}")]
    Behind { name: String, epoch: Epoch, why: String },
    #[error("\"{name}\" was changed by another session")]
    Changed { name: String },
    #[error("the change log of \"{name}\" is full: {reader} has not read it")]
    LogFull { name: String, reader: String },
    #[error("\"{name}\" is paused")]
    Paused { name: String },
    #[error("creation was cancelled")]
    Cancelled,
    #[error("\"{name}\" could not be built: {reason}")]
    BuildFailed { name: String, reason: String },
    #[error("\"{name}\" is still being created")]
    NotCreated { name: String },
    #[error("the server is shutting down")]
    ShuttingDown,
    #[error("catalog store: {0}")]
    Store(#[from] sqlx::Error),
    #[error("catalog store: migrate: {0}")]
    Migrate(#[from] sqlx::migrate::MigrateError),
    #[error("catalog store: entry {id}: {source}")]
    Entry { id: i64, source: serde_json::Error },
    #[error("catalog store: the entry of \"{name}\" has plan version {found}; this Weir reads version {known}")]
    PlanVersion { name: String, found: u64, known: u32 },
    #[error(transparent)]
    Storage(#[from] StorageError),
}

impl MetaError {
    /// The code that the client gets.
    pub fn sql_state(&self) -> SqlState {
        match self {
            MetaError::Exists { .. } => SqlState::DUPLICATE_TABLE,
            MetaError::NoSuchObject(_) | MetaError::InputGone(_) | MetaError::Dropped(_) => SqlState::UNDEFINED_TABLE,
            MetaError::HasDependants { .. } => SqlState::DEPENDENT_OBJECTS,
            MetaError::NoSuchSchema(_) => SqlState::INVALID_SCHEMA_NAME,
            MetaError::NotATable(_) => SqlState::WRONG_OBJECT_TYPE,
            MetaError::LogFull { .. } => SqlState("53400"),
            MetaError::WriteLost | MetaError::Changed { .. } => SqlState("40001"),
            MetaError::Behind { .. } | MetaError::Paused { .. } => SqlState::NOT_IN_PREREQUISITE_STATE,
            MetaError::Cancelled => SqlState::QUERY_CANCELED,
            MetaError::ShuttingDown => SqlState::ADMIN_SHUTDOWN,
            MetaError::BuildFailed { .. } | MetaError::NotCreated { .. } => SqlState::NOT_IN_PREREQUISITE_STATE,
            MetaError::Store(_)
            | MetaError::Migrate(_)
            | MetaError::Entry { .. }
            | MetaError::PlanVersion { .. }
            | MetaError::Storage(_) => SqlState::INTERNAL_ERROR,
        }
    }
}
