//! Settings: the command line over the environment (`WEIR_…`) over a TOML file over the defaults.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};
use serde::Deserialize;

/// A streaming database: SQL over the PostgreSQL protocol, materialized views kept up to date as rows change.
#[derive(Parser)]
#[command(name = "weir", version)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Option<Command>,
    #[command(flatten)]
    pub settings: Settings,
    /// A TOML file with the same settings, in snake case.
    #[arg(long, env = "WEIR_CONFIG", global = true)]
    pub config: Option<PathBuf>,
}

#[derive(Subcommand)]
pub enum Command {
    /// Run the server (the default).
    Serve,
}

/// Every setting, none of them required.
#[derive(clap::Args, Deserialize, Default, Clone)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Where all state is kept [default: ./weir-data].
    #[arg(long, env = "WEIR_DATA_DIR", global = true)]
    pub data_dir: Option<PathBuf>,
    /// Address for SQL [default: 127.0.0.1:4566].
    #[arg(long, env = "WEIR_LISTEN", global = true)]
    pub listen: Option<String>,
    /// Address for the web page, /metrics and /health [default: 127.0.0.1:5691].
    #[arg(long, env = "WEIR_HTTP_LISTEN", global = true)]
    pub http_listen: Option<String>,
    /// URL of the meta store, sqlite://… or postgres://… [default: a SQLite file in the data directory].
    #[arg(long, env = "WEIR_META_STORE", global = true)]
    pub meta_store: Option<String>,
    /// Memory for the process, in bytes or with K, M or G [default: 70 % of what the machine or cgroup has].
    #[arg(long, env = "WEIR_MEMORY_LIMIT", global = true)]
    pub memory_limit: Option<String>,
    /// Milliseconds between epochs when nobody asks for one [default: 1000].
    #[arg(long, env = "WEIR_BARRIER_INTERVAL_MS", global = true)]
    pub barrier_interval_ms: Option<u64>,
    /// Seconds that a read waits for the relations it names [default: 60].
    #[arg(long, env = "WEIR_WAIT_TIMEOUT_S", global = true)]
    pub wait_timeout_s: Option<u64>,
    /// What is logged to standard error, e.g. `info` or `weir_meta=debug` [default: info].
    #[arg(long, env = "WEIR_LOG", global = true)]
    pub log: Option<String>,
    /// Log as JSON lines [default: false].
    #[arg(long, env = "WEIR_LOG_JSON", global = true)]
    pub log_json: Option<bool>,
}

/// The settings in force.
pub struct Config {
    pub data_dir: PathBuf,
    pub listen: String,
    pub http_listen: String,
    pub meta_store: Option<String>,
    pub memory_limit: Option<usize>,
    pub barrier_interval_ms: u64,
    pub wait_timeout_s: u64,
    pub log: String,
    pub log_json: bool,
}

impl Config {
    /// Puts the layers together.
    pub fn load(cli: &Cli) -> Result<Config> {
        let file = match &cli.config {
            Some(path) => {
                let text = std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
                toml::from_str(&text).with_context(|| format!("settings in {}", path.display()))?
            }
            None => Settings::default(),
        };
        let set = cli.settings.clone();
        let memory_limit = set.memory_limit.or(file.memory_limit).map(|text| parse_bytes(&text)).transpose()?;
        let barrier_interval_ms = set.barrier_interval_ms.or(file.barrier_interval_ms).unwrap_or(1000);
        if barrier_interval_ms == 0 {
            bail!("barrier_interval_ms must be at least 1");
        }
        Ok(Config {
            data_dir: set.data_dir.or(file.data_dir).unwrap_or_else(|| "weir-data".into()),
            listen: set.listen.or(file.listen).unwrap_or_else(|| "127.0.0.1:4566".into()),
            http_listen: set.http_listen.or(file.http_listen).unwrap_or_else(|| "127.0.0.1:5691".into()),
            meta_store: set.meta_store.or(file.meta_store),
            memory_limit,
            barrier_interval_ms,
            wait_timeout_s: set.wait_timeout_s.or(file.wait_timeout_s).unwrap_or(60),
            log: set.log.or(file.log).unwrap_or_else(|| "info".into()),
            log_json: set.log_json.or(file.log_json).unwrap_or(false),
        })
    }
}

/// `1073741824`, `1024M`, `1G`, `1GB`, `1GiB` are the same.
fn parse_bytes(text: &str) -> Result<usize> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit = match text[digits.len()..].trim().to_ascii_uppercase().trim_end_matches("IB").trim_end_matches('B') {
        "" => 1,
        "K" => 1 << 10,
        "M" => 1 << 20,
        "G" => 1 << 30,
        _ => bail!("memory limit `{text}`: expected a number of bytes, optionally with K, M or G"),
    };
    let count: usize = digits.parse().with_context(|| format!("memory limit `{text}`"))?;
    count.checked_mul(unit).with_context(|| format!("memory limit `{text}` is too large"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn sizes_with_units() {
        for text in ["1073741824", "1024M", "1G", "1gb", "1GiB"] {
            assert_eq!(parse_bytes(text).unwrap(), 1 << 30, "{text}");
        }
        assert!(parse_bytes("a lot").is_err());
        assert!(parse_bytes("1T").is_err());
    }
}
