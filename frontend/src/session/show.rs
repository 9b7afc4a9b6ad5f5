//! SHOW and DESCRIBE.

use std::sync::Arc;

use weir_common::catalog::{Object, ObjectKind};
use weir_common::types::SqlType;

use super::{DATABASE, Moment, OutputColumn, Reply, Session};
use crate::error::{Result, SqlError, SqlState};
use crate::statement::{Ident, Name, Show};
use crate::system;

type Rows = Vec<Vec<Option<String>>>;

/// The names of the columns that a SHOW returns.
fn names(show: &Show) -> Vec<&str> {
    match show {
        Show::Variable(name) => vec![name.as_str()],
        Show::AllVariables => vec!["name", "setting", "description"],
        Show::Objects { kind: ObjectKind::Sink, .. } => vec!["Name", "Connector"],
        Show::Objects { .. } | Show::InternalTables | Show::Schemas | Show::Databases => vec!["Name"],
        Show::Indexes { .. } => vec!["Name", "On", "Key", "Include", "Distributed By"],
        Show::Columns { .. } | Show::Describe { .. } => vec!["Name", "Type", "Is Hidden", "Description"],
        Show::Create { .. } => vec!["Name", "Create Sql"],
        Show::Cursors { subscriptions: true } => vec!["Cursor", "Subscription"],
        Show::Cursors { subscriptions: false } => vec!["Cursor"],
        Show::Jobs => vec!["Id", "Statement", "Create Type", "Progress"],
    }
}

/// The columns that a SHOW returns.
pub(super) fn columns(show: &Show) -> Vec<OutputColumn> {
    names(show).into_iter().map(|name| OutputColumn::new(name, SqlType::Varchar)).collect()
}

impl Session {
    pub(super) fn show(&self, show: &Show) -> Result<Reply> {
        let moment = self.moment()?;
        let rows = match show {
            Show::Variable(name) => vec![vec![Some(self.variable(name, &moment)?)]],
            Show::AllVariables => {
                let all = moment.settings.all().into_iter();
                all.map(|(name, value, about)| vec![Some(name), Some(value), Some(about.to_string())]).collect()
            }
            Show::Objects { kind, schema, like } => objects(&moment, *kind, schema.as_ref(), like.as_deref())?,
            Show::Indexes { table } => indexes(&moment, table)?,
            Show::Columns { relation, like } => {
                let object = moment.get(relation)?;
                column_rows(&object, like.as_deref())
            }
            Show::Describe { relation } => describe(&moment, relation)?,
            Show::Create { kind, name } => create(&moment, *kind, name)?,
            Show::Jobs => self.jobs(),
            Show::InternalTables => {
                system::internal::names(moment.catalog.objects()).into_iter().map(|name| vec![Some(name)]).collect()
            }
            Show::Cursors { subscriptions } => {
                let names = self.state().cursors.names(*subscriptions).into_iter();
                let subscription = |id| moment.catalog.get(id).map(|o| o.name.clone());
                names
                    .map(|(name, on)| match subscriptions {
                        true => vec![Some(name), on.and_then(subscription)],
                        false => vec![Some(name)],
                    })
                    .collect()
            }
            Show::Schemas => {
                let schemas = moment.catalog.schemas().map(str::to_string);
                let mut schemas: Vec<_> = schemas.chain(system::SCHEMAS.iter().map(|s| s.to_string())).collect();
                schemas.sort();
                schemas.into_iter().map(|s| vec![Some(s)]).collect()
            }
            Show::Databases => vec![vec![Some(DATABASE.to_string())]],
        };
        Reply::text(&names(show), rows, "SHOW")
    }

    fn variable(&self, name: &str, moment: &Moment<'_>) -> Result<String> {
        let in_block = match (name, &self.state().transaction) {
            ("transaction_isolation", super::Transaction::Active(block)) => block.isolation.clone(),
            ("transaction_read_only", super::Transaction::Active(block)) => {
                Some(if block.read_only { "on" } else { "off" }.to_string())
            }
            _ => None,
        };
        match (in_block, name) {
            (Some(value), _) => Ok(value),
            (None, "transaction_isolation") => moment.settings.get("default_transaction_isolation"),
            (None, name) => moment.settings.get(name),
        }
    }

    /// Jobs that are still being made.
    fn jobs(&self) -> Rows {
        let jobs = self.meta.jobs();
        let creating = jobs.iter().filter(|job| !job.state.created);
        creating
            .map(|job| {
                vec![
                    Some(job.object.id.to_string()),
                    Some(job.object.definition.clone()),
                    None,
                    Some(system::progress(job)),
                ]
            })
            .collect()
    }
}

