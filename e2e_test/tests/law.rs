//! The law: a view equals its query over its inputs at the same epoch.
//!
//! Random inserts, updates, deletes, NULLs, duplicates and key changes go into a few tables; views over every operator, views
//! on views among them, are compared with their queries run afresh. In between: views made on live data, clean restarts,
//! and kills in the middle of writes. The seed is printed; `WEIR_SEED` repeats a run and `WEIR_ROUNDS` makes it longer.

use anyhow::{Context, Result, ensure};
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;
use weir_e2e::Server;
use weir_e2e::rows::{difference, rows};

const TABLES: &[&str] = &[
    "CREATE TABLE t (id INT PRIMARY KEY, k INT, v INT, s VARCHAR, d DOUBLE PRECISION, n NUMERIC)",
    "CREATE TABLE u (id INT PRIMARY KEY, k INT, w BIGINT, s VARCHAR)",
    // Without a key: rows may be equal.
    "CREATE TABLE h (k INT, v INT, at TIMESTAMP)",
];

/// Name and query of each view. Later ones may read earlier ones.
const VIEWS: &[(&str, &str)] = &[
    ("v_project", "SELECT id, k + 1 AS k1, v * 2 AS v2, upper(s) AS us, d + 0.5 AS d5, n * 1.5 AS n15 FROM t"),
    ("v_filter", "SELECT * FROM t WHERE v > 3 AND s IS NOT NULL OR k = 0"),
    ("v_count", "SELECT count(*) AS c, count(v) AS cv, sum(v) AS sv, min(v) AS lo, max(v) AS hi, avg(v) AS av FROM t"),
    ("v_group", "SELECT k, count(*) AS c, sum(v) AS sv, avg(v) AS av, min(s) AS lo, max(s) AS hi FROM t GROUP BY k"),
    ("v_group2", "SELECT k, s, sum(n) AS sn, sum(id) AS si FROM t GROUP BY k, s"),
    ("v_having", "SELECT k, count(*) AS c FROM t GROUP BY k HAVING count(*) > 2"),
    (
        "v_distinct_agg",
        "SELECT k, count(DISTINCT v) AS dv, count(DISTINCT s) AS ds, sum(DISTINCT v) AS sdv FROM t GROUP BY k",
    ),
    (
        "v_filter_agg",
        "SELECT k, count(*) FILTER (WHERE v > 2) AS c2, sum(v) FILTER (WHERE s = 'a') AS sa FROM t GROUP BY k",
    ),
    ("v_bool", "SELECT k, bool_and(v > 2) AS ba, bool_or(v > 7) AS bo FROM t GROUP BY k"),
    ("v_ordered", "SELECT k, string_agg(s, ',' ORDER BY id) AS ss, array_agg(v ORDER BY id) AS vs FROM t GROUP BY k"),
    ("v_distinct", "SELECT DISTINCT k, s FROM t"),
    ("v_dups", "SELECT k, v FROM h"),
    ("v_dups_group", "SELECT k, v, count(*) AS c FROM h GROUP BY k, v"),
    ("v_inner", "SELECT t.id, u.id AS uid, t.v, u.w FROM t JOIN u ON t.k = u.k"),
    ("v_inner_res", "SELECT t.id, u.id AS uid FROM t JOIN u ON t.k = u.k AND t.v < u.w"),
    ("v_left", "SELECT t.id, u.id AS uid, t.s, u.s AS us FROM t LEFT JOIN u ON t.k = u.k"),
    ("v_left_res", "SELECT t.id, u.id AS uid FROM t LEFT JOIN u ON t.k = u.k AND u.w > 4"),
    ("v_right", "SELECT t.id, u.id AS uid FROM t RIGHT JOIN u ON t.k = u.k AND t.v > 1"),
    ("v_full", "SELECT t.id, u.id AS uid, t.k, u.k AS uk FROM t FULL JOIN u ON t.k = u.k"),
    ("v_self", "SELECT a.id, b.id AS bid FROM t a JOIN t b ON a.k = b.v"),
    ("v_semi", "SELECT id, k FROM t WHERE k IN (SELECT k FROM u WHERE w > 2)"),
    ("v_exists", "SELECT id FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.k = t.k AND u.w > t.v)"),
    ("v_anti", "SELECT id FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.k = t.k)"),
    ("v_not_in", "SELECT id, k FROM t WHERE k NOT IN (SELECT k FROM u WHERE w > 6)"),
    ("v_in_or", "SELECT id, k FROM t WHERE k IN (SELECT k FROM u WHERE w > 6) OR v > 8"),
    ("v_not_in_or", "SELECT id, k FROM t WHERE k NOT IN (SELECT k FROM u WHERE w > 6) OR v > 8"),
    ("v_exists_or", "SELECT id FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.k = t.k AND u.w > 5) OR s = 'a'"),
    ("v_in_value", "SELECT id, k IN (SELECT k FROM u WHERE w > 6) AS found FROM t"),
    ("v_same_null", "SELECT t.id, u.id AS uid FROM t LEFT JOIN u ON t.k IS NOT DISTINCT FROM u.k AND t.v > u.w"),
    ("v_join_dups", "SELECT h.k, h.v, u.w FROM h JOIN u ON h.k = u.k"),
    ("v_join3", "SELECT t.id, u.id AS uid, h.v FROM t JOIN u ON t.k = u.k JOIN h ON h.k = u.k WHERE t.v > 4"),
    ("v_union_all", "SELECT k, v FROM t UNION ALL SELECT k, v FROM h"),
    ("v_union", "SELECT k FROM t UNION SELECT k FROM u UNION SELECT v FROM h"),
    ("v_top", "SELECT id, v FROM t ORDER BY v DESC, id LIMIT 3"),
    ("v_top_offset", "SELECT id, v FROM t ORDER BY v, id LIMIT 4 OFFSET 2"),
    (
        "v_group_top",
        "SELECT id, k, v FROM (SELECT id, k, v, row_number() OVER (PARTITION BY k ORDER BY v DESC, id) AS r FROM t) x WHERE r <= 2",
    ),
    (
        "v_group_rank",
        "SELECT id, k, r FROM (SELECT id, k, row_number() OVER (PARTITION BY k ORDER BY v, id) AS r FROM t) x WHERE r <= 3",
    ),
    (
        "v_tumble",
        "SELECT window_start, k, count(*) AS c, sum(v) AS sv FROM TUMBLE(h, at, INTERVAL '10' SECOND) GROUP BY window_start, k",
    ),
    (
        "v_hop",
        "SELECT window_start, count(*) AS c FROM HOP(h, at, INTERVAL '5' SECOND, INTERVAL '10' SECOND) GROUP BY window_start",
    ),
    ("v_scalar", "SELECT id, v FROM t WHERE v > (SELECT avg(w) FROM u)"),
    ("v_correlated", "SELECT t.id, (SELECT max(w) FROM u WHERE u.k = t.k) AS mw FROM t"),
    (
        "v_shared",
        "WITH g AS (SELECT k, s, count(*) AS c, sum(v) AS sv FROM t GROUP BY k, s) \
         SELECT a.k, a.s, a.c, m.top FROM g a JOIN (SELECT k, max(c) AS top FROM g GROUP BY k) m ON a.k = m.k AND a.c >= m.top",
    ),
    (
        "v_shared_join",
        "WITH j AS (SELECT t.id, u.id AS uid, t.k, u.w FROM t LEFT JOIN u ON t.k = u.k) \
         SELECT a.id, a.uid, b.uid AS other FROM j a JOIN j b ON a.id = b.id AND a.w < b.w",
    ),
    ("v_shared_both", "SELECT a.id, b.v FROM t a JOIN t b ON a.id = b.id"),
    (
        "v_over",
        "SELECT id, k, sum(v) OVER (PARTITION BY k) AS total, lag(v) OVER (PARTITION BY k ORDER BY v, id) AS before, \
         count(*) OVER () AS n FROM t",
    ),
    ("w_over_group", "SELECT c, count(*) AS groups, sum(sv) AS total FROM v_group GROUP BY c"),
    ("w_join_views", "SELECT a.k, a.c, b.dv FROM v_group a JOIN v_distinct_agg b ON a.k = b.k"),
    ("w_left_views", "SELECT l.id, g.c FROM v_left l LEFT JOIN v_group g ON l.uid = g.k"),
    ("w_chain", "SELECT c, max(groups) AS g FROM w_over_group GROUP BY c"),
];

