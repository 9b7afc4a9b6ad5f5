//! CREATE INDEX.

use datafusion::sql::sqlparser::ast::Expr;
use weir_common::catalog::{Object, ObjectKind};
use weir_common::key::{KeyOrder, SortColumn};

use super::{New, Planned, check_options, exists, is_job_option, skipped, tag};
use crate::error::{Result, SqlError, SqlState};
use crate::planner;
use crate::session::{Moment, Reply, Session};
use crate::statement::{CreateIndex, Ident, Statement};

impl Session {
    pub(in crate::session) async fn create_index(&self, index: &CreateIndex, statement: &Statement) -> Result<Reply> {
        let moment = self.moment()?;
        let table = indexed(&moment, index)?;
        let name = match &index.name {
            Some(name) => name.name.value.clone(),
            None => free_name(&moment, &table, index),
        };
        // An index lives where its table does.
        if moment.catalog.find(&table.schema, &name).is_some() {
            return match index.if_not_exists {
                true => Ok(skipped(&name, &tag("CREATE", ObjectKind::Index))),
                false => Err(exists(&name)),
            };
        }
        let (table, planned) = self.plan_index(&moment, index)?;
        let new = New { schema: table.schema.clone(), name, kind: ObjectKind::Index, statement };
        let mut object = new.object(&self.user);
        object.depends_on = vec![table.id];
        check_options(&index.options, |name| is_job_option(ObjectKind::Index, name))?;
        object.options = self.job_options(&moment, ObjectKind::Index, &index.options)?;
        object.parallelism = self.wanted_parallelism(&moment, ObjectKind::Index);
        let foreground = !moment.settings.is_on("background_ddl");
        self.create(object, Some(planned), foreground, index.if_not_exists).await
    }

    /// The relation that an index is on, and the plan of the index's job.
    pub(in crate::session) fn plan_index(
        &self,
        moment: &Moment<'_>,
        index: &CreateIndex,
    ) -> Result<(std::sync::Arc<Object>, Planned)> {
        let table = indexed(moment, index)?;
        let mut key = Vec::with_capacity(index.columns.len());
        for column in &index.columns {
            let Expr::Identifier(name) = &column.expr else {
                return Err(SqlError::unsupported("an expression in an index")
                    .with_hint("Create a materialized view with the expression as a column, and an index on that."));
            };
            let descending = column.options.asc == Some(false);
            // As in PostgreSQL, NULLs are larger than all values.
            let nulls_first = column.options.nulls_first.unwrap_or(descending);
            let column = column_of(&table, &Ident::from(name))?;
            key.push(SortColumn { column, order: KeyOrder { descending, nulls_first } });
        }
        let include = match &index.include {
            Some(names) => names.iter().map(|name| column_of(&table, name)).collect::<Result<Vec<_>>>()?,
            None => (0..table.columns.len()).filter(|i| !table.columns[*i].hidden).collect(),
        };
        let planned = planner::plan_index(&table, &key, &include, self.parallelism(moment, ObjectKind::Index))?;
        Ok((table, planned))
    }
}

fn indexed(moment: &Moment<'_>, index: &CreateIndex) -> Result<std::sync::Arc<Object>> {
    let table = moment.get(&index.table)?;
    match table.kind {
        ObjectKind::Table | ObjectKind::MaterializedView => Ok(table),
        kind => {
            let message = format!("cannot create index on {} \"{}\"", kind.sql(), table.name);
            Err(index.table.mark(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message)))
        }
    }
}

fn column_of(table: &Object, name: &Ident) -> Result<usize> {
    let found = table.columns.iter().position(|c| c.name == name.value && !c.hidden);
    found.ok_or_else(|| name.mark(SqlError::undefined_column(&name.value)))
}

/// `table_column_idx`, with a number where that is taken.
fn free_name(moment: &Moment<'_>, table: &Object, index: &CreateIndex) -> String {
    let columns = index.columns.iter().filter_map(|c| match &c.expr {
        Expr::Identifier(name) => Some(Ident::from(name).value),
        _ => None,
    });
    let base = format!("{}_{}_idx", table.name, columns.collect::<Vec<_>>().join("_"));
    let mut name = base.clone();
    for n in 1.. {
        if moment.catalog.find(&table.schema, &name).is_none() {
            break;
        }
        name = format!("{base}{n}");
    }
    name
}
