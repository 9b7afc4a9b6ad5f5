//! SHOW, DESCRIBE and EXPLAIN.

use datafusion::sql::sqlparser::tokenizer::Token;
use weir_common::catalog::ObjectKind;

use super::parse::Reader;
use super::{Body, Explain, Show};
use crate::error::{Result, SqlError};

impl Reader<'_> {
    pub(super) fn show(&mut self) -> Result<Body> {
        if self.word("describe") || self.word("desc") {
            return Ok(Body::Show(Show::Describe { relation: self.name()? }));
        }
        self.expect_word("show")?;
        let show = if self.word("all") {
            Show::AllVariables
        } else if let Some(kind) = self.plural() {
            self.show_objects(kind)?
        } else if self.words(&["columns", "from"]) {
            Show::Columns { relation: self.name()?, like: self.like()? }
        } else if self.word("create") {
            let kind = self.singular()?;
            Show::Create { kind, name: self.name()? }
        } else if self.word("jobs") {
            Show::Jobs
        } else if self.words(&["internal", "tables"]) {
            Show::InternalTables
        } else if self.words(&["subscription", "cursors"]) {
            Show::Cursors { subscriptions: true }
        } else if self.word("cursors") {
            Show::Cursors { subscriptions: false }
        } else if self.word("schemas") {
            Show::Schemas
        } else if self.word("databases") {
            Show::Databases
        } else if let Some(what) =
            ["functions", "secrets", "connections", "cluster", "processlist"].iter().find(|w| self.peek_word(w))
        {
            return Err(self.mark(SqlError::unsupported(format!("SHOW {}", what.to_uppercase()))));
        } else {
            Show::Variable(self.variable()?)
        };
        Ok(Body::Show(show))
    }

    fn show_objects(&mut self, kind: ObjectKind) -> Result<Show> {
        if !self.word("from") && !self.word("in") {
            return Ok(Show::Objects { kind, schema: None, like: self.like()? });
        }
        if kind == ObjectKind::Index {
            return Ok(Show::Indexes { table: self.name()? });
        }
        let schema = self.name()?.name;
        Ok(Show::Objects { kind, schema: Some(schema), like: self.like()? })
    }

    fn like(&mut self) -> Result<Option<String>> {
        if self.word("like") { self.scalar().map(Some) } else { Ok(None) }
    }

    fn plural(&mut self) -> Option<ObjectKind> {
        if self.words(&["materialized", "views"]) {
            return Some(ObjectKind::MaterializedView);
        }
        let kinds = [
            ("tables", ObjectKind::Table),
            ("sources", ObjectKind::Source),
            ("views", ObjectKind::View),
            ("indexes", ObjectKind::Index),
            ("sinks", ObjectKind::Sink),
            ("subscriptions", ObjectKind::Subscription),
            ("secrets", ObjectKind::Secret),
        ];
        kinds.into_iter().find(|(word, _)| self.word(word)).map(|(_, kind)| kind)
    }

    fn singular(&mut self) -> Result<ObjectKind> {
        if self.words(&["materialized", "view"]) {
            return Ok(ObjectKind::MaterializedView);
        }
        let kinds = [
            ("table", ObjectKind::Table),
            ("source", ObjectKind::Source),
            ("view", ObjectKind::View),
            ("index", ObjectKind::Index),
            ("sink", ObjectKind::Sink),
            ("subscription", ObjectKind::Subscription),
        ];
        match kinds.into_iter().find(|(word, _)| self.word(word)) {
            Some((_, kind)) => Ok(kind),
            None => Err(self.unexpected()),
        }
    }

    pub(super) fn explain(&mut self) -> Result<Body> {
        self.expect_word("explain")?;
        let (mut analyze, mut verbose) = (false, false);
        if self.parser.peek_token_ref().token == Token::LParen && !self.peek_nth_word(1, "select") {
            for (option, on) in self.parenthesized(|r| r.explain_option())? {
                match option.as_str() {
                    "analyze" => analyze = on,
                    "verbose" => verbose = on,
                    _ => {}
                }
            }
        } else {
            analyze = self.word("analyze");
            verbose = self.word("verbose");
        }
        let statement = self.statement()?;
        Ok(Body::Explain(Box::new(Explain { analyze, verbose, statement })))
    }

    /// `name [value]`.
    fn explain_option(&mut self) -> Result<(String, bool)> {
        let at = self.mark(SqlError::unsupported("an EXPLAIN format other than text"));
        let name = self.scalar()?;
        let more = !matches!(self.parser.peek_token_ref().token, Token::Comma | Token::RParen);
        let value = if more { Some(self.scalar()?) } else { None };
        if name == "format" && value.as_deref().is_some_and(|v| !v.eq_ignore_ascii_case("text")) {
            return Err(at);
        }
        let off = value.is_some_and(|v| matches!(v.to_lowercase().as_str(), "off" | "false" | "0"));
        Ok((name, !off))
    }
}
