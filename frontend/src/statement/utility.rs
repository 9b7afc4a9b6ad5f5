//! Settings, transactions, jobs and resets.

use datafusion::sql::sqlparser::tokenizer::Token;

use super::parse::Reader;
use super::{Body, Reset, Set, TransactionModes};
use crate::error::{Result, SqlError};

impl Reader<'_> {
    pub(super) fn set(&mut self) -> Result<Body> {
        if self.word("reset") {
            let name = if self.word("all") { None } else { Some(self.variable()?) };
            return Ok(Body::Set(match name {
                Some(name) => Set::Variable { local: false, name, value: None },
                None => Set::ResetAll,
            }));
        }
        self.expect_word("set")?;
        if self.words(&["session", "characteristics", "as", "transaction"]) {
            let modes = self.transaction_modes()?;
            return Ok(Body::Set(Set::Transaction { session: true, modes }));
        }
        if self.word("transaction") {
            if self.peek_word("snapshot") {
                return Err(self.mark(SqlError::unsupported("SET TRANSACTION SNAPSHOT")));
            }
            let modes = self.transaction_modes()?;
            return Ok(Body::Set(Set::Transaction { session: false, modes }));
        }
        let local = self.word("local");
        if !local && !self.peek_nth_word(1, "to") && self.parser.peek_nth_token_ref(1).token != Token::Eq {
            self.word("session");
        }
        if self.words(&["time", "zone"]) {
            let name = "timezone".to_string();
            return Ok(Body::Set(Set::Variable { local, name, value: self.set_values()? }));
        }
        if self.word("names") {
            let name = "client_encoding".to_string();
            return Ok(Body::Set(Set::Variable { local, name, value: self.set_values()? }));
        }
        if self.word("authorization") {
            let name = "session_authorization".to_string();
            return Ok(Body::Set(Set::Variable { local, name, value: self.set_values()? }));
        }
        let name = self.variable()?;
        if !self.token(&Token::Eq) && !self.word("to") && name != "role" && name != "schema" {
            return Err(self.unexpected());
        }
        let name = if name == "schema" { "search_path".to_string() } else { name };
        Ok(Body::Set(Set::Variable { local, name, value: self.set_values()? }))
    }

    /// The name of a setting, in lower case.
    pub(super) fn variable(&mut self) -> Result<String> {
        if self.words(&["time", "zone"]) {
            return Ok("timezone".to_string());
        }
        if self.words(&["transaction", "isolation", "level"]) {
            return Ok("transaction_isolation".to_string());
        }
        if self.words(&["session", "authorization"]) {
            return Ok("session_authorization".to_string());
        }
        let mut name = self.scalar_word()?;
        while self.token(&Token::Period) {
            name.push('.');
            name.push_str(&self.scalar_word()?);
        }
        Ok(name)
    }

    fn scalar_word(&mut self) -> Result<String> {
        match &self.parser.peek_token_ref().token {
            Token::Word(word) => {
                let word = word.value.to_lowercase();
                self.parser.next_token();
                Ok(word)
            }
            _ => Err(self.unexpected()),
        }
    }

    /// `DEFAULT`, or values.
    fn set_values(&mut self) -> Result<Option<Vec<String>>> {
        if self.word("default") {
            return Ok(None);
        }
        if self.peek_word("interval") {
            return Err(self.mark(SqlError::unsupported("a time zone given as an interval")));
        }
        let mut values = vec![self.scalar()?];
        while self.token(&Token::Comma) {
            values.push(self.scalar()?);
        }
        Ok(Some(values))
    }

    pub(super) fn transaction(&mut self) -> Result<Body> {
        let begin = self.word("begin");
        if begin || self.words(&["start", "transaction"]) {
            if begin {
                let _ = self.word("work") || self.word("transaction");
            }
            return Ok(Body::Begin(self.transaction_modes()?));
        }
        let body = if self.word("commit") || self.word("end") {
            Body::Commit
        } else if self.word("rollback") || self.word("abort") {
            Body::Rollback
        } else {
            self.parser.next_token();
            return Err(self.unexpected());
        };
        let _ = self.word("work") || self.word("transaction");
        if self.peek_word("to") {
            return Err(self.mark(SqlError::unsupported("ROLLBACK TO SAVEPOINT")));
        }
        if self.peek_word("prepared") {
            return Err(self.mark(SqlError::unsupported("two-phase commit")));
        }
        let no_chain = self.words(&["and", "no", "chain"]);
        if !no_chain && self.peek_word("and") {
            return Err(self.mark(SqlError::unsupported("AND CHAIN")));
        }
        Ok(body)
    }

    /// `ISOLATION LEVEL … , READ ONLY …`: the commas are optional.
    fn transaction_modes(&mut self) -> Result<TransactionModes> {
        let mut modes = TransactionModes::default();
        loop {
            if self.words(&["isolation", "level"]) {
                let levels = [["read", "committed"], ["read", "uncommitted"], ["repeatable", "read"]];
                modes.isolation = match levels.iter().find(|level| self.words(*level)) {
                    Some(level) => Some(level.join(" ")),
                    None if self.word("serializable") => Some("serializable".to_string()),
                    None => return Err(self.unexpected()),
                };
            } else if self.words(&["read", "only"]) {
                modes.read_only = Some(true);
            } else if self.words(&["read", "write"]) {
                modes.read_only = Some(false);
            } else if !self.words(&["not", "deferrable"]) && !self.word("deferrable") {
                return Ok(modes);
            }
            self.token(&Token::Comma);
        }
    }

    pub(super) fn cancel_jobs(&mut self) -> Result<Body> {
        self.expect_word("cancel")?;
        if !self.word("jobs") && !self.word("job") {
            return Err(self.unexpected());
        }
        let mut jobs = Vec::new();
        loop {
            let unexpected = self.unexpected();
            let Token::Number(number, _) = self.parser.next_token().token else { return Err(unexpected) };
            jobs.push(number.parse().map_err(|_| unexpected)?);
            if !self.token(&Token::Comma) {
                return Ok(Body::CancelJobs(jobs));
            }
        }
    }

    pub(super) fn reset(&mut self) -> Result<Body> {
        let kinds: [(&[&str], Reset); 10] = [
            (&["discard", "all"], Reset::DiscardAll),
            (&["discard", "plans"], Reset::Discard("DISCARD PLANS")),
            (&["discard", "sequences"], Reset::Discard("DISCARD SEQUENCES")),
            (&["discard", "temp"], Reset::Discard("DISCARD TEMP")),
            (&["discard", "temporary"], Reset::Discard("DISCARD TEMP")),
            (&["deallocate", "all"], Reset::DeallocateAll),
            (&["deallocate", "prepare", "all"], Reset::DeallocateAll),
            (&["close", "all"], Reset::CloseAll),
            (&["unlisten"], Reset::Unlisten),
            (&["unlisten", "all"], Reset::Unlisten),
        ];
        match kinds.iter().find(|(words, _)| self.words(words)) {
            Some((_, Reset::Unlisten)) => {
                if !self.token(&Token::Mul) {
                    self.ident()?;
                }
                Ok(Body::Reset(Reset::Unlisten))
            }
            Some((_, reset)) => Ok(Body::Reset(*reset)),
            None if self.word("close") => Ok(Body::Close(self.ident()?)),
            None => Ok(self.unsupported(1)),
        }
    }
}
