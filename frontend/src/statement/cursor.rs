//! DECLARE, FETCH and MOVE.

use datafusion::sql::sqlparser::tokenizer::Token;

use super::parse::Reader;
use super::{Body, Declare, Declared, Fetch, Since};
use crate::error::{Result, SqlError};

impl Reader<'_> {
    /// `DECLARE name [options] CURSOR … FOR query`, or `DECLARE name SUBSCRIPTION CURSOR FOR subscription [SINCE … | FULL]`.
    pub(super) fn declare(&mut self) -> Result<Body> {
        self.expect_word("declare")?;
        let name = self.ident()?;
        if self.words(&["subscription", "cursor", "for"]) {
            let subscription = self.name()?;
            let since = self.since()?;
            return Ok(Body::Declare(Box::new(Declare { name, what: Declared::Subscription { subscription, since } })));
        }
        loop {
            if self.words(&["no", "scroll"]) || self.word("insensitive") || self.word("asensitive") {
                continue;
            }
            if self.peek_word("binary") || self.peek_word("scroll") {
                let what = if self.peek_word("binary") { "a binary cursor" } else { "a cursor that goes back" };
                return Err(self.mark(SqlError::unsupported(what)));
            }
            break;
        }
        self.expect_word("cursor")?;
        let hold = self.words(&["with", "hold"]);
        let _ = hold || self.words(&["without", "hold"]);
        self.expect_word("for")?;
        let query = self.query()?;
        Ok(Body::Declare(Box::new(Declare { name, what: Declared::Query { query, hold } })))
    }

    fn since(&mut self) -> Result<Since> {
        if self.word("full") {
            return Ok(Since::Full);
        }
        if !self.word("since") {
            return Ok(Since::Now);
        }
        let word = if self.word("now") {
            Since::Now
        } else if self.word("begin") {
            Since::Begin
        } else {
            let at = self.unexpected();
            let number = self.scalar()?;
            return number.parse().map(Since::After).map_err(|_| at);
        };
        if self.token(&Token::LParen) {
            self.expect_token(&Token::RParen)?;
        }
        Ok(word)
    }

    /// `FETCH [NEXT | ALL | n | FORWARD …] [FROM | IN] cursor [WITH (timeout = '…')]`, and the same with MOVE.
    pub(super) fn fetch(&mut self) -> Result<Body> {
        let moves = self.word("move");
        if !moves {
            self.expect_word("fetch")?;
        }
        for back in ["prior", "first", "last", "absolute", "relative", "backward"] {
            if self.peek_word(back) && !self.peek_end(1) {
                let what = format!("FETCH {}: a cursor goes forward only", back.to_uppercase());
                return Err(self.mark(SqlError::unsupported(what)));
            }
        }
        let mut rows = Some(1);
        if self.peek_word("next") && !self.peek_end(1) {
            self.word("next");
        } else if self.peek_word("all") && !self.peek_end(1) {
            self.word("all");
            rows = None;
        } else if self.peek_word("forward") && !self.peek_end(1) {
            self.word("forward");
            rows = if self.word("all") { None } else { self.count()?.or(rows) };
        } else {
            rows = self.count()?.or(rows);
        }
        let _ = self.word("from") || self.word("in");
        let cursor = self.ident()?;
        let timeout = self.options()?.remove("timeout");
        Ok(Body::Fetch(Fetch { cursor, rows, moves, timeout }))
    }

    /// Whether the statement ends after `n` tokens.
    fn peek_end(&self, n: usize) -> bool {
        matches!(self.parser.peek_nth_token_ref(n).token, Token::EOF | Token::SemiColon)
    }

    fn count(&mut self) -> Result<Option<usize>> {
        let at = self.unexpected();
        match &self.parser.peek_token_ref().token {
            Token::Number(digits, _) => {
                let count = digits.parse().map_err(|_| at)?;
                self.parser.next_token();
                Ok(Some(count))
            }
            Token::Minus => Err(self.mark(SqlError::unsupported("a negative count: a cursor goes forward only"))),
            _ => Ok(None),
        }
    }
}
