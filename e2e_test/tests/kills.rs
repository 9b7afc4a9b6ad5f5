//! Kills at random moments, again and again on one data directory, while rows are written and views made and dropped.
//!
//! ```text
//! work ──> kill -9 ──> (start ──> kill -9)* ──> start ──> check ──> work ...
//! ```
//!
//! Work: writers change three tables, each its own rows; two sessions create and drop views, pause them, and change how
//! many actors they and the tables have. After each restart
//!
//! - every row is there that was acknowledged, and nothing else; a statement whose answer was lost happened wholly or not
//!   at all, which is found out by reading;
//! - every view is there whose creation was acknowledged, none whose drop was; where the answer was lost, either holds;
//! - every view that is there equals its query;
//! - no job has failed.
//!
//! `WEIR_KILLS` says how many kills; the seed is printed, and `WEIR_SEED` repeats what is tried, though not when the kill
//! hits.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Error, SimpleQueryMessage};
use weir_e2e::Server;
use weir_e2e::rows::{difference, rows};

const TABLES: [&str; 3] = [
    "CREATE TABLE t (id BIGINT PRIMARY KEY, owner INT, k INT, v INT)",
    "CREATE TABLE u (id BIGINT PRIMARY KEY, owner INT, k INT, v INT)",
    // Without a key: rows may be equal.
    "CREATE TABLE h (owner INT, k INT, v INT)",
];
const NAMES: [&str; 3] = ["t", "u", "h"];
/// The table without a key.
const LOOSE: usize = 2;
/// Rows that a writer has in each table at the start, and about how many it keeps.
const SIZES: [i64; 3] = [3000, 300, 800];
/// Each has its own rows: ids from `owner * OWNER_IDS` on.
const WRITERS: i64 = 3;
const OWNER_IDS: i64 = 1_000_000_000;
/// Values of `k` and `v` are below.
const KEYS: i64 = 20;
const VALUES: i64 = 500;

/// A view, and the session that makes and drops it.
struct View {
    session: usize,
    name: &'static str,
    query: &'static str,
    /// Dropped with this view. They belong to the same session.
    above: &'static [&'static str],
}

const fn view(session: usize, name: &'static str, query: &'static str) -> View {
    View { session, name, query, above: &[] }
}

const SESSIONS: usize = 2;
static VIEWS: [View; 12] = [
    view(
        0,
        "a_keys",
        "SELECT owner, k, count(*) AS c, sum(v) AS s, min(v) AS lo, max(v) AS hi FROM t GROUP BY owner, k",
    ),
    view(0, "a_over_keys", "SELECT k, sum(c) AS c, max(hi) AS hi FROM a_keys GROUP BY k"),
    view(0, "a_join", "SELECT t.id, u.id AS uid, t.v FROM t JOIN u ON t.k = u.k AND t.v = u.v"),
    view(0, "a_top", "SELECT id, v FROM t ORDER BY v DESC, id LIMIT 20"),
    view(0, "a_copy", "SELECT id, k, v FROM t"),
    View {
        above: &["a_loose_over"],
        ..view(0, "a_loose", "SELECT k, v, count(*) AS c, sum(owner) AS s FROM h GROUP BY k, v")
    },
    view(0, "a_loose_over", "SELECT c, count(*) AS n FROM a_loose GROUP BY c"),
    view(1, "b_loose", "SELECT owner, k, v FROM h WHERE v % 3 > 0"),
    view(1, "b_left", "SELECT h.k, h.v, u.id FROM h LEFT JOIN u ON h.k = u.k AND h.v = u.v"),
    view(
        1,
        "b_group_top",
        "SELECT id, k, v FROM (SELECT id, k, v, row_number() OVER (PARTITION BY k ORDER BY v DESC, id) AS r FROM t) x WHERE r <= 3",
    ),
    view(1, "b_over_a_keys", "SELECT a.k, a.c, u.id FROM a_keys a JOIN u ON a.k = u.k AND a.owner = u.owner"),
    view(1, "b_over_a_copy", "SELECT k, count(*) AS c, sum(v) AS s FROM a_copy GROUP BY k"),
];

