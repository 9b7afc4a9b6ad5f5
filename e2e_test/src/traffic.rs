//! Writes for the tests of sinks: into `grows (k, v)`, which only grows, and `changes (k, v)` with key `k`.

use anyhow::Result;
use rand::Rng;
use rand::rngs::StdRng;
use tokio_postgres::Client;

use crate::rows::wait_for;

/// Writes to both tables until the server is gone, or so often.
pub async fn write(client: &Client, rng: &mut StdRng, times: usize) {
    for _ in 0..times {
        let (k, n) = (rng.random_range(0..40), rng.random_range(0..1_000_000));
        let sql = match rng.random_range(0..4) {
            0 => format!("INSERT INTO grows SELECT i, 'v{n}' FROM generate_series(1, {k}) AS s(i)"),
            1 => format!("INSERT INTO changes VALUES ({k}, 'v{n}'), ({}, 'w{n}'), ({}, NULL)", k + 1, k + 2),
            2 => format!("UPDATE changes SET v = 'u{n}' WHERE k % 7 = {}", k % 7),
            _ => format!("DELETE FROM changes WHERE k = {k}"),
        };
        if client.batch_execute(&sql).await.is_err() {
            return;
        }
    }
}

/// Waits until no sink has anything left to deliver.
pub async fn delivered(client: &Client) -> Result<()> {
    // What was written is in the logs of the sinks by then.
    client.batch_execute("FLUSH").await?;
    wait_for(client, "SELECT count(*) FROM weir_catalog.sinks WHERE lag_rows > 0 OR generation = 0", "0").await
}
