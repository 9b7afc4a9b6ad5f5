//! Sinks through crashes: what others read at the destination is what the query gives, each row once.
//!
//! `WEIR_KILLS=150 WEIR_SEED=n` for more and other kills. Needs a server with the feature `failpoints`, and `WEIR_PYTHON`: the
//! interpreter that `scripts/python.sh` makes.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use weir_e2e::Server;
use weir_e2e::rows::{difference, rows, wait_for};
use weir_e2e::traffic::{delivered, write};

const SIGABRT: i32 = 6;

/// The points at which a delivery can end, in the order of a commit.
const POINTS: [&str; 9] = [
    "sink::flush::before",
    "sink::flush::after",
    "sink::record::before",
    "sink::record::after",
    "sink::commit::before",
    "sink::commit::after",
    "sink::settle::before",
    "sink::settle::within",
    "sink::settle::after",
];

/// What others see of a table.
#[derive(Debug)]
struct Seen {
    rows: BTreeMap<String, usize>,
    same: Option<bool>,
    commits: (u64, u64),
    orphans: Vec<String>,
}

fn python() -> String {
    std::env::var("WEIR_PYTHON").unwrap_or_else(|_| {
        let home = std::env::var("HOME").unwrap_or_default();
        format!("{home}/.cache/weir/python/bin/python")
    })
}

fn seen(dir: &Path, table: &str) -> Result<Seen> {
    let root = std::env::var("CARGO_MANIFEST_DIR").context("cargo says where the package is")?;
    let script = Path::new(&root).join("tests/iceberg_table.py");
    let dir = dir.display();
    let output = Command::new(python())
        .arg(script)
        .args([format!("sqlite:///{dir}/catalog.db"), format!("{dir}/warehouse"), table.to_owned()])
        .output()
        .context("run Python: is scripts/python.sh done?")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let texts = |key: &str| json[key].as_array().into_iter().flatten().filter_map(|v| v.as_str().map(str::to_owned));
    let mut counted = BTreeMap::new();
    texts("rows").for_each(|row| *counted.entry(row).or_default() += 1);
    Ok(Seen {
        rows: counted,
        same: json["same"].as_bool(),
        commits: (json["commits"][0].as_u64().unwrap_or(0), json["commits"][1].as_u64().unwrap_or(0)),
        orphans: texts("orphans").collect(),
    })
}

/// Makes a table that only grows and one that changes, with a sink from each.
async fn prepared(mut server: Server, interval: &str) -> Result<Server> {
    server.restart().await?;
    let client = server.connect().await?;
    let dir = server.dir().display().to_string();
    let sink = |name: &str, from: &str, more: &str| {
        format!(
            "CREATE SINK {name} FROM {from} WITH (connector = 'iceberg', warehouse.path = '{dir}/warehouse', \
             catalog.type = 'sql', catalog.uri = 'sqlite:///{dir}/catalog.db', database.name = 'd', \
             table.name = '{name}', create_table_if_not_exists = 'true', commit_interval = '{interval}' {more})"
        )
    };
    for sql in [
        "CREATE TABLE grows (k BIGINT, v VARCHAR) APPEND ONLY".to_owned(),
        "CREATE TABLE changes (k BIGINT PRIMARY KEY, v VARCHAR)".to_owned(),
        "INSERT INTO grows VALUES (1, 'a'), (2, NULL); INSERT INTO changes VALUES (1, 'a'), (2, NULL)".to_owned(),
        sink("appended", "grows", ""),
        sink("upserted", "changes", ", type = 'upsert', primary_key = 'k'"),
    ] {
        client.batch_execute(&sql).await.context(sql)?;
    }
    delivered(&client).await?;
    Ok(server)
}

/// Both tables hold what the relations hold, each commit once, and nothing else is left.
async fn check(server: &Server) -> Result<()> {
    check_in(server, server.dir()).await
}

