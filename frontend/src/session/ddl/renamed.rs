//! Other names for relations, in the texts that name them.
//!
//! Views keep their query as text, and every object the statement that made it. When a relation gets another name, the
//! places that name it are replaced and the rest of the text stays as it was written. A relation in FROM without an alias gets
//! its old name as one, since the columns may be qualified by it.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{self, Expr, ObjectName, ObjectNamePart, TableFactor, Visit, Visitor};
use datafusion::sql::sqlparser::tokenizer::Location;
use weir_common::catalog::Object;

use super::names::{common_tables, relation, windowed};
use crate::statement::{self, Body, Name, SinkInput, Statement};
use crate::system::quoted;

/// The full name of a relation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Spelled {
    pub schema: String,
    pub name: String,
}

impl Spelled {
    pub fn of(object: &Object) -> Spelled {
        Spelled { schema: object.schema.clone(), name: object.name.clone() }
    }
}

/// Relations with their old and new names.
pub(super) struct Renames(Vec<(Spelled, Spelled)>);

/// A piece of a text to be replaced.
struct Edit {
    start: usize,
    end: usize,
    text: String,
}

impl Renames {
    pub fn new(renames: Vec<(Spelled, Spelled)>) -> Renames {
        Renames(renames)
    }

    /// In the text of a query.
    pub fn in_query(&self, text: &str) -> String {
        // What was stored was parsed before.
        let Ok(query) = statement::parse_query(text) else { return text.to_string() };
        apply(text, self.of_query(text, &query))
    }

    /// In the statement that made an object. `own`: the object's own new name.
    pub fn in_statement(&self, text: &str, own: Option<&Spelled>) -> String {
        let Ok(statements) = Statement::parse(text) else { return text.to_string() };
        let Some(statement) = statements.into_iter().next() else { return text.to_string() };
        let mut edits = Vec::new();
        let mut name = |name: &Name| edits.extend(own.map(|to| edit(text, name, to)));
        match &statement.body {
            Body::CreateTable(create) | Body::CreateSource(create) => {
                name(&create.name);
                edits.extend(create.query.iter().flat_map(|query| self.of_query(text, query)));
            }
            Body::CreateView(create) => {
                name(&create.name);
                edits.extend(self.of_query(text, &create.query));
            }
            Body::CreateIndex(create) => {
                if let Some(index) = &create.name {
                    // It is where its table is, and never qualified.
                    edits.extend(own.map(|to| Edit { text: quoted(&to.name), ..edit(text, index, to) }));
                }
                edits.extend(self.of(&create.table).map(|(_, to)| edit(text, &create.table, to)));
            }
            Body::CreateSink(create) => {
                name(&create.name);
                match &create.from {
                    SinkInput::Relation(from) => edits.extend(self.of(from).map(|(_, to)| edit(text, from, to))),
                    SinkInput::Query(query) => edits.extend(self.of_query(text, query)),
                }
                let into = create.into.iter().filter_map(|into| Some((into, self.of(into)?.1.clone())));
                edits.extend(into.map(|(into, to)| edit(text, into, &to)).collect::<Vec<_>>());
            }
            Body::CreateSubscription(create) => {
                name(&create.name);
                edits.extend(self.of(&create.from).map(|(_, to)| edit(text, &create.from, to)));
            }
            _ => {}
        }
        apply(text, edits)
    }

    /// The old and new name of the relation that a text calls so.
    fn of(&self, name: &Name) -> Option<&(Spelled, Spelled)> {
        self.0.iter().find(|(from, _)| {
            from.name == name.name.value && name.schema.as_ref().is_none_or(|schema| schema.value == from.schema)
        })
    }

    fn of_query(&self, text: &str, query: &ast::Query) -> Vec<Edit> {
        let mut places = Places { renames: self, text, ctes: common_tables(query), edits: Vec::new() };
        let _ = Visit::visit(query, &mut places);
        places.edits
    }
}

struct Places<'a> {
    renames: &'a Renames,
    text: &'a str,
    ctes: HashSet<String>,
    edits: Vec<Edit>,
}

impl Places<'_> {
    /// What a relation in FROM is called, was called, and will be.
    fn renamed(&self, name: &ObjectName) -> Option<(Name, Spelled, Spelled)> {
        let name = Name::from_ast(name).ok()?;
        if name.schema.is_none() && self.ctes.contains(&name.name.value) {
            return None;
        }
        let (from, to) = self.renames.of(&name)?.clone();
        Some((name, from, to))
    }
}

