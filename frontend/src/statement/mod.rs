//! Statements: SQL text in, [`Statement`]s out.
//!
//! `sqlparser` parses queries, DML and expressions. What is Weir's own, or RisingWave's (sources, sinks, `FLUSH`, options,
//! `SHOW …`), is parsed here with its [`Parser`] as the reader of tokens. [`Body`] is closed: what is not in it cannot
//! reach a planner, so no statement of DataFusion's own (external tables, COPY) exists here.
//!
//! [`Parser`]: datafusion::sql::sqlparser::parser::Parser

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use datafusion::sql::sqlparser::ast;
use weir_common::catalog::ObjectKind;

use crate::error::{Result, SqlError};

mod alter;
mod copy;
mod create;
mod cursor;
mod depth;
mod dialect;
mod error;
mod normalize;
mod options_text;
mod parse;
mod precedence;
mod show;
mod utility;

pub(crate) use error::parser_error;
pub use options_text::{redacted, with_options};
pub use parse::{dialect, parse_expr, parse_query};

/// One statement and its text.
#[derive(Clone, Debug)]
pub struct Statement {
    pub body: Body,
    /// The text of this statement alone, without the semicolon.
    pub text: String,
    /// All that was sent; positions of errors refer to it.
    source: Arc<str>,
}

impl Statement {
    /// Parses all statements of a string. None is run when one is wrong.
    pub fn parse(sql: &str) -> Result<Vec<Statement>> {
        parse::statements(sql).map_err(|e| e.locate(sql))
    }

    /// Gives an error of this statement its position in the text that was sent.
    pub fn locate(&self, error: SqlError) -> SqlError {
        error.locate(&self.source)
    }
}

/// What a statement says.
#[derive(Clone, Debug)]
pub enum Body {
    /// SELECT, VALUES, TABLE, WITH.
    Query(Box<ast::Query>),
    Insert(Box<ast::Insert>),
    Update(Box<ast::Update>),
    Delete(Box<ast::Delete>),
    CreateTable(Box<CreateTable>),
    /// The same shape as a table; a connector is given.
    CreateSource(Box<CreateTable>),
    CreateView(Box<CreateView>),
    CreateIndex(Box<CreateIndex>),
    CreateSink(Box<CreateSink>),
    CreateSecret(CreateSecret),
    CreateSubscription(CreateSubscription),
    Declare(Box<Declare>),
    Fetch(Fetch),
    /// CLOSE of one cursor.
    Close(Ident),
    CreateSchema {
        name: Ident,
        if_not_exists: bool,
    },
    Drop(Drop),
    DropSchema {
        names: Vec<Ident>,
        if_exists: bool,
        cascade: bool,
    },
    Copy(Box<Copy>),
    Set(Set),
    Show(Show),
    Explain(Box<Explain>),
    Begin(TransactionModes),
    Commit,
    Rollback,
    /// Waits until all that was written is in all views.
    Flush,
    /// Waits until all background DDL is done.
    Wait,
    CancelJobs(Vec<u32>),
    Alter(Box<Alter>),
    /// Statements that reset what Weir does not keep (`DISCARD`, `DEALLOCATE ALL`, `CLOSE ALL`, `UNLISTEN *`): the tag.
    Reset(Reset),
    /// A statement of PostgreSQL or RisingWave that Weir does not have.
    Unsupported(String),
}

/// An identifier, folded to lower case unless it was quoted.
#[derive(Clone, Debug)]
pub struct Ident {
    pub value: String,
    pub line: u64,
    pub column: u64,
}

impl Ident {
    /// The error, at this place.
    pub fn mark(&self, error: SqlError) -> SqlError {
        error.at(self.line, self.column)
    }
}

impl From<&ast::Ident> for Ident {
    fn from(ident: &ast::Ident) -> Ident {
        let value = match ident.quote_style {
            Some(_) => ident.value.clone(),
            None => ident.value.to_lowercase(),
        };
        Ident { value, line: ident.span.start.line, column: ident.span.start.column }
    }
}

/// `[[database.]schema.]name`.
#[derive(Clone, Debug)]
pub struct Name {
    pub database: Option<Ident>,
    pub schema: Option<Ident>,
    pub name: Ident,
}

