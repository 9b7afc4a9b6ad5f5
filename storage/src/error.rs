//! What can go wrong in the store, and what to do about it.

use std::path::PathBuf;

use arrow::error::ArrowError;
use thiserror::Error;
use weir_common::{CodecError, Epoch, JobId, TableId};

pub use weir_common::Remedy;

/// An error of the store.
#[derive(Debug, Error)]
pub enum StorageError {
    #[error("open the store in {}: {source}", path.display())]
    Open { path: PathBuf, source: rocksdb::Error },
    #[error("create the directory {}: {source}", path.display())]
    CreateDirectory { path: PathBuf, source: std::io::Error },
    #[error("{} holds files of another program; name a directory that is empty or new", path.display())]
    ForeignDirectory { path: PathBuf },
    #[error("the store in {} has format {found}, and this version of Weir reads formats up to {supported}", path.display())]
    NewerFormat { path: PathBuf, found: u32, supported: u32 },
    #[error("read what the store knows about its jobs and change logs")]
    ReadProgress { source: rocksdb::Error },
    #[error("the record of jobs and change logs is damaged at key {key:02x?}")]
    CorruptProgress { key: Vec<u8> },
    #[error("read state table {table}")]
    ReadTable { table: TableId, source: rocksdb::Error },
    #[error("encode or decode rows of state table {table}: {source}")]
    Codec { table: TableId, source: CodecError },
    #[error("commit job {job} at epoch {epoch}")]
    Commit { job: JobId, epoch: Epoch, source: rocksdb::Error },
    #[error("job {job} can't commit epoch {epoch}: it is at {frontier} already, another start of it has taken over")]
    Fenced { job: JobId, epoch: Epoch, frontier: Epoch },
    #[error("one epoch writes more than {} MB to state table {table}, which do not fit into memory", bytes_max >> 20)]
    EpochTooLarge { table: TableId, bytes_max: usize },
    #[error("read the change log of table {table}")]
    ReadLog { table: TableId, source: rocksdb::Error },
    #[error("encode or decode a chunk of the change log of table {table}: {source}")]
    LogChunk { table: TableId, source: ArrowError },
    #[error("the change log of table {table} lacks a chunk of epoch {epoch}")]
    MissingLogChunk { table: TableId, epoch: Epoch },
    #[error("the change log of table {table} is truncated up to epoch {truncated} and can't be read from {after} on")]
    TruncatedLog { table: TableId, after: Epoch, truncated: Epoch },
    #[error("truncate the change log of table {table}")]
    TruncateLog { table: TableId, source: rocksdb::Error },
    #[error("drop {tables} tables")]
    DropTables { tables: usize, source: rocksdb::Error },
}

impl StorageError {
    /// What the caller has to do.
    pub fn remedy(&self) -> Remedy {
        match self {
            StorageError::Open { .. }
            | StorageError::CreateDirectory { .. }
            | StorageError::ForeignDirectory { .. }
            | StorageError::NewerFormat { .. } => Remedy::Reject,
            StorageError::ReadProgress { source }
            | StorageError::ReadTable { source, .. }
            | StorageError::Commit { source, .. }
            | StorageError::ReadLog { source, .. }
            | StorageError::TruncateLog { source, .. }
            | StorageError::DropTables { source, .. } => match source.kind() {
                rocksdb::ErrorKind::Corruption => Remedy::Stop,
                _ => Remedy::Retry,
            },
            // With more memory after a restart it may fit; what went in is not lost.
            StorageError::EpochTooLarge { .. } => Remedy::Retry,
            StorageError::Codec { source: CodecError::UnsupportedType(_), .. } => Remedy::Reject,
            StorageError::CorruptProgress { .. }
            | StorageError::Codec { .. }
            | StorageError::Fenced { .. }
            | StorageError::LogChunk { .. }
            | StorageError::MissingLogChunk { .. }
            | StorageError::TruncatedLog { .. } => Remedy::Stop,
        }
    }
}
