//! The extended protocol: statements that are prepared once, bound to values, and run piece by piece.
//!
//! ```text
//! Parse      statement  = text, planned, parameters open      Describe  what goes in, what comes out
//! Bind       portal     = statement and values                Execute   rows: all, or the next few
//! ```
//!
//! Portals live as long as the transaction: outside of a block until Sync. Statements live as long as the connection.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::scalar::ScalarValue;
use pgwire::messages::PgWireBackendMessage;
use pgwire::messages::data::{NoData, ParameterDescription};
use pgwire::messages::extendedquery::{
    Bind, BindComplete, Close, CloseComplete, Describe, Execute, Parse, ParseComplete, PortalSuspended,
    TARGET_TYPE_BYTE_STATEMENT,
};
use weir_common::SqlType;

use super::backend::Backend;
use super::connection::Connection;
use super::decode::Parameter;
use super::encode::Format;
use super::message::protocol_violation;
use super::oid;
use super::rows::{Progress, Rows, row_description};
use super::wire::Failure;
use crate::error::{Result, SqlError, SqlState};
use crate::session::{OutputColumn, Reply};

/// Statements, and portals, that one connection may have at a time.
const NAMES_MAX: usize = 10_000;

const DUPLICATE_STATEMENT: SqlState = SqlState("42P05");
const DUPLICATE_PORTAL: SqlState = SqlState("42P03");
const UNDEFINED_STATEMENT: SqlState = SqlState("26000");
const TOO_MANY: SqlState = SqlState("54000");

/// A statement that a client has prepared.
pub struct Statement<B: Backend> {
    /// `None`: the text was empty.
    prepared: Option<B::Prepared>,
    parameters: Vec<Parameter>,
}

impl<B: Backend> Statement<B> {
    fn columns(&self) -> Option<&[OutputColumn]> {
        self.prepared.as_ref().and_then(B::columns)
    }
}

/// A statement with values for its parameters.
pub struct Portal<B: Backend> {
    statement: Arc<Statement<B>>,
    /// One per column of the result.
    formats: Vec<Format>,
    progress: State,
}

/// How far a portal has come.
enum State {
    Bound(Vec<ScalarValue>),
    Open(Rows),
    /// All rows have been sent.
    Exhausted(Rows),
    /// It was no query, and has been run.
    Run,
}

impl<B: Backend> Connection<B> {
    pub(super) async fn parse(&mut self, parse: Parse) -> Result<(), Failure> {
        let name = parse.name.unwrap_or_default();
        if name.is_empty() {
            self.statements.remove("");
        } else if self.statements.contains_key(&name) {
            let message = format!("prepared statement \"{name}\" already exists");
            return Err(SqlError::new(DUPLICATE_STATEMENT, message).into());
        }
        check_room(&self.statements, "prepared statements")?;
        let mut statements = self.session.parse(&parse.query)?;
        let statement = statements.pop();
        if !statements.is_empty() {
            return Err(SqlError::syntax("cannot insert multiple commands into a prepared statement").into());
        }
        let declared = parse.type_oids.iter().map(|oid| declared_type(*oid)).collect::<Result<Vec<_>>>()?;
        let prepared = match statement {
            Some(statement) => Some(self.session.prepare(statement, &declared).await?),
            None => None,
        };
        let needed = prepared.as_ref().map_or(&[][..], B::parameters);
        let parameters = (0..needed.len().max(declared.len())).map(|i| {
            let declared_oid = parse.type_oids.get(i).filter(|_| declared.get(i).is_some_and(Option::is_some));
            let sql_type = needed.get(i).or_else(|| declared.get(i)?.as_ref()).unwrap_or(&SqlType::Varchar);
            Parameter { oid: declared_oid.copied().unwrap_or_else(|| oid::of(sql_type)), sql_type: sql_type.clone() }
        });
        let statement = Statement { parameters: parameters.collect(), prepared };
        self.statements.insert(name, Arc::new(statement));
        self.wire.put(PgWireBackendMessage::ParseComplete(ParseComplete::new()))?;
        Ok(())
    }

