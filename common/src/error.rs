//! SQLSTATE codes and the errors of the encodings.

use arrow::datatypes::DataType;
use thiserror::Error;

/// A SQLSTATE code of PostgreSQL (appendix A of its manual), as sent to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SqlState(pub &'static str);

impl SqlState {
    pub const FEATURE_NOT_SUPPORTED: SqlState = SqlState("0A000");
    pub const CONNECTION_FAILURE: SqlState = SqlState("08006");
    pub const PROTOCOL_VIOLATION: SqlState = SqlState("08P01");
    pub const CARDINALITY_VIOLATION: SqlState = SqlState("21000");
    pub const STRING_TOO_LONG: SqlState = SqlState("22001");
    pub const NUMERIC_OUT_OF_RANGE: SqlState = SqlState("22003");
    pub const DATETIME_OVERFLOW: SqlState = SqlState("22008");
    pub const DIVISION_BY_ZERO: SqlState = SqlState("22012");
    pub const INVALID_DATETIME: SqlState = SqlState("22007");
    pub const INVALID_PARAMETER_VALUE: SqlState = SqlState("22023");
    pub const INVALID_TEXT: SqlState = SqlState("22P02");
    pub const NOT_NULL_VIOLATION: SqlState = SqlState("23502");
    pub const UNIQUE_VIOLATION: SqlState = SqlState("23505");
    pub const ACTIVE_TRANSACTION: SqlState = SqlState("25001");
    pub const FAILED_TRANSACTION: SqlState = SqlState("25P02");
    pub const INVALID_PASSWORD: SqlState = SqlState("28P01");
    pub const DEPENDENT_OBJECTS: SqlState = SqlState("2BP01");
    pub const INVALID_CURSOR_NAME: SqlState = SqlState("34000");
    pub const INVALID_DATABASE_NAME: SqlState = SqlState("3D000");
    pub const INVALID_SCHEMA_NAME: SqlState = SqlState("3F000");
    pub const INSUFFICIENT_PRIVILEGE: SqlState = SqlState("42501");
    pub const SYNTAX_ERROR: SqlState = SqlState("42601");
    pub const DUPLICATE_COLUMN: SqlState = SqlState("42701");
    pub const AMBIGUOUS_COLUMN: SqlState = SqlState("42702");
    pub const UNDEFINED_COLUMN: SqlState = SqlState("42703");
    pub const UNDEFINED_OBJECT: SqlState = SqlState("42704");
    pub const DUPLICATE_OBJECT: SqlState = SqlState("42710");
    pub const GROUPING_ERROR: SqlState = SqlState("42803");
    pub const DATATYPE_MISMATCH: SqlState = SqlState("42804");
    pub const WRONG_OBJECT_TYPE: SqlState = SqlState("42809");
    pub const UNDEFINED_FUNCTION: SqlState = SqlState("42883");
    pub const UNDEFINED_TABLE: SqlState = SqlState("42P01");
    pub const DUPLICATE_TABLE: SqlState = SqlState("42P07");
    pub const INVALID_COLUMN_REFERENCE: SqlState = SqlState("42P10");
    pub const INVALID_OBJECT_DEFINITION: SqlState = SqlState("42P17");
    pub const OUT_OF_MEMORY: SqlState = SqlState("53200");
    pub const OBJECT_IN_USE: SqlState = SqlState("55006");
    pub const NOT_IN_PREREQUISITE_STATE: SqlState = SqlState("55000");
    pub const CANT_CHANGE_RUNTIME_PARAM: SqlState = SqlState("55P02");
    pub const QUERY_CANCELED: SqlState = SqlState("57014");
    pub const ADMIN_SHUTDOWN: SqlState = SqlState("57P01");
    pub const INTERNAL_ERROR: SqlState = SqlState("XX000");
    pub const DATA_CORRUPTED: SqlState = SqlState("XX001");
}

/// What the caller of something that failed has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Remedy {
    /// Tell the user; the statement is at fault.
    Reject,
    /// Restart the job at its frontier.
    Retry,
    /// Fenced or corrupt: the job stays down and says so.
    Stop,
}

/// Bytes that do not decode, or a type that has no encoding.
#[derive(Debug, Error)]
pub enum CodecError {
    #[error("values of type {0} have no encoding")]
    UnsupportedType(DataType),
    #[error("decode {what}: the bytes end early")]
    Truncated { what: &'static str },
    #[error("decode {what}: byte {byte:#04x} is not valid here")]
    InvalidByte { what: &'static str, byte: u8 },
    #[error("build columns from rows: {0}")]
    Arrow(#[from] arrow::error::ArrowError),
}

/// A value that a type or function refuses, as PostgreSQL reports it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct ValueError {
    pub state: SqlState,
    pub message: String,
}

impl ValueError {
    /// With this SQLSTATE.
    pub fn new(state: SqlState, message: impl Into<String>) -> ValueError {
        ValueError { state, message: message.into() }
    }

    /// Text that cannot be read as a value of this type.
    pub fn syntax(sql_type: &str, text: &str) -> ValueError {
        ValueError::new(SqlState::INVALID_TEXT, format!("invalid input syntax for type {sql_type}: \"{text}\""))
    }
}