/// `(id, k, v)`, where the id is 0 in the table without a key.
type Row = (i64, i64, i64);

/// The rows of an owner, by table.
type Owned = [BTreeMap<Row, usize>; 3];

/// A statement whose answer was not seen, and what is there if it happened.
struct InDoubt<State> {
    sql: String,
    after: State,
}

/// What a run has tried.
#[derive(Default, Debug)]
struct Tally {
    kills: usize,
    writes_acknowledged: usize,
    ddl_acknowledged: usize,
    ddl_refused: usize,
    /// Changes whose answer was lost and that were there nevertheless, and that were not.
    happened: usize,
    did_not_happen: usize,
    views_compared: usize,
    rows_compared: usize,
}

impl Tally {
    fn resolved<State: PartialEq>(&mut self, before: &State, after: &State, found: &State) {
        match before != after && found == after {
            true => self.happened += 1,
            false => self.did_not_happen += 1,
        }
    }
}

/// What became of a statement. Any other answer is an error of the test.
enum Answer {
    Done,
    Refused,
    /// The connection broke: the server was killed.
    Lost,
}

fn answer<T>(result: std::result::Result<T, Error>, refusals: &[SqlState], sql: &str) -> Result<Answer> {
    match result {
        Ok(_) => Ok(Answer::Done),
        Err(error) => match error.as_db_error() {
            Some(db) if refusals.contains(db.code()) => Ok(Answer::Refused),
            Some(_) => Err(error).with_context(|| sql.to_owned()),
            None => Ok(Answer::Lost),
        },
    }
}

/// Changes the rows of one owner.
struct Writer {
    owner: i64,
    rng: SmallRng,
    rows: Owned,
    next_id: i64,
    in_doubt: Option<InDoubt<Owned>>,
}

impl Writer {
    fn new(owner: i64, seed: u64) -> Writer {
        let rng = SmallRng::seed_from_u64(seed.wrapping_add(owner as u64));
        Writer { owner, rng, rows: Owned::default(), next_id: owner * OWNER_IDS, in_doubt: None }
    }

    /// Goes on until the server is gone.
    async fn work(&mut self, client: &Client) -> Result<Tally> {
        let mut tally = Tally::default();
        loop {
            let (sql, after) = self.statement();
            match answer(client.simple_query(&sql).await, &[], &sql)? {
                Answer::Done => {
                    self.rows = after;
                    tally.writes_acknowledged += 1;
                }
                Answer::Refused => bail!("{sql}: refused"),
                Answer::Lost => {
                    self.in_doubt = Some(InDoubt { sql, after });
                    return Ok(tally);
                }
            }
        }
    }

    /// The next statement, and the rows after it.
    fn statement(&mut self) -> (String, Owned) {
        let at = *[0, 0, 0, 1, LOOSE, LOOSE].choose(&mut self.rng).unwrap_or(&0);
        let size = self.rows[at].values().sum::<usize>() as i64;
        let room = (SIZES[at] * 3 / 2 - size).max(0);
        match self.rng.random_range(0..10) {
            0..=2 => self.insert(at),
            3..=4 if room > 0 => {
                let rows = self.rng.random_range(1..=room);
                self.insert_series(at, rows)
            }
            5 if at == LOOSE && room > 0 => self.insert_from_t(),
            5..=6 if at != LOOSE => self.move_keys(at),
            5..=7 => {
                let k = self.rng.random_range(0..KEYS);
                let condition = format!("k = {k}");
                let set = format!("v = (v + 1) % {VALUES}");
                self.update(at, &set, &condition, |row| row.1 == k, |(id, k, v)| (id, k, (v + 1) % VALUES))
            }
            8 => {
                let r = self.rng.random_range(0..7);
                let condition = format!("v % 7 = {r}");
                let set = format!("k = (k + 3) % {KEYS}");
                self.update(at, &set, &condition, |row| row.2 % 7 == r, |(id, k, v)| (id, (k + 3) % KEYS, v))
            }
            _ => self.delete(at),
        }
    }

