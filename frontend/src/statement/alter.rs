//! ALTER of relations.

use datafusion::sql::sqlparser::tokenizer::Token;
use weir_common::catalog::ObjectKind;
use weir_meta::logs::LIMIT_OPTION;
use weir_stream::rate_limit::RateLimits;

use super::parse::Reader;
use super::{Alter, AlterAction, Body};
use crate::error::{Result, SqlError};

impl Reader<'_> {
    pub(super) fn alter(&mut self) -> Result<Body> {
        let kinds: [(&[&str], ObjectKind); 7] = [
            (&["alter", "materialized", "view"], ObjectKind::MaterializedView),
            (&["alter", "table"], ObjectKind::Table),
            (&["alter", "view"], ObjectKind::View),
            (&["alter", "source"], ObjectKind::Source),
            (&["alter", "sink"], ObjectKind::Sink),
            (&["alter", "index"], ObjectKind::Index),
            (&["alter", "subscription"], ObjectKind::Subscription),
        ];
        let Some((_, kind)) = kinds.iter().find(|(words, _)| self.words(words)) else { return Ok(self.unsupported(2)) };
        let if_exists = self.words(&["if", "exists"]);
        if *kind == ObjectKind::Table {
            self.word("only");
        }
        let name = self.name()?;
        match self.alter_action()? {
            Some(action) => Ok(Body::Alter(Box::new(Alter { kind: *kind, if_exists, name, action }))),
            None => {
                let Body::Unsupported(what) = self.unsupported(2) else { return Err(self.unexpected()) };
                Ok(Body::Unsupported(format!("ALTER {} {what}", kind.sql().to_uppercase())))
            }
        }
    }

    /// `None`: an action that is not there.
    fn alter_action(&mut self) -> Result<Option<AlterAction>> {
        Ok(Some(if self.words(&["rename", "to"]) {
            AlterAction::Rename(self.ident()?)
        } else if self.words(&["set", "schema"]) {
            AlterAction::SetSchema(self.ident()?)
        } else if self.words(&["owner", "to"]) {
            AlterAction::Owner(self.ident()?)
        } else if self.words(&["swap", "with"]) {
            AlterAction::Swap(self.name()?)
        } else if self.word("pause") {
            AlterAction::Pause
        } else if self.word("resume") {
            AlterAction::Resume
        } else if self.words(&["set", "parallelism"]) {
            AlterAction::Parallelism(self.parallelism()?)
        } else if self.words(&["set", LIMIT_OPTION]) {
            self.equals()?;
            AlterAction::LogLimit(if self.word("default") { None } else { Some(self.scalar()?) })
        } else if self.words(&["connector", "with"])
            || self.peek_word("set") && self.parser.peek_nth_token_ref(1).token == Token::LParen && self.word("set")
        {
            AlterAction::Options(self.option_list()?)
        } else if self.peek_word("set")
            && let Some(option) = RateLimits::OPTIONS.iter().find(|option| self.peek_nth_word(1, option))
        {
            self.words(&["set", option]);
            self.equals()?;
            AlterAction::RateLimit { option, rows_per_s: self.rate_limit()? }
        } else if self.at_end() || self.parser.peek_token_ref().token == Token::SemiColon {
            return Err(self.unexpected());
        } else {
            return Ok(None);
        }))
    }

    fn equals(&mut self) -> Result<()> {
        if self.token(&Token::Eq) { Ok(()) } else { self.expect_word("to") }
    }

    /// A number of actors, or `None` for as many as there are cores.
    fn parallelism(&mut self) -> Result<Option<usize>> {
        self.equals()?;
        if ["adaptive", "default", "auto"].iter().any(|word| self.word(word)) {
            return Ok(None);
        }
        let at = self.unexpected();
        let value = self.scalar()?;
        match value.parse::<usize>() {
            Ok(0) => Ok(None),
            Ok(n) => Ok(Some(n)),
            Err(_) => {
                Err(SqlError { position: at.position, ..SqlError::syntax("parallelism is a number or ADAPTIVE") })
            }
        }
    }

    /// Rows per second, or `None` for no limit.
    fn rate_limit(&mut self) -> Result<Option<u64>> {
        let at = self.unexpected();
        match self.scalar()?.as_str() {
            "default" | "-1" => Ok(None),
            number => number.parse().map(Some).map_err(|_| at),
        }
    }
}
