//! Sinks into files and into PostgreSQL through kills, and two processes that share a meta store on PostgreSQL.
//!
//! Needs a server with the feature `failpoints`, and PostgreSQL's programs.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use weir_e2e::Server;
use weir_e2e::rows::{difference, rows, wait_for};
use weir_e2e::traffic::{delivered, write};

#[path = "../../connector/tests/server/mod.rs"]
#[allow(dead_code, clippy::unwrap_used)]
mod postgres;

const KILLS: usize = 8;

/// The rows of all files under a directory, as `k | v`.
fn rows_of_files(dir: &Path) -> Result<BTreeMap<String, usize>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(dir).with_context(|| dir.display().to_string())? {
        let path = entry?.path();
        if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.')) {
            continue;
        }
        for line in std::fs::read_to_string(&path)?.lines() {
            let row: serde_json::Value = serde_json::from_str(line).with_context(|| path.display().to_string())?;
            let text = row["v"].as_str().unwrap_or("NULL");
            *found.entry(format!("{} | {text}", row["k"])).or_default() += 1;
        }
    }
    Ok(found)
}

fn same(what: &str, found: &BTreeMap<String, usize>, expected: &BTreeMap<String, usize>) -> Result<()> {
    ensure!(found == expected, "{what}:\n{}", difference(found, expected));
    Ok(())
}

async fn is_killed() -> Result<()> {
    let mut rng = StdRng::seed_from_u64(3);
    let outside = postgres::Server::shared();
    let destination = outside.connect().await;
    destination.batch_execute("CREATE TABLE grown (k BIGINT, v TEXT)").await?;
    destination.batch_execute("CREATE TABLE changed (k BIGINT PRIMARY KEY, v TEXT)").await?;
    let mut server = Server::start().await?;
    let files = server.dir().join("files");
    let port = outside.port;
    let into = |table: &str| {
        format!(
            "connector = 'postgres', host = '127.0.0.1', port = '{port}', user = 'postgres', \
             database = 'postgres', table = '{table}', commit_interval = '20ms'"
        )
    };
    let client = server.connect().await?;
    for sql in [
        "CREATE TABLE grows (k BIGINT, v VARCHAR) APPEND ONLY".to_owned(),
        "CREATE TABLE changes (k BIGINT PRIMARY KEY, v VARCHAR)".to_owned(),
        format!("CREATE SINK grown FROM grows WITH ({})", into("grown")),
        format!("CREATE SINK changed FROM changes WITH ({}, type = 'upsert', primary_key = 'k')", into("changed")),
        format!(
            "CREATE SINK written FROM grows WITH (connector = 'fs', fs.path = '{}', commit_interval = '20ms') \
             FORMAT PLAIN ENCODE JSON",
            files.display()
        ),
    ] {
        client.batch_execute(&sql).await.context(sql)?;
    }
    for _ in 0..KILLS {
        let client = server.connect().await?;
        let mut writes = StdRng::seed_from_u64(rng.random());
        let writer = tokio::spawn(async move { write(&client, &mut writes, usize::MAX).await });
        // A moment for the crash, not a wait for anything.
        tokio::time::sleep(Duration::from_millis(rng.random_range(50..500))).await;
        server.kill()?;
        writer.await?;
        server.restart().await?;
        let client = server.connect().await?;
        delivered(&client).await?;
        let grows = rows(&client, "SELECT k, v FROM grows").await?;
        same("grown", &rows(&destination, "SELECT k, v FROM grown").await?, &grows)?;
        same("files", &rows_of_files(&files)?, &grows)?;
        let changes = rows(&client, "SELECT k, v FROM changes").await?;
        same("changed", &rows(&destination, "SELECT k, v FROM changed").await?, &changes)?;
    }
    // Another name is not another sink.
    let client = server.connect().await?;
    client.batch_execute("ALTER SINK grown RENAME TO other; ALTER SINK written RENAME TO others").await?;
    server.kill()?;
    server.restart().await?;
    let client = server.connect().await?;
    client.batch_execute("INSERT INTO grows VALUES (-1, 'renamed')").await?;
    delivered(&client).await?;
    let grows = rows(&client, "SELECT k, v FROM grows").await?;
    same("grown", &rows(&destination, "SELECT k, v FROM grown").await?, &grows)?;
    same("files", &rows_of_files(&files)?, &grows)?;
    server.stop().await
}

#[tokio::test(flavor = "multi_thread")]
async fn files_and_tables_through_kills() {
    is_killed().await.unwrap_or_else(|error| panic!("{error:#}"));
}

/// The first process stands still, the second one goes on with a copy of its data and the same meta store.
async fn is_taken_over() -> Result<()> {
    let outside = postgres::Server::shared();
    outside.connect().await.batch_execute("CREATE DATABASE meta").await?;
    let url = format!("postgres://postgres@127.0.0.1:{}/meta", outside.port);
    let mut first = Server::prepare()?;
    first.args = vec!["--meta-store".into(), url.clone()];
    first.restart().await?;
    let files = first.dir().join("files");
    let client = first.connect().await?;
    client.batch_execute("CREATE TABLE grows (k BIGINT, v VARCHAR) APPEND ONLY").await?;
    let sink = format!(
        "CREATE SINK written FROM grows WITH (connector = 'fs', fs.path = '{}', commit_interval = '20ms') \
         FORMAT PLAIN ENCODE JSON",
        files.display()
    );
    client.batch_execute(&sink).await?;
    client.batch_execute("INSERT INTO grows SELECT i, 'first' FROM generate_series(1, 100) AS s(i)").await?;
    delivered(&client).await?;
    first.signal("-STOP")?;

    let mut second = Server::prepare()?;
    second.args = first.args.clone();
    second.take_copy_of(&first)?;
    second.restart().await?;
    let client = second.connect().await?;
    client.batch_execute("INSERT INTO grows VALUES (101, 'second')").await?;
    delivered(&client).await?;
    let expected = rows(&client, "SELECT k, v FROM grows").await?;
    same("files", &rows_of_files(&files)?, &expected)?;

    first.signal("-CONT")?;
    let late = first.connect().await?;
    late.batch_execute("INSERT INTO grows VALUES (102, 'late')").await?;
    let stopped = "SELECT count(*) FROM weir_catalog.sinks WHERE state = 'stopped' AND last_error LIKE '%taken over%'";
    wait_for(&late, stopped, "1").await?;
    first.kill()?;
    same("files", &rows_of_files(&files)?, &expected)?;
    second.stop().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_lost_its_place_learns_so() {
    is_taken_over().await.unwrap_or_else(|error| panic!("{error:#}"));
}
