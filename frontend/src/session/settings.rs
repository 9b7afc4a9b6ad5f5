//! Settings of a session: `SET`, `SHOW`, `RESET`.
//!
//! [`SETTINGS`](super::variables::SETTINGS) lists what exists. A value is kept as the text that `SHOW` prints, checked and put into its normal form
//! when it is set. Inside a transaction block a change ends with a rollback, and one by `SET LOCAL` with the block.

use std::collections::BTreeMap;

use chrono_tz::Tz;

use super::variables::{Kind, SETTINGS, Variable, find};
use crate::error::{Result, SqlError, SqlState};

/// The settings of one session.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What the client asked for when it connected: the values that RESET goes back to.
    startup: BTreeMap<String, String>,
    /// Values that differ from the defaults.
    session: BTreeMap<String, String>,
    /// Values by SET LOCAL, which end with the block.
    local: BTreeMap<String, String>,
    /// `session` as it was when the block began.
    saved: Option<BTreeMap<String, String>>,
}

impl Settings {
    /// Settings with the parameters that a client sent when it connected. What is no setting (`user`, `database`) is not
    /// looked at.
    pub fn new(startup: &BTreeMap<String, String>) -> Result<Settings> {
        let mut settings =
            Settings { startup: BTreeMap::new(), session: BTreeMap::new(), local: BTreeMap::new(), saved: None };
        if let Some(user) = startup.get("user") {
            settings.startup.insert("session_authorization".to_string(), user.clone());
        }
        for (name, value) in startup {
            match name.as_str() {
                "user" | "database" | "replication" => {}
                "options" => {
                    for (name, value) in command_line_options(value) {
                        settings.set_startup(&name, &value)?;
                    }
                }
                name if name.starts_with("_pq_.") => {}
                name => settings.set_startup(name, value)?,
            }
        }
        Ok(settings)
    }

    fn set_startup(&mut self, name: &str, value: &str) -> Result<()> {
        let (name, value) = checked(name, &split_list(value))?;
        self.startup.insert(name, value);
        Ok(())
    }

    /// The value of a setting.
    pub fn get(&self, name: &str) -> Result<String> {
        let name = name.to_lowercase();
        if let Some(value) = self.changed(&name) {
            return Ok(value.clone());
        }
        match find(&name) {
            Some(variable) => Ok(variable.default.to_string()),
            None => Err(unknown(&name)),
        }
    }

    fn changed(&self, name: &str) -> Option<&String> {
        self.local.get(name).or_else(|| self.session.get(name)).or_else(|| self.startup.get(name))
    }

    /// The value of a setting that exists.
    fn known(&self, name: &'static str) -> &str {
        let default = || find(name).map_or("", |v| v.default);
        self.changed(name).map_or_else(default, String::as_str)
    }

    /// Changes a setting; `None` is back to where the session started.
    pub fn set(&mut self, name: &str, value: Option<&[String]>, local: bool) -> Result<()> {
        let name = name.to_lowercase();
        if let Some(Variable { kind: Kind::ReadOnly, .. }) = find(&name) {
            let error = format!("parameter \"{name}\" cannot be changed");
            return Err(SqlError::new(SqlState::CANT_CHANGE_RUNTIME_PARAM, error));
        }
        let Some(value) = value else {
            if find(&name).is_none() && self.changed(&name).is_none() {
                return Err(unknown(&name));
            }
            self.session.remove(&name);
            self.local.remove(&name);
            return Ok(());
        };
        let (name, value) = checked(&name, value)?;
        if local {
            // Outside of a block there is nothing that it could be local to.
            if self.saved.is_some() {
                self.local.insert(name, value);
            }
        } else {
            self.local.remove(&name);
            self.session.insert(name, value);
        }
        Ok(())
    }

    /// Every setting back to where the session started.
    pub fn reset_all(&mut self) {
        self.session.clear();
        self.local.clear();
    }

    /// All settings with their descriptions, by name.
    pub fn all(&self) -> Vec<(String, String, &'static str)> {
        SETTINGS.iter().map(|v| (v.name.to_string(), self.known(v.name).to_string(), v.description)).collect()
    }

    /// The settings whose values clients are told, under the names that they know them by.
    pub fn reported(&self) -> Vec<(&'static str, String)> {
        let reported = SETTINGS.iter().filter_map(|v| Some((v.reported_as?, self.known(v.name).to_string())));
        reported.collect()
    }

