//! Sessions on a real meta service and store: SQL in, rows out as text.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use futures::TryStreamExt;
use tempfile::TempDir;
use weir_common::text::write_value;
use weir_meta::MetaOptions;
use weir_storage::{MemoryLimit, Store, StoreOptions};
use weir_stream::job::Engine;

use super::*;

struct Database {
    meta: Arc<Meta>,
    _folder: TempDir,
}

impl Database {
    async fn open() -> Database {
        let folder = tempfile::tempdir().unwrap();
        let options = StoreOptions {
            block_cache_bytes: 8 << 20,
            tail_bytes: 8 << 20,
            uncommitted_bytes: 8 << 20,
            epoch_bytes: 64 << 20,
            sync: false,
        };
        let store = Store::open(&folder.path().join("store"), options).unwrap();
        let memory = Arc::new(MemoryLimit::new(256 << 20));
        let options = MetaOptions {
            meta_store: format!("sqlite://{}?mode=rwc", folder.path().join("meta.db").display()),
            barrier_interval: Duration::from_millis(200),
            wait_timeout: Duration::from_secs(10),
        };
        let meta = Meta::open(options, Engine { store, memory, courtesy: Arc::default() }).await.unwrap();
        Database { meta, _folder: folder }
    }

    fn session(&self) -> Arc<Session> {
        Session::new(self.meta.clone(), &BTreeMap::from([("user".to_string(), "root".to_string())])).unwrap()
    }
}

/// The result of the last statement: rows as `a|b` lines, or the tag; notices in front.
async fn run(session: &Session, sql: &str) -> Result<String> {
    let all = async {
        let mut last = String::new();
        for statement in session.parse(sql)? {
            last = shown(session, session.run(&statement).await?).await?;
        }
        Ok(last)
    };
    // As the protocol does: rows may fail after the statement is done.
    all.await.inspect_err(|_| session.abort())
}

async fn shown(session: &Session, reply: Reply) -> Result<String> {
    match reply {
        Reply::Rows { batches, columns, .. } => {
            let batches: Vec<_> = batches.try_collect().await?;
            let mut lines = Vec::new();
            for batch in &batches {
                for row in 0..batch.num_rows() {
                    let cell = |(column, output): (&arrow::array::ArrayRef, &OutputColumn)| {
                        if column.is_null(row) {
                            return "NULL".to_string();
                        }
                        let format = TextFormat { declared_scale: output.declared_scale, ..session.text_format() };
                        let mut text = String::new();
                        write_value(column, row, &format, &mut text);
                        text
                    };
                    lines.push(batch.columns().iter().zip(&columns).map(cell).collect::<Vec<_>>().join("|"));
                }
            }
            Ok(lines.join("\n"))
        }
        Reply::Command { tag, notices } => {
            let notices: String = notices.iter().map(|n| format!("{}\n", n.message)).collect();
            Ok(format!("{notices}{tag}"))
        }
        Reply::Empty => Ok(String::new()),
        Reply::CopyOut { .. } | Reply::CopyIn { .. } => Ok("COPY".to_string()),
    }
}

async fn check(session: &Session, sql: &str, expected: &str) {
    match run(session, sql).await {
        Ok(found) => assert_eq!(found, expected, "{sql}"),
        Err(error) => panic!("{sql}: {} {} {:?}", error.state.0, error.message, error.detail),
    }
}