/// The same, with catalog and warehouse in another directory.
async fn check_in(server: &Server, dir: &Path) -> Result<()> {
    let client = server.connect().await?;
    delivered(&client).await?;
    wait_for(&client, "SELECT count(*) FROM weir_catalog.pending_sink_commits", "0").await?;
    for (sink, from) in [("appended", "grows"), ("upserted", "changes")] {
        let found = seen(dir, &format!("d.{sink}"))?;
        let expected = rows(&client, &format!("SELECT k, v FROM {from}")).await?;
        ensure!(found.rows == expected, "{sink}:\n{}", difference(&found.rows, &expected));
        ensure!(found.same != Some(false), "{sink}: PyIceberg and DuckDB differ");
        ensure!(found.commits.0 == found.commits.1, "{sink}: a commit was carried out twice: {:?}", found.commits);
        ensure!(found.orphans.is_empty(), "{sink}: {:?}", found.orphans);
    }
    let unwell = "SELECT name, last_error FROM weir_catalog.sinks WHERE last_error IS NOT NULL";
    let unwell = rows(&client, unwell).await?;
    ensure!(unwell.is_empty(), "{unwell:?}");
    Ok(())
}

async fn dies_at(point: &str) -> Result<()> {
    let mut rng = StdRng::seed_from_u64(7);
    let mut server = prepared(Server::prepare()?, "50ms").await?;
    server.kill()?;
    server.env = vec![("FAILPOINTS".into(), format!("{point}=2*off->return"))];
    server.restart().await?;
    let client = server.connect().await?;
    write(&client, &mut rng, 100_000).await;
    let status = server.ended().await?;
    ensure!(status.signal() == Some(SIGABRT), "ended with {status}:\n{}", server.log_tail());
    server.env.clear();
    server.restart().await?;
    let client = server.connect().await?;
    write(&client, &mut rng, 10).await;
    check(&server).await?;
    server.stop().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_death_at_each_step_of_a_commit() {
    for point in POINTS {
        dies_at(point).await.unwrap_or_else(|error| panic!("{point}: {error:#}"));
    }
}

async fn is_killed(kills: usize, seed: u64) -> Result<()> {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut server = prepared(Server::prepare()?, "30ms").await?;
    for kill in 0..kills {
        let client = server.connect().await?;
        let mut writes = StdRng::seed_from_u64(rng.random());
        let writer = tokio::spawn(async move { write(&client, &mut writes, usize::MAX).await });
        // A moment for the crash, not a wait for anything.
        tokio::time::sleep(Duration::from_millis(rng.random_range(20..600))).await;
        server.kill()?;
        writer.await?;
        server.restart().await?;
        if kill % 5 == 4 || kill + 1 == kills {
            check(&server).await.with_context(|| format!("after kill {kill}"))?;
        }
    }
    server.stop().await
}

/// A process stands still, another one takes its sinks over with a copy of its data, and then the first one goes on.
async fn is_taken_over(seed: u64) -> Result<()> {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut first = prepared(Server::prepare()?, "20ms").await?;
    let dir = first.dir().to_path_buf();
    let client = first.connect().await?;
    let mut writes = StdRng::seed_from_u64(seed);
    let writer = tokio::spawn(async move { write(&client, &mut writes, 40).await });
    // A moment somewhere in its work, not a wait for anything.
    tokio::time::sleep(Duration::from_millis(rng.random_range(100..900))).await;
    first.signal("-STOP")?;

    let mut second = Server::prepare()?;
    second.take_copy_of(&first)?;
    second.restart().await?;
    let client = second.connect().await?;
    write(&client, &mut rng, 10).await;
    check_in(&second, &dir).await?;

    first.signal("-CONT")?;
    writer.await?;
    let client = first.connect().await?;
    client.batch_execute("INSERT INTO grows VALUES (-1, 'late'); INSERT INTO changes VALUES (-1, 'late')").await?;
    let stopped = "SELECT count(*) FROM weir_catalog.sinks WHERE state = 'stopped' AND last_error LIKE '%taken over%'";
    wait_for(&client, stopped, "2").await?;
    first.kill()?;
    // What the first one has written in vain is cleaned up by the next start.
    second.kill()?;
    second.restart().await?;
    check_in(&second, &dir).await?;
    second.stop().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_was_taken_for_dead_does_no_harm() {
    for seed in 1..=3 {
        is_taken_over(seed).await.unwrap_or_else(|error| panic!("seed {seed}: {error:#}"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn random_kills() {
    let number = |name: &str, default| std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(default);
    let (kills, seed) = (number("WEIR_KILLS", 10), number("WEIR_SEED", 1));
    is_killed(kills as usize, seed).await.unwrap_or_else(|error| panic!("seed {seed}: {error:#}"));
}
