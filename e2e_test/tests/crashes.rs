//! The process dies at each durable step; after a restart that step has happened wholly or not at all.
//!
//! ```text
//! prepare ──> start with a failpoint ──> statement: the process aborts ──> start ──> what is there? does it go on?
//! ```
//!
//! Needs a server with the feature `failpoints`.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;

use anyhow::{Context, Result, ensure};
use tokio_postgres::Client;
use weir_e2e::Server;
use weir_e2e::rows::{difference, rows};

const SIGABRT: i32 = 6;

const PREPARATION: [&str; 5] = [
    "CREATE SCHEMA old",
    "CREATE TABLE t (id INT PRIMARY KEY, v INT)",
    "INSERT INTO t VALUES (1, 10), (2, 20)",
    "CREATE MATERIALIZED VIEW m AS SELECT count(*) AS c, sum(v) AS s FROM t",
    // All is committed, so that the next commit is that of the statement under test.
    "FLUSH",
];

/// The views that a statement under test or the preparation makes.
const VIEWS: [(&str, &str); 2] =
    [("m", "SELECT count(*) AS c, sum(v) AS s FROM t"), ("n", "SELECT v, count(*) AS c FROM t GROUP BY v")];

const CREATE_N: &str = "CREATE MATERIALIZED VIEW n AS SELECT v, count(*) AS c FROM t GROUP BY v";
const CREATE_N_IN_BACKGROUND: &str =
    "SET background_ddl = true; CREATE MATERIALIZED VIEW n AS SELECT v, count(*) AS c FROM t GROUP BY v";
const CREATE_W: &str = "CREATE TABLE w (id INT PRIMARY KEY)";
/// With the rows that the view of that name would have.
const CREATE_N_AS: &str = "CREATE TABLE n AS SELECT v, count(*) AS c FROM t GROUP BY v";

/// Names of what exists, and the rows of `t`.
struct Expected {
    objects: &'static [&'static str],
    rows: &'static [&'static str],
}

const UNCHANGED: Expected = Expected { objects: &["m", "t"], rows: &["1 | 10", "2 | 20"] };
const INSERTED: Expected = Expected { objects: &["m", "t"], rows: &["1 | 10", "2 | 20", "3 | 30"] };
const WITH_N: Expected = Expected { objects: &["m", "n", "t"], ..UNCHANGED };
const WITH_W: Expected = Expected { objects: &["m", "t", "w"], ..UNCHANGED };
const WITHOUT_M: Expected = Expected { objects: &["t"], ..UNCHANGED };
const RENAMED: Expected = Expected { objects: &["t", "x"], ..UNCHANGED };
const NOTHING: Expected = Expected { objects: &[], rows: &[] };

/// Sets a failpoint to end the process when it is passed once more than `passes` times, starts the server, and waits
/// for its end: by itself, or in a statement.
async fn crash(server: &mut Server, point: &str, passes: usize, statement: Option<&str>) -> Result<()> {
    let first = if passes == 0 { String::new() } else { format!("{passes}*off->") };
    server.env = vec![("FAILPOINTS".into(), format!("{point}={first}return"))];
    match statement {
        None => server.launch()?,
        Some(sql) => {
            server.restart().await?;
            let client = server.connect().await?;
            // The answer may come before the end; an error does not.
            if let Err(error) = client.simple_query(sql).await {
                ensure!(error.as_db_error().is_none(), "{sql}: {error:?}");
            }
        }
    }
    let status = server.ended().await?;
    ensure!(status.signal() == Some(SIGABRT), "ended with {status}:\n{}", server.log_tail());
    server.env.clear();
    Ok(())
}

async fn prepared() -> Result<Server> {
    let mut server = Server::start().await?;
    let client = server.connect().await?;
    for sql in PREPARATION {
        client.batch_execute(sql).await.context(sql)?;
    }
    server.kill()?;
    Ok(server)
}

fn multiset(rows: &[&str]) -> BTreeMap<String, usize> {
    rows.iter().map(|row| (row.to_string(), 1)).collect()
}

