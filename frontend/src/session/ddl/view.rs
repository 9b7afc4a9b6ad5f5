//! CREATE VIEW and CREATE MATERIALIZED VIEW.

use datafusion::sql::sqlparser::ast;
use weir_common::catalog::{ColumnDef, Object, ObjectKind};

use super::drop::Dropped;
use super::{New, backfill_order, check_options, dependencies, is_job_option, names, rename, tag};
use crate::error::{Result, SqlError, SqlState};
use crate::planner::{self, Bound};
use crate::session::show::with_article;
use crate::session::{Moment, Reply, Session};
use crate::session::{build, origin};
use crate::statement::{CreateView, Statement};

impl Session {
    pub(in crate::session) async fn create_view(&self, view: &CreateView, statement: &Statement) -> Result<Reply> {
        let moment = self.moment()?;
        let kind = if view.materialized { ObjectKind::MaterializedView } else { ObjectKind::View };
        let (schema, name) = moment.target(&view.name)?;
        let replaced = moment.catalog.find(&schema, &name).filter(|_| view.or_replace).cloned();
        let new = match &replaced {
            Some(_) => New { schema, name, kind, statement },
            None => match self.place(&moment, &view.name, kind, view.if_not_exists, statement)? {
                Ok(new) => new,
                Err(reply) => return Ok(reply),
            },
        };
        let bound = bind(&moment, view)?;
        if let Some(old) = &replaced {
            check_replaceable(&moment, view, old, &bound)?;
        }
        let mut object = new.object(&self.user);
        object.depends_on = dependencies(&bound);
        check_options(&view.options, |name| is_job_option(kind, name))?;
        if view.materialized {
            object.options = self.job_options(&moment, kind, &view.options)?;
            object.parallelism = self.wanted_parallelism(&moment, kind);
            object.query = Some(names::qualified(&moment, &view.query).to_string());
            let mut planned = planner::plan_view(&bound, self.parallelism(&moment, kind))?;
            if let Some(order) = view.options.get(backfill_order::OPTION) {
                backfill_order::apply(&moment, &mut planned.plan, order)?;
            }
            for (i, column) in planned.columns.iter_mut().enumerate().filter(|(_, c)| !c.hidden) {
                column.computed = origin::of(&bound.plan, i).scale.is_none();
            }
            let foreground = !moment.settings.is_on("background_ddl");
            if let Some(old) = replaced {
                object.replaces = Some(old.id);
                object.owner = old.owner.clone();
                object.name = format!("_replacement_of_{}", old.id);
            }
            return self.create(object, Some(planned), foreground, view.if_not_exists).await;
        }
        object.columns = bound.columns.iter().map(|c| ColumnDef::new(c.name.clone(), c.sql_type.clone())).collect();
        check_distinct(&object.columns)?;
        object.query = Some(stored_query(&moment, view, &object.columns).to_string());
        if let Some(old) = replaced {
            let kept = old.as_ref().clone();
            let Object { columns, query, definition, depends_on, .. } = object;
            let changed = Object { columns, query, definition, depends_on, ..kept };
            self.meta.alter(vec![(old, changed)]).await?;
            return Ok(Reply::command(tag("CREATE", kind)));
        }
        self.create(object, None, true, view.if_not_exists).await
    }
}

/// Whether a view can take another query: nothing runs that was built on it, and those that name it find its columns.
fn check_replaceable(moment: &Moment<'_>, view: &CreateView, old: &Object, bound: &Bound) -> Result<()> {
    let kind = if view.materialized { ObjectKind::MaterializedView } else { ObjectKind::View };
    if old.kind != kind {
        let message = format!("\"{}\" is not {}", old.name, with_article(kind));
        return Err(view.name.mark(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message)));
    }
    let above = Dropped::closure(&moment.catalog, &[old.id]);
    let mut others = above.ids.iter().filter(|id| **id != old.id).filter_map(|id| moment.catalog.get(*id));
    if let Some(built) = others.clone().find(|o| o.kind != ObjectKind::View) {
        let message = format!("cannot replace {} {} because other objects were built on it", kind.sql(), old.name);
        let detail = format!("{} {} depends on it.", built.kind.sql(), built.name);
        let error = SqlError::new(SqlState::DEPENDENT_OBJECTS, message).with_detail(detail);
        return Err(error.with_hint("Create the new one under another name, build on that, and SWAP their names."));
    }
    if above.ids.iter().any(|id| dependencies(bound).contains(id)) {
        let message = format!("{} \"{}\" cannot depend on itself", kind.sql(), old.name);
        return Err(SqlError::new(SqlState::INVALID_OBJECT_DEFINITION, message));
    }
    if kind == ObjectKind::MaterializedView && others.next().is_none() {
        return Ok(());
    }
    let invalid = |message: String| SqlError::new(SqlState("42P16"), message);
    let visible = || old.columns.iter().filter(|c| !c.hidden);
    if bound.columns.len() < visible().count() {
        return Err(invalid("cannot drop columns from view".to_string()));
    }
    for (column, new) in visible().zip(&bound.columns) {
        if new.name != column.name {
            let (from, to) = (&column.name, &new.name);
            return Err(invalid(format!("cannot change name of view column \"{from}\" to \"{to}\"")));
        }
        if new.sql_type != column.sql_type {
            let (name, from, to) = (&column.name, &column.sql_type, &new.sql_type);
            return Err(invalid(format!("cannot change data type of view column \"{name}\" from {from} to {to}")));
        }
    }
    Ok(())
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
