//! The options of a statement in its text: what is secret is not kept there, and what was changed is shown as it is.

use std::collections::BTreeMap;
use std::ops::Range;

/// Stands for a value that is secret.
const HIDDEN: &str = "***";
/// Parts of the names of options whose values are secret.
const SECRET: [&str; 8] =
    ["password", "secret", "token", "access.key", "access_key", "credential", "private", "sasl.jaas"];

/// Whether the value of an option is shown to nobody.
pub fn is_secret(option: &str) -> bool {
    let option = option.to_ascii_lowercase();
    SECRET.iter().any(|part| option.contains(part))
}

/// The text with secret values replaced.
pub fn redacted(text: &str) -> String {
    let values = values(text);
    replaced(text, values.into_iter().filter(|(key, _)| is_secret(key)).map(|(_, at)| (at, quoted(HIDDEN))))
}

/// The text with other values of some options; those that it does not name are added.
pub fn with_options(text: &str, changes: &BTreeMap<String, String>) -> String {
    let values = values(text);
    let shown = |key: &str, value: &str| quoted(if is_secret(key) { HIDDEN } else { value });
    let mut edits: Vec<(Range<usize>, String)> = Vec::new();
    let mut added = String::new();
    for (key, value) in changes {
        match values.iter().find(|(k, _)| k == key) {
            Some((_, at)) => edits.push((at.clone(), shown(key, value))),
            None => added.push_str(&format!("{key} = {}, ", shown(key, value))),
        }
    }
    if !added.is_empty() {
        match region(text) {
            Some(region) => edits.push((region.start..region.start, added)),
            None => edits.push((text.len()..text.len(), format!(" WITH ({})", added.trim_end_matches(", ")))),
        }
    }
    edits.sort_by_key(|(at, _)| at.start);
    replaced(text, edits.into_iter())
}

fn replaced(text: &str, edits: impl Iterator<Item = (Range<usize>, String)>) -> String {
    let (mut result, mut done) = (String::new(), 0);
    for (at, new) in edits {
        result.push_str(&text[done..at.start]);
        result.push_str(&new);
        done = at.end;
    }
    result.push_str(&text[done..]);
    result
}

fn quoted(value: &str) -> String {
    format!("'{}'", value.replace('\'', "''"))
}

/// The end of the string that begins at a quote.
fn string_end(text: &str, start: usize) -> usize {
    let bytes = text.as_bytes();
    let mut at = start + 1;
    while at < bytes.len() {
        if bytes[at] == b'\'' {
            if bytes.get(at + 1) != Some(&b'\'') {
                return at + 1;
            }
            at += 1;
        }
        at += 1;
    }
    text.len()
}

/// What is in the parentheses of the last `WITH (`.
fn region(text: &str) -> Option<Range<usize>> {
    let bytes = text.as_bytes();
    let (mut at, mut found) = (0, None);
    while at < bytes.len() {
        if bytes[at] == b'\'' {
            at = string_end(text, at);
            continue;
        }
        let is_with = bytes[at..].len() > 4 && bytes[at..at + 4].eq_ignore_ascii_case(b"with");
        let stands_alone = at == 0 || !bytes[at - 1].is_ascii_alphanumeric() && bytes[at - 1] != b'_';
        if is_with && stands_alone {
            let after = &text[at + 4..];
            let skipped = after.len() - after.trim_start().len();
            if after[skipped..].starts_with('(') {
                found = Some(at + 4 + skipped + 1);
            }
        }
        at += 1;
    }
    let start = found?;
    let (mut at, mut depth) = (start, 1);
    while at < bytes.len() {
        match bytes[at] {
            b'\'' => {
                at = string_end(text, at);
                continue;
            }
            b'(' => depth += 1,
            b')' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(start..at);
        }
        at += 1;
    }
    None
}

/// The options that have a string as value: names in lower case, and where the values are, quotes included.
fn values(text: &str) -> Vec<(String, Range<usize>)> {
    let Some(region) = region(text) else { return vec![] };
    let bytes = text.as_bytes();
    let (mut at, mut begun, mut values) = (region.start, region.start, Vec::new());
    while at < region.end {
        match bytes[at] {
            b'\'' => {
                let end = string_end(text, at);
                let key = text[begun..at].trim().trim_end_matches('=').trim().replace('"', "").to_lowercase();
                values.push((key, at..end));
                at = end;
                continue;
            }
            b',' => begun = at + 1,
            _ => {}
        }
        at += 1;
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    const SINK: &str = "CREATE SINK s AS SELECT 'with (password = 1)', a FROM t WHERE password = 'x' \
                        WITH (connector = 'x', s3.access.key = 'AK,''1', s3.secret.key='SK', n = 5)";

    #[test]
    fn secrets_are_hidden() {
        let shown = redacted(SINK);
        assert!(shown.contains("s3.access.key = '***', s3.secret.key='***', n = 5"), "{shown}");
        assert!(shown.contains("WHERE password = 'x'"), "{shown}");
        assert_eq!(redacted("CREATE VIEW v AS SELECT 1"), "CREATE VIEW v AS SELECT 1");
    }

    #[test]
    fn changed_options_are_shown() {
        let changes = [("connector", "y"), ("password", "p"), ("commit_interval", "5s")];
        let changes = changes.map(|(k, v)| (k.to_string(), v.to_string())).into();
        let shown = with_options(SINK, &changes);
        assert!(shown.ends_with(
            "WITH (commit_interval = '5s', password = '***', connector = 'y', s3.access.key = 'AK,''1', s3.secret.key='SK', n = 5)"
        ), "{shown}");
        assert_eq!(
            with_options("CREATE SINK s INTO t FROM u", &[("a".into(), "b".into())].into()),
            "CREATE SINK s INTO t FROM u WITH (a = 'b')"
        );
    }
}
