//! `dept.id` in a subquery over a table that has a column `dept`: PostgreSQL means the outer table, the binder would take a
//! field of the column. Such an outer table gets another name for the binder.
//!
//! ```text
//! SELECT (SELECT count(*) FROM emp WHERE emp.dept = dept.id) FROM dept
//!   ──>  SELECT (SELECT count(*) FROM emp WHERE emp.dept = dept'.id) FROM dept AS dept'
//! ```

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Ident, ObjectNamePart, Query, Select, SelectItem, SelectItemQualifiedWildcardKind, TableAlias, TableFactor,
    TableWithJoins, Visit, VisitMut, Visitor, VisitorMut, With,
};

use super::using::{Columns, normal};
use crate::error::{Result, SqlError};
use crate::statement;

/// Follows a table's name in its other name, which no user can write.
const OTHER: char = '\u{2}';

/// Gives outer tables other names where the binder would take columns for them.
pub(super) fn rename(query: &mut Query, columns: &dyn Columns) -> Result<()> {
    let mut rename = Rename { columns, with: vec![], scopes: vec![], wanted: vec![], done: vec![vec![]] };
    match VisitMut::visit(query, &mut rename) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(*error),
    }
}

struct Rename<'a> {
    columns: &'a dyn Columns,
    with: Vec<Option<With>>,
    /// The names in FROM of the selects around, the outermost first.
    scopes: Vec<Vec<String>>,
    /// Tables of selects further out that need another name.
    wanted: Vec<String>,
    /// Tables that got one, for each query around: its ORDER BY names them too.
    done: Vec<Vec<String>>,
}

type Flow = ControlFlow<Box<SqlError>>;

impl VisitorMut for Rename<'_> {
    type Break = Box<SqlError>;

    fn pre_visit_query(&mut self, query: &mut Query) -> Flow {
        self.with.push(query.with.clone());
        self.done.push(vec![]);
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &mut Query) -> Flow {
        self.with.pop();
        for name in self.done.pop().unwrap_or_default() {
            let _ = VisitMut::visit(&mut query.order_by, &mut References { name: &name });
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> Flow {
        self.scopes.push(select.from.iter().flat_map(names).collect());
        ControlFlow::Continue(())
    }

    fn post_visit_select(&mut self, select: &mut Select) -> Flow {
        let own = self.scopes.pop().unwrap_or_default();
        match self.select(select, &own) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(Box::new(error)),
        }
    }
}

impl Rename<'_> {
    fn select(&mut self, select: &mut Select, own: &[String]) -> Result<()> {
        // What this select names of selects further out, if the binder could take it for a column.
        let mut found = Qualifiers { names: vec![], depth: 0 };
        let _ = Visit::visit(select, &mut found);
        let is_outer = |name: &String| !own.contains(name) && self.scopes.iter().any(|scope| scope.contains(name));
        found.names.retain(is_outer);
        if !found.names.is_empty() && !select.from.is_empty() {
            let columns = self.all_columns(select)?;
            for name in found.names.into_iter().filter(|n| columns.contains(n)) {
                let _ = VisitMut::visit(select, &mut References { name: &name });
                if !self.wanted.contains(&name) {
                    self.wanted.push(name);
                }
            }
        }
        let (mine, further): (Vec<_>, Vec<_>) = self.wanted.drain(..).partition(|name| own.contains(name));
        self.wanted = further;
        for name in mine {
            for item in &mut select.from {
                rename_table(item, &name);
            }
            for item in &mut select.projection {
                rename_star(item, &name);
            }
            let _ = VisitMut::visit(select, &mut References { name: &name });
            if let Some(done) = self.done.last_mut() {
                done.push(name);
            }
        }
        Ok(())
    }

    /// The names of the columns of FROM.
    fn all_columns(&self, select: &Select) -> Result<Vec<String>> {
        let with = self.with.iter().flatten();
        let recursive = if with.clone().any(|w| w.recursive) { "RECURSIVE " } else { "" };
        let ctes: Vec<String> = with.flat_map(|w| w.cte_tables.iter().map(|c| c.to_string())).collect();
        let with = if ctes.is_empty() { String::new() } else { format!("WITH {recursive}{} ", ctes.join(", ")) };
        let mut columns = Vec::new();
        for item in &select.from {
            let sql = format!("{with}SELECT * FROM {item}");
            let query = statement::parse_query(&sql);
            let query = query.map_err(|e| SqlError::syntax(e.to_string()))?;
            // What cannot be bound alone (it is lateral) is left to the binder.
            columns.extend(self.columns.columns(&query).unwrap_or_default().into_iter().map(|(_, name)| name));
        }
        Ok(columns)
    }
}