async fn fails(session: &Session, sql: &str, state: &str, message: &str) {
    match run(session, sql).await {
        Ok(found) => panic!("{sql}: {found}"),
        Err(error) => assert_eq!((error.state.0, error.message.as_str()), (state, message), "{sql}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_and_reads() {
    let db = Database::open().await;
    let s = db.session();
    check(&s, "SELECT 1, 'a', NULL", "1|a|NULL").await;
    check(&s, "CREATE TABLE t (k int PRIMARY KEY, v varchar, n numeric(10,2) DEFAULT 1.5)", "CREATE TABLE").await;
    check(&s, "INSERT INTO t VALUES (1, 'a', 2), (2, NULL, '3.456')", "INSERT 0 2").await;
    check(&s, "INSERT INTO t (v, k) VALUES ('c', 1 + 2)", "INSERT 0 1").await;
    check(&s, "SELECT * FROM t ORDER BY k", "1|a|2.00\n2|NULL|3.46\n3|c|1.50").await;
    check(&s, "SELECT v FROM t WHERE k = 3", "c").await;
    check(&s, "SELECT k FROM t WHERE k IN (1, 3, 5) ORDER BY k", "1\n3").await;
    check(&s, "INSERT INTO t VALUES (1, 'again') RETURNING k, v || '!'", "1|again!").await;
    check(&s, "UPDATE t SET v = v || k, n = DEFAULT WHERE k < 3 RETURNING *", "1|again1|1.50\n2|NULL|1.50").await;
    check(&s, "UPDATE t SET k = k + 1", "UPDATE 3").await;
    check(&s, "SELECT k, v FROM t ORDER BY k", "2|again1\n3|NULL\n4|c").await;
    check(&s, "UPDATE t SET v = u.x FROM (VALUES (2, 'two'), (4, 'four')) AS u(y, x) WHERE u.y = t.k", "UPDATE 2")
        .await;
    check(&s, "DELETE FROM t WHERE v IS NULL", "DELETE 1").await;
    check(&s, "SELECT k, v FROM t ORDER BY k", "2|two\n4|four").await;
    check(&s, "INSERT INTO t SELECT k + 10, v FROM t", "INSERT 0 2").await;
    check(&s, "SELECT count(*), sum(k) FROM t", "4|32").await;
    fails(&s, "UPDATE t SET k = 4 WHERE k = 2", "23505", "duplicate key value violates unique constraint \"t_pkey\"")
        .await;
    fails(
        &s,
        "INSERT INTO t VALUES (NULL, 'x')",
        "23502",
        "null value in column \"k\" of relation \"t\" violates not-null constraint",
    )
    .await;
    fails(&s, "INSERT INTO t (k) VALUES ('x')", "22P02", "invalid input syntax for type integer: \"x\"").await;
    fails(
        &s,
        "INSERT INTO t (k) VALUES (true)",
        "42804",
        "column \"k\" is of type integer but expression is of type boolean",
    )
    .await;
    fails(&s, "INSERT INTO t (k, k) VALUES (1, 2)", "42701", "column \"k\" specified more than once").await;
    fails(&s, "INSERT INTO t VALUES (1, 2, 3, 4)", "42601", "INSERT has more expressions than target columns").await;
    fails(&s, "SELECT x FROM t", "42703", "column \"x\" does not exist").await;
    fails(&s, "SELECT * FROM nothing", "42P01", "relation \"nothing\" does not exist").await;
    fails(&s, "SELECT 1 / 0", "22012", "division by zero").await;
    fails(&s, "SELECT nofunc(1)", "42883", "function nofunc does not exist").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_without_key_and_generated_columns() {
    let db = Database::open().await;
    let s = db.session();
    check(&s, "CREATE TABLE d (v int, w int, twice int AS v * 2)", "CREATE TABLE").await;
    check(&s, "INSERT INTO d VALUES (1, 1), (1, 1), (2, 2)", "INSERT 0 3").await;
    check(&s, "SELECT * FROM d ORDER BY v", "1|1|2\n1|1|2\n2|2|4").await;
    check(&s, "UPDATE d SET v = 5 WHERE v = 2 RETURNING twice", "10").await;
    check(&s, "DELETE FROM d WHERE v = 1", "DELETE 2").await;
    check(&s, "SELECT * FROM d", "5|2|10").await;
    check(&s, "INSERT INTO d (w) VALUES (7)", "INSERT 0 1").await;
    check(&s, "SELECT * FROM d ORDER BY v", "5|2|10\nNULL|7|NULL").await;
    check(&s, "CREATE TABLE e AS SELECT v, w AS x FROM d", "SELECT 2").await;
    check(&s, "SELECT * FROM e ORDER BY x", "5|2\nNULL|7").await;
    check(&s, "INSERT INTO e DEFAULT VALUES", "INSERT 0 1").await;
    check(&s, "SELECT count(*) FROM e", "3").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn views_follow_and_read_own_writes() {
    let db = Database::open().await;
    let s = db.session();
    check(&s, "CREATE TABLE t (k int PRIMARY KEY, g int, v bigint)", "CREATE TABLE").await;
    check(&s, "INSERT INTO t SELECT i, i % 3, i FROM generate_series(1, 100) AS s(i)", "INSERT 0 100").await;
    check(
        &s,
        "CREATE MATERIALIZED VIEW m AS SELECT g, count(*) AS n, sum(v) AS s FROM t GROUP BY g",
        "CREATE MATERIALIZED VIEW",
    )
    .await;
    check(&s, "SELECT * FROM m ORDER BY g", "0|33|1683\n1|34|1717\n2|33|1650").await;
    check(&s, "CREATE VIEW p (a, b) AS SELECT n, g FROM m", "CREATE VIEW").await;
    check(&s, "CREATE MATERIALIZED VIEW mm AS SELECT sum(a) AS total FROM p", "CREATE MATERIALIZED VIEW").await;
    for i in 0..5 {
        check(&s, &format!("INSERT INTO t VALUES ({}, 0, 1)", 1000 + i), "INSERT 0 1").await;
        check(&s, "SELECT total FROM mm", &(101 + i).to_string()).await;
        check(&s, "SELECT a FROM p WHERE b = 0", &(34 + i).to_string()).await;
    }
    check(&s, "CREATE INDEX ON t (g) INCLUDE (v)", "CREATE INDEX").await;
    check(&s, "SHOW INDEXES FROM t", "t_g_idx|t|g|v|g").await;
    check(&s, "FLUSH", "FLUSH").await;
    check(&s, "CREATE SINK k FROM m WITH (connector = 'blackhole')", "CREATE SINK").await;
    fails(&s, "DROP TABLE t", "2BP01", "cannot drop table t because other objects depend on it").await;
    fails(&s, "DROP VIEW m", "42809", "\"m\" is not a view").await;
    check(&s, "DROP TABLE IF EXISTS nothing", "table \"nothing\" does not exist, skipping\nDROP TABLE").await;
    check(&s, "DROP VIEW p CASCADE", "drop cascades to materialized view mm\nDROP VIEW").await;
    check(&s, "DROP TABLE t CASCADE", "drop cascades to 2 other objects\nDROP TABLE").await;
    check(&s, "SHOW TABLES", "").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blocks() {
    let db = Database::open().await;
    let (s, other) = (db.session(), db.session());
    check(&s, "CREATE TABLE t (k int PRIMARY KEY, v int); CREATE TABLE d (v int)", "CREATE TABLE").await;
    check(&s, "INSERT INTO t VALUES (1, 1), (2, 2); BEGIN", "BEGIN").await;
    check(&s, "INSERT INTO t VALUES (3, 3); INSERT INTO d VALUES (1), (2)", "INSERT 0 2").await;
    check(&s, "UPDATE t SET v = v * 10 WHERE k > 1; DELETE FROM t WHERE k = 1", "DELETE 1").await;
    check(&s, "UPDATE d SET v = 20 WHERE v = 2", "UPDATE 1").await;
    check(&s, "SELECT * FROM t ORDER BY k", "2|20\n3|30").await;
    check(&s, "SELECT * FROM d ORDER BY v", "1\n20").await;
    check(&other, "SELECT * FROM t ORDER BY k", "1|1\n2|2").await;
    check(&s, "COMMIT", "COMMIT").await;
    check(&other, "SELECT * FROM t ORDER BY k", "2|20\n3|30").await;
    check(&other, "SELECT * FROM d ORDER BY v", "1\n20").await;
    check(&s, "BEGIN; DELETE FROM t; ROLLBACK; SELECT count(*) FROM t", "2").await;
    assert_eq!(s.status(), TransactionStatus::Idle);
    run(&s, "BEGIN").await.unwrap();
    fails(&s, "SELECT 1/0", "22012", "division by zero").await;
    assert_eq!(s.status(), TransactionStatus::Failed);
    let aborted = "current transaction is aborted, commands ignored until end of transaction block";
    fails(&s, "SELECT 1", "25P02", aborted).await;
    check(&s, "COMMIT", "ROLLBACK").await;
    fails(&s, "BEGIN READ ONLY; DELETE FROM t", "25006", "cannot execute DELETE in a read-only transaction").await;
    check(&s, "ROLLBACK", "ROLLBACK").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parameters_are_inferred() {
    let db = Database::open().await;
    let s = db.session();
    check(&s, "CREATE TABLE t (k int PRIMARY KEY, v varchar, d date)", "CREATE TABLE").await;
    let prepare = async |sql: &str| {
        let statement = s.parse(sql).unwrap().remove(0);
        s.prepare(statement, &[]).await.unwrap()
    };
    let insert = prepare("INSERT INTO t VALUES ($1, $2, $3) RETURNING k").await;
    assert_eq!(insert.params, [SqlType::Integer, SqlType::Varchar, SqlType::Date]);
    assert_eq!(insert.columns.as_ref().unwrap()[0].name, "k");
    let values = vec![ScalarValue::Int32(Some(7)), ScalarValue::from("x"), ScalarValue::Date32(Some(0))];
    let reply = s.execute(&insert, values).await.unwrap();
    assert_eq!(shown(&s, reply).await.unwrap(), "7");
    let select = prepare("SELECT v, d FROM t WHERE k = $1").await;
    assert_eq!(select.params, [SqlType::Integer]);
    let reply = s.execute(&select, vec![ScalarValue::Int32(Some(7))]).await.unwrap();
    assert_eq!(shown(&s, reply).await.unwrap(), "x|1970-01-01");
    let update = prepare("UPDATE t SET v = $2 WHERE k = $1").await;
    assert_eq!(update.params, [SqlType::Integer, SqlType::Varchar]);
    let values = vec![ScalarValue::Int32(Some(7)), ScalarValue::from("y")];
    assert_eq!(shown(&s, s.execute(&update, values).await.unwrap()).await.unwrap(), "UPDATE 1");
    let delete = prepare("DELETE FROM t WHERE d < $1").await;
    assert_eq!(delete.params, [SqlType::Date]);
    assert!(delete.columns.is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_system_is_visible() {
    let db = Database::open().await;
    let s = db.session();
    check(&s, "CREATE TABLE t (k int PRIMARY KEY, v numeric(5,1))", "CREATE TABLE").await;
    check(&s, "SHOW TABLES", "t").await;
    check(&s, "SHOW COLUMNS FROM t", "k|integer|false|NULL\nv|numeric(5,1)|false|NULL").await;
    check(&s, "SHOW CREATE TABLE t", "public.t|CREATE TABLE t (k int PRIMARY KEY, v numeric(5,1))").await;
    check(&s, "SET timezone = 'asia/tokyo'; SHOW timezone", "Asia/Tokyo").await;
    check(&s, "SELECT relname, relkind FROM pg_class WHERE relname = 't'", "t|r").await;
    check(
        &s,
        "SELECT a.attname, format_type(a.atttypid, a.atttypmod) FROM pg_catalog.pg_attribute a JOIN pg_class c ON \
         c.oid = a.attrelid WHERE c.relname = 't' ORDER BY a.attnum",
        "k|integer\nv|numeric(5,1)",
    )
    .await;
    check(&s, "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'", "t").await;
    check(&s, "SELECT name, kind, state, created FROM weir_catalog.jobs", "t|table|running|t").await;
    check(&s, "SELECT count(*) > 0 FROM weir_catalog.tables", "t").await;
    check(&s, "SELECT count(*) > 0 FROM weir_catalog.fragments", "t").await;
    check(&s, "SELECT name FROM rw_relations", "t").await;
    check(&s, "SELECT current_schema(), current_database(), current_user", "public|dev|root").await;
    check(&s, "SELECT current_setting('timezone')", "Asia/Tokyo").await;
    let plan = run(&s, "EXPLAIN SELECT * FROM t WHERE k = 1").await.unwrap();
    assert!(plan.contains("RelationLookup"), "{plan}");
    let plan = run(&s, "EXPLAIN CREATE MATERIALIZED VIEW m AS SELECT count(*) FROM t").await.unwrap();
    assert!(plan.contains("Aggregate"), "{plan}");
    fails(&s, "INSERT INTO pg_class VALUES (1)", "42501", "permission denied: \"pg_class\" is a system catalog").await;
    fails(&s, "CREATE VIEW w AS SELECT current_user AS u", "42703", "column \"current_user\" does not exist").await;
    fails(&s, "SELECT * FROM t; SELEC", "42601", "syntax error at or near \"SELEC\"").await;
    fails(
        &s,
        "CREATE EXTERNAL TABLE x (a int) STORED AS CSV LOCATION '/etc/passwd'",
        "42601",
        "syntax error at or near \"EXTERNAL\"",
    )
    .await;
    fails(&s, "COPY t TO '/tmp/x'", "0A000", "COPY of a file is not supported").await;
    check(
        &s,
        "CREATE SCHEMA s; CREATE TABLE s.t (a int); DROP SCHEMA s CASCADE",
        "drop cascades to table t\nDROP SCHEMA",
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copies() {
    let db = Database::open().await;
    let s = db.session();
    check(&s, "CREATE TABLE t (k int PRIMARY KEY, v varchar DEFAULT 'none', double int AS k * 2)", "CREATE TABLE")
        .await;
    let statement = s.parse("COPY t (k) FROM STDIN").unwrap().remove(0);
    let Reply::CopyIn { columns, mut target, .. } = s.run(&statement).await.unwrap() else { panic!() };
    assert_eq!(columns, [OutputColumn::new("k", SqlType::Integer)]);
    let batch = |keys: Vec<Option<i32>>| {
        let column: arrow::array::ArrayRef = Arc::new(arrow::array::Int32Array::from(keys));
        arrow::array::RecordBatch::try_from_iter([("k", column)]).unwrap()
    };
    target.write(batch(vec![Some(1), Some(2)])).await.unwrap();
    target.write(batch(vec![Some(3)])).await.unwrap();
    assert_eq!(target.write(batch(vec![None])).await.unwrap_err().state.0, "23502");
    assert_eq!(target.finish().await.unwrap(), 3);
    check(&s, "SELECT * FROM t ORDER BY k", "1|none|2\n2|none|4\n3|none|6").await;
    let statement = s.parse("COPY t TO STDOUT").unwrap().remove(0);
    let Reply::CopyOut { batches, .. } = s.run(&statement).await.unwrap() else { panic!() };
    let rows: usize = batches.try_collect::<Vec<_>>().await.unwrap().iter().map(|b| b.num_rows()).sum();
    assert_eq!(rows, 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_updates_lose_nothing() {
    let db = Database::open().await;
    let s = db.session();
    check(&s, "CREATE TABLE t (k int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 0)", "INSERT 0 1").await;
    let mut tasks = Vec::new();
    for _ in 0..4 {
        let session = db.session();
        tasks.push(tokio::spawn(async move {
            for _ in 0..10 {
                check(&session, "UPDATE t SET v = v + 1 WHERE k = 1", "UPDATE 1").await;
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    check(&s, "SELECT v FROM t", "40").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn definitions_and_refusals() {
    let db = Database::open().await;
    let s = db.session();
    check(&s, "CREATE TABLE t (a int, b int)", "CREATE TABLE").await;
    fails(&s, "CREATE TABLE t (a int)", "42P07", "relation \"t\" already exists").await;
    check(&s, "CREATE TABLE IF NOT EXISTS t (a int)", "relation \"t\" already exists, skipping\nCREATE TABLE").await;
    fails(&s, "CREATE TABLE u (a int, a int)", "42701", "column \"a\" specified more than once").await;
    fails(&s, "CREATE TABLE u (a nosuch)", "42704", "type \"nosuch\" does not exist").await;
    fails(&s, "CREATE TABLE u (a int, PRIMARY KEY (z))", "42703", "column \"z\" named in key does not exist").await;
    fails(&s, "CREATE TABLE u (a int DEFAULT 'x')", "22P02", "invalid input syntax for type integer: \"x\"").await;
    fails(
        &s,
        "CREATE TABLE u (a timestamp, WATERMARK FOR a AS a - INTERVAL '5 seconds')",
        "0A000",
        "WATERMARK FOR is not supported",
    )
    .await;
    fails(&s, "CREATE VIEW v AS SELECT a, b AS a FROM t", "42701", "column \"a\" specified more than once").await;
    let no_key = "the rows of the sink change, and it has no primary key";
    fails(&s, "CREATE SINK k FROM t WITH (connector = 'kafka')", "22023", no_key).await;
    fails(&s, "DELETE FROM nothing", "42P01", "relation \"nothing\" does not exist").await;
    check(&s, "CREATE VIEW v (b, a) AS SELECT a, b FROM t", "CREATE VIEW").await;
    check(&s, "INSERT INTO t VALUES (1, 2); SELECT b, a FROM v", "1|2").await;
    check(&s, "CREATE VIEW w AS WITH x AS (SELECT * FROM t) SELECT x.a FROM x", "CREATE VIEW").await;
    check(&s, "SELECT * FROM w", "1").await;
    fails(&s, "INSERT INTO v VALUES (1)", "42809", "cannot change view \"v\"").await;
    fails(&s, "UPDATE t SET a = 1, a = 2", "42601", "multiple assignments to same column \"a\"").await;
    fails(&s, "UPDATE t SET z = 1", "42703", "column \"z\" of relation \"t\" does not exist").await;
    fails(
        &s,
        "UPDATE t SET a = 'x'::varchar",
        "42804",
        "column \"a\" is of type integer but expression is of type character varying",
    )
    .await;
    fails(&s, "INSERT INTO t VALUES (3000000000, 1)", "22003", "value \"3000000000\" is out of range for type integer")
        .await;
    fails(&s, "INSERT INTO t SELECT 3000000000, 1", "22003", "integer out of range").await;
    fails(&s, "SELECT * FROM t FOR UPDATE", "0A000", "SELECT … FOR UPDATE is not supported").await;
    fails(&s, "SELECT a INTO u FROM t", "0A000", "SELECT INTO is not supported").await;
    fails(
        &s,
        "SET statement_timeout = 1; SELECT count(*) FROM generate_series(1, 3000000000) s(i)",
        "57014",
        "canceling statement due to statement timeout",
    )
    .await;
    check(&s, "RESET ALL; SHOW statement_timeout", "0").await;
    check(&s, "CREATE SCHEMA x; CREATE TABLE x.t (z int); SET search_path = x, public; SELECT count(*) FROM t", "0")
        .await;
    check(&s, "SELECT pg_sleep(0.01)", "").await;
    fails(
        &s,
        "SET statement_timeout = 20; SELECT pg_sleep(10)",
        "57014",
        "canceling statement due to statement timeout",
    )
    .await;
    check(&s, "RESET statement_timeout", "RESET").await;
    check(&s, "SHOW TABLES FROM x", "t").await;
    check(&s, "CREATE TABLE u (a int); SHOW TABLES FROM x LIKE 'u'", "u").await;
    check(&s, "CREATE TABLE ap (a int) APPEND ONLY; INSERT INTO ap VALUES (1)", "INSERT 0 1").await;
    fails(&s, "DELETE FROM ap", "42809", "cannot delete from table \"ap\" because it is append only").await;
    check(&s, "CREATE TABLE nop (k int PRIMARY KEY, v int) ON CONFLICT DO NOTHING", "CREATE TABLE").await;
    check(&s, "INSERT INTO nop VALUES (1, 1), (1, 2); BEGIN; INSERT INTO nop VALUES (1, 3), (2, 2)", "INSERT 0 2")
        .await;
    check(&s, "SELECT * FROM nop ORDER BY k", "1|1\n2|2").await;
    check(&s, "DELETE FROM nop WHERE k = 1; INSERT INTO nop VALUES (1, 9); SELECT * FROM nop ORDER BY k", "1|9\n2|2")
        .await;
    check(&s, "COMMIT; SELECT * FROM nop ORDER BY k", "1|9\n2|2").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn larger_relations_are_read_in_parts() {
    let db = Database::open().await;
    let s = db.session();
    check(&s, "CREATE TABLE t (k int PRIMARY KEY, v int); CREATE TABLE d (v int)", "CREATE TABLE").await;
    check(&s, "INSERT INTO t SELECT i, i % 7 FROM generate_series(1, 20000) AS s(i)", "INSERT 0 20000").await;
    check(&s, "INSERT INTO d SELECT v FROM t", "INSERT 0 20000").await;
    check(&s, "SELECT count(*), sum(k), min(k), max(k) FROM t", "20000|200010000|1|20000").await;
    check(&s, "SELECT count(*) FROM d", "20000").await;
    check(&s, "SELECT count(*) FROM (SELECT 1 FROM t LIMIT 100) x", "100").await;
    check(&s, "SELECT count(*) FROM t a JOIN t b ON a.k = b.k + 1 WHERE a.v = 0", "2857").await;
    check(&s, "BEGIN; DELETE FROM t WHERE k <= 10000; INSERT INTO t VALUES (0, 0); SELECT count(*) FROM t", "10001")
        .await;
    check(&s, "UPDATE t SET k = k + 1; SELECT min(k), max(k), count(*) FROM t", "1|20001|10001").await;
    check(&s, "COMMIT; SELECT min(k), max(k), count(*) FROM t", "1|20001|10001").await;
    check(&s, "DELETE FROM d WHERE v > 0; SELECT count(*) FROM d", "2857").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cursors_on_subscriptions_tell_what_happened() {
    let db = Database::open().await;
    let s = db.session();
    run(&s, "CREATE TABLE t (k INT PRIMARY KEY, v VARCHAR); INSERT INTO t VALUES (1, 'a'), (2, 'b')").await.unwrap();
    run(&s, "CREATE SUBSCRIPTION sub FROM t WITH (retention = '1 hour')").await.unwrap();
    run(&s, "DECLARE c SUBSCRIPTION CURSOR FOR sub FULL").await.unwrap();
    let before = weir_meta::now_ms();
    for change in [
        "INSERT INTO t VALUES (3, NULL)",
        "UPDATE t SET v = 'bb' WHERE k = 2",
        "DELETE FROM t WHERE k = 1",
        "UPDATE t SET k = 30 WHERE k = 3",
    ] {
        run(&s, change).await.unwrap();
    }
    let (mut rows, mut times) = (Vec::new(), Vec::new());
    // One by one, so that updates are cut in the middle.
    loop {
        let row = run(&s, "FETCH NEXT FROM c").await.unwrap();
        let Some((row, time)) = row.rsplit_once('|') else { break };
        rows.push(row.to_string());
        times.extend(time.parse::<u64>());
    }
    // A key that changes is a delete and an insert, in any order.
    rows[6..].sort();
    assert_eq!(
        rows,
        [
            "1|a|Insert",
            "2|b|Insert",
            "3|NULL|Insert",
            "2|b|UpdateDelete",
            "2|bb|UpdateInsert",
            "1|a|Delete",
            "30|NULL|Insert",
            "3|NULL|Delete"
        ]
    );
    assert!(times.len() == 6 && times.is_sorted() && times[0] >= before, "{times:?}");
    // A reader that waits is woken by a change.
    let waiting = {
        let s = s.clone();
        tokio::spawn(async move { run(&s, "FETCH 5 FROM c WITH (timeout = '20s')").await })
    };
    run(&db.session(), "INSERT INTO t VALUES (4, 'd')").await.unwrap();
    assert!(waiting.await.unwrap().unwrap().starts_with("4|d|Insert|"));
}