    /// A few rows; those with an id that is there take the place of the old ones.
    fn insert(&mut self, at: usize) -> (String, Owned) {
        let mut after = self.rows.clone();
        let mut values = Vec::new();
        for _ in 0..self.rng.random_range(1..4) {
            let (k, v) = (self.rng.random_range(0..KEYS), self.rng.random_range(0..VALUES));
            if at == LOOSE {
                put(&mut after[at], (0, k, v));
                values.push(format!("({}, {k}, {v})", self.owner));
                continue;
            }
            let base = self.owner * OWNER_IDS;
            let id = match self.rng.random_bool(0.5) && self.next_id > base {
                true => self.rng.random_range(base..self.next_id),
                false => self.take_ids(1),
            };
            after[at].retain(|row, _| row.0 != id);
            put(&mut after[at], (id, k, v));
            values.push(format!("({id}, {}, {k}, {v})", self.owner));
        }
        (format!("INSERT INTO {} VALUES {}", NAMES[at], values.join(", ")), after)
    }

    fn insert_series(&mut self, at: usize, count: i64) -> (String, Owned) {
        let base = self.take_ids(count);
        let mut after = self.rows.clone();
        for i in 0..count {
            put(&mut after[at], (if at == LOOSE { 0 } else { base + i }, i % KEYS, i * 7 % VALUES));
        }
        let id = if at == LOOSE { String::new() } else { format!("{base} + i, ") };
        let (name, owner) = (NAMES[at], self.owner);
        let select =
            format!("SELECT {id}{owner}, i % {KEYS}, i * 7 % {VALUES} FROM generate_series(0, {}) AS s (i)", count - 1);
        (format!("INSERT INTO {name} {select}"), after)
    }

    fn insert_from_t(&mut self) -> (String, Owned) {
        let k = self.rng.random_range(0..KEYS);
        let mut after = self.rows.clone();
        for ((_, k, v), _) in self.rows[0].iter().filter(|(row, _)| row.1 == k) {
            put(&mut after[LOOSE], (0, *k, *v));
        }
        (format!("INSERT INTO h SELECT owner, k, v FROM t WHERE owner = {} AND k = {k}", self.owner), after)
    }

    /// Gives fresh ids to the rows in a range of ids.
    fn move_keys(&mut self, at: usize) -> (String, Owned) {
        let first = self.rng.random_range(self.owner * OWNER_IDS..=self.next_id);
        let last = first + self.rng.random_range(0..100);
        // The range may reach beyond the ids that are in use; it does not reach the new ones.
        let by = self.take_ids(200) + 100 - first;
        let (set, condition) = (format!("id = id + {by}"), format!("id BETWEEN {first} AND {last}"));
        self.update(at, &set, &condition, |row| (first..=last).contains(&row.0), |(id, k, v)| (id + by, k, v))
    }

    fn update(
        &self,
        at: usize,
        set: &str,
        condition: &str,
        concerns: impl Fn(&Row) -> bool,
        new: impl Fn(Row) -> Row,
    ) -> (String, Owned) {
        let mut after = self.rows.clone();
        after[at].clear();
        for (row, count) in &self.rows[at] {
            *after[at].entry(if concerns(row) { new(*row) } else { *row }).or_default() += count;
        }
        (format!("UPDATE {} SET {set} WHERE owner = {} AND {condition}", NAMES[at], self.owner), after)
    }

    fn delete(&mut self, at: usize) -> (String, Owned) {
        let r = self.rng.random_range(0..4);
        let mut after = self.rows.clone();
        after[at].retain(|row, _| row.2 % 4 != r);
        (format!("DELETE FROM {} WHERE owner = {} AND v % 4 = {r}", NAMES[at], self.owner), after)
    }

