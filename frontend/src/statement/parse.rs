//! The frame of parsing: statements of a string, which of them is whose, and reading what they have in common.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::sql::sqlparser::ast;
use datafusion::sql::sqlparser::dialect::Dialect;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::{Location, Token, TokenWithSpan, Tokenizer};

use super::dialect::WeirDialect;
use super::normalize::normalize;
use super::{Body, Ident, Name, SECRET_MARK, Statement, depth, parser_error};
use crate::error::{Result, SqlError};

/// How deep expressions and queries may nest. Far below what the stack of a worker thread bears.
const DEPTH_MAX: usize = 100;

/// The dialect of everything.
pub fn dialect() -> &'static dyn Dialect {
    &WeirDialect
}

/// Parses a query that is stored as text, as statements are parsed and as deep.
pub fn parse_query(text: &str) -> Result<Box<ast::Query>, ParserError> {
    let mut query = stored(text)?.parse_query()?;
    normalize(&mut query);
    Ok(query)
}

/// Parses an expression that is stored as text.
pub fn parse_expr(text: &str) -> Result<ast::Expr, ParserError> {
    let mut expr = stored(text)?.parse_expr()?;
    normalize(&mut expr);
    Ok(expr)
}

fn stored(text: &str) -> Result<Parser<'static>, ParserError> {
    Ok(Parser::new(dialect()).with_recursion_limit(DEPTH_MAX).with_tokens_with_locations(tokens(text)?))
}

fn tokens(text: &str) -> Result<Vec<TokenWithSpan>, ParserError> {
    let mut tokens = Tokenizer::new(dialect(), text).tokenize_with_location()?;
    for token in &mut tokens {
        // Names like any other, but sqlparser takes them for SELECT TOP and versions of relations.
        if let Token::Word(word) = &mut token.token
            && matches!(word.keyword, Keyword::TOP | Keyword::BEFORE | Keyword::CHANGES)
        {
            word.keyword = Keyword::NoKeyword;
        }
    }
    Ok(tokens)
}

/// Parses all statements of a string.
pub(super) fn statements(sql: &str) -> Result<Vec<Statement>> {
    let tokens = tokens(sql).map_err(|e| parser_error(&e))?;
    depth::check(&tokens)?;
    let source: Arc<str> = sql.into();
    let mut reader = Reader::new(sql, tokens, source);
    let mut statements = Vec::new();
    loop {
        while reader.parser.consume_token(&Token::SemiColon) {}
        if reader.at_end() {
            return Ok(statements);
        }
        statements.push(reader.statement()?);
        if !reader.at_end() && reader.parser.peek_token_ref().token != Token::SemiColon {
            return Err(reader.unexpected());
        }
    }
}

/// Reads statements from tokens.
pub(super) struct Reader<'a> {
    pub parser: Parser<'static>,
    sql: &'a str,
    source: Arc<str>,
    /// Where each line starts in `sql`.
    lines: Vec<usize>,
}