impl Visitor for Places<'_> {
    type Break = ();

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<()> {
        match factor {
            TableFactor::Table { name, alias, args: None, .. } => {
                if let Some((name, from, to)) = self.renamed(name) {
                    let mut edit = edit(self.text, &name, &to);
                    if alias.is_none() && from.name != to.name {
                        edit.text.push_str(&format!(" AS {}", quoted(&from.name)));
                    }
                    self.edits.push(edit);
                }
            }
            // There is no place for an alias but within a query.
            TableFactor::Table { name, args: Some(args), .. } => {
                if let Some(relation) = windowed(name, &mut args.args.clone()).and_then(|expr| relation(expr))
                    && let Some((name, from, to)) = self.renamed(&relation)
                {
                    let text = format!("(SELECT * FROM {} AS {})", spelled(&to), quoted(&from.name));
                    self.edits.push(Edit { text, ..edit(self.text, &name, &to) });
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        // `schema.relation.column`: the relation is known by its alias from now on.
        if let Expr::CompoundIdentifier(parts) = expr
            && let [schema, relation, _, ..] = parts.as_slice()
        {
            let name = ObjectName(vec![
                ObjectNamePart::Identifier(schema.clone()),
                ObjectNamePart::Identifier(relation.clone()),
            ]);
            if let Ok(parsed) = Name::from_ast(&name)
                && let Some((from, to)) = self.renames.of(&parsed)
            {
                let text = if from.name == to.name { spelled(to) } else { quoted(&from.name) };
                self.edits.push(Edit { text, ..edit(self.text, &parsed, to) });
            }
        }
        ControlFlow::Continue(())
    }
}

/// Replaces a name as it is written. Without a schema it stays without one, unless that changes.
fn edit(text: &str, name: &Name, to: &Spelled) -> Edit {
    let first = name.database.as_ref().or(name.schema.as_ref()).unwrap_or(&name.name);
    let start = offset(text, Location { line: first.line, column: first.column });
    let last = offset(text, Location { line: name.name.line, column: name.name.column });
    Edit { start, end: last + written_length(&text[last..]), text: spelled(to) }
}

fn spelled(to: &Spelled) -> String {
    match to.schema.as_str() {
        weir_common::catalog::PUBLIC_SCHEMA => quoted(&to.name),
        schema => format!("{}.{}", quoted(schema), quoted(&to.name)),
    }
}

/// How many bytes an identifier at the start of a text takes.
fn written_length(text: &str) -> usize {
    if !text.starts_with('"') {
        return text.find(|c: char| !c.is_alphanumeric() && c != '_' && c != '$').unwrap_or(text.len());
    }
    // A quote within is written twice.
    let mut chars = text.char_indices().skip(1).peekable();
    while let Some((at, c)) = chars.next() {
        if c == '"' && chars.next_if(|(_, next)| *next == '"').is_none() {
            return at + 1;
        }
    }
    text.len()
}

/// The byte that a line and column, counted in characters from 1, stand for.
fn offset(text: &str, at: Location) -> usize {
    let start: usize = text.split_inclusive('\n').take(at.line.saturating_sub(1) as usize).map(str::len).sum();
    let rest = &text[start..];
    let column = (at.column as usize).saturating_sub(1);
    rest.char_indices().nth(column).map_or(text.len(), |(i, _)| start + i)
}

fn apply(text: &str, mut edits: Vec<Edit>) -> String {
    edits.sort_by_key(|edit| edit.start);
    let (mut result, mut done) = (String::new(), 0);
    for edit in edits {
        // A subquery may be visited on two ways.
        if edit.start < done {
            continue;
        }
        result.push_str(&text[done..edit.start]);
        result.push_str(&edit.text);
        done = edit.end;
    }
    result.push_str(&text[done..]);
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn renames(pairs: &[(&str, &str)]) -> Renames {
        let spelled = |name: &str| {
            let (schema, name) = name.split_once('.').unwrap_or(("public", name));
            Spelled { schema: schema.into(), name: name.into() }
        };
        Renames(pairs.iter().map(|(from, to)| (spelled(from), spelled(to))).collect())
    }

    #[test]
    fn relations_of_a_query_get_their_old_names_as_aliases() {
        let renames = renames(&[("t", "New One")]);
        for (before, after) in [
            ("SELECT t.a FROM t WHERE a > 't'", "SELECT t.a FROM \"New One\" AS t WHERE a > 't'"),
            ("SELECT x.a FROM public.t AS x", "SELECT x.a FROM \"New One\" AS x"),
            ("SELECT x.a FROM \"public\".\"t\" x, other.t", "SELECT x.a FROM \"New One\" x, other.t"),
            ("SELECT public.t.a\nFROM public.t", "SELECT t.a\nFROM \"New One\" AS t"),
            ("WITH t AS (SELECT 1) SELECT * FROM t", "WITH t AS (SELECT 1) SELECT * FROM t"),
            (
                "SELECT t.a FROM TUMBLE(t, at, INTERVAL '1' HOUR)",
                "SELECT t.a FROM TUMBLE((SELECT * FROM \"New One\" AS t), at, INTERVAL '1' HOUR)",
            ),
            (
                "SELECT (SELECT max(t.a) FROM t) FROM u WHERE b IN (SELECT a FROM t)",
                "SELECT (SELECT max(t.a) FROM \"New One\" AS t) FROM u WHERE b IN (SELECT a FROM \"New One\" AS t)",
            ),
        ] {
            assert_eq!(renames.in_query(before), after);
        }
    }

    #[test]
    fn swapped_names_stay_apart() {
        let renames = renames(&[("a", "b"), ("b", "a")]);
        assert_eq!(
            renames.in_query("SELECT * FROM a JOIN b ON a.x = b.x"),
            "SELECT * FROM b AS a JOIN a AS b ON a.x = b.x"
        );
    }

    #[test]
    fn statements_name_themselves_and_others() {
        let renames = renames(&[("t", "s2.t2")]);
        let own = Spelled { schema: "public".into(), name: "w".into() };
        for (before, own, after) in [
            ("CREATE TABLE IF NOT EXISTS t (a int)", Some(&own), "CREATE TABLE IF NOT EXISTS w (a int)"),
            ("create view v as select a from t", None, "create view v as select a from s2.t2 AS t"),
            ("CREATE INDEX i ON t (a)", None, "CREATE INDEX i ON s2.t2 (a)"),
            (
                "CREATE SINK k FROM t WITH (connector = 'blackhole')",
                None,
                "CREATE SINK k FROM s2.t2 WITH (connector = 'blackhole')",
            ),
            ("CREATE MATERIALIZED VIEW \"a\"\"b\" AS SELECT 1", Some(&own), "CREATE MATERIALIZED VIEW w AS SELECT 1"),
        ] {
            assert_eq!(renames.in_statement(before, own), after);
        }
    }
}