    /// The first of so many ids that were never used.
    fn take_ids(&mut self, count: i64) -> i64 {
        self.next_id += count;
        self.next_id - count
    }

    /// Compares the model with what is there, and takes over what became of the statement in doubt.
    fn check(&mut self, found: &Owned, tally: &mut Tally) -> Result<()> {
        let in_doubt = self.in_doubt.take();
        if let Some(in_doubt) = &in_doubt {
            tally.resolved(&self.rows, &in_doubt.after, found);
            if *found == in_doubt.after {
                self.rows = found.clone();
                return Ok(());
            }
        }
        for at in 0..TABLES.len() {
            let (name, differs) = (NAMES[at], difference(&found[at], &self.rows[at]));
            let sql = in_doubt.as_ref().map_or("none", |d| &d.sql);
            ensure!(differs.is_empty(), "{name}, rows of {}; in doubt: {sql}\n{differs}", self.owner);
        }
        Ok(())
    }
}

fn put(rows: &mut BTreeMap<Row, usize>, row: Row) {
    *rows.entry(row).or_default() += 1;
}

/// Names of views.
type Made = BTreeSet<&'static str>;

/// Creates and drops the views of one session.
struct Maker {
    session: usize,
    rng: SmallRng,
    made: Made,
    in_doubt: Option<InDoubt<Made>>,
}

impl Maker {
    fn new(session: usize, seed: u64) -> Maker {
        let rng = SmallRng::seed_from_u64(seed.wrapping_add(100 + session as u64));
        Maker { session, rng, made: Made::new(), in_doubt: None }
    }

    /// Goes on until the server is gone.
    async fn work(&mut self, client: &Client) -> Result<Tally> {
        let mut tally = Tally::default();
        loop {
            let (sql, after) = self.statement();
            // What a view reads, or what reads it, may be the other session's, and there or not or in the making.
            let refusals = [
                SqlState::UNDEFINED_TABLE,
                SqlState::DEPENDENT_OBJECTS_STILL_EXIST,
                SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
            ];
            match answer(client.simple_query(&sql).await, &refusals, &sql)? {
                Answer::Done => {
                    self.made = after;
                    tally.ddl_acknowledged += 1;
                }
                Answer::Refused => tally.ddl_refused += 1,
                Answer::Lost => {
                    self.in_doubt = Some(InDoubt { sql, after });
                    return Ok(tally);
                }
            }
        }
    }

    fn statement(&mut self) -> (String, Made) {
        let own: Vec<&View> = VIEWS.iter().filter(|v| v.session == self.session).collect();
        let view = own.choose(&mut self.rng).expect("a session has views");
        let mut after = self.made.clone();
        let alters = self.rng.random_range(0..3) > 0;
        if alters && after.contains(view.name) {
            return (self.alter(view.name), after);
        }
        if after.remove(view.name) {
            after.retain(|name| !view.above.contains(name));
            let cascade = if view.above.is_empty() { "" } else { " CASCADE" };
            return (format!("DROP MATERIALIZED VIEW {}{cascade}", view.name), after);
        }
        after.insert(view.name);
        let in_background = self.rng.random_bool(0.3);
        let limit = *["DEFAULT", "DEFAULT", "20000"].choose(&mut self.rng).unwrap_or(&"DEFAULT");
        let parallelism = self.rng.random_range(1..3);
        let settings = format!(
            "SET background_ddl = {in_background}; SET backfill_rate_limit = {limit}; SET streaming_parallelism = {parallelism}"
        );
        (format!("{settings}; CREATE MATERIALIZED VIEW {} AS {}", view.name, view.query), after)
    }