struct Law {
    server: Server,
    client: Client,
    rng: SmallRng,
    made: Vec<usize>,
}

impl Law {
    async fn start(seed: u64) -> Result<Law> {
        let server = Server::start().await?;
        let client = server.connect().await?;
        for table in TABLES {
            client.batch_execute(table).await.context(*table)?;
        }
        Ok(Law { server, client, rng: SmallRng::seed_from_u64(seed), made: Vec::new() })
    }

    async fn make_views(&mut self, count: usize) -> Result<()> {
        for _ in 0..count {
            let next = self.made.len();
            let Some((name, query)) = VIEWS.get(next) else { return Ok(()) };
            let parallelism = self.rng.random_range(1..3);
            let sql = format!("SET streaming_parallelism = {parallelism}; CREATE MATERIALIZED VIEW {name} AS {query}");
            self.client.batch_execute(&sql).await.with_context(|| sql.clone())?;
            self.made.push(next);
        }
        Ok(())
    }

    fn int(&mut self, below: i32) -> String {
        if self.rng.random_bool(0.15) { "NULL".into() } else { self.rng.random_range(0..below).to_string() }
    }

    fn text(&mut self) -> String {
        ["NULL", "'a'", "'b'", "'c'", "''"].choose(&mut self.rng).map_or(String::new(), |s| (*s).into())
    }

