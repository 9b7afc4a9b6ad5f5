//! One job fails in a loop, is slow or stands still; the others go on as if it were not there.

use anyhow::{Context, Result, ensure};
use tokio_postgres::Client;
use weir_e2e::Server;
use weir_e2e::rows::{rows, wait_for};

const PREPARATION: [&str; 5] = [
    "CREATE TABLE t (id INT PRIMARY KEY, v INT)",
    "CREATE TABLE other (id INT PRIMARY KEY)",
    "CREATE MATERIALIZED VIEW sums AS SELECT count(*) AS c, sum(v) AS s FROM t",
    "CREATE MATERIALIZED VIEW tops AS SELECT max(s) AS top FROM sums",
    "CREATE MATERIALIZED VIEW apart AS SELECT count(*) AS c FROM other",
];

async fn one(client: &Client, sql: &str) -> Result<String> {
    let found = rows(client, sql).await.context(sql.to_owned())?;
    Ok(found.into_keys().next().unwrap_or_default())
}

/// The table that the troubled job reads, the views on it and everything else take writes and show them.
async fn others_go_on(client: &Client, first: i32) -> Result<()> {
    for i in first..first + 20 {
        client.batch_execute(&format!("INSERT INTO t VALUES ({i}, 1); INSERT INTO other VALUES ({i})")).await?;
        let expected = format!("{} | {}", i + 1, i + 1);
        ensure!(one(client, "SELECT c, s FROM sums").await? == expected, "sums after {i}");
        ensure!(one(client, "SELECT top FROM tops").await? == format!("{}", i + 1), "tops after {i}");
        ensure!(one(client, "SELECT c FROM apart").await? == format!("{}", i + 1), "apart after {i}");
    }
    let made = format!("made{first}");
    client
        .batch_execute(&format!("CREATE MATERIALIZED VIEW {made} AS SELECT v, count(*) AS c FROM t GROUP BY v"))
        .await?;
    ensure!(one(client, &format!("SELECT c FROM {made}")).await? == format!("{}", first + 20), "{made}");
    // It waits for nobody who can't.
    client.batch_execute("FLUSH").await?;
    Ok(())
}

async fn started(env: &[(&str, &str)]) -> Result<(Server, Client)> {
    let mut server = Server::prepare()?;
    server.env = env.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
    server.restart().await?;
    let client = server.connect().await?;
    for sql in PREPARATION {
        client.batch_execute(sql).await.context(sql)?;
    }
    Ok((server, client))
}

async fn failing() -> Result<()> {
    let (mut server, client) = started(&[("FAILPOINTS", "stream::sink::apply=return")]).await?;
    let sink = "CREATE SINK broken FROM t WITH (connector = 'blackhole')";
    client.batch_execute(sink).await?;
    others_go_on(&client, 0).await?;
    let state = |column: &str| format!("SELECT {column} FROM weir_catalog.jobs WHERE name = 'broken'");
    wait_for(&client, &state("failures > 2 AND last_error LIKE '%failpoint%'"), "t").await?;
    wait_for(&client, &state("next_attempt > now() - INTERVAL '1 minute'"), "t").await?;
    others_go_on(&client, 20).await?;
    // Halted it tries no more; resumed it does.
    client.batch_execute("ALTER SINK broken PAUSE").await?;
    ensure!(one(&client, &state("state")).await? == "paused");
    let failures = one(&client, &state("failures")).await?;
    others_go_on(&client, 40).await?;
    ensure!(one(&client, &state("failures")).await? == failures, "a paused job was started");
    client.batch_execute("ALTER SINK broken RESUME").await?;
    wait_for(&client, &state(&format!("failures > {failures}")), "t").await?;
    // Started where nothing fails, it goes on from its own frontier.
    server.env.clear();
    server.kill()?;
    server.restart().await?;
    let client = server.connect().await?;
    others_go_on(&client, 60).await?;
    wait_for(&client, "SELECT b.frontier >= t.changed FROM weir_catalog.jobs b, weir_catalog.jobs t WHERE b.name = 'broken' AND t.name = 't'", "t").await?;
    ensure!(one(&client, &state("state")).await? == "running");
    client.batch_execute("DROP SINK broken").await?;
    server.stop().await
}

async fn standing_still() -> Result<()> {
    let (mut server, client) = started(&[]).await?;
    client.batch_execute("INSERT INTO t SELECT i, 1 FROM generate_series(-10000, -1) AS s (i)").await?;
    client.batch_execute("DELETE FROM t").await?;
    // One in the middle of its backfill, one that takes a row a second, one that is paused, and a view on that.
    client
        .batch_execute(
            "CREATE MATERIALIZED VIEW halted AS SELECT v, count(*) AS c FROM t GROUP BY v;
             CREATE MATERIALIZED VIEW above AS SELECT sum(c) AS c FROM halted;
             ALTER MATERIALIZED VIEW halted PAUSE;
             CREATE SINK slow FROM t WITH (connector = 'blackhole', sink_rate_limit = 1);
             SET background_ddl = true; SET backfill_rate_limit = 0;
             CREATE MATERIALIZED VIEW begun AS SELECT * FROM t;
             SET background_ddl = false; SET backfill_rate_limit = default",
        )
        .await?;
    others_go_on(&client, 0).await?;
    server.kill()?;
    server.restart().await?;
    let client = server.connect().await?;
    others_go_on(&client, 20).await?;
    client.batch_execute("ALTER MATERIALIZED VIEW halted RESUME").await?;
    client.batch_execute("ALTER MATERIALIZED VIEW begun SET backfill_rate_limit = default; WAIT").await?;
    ensure!(one(&client, "SELECT c FROM above").await? == "40");
    ensure!(one(&client, "SELECT count(*) FROM begun").await? == "40");
    client.batch_execute("DROP SINK slow; DROP TABLE t CASCADE").await?;
    server.stop().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_fails_in_a_loop_disturbs_nobody() {
    failing().await.unwrap_or_else(|error| panic!("{error:#}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_that_stand_still_disturb_nobody() {
    standing_still().await.unwrap_or_else(|error| panic!("{error:#}"));
}
