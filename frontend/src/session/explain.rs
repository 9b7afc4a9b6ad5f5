//! EXPLAIN: DataFusion's plans of a query, the stream plan of a job.

use datafusion::physical_plan::display::DisplayableExecutionPlan;
use datafusion::physical_plan::execute_stream;
use futures::TryStreamExt;
use weir_common::types::SqlType;

use super::{Moment, OutputColumn, Reply, Session};
use crate::batch;
use crate::error::{Result, SqlError};
use crate::planner::{self, Bound};
use crate::statement::{Body, Explain};

/// The columns that EXPLAIN returns.
pub(super) fn columns() -> Vec<OutputColumn> {
    vec![OutputColumn::new("QUERY PLAN", SqlType::Varchar)]
}

impl Session {
    pub(super) async fn explain(&self, explain: &Explain) -> Result<Reply> {
        let moment = self.moment()?;
        let text = match &explain.statement.body {
            Body::Query(query) => {
                let bound = moment.plan(query, &[])?;
                explain_query(&moment, bound, explain).await?
            }
            body if explain.analyze => {
                return Err(SqlError::unsupported(format!("EXPLAIN ANALYZE of {}", kind(body))));
            }
            Body::Insert(insert) => explain_query(&moment, self.bind_insert(&moment, insert)?, explain).await?,
            Body::Update(update) => explain_query(&moment, self.bind_update(&moment, update)?, explain).await?,
            Body::Delete(delete) => explain_query(&moment, self.bind_delete(&moment, delete)?, explain).await?,
            body => match self.plan_job(&moment, body)? {
                Some(plan) => planner::explain(&plan),
                None => return Err(SqlError::unsupported(format!("EXPLAIN of {}", kind(body)))),
            },
        };
        let rows = text.trim_end().lines().map(|line| vec![Some(line.to_string())]).collect();
        Reply::text(&["QUERY PLAN"], rows, "EXPLAIN")
    }
}

async fn explain_query(moment: &Moment<'_>, bound: Bound, explain: &Explain) -> Result<String> {
    moment.settle(&bound.relations).await?;
    let state = batch::state(moment.config.clone())?;
    let logical = state.optimize(&bound.plan)?;
    let physical = batch::physical_plan(&state, &bound.plan).await?;
    let mut text = String::new();
    if !explain.analyze {
        text.push_str(&format!("Logical plan\n{}\n\n", indent(&logical.display_indent().to_string())));
    }
    let displayed = if explain.analyze {
        execute_stream(physical.clone(), state.task_ctx())?.try_for_each(|_| async { Ok(()) }).await?;
        DisplayableExecutionPlan::with_metrics(physical.as_ref()).indent(explain.verbose).to_string()
    } else {
        DisplayableExecutionPlan::new(physical.as_ref()).indent(explain.verbose).to_string()
    };
    text.push_str(&format!("Physical plan\n{}", indent(&displayed)));
    Ok(text)
}

fn indent(text: &str) -> String {
    text.trim_end().lines().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
}

fn kind(body: &Body) -> &'static str {
    match body {
        Body::Query(_) => "a query",
        Body::Insert(_) | Body::Update(_) | Body::Delete(_) => "a write",
        Body::CreateTable(_)
        | Body::CreateSource(_)
        | Body::CreateView(_)
        | Body::CreateIndex(_)
        | Body::CreateSink(_)
        | Body::CreateSchema { .. } => "this CREATE",
        _ => "this statement",
    }
}
