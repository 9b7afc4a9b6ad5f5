//! CREATE VIEW and CREATE MATERIALIZED VIEW.

use datafusion::sql::sqlparser::ast;
use weir_common::catalog::{ColumnDef, ObjectKind};

use super::{dependencies, exists, names, rate_limits, rename};
use crate::error::{Result, SqlError, SqlState};
use crate::planner::{self, Bound};
use crate::session::{Moment, Reply, Session};
use crate::session::{build, origin};
use crate::statement::{CreateView, Statement};

impl Session {
    pub(in crate::session) async fn create_view(&self, view: &CreateView, statement: &Statement) -> Result<Reply> {
        let moment = self.moment()?;
        let kind = if view.materialized { ObjectKind::MaterializedView } else { ObjectKind::View };
        if view.or_replace && view.materialized {
            return Err(SqlError::unsupported("CREATE OR REPLACE MATERIALIZED VIEW"));
        }
        let new = match self.place(&moment, &view.name, kind, view.if_not_exists, statement) {
            Ok(Ok(new)) => new,
            Ok(Err(reply)) => return Ok(reply),
            Err(error) if view.or_replace && error.message == exists(&view.name.name.value).message => {
                let error = SqlError::unsupported("replacing a view that exists");
                return Err(view.name.mark(error).with_hint("Drop the view first."));
            }
            Err(error) => return Err(error),
        };
        let bound = bind(&moment, view)?;
        let mut object = new.object(&self.user);
        object.depends_on = dependencies(&bound);
        if let Some(unknown) = view.options.keys().find(|name| !rate_limits(kind).contains(&name.as_str())) {
            let message = format!("unrecognized parameter \"{unknown}\"");
            return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message));
        }
        if view.materialized {
            object.options = self.job_options(&moment, kind, &view.options)?;
            object.parallelism = self.wanted_parallelism(&moment, kind);
            object.query = Some(names::qualified(&moment, &view.query).to_string());
            let mut planned = planner::plan_view(&bound, self.parallelism(&moment, kind))?;
            for (i, column) in planned.columns.iter_mut().enumerate().filter(|(_, c)| !c.hidden) {
                column.computed = origin::of(&bound.plan, i).scale.is_none();
            }
            let foreground = !moment.settings.is_on("background_ddl");
            return self.create(object, Some(planned), foreground, view.if_not_exists).await;
        }
        object.columns = bound.columns.iter().map(|c| ColumnDef::new(c.name.clone(), c.sql_type.clone())).collect();
        check_distinct(&object.columns)?;
        object.query = Some(stored_query(&moment, view, &object.columns).to_string());
        self.create(object, None, true, view.if_not_exists).await
    }
}

/// The query of a view, its columns named as the view says.
pub(super) fn bind(moment: &Moment<'_>, view: &CreateView) -> Result<Bound> {
    let mut bound = moment.plan_kept(&view.query)?;
    if !bound.params.is_empty() {
        return Err(SqlError::new(SqlState("42P02"), "there is no parameter $1").with_hint("A view has no parameters."));
    }
    rename(&mut bound, &view.columns, "CREATE VIEW")?;
    Ok(bound)
}

/// The query that a plain view is read by: names resolved, and columns under the names of the view, since they are
/// found by name when the relations below have changed.
fn stored_query(moment: &Moment<'_>, view: &CreateView, columns: &[ColumnDef]) -> ast::Query {
    let query = names::qualified(moment, &view.query);
    if view.columns.is_empty() {
        return query;
    }
    let alias = "view";
    let names: Vec<String> = columns.iter().map(|c| c.name.clone()).collect();
    let items = names.iter().map(|name| build::named(build::column(alias, name), name)).collect();
    build::select(items, vec![build::derived(query, alias, &names)], None)
}

fn check_distinct(columns: &[ColumnDef]) -> Result<()> {
    for (i, column) in columns.iter().enumerate() {
        if columns[..i].iter().any(|c| c.name == column.name) {
            let message = format!("column \"{}\" specified more than once", column.name);
            return Err(SqlError::new(SqlState::DUPLICATE_COLUMN, message).with_hint("Name it with AS."));
        }
    }
    Ok(())
}
