//! What the protocol asks of a session.
//!
//! [`Session`] is one; the tests of the protocol have another, which answers without a database.

use datafusion::scalar::ScalarValue;
use weir_common::SqlType;
use weir_common::text::TextFormat;

use crate::Session;
use crate::error::Result;
use crate::session::{OutputColumn, Prepared, Reply, TransactionStatus};
use crate::statement;

/// A session, whose statements run one at a time. A future that is dropped is a statement that was cancelled.
pub trait Backend: Send + Sync + 'static {
    /// A statement that has been parsed.
    type Statement: Send + Sync + 'static;
    /// A statement that has been planned, with its parameters open.
    type Prepared: Send + Sync + 'static;

    /// The statements of a string, none if there is nothing but space and comments.
    fn parse(&self, sql: &str) -> Result<Vec<Self::Statement>>;

    /// Runs a statement without parameters.
    fn run(&self, statement: &Self::Statement) -> impl Future<Output = Result<Reply>> + Send;

    /// Plans a statement. Types of parameters that are not declared are inferred.
    fn prepare(
        &self,
        statement: Self::Statement,
        declared: &[Option<SqlType>],
    ) -> impl Future<Output = Result<Self::Prepared>> + Send;

    /// Runs a prepared statement with a value for each of its parameters.
    fn execute(
        &self,
        prepared: &Self::Prepared,
        parameters: Vec<ScalarValue>,
    ) -> impl Future<Output = Result<Reply>> + Send;

    /// The types of the parameters.
    fn parameters(prepared: &Self::Prepared) -> &[SqlType];

    /// The columns of the result. `None`: the statement returns no rows.
    fn columns(prepared: &Self::Prepared) -> Option<&[OutputColumn]>;

    /// Where the session is in a transaction.
    fn status(&self) -> TransactionStatus;

    /// Fails the transaction block, if there is one: a message went wrong without the session's knowledge.
    fn abort(&self);

    /// The settings that clients are told of when they change.
    fn parameter_statuses(&self) -> Vec<(&'static str, String)>;

    /// How values are written as text.
    fn text_format(&self) -> TextFormat;
}

impl Backend for Session {
    type Statement = statement::Statement;
    type Prepared = Prepared;

    fn parse(&self, sql: &str) -> Result<Vec<statement::Statement>> {
        Session::parse(self, sql)
    }

    fn run(&self, statement: &statement::Statement) -> impl Future<Output = Result<Reply>> + Send {
        Session::run(self, statement)
    }

    fn prepare(
        &self,
        statement: statement::Statement,
        declared: &[Option<SqlType>],
    ) -> impl Future<Output = Result<Prepared>> + Send {
        Session::prepare(self, statement, declared)
    }

    fn execute(&self, prepared: &Prepared, parameters: Vec<ScalarValue>) -> impl Future<Output = Result<Reply>> + Send {
        Session::execute(self, prepared, parameters)
    }

    fn parameters(prepared: &Prepared) -> &[SqlType] {
        &prepared.params
    }

    fn columns(prepared: &Prepared) -> Option<&[OutputColumn]> {
        prepared.columns.as_deref()
    }

    fn status(&self) -> TransactionStatus {
        Session::status(self)
    }

    fn abort(&self) {
        Session::abort(self);
    }

    fn parameter_statuses(&self) -> Vec<(&'static str, String)> {
        Session::parameter_statuses(self)
    }

    fn text_format(&self) -> TextFormat {
        Session::text_format(self)
    }
}