    pub(super) fn bind(&mut self, bind: Bind) -> Result<()> {
        let name = bind.portal_name.unwrap_or_default();
        let statement_name = bind.statement_name.unwrap_or_default();
        let statement = self.statement(&statement_name)?.clone();
        if name.is_empty() {
            self.portals.remove("");
        } else if self.portals.contains_key(&name) {
            return Err(SqlError::new(DUPLICATE_PORTAL, format!("cursor \"{name}\" already exists")));
        }
        check_room(&self.portals, "portals")?;
        let (given, needed) = (bind.parameters.len(), statement.parameters.len());
        if given != needed {
            return Err(protocol_violation(format!(
                "bind message supplies {given} parameters, but prepared statement \"{statement_name}\" requires {needed}"
            )));
        }
        let formats = formats(&bind.parameter_format_codes, given, || {
            let codes = bind.parameter_format_codes.len();
            format!("bind message has {codes} parameter formats but {given} parameters")
        })?;
        let settings = self.session.text_format();
        let values = statement.parameters.iter().zip(&bind.parameters).zip(formats);
        let values = values.map(|((parameter, value), format)| parameter.decode(value.as_deref(), format, &settings));
        let mut values = values.collect::<Result<Vec<_>>>()?;
        // More may have been declared than are used.
        values.truncate(statement.prepared.as_ref().map_or(0, |prepared| B::parameters(prepared).len()));
        let formats = match statement.columns() {
            Some(columns) => formats_of_result(&bind.result_column_format_codes, columns.len())?,
            None => vec![],
        };
        self.portals.insert(name, Portal { statement, formats, progress: State::Bound(values) });
        self.wire.put(PgWireBackendMessage::BindComplete(BindComplete::new()))
    }

    pub(super) fn describe(&mut self, describe: &Describe) -> Result<()> {
        let name = describe.name.as_deref().unwrap_or_default();
        let columns = if describe.target_type == TARGET_TYPE_BYTE_STATEMENT {
            let statement = self.statement(name)?;
            let columns = statement.columns();
            let formats = vec![Format::Text; columns.map_or(0, <[_]>::len)];
            let columns = columns.map(|columns| row_description(columns, &formats)).transpose()?;
            let parameters = statement.parameters.iter().map(|parameter| parameter.oid).collect();
            let parameters = ParameterDescription::new(parameters);
            self.wire.put(PgWireBackendMessage::ParameterDescription(parameters))?;
            columns
        } else {
            let portal = self.portals.get(name).ok_or_else(|| undefined_portal(name))?;
            portal.statement.columns().map(|columns| row_description(columns, &portal.formats)).transpose()?
        };
        self.wire.put(columns.unwrap_or_else(|| PgWireBackendMessage::NoData(NoData::new())))
    }

    pub(super) async fn execute(&mut self, execute: Execute) -> Result<(), Failure> {
        let name = execute.name.unwrap_or_default();
        // Zero is no limit; so is less.
        let limit = u64::try_from(execute.max_rows).ok().filter(|limit| *limit > 0).unwrap_or(u64::MAX);
        // It is put back when all went well. A portal that failed is gone with its transaction.
        let mut portal = self.portals.remove(&name).ok_or_else(|| undefined_portal(&name))?;
        let statement = portal.statement.clone();
        portal.progress = match portal.progress {
            State::Bound(values) => match &statement.prepared {
                None => {
                    self.command(Reply::Empty).await?;
                    State::Run
                }
                Some(prepared) => match self.session.execute(prepared, values).await? {
                    Reply::Rows { columns, batches, tag, notices } => {
                        self.notices(&notices)?;
                        check_columns(statement.columns(), &columns)?;
                        let settings = self.session.text_format();
                        let rows = Rows::new(&columns, &portal.formats, &settings, batches, tag);
                        self.send(rows, limit).await?
                    }
                    reply => {
                        self.command(reply).await?;
                        State::Run
                    }
                },
            },
            State::Open(rows) => self.send(rows, limit).await?,
            State::Exhausted(rows) => {
                self.complete(rows.tag(0))?;
                State::Exhausted(rows)
            }
            State::Run if statement.prepared.is_none() => {
                self.command(Reply::Empty).await?;
                State::Run
            }
            State::Run => {
                let message = format!("portal \"{name}\" cannot be run");
                return Err(SqlError::new(SqlState::NOT_IN_PREREQUISITE_STATE, message).into());
            }
        };
        self.portals.insert(name, portal);
        Ok(())
    }