impl Name {
    /// From sqlparser's name.
    pub fn from_ast(name: &ast::ObjectName) -> Result<Name> {
        let mut parts = Vec::new();
        for part in &name.0 {
            match part {
                ast::ObjectNamePart::Identifier(ident) => parts.push(Ident::from(ident)),
                ast::ObjectNamePart::Function(_) => return Err(SqlError::syntax(format!("invalid name: {name}"))),
            }
        }
        let mut parts = parts.into_iter().rev();
        let too_many = || SqlError::syntax(format!("improper qualified name (too many dotted names): {name}"));
        let name = parts.next().ok_or_else(|| SqlError::syntax("a name is missing"))?;
        let (schema, database) = (parts.next(), parts.next());
        match parts.next() {
            None => Ok(Name { database, schema, name }),
            Some(extra) => Err(extra.mark(too_many())),
        }
    }

    /// The error, at this name.
    pub fn mark(&self, error: SqlError) -> SqlError {
        self.database.as_ref().or(self.schema.as_ref()).unwrap_or(&self.name).mark(error)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.schema {
            Some(schema) => write!(f, "{}.{}", schema.value, self.name.value),
            None => f.write_str(&self.name.value),
        }
    }
}

/// A table, or a source.
#[derive(Clone, Debug)]
pub struct CreateTable {
    pub name: Name,
    pub if_not_exists: bool,
    pub columns: Vec<Column>,
    pub primary_key: Vec<Ident>,
    pub append_only: bool,
    pub conflict: Option<OnConflict>,
    pub options: BTreeMap<String, String>,
    pub format: Option<(String, String)>,
    /// CREATE TABLE AS.
    pub query: Option<Box<ast::Query>>,
    /// Clauses that are known but not there yet, for one clear refusal.
    pub refused: Option<SqlError>,
}

/// What happens to an insert whose key is there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnConflict {
    Overwrite,
    DoNothing,
}

/// A column of CREATE TABLE or CREATE SOURCE.
#[derive(Clone, Debug)]
pub struct Column {
    pub name: Ident,
    pub data_type: ast::DataType,
    pub not_null: bool,
    pub default: Option<ast::Expr>,
    pub generated: Option<ast::Expr>,
}

/// A view, plain or materialized.
#[derive(Clone, Debug)]
pub struct CreateView {
    pub materialized: bool,
    pub or_replace: bool,
    pub if_not_exists: bool,
    pub name: Name,
    pub columns: Vec<Ident>,
    pub options: BTreeMap<String, String>,
    pub query: Box<ast::Query>,
}

/// An index.
#[derive(Clone, Debug)]
pub struct CreateIndex {
    pub if_not_exists: bool,
    /// Made from the table and columns when none is given.
    pub name: Option<Name>,
    pub table: Name,
    pub columns: Vec<ast::OrderByExpr>,
    /// `None`: all columns of the table.
    pub include: Option<Vec<Ident>>,
    pub options: BTreeMap<String, String>,
}

/// A sink.
#[derive(Clone, Debug)]
pub struct CreateSink {
    pub if_not_exists: bool,
    pub name: Name,
    pub from: SinkInput,
    pub options: BTreeMap<String, String>,
    pub format: Option<(String, String)>,
    /// `INTO table (columns)`.
    pub into: Option<Name>,
    /// Empty: those of the table, in their order.
    pub columns: Vec<Ident>,
}

/// A value that options name: `password = secret name`.
#[derive(Clone, Debug)]
pub struct CreateSecret {
    pub if_not_exists: bool,
    pub name: Name,
    pub options: BTreeMap<String, String>,
    pub value: String,
}

/// Begins the value of an option that names a secret; no value that was written begins so.
pub const SECRET_MARK: char = '\0';

/// A subscription on a relation.
#[derive(Clone, Debug)]
pub struct CreateSubscription {
    pub if_not_exists: bool,
    pub name: Name,
    pub from: Name,
    pub options: BTreeMap<String, String>,
}

/// DECLARE of a cursor.
#[derive(Clone, Debug)]
pub struct Declare {
    pub name: Ident,
    pub what: Declared,
}

