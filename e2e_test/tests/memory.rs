//! Statements that need more memory than the server may use.

use anyhow::{Result, ensure};
use weir_e2e::Server;
use weir_e2e::rows::{rows, wait_for};

async fn small_server() -> Result<Server> {
    let mut server = Server::prepare()?;
    server.args = vec!["--memory-limit".into(), "256M".into()];
    server.restart().await?;
    Ok(server)
}

async fn too_many_rows() -> Result<()> {
    let mut server = small_server().await?;
    let client = server.connect().await?;
    client.batch_execute("CREATE TABLE t (k BIGINT PRIMARY KEY); INSERT INTO t VALUES (-1)").await?;
    client.batch_execute("CREATE MATERIALIZED VIEW n AS SELECT count(*) AS n FROM t").await?;
    let sql = "INSERT INTO t SELECT * FROM generate_series(1, 2000000)";
    let error = client.batch_execute(sql).await.err();
    let state = error.as_ref().and_then(|e| e.code()).map(|c| c.code());
    ensure!(state == Some("53200"), "{error:?}");
    // Nothing of it is there, and the next statement goes through.
    client.batch_execute("INSERT INTO t SELECT * FROM generate_series(1, 10000)").await?;
    let counts = rows(&client, "SELECT (SELECT count(*) FROM t), (SELECT n FROM n)").await?;
    ensure!(counts.contains_key("10001 | 10001"), "{counts:?}");
    server.stop().await
}

/// A block keeps its rows until COMMIT: together they are as limited as those of a statement.
async fn too_many_rows_in_a_block() -> Result<()> {
    let mut server = small_server().await?;
    let client = server.connect().await?;
    client.batch_execute("CREATE TABLE t (k BIGINT); BEGIN").await?;
    let mut error = None;
    for _ in 0..40 {
        error = client.batch_execute("INSERT INTO t SELECT * FROM generate_series(1, 50000)").await.err();
        if error.is_some() {
            break;
        }
    }
    let state = error.as_ref().and_then(|e| e.code()).map(|c| c.code());
    ensure!(state == Some("53200"), "{error:?}");
    client.batch_execute("ROLLBACK; INSERT INTO t VALUES (1)").await?;
    let counts = rows(&client, "SELECT count(*) FROM t").await?;
    ensure!(counts.contains_key("1"), "{counts:?}");
    server.stop().await
}

/// One row joins with so many that the epoch does not fit: that view says so and keeps what it had; the others go on.
async fn a_join_that_explodes() -> Result<()> {
    let mut server = small_server().await?;
    let client = server.connect().await?;
    client.batch_execute("CREATE TABLE a (k BIGINT, g BIGINT); CREATE TABLE b (k BIGINT, g BIGINT)").await?;
    client
        .batch_execute("CREATE MATERIALIZED VIEW pairs AS SELECT a.k AS ak, b.k AS bk FROM a JOIN b ON a.g = b.g")
        .await?;
    client.batch_execute("CREATE MATERIALIZED VIEW n AS SELECT count(*) AS n FROM b").await?;
    client.batch_execute("INSERT INTO a VALUES (0, 0); INSERT INTO b VALUES (0, 0)").await?;
    let pairs = "SELECT ak, bk FROM pairs";
    ensure!(rows(&client, pairs).await?.contains_key("0 | 0"));
    client.batch_execute("SET read_your_writes = false").await?;
    client.batch_execute("INSERT INTO a SELECT k, 1 FROM generate_series(1, 3000) AS s(k)").await?;
    client.batch_execute("INSERT INTO b SELECT k, 1 FROM generate_series(1, 3000) AS s(k)").await?;
    let failing =
        "SELECT count(*) FROM weir_catalog.jobs WHERE name = 'pairs' AND last_error LIKE '%do not fit into memory%'";
    wait_for(&client, failing, "1").await?;
    wait_for(&client, "SELECT n FROM n", "3001").await?;
    ensure!(rows(&client, pairs).await?.len() == 1, "an epoch that failed leaves what was there");
    client.batch_execute("DROP MATERIALIZED VIEW pairs").await?;
    client.batch_execute("INSERT INTO b VALUES (-1, 5)").await?;
    wait_for(&client, "SELECT n FROM n", "3002").await?;
    server.stop().await
}

/// What a view has missed is more than an epoch may hold: it takes it in several.
async fn a_view_far_behind() -> Result<()> {
    let mut server = small_server().await?;
    let client = server.connect().await?;
    client.batch_execute("CREATE TABLE t (k BIGINT PRIMARY KEY, v VARCHAR)").await?;
    client.batch_execute("CREATE MATERIALIZED VIEW copy AS SELECT k, v || '.' AS v FROM t").await?;
    client.batch_execute("ALTER MATERIALIZED VIEW copy PAUSE; SET read_your_writes = false").await?;
    // Some 200 MB of log, where an epoch may have 43.
    for step in 0..10 {
        let sql = format!(
            "INSERT INTO t SELECT k, repeat('x', 1000) FROM generate_series({} , {}) AS s(k)",
            step * 20_000,
            step * 20_000 + 19_999
        );
        client.batch_execute(&sql).await?;
    }
    client.batch_execute("ALTER MATERIALIZED VIEW copy RESUME").await?;
    wait_for(&client, "SELECT count(*) FROM copy", "200000").await?;
    let wrong = "SELECT count(*) FROM copy WHERE length(v) <> 1001";
    ensure!(rows(&client, wrong).await?.contains_key("0"));
    let failures = "SELECT failures FROM weir_catalog.jobs WHERE name = 'copy'";
    ensure!(rows(&client, failures).await?.contains_key("0"), "{:?}", rows(&client, failures).await?);
    server.stop().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_does_not_fit_is_refused_whole() {
    too_many_rows().await.unwrap_or_else(|error| panic!("{error:#}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_block_that_does_not_fit_is_refused_whole() {
    too_many_rows_in_a_block().await.unwrap_or_else(|error| panic!("{error:#}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_epoch_that_does_not_fit_fails_alone() {
    a_join_that_explodes().await.unwrap_or_else(|error| panic!("{error:#}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_view_that_is_far_behind_catches_up_in_steps() {
    a_view_far_behind().await.unwrap_or_else(|error| panic!("{error:#}"));
}