/// The names that the tables of an item in FROM go by.
fn names(item: &TableWithJoins) -> Vec<String> {
    let mut found: Vec<String> = factor_names(&item.relation);
    for join in &item.joins {
        found.extend(factor_names(&join.relation));
    }
    found
}

fn factor_names(factor: &TableFactor) -> Vec<String> {
    let (name, alias) = match factor {
        TableFactor::Table { name, alias, .. } => (name.0.last().and_then(ObjectNamePart::as_ident), alias),
        TableFactor::NestedJoin { table_with_joins, alias: None } => return names(table_with_joins),
        TableFactor::Derived { alias, .. }
        | TableFactor::UNNEST { alias, .. }
        | TableFactor::Function { alias, .. }
        | TableFactor::TableFunction { alias, .. }
        | TableFactor::NestedJoin { alias, .. } => (None, alias),
        _ => return vec![],
    };
    alias.as_ref().map(|a| &a.name).or(name).map(normal).into_iter().collect()
}

fn rename_table(item: &mut TableWithJoins, name: &str) {
    rename_factor(&mut item.relation, name);
    for join in &mut item.joins {
        rename_factor(&mut join.relation, name);
    }
}

fn rename_factor(factor: &mut TableFactor, wanted: &str) {
    if factor_names(factor) != [wanted] {
        if let TableFactor::NestedJoin { table_with_joins, alias: None } = factor {
            rename_table(table_with_joins, wanted);
        }
        return;
    }
    let (TableFactor::Table { alias, .. }
    | TableFactor::Derived { alias, .. }
    | TableFactor::UNNEST { alias, .. }
    | TableFactor::Function { alias, .. }
    | TableFactor::TableFunction { alias, .. }
    | TableFactor::NestedJoin { alias, .. }) = factor
    else {
        return;
    };
    let other = Ident::with_quote('"', format!("{wanted}{OTHER}"));
    match alias {
        Some(alias) => alias.name = other,
        None => *alias = Some(TableAlias { explicit: true, name: other, columns: vec![], at: None }),
    }
}

fn rename_star(item: &mut SelectItem, name: &str) {
    if let SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(object), _) = item
        && let [ObjectNamePart::Identifier(ident)] = &mut object.0[..]
        && normal(ident) == name
    {
        *ident = Ident::with_quote('"', format!("{name}{OTHER}"));
    }
}

/// First parts of the qualified names in a select, subqueries left out.
struct Qualifiers {
    names: Vec<String>,
    depth: usize,
}

impl Visitor for Qualifiers {
    type Break = ();

    fn pre_visit_query(&mut self, _query: &Query) -> ControlFlow<()> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _query: &Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        if self.depth == 0
            && let Expr::CompoundIdentifier(idents) = expr
            && let Some(first) = idents.first()
        {
            self.names.push(normal(first));
        }
        ControlFlow::Continue(())
    }
}

/// Lets references to a table be to its other name.
struct References<'a> {
    name: &'a str,
}

impl VisitorMut for References<'_> {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::CompoundIdentifier(idents) = expr
            && let Some(first) = idents.first_mut()
            && normal(first) == self.name
        {
            *first = Ident::with_quote('"', format!("{}{OTHER}", self.name));
        }
        ControlFlow::Continue(())
    }
}