    /// A block begins.
    pub fn begin(&mut self) {
        self.saved = Some(self.session.clone());
    }

    /// The block ends; changes in it stay or go.
    pub fn end(&mut self, commit: bool) {
        if let Some(saved) = self.saved.take()
            && !commit
        {
            self.session = saved;
        }
        self.local.clear();
    }

    /// Whether a boolean setting is on.
    pub fn is_on(&self, name: &'static str) -> bool {
        self.known(name) == "on"
    }

    /// A setting in milliseconds; `None`: no limit.
    pub fn milliseconds(&self, name: &'static str) -> Option<u64> {
        parse_milliseconds(self.known(name)).filter(|ms| *ms > 0)
    }

    /// The number of parallel actors that new jobs are given; `None`: as many as the server thinks right.
    pub fn streaming_parallelism(&self, kind: &'static str) -> Option<usize> {
        let specific = self.known(kind).parse().ok();
        specific.or_else(|| self.known("streaming_parallelism").parse().ok()).filter(|p| *p > 0)
    }

    /// The time zone that timestamps with time zone are shown in.
    pub fn time_zone(&self) -> Tz {
        parse_time_zone(self.known("timezone")).map_or(Tz::UTC, |(tz, _)| tz)
    }

    /// The schemas that unqualified names are looked up in, `$user` left out.
    pub fn search_path(&self) -> Vec<String> {
        let path = split_list(self.known("search_path"));
        path.into_iter().filter(|schema| schema != "$user" && !schema.is_empty()).collect()
    }
}

/// `unrecognized configuration parameter "x"`.
fn unknown(name: &str) -> SqlError {
    SqlError::new(SqlState::UNDEFINED_OBJECT, format!("unrecognized configuration parameter \"{name}\""))
}

/// The name and the normal form of a value.
fn checked(name: &str, value: &[String]) -> Result<(String, String)> {
    let name = name.to_lowercase();
    let Some(variable) = find(&name) else {
        // As in PostgreSQL, names with a dot are anybody's.
        return if name.contains('.') { Ok((name, value.join(", "))) } else { Err(unknown(&name)) };
    };
    let text = value.join(", ");
    let invalid = || {
        let message = format!("invalid value for parameter \"{name}\": \"{text}\"");
        SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message)
    };
    let value = match variable.kind {
        Kind::Bool => parse_bool(&text).map(on_off).ok_or_else(|| {
            SqlError::new(SqlState::INVALID_PARAMETER_VALUE, format!("parameter \"{name}\" requires a Boolean value"))
        })?,
        Kind::Only(allowed) => {
            let normal = text.to_lowercase();
            let on = parse_bool(&text).map(on_off).unwrap_or_default();
            match allowed.iter().find(|a| a.eq_ignore_ascii_case(&normal) || **a == on) {
                Some(allowed) => (*allowed).to_string(),
                None => {
                    let hint = format!("Available values: {}.", allowed.join(", "));
                    return Err(invalid().with_hint(hint));
                }
            }
        }
        Kind::Integer(min, max) => {
            let number: i64 = text.trim().parse().map_err(|_| invalid())?;
            if !(min..=max).contains(&number) {
                let message = format!("{number} is outside the valid range for parameter \"{name}\" ({min} .. {max})");
                return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message));
            }
            number.to_string()
        }
        Kind::Milliseconds => show_milliseconds(parse_milliseconds(&text).ok_or_else(invalid)?),
        Kind::TimeZone => parse_time_zone(&text).ok_or_else(invalid)?.1,
        Kind::DateStyle => date_style(&text).ok_or_else(invalid)?,
        Kind::Encoding => match text.to_uppercase().replace(['-', '_'], "").as_str() {
            "UTF8" | "UNICODE" => "UTF8".to_string(),
            _ => return Err(invalid().with_hint("The encoding is always UTF8.")),
        },
        Kind::List => value.iter().map(|v| quote_element(v)).collect::<Vec<_>>().join(", "),
        Kind::Text | Kind::ReadOnly => text,
    };
    Ok((variable.name.to_string(), value))
}