async fn check_rows(client: &Client, sql: &str, expected: &BTreeMap<String, usize>) -> Result<()> {
    let found = rows(client, sql).await?;
    ensure!(found == *expected, "{sql}:\n{}", difference(&found, expected));
    Ok(())
}

/// Starts the server again and looks at what is there; then makes what is not, and changes it.
async fn check(server: &mut Server, expected: &Expected) -> Result<()> {
    server.restart().await?;
    let client = server.connect().await?;
    check_rows(&client, "SELECT name FROM weir_catalog.objects", &multiset(expected.objects)).await?;
    let is_there = |name: &str| expected.objects.contains(&name);
    if is_there("t") {
        check_rows(&client, "SELECT * FROM t", &multiset(expected.rows)).await?;
    } else {
        client.batch_execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)").await?;
        check_rows(&client, "SELECT * FROM t", &multiset(&[])).await?;
    }
    client.batch_execute("WAIT").await?;
    check_views(&client, is_there).await?;
    for (name, query) in VIEWS.iter().filter(|(name, _)| !is_there(name)) {
        client.batch_execute(&format!("CREATE MATERIALIZED VIEW {name} AS {query}")).await.context(*name)?;
    }
    check_views(&client, |_| true).await?;
    client.batch_execute("INSERT INTO t VALUES (1, 11), (4, 20); UPDATE t SET v = v + 1 WHERE id = 2").await?;
    let mut changed = multiset(expected.rows);
    changed.retain(|row, _| !["1 | 10", "2 | 20"].contains(&row.as_str()));
    changed.extend(multiset(&["1 | 11", "4 | 20"]));
    changed.extend(expected.rows.contains(&"2 | 20").then(|| ("2 | 21".to_string(), 1)));
    check_rows(&client, "SELECT * FROM t", &changed).await?;
    check_views(&client, |_| true).await?;
    check_rows(&client, "SELECT name, last_error FROM weir_catalog.jobs WHERE failures > 0", &multiset(&[])).await
}

async fn check_views(client: &Client, among: impl Fn(&str) -> bool) -> Result<()> {
    for (name, query) in VIEWS.iter().filter(|(name, _)| among(name)) {
        check_rows(client, &format!("SELECT * FROM {name}"), &rows(client, query).await?).await?;
    }
    Ok(())
}

/// The process dies at a point, passed so many times before, in a statement; what is there then.
type Case = (&'static str, usize, &'static str, Expected);