impl<'a> Reader<'a> {
    fn new(sql: &'a str, tokens: Vec<TokenWithSpan>, source: Arc<str>) -> Reader<'a> {
        let lines = std::iter::once(0).chain(sql.match_indices('\n').map(|(i, _)| i + 1)).collect();
        let parser = Parser::new(dialect()).with_recursion_limit(DEPTH_MAX).with_tokens_with_locations(tokens);
        Reader { parser, sql, source, lines }
    }

    /// One statement, up to its semicolon.
    pub fn statement(&mut self) -> Result<Statement> {
        let start = self.offset(self.parser.peek_token_ref().span.start);
        let body = self.body()?;
        let end = match &self.parser.peek_token_ref().token {
            Token::EOF => self.sql.len(),
            _ => self.offset(self.parser.peek_token_ref().span.start),
        };
        let text = self.sql.get(start..end).unwrap_or_default().trim_end().to_string();
        Ok(Statement { body, text, source: self.source.clone() })
    }

    fn body(&mut self) -> Result<Body> {
        let first = self.parser.peek_token_ref();
        let keyword = match &first.token {
            Token::Word(word) => word.value.to_lowercase(),
            Token::LParen => return self.query().map(Body::Query),
            _ => return Err(self.unexpected()),
        };
        match keyword.as_str() {
            "select" | "values" | "table" => self.query().map(Body::Query),
            "with" => self.with(),
            "insert" | "update" | "delete" => self.dml(),
            "create" => self.create(),
            "drop" => self.drop(),
            "set" | "reset" => self.set(),
            "show" | "describe" | "desc" => self.show(),
            "explain" => self.explain(),
            "begin" | "start" | "commit" | "end" | "rollback" | "abort" => self.transaction(),
            "savepoint" | "release" => Ok(self.unsupported(1)),
            "flush" => self.single_word(Body::Flush),
            "wait" => self.single_word(Body::Wait),
            "cancel" => self.cancel_jobs(),
            "discard" | "deallocate" | "close" | "unlisten" => self.reset(),
            "alter" => self.alter(),
            "declare" => self.declare(),
            "fetch" | "move" => self.fetch(),
            "comment" | "refresh" | "lock" => Ok(self.unsupported(2)),
            "copy" => self.copy(),
            "truncate" | "grant" | "revoke" | "analyze" | "vacuum" | "prepare" | "execute" | "listen" | "notify"
            | "merge" | "call" | "do" | "cluster" | "reindex" | "checkpoint" | "load" | "security" | "import"
            | "reassign" | "use" | "kill" | "recover" => Ok(self.unsupported(1)),
            _ => Err(self.unexpected()),
        }
    }

    fn single_word(&mut self, body: Body) -> Result<Body> {
        self.parser.next_token();
        Ok(body)
    }

    /// A query.
    pub fn query(&mut self) -> Result<Box<ast::Query>> {
        let mut query = self.run(|p| p.parse_query())?;
        normalize(&mut query);
        // After a table or column it is read as an alias.
        let after_alias = ["on", "window", "close"].iter().enumerate().all(|(n, word)| self.peek_nth_word(n, word));
        if self.peek_word("emit") || after_alias {
            let error = SqlError::unsupported("EMIT ON WINDOW CLOSE");
            return Err(self.mark(error));
        }
        Ok(query)
    }

    /// A query that `WITH (options)` may follow, which sqlparser would take for hints about the last table.
    pub fn query_before_options(&mut self) -> Result<Box<ast::Query>> {
        let (mut length, mut depth) = (0, 0usize);
        loop {
            match &self.parser.peek_nth_token_ref(length).token {
                Token::EOF | Token::SemiColon => break,
                Token::LParen => depth += 1,
                Token::RParen => depth = depth.saturating_sub(1),
                _ if depth > 0 || !self.peek_nth_word(length, "with") => {}
                _ if self.parser.peek_nth_token_ref(length + 1).token == Token::LParen => break,
                _ => {}
            }
            length += 1;
        }
        let tokens = (0..length).map(|_| self.parser.next_token()).collect();
        let mut reader = Reader::new(self.sql, tokens, self.source.clone());
        let query = reader.query()?;
        if reader.at_end() { Ok(query) } else { Err(reader.unexpected()) }
    }

    /// `WITH …` before a query or before DML.
    fn with(&mut self) -> Result<Body> {
        let query = self.query()?;
        let statement = match *query.body {
            ast::SetExpr::Insert(statement)
            | ast::SetExpr::Update(statement)
            | ast::SetExpr::Delete(statement)
            | ast::SetExpr::Merge(statement) => statement,
            _ => return Ok(Body::Query(query)),
        };
        match (query.with, statement) {
            (Some(with), ast::Statement::Insert(mut insert))
                if insert.source.as_ref().is_some_and(|s| s.with.is_none()) =>
            {
                if let Some(source) = insert.source.as_mut() {
                    source.with = Some(with);
                }
                Ok(Body::Insert(Box::new(insert)))
            }
            _ => Err(SqlError::unsupported("WITH before UPDATE, DELETE or MERGE")),
        }
    }

    fn dml(&mut self) -> Result<Body> {
        let mut statement = self.run(|p| p.parse_statement())?;
        normalize(&mut statement);
        match statement {
            ast::Statement::Insert(insert) => Ok(Body::Insert(Box::new(insert))),
            ast::Statement::Update(update) => Ok(Body::Update(Box::new(update))),
            ast::Statement::Delete(delete) => Ok(Body::Delete(Box::new(delete))),
            other => Err(SqlError::unsupported(other.to_string())),
        }
    }

    /// A statement that is not there, named by its first words. Its tokens are skipped unread.
    pub fn unsupported(&mut self, words: usize) -> Body {
        let mut name = Vec::new();
        while !self.at_end() && self.parser.peek_token_ref().token != Token::SemiColon {
            if let Token::Word(word) = self.parser.next_token().token
                && name.len() < words
            {
                name.push(word.value.to_uppercase());
            }
        }
        Body::Unsupported(name.join(" "))
    }

    /// Runs sqlparser's own parser.
    pub fn run<T>(&mut self, f: impl FnOnce(&mut Parser<'static>) -> Result<T, ParserError>) -> Result<T> {
        f(&mut self.parser).map_err(|e| {
            let error = parser_error(&e);
            match error.line_column {
                Some(_) => error,
                None if self.at_end() => SqlError { position: self.unexpected().position, ..error },
                None => self.mark(error),
            }
        })
    }

    /// Whether no token is left.
    pub fn at_end(&self) -> bool {
        self.parser.peek_token_ref().token == Token::EOF
    }

    /// The syntax error at the next token.
    pub fn unexpected(&self) -> SqlError {
        match &self.parser.peek_token_ref().token {
            Token::EOF => {
                let end = self.sql.trim_end().chars().count();
                SqlError { position: Some(end + 1), ..SqlError::syntax("syntax error at end of input") }
            }
            token => self.mark(SqlError::syntax(format!("syntax error at or near \"{token}\""))),
        }
    }

    /// The syntax error at the token after `n` others.
    pub fn unexpected_nth(&self, n: usize) -> SqlError {
        let token = self.parser.peek_nth_token_ref(n);
        let start = token.span.start;
        SqlError::syntax(format!("syntax error at or near \"{}\"", token.token)).at(start.line, start.column)
    }

    /// The error, at the next token.
    pub fn mark(&self, error: SqlError) -> SqlError {
        let start = self.parser.peek_token_ref().span.start;
        error.at(start.line, start.column)
    }

    /// Whether the next token is this unquoted word, in lower case.
    pub fn peek_word(&self, word: &str) -> bool {
        self.peek_nth_word(0, word)
    }

    /// Whether the token after `n` others is this word.
    pub fn peek_nth_word(&self, n: usize, word: &str) -> bool {
        match &self.parser.peek_nth_token_ref(n).token {
            Token::Word(w) => w.quote_style.is_none() && w.value.eq_ignore_ascii_case(word),
            _ => false,
        }
    }

    /// Takes this word if it is next.
    pub fn word(&mut self, word: &str) -> bool {
        let found = self.peek_word(word);
        if found {
            self.parser.next_token();
        }
        found
    }

    /// Takes all these words if they are next.
    pub fn words(&mut self, words: &[&str]) -> bool {
        let found = words.iter().enumerate().all(|(n, word)| self.peek_nth_word(n, word));
        if found {
            words.iter().for_each(|_| drop(self.parser.next_token()));
        }
        found
    }

    /// Takes this word or fails.
    pub fn expect_word(&mut self, word: &str) -> Result<()> {
        if self.word(word) { Ok(()) } else { Err(self.unexpected()) }
    }

    /// Takes this token if it is next.
    pub fn token(&mut self, token: &Token) -> bool {
        self.parser.consume_token(token)
    }

    /// Takes this token or fails.
    pub fn expect_token(&mut self, token: &Token) -> Result<()> {
        if self.token(token) { Ok(()) } else { Err(self.unexpected()) }
    }

    /// An identifier.
    pub fn ident(&mut self) -> Result<Ident> {
        match &self.parser.peek_token_ref().token {
            Token::Word(word) if word.quote_style.is_some() || !is_reserved(word.keyword) => {}
            _ => return Err(self.unexpected()),
        }
        let ident = self.run(|p| p.parse_identifier())?;
        Ok(Ident::from(&ident))
    }

    /// `[[database.]schema.]name`.
    pub fn name(&mut self) -> Result<Name> {
        match &self.parser.peek_token_ref().token {
            Token::Word(word) if word.quote_style.is_some() || !is_reserved(word.keyword) => {}
            _ => return Err(self.unexpected()),
        }
        let name = self.run(|p| p.parse_object_name(false))?;
        Name::from_ast(&name)
    }

    /// `(item, …)`.
    pub fn parenthesized<T>(&mut self, mut item: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        self.expect_token(&Token::LParen)?;
        let mut items = Vec::new();
        loop {
            items.push(item(self)?);
            if !self.token(&Token::Comma) {
                break;
            }
        }
        self.expect_token(&Token::RParen)?;
        Ok(items)
    }

    /// `IF NOT EXISTS`.
    pub fn if_not_exists(&mut self) -> bool {
        self.words(&["if", "not", "exists"])
    }

    /// `IF EXISTS`.
    pub fn if_exists(&mut self) -> bool {
        self.words(&["if", "exists"])
    }

    /// `WITH (key = value, …)`, if it is next.
    pub fn options(&mut self) -> Result<BTreeMap<String, String>> {
        if self.peek_word("with") && self.parser.peek_nth_token_ref(1).token == Token::LParen {
            self.parser.next_token();
            return self.option_list();
        }
        Ok(BTreeMap::new())
    }

    /// `(key = value, …)`.
    pub fn option_list(&mut self) -> Result<BTreeMap<String, String>> {
        if self.parser.peek_nth_token_ref(1).token == Token::RParen {
            self.expect_token(&Token::LParen)?;
            self.expect_token(&Token::RParen)?;
            return Ok(BTreeMap::new());
        }
        let mut options = BTreeMap::new();
        for (key, value) in self.parenthesized(|reader| reader.option())? {
            if options.insert(key.clone(), value).is_some() {
                return Err(SqlError::syntax(format!("option \"{key}\" is given more than once")));
            }
        }
        Ok(options)
    }

    /// `a.b-c = value`.
    fn option(&mut self) -> Result<(String, String)> {
        let mut key = String::new();
        while !self.token(&Token::Eq) {
            match &self.parser.peek_token_ref().token {
                Token::Word(word) if word.quote_style.is_some() => key.push_str(&word.value),
                Token::Word(word) => key.push_str(&word.value.to_lowercase()),
                Token::Period => key.push('.'),
                Token::Minus => key.push('-'),
                Token::Number(number, _) => key.push_str(number),
                Token::SingleQuotedString(text) => key.push_str(text),
                _ => return Err(self.unexpected()),
            }
            self.parser.next_token();
        }
        if key.is_empty() {
            return Err(self.unexpected());
        }
        if key == "backfill_order" && self.word("fixed") {
            let order = self.parenthesized(|reader| {
                let (before, _, after) = (reader.name()?, reader.expect_token(&Token::Arrow)?, reader.name()?);
                Ok(format!("{before} -> {after}"))
            })?;
            return Ok((key, order.join(", ")));
        }
        if self.peek_word("secret") && matches!(self.parser.peek_nth_token_ref(1).token, Token::Word(_)) {
            self.parser.next_token();
            return Ok((key, format!("{SECRET_MARK}{}", self.name()?)));
        }
        Ok((key, self.scalar()?))
    }

    /// A string, number or word, as text.
    pub fn scalar(&mut self) -> Result<String> {
        let negative = self.token(&Token::Minus);
        if !negative {
            self.token(&Token::Plus);
        }
        let sign = if negative { "-" } else { "" };
        let value = match &self.parser.peek_token_ref().token {
            Token::Number(number, _) => format!("{sign}{number}"),
            _ if negative => return Err(self.unexpected()),
            Token::SingleQuotedString(text) | Token::EscapedStringLiteral(text) => text.clone(),
            Token::DollarQuotedString(text) => text.value.clone(),
            Token::Word(word) if word.quote_style.is_some() => word.value.clone(),
            Token::Word(word) => word.value.to_lowercase(),
            _ => return Err(self.unexpected()),
        };
        self.parser.next_token();
        Ok(value)
    }

    /// `FORMAT x ENCODE y [(options)]`, if it is next; its options join the others.
    pub fn format(&mut self, options: &mut BTreeMap<String, String>) -> Result<Option<(String, String)>> {
        if !self.word("format") {
            return Ok(None);
        }
        let format = self.ident()?.value.to_uppercase();
        self.expect_word("encode")?;
        let encode = self.ident()?.value.to_uppercase();
        if self.parser.peek_token_ref().token == Token::LParen {
            options.extend(self.option_list()?);
        }
        Ok(Some((format, encode)))
    }

    /// The byte of a line and column.
    fn offset(&self, location: Location) -> usize {
        let line = self.lines.get((location.line as usize).saturating_sub(1)).copied().unwrap_or(0);
        let column = (location.column as usize).saturating_sub(1);
        let rest = self.sql.get(line..).unwrap_or_default();
        rest.char_indices().nth(column).map_or(self.sql.len(), |(i, _)| line + i)
    }
}

/// Keywords that can't be a name without quotes, of those that would be mistaken for one here.
fn is_reserved(keyword: Keyword) -> bool {
    const RESERVED: [Keyword; 44] = [
        Keyword::ALL,
        Keyword::AND,
        Keyword::ANY,
        Keyword::ARRAY,
        Keyword::AS,
        Keyword::ASC,
        Keyword::BOTH,
        Keyword::CASE,
        Keyword::CAST,
        Keyword::CHECK,
        Keyword::COLLATE,
        Keyword::COLUMN,
        Keyword::CONSTRAINT,
        Keyword::CREATE,
        Keyword::DEFAULT,
        Keyword::DESC,
        Keyword::DISTINCT,
        Keyword::DO,
        Keyword::ELSE,
        Keyword::END,
        Keyword::EXCEPT,
        Keyword::FALSE,
        Keyword::FETCH,
        Keyword::FOR,
        Keyword::FOREIGN,
        Keyword::FROM,
        Keyword::GRANT,
        Keyword::GROUP,
        Keyword::HAVING,
        Keyword::IN,
        Keyword::INTO,
        Keyword::LIMIT,
        Keyword::NOT,
        Keyword::NULL,
        Keyword::ON,
        Keyword::OR,
        Keyword::ORDER,
        Keyword::PRIMARY,
        Keyword::SELECT,
        Keyword::TABLE,
        Keyword::THEN,
        Keyword::UNION,
        Keyword::WHERE,
        Keyword::WITH,
    ];
    RESERVED.contains(&keyword)
}