    /// Leaves all contents as they are.
    fn alter(&mut self, view: &str) -> String {
        let parallelism = self.rng.random_range(1..4);
        match self.rng.random_range(0..4) {
            0 => format!("ALTER TABLE {} SET PARALLELISM = {parallelism}", NAMES.choose(&mut self.rng).unwrap_or(&"t")),
            1 => format!("ALTER MATERIALIZED VIEW {view} PAUSE; ALTER MATERIALIZED VIEW {view} RESUME"),
            _ => format!("ALTER MATERIALIZED VIEW {view} SET PARALLELISM = {parallelism}"),
        }
    }

    fn check(&mut self, there: &BTreeSet<String>, tally: &mut Tally) -> Result<()> {
        let own = VIEWS.iter().filter(|v| v.session == self.session).map(|v| v.name);
        let found: Made = own.filter(|name| there.contains(*name)).collect();
        let in_doubt = self.in_doubt.take();
        if let Some(in_doubt) = &in_doubt {
            tally.resolved(&self.made, &in_doubt.after, &found);
        }
        match &in_doubt {
            Some(in_doubt) if found == in_doubt.after => self.made = found,
            _ => {
                let sql = in_doubt.as_ref().map_or("none", |d| &d.sql);
                ensure!(found == self.made, "views: found {found:?}, expected {:?}; in doubt: {sql}", self.made);
            }
        }
        Ok(())
    }
}

struct Kills {
    server: Server,
    rng: SmallRng,
    writers: Vec<Writer>,
    makers: Vec<Maker>,
    tally: Tally,
}

impl Kills {
    async fn start(seed: u64) -> Result<Kills> {
        let mut server = Server::prepare()?;
        // Often enough that kills fall between the epochs of a backfill too.
        server.args = vec!["--barrier-interval-ms".into(), "50".into()];
        server.restart().await?;
        let client = server.connect().await?;
        for table in TABLES {
            client.batch_execute(table).await.context(table)?;
        }
        let mut writers: Vec<_> = (0..WRITERS).map(|owner| Writer::new(owner, seed)).collect();
        for writer in &mut writers {
            for (at, size) in SIZES.into_iter().enumerate() {
                let (sql, after) = writer.insert_series(at, size);
                client.batch_execute(&sql).await.context(sql)?;
                writer.rows = after;
            }
        }
        let mut makers: Vec<_> = (0..SESSIONS).map(|session| Maker::new(session, seed)).collect();
        for view in &VIEWS {
            let sql = format!("CREATE MATERIALIZED VIEW {} AS {}", view.name, view.query);
            client.batch_execute(&sql).await.context(sql)?;
            makers[view.session].made.insert(view.name);
        }
        Ok(Kills { server, rng: SmallRng::seed_from_u64(seed), writers, makers, tally: Tally::default() })
    }

    /// Lets all sessions work and kills the server meanwhile.
    async fn work(&mut self) -> Result<()> {
        // Now and then long enough for a view to be made.
        let limit_us = *[5_000, 150_000, 150_000, 500_000, 1_500_000].choose(&mut self.rng).unwrap_or(&0);
        let moment = Duration::from_micros(self.rng.random_range(0..limit_us));
        let mut clients = Vec::new();
        for _ in 0..self.writers.len() + self.makers.len() {
            clients.push(self.server.connect().await?);
        }
        let (for_writers, for_makers) = clients.split_at(self.writers.len());
        let writing = self.writers.iter_mut().zip(for_writers).map(|(writer, client)| writer.work(client));
        let making = self.makers.iter_mut().zip(for_makers).map(|(maker, client)| maker.work(client));
        let server = &mut self.server;
        let kill = async {
            tokio::time::sleep(moment).await;
            ensure!(server.is_running(), "the server ended by itself:\n{}", server.log_tail());
            server.kill()
        };
        let all =
            async { tokio::try_join!(futures::future::try_join_all(writing), futures::future::try_join_all(making)) };
        let ((wrote, made), ()) = tokio::try_join!(all, kill)?;
        for session in wrote.into_iter().chain(made) {
            self.tally.writes_acknowledged += session.writes_acknowledged;
            self.tally.ddl_acknowledged += session.ddl_acknowledged;
            self.tally.ddl_refused += session.ddl_refused;
        }
        self.tally.kills += 1;
        Ok(())
    }