    fn statement(&mut self) -> String {
        let id = self.rng.random_range(0..25);
        let other = self.rng.random_range(0..25);
        match self.rng.random_range(0..12) {
            0..=2 => {
                let (k, v, s, d, n) = (self.int(5), self.int(10), self.text(), self.int(4), self.int(6));
                format!("INSERT INTO t VALUES ({id}, {k}, {v}, {s}, {d}, {n}), ({other}, {v}, {k}, {s}, NULL, {d})")
            }
            3..=4 => {
                let (k, w, s) = (self.int(5), self.int(10), self.text());
                format!("INSERT INTO u VALUES ({id}, {k}, {w}, {s})")
            }
            5..=6 => {
                let (k, v) = (self.int(5), self.int(10));
                let at = self.rng.random_range(0..60);
                format!(
                    "INSERT INTO h VALUES ({k}, {v}, '2020-01-01 00:00:{at:02}'), ({k}, {v}, '2020-01-01 00:00:{at:02}')"
                )
            }
            7 => {
                let (v, s) = (self.int(10), self.text());
                format!("UPDATE t SET v = {v}, s = {s} WHERE k = {}", id % 5)
            }
            8 => format!("UPDATE t SET id = id + 30, k = v WHERE id = {id}"),
            9 => format!("UPDATE u SET k = {}, w = w + 1 WHERE id % 4 = {}", self.int(5), id % 4),
            10 => format!("DELETE FROM t WHERE id = {id} OR v = {}", other % 10),
            _ => match self.rng.random_range(0..3) {
                0 => format!("DELETE FROM u WHERE id % 7 = {}", id % 7),
                1 => format!("DELETE FROM h WHERE k = {}", id % 5),
                _ => "DELETE FROM t WHERE id > 24".into(),
            },
        }
    }

    async fn change(&mut self, statements: usize) -> Result<()> {
        for _ in 0..statements {
            let sql = self.statement();
            match self.client.batch_execute(&sql).await {
                // An update that moves a row onto another one is refused, and changes nothing.
                Err(e) if e.code() == Some(&SqlState::UNIQUE_VIOLATION) => {}
                result => result.with_context(|| sql.clone())?,
            }
        }
        Ok(())
    }

    /// A kill while a statement is under way: afterwards it has happened or not, and the views agree either way.
    async fn kill_in_a_write(&mut self) -> Result<()> {
        let sql = self.statement();
        let write = self.client.batch_execute(&sql);
        let pause = std::time::Duration::from_micros(self.rng.random_range(0..3_000));
        tokio::select! {
            _ = write => {}
            () = tokio::time::sleep(pause) => {}
        }
        self.server.kill()?;
        self.server.restart().await?;
        self.client = self.server.connect().await?;
        Ok(())
    }

    async fn restart(&mut self) -> Result<()> {
        self.server.stop().await?;
        self.server.restart().await?;
        self.client = self.server.connect().await?;
        Ok(())
    }

    async fn check(&mut self) -> Result<()> {
        self.client.batch_execute("FLUSH").await?;
        for at in &self.made {
            let (name, query) = VIEWS[*at];
            let view = rows(&self.client, &format!("SELECT * FROM {name}")).await?;
            let afresh = rows(&self.client, query).await?;
            ensure!(view == afresh, "{name} differs from {query}\n{}", difference(&view, &afresh));
        }
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_view_equals_its_query() {
    let seed = std::env::var("WEIR_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or_else(rand::random);
    let rounds: usize = std::env::var("WEIR_ROUNDS").ok().and_then(|s| s.parse().ok()).unwrap_or(10);
    println!("seed {seed}");
    let run = async {
        let mut law = Law::start(seed).await?;
        for round in 0..rounds {
            law.change(12).await?;
            law.make_views(VIEWS.len().div_ceil(rounds / 2)).await?;
            law.change(12).await?;
            law.check().await.with_context(|| format!("round {round}"))?;
            match round % 4 {
                1 => law.restart().await?,
                3 => law.kill_in_a_write().await?,
                _ => continue,
            }
            law.check().await.with_context(|| format!("after the restart of round {round}"))?;
        }
        ensure!(law.made.len() == VIEWS.len(), "every view was made");
        law.server.stop().await
    };
    let result: Result<()> = run.await;
    result.unwrap_or_else(|error| panic!("seed {seed}: {error:#}"));
}
