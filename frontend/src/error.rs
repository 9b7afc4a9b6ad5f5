//! Errors and notices as clients get them: an SQLSTATE, PostgreSQL's words, and where in the text.
//!
//! Everything below speaks its own errors; here each becomes what PostgreSQL would say. DataFusion and Arrow report most
//! mistakes of a query as text, so [`translate`] reads that text. What it does not know stays as it was said, under the
//! code of its kind.

use std::error::Error;
use std::fmt;

use arrow::datatypes::DataType;
use arrow::error::ArrowError;
use datafusion::common::{Column, DataFusionError, SchemaError, TableReference};
use weir_common::types::SqlType;

pub use weir_common::SqlState;

mod translate;

/// How bad it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Severity {
    #[default]
    Error,
    /// The session ends.
    Fatal,
    Warning,
    Notice,
}

impl Severity {
    /// As the protocol writes it.
    pub fn name(self) -> &'static str {
        match self {
            Severity::Error => "ERROR",
            Severity::Fatal => "FATAL",
            Severity::Warning => "WARNING",
            Severity::Notice => "NOTICE",
        }
    }
}

/// An error or notice for the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SqlError {
    pub severity: Severity,
    pub state: SqlState,
    pub message: String,
    pub detail: Option<String>,
    pub hint: Option<String>,
    /// The character of the statement's text that it is about, counted from 1.
    pub position: Option<usize>,
    /// The same as a line and column (both from 1) as long as the text is not at hand; see [`SqlError::locate`].
    pub line_column: Option<(u32, u32)>,
}

/// What statements return.
pub type Result<T, E = SqlError> = std::result::Result<T, E>;

impl SqlError {
    /// An error without detail, hint or position.
    pub fn new(state: SqlState, message: impl Into<String>) -> SqlError {
        SqlError {
            severity: Severity::Error,
            state,
            message: message.into(),
            detail: None,
            hint: None,
            position: None,
            line_column: None,
        }
    }

    /// A message that is no error.
    pub fn notice(message: impl Into<String>) -> SqlError {
        SqlError { severity: Severity::Notice, ..SqlError::new(SqlState("00000"), message) }
    }

    /// A message about something that was probably not meant.
    pub fn warning(state: SqlState, message: impl Into<String>) -> SqlError {
        SqlError { severity: Severity::Warning, ..SqlError::new(state, message) }
    }

    /// What Weir cannot do.
    pub fn unsupported(what: impl fmt::Display) -> SqlError {
        SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, format!("{what} is not supported"))
    }

    /// A bug, or a failure below that the user can do nothing about.
    pub fn internal(message: impl Into<String>) -> SqlError {
        SqlError::new(SqlState::INTERNAL_ERROR, message)
    }

    /// A statement that makes no sense as written.
    pub fn syntax(message: impl Into<String>) -> SqlError {
        SqlError::new(SqlState::SYNTAX_ERROR, message)
    }

    /// `relation "x" does not exist`.
    pub fn undefined_table(name: &str) -> SqlError {
        SqlError::new(SqlState::UNDEFINED_TABLE, format!("relation \"{name}\" does not exist"))
    }

    /// `column "x" does not exist`.
    pub fn undefined_column(name: &str) -> SqlError {
        SqlError::new(SqlState::UNDEFINED_COLUMN, format!("column \"{name}\" does not exist"))
    }

    /// `invalid input syntax for type integer: "x"`.
    pub fn invalid_text(sql_type: &SqlType, text: &str) -> SqlError {
        let state = match sql_type {
            SqlType::Date | SqlType::Time | SqlType::Timestamp | SqlType::TimestampTz | SqlType::Interval => {
                SqlState::INVALID_DATETIME
            }
            _ => SqlState::INVALID_TEXT,
        };
        let sql_type = type_family(sql_type);
        SqlError::new(state, format!("invalid input syntax for type {sql_type}: \"{text}\""))
    }

    /// `integer out of range`.
    pub fn out_of_range(sql_type: &SqlType) -> SqlError {
        SqlError::new(SqlState::NUMERIC_OUT_OF_RANGE, format!("{} out of range", type_family(sql_type)))
    }

    /// With a second sentence that explains.
    pub fn with_detail(self, detail: impl Into<String>) -> SqlError {
        SqlError { detail: Some(detail.into()), ..self }
    }

    /// With advice.
    pub fn with_hint(self, hint: impl Into<String>) -> SqlError {
        SqlError { hint: Some(hint.into()), ..self }
    }

    /// With a place in the text, as lines and columns from 1.
    pub fn at(self, line: u64, column: u64) -> SqlError {
        // The width keeps errors small; longer texts than this do not come in.
        match (u32::try_from(line), u32::try_from(column)) {
            (Ok(line), Ok(column)) if line > 0 => SqlError { line_column: Some((line, column)), ..self },
            _ => self,
        }
    }

    /// Turns the line and column, if known, into a position in the text that was sent.
    pub fn locate(mut self, text: &str) -> SqlError {
        if let Some((line, column)) = self.line_column.take() {
            self.position = Some(position(text, line.into(), column.into()));
        }
        self
    }
}