    /// Kills at start-up, then a start that is let through.
    async fn restart(&mut self) -> Result<()> {
        while self.rng.random_bool(0.3) {
            self.server.launch()?;
            tokio::time::sleep(Duration::from_millis(self.rng.random_range(0..500))).await;
            ensure!(self.server.is_running(), "the server ended at its start:\n{}", self.server.log_tail());
            self.server.kill()?;
            self.tally.kills += 1;
        }
        self.server.restart().await
    }

    async fn check(&mut self) -> Result<()> {
        let client = self.server.connect().await?;
        let found = all_rows(&client).await?;
        for writer in &mut self.writers {
            writer.check(&found[writer.owner as usize], &mut self.tally)?;
        }
        let views = rows(&client, "SELECT name FROM weir_catalog.jobs WHERE kind = 'materialized view'").await?;
        let there: BTreeSet<_> = views.into_keys().collect();
        for maker in &mut self.makers {
            maker.check(&there, &mut self.tally)?;
        }
        // Killed between a pause and its end.
        let paused = "SELECT name FROM weir_catalog.jobs WHERE state = 'paused'";
        for name in rows(&client, paused).await?.into_keys() {
            client.batch_execute(&format!("ALTER MATERIALIZED VIEW {name} RESUME")).await.context(name)?;
        }
        // Background creations go on after a restart.
        client.batch_execute("WAIT").await?;
        let failed = rows(&client, "SELECT name, last_error FROM weir_catalog.jobs WHERE failures > 0").await?;
        ensure!(failed.is_empty(), "jobs failed: {failed:?}");
        for view in VIEWS.iter().filter(|v| there.contains(v.name)) {
            let kept = rows(&client, &format!("SELECT * FROM {}", view.name)).await?;
            let afresh = rows(&client, view.query).await?;
            ensure!(kept == afresh, "{} differs from its query\n{}", view.name, difference(&kept, &afresh));
            self.tally.views_compared += 1;
            self.tally.rows_compared += kept.values().sum::<usize>();
        }
        Ok(())
    }
}

/// The rows of each owner.
async fn all_rows(client: &Client) -> Result<Vec<Owned>> {
    let mut owned = vec![Owned::default(); WRITERS as usize];
    for (at, name) in NAMES.iter().enumerate() {
        let id = if at == LOOSE { "0" } else { "id" };
        for message in client.simple_query(&format!("SELECT owner, {id}, k, v FROM {name}")).await.context(*name)? {
            let SimpleQueryMessage::Row(row) = message else { continue };
            let cell = |i| row.get(i).context("no NULL was written")?.parse::<i64>().context("a number was written");
            let rows = owned.get_mut(cell(0)? as usize).context("only writers write")?;
            put(&mut rows[at], (cell(1)?, cell(2)?, cell(3)?));
        }
    }
    Ok(owned)
}

#[tokio::test(flavor = "multi_thread")]
async fn after_each_kill_views_equal_their_queries_and_acknowledged_rows_are_there() {
    let number = |name| std::env::var(name).ok().and_then(|s| s.parse().ok());
    let seed = number("WEIR_SEED").unwrap_or_else(rand::random);
    let count = number("WEIR_KILLS").unwrap_or(30) as usize;
    println!("seed {seed}");
    let run = async {
        let mut kills = Kills::start(seed).await?;
        while kills.tally.kills < count {
            kills.work().await?;
            kills.restart().await?;
            let checked = kills.check().await;
            checked.with_context(|| format!("{}\nafter kill {}", kills.server.log_tail(), kills.tally.kills))?;
        }
        println!("{:?}", kills.tally);
        ensure!(kills.tally.rows_compared > 0, "the run compared nothing");
        kills.server.stop().await
    };
    let result: Result<()> = run.await;
    result.unwrap_or_else(|error| panic!("seed {seed}: {error:#}"));
}
