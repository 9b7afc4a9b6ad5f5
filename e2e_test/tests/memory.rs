//! Statements that need more memory than the server may use.

use anyhow::{Result, ensure};
use weir_e2e::Server;
use weir_e2e::rows::rows;

async fn too_many_rows() -> Result<()> {
    let mut server = Server::prepare()?;
    server.args = vec!["--memory-limit".into(), "256M".into()];
    server.restart().await?;
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

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_does_not_fit_is_refused_whole() {
    too_many_rows().await.unwrap_or_else(|error| panic!("{error:#}"));
}