/// The position of a line and column, counted in characters from 1.
pub fn position(text: &str, line: u64, column: u64) -> usize {
    let lines_before = text.split_inclusive('\n').take(line.saturating_sub(1) as usize);
    lines_before.map(|l| l.chars().count()).sum::<usize>() + column.max(1) as usize
}

/// The type's name without precision and scale, as PostgreSQL uses it in messages about values.
fn type_family(sql_type: &SqlType) -> String {
    match sql_type {
        SqlType::Numeric(_) => "numeric".to_string(),
        SqlType::Jsonb => "json".to_string(),
        SqlType::Time => "time".to_string(),
        SqlType::Timestamp => "timestamp".to_string(),
        other => other.to_string(),
    }
}

/// The SQL name of an Arrow type for messages.
pub(crate) fn type_name(data_type: &DataType) -> String {
    SqlType::from_arrow(data_type).map_or_else(|| data_type.to_string(), |t| t.to_string())
}

impl fmt::Display for SqlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for SqlError {}

impl From<SqlError> for DataFusionError {
    fn from(error: SqlError) -> DataFusionError {
        DataFusionError::External(Box::new(error))
    }
}

impl From<DataFusionError> for SqlError {
    fn from(error: DataFusionError) -> SqlError {
        from_datafusion(&error)
    }
}

impl From<ArrowError> for SqlError {
    fn from(error: ArrowError) -> SqlError {
        from_arrow(&error)
    }
}

impl From<weir_meta::MetaError> for SqlError {
    fn from(error: weir_meta::MetaError) -> SqlError {
        SqlError::new(error.sql_state(), error.to_string())
    }
}

impl From<weir_storage::StorageError> for SqlError {
    fn from(error: weir_storage::StorageError) -> SqlError {
        SqlError::internal(with_causes(&error))
    }
}

impl From<weir_common::error::ValueError> for SqlError {
    fn from(error: weir_common::error::ValueError) -> SqlError {
        SqlError::new(error.state, error.message)
    }
}

impl From<weir_connector::ConnectorError> for SqlError {
    fn from(error: weir_connector::ConnectorError) -> SqlError {
        SqlError::new(SqlState::INVALID_PARAMETER_VALUE, with_causes(&error))
    }
}

/// An error and what it comes from, where its text does not say so already.
fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

fn from_datafusion(error: &DataFusionError) -> SqlError {
    match error {
        DataFusionError::ArrowError(error, _) => from_arrow(error),
        DataFusionError::SQL(error, _) => crate::statement::parser_error(error),
        DataFusionError::NotImplemented(message) => {
            SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, translate::first_line(message))
        }
        DataFusionError::SchemaError(error, _) => from_schema(error),
        DataFusionError::ResourcesExhausted(message) => {
            SqlError::new(SqlState::OUT_OF_MEMORY, "out of memory").with_detail(translate::first_line(message))
        }
        DataFusionError::External(error) => from_external(error.as_ref()),
        DataFusionError::Context(_, inner) => from_datafusion(inner),
        DataFusionError::Diagnostic(diagnostic, inner) => {
            let error = from_datafusion(inner);
            match diagnostic.span {
                Some(span) if error.line_column.is_none() => error.at(span.start.line, span.start.column),
                _ => error,
            }
        }
        DataFusionError::Collection(errors) => match errors.first() {
            Some(first) => from_datafusion(first),
            None => SqlError::internal("an error without a cause"),
        },
        DataFusionError::Shared(inner) => from_datafusion(inner),
        DataFusionError::ExecutionJoin(error) if error.is_panic() => {
            SqlError::internal("a task of the query panicked").with_detail(error.to_string())
        }
        DataFusionError::Plan(message) => translate::plan(message),
        DataFusionError::Execution(message) => translate::execution(message),
        DataFusionError::Configuration(message) => {
            SqlError::new(SqlState::INVALID_PARAMETER_VALUE, translate::first_line(message))
        }
        other => SqlError::internal(translate::first_line(&other.strip_backtrace())),
    }
}

