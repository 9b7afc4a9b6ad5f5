//! What all sinks can be told in WITH, whatever their connector.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::error::Result;
use crate::options::Options;

/// The options that are read here, or that are about the job.
pub const SINK_OPTIONS: [&str; 16] = [
    "connector",
    "type",
    "force_append_only",
    "primary_key",
    "snapshot",
    "sink_decouple",
    "is_exactly_once",
    "commit_interval",
    "commit_checkpoint_interval",
    "sink_rate_limit",
    "backfill_rate_limit",
    "source_rate_limit",
    "streaming_parallelism",
    "change_log_limit",
    "backfill_order",
    "sink_parallelism",
];

/// How often a commit is made where nothing is said.
const COMMIT_INTERVAL: Duration = Duration::from_secs(10);

/// What a sink may do to rows that are outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SinkKind {
    /// Only adds rows.
    AppendOnly,
    /// Replaces and deletes rows by key.
    Upsert,
    /// Hands on every change, as in Debezium's format.
    Changes,
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SinkSettings {
    /// `type`.
    pub kind: Option<SinkKind>,
    pub force_append_only: bool,
    /// `primary_key`, in order.
    pub primary_key: Vec<String>,
    /// Whether what exists is delivered too.
    pub snapshot: bool,
    pub exactly_once: bool,
    /// The longest time between the first row of a commit and the commit.
    pub commit_interval: Duration,
    /// Writers, where the destination takes several.
    pub writers: Option<usize>,
}

impl SinkSettings {
    /// Reads and checks the options.
    pub fn parse(options: &BTreeMap<String, String>) -> Result<SinkSettings> {
        let shared: BTreeMap<String, String> = options
            .iter()
            .filter(|(k, _)| SINK_OPTIONS.contains(&k.as_str()))
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect();
        let options = Options::new("sink", &shared, &SINK_OPTIONS)?;
        let kind = match options.get("type").map(str::to_ascii_lowercase).as_deref() {
            None => None,
            Some("append-only") => Some(SinkKind::AppendOnly),
            Some("upsert") => Some(SinkKind::Upsert),
            Some("debezium") => Some(SinkKind::Changes),
            Some(_) => return Err(options.invalid("type", "it is 'append-only', 'upsert' or 'debezium'")),
        };
        let force_append_only = options.flag("force_append_only", false)?;
        if force_append_only && kind != Some(SinkKind::AppendOnly) {
            return Err(options.invalid("force_append_only", "it goes with type = 'append-only'"));
        }
        let names = options.get("primary_key").unwrap_or_default();
        let primary_key = names.split(',').map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).collect();
        Ok(SinkSettings {
            kind,
            force_append_only,
            primary_key,
            snapshot: options.flag("snapshot", true)?,
            exactly_once: options.flag("is_exactly_once", true)?,
            commit_interval: commit_interval(&options)?,
            writers: match options.get("sink_parallelism") {
                None => None,
                Some(_) => {
                    Some(options.parse("sink_parallelism", 1, |n| (1..=64).contains(n), "a number from 1 to 64")?)
                }
            },
        })
    }
}

fn commit_interval(options: &Options<'_>) -> Result<Duration> {
    let expected = "it is a time such as '10s', '500ms' or '5m'";
    if let Some(text) = options.get("commit_interval") {
        return duration(text).ok_or_else(|| options.invalid("commit_interval", expected));
    }
    // RisingWave counts in checkpoints, of which there is one a second.
    let seconds: u64 =
        options.parse("commit_checkpoint_interval", 0, |n| (1..=86_400).contains(n), "a number from 1 to 86400")?;
    Ok(if seconds == 0 { COMMIT_INTERVAL } else { Duration::from_secs(seconds) })
}

/// `500ms`, `10s`, `5m`, `1h`; a number alone is seconds.
fn duration(text: &str) -> Option<Duration> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..digits].parse().ok()?;
    let milliseconds = match text[digits..].trim().to_ascii_lowercase().as_str() {
        "ms" => 1,
        "" | "s" | "sec" | "second" | "seconds" => 1_000,
        "m" | "min" | "minute" | "minutes" => 60_000,
        "h" | "hour" | "hours" => 3_600_000,
        _ => return None,
    };
    Some(Duration::from_millis(number.checked_mul(milliseconds)?))
}

/// The options of a destination alone.
pub(crate) fn of_destination(options: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let own = options.iter().filter(|(name, _)| !SINK_OPTIONS.contains(&name.as_str()) || *name == "connector");
    own.map(|(name, value)| (name.clone(), value.clone())).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn parse(options: &[(&str, &str)]) -> Result<SinkSettings> {
        SinkSettings::parse(&options.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect())
    }

    #[test]
    fn options_are_read_and_checked() {
        let settings = parse(&[
            ("connector", "iceberg"),
            ("warehouse.path", "/w"),
            ("type", "upsert"),
            ("primary_key", "a, b"),
            ("commit_interval", "500ms"),
        ])
        .unwrap();
        assert_eq!((settings.kind, settings.primary_key.len()), (Some(SinkKind::Upsert), 2));
        assert_eq!((settings.commit_interval, settings.exactly_once), (Duration::from_millis(500), true));
        assert_eq!(parse(&[("commit_checkpoint_interval", "5")]).unwrap().commit_interval, Duration::from_secs(5));
        assert!(parse(&[("commit_interval", "soon")]).is_err());
        assert!(parse(&[("type", "insert")]).is_err());
        assert!(parse(&[("force_append_only", "true")]).is_err());
        assert!(parse(&[("is_exactly_once", "maybe")]).is_err());
    }
}
