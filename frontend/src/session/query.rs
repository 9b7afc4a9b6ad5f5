//! SELECT.

use std::time::Duration;

use datafusion::physical_plan::SendableRecordBatchStream;
use datafusion::sql::sqlparser::ast;
use weir_common::types::SqlType;

use super::consistency::without_versions;
use super::moment::with_values;
use super::origin;
use super::{Moment, OutputColumn, Params, Reply, Session};
use crate::batch;
use crate::error::{Result, SqlError};
use crate::planner::Bound;

impl Session {
    pub(super) async fn query(&self, query: &ast::Query, params: Params<'_>) -> Result<Reply> {
        refuse_writes(query)?;
        if let Some(pause) = pause(query) {
            // A function that waited would hold up a thread that runs other statements.
            tokio::time::sleep(pause).await;
            return Reply::text(&["pg_sleep"], vec![vec![Some(String::new())]], "SELECT");
        }
        let moment = self.moment()?;
        let (columns, batches) = moment.rows(query, params).await?;
        Ok(Reply::Rows { columns, batches, tag: "SELECT", notices: vec![] })
    }

    pub(super) fn describe_query(
        &self,
        query: &ast::Query,
        declared: &[Option<SqlType>],
    ) -> Result<(Vec<SqlType>, Option<Vec<OutputColumn>>)> {
        refuse_writes(query)?;
        if pause(query).is_some() {
            return Ok((vec![], Some(vec![OutputColumn::new("pg_sleep", SqlType::Varchar)])));
        }
        let bound = self.moment()?.plan(&without_versions(query).0, declared)?;
        let columns = output_columns(&bound);
        Ok((bound.params, Some(columns)))
    }
}

impl Moment<'_> {
    /// Runs a query, at the epoch that it or the session says. The moment's snapshot is the query's from then on.
    pub(super) async fn rows(
        &self,
        query: &ast::Query,
        params: Params<'_>,
    ) -> Result<(Vec<OutputColumn>, SendableRecordBatchStream)> {
        let (query, reading) = self.reading(query).await?;
        let bound = self.plan(&query, params.declared)?;
        let columns = output_columns(&bound);
        let plan = with_values(bound.plan, params)?;
        self.settle_for(&bound.relations, reading).await?;
        let state = batch::state(self.config.clone())?;
        Ok((columns, batch::execute(&state, &plan).await?))
    }
}

/// The columns of a bound query as clients see them.
pub(super) fn output_columns(bound: &Bound) -> Vec<OutputColumn> {
    let column = |(i, column): (usize, &crate::planner::BoundColumn)| {
        let origin = origin::of(&bound.plan, i);
        OutputColumn {
            name: column.name.clone(),
            sql_type: column.sql_type.clone(),
            table: origin.table,
            declared_scale: origin.scale,
        }
    };
    bound.columns.iter().enumerate().map(column).collect()
}

/// `SELECT pg_sleep(seconds)`, and nothing else.
fn pause(query: &ast::Query) -> Option<Duration> {
    let ast::SetExpr::Select(select) = query.body.as_ref() else { return None };
    let [ast::SelectItem::UnnamedExpr(ast::Expr::Function(call))] = select.projection.as_slice() else { return None };
    if !select.from.is_empty() || !call.name.to_string().eq_ignore_ascii_case("pg_sleep") {
        return None;
    }
    let ast::FunctionArguments::List(arguments) = &call.args else { return None };
    let [ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(ast::Expr::Value(value)))] = arguments.args.as_slice()
    else {
        return None;
    };
    match &value.value {
        ast::Value::Number(seconds, _) => Duration::try_from_secs_f64(seconds.parse().ok()?).ok(),
        _ => None,
    }
}

/// A query that also writes: SELECT INTO, or DML inside of it.
fn refuse_writes(query: &ast::Query) -> Result<()> {
    let mut open = vec![query.body.as_ref()];
    let ctes = query.with.iter().flat_map(|w| &w.cte_tables);
    open.extend(ctes.map(|cte| cte.query.body.as_ref()));
    while let Some(body) = open.pop() {
        match body {
            ast::SetExpr::Select(select) if select.into.is_some() => {
                return Err(SqlError::unsupported("SELECT INTO").with_hint("Use CREATE TABLE AS."));
            }
            ast::SetExpr::Query(query) => open.push(&query.body),
            ast::SetExpr::SetOperation { left, right, .. } => open.extend([left.as_ref(), right.as_ref()]),
            ast::SetExpr::Insert(_) | ast::SetExpr::Update(_) | ast::SetExpr::Delete(_) | ast::SetExpr::Merge(_) => {
                return Err(SqlError::unsupported("a write inside of a query"));
            }
            ast::SetExpr::Select(_) | ast::SetExpr::Values(_) | ast::SetExpr::Table(_) => {}
        }
    }
    if !query.locks.is_empty() {
        return Err(SqlError::unsupported("SELECT … FOR UPDATE"));
    }
    Ok(())
}