fn objects(moment: &Moment<'_>, kind: ObjectKind, schema: Option<&Ident>, like: Option<&str>) -> Result<Rows> {
    let in_schema: Box<dyn Fn(&Object) -> bool> = match schema {
        Some(schema) => {
            if !moment.catalog.has_schema(&schema.value) && !system::is_system_schema(&schema.value) {
                let message = format!("schema \"{}\" does not exist", schema.value);
                return Err(schema.mark(SqlError::new(SqlState::INVALID_SCHEMA_NAME, message)));
            }
            Box::new(|o| o.schema == schema.value)
        }
        None => Box::new(|o| moment.search_path.contains(&o.schema)),
    };
    let mut found: Vec<&Arc<Object>> = moment.catalog.objects().filter(|o| o.kind == kind && in_schema(o)).collect();
    found.retain(|o| like.is_none_or(|pattern| is_like(&o.name, pattern)));
    found.sort_by(|a, b| a.name.cmp(&b.name));
    let row = |o: &Arc<Object>| {
        let mut row = vec![Some(o.name.clone())];
        if kind == ObjectKind::Sink {
            let into = o.into.and_then(|id| moment.catalog.get(id)).map(|table| format!("table {}", table.full_name()));
            row.push(o.options.get("connector").cloned().or(into));
        }
        row
    };
    Ok(found.into_iter().map(row).collect())
}

fn indexes(moment: &Moment<'_>, table: &Name) -> Result<Rows> {
    let object = moment.get(table)?;
    let mut rows = Rows::new();
    for index in moment.catalog.dependants(object.id) {
        if index.kind != ObjectKind::Index {
            continue;
        }
        let name = |i: &usize| index.columns.get(*i).map_or("", |c| c.name.as_str()).to_string();
        let key: Vec<String> = index.primary_key.iter().map(name).collect();
        let others = (0..index.columns.len()).filter(|i| !index.columns[*i].hidden && !index.primary_key.contains(i));
        let include: Vec<String> = others.map(|i| name(&i)).collect();
        let distribution = index.plan.as_ref().and_then(|p| p.relation.as_ref()).map(|t| t.distribution.clone());
        let distributed: Vec<String> = distribution.unwrap_or_default().iter().map(name).collect();
        let texts =
            [index.name.clone(), object.name.clone(), key.join(", "), include.join(", "), distributed.join(", ")];
        rows.push(texts.into_iter().map(Some).collect());
    }
    rows.sort();
    Ok(rows)
}

fn column_rows(object: &Object, like: Option<&str>) -> Rows {
    let columns = object.columns.iter().filter(|c| like.is_none_or(|pattern| is_like(&c.name, pattern)));
    columns
        .map(|c| vec![Some(c.name.clone()), Some(c.sql_type.to_string()), Some(c.hidden.to_string()), None])
        .collect()
}

fn describe(moment: &Moment<'_>, relation: &Name) -> Result<Rows> {
    let object = moment.get(relation)?;
    let mut rows = column_rows(&object, None);
    let names = |columns: &[usize]| {
        let names = columns.iter().filter_map(|i| object.columns.get(*i)).map(|c| c.name.as_str());
        names.collect::<Vec<_>>().join(", ")
    };
    let mut extra = |what: &str, value: String| rows.push(vec![Some(what.to_string()), Some(value), None, None]);
    if let Some(table) = object.plan.as_ref().and_then(|p| p.relation.as_ref()) {
        extra("primary key", names(&table.key_indices()));
        extra("distribution key", names(&table.distribution));
    }
    for index in indexes(moment, relation)? {
        if let [Some(name), _, Some(key), ..] = index.as_slice() {
            extra(name, format!("index({key})"));
        }
    }
    extra("table description", object.name.clone());
    Ok(rows)
}

fn create(moment: &Moment<'_>, kind: ObjectKind, name: &Name) -> Result<Rows> {
    let object = moment.get(name)?;
    if object.kind != kind {
        let message = format!("\"{}\" is not {}", object.name, with_article(kind));
        return Err(name.mark(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message)));
    }
    Ok(vec![vec![Some(object.full_name()), Some(object.definition.clone())]])
}

/// "a table", "an index".
pub(super) fn with_article(kind: ObjectKind) -> String {
    let article = if kind == ObjectKind::Index { "an" } else { "a" };
    format!("{article} {}", kind.sql())
}

/// SQL's LIKE, for names.
fn is_like(text: &str, pattern: &str) -> bool {
    let (text, pattern): (Vec<char>, Vec<char>) = (text.chars().collect(), pattern.chars().collect());
    // matches[j]: the pattern up to here matches the first j characters.
    let mut matches = vec![false; text.len() + 1];
    matches[0] = true;
    let mut p = 0;
    while p < pattern.len() {
        let mut next = vec![false; text.len() + 1];
        let (wanted, any) = match pattern[p] {
            '\\' if p + 1 < pattern.len() => {
                p += 1;
                (Some(pattern[p]), false)
            }
            '%' => (None, true),
            '_' => (None, false),
            c => (Some(c), false),
        };
        for j in 0..=text.len() {
            next[j] = if any {
                matches[j] || j > 0 && next[j - 1]
            } else {
                j > 0 && matches[j - 1] && wanted.is_none_or(|c| c == text[j - 1])
            };
        }
        matches = next;
        p += 1;
    }
    matches[text.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn like_matches_whole_names() {
        for (text, pattern, expected) in [
            ("orders", "ord%", true),
            ("orders", "%ers", true),
            ("orders", "o_ders", true),
            ("orders", "order", false),
            ("a_b", "a\\_b", true),
            ("axb", "a\\_b", false),
            ("", "%", true),
        ] {
            assert_eq!(is_like(text, pattern), expected, "{text} {pattern}");
        }
    }
}
