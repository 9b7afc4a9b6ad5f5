//! CREATE and DROP.

use datafusion::sql::sqlparser::ast::{self, ColumnOption, DataType};
use datafusion::sql::sqlparser::tokenizer::Token;
use weir_common::catalog::ObjectKind;

use super::parse::Reader;
use super::{
    Body, Column, CreateIndex, CreateSecret, CreateSink, CreateSubscription, CreateTable, CreateView, Drop, Ident,
    Name, OnConflict, SinkInput,
};
use crate::error::{Result, SqlError, SqlState};

impl Reader<'_> {
    pub(super) fn create(&mut self) -> Result<Body> {
        if ["user", "role", "database", "function", "aggregate", "connection", "type", "domain"]
            .iter()
            .chain(&[
                "sequence",
                "trigger",
                "extension",
                "procedure",
                "policy",
                "publication",
                "operator",
                "cast",
                "rule",
            ])
            .any(|word| self.peek_nth_word(1, word))
        {
            return Ok(self.unsupported(2));
        }
        self.expect_word("create")?;
        let or_replace = self.words(&["or", "replace"]);
        let temporary = self.word("temp") || self.word("temporary");
        if temporary && !self.peek_word("view") && !self.peek_word("table") {
            return Err(self.unexpected());
        }
        if temporary {
            return Err(SqlError::unsupported("a temporary relation"));
        }
        let replaceable = self.peek_word("view") || self.peek_word("materialized");
        if or_replace && !replaceable {
            return Err(SqlError::unsupported("OR REPLACE"));
        }
        if self.words(&["materialized", "view"]) {
            self.view(true, or_replace)
        } else if self.word("view") {
            self.view(false, or_replace)
        } else if self.word("table") {
            self.table().map(|t| Body::CreateTable(Box::new(t)))
        } else if self.word("source") {
            self.table().map(|t| Body::CreateSource(Box::new(t)))
        } else if self.word("sink") {
            self.sink()
        } else if self.word("subscription") {
            let if_not_exists = self.if_not_exists();
            let name = self.name()?;
            self.expect_word("from")?;
            let from = self.name()?;
            let options = self.options()?;
            Ok(Body::CreateSubscription(CreateSubscription { if_not_exists, name, from, options }))
        } else if self.word("secret") {
            let if_not_exists = self.if_not_exists();
            let name = self.name()?;
            let options = self.options()?;
            self.expect_word("as")?;
            let value = self.scalar()?;
            Ok(Body::CreateSecret(CreateSecret { if_not_exists, name, options, value }))
        } else if self.word("index") {
            self.index()
        } else if self.words(&["unique", "index"]) {
            Err(SqlError::unsupported("a unique index"))
        } else if self.word("schema") {
            let if_not_exists = self.if_not_exists();
            let name = self.schema_name()?;
            if self.word("authorization") {
                self.ident()?;
            }
            Ok(Body::CreateSchema { name, if_not_exists })
        } else {
            Err(self.unexpected())
        }
    }

    /// `[database.]schema`.
    fn schema_name(&mut self) -> Result<Ident> {
        Ok(self.name()?.name)
    }

    fn view(&mut self, materialized: bool, or_replace: bool) -> Result<Body> {
        let if_not_exists = self.if_not_exists();
        let name = self.name()?;
        let columns = match self.parser.peek_token_ref().token {
            Token::LParen => self.parenthesized(|r| r.ident())?,
            _ => vec![],
        };
        let options = self.options()?;
        self.expect_word("as")?;
        let query = self.query()?;
        if self.words(&["with", "no", "data"]) {
            return Err(SqlError::unsupported("WITH NO DATA"));
        }
        self.words(&["with", "data"]);
        let view = CreateView { materialized, or_replace, if_not_exists, name, columns, options, query };
        Ok(Body::CreateView(Box::new(view)))
    }

    fn table(&mut self) -> Result<CreateTable> {
        let if_not_exists = self.if_not_exists();
        let mut table = CreateTable {
            name: self.name()?,
            if_not_exists,
            columns: vec![],
            primary_key: vec![],
            append_only: false,
            conflict: None,
            options: Default::default(),
            format: None,
            query: None,
            refused: None,
        };
        if self.parser.peek_token_ref().token == Token::LParen {
            if self.parser.peek_nth_token_ref(1).token == Token::RParen {
                self.expect_token(&Token::LParen)?;
                self.expect_token(&Token::RParen)?;
            } else if matches!(self.parser.peek_nth_token_ref(2).token, Token::Comma | Token::RParen) {
                return self.table_with_names(table);
            } else {
                self.parenthesized(|r| r.table_element(&mut table))?;
            }
        }
        self.table_clauses(&mut table)?;
        Ok(table)
    }

    /// The rest of `CREATE TABLE t (name, …) AS query`.
    fn table_with_names(&mut self, mut table: CreateTable) -> Result<CreateTable> {
        let unexpected = self.unexpected_nth(2);
        let names = self.parenthesized(|r| r.ident())?;
        let column =
            |name| Column { name, data_type: DataType::Unspecified, not_null: false, default: None, generated: None };
        table.columns = names.into_iter().map(column).collect();
        self.table_clauses(&mut table)?;
        if table.query.is_some() { Ok(table) } else { Err(unexpected) }
    }

    /// What follows the columns, in any order.
    fn table_clauses(&mut self, table: &mut CreateTable) -> Result<()> {
        loop {
            if self.words(&["append", "only"]) {
                table.append_only = true;
            } else if self.words(&["on", "conflict"]) {
                self.on_conflict(table)?;
            } else if self.peek_word("with") && self.parser.peek_nth_token_ref(1).token == Token::LParen {
                table.options.extend(self.options()?);
            } else if self.peek_word("format") {
                let mut options = Default::default();
                table.format = self.format(&mut options)?;
                table.options.extend(options);
            } else if table.columns.iter().all(|c| c.data_type == DataType::Unspecified) && self.word("as") {
                table.query = Some(self.query()?);
                if self.words(&["with", "no", "data"]) {
                    table.refuse(SqlError::unsupported("WITH NO DATA"));
                }
                self.words(&["with", "data"]);
                return Ok(());
            } else if self.words(&["with", "version", "column"]) {
                let refusal = self.mark(SqlError::unsupported("WITH VERSION COLUMN"));
                self.parenthesized(|r| r.ident())?;
                table.refuse(refusal);
            } else if self.peek_word("include") || self.peek_word("engine") || self.peek_word("from") {
                let error = SqlError::unsupported("this clause of CREATE TABLE and CREATE SOURCE");
                return Err(self.mark(error));
            } else {
                return Ok(());
            }
        }
    }

    /// After `ON CONFLICT`.
    fn on_conflict(&mut self, table: &mut CreateTable) -> Result<()> {
        if self.parser.peek_token_ref().token == Token::LParen {
            self.parenthesized(|r| r.ident())?;
        }
        let at = self.mark(SqlError::unsupported("ON CONFLICT DO UPDATE IF NOT NULL"));
        table.conflict = Some(if self.word("overwrite") || self.words(&["do", "update", "full"]) {
            OnConflict::Overwrite
        } else if self.word("ignore") || self.words(&["do", "nothing"]) {
            OnConflict::DoNothing
        } else if self.words(&["do", "update", "if", "not", "null"]) {
            table.refuse(at);
            OnConflict::Overwrite
        } else {
            return Err(self.unexpected());
        });
        Ok(())
    }

    /// A column or a constraint.
    fn table_element(&mut self, table: &mut CreateTable) -> Result<()> {
        if self.word("constraint") {
            self.ident()?;
        }
        if self.words(&["primary", "key"]) {
            if !table.primary_key.is_empty() {
                return Err(several_keys(&table.name));
            }
            table.primary_key = self.parenthesized(|r| r.ident())?;
        } else if self.peek_word("watermark") && self.peek_nth_word(1, "for") {
            table.refuse(self.mark(SqlError::unsupported("WATERMARK FOR")));
            self.words(&["watermark", "for"]);
            self.ident()?;
            self.expect_word("as")?;
            self.run(|p| p.parse_expr())?;
            self.words(&["with", "ttl"]);
        } else if self.word("unique") {
            table.refuse(self.mark(SqlError::unsupported("a UNIQUE constraint")));
            self.parenthesized(|r| r.ident())?;
        } else if self.peek_word("foreign") && self.peek_nth_word(1, "key") {
            return Err(self.mark(SqlError::unsupported("a FOREIGN KEY constraint")));
        } else if self.peek_word("check") && self.parser.peek_nth_token_ref(1).token == Token::LParen {
            return Err(self.mark(SqlError::unsupported("a CHECK constraint")));
        } else if self.parser.peek_token_ref().token == Token::Mul {
            return Err(self.mark(SqlError::unsupported("taking the columns from the source's schema")));
        } else {
            self.column(table)?;
        }
        Ok(())
    }

    fn column(&mut self, table: &mut CreateTable) -> Result<()> {
        let name = self.ident()?;
        let data_type = self.run(|p| p.parse_data_type())?;
        let mut column = Column { name, data_type, not_null: false, default: None, generated: None };
        if self.word("collate") {
            self.name()?;
        }
        loop {
            if self.words(&["not", "null"]) {
                column.not_null = true;
            } else if self.word("null") {
            } else if self.words(&["primary", "key"]) {
                if !table.primary_key.is_empty() {
                    return Err(several_keys(&table.name));
                }
                table.primary_key = vec![column.name.clone()];
            } else if self.peek_word("default") {
                // Read by sqlparser, which knows that NOT NULL after it is no operator.
                match self.run(|p| p.parse_optional_column_option())? {
                    Some(ColumnOption::Default(expr)) => column.default = Some(expr),
                    _ => return Err(self.unexpected()),
                }
            } else if self.word("as") {
                column.generated = Some(self.run(|p| p.parse_expr())?);
            } else if self.words(&["generated", "always", "as"]) {
                self.expect_token(&Token::LParen)?;
                column.generated = Some(self.run(|p| p.parse_expr())?);
                self.expect_token(&Token::RParen)?;
                self.word("stored");
            } else if self.peek_word("unique")
                || self.peek_word("references")
                || self.peek_word("check")
                || self.peek_word("generated")
            {
                let token = self.parser.peek_token_ref().token.to_string().to_uppercase();
                return Err(self.mark(SqlError::unsupported(format!("{token} on a column"))));
            } else {
                break;
            }
        }
        table.columns.push(column);
        Ok(())
    }

    fn sink(&mut self) -> Result<Body> {
        let if_not_exists = self.if_not_exists();
        let name = self.name()?;
        let into = if self.word("into") { Some(self.name()?) } else { None };
        let has_columns = into.is_some() && self.parser.peek_token_ref().token == Token::LParen;
        let columns = if has_columns { self.parenthesized(|r| r.ident())? } else { vec![] };
        let from = if self.word("from") {
            SinkInput::Relation(self.name()?)
        } else {
            self.expect_word("as")?;
            SinkInput::Query(self.query_before_options()?)
        };
        let mut options = self.options()?;
        let format = self.format(&mut options)?;
        Ok(Body::CreateSink(Box::new(CreateSink { if_not_exists, name, from, options, format, into, columns })))
    }

    fn index(&mut self) -> Result<Body> {
        if self.word("concurrently") {
            // Indexes are always built while writes go on.
        }
        let if_not_exists = self.if_not_exists();
        let name = if self.peek_word("on") { None } else { Some(self.name()?) };
        self.expect_word("on")?;
        let table = self.name()?;
        if self.word("using") {
            self.ident()?;
        }
        let columns = self.parenthesized(|r| r.run(|p| p.parse_order_by_expr()))?;
        let include = if self.word("include") { Some(self.parenthesized(|r| r.ident())?) } else { None };
        if self.words(&["distributed", "by"]) {
            self.parenthesized(|r| r.run(|p| p.parse_expr()))?;
        }
        let options = self.options()?;
        if self.peek_word("where") {
            return Err(self.mark(SqlError::unsupported("an index with WHERE")));
        }
        Ok(Body::CreateIndex(Box::new(CreateIndex { if_not_exists, name, table, columns, include, options })))
    }

    pub(super) fn drop(&mut self) -> Result<Body> {
        self.expect_word("drop")?;
        let kind = if self.words(&["materialized", "view"]) {
            ObjectKind::MaterializedView
        } else if self.word("view") {
            ObjectKind::View
        } else if self.word("table") {
            ObjectKind::Table
        } else if self.word("source") {
            ObjectKind::Source
        } else if self.word("sink") {
            ObjectKind::Sink
        } else if self.word("subscription") {
            ObjectKind::Subscription
        } else if self.word("secret") {
            ObjectKind::Secret
        } else if self.word("index") {
            ObjectKind::Index
        } else if self.word("schema") {
            let if_exists = self.if_exists();
            let mut names = vec![self.schema_name()?];
            while self.token(&Token::Comma) {
                names.push(self.schema_name()?);
            }
            return Ok(Body::DropSchema { names, if_exists, cascade: self.cascade() });
        } else {
            let Body::Unsupported(what) = self.unsupported(1) else { return Err(self.unexpected()) };
            return Ok(Body::Unsupported(format!("DROP {what}")));
        };
        let if_exists = self.if_exists();
        let mut names = vec![self.name()?];
        while self.token(&Token::Comma) {
            names.push(self.name()?);
        }
        Ok(Body::Drop(Drop { kind, names, if_exists, cascade: self.cascade() }))
    }

    fn cascade(&mut self) -> bool {
        let cascade = self.word("cascade");
        cascade || {
            self.word("restrict");
            false
        }
    }
}

impl CreateTable {
    /// Remembers the first refusal; the rest of the statement is still read, so that syntax errors come first.
    fn refuse(&mut self, error: SqlError) {
        self.refused.get_or_insert(error);
    }
}

fn several_keys(table: &Name) -> SqlError {
    SqlError::new(
        SqlState("42P16"),
        format!("multiple primary keys for table \"{}\" are not allowed", table.name.value),
    )
}

/// The columns of a statement's name list as sqlparser's identifiers.
impl From<&Ident> for ast::Ident {
    fn from(ident: &Ident) -> ast::Ident {
        ast::Ident::with_quote('"', &ident.value)
    }
}