async fn check_all(cases: impl IntoIterator<Item = Case>) {
    for (point, passes, statement, expected) in cases {
        let run = async {
            let mut server = prepared().await?;
            crash(&mut server, point, passes, Some(statement)).await?;
            check(&mut server, &expected).await
        };
        let result: Result<()> = run.await;
        result.unwrap_or_else(|error| panic!("{point} after {passes} passes, {statement}: {error:#}"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_happens_with_the_commit_of_its_table() {
    let insert = "INSERT INTO t VALUES (3, 30)";
    check_all([
        ("storage::commit::before", 0, insert, UNCHANGED),
        ("storage::commit::after", 0, insert, INSERTED),
        // The commit of the view.
        ("storage::commit::before", 1, insert, INSERTED),
        ("storage::commit::after", 1, insert, INSERTED),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_view_is_there_whole_or_not_at_all() {
    check_all([
        ("meta::allocate_ids::before", 0, CREATE_N, UNCHANGED),
        ("meta::allocate_ids::after", 0, CREATE_N, UNCHANGED),
        ("meta::insert::before", 0, CREATE_N, UNCHANGED),
        // Nobody waits any more for what was only begun.
        ("meta::insert::after", 0, CREATE_N, UNCHANGED),
        ("storage::commit::before", 0, CREATE_N, UNCHANGED),
        ("storage::commit::after", 0, CREATE_N, UNCHANGED),
        ("storage::commit::before", 1, CREATE_N, UNCHANGED),
        ("storage::commit::after", 1, CREATE_N, UNCHANGED),
        ("meta::set_created::before", 0, CREATE_N, UNCHANGED),
        ("meta::set_created::after", 0, CREATE_N, WITH_N),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_view_in_the_background_is_there_once_it_is_registered() {
    check_all([
        ("meta::insert::before", 0, CREATE_N_IN_BACKGROUND, UNCHANGED),
        ("meta::insert::after", 0, CREATE_N_IN_BACKGROUND, WITH_N),
        ("storage::commit::before", 0, CREATE_N_IN_BACKGROUND, WITH_N),
        ("storage::commit::after", 0, CREATE_N_IN_BACKGROUND, WITH_N),
        ("storage::commit::before", 1, CREATE_N_IN_BACKGROUND, WITH_N),
        ("storage::commit::after", 1, CREATE_N_IN_BACKGROUND, WITH_N),
        ("meta::set_created::before", 0, CREATE_N_IN_BACKGROUND, WITH_N),
        ("meta::set_created::after", 0, CREATE_N_IN_BACKGROUND, WITH_N),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_is_there_or_not() {
    check_all([
        ("meta::insert::before", 0, CREATE_W, UNCHANGED),
        ("meta::insert::after", 0, CREATE_W, UNCHANGED),
        ("storage::commit::before", 0, CREATE_W, UNCHANGED),
        ("storage::commit::after", 0, CREATE_W, UNCHANGED),
        ("meta::set_created::before", 0, CREATE_W, UNCHANGED),
        ("meta::set_created::after", 0, CREATE_W, WITH_W),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_as_a_query_is_there_with_its_rows_or_not_at_all() {
    let run = async {
        for (point, with_rows) in [
            ("meta::insert::after", false),
            ("storage::commit::before", false),
            ("storage::commit::after", false),
            ("meta::set_created::before", false),
            ("meta::set_created::after", true),
        ] {
            let mut server = prepared().await?;
            crash(&mut server, point, 0, Some(CREATE_N_AS)).await?;
            server.restart().await?;
            let client = server.connect().await?;
            let n = &["n"][..];
            check_rows(
                &client,
                "SELECT name FROM weir_catalog.objects WHERE name = 'n'",
                &multiset(if with_rows { n } else { &[] }),
            )
            .await
            .with_context(|| point.to_owned())?;
            if with_rows {
                check_rows(&client, "SELECT * FROM n", &multiset(&["10 | 1", "20 | 1"])).await?;
                client.batch_execute("DROP TABLE n").await?;
            }
            server.kill()?;
            check(&mut server, &UNCHANGED).await?;
        }
        Ok(())
    };
    let result: Result<()> = run.await;
    result.unwrap_or_else(|error| panic!("{error:#}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_alter_happens_with_its_catalog_transaction() {
    let (rename, rescale) = ("ALTER MATERIALIZED VIEW m RENAME TO x", "ALTER TABLE t SET PARALLELISM = 3");
    check_all([
        ("meta::update::before", 0, rename, UNCHANGED),
        ("meta::update::within", 0, rename, UNCHANGED),
        ("meta::update::after", 0, rename, RENAMED),
        ("meta::update::before", 0, rescale, UNCHANGED),
        ("meta::update::within", 0, rescale, UNCHANGED),
        ("meta::update::after", 0, rescale, UNCHANGED),
        // The first epoch of the new actors.
        ("storage::commit::before", 0, "ALTER TABLE t SET PARALLELISM = 3; INSERT INTO t VALUES (3, 30)", UNCHANGED),
        ("storage::commit::after", 0, "ALTER TABLE t SET PARALLELISM = 3; INSERT INTO t VALUES (3, 30)", INSERTED),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_view_is_replaced_or_not() {
    let run = async {
        for (point, replaced) in [
            ("meta::set_created::after", false),
            ("meta::update::before", false),
            ("meta::update::within", false),
            ("meta::update::after", true),
            ("storage::drop_tables::before", true),
            ("storage::drop_tables::after", true),
        ] {
            let mut server = prepared().await?;
            let replace = "CREATE OR REPLACE MATERIALIZED VIEW m AS SELECT v FROM t";
            crash(&mut server, point, 0, Some(replace)).await?;
            server.restart().await?;
            let client = server.connect().await?;
            let (query, columns) = match replaced {
                true => ("SELECT v FROM t", &["10", "20"][..]),
                false => ("SELECT count(*) AS c, sum(v) AS s FROM t", &["2 | 30"][..]),
            };
            let of = || format!("{point}: replaced {replaced}");
            check_rows(&client, "SELECT name FROM weir_catalog.objects", &multiset(&["m", "t"]))
                .await
                .with_context(of)?;
            check_rows(&client, "SELECT * FROM m", &multiset(columns)).await.with_context(of)?;
            client.batch_execute("INSERT INTO t VALUES (7, 70)").await?;
            check_rows(&client, "SELECT * FROM m", &rows(&client, query).await?).await.with_context(of)?;
        }
        Ok(())
    };
    let result: Result<()> = run.await;
    result.unwrap_or_else(|error| panic!("{error:#}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drop_happens_with_its_catalog_transaction() {
    let (drop, drop_all) = ("DROP MATERIALIZED VIEW m", "DROP TABLE t CASCADE");
    check_all([
        ("meta::delete::before", 0, drop, UNCHANGED),
        ("meta::delete::within", 0, drop, UNCHANGED),
        ("meta::delete::after", 0, drop, WITHOUT_M),
        ("storage::drop_tables::before", 0, drop, WITHOUT_M),
        ("storage::drop_tables::after", 0, drop, WITHOUT_M),
        ("meta::delete::before", 0, drop_all, UNCHANGED),
        ("meta::delete::within", 0, drop_all, UNCHANGED),
        ("meta::delete::after", 0, drop_all, NOTHING),
        // The view is removed before the table.
        ("storage::drop_tables::before", 0, drop_all, NOTHING),
        ("storage::drop_tables::after", 0, drop_all, NOTHING),
        ("storage::drop_tables::before", 1, drop_all, NOTHING),
        ("storage::drop_tables::after", 1, drop_all, NOTHING),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_clears_up_can_be_cut_short() {
    for point in [
        "meta::delete::before",
        "meta::delete::within",
        "meta::delete::after",
        "storage::retain::before",
        "storage::retain::after",
    ] {
        let run = async {
            let mut server = prepared().await?;
            // State and a catalog entry of a view that was never created.
            crash(&mut server, "meta::set_created::before", 0, Some(CREATE_N)).await?;
            crash(&mut server, point, 0, None).await?;
            check(&mut server, &UNCHANGED).await
        };
        let result: Result<()> = run.await;
        result.unwrap_or_else(|error| panic!("{point}: {error:#}"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_truncated_log_is_not_missed() {
    for point in ["storage::truncate_log::before", "storage::truncate_log::after"] {
        let run = async {
            let mut server = prepared().await?;
            // The view reads it and its log is truncated, soon after the answer.
            crash(&mut server, point, 0, Some("INSERT INTO t VALUES (3, 30)")).await?;
            check(&mut server, &INSERTED).await
        };
        let result: Result<()> = run.await;
        result.unwrap_or_else(|error| panic!("{point}: {error:#}"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_schema_is_there_or_not() {
    for (point, statement, schemas) in [
        ("meta::insert_schema::before", "CREATE SCHEMA new", &["old"][..]),
        ("meta::insert_schema::after", "CREATE SCHEMA new", &["new", "old"]),
        ("meta::delete_schema::before", "DROP SCHEMA old", &["old"]),
        ("meta::delete_schema::after", "DROP SCHEMA old", &[]),
    ] {
        let run = async {
            let mut server = prepared().await?;
            crash(&mut server, point, 0, Some(statement)).await?;
            server.restart().await?;
            let client = server.connect().await?;
            let sql = "SELECT nspname FROM pg_namespace WHERE nspname IN ('new', 'old')";
            check_rows(&client, sql, &multiset(schemas)).await?;
            server.kill()?;
            check(&mut server, &UNCHANGED).await
        };
        let result: Result<()> = run.await;
        result.unwrap_or_else(|error| panic!("{point}: {error:#}"));
    }
}