    async fn send(&mut self, mut rows: Rows, limit: u64) -> Result<State, Failure> {
        match rows.send(&mut self.wire, limit).await? {
            Progress::Done(count) => {
                self.complete(rows.tag(count))?;
                Ok(State::Exhausted(rows))
            }
            Progress::Suspended => {
                self.wire.put(PgWireBackendMessage::PortalSuspended(PortalSuspended::new()))?;
                Ok(State::Open(rows))
            }
        }
    }

    /// It is no error to close what does not exist.
    pub(super) fn close(&mut self, close: &Close) -> Result<()> {
        let name = close.name.as_deref().unwrap_or_default();
        if close.target_type == TARGET_TYPE_BYTE_STATEMENT {
            self.statements.remove(name);
        } else {
            self.portals.remove(name);
        }
        self.wire.put(PgWireBackendMessage::CloseComplete(CloseComplete::new()))
    }

    fn statement(&self, name: &str) -> Result<&Arc<Statement<B>>> {
        self.statements.get(name).ok_or_else(|| {
            SqlError::new(
                UNDEFINED_STATEMENT,
                match name {
                    "" => "unnamed prepared statement does not exist".to_string(),
                    name => format!("prepared statement \"{name}\" does not exist"),
                },
            )
        })
    }
}

fn undefined_portal(name: &str) -> SqlError {
    SqlError::new(SqlState::INVALID_CURSOR_NAME, format!("portal \"{name}\" does not exist"))
}

fn check_room<T>(map: &HashMap<String, T>, what: &str) -> Result<()> {
    if map.len() < NAMES_MAX {
        return Ok(());
    }
    Err(SqlError::new(TOO_MANY, format!("a connection can have at most {NAMES_MAX} {what}")))
}

/// The type of an oid that a client declares; `None` leaves it to the statement.
fn declared_type(type_oid: u32) -> Result<Option<SqlType>> {
    match type_oid {
        0 | oid::UNKNOWN => Ok(None),
        _ => match oid::sql_type(type_oid) {
            Some(sql_type) => Ok(Some(sql_type)),
            None => Err(SqlError::new(SqlState::UNDEFINED_OBJECT, format!("type with OID {type_oid} does not exist"))),
        },
    }
}

fn formats_of_result(codes: &[i16], columns: usize) -> Result<Vec<Format>> {
    formats(codes, columns, || {
        format!("bind message has {} result formats but query has {columns} columns", codes.len())
    })
}

/// The formats that codes stand for: none is text for all, one is the same for all.
fn formats(codes: &[i16], count: usize, mismatch: impl Fn() -> String) -> Result<Vec<Format>> {
    match codes {
        [] => Ok(vec![Format::Text; count]),
        [one] => Ok(vec![Format::from_code(*one)?; count]),
        codes if codes.len() == count => codes.iter().map(|code| Format::from_code(*code)).collect(),
        _ => Err(protocol_violation(mismatch())),
    }
}

/// The client has been told what the columns are; they may have changed since.
fn check_columns(announced: Option<&[OutputColumn]>, columns: &[OutputColumn]) -> Result<()> {
    let oids = |columns: &[OutputColumn]| columns.iter().map(|c| oid::of(&c.sql_type)).collect::<Vec<_>>();
    if announced.is_some_and(|announced| oids(announced) == oids(columns)) {
        return Ok(());
    }
    Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, "cached plan must not change result type"))
}