/// PostgreSQL's spellings of a truth value; unique prefixes are enough.
fn parse_bool(text: &str) -> Option<bool> {
    let text = text.trim().to_lowercase();
    let is = |word: &str, least: usize| text.len() >= least && word.starts_with(&text);
    if text == "1" || is("true", 1) || is("yes", 1) || text == "on" {
        Some(true)
    } else if text == "0" || is("false", 1) || is("no", 1) || is("off", 2) {
        Some(false)
    } else {
        None
    }
}

fn on_off(on: bool) -> String {
    if on { "on" } else { "off" }.to_string()
}

/// A duration with its unit; without one it is milliseconds.
pub(super) fn parse_milliseconds(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number: f64 = text.get(..digits)?.parse().ok()?;
    let unit = match text.get(digits..)?.trim() {
        "" | "ms" => 1.0,
        "us" => 0.001,
        "s" => 1_000.0,
        "min" => 60_000.0,
        "h" => 3_600_000.0,
        "d" => 86_400_000.0,
        _ => return None,
    };
    let ms = number * unit;
    (ms <= i32::MAX as f64).then_some(ms.round() as u64)
}

/// The largest unit that divides it, as PostgreSQL shows it.
fn show_milliseconds(ms: u64) -> String {
    let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s")];
    match units.iter().find(|(unit, _)| ms > 0 && ms.is_multiple_of(*unit)) {
        Some((unit, name)) => format!("{}{name}", ms / unit),
        None if ms == 0 => "0".to_string(),
        None => format!("{ms}ms"),
    }
}

/// A zone by name in any case, or a whole number of hours east of UTC; and how it is shown.
fn parse_time_zone(text: &str) -> Option<(Tz, String)> {
    let text = text.trim();
    if text.eq_ignore_ascii_case("local") || text.eq_ignore_ascii_case("default") || text.eq_ignore_ascii_case("z") {
        return Some((Tz::UTC, "UTC".to_string()));
    }
    let hours = text.trim_start_matches('+').split(':').next().unwrap_or_default();
    if let Ok(hours) = hours.parse::<i32>() {
        if text.contains(':') && !text.ends_with(":00") {
            return None;
        }
        // The sign of these zones is that of POSIX: west is positive.
        let name = if hours == 0 { "UTC".to_string() } else { format!("Etc/GMT{:+}", -hours) };
        return name.parse().ok().map(|tz: Tz| (tz, tz.name().to_string()));
    }
    let zones = chrono_tz::TZ_VARIANTS.iter();
    zones.into_iter().find(|tz| tz.name().eq_ignore_ascii_case(text)).map(|tz| (*tz, tz.name().to_string()))
}

/// Only ISO output exists; the order of day and month is kept for show.
fn date_style(text: &str) -> Option<String> {
    let mut order = "MDY";
    for word in text.split([',', ' ']).filter(|w| !w.is_empty()) {
        match word.to_uppercase().as_str() {
            "ISO" | "DEFAULT" => {}
            "MDY" | "US" | "NONEURO" | "NONEUROPEAN" => order = "MDY",
            "DMY" | "EURO" | "EUROPEAN" => order = "DMY",
            "YMD" => order = "YMD",
            _ => return None,
        }
    }
    Some(format!("ISO, {order}"))
}

/// Splits `a, "B c"` at commas; quotes keep case and commas.
fn split_list(text: &str) -> Vec<String> {
    let mut items = Vec::new();
    let (mut item, mut quoted, mut was_quoted) = (String::new(), false, false);
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' if quoted && chars.peek() == Some(&'"') => {
                item.push('"');
                chars.next();
            }
            '"' => {
                quoted = !quoted;
                was_quoted = true;
            }
            ',' if !quoted => {
                items.push(finish(&mut item, &mut was_quoted));
            }
            c => item.push(c),
        }
    }
    items.push(finish(&mut item, &mut was_quoted));
    items
}

fn finish(item: &mut String, was_quoted: &mut bool) -> String {
    let item = std::mem::take(item);
    if std::mem::take(was_quoted) { item.trim_matches(' ').to_string() } else { item.trim().to_string() }
}

/// An element of a list, quoted where it would be read back otherwise.
fn quote_element(element: &str) -> String {
    let plain = element.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    let starts = element.starts_with(|c: char| c.is_ascii_lowercase() || c == '_');
    if plain && starts { element.to_string() } else { format!("\"{}\"", element.replace('"', "\"\"")) }
}