/// An error that passed through DataFusion in a box.
fn from_external(error: &(dyn Error + Send + Sync + 'static)) -> SqlError {
    if let Some(error) = error.downcast_ref::<SqlError>() {
        error.clone()
    } else if let Some(error) = error.downcast_ref::<weir_common::error::ValueError>() {
        error.clone().into()
    } else if let Some(error) = error.downcast_ref::<DataFusionError>() {
        from_datafusion(error)
    } else if let Some(error) = error.downcast_ref::<ArrowError>() {
        from_arrow(error)
    } else {
        translate::execution(&error.to_string())
    }
}

fn from_schema(error: &SchemaError) -> SqlError {
    match error {
        SchemaError::FieldNotFound { field, valid_fields } => {
            let in_from = |relation: &TableReference| {
                let named = |c: &Column| c.relation.as_ref().is_some_and(|r| r.table() == relation.table());
                valid_fields.is_empty() || valid_fields.iter().any(named)
            };
            let error = match &field.relation {
                Some(relation) if !in_from(relation) => SqlError::new(
                    SqlState::UNDEFINED_TABLE,
                    format!("missing FROM-clause entry for table \"{}\"", relation.table()),
                ),
                // PostgreSQL writes a qualified name without quotes.
                Some(relation) => SqlError::new(
                    SqlState::UNDEFINED_COLUMN,
                    format!("column {}.{} does not exist", relation.table(), field.name),
                ),
                None => SqlError::undefined_column(&field.name),
            };
            match field.spans.first() {
                Some(span) => error.at(span.start.line, span.start.column),
                None => error,
            }
        }
        SchemaError::AmbiguousReference { field } => {
            SqlError::new(SqlState::AMBIGUOUS_COLUMN, format!("column reference \"{}\" is ambiguous", field.name))
        }
        // Two things in FROM of the same name.
        SchemaError::DuplicateQualifiedField { qualifier, .. } => {
            let message = format!("table name \"{}\" specified more than once", qualifier.table());
            SqlError::new(SqlState("42712"), message)
        }
        SchemaError::DuplicateUnqualifiedField { name } => {
            SqlError::new(SqlState::DUPLICATE_COLUMN, format!("column \"{name}\" specified more than once"))
        }
    }
}

fn from_arrow(error: &ArrowError) -> SqlError {
    match error {
        ArrowError::DivideByZero => SqlError::new(SqlState::DIVISION_BY_ZERO, "division by zero"),
        ArrowError::ArithmeticOverflow(message) => translate::overflow(message),
        ArrowError::ExternalError(error) => from_external(error.as_ref()),
        ArrowError::NotYetImplemented(message) => {
            SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, translate::first_line(message))
        }
        ArrowError::MemoryError(message) => SqlError::new(SqlState::OUT_OF_MEMORY, translate::first_line(message)),
        ArrowError::CastError(message)
        | ArrowError::ParseError(message)
        | ArrowError::ComputeError(message)
        | ArrowError::InvalidArgumentError(message) => translate::execution(message),
        other => SqlError::internal(translate::first_line(&other.to_string())),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn check(error: DataFusionError, state: &str, message: &str) {
        let error = SqlError::from(error);
        assert_eq!((error.state.0, error.message.as_str()), (state, message));
    }

    #[test]
    fn errors_speak_postgresql() {
        let plan = |message: &str| DataFusionError::Plan(message.to_string());
        let arrow = |error| DataFusionError::ArrowError(Box::new(error), None);
        let missing = SchemaError::FieldNotFound { field: Box::new(Column::from_name("x")), valid_fields: vec![] };
        check(DataFusionError::SchemaError(Box::new(missing), Box::new(None)), "42703", "column \"x\" does not exist");
        check(arrow(ArrowError::DivideByZero), "22012", "division by zero");
        check(
            arrow(ArrowError::ArithmeticOverflow("Overflow happened on: 1 + 2".into())),
            "22003",
            "value out of range",
        );
        check(
            arrow(ArrowError::CastError("Cannot cast string 'abc' to value of Int32 type".into())),
            "22P02",
            "invalid input syntax for type integer: \"abc\"",
        );
        check(
            arrow(ArrowError::CastError("Can't cast value 3000000000 to type Int32".into())),
            "22003",
            "integer out of range",
        );
        check(
            arrow(ArrowError::ParseError("Error parsing timestamp from 'soon': error parsing date".into())),
            "22007",
            "invalid input syntax for type timestamp: \"soon\"",
        );
        check(plan("Invalid function 'foo'.\nDid you mean 'floor'?"), "42883", "function foo does not exist");
        check(
            plan("Cannot infer common argument type for comparison operation Int32 = Date32"),
            "42883",
            "operator does not exist: integer = date",
        );
        check(plan("table 'dev.public.nothing' not found"), "42P01", "relation \"nothing\" does not exist");
        check(
            plan(
                "Column in SELECT must be in GROUP BY or an aggregate function: While expanding wildcard, column \
                 \"t.a\" must appear in the GROUP BY clause or must be part of an aggregate function, currently only \"t.b\" \
                 appears",
            ),
            "42803",
            "column \"t.a\" must appear in the GROUP BY clause or be used in an aggregate function",
        );
        check(SqlError::undefined_table("t").into(), "42P01", "relation \"t\" does not exist");
        check(
            arrow(ArrowError::ExternalError(Box::new(DataFusionError::from(SqlError::syntax("inner"))))),
            "42601",
            "inner",
        );
        check(plan("anything else\nbacktrace: lines"), "42601", "anything else");
    }

    #[test]
    fn positions_count_characters() {
        assert_eq!(position("select é\nfrom x", 2, 6), 15);
        assert_eq!(position("x", 1, 1), 1);
        let error = SqlError::undefined_column("x").at(1, 8).locate("select x");
        assert_eq!(error.position, Some(8));
    }
}
