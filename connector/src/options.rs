//! The options that a source is given in WITH.

use std::collections::BTreeMap;
use std::str::FromStr;

use crate::error::{ConnectorError, Result, listed};

/// Options that no connector reads, because they are about the job and not about where the rows come from.
const JOB_OPTIONS: [&str; 5] =
    ["connector", "source_rate_limit", "backfill_rate_limit", "streaming_parallelism", "appendonly"];

/// The options of one connector.
pub struct Options<'a> {
    connector: &'static str,
    values: &'a BTreeMap<String, String>,
}

impl<'a> Options<'a> {
    /// Refuses options that are not `known`.
    pub fn new(
        connector: &'static str,
        values: &'a BTreeMap<String, String>,
        known: &[&'static str],
    ) -> Result<Options<'a>> {
        match values.keys().find(|k| !known.contains(&k.as_str()) && !JOB_OPTIONS.contains(&k.as_str())) {
            Some(option) => Err(ConnectorError::UnknownOption {
                connector,
                option: option.clone(),
                known: listed(known.iter().copied()),
            }),
            None => Ok(Options { connector, values }),
        }
    }

    /// The value of an option.
    pub fn get(&self, option: &str) -> Option<&'a str> {
        self.values.get(option).map(|v| v.trim())
    }

    /// The value of an option, with the white space around it.
    pub fn get_exact(&self, option: &str) -> Option<&'a str> {
        self.values.get(option).map(String::as_str)
    }

    /// The error for an option that must be given.
    pub fn missing(&self, option: &'static str, expected: &'static str) -> ConnectorError {
        ConnectorError::MissingOption { connector: self.connector, option, expected }
    }

    /// The error for an option with a wrong value.
    pub fn invalid(&self, option: &str, expected: &'static str) -> ConnectorError {
        let value = self.get(option).unwrap_or_default().to_owned();
        ConnectorError::InvalidOption { option: option.to_owned(), value, expected }
    }

    /// The value of an option that `accept` holds for, or the default.
    pub fn parse<T: FromStr>(
        &self,
        option: &str,
        default: T,
        accept: impl Fn(&T) -> bool,
        expected: &'static str,
    ) -> Result<T> {
        match self.get(option) {
            None => Ok(default),
            Some(value) => value.parse().ok().filter(accept).ok_or_else(|| self.invalid(option, expected)),
        }
    }

    /// The value of a switch, or the default.
    pub fn flag(&self, option: &str, default: bool) -> Result<bool> {
        match self.get(option).map(str::to_ascii_lowercase).as_deref() {
            None => Ok(default),
            Some("true" | "t" | "on" | "1") => Ok(true),
            Some("false" | "f" | "off" | "0") => Ok(false),
            Some(_) => Err(self.invalid(option, "it is 'true' or 'false'")),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn errors_name_what_is_known_and_expected() {
        let values = BTreeMap::from([("connector".into(), "x".into()), ("rate".into(), "-1".into())]);
        let unknown = Options::new("x", &values, &["a", "b", "c"]).err().unwrap();
        assert_eq!(unknown.to_string(), "connector `x` has no option `rate`; it has `a`, `b` and `c`");
        let options = Options::new("x", &values, &["rate"]).unwrap();
        let invalid = options.parse("rate", 1i64, |r| *r > 0, "a number above 0").unwrap_err();
        assert_eq!(invalid.to_string(), "option `rate` cannot be '-1': a number above 0");
        assert_eq!(options.parse("other", 7u8, |_| true, "").unwrap(), 7);
        assert!(options.flag("rate", true).is_err());
    }
}
