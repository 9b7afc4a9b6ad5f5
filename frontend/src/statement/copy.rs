//! COPY.

use datafusion::sql::sqlparser::tokenizer::Token;

use super::parse::Reader;
use super::{Body, Copied, Copy};
use crate::error::{Result, SqlError};

type CopyOption = (String, Option<String>);

impl Reader<'_> {
    pub(super) fn copy(&mut self) -> Result<Body> {
        self.expect_word("copy")?;
        let mut options = Vec::new();
        if self.word("binary") {
            options.push(("format".to_string(), Some("binary".to_string())));
        }
        let what = if self.token(&Token::LParen) {
            let query = self.query()?;
            self.expect_token(&Token::RParen)?;
            Copied::Query(query)
        } else {
            let name = self.name()?;
            let columns = match self.parser.peek_token_ref().token {
                Token::LParen => self.parenthesized(|r| r.ident())?,
                _ => vec![],
            };
            Copied::Relation { name, columns }
        };
        let from_client = self.word("from");
        if !from_client {
            self.expect_word("to")?;
        }
        if !self.word(if from_client { "stdin" } else { "stdout" }) {
            return Err(match self.parser.peek_token_ref().token {
                Token::SingleQuotedString(_) => self.mark(SqlError::unsupported("COPY of a file")),
                _ if self.peek_word("program") => self.mark(SqlError::unsupported("COPY of a program")),
                _ => self.unexpected(),
            });
        }
        if from_client && matches!(what, Copied::Query(_)) {
            return Err(SqlError::syntax("syntax error at or near \"FROM\""));
        }
        self.word("with");
        if self.parser.peek_token_ref().token == Token::LParen {
            options.extend(self.parenthesized(|r| r.copy_option())?);
        } else {
            while let Some(option) = self.old_copy_option()? {
                options.push(option);
            }
        }
        if self.peek_word("where") {
            return Err(self.mark(SqlError::unsupported("WHERE in COPY")));
        }
        Ok(Body::Copy(Box::new(Copy { what, from_client, options })))
    }

    /// `name [value]`.
    fn copy_option(&mut self) -> Result<CopyOption> {
        let name = self.scalar()?;
        let value = match self.parser.peek_token_ref().token {
            Token::Comma | Token::RParen => None,
            Token::LParen => {
                let columns = self.parenthesized(|r| r.ident())?;
                Some(columns.into_iter().map(|c| c.value).collect::<Vec<_>>().join(","))
            }
            Token::Mul => {
                self.parser.next_token();
                Some("*".to_string())
            }
            _ => Some(self.scalar()?),
        };
        Ok((name, value))
    }

    /// Options as they were written before PostgreSQL 9.0.
    fn old_copy_option(&mut self) -> Result<Option<CopyOption>> {
        for format in ["csv", "binary"] {
            if self.word(format) {
                return Ok(Some(("format".to_string(), Some(format.to_string()))));
            }
        }
        if self.word("header") {
            return Ok(Some(("header".to_string(), None)));
        }
        for name in ["delimiter", "null", "quote", "escape", "encoding"] {
            if self.word(name) {
                self.word("as");
                return Ok(Some((name.to_string(), Some(self.scalar()?))));
            }
        }
        Ok(None)
    }
}