/// `-c name=value --name=value`, with `\ ` for a space in a value.
fn command_line_options(text: &str) -> Vec<(String, String)> {
    let mut words = vec![String::new()];
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => words.last_mut().unwrap_or(&mut String::new()).extend(chars.next()),
            ' ' => words.push(String::new()),
            c => words.last_mut().unwrap_or(&mut String::new()).push(c),
        }
    }
    let settings = words.iter().filter_map(|word| {
        let word = word.strip_prefix("--").or_else(|| word.strip_prefix("-c")).unwrap_or(word);
        let (name, value) = word.split_once('=')?;
        Some((name.replace('-', "_"), value.to_string()))
    });
    settings.collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn settings(startup: &[(&str, &str)]) -> Settings {
        Settings::new(&startup.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect()).unwrap()
    }

    fn set(settings: &mut Settings, name: &str, value: &str) -> Result<String> {
        settings.set(name, Some(&[value.to_string()]), false)?;
        settings.get(name)
    }

    #[test]
    fn values_have_a_normal_form() {
        let mut s = settings(&[]);
        assert_eq!(set(&mut s, "rw_implicit_flush", "true").unwrap(), "on");
        assert_eq!(set(&mut s, "TIMEZONE", "europe/berlin").unwrap(), "Europe/Berlin");
        assert_eq!(s.time_zone(), Tz::Europe__Berlin);
        assert_eq!(set(&mut s, "timezone", "+8").unwrap(), "Etc/GMT-8");
        assert_eq!(set(&mut s, "statement_timeout", "90s").unwrap(), "90s");
        assert_eq!(s.milliseconds("statement_timeout"), Some(90_000));
        assert_eq!(set(&mut s, "statement_timeout", "0").unwrap(), "0");
        assert_eq!(set(&mut s, "datestyle", "iso, dmy").unwrap(), "ISO, DMY");
        assert_eq!(set(&mut s, "client_encoding", "utf-8").unwrap(), "UTF8");
        assert_eq!(set(&mut s, "my.own", "x").unwrap(), "x");
        assert_eq!(set(&mut s, "streaming_parallelism", "3").unwrap(), "3");
        assert_eq!(s.streaming_parallelism("streaming_parallelism_for_table"), Some(3));
    }

    #[test]
    fn wrong_names_and_values_are_refused() {
        let mut s = settings(&[]);
        assert_eq!(set(&mut s, "no_such_thing", "1").unwrap_err().state.0, "42704");
        assert_eq!(s.get("no_such_thing").unwrap_err().state.0, "42704");
        assert_eq!(set(&mut s, "timezone", "Mars/Base").unwrap_err().state.0, "22023");
        assert_eq!(set(&mut s, "background_ddl", "perhaps").unwrap_err().state.0, "22023");
        assert_eq!(set(&mut s, "extra_float_digits", "77").unwrap_err().state.0, "22023");
        assert_eq!(set(&mut s, "standard_conforming_strings", "off").unwrap_err().state.0, "22023");
        assert_eq!(set(&mut s, "server_version", "1").unwrap_err().state.0, "55P02");
    }

    #[test]
    fn blocks_take_changes_back() {
        let mut s = settings(&[("application_name", "a"), ("options", "-c search_path=x,y --statement-timeout=5")]);
        assert_eq!(s.search_path(), ["x", "y"]);
        assert_eq!(s.get("statement_timeout").unwrap(), "5ms");
        s.begin();
        set(&mut s, "application_name", "b").unwrap();
        s.set("timezone", Some(&["Asia/Tokyo".to_string()]), true).unwrap();
        assert_eq!(s.get("timezone").unwrap(), "Asia/Tokyo");
        s.end(false);
        assert_eq!((s.get("application_name").unwrap().as_str(), s.time_zone()), ("a", Tz::UTC));
        s.begin();
        set(&mut s, "application_name", "b").unwrap();
        s.end(true);
        assert_eq!(s.get("application_name").unwrap(), "b");
        s.set("application_name", None, false).unwrap();
        assert_eq!(s.get("application_name").unwrap(), "a");
        s.set("search_path", Some(&["a b".to_string(), "c".to_string()]), false).unwrap();
        assert_eq!(s.get("search_path").unwrap(), "\"a b\", c");
        assert_eq!(s.search_path(), ["a b", "c"]);
    }
}
