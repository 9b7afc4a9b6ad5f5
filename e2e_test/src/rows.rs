//! The rows of a query as a multiset, for comparing a view with its query.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tokio_postgres::{Client, SimpleQueryMessage};

/// How long a condition is waited for; much longer than it takes.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// The rows as text, each with its count.
pub async fn rows(client: &Client, sql: &str) -> Result<BTreeMap<String, usize>> {
    let mut rows = BTreeMap::new();
    for message in client.simple_query(sql).await.with_context(|| sql.to_owned())? {
        if let SimpleQueryMessage::Row(row) = message {
            let cells: Vec<_> = (0..row.len()).map(|i| row.get(i).unwrap_or("NULL")).collect();
            *rows.entry(cells.join(" | ")).or_default() += 1;
        }
    }
    Ok(rows)
}

/// Waits until a query gives this row.
pub async fn wait_for(client: &Client, sql: &str, row: &str) -> Result<()> {
    let begun = Instant::now();
    loop {
        let found = rows(client, sql).await.context(sql.to_owned())?;
        if found.contains_key(row) {
            return Ok(());
        }
        ensure!(begun.elapsed() < WAIT_MAX, "{sql}: {found:?}, not {row}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A line for each row that is not there as often as it should be.
pub fn difference<Row: Ord + Debug>(found: &BTreeMap<Row, usize>, expected: &BTreeMap<Row, usize>) -> String {
    let mut lines = Vec::new();
    for row in found.keys().chain(expected.keys()).collect::<BTreeSet<_>>() {
        let (is, should) = (found.get(row).unwrap_or(&0), expected.get(row).unwrap_or(&0));
        if is != should {
            lines.push(format!("found {is}x, expected {should}x: {row:?}"));
        }
    }
    lines.join("\n")
}
