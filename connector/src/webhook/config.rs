//! The options of a webhook.

use std::collections::BTreeMap;
use std::time::Duration;

use reqwest::Url;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

use crate::error::{ConnectorError, Result};
use crate::options::Options;
use crate::sink::SinkSpec;

const CONNECTOR: &str = "webhook";
const URL: &str = "url";
const HEADER: &str = "header.";
const TIMEOUT_MS: &str = "timeout_ms";
const BATCH_ROWS: &str = "batch_rows";

/// Where changes go.
#[derive(Clone)]
pub struct WebhookConfig {
    pub url: Url,
    pub headers: HeaderMap,
    pub timeout: Duration,
    pub batch_rows: usize,
}

impl WebhookConfig {
    pub fn parse(spec: &SinkSpec) -> Result<WebhookConfig> {
        let (headers, others): (BTreeMap<_, _>, BTreeMap<_, _>) =
            spec.options.clone().into_iter().partition(|(name, _)| name.starts_with(HEADER));
        let options = Options::new(CONNECTOR, &others, &[URL, TIMEOUT_MS, BATCH_ROWS])?;
        if let Some((format, encode)) = &spec.format
            && !(format.eq_ignore_ascii_case("plain") && encode.eq_ignore_ascii_case("json"))
        {
            let (format, encode) = (format.clone(), encode.clone());
            let expected = "it is FORMAT PLAIN ENCODE JSON";
            return Err(ConnectorError::UnsupportedFormat { connector: CONNECTOR, format, encode, expected });
        }
        let url = options.get(URL).ok_or_else(|| options.missing(URL, "where changes are sent to"))?;
        let url = Url::parse(url).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        let milliseconds = "a number of milliseconds from 1 to 600000";
        let timeout: u64 = options.parse(TIMEOUT_MS, 10_000, |n| (1..=600_000).contains(n), milliseconds)?;
        Ok(WebhookConfig {
            url: url.ok_or_else(|| options.invalid(URL, "it is an address such as https://host/path"))?,
            headers: headers.iter().map(|(option, value)| header(option, value)).collect::<Result<_>>()?,
            timeout: Duration::from_millis(timeout),
            batch_rows: options.parse(BATCH_ROWS, 100, |n| (1..=10_000).contains(n), "a number from 1 to 10000")?,
        })
    }

    /// The address for messages: what may be secret is left out.
    pub fn shown(&self) -> String {
        let port = self.url.port().map(|port| format!(":{port}")).unwrap_or_default();
        let host = self.url.host_str().unwrap_or_default();
        format!("{}://{host}{port}{}", self.url.scheme(), self.url.path())
    }
}

fn header(option: &str, value: &str) -> Result<(HeaderName, HeaderValue)> {
    // The value may be a secret, so no message has it.
    let invalid = |expected| ConnectorError::InvalidOption { option: option.to_owned(), value: "…".into(), expected };
    let name = option[HEADER.len()..].parse::<HeaderName>().map_err(|_| invalid("what follows the dot is no name"))?;
    if name.as_str().starts_with("weir-") || matches!(name.as_str(), "content-type" | "content-length" | "host") {
        return Err(invalid("the sink sets this header itself"));
    }
    let mut value = value.trim().parse::<HeaderValue>().map_err(|_| invalid("a header takes visible characters"))?;
    value.set_sensitive(true);
    Ok((name, value))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::Arc;

    use arrow::datatypes::Schema;
    use weir_common::JobId;

    use super::*;

    fn parse(options: &[(&str, &str)]) -> Result<WebhookConfig> {
        WebhookConfig::parse(&SinkSpec {
            sink: JobId(7),
            name: "out".into(),
            columns: Arc::new(Schema::empty()),
            primary_key: vec![],
            append_only: true,
            options: options.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect(),
            format: None,
        })
    }

    #[test]
    fn options_are_checked_and_no_secret_is_told() {
        let url = ("url", "https://user:secret@host:8443/path?token=secret");
        let config = parse(&[url, ("header.authorization", "Bearer secret"), ("batch_rows", "7")]).unwrap();
        assert_eq!(config.shown(), "https://host:8443/path");
        assert_eq!(config.headers["authorization"], "Bearer secret");
        assert_eq!((config.batch_rows, config.timeout), (7, Duration::from_secs(10)));
        let refused = |options: &[(&str, &str)]| parse(options).err().unwrap().to_string();
        assert_eq!(refused(&[]), "connector `webhook` needs option `url`: where changes are sent to");
        assert!(refused(&[("url", "ftp://host")]).contains("it is an address such as"));
        assert!(refused(&[url, ("headers", "x")]).contains("has no option `headers`"));
        assert!(refused(&[url, ("timeout_ms", "0")]).contains("from 1 to 600000"));
        assert!(refused(&[url, ("header.weir-sink", "x")]).contains("the sink sets this header itself"));
        let bad_value = refused(&[url, ("header.x", "a\nsecret")]);
        assert!(!bad_value.contains("secret"), "{bad_value}");
    }
}