/// What a cursor goes through.
#[derive(Clone, Debug)]
pub enum Declared {
    Query {
        query: Box<ast::Query>,
        /// Stays open after the block.
        hold: bool,
    },
    /// The changes of a subscription's relation.
    Subscription { subscription: Name, since: Since },
}

/// Where a cursor on a subscription starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Since {
    Now,
    /// With the oldest change that is kept.
    Begin,
    /// After this epoch, or millisecond of Unix time.
    After(u64),
    /// With the rows that are there, as inserts, and then what changes.
    Full,
}

/// FETCH and MOVE.
#[derive(Clone, Debug)]
pub struct Fetch {
    pub cursor: Ident,
    /// `None`: all that is left.
    pub rows: Option<usize>,
    /// The rows are passed over.
    pub moves: bool,
    /// How long to wait for a row, as written.
    pub timeout: Option<String>,
}

/// What a sink delivers.
#[derive(Clone, Debug)]
pub enum SinkInput {
    Relation(Name),
    Query(Box<ast::Query>),
}

/// DROP of relations.
#[derive(Clone, Debug)]
pub struct Drop {
    pub kind: ObjectKind,
    pub names: Vec<Name>,
    pub if_exists: bool,
    pub cascade: bool,
}

/// COPY between the client and a relation or query.
#[derive(Clone, Debug)]
pub struct Copy {
    pub what: Copied,
    /// `FROM STDIN`, else `TO STDOUT`.
    pub from_client: bool,
    /// In the order in which they are written.
    pub options: Vec<(String, Option<String>)>,
}

/// What is copied.
#[derive(Clone, Debug)]
pub enum Copied {
    /// Without columns: all of them.
    Relation {
        name: Name,
        columns: Vec<Ident>,
    },
    Query(Box<ast::Query>),
}

/// ALTER of a relation.
#[derive(Clone, Debug)]
pub struct Alter {
    pub kind: ObjectKind,
    pub if_exists: bool,
    pub name: Name,
    pub action: AlterAction,
}

/// What ALTER changes.
#[derive(Clone, Debug)]
pub enum AlterAction {
    Rename(Ident),
    SetSchema(Ident),
    Owner(Ident),
    /// The two exchange their names.
    Swap(Name),
    /// Actors of each fragment; `None`: as many as there are cores.
    Parallelism(Option<usize>),
    /// Rows per second; `None`: no limit.
    RateLimit {
        option: &'static str,
        rows_per_s: Option<u64>,
    },
    /// As written; `None`: no limit.
    LogLimit(Option<String>),
    /// Options of a connector.
    Options(BTreeMap<String, String>),
    Pause,
    Resume,
}

/// A change of settings.
#[derive(Clone, Debug)]
pub enum Set {
    /// `None`: back to the default. Several values are a list.
    Variable {
        local: bool,
        name: String,
        value: Option<Vec<String>>,
    },
    ResetAll,
    /// `SET TRANSACTION` and `SET SESSION CHARACTERISTICS AS TRANSACTION`.
    Transaction {
        session: bool,
        modes: TransactionModes,
    },
}

/// What BEGIN and SET TRANSACTION say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TransactionModes {
    pub isolation: Option<String>,
    pub read_only: Option<bool>,
}

/// SHOW and DESCRIBE.
#[derive(Clone, Debug)]
pub enum Show {
    Variable(String),
    AllVariables,
    Objects {
        kind: ObjectKind,
        schema: Option<Ident>,
        like: Option<String>,
    },
    Indexes {
        table: Name,
    },
    Columns {
        relation: Name,
        like: Option<String>,
    },
    Describe {
        relation: Name,
    },
    Create {
        kind: ObjectKind,
        name: Name,
    },
    Jobs,
    InternalTables,
    /// Cursors of the session: on subscriptions, or on queries.
    Cursors {
        subscriptions: bool,
    },
    Schemas,
    Databases,
}

/// EXPLAIN.
#[derive(Clone, Debug)]
pub struct Explain {
    pub analyze: bool,
    pub verbose: bool,
    pub statement: Statement,
}

/// Statements that reset a part of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reset {
    DiscardAll,
    Discard(&'static str),
    DeallocateAll,
    CloseAll,
    Unlisten,
}

#[cfg(test)]
mod tests;
