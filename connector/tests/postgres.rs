//! The PostgreSQL sink against a real server, which the tests start themselves: one for all of them, a table for each.

#![allow(clippy::unwrap_used)]

mod server;

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{Field, Schema, SchemaRef};
use server::{Server, application_name, free_port};
use tokio_postgres::Client;
use weir_common::parse::TextColumn;
use weir_common::{Chunk, Epoch, Generation, JobId, SqlType};
use weir_connector::{ConnectorError, Sink, SinkSpec, SinkWriter, Stamp};

/// A table of the server, and the sink into it.
struct Place {
    server: Arc<Server>,
    client: Client,
    table: &'static str,
    columns: SchemaRef,
    append_only: bool,
}

fn schema(columns: &[(&str, SqlType)]) -> SchemaRef {
    Arc::new(Schema::new(columns.iter().map(|(n, t)| Field::new(*n, t.to_arrow(), true)).collect::<Vec<_>>()))
}

fn keyed() -> SchemaRef {
    schema(&[("id", SqlType::BigInt), ("v", SqlType::Varchar)])
}

/// Changes of a table with `id` and `v`.
fn changes(rows: &[(i8, i64, &str)]) -> Chunk {
    let ids: ArrayRef = Arc::new(rows.iter().map(|r| r.1).collect::<Int64Array>());
    let values: ArrayRef = Arc::new(rows.iter().map(|r| Some(r.2)).collect::<StringArray>());
    let batch = RecordBatch::try_new(keyed(), vec![ids, values]).unwrap();
    Chunk::new(batch, rows.iter().map(|r| r.0).collect())
}

fn stamp(generation: u64, epoch: u64) -> Stamp {
    let commit = format!("commit-{generation}-{epoch}");
    Stamp { sink: JobId(7), commit, generation: Generation(generation), epoch: Epoch(epoch) }
}

impl Place {
    /// A table with a key, and a sink of changes into it.
    async fn new(table: &'static str) -> Place {
        Place::with(table, "id bigint PRIMARY KEY, v text", keyed()).await
    }

    async fn with(table: &'static str, definition: &str, columns: SchemaRef) -> Place {
        let server = Server::shared();
        let client = server.connect().await;
        client.batch_execute(&format!("CREATE TABLE {table} ({definition})")).await.unwrap();
        Place { server, client, table, columns, append_only: false }
    }

    fn append_only(mut self) -> Place {
        self.append_only = true;
        self
    }

    fn spec(&self) -> SinkSpec {
        let options = [
            ("connector", "postgres"),
            ("host", "127.0.0.1"),
            ("port", &self.server.port.to_string()),
            ("user", "postgres"),
            ("table", self.table),
        ];
        SinkSpec {
            sink: JobId(7),
            name: self.table.into(),
            columns: self.columns.clone(),
            primary_key: if self.append_only { vec![] } else { vec![0] },
            append_only: self.append_only,
            options: options.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect::<BTreeMap<_, _>>(),
            format: None,
        }
    }

    fn sink(&self) -> Box<dyn Sink> {
        weir_connector::postgres::open(&self.spec()).unwrap()
    }

    async fn writer(&self, generation: u64) -> Box<dyn SinkWriter> {
        self.sink().writer(Generation(generation), 0).await.unwrap()
    }

    /// A writer that has taken over.
    async fn resumed(&self, generation: u64) -> (Box<dyn SinkWriter>, Option<Stamp>) {
        let mut writer = self.writer(generation).await;
        let newest = writer.resume().await.unwrap();
        (writer, newest)
    }

    /// The rows as text, in order.
    async fn rows(&self) -> Vec<String> {
        let query = format!("SELECT t::text FROM {} AS t ORDER BY 1", self.table);
        self.client.query(&query, &[]).await.unwrap().iter().map(|row| row.get(0)).collect()
    }

    async fn mismatch(&self) -> String {
        match self.sink().prepare().await.unwrap_err() {
            ConnectorError::Mismatch { reason } => reason,
            other => panic!("{other}"),
        }
    }
}

#[tokio::test]
async fn rows_and_stamp_are_visible_together() {
    let place = Place::new("together").await.append_only();
    place.sink().prepare().await.unwrap();
    let (mut writer, newest) = place.resumed(1).await;
    assert_eq!(newest, None);
    writer.write(changes(&[(1, 1, "a\t\\ü\n")])).await.unwrap();
    writer.write(changes(&[(1, 2, "")])).await.unwrap();
    assert_eq!(place.rows().await, Vec::<String>::new());
    writer.flush(&stamp(1, 10)).await.unwrap();
    assert_eq!(place.rows().await, ["(1,\"a\t\\\\ü\n\")", "(2,\"\")"]);
    writer.write(changes(&[(1, 3, "c")])).await.unwrap();
    writer.flush(&stamp(1, 20)).await.unwrap();
    // Not flushed: gone with the writer.
    writer.write(changes(&[(1, 4, "d")])).await.unwrap();
    drop(writer);
    let (_, newest) = place.resumed(2).await;
    assert_eq!(newest, Some(stamp(1, 20)));
    assert_eq!(place.rows().await.len(), 3);
}

#[tokio::test]
async fn of_each_key_the_last_change_of_a_commit_counts() {
    let place = Place::new("changes").await;
    place.sink().prepare().await.unwrap();
    let (mut writer, _) = place.resumed(1).await;
    writer.write(changes(&[(1, 1, "a"), (1, 2, "b"), (1, 3, "c"), (1, 4, "d"), (-1, 4, "d")])).await.unwrap();
    writer.flush(&stamp(1, 10)).await.unwrap();
    assert_eq!(place.rows().await, ["(1,a)", "(2,b)", "(3,c)"]);
    writer.write(changes(&[(-1, 1, "a"), (1, 1, "A"), (-1, 2, "b"), (-1, 3, "c"), (1, 3, "x")])).await.unwrap();
    writer.write(changes(&[(-1, 3, "x"), (1, 3, "y"), (-1, 9, "none"), (1, 5, "e")])).await.unwrap();
    writer.flush(&stamp(1, 20)).await.unwrap();
    assert_eq!(place.rows().await, ["(1,A)", "(3,y)", "(5,e)"]);
    // The temporary table is empty again, and the next commit starts anew.
    writer.write(changes(&[(-1, 5, "e")])).await.unwrap();
    writer.flush(&stamp(1, 30)).await.unwrap();
    writer.flush(&stamp(1, 40)).await.unwrap();
    assert_eq!(place.rows().await, ["(1,A)", "(3,y)"]);
    assert_eq!(place.resumed(1).await.1, Some(stamp(1, 40)));
}

#[tokio::test]
async fn a_key_may_be_all_there_is() {
    let columns = schema(&[("id", SqlType::BigInt)]);
    let place = Place::with("only_key", "id bigint PRIMARY KEY", columns.clone()).await;
    place.sink().prepare().await.unwrap();
    let (mut writer, _) = place.resumed(1).await;
    let ids = |ids: &[i64], signs: &[i8]| {
        let array: ArrayRef = Arc::new(Int64Array::from(ids.to_vec()));
        Chunk::new(RecordBatch::try_new(columns.clone(), vec![array]).unwrap(), signs.to_vec())
    };
    writer.write(ids(&[1, 2, 2, 3], &[1, 1, 1, 1])).await.unwrap();
    writer.flush(&stamp(1, 10)).await.unwrap();
    writer.write(ids(&[1, 3], &[-1, 1])).await.unwrap();
    writer.flush(&stamp(1, 20)).await.unwrap();
    assert_eq!(place.rows().await, ["(2)", "(3)"]);
}

#[tokio::test]
async fn an_older_generation_is_refused() {
    let place = Place::new("fenced").await;
    place.sink().prepare().await.unwrap();
    let (mut first, _) = place.resumed(1).await;
    first.write(changes(&[(1, 1, "a")])).await.unwrap();
    first.flush(&stamp(1, 10)).await.unwrap();
    // Stops within a transaction, while the next one takes over.
    first.write(changes(&[(1, 2, "zombie")])).await.unwrap();
    let (mut second, newest) = place.resumed(2).await;
    assert_eq!(newest, Some(stamp(1, 10)));
    assert!(first.flush(&stamp(1, 20)).await.is_err());
    // Nor can it come back.
    let refused = place.writer(1).await.resume().await.unwrap_err();
    assert!(matches!(refused, ConnectorError::Fenced { ours: 1, newer: 2 }), "{refused}");
    second.write(changes(&[(1, 2, "b")])).await.unwrap();
    second.flush(&stamp(2, 20)).await.unwrap();
    assert_eq!(place.rows().await, ["(1,a)", "(2,b)"]);
}

/// The check in the transaction itself, where the session of the older generation lives on.
#[tokio::test]
async fn an_older_generation_with_a_live_session_is_refused() {
    let place = Place::new("fenced_alive").await;
    place.sink().prepare().await.unwrap();
    let (mut first, _) = place.resumed(1).await;
    first.write(changes(&[(1, 1, "zombie")])).await.unwrap();
    let take = "UPDATE weir_sink_offsets SET generation = 2 WHERE sink = 'weir-7'";
    assert_eq!(place.client.execute(take, &[]).await.unwrap(), 1);
    let refused = first.flush(&stamp(1, 10)).await.unwrap_err();
    assert!(matches!(refused, ConnectorError::Fenced { ours: 1, newer: 2 }), "{refused}");
    assert_eq!(place.rows().await, Vec::<String>::new());
}

/// A process that is stopped after it has locked rows, and before it commits.
#[tokio::test]
async fn a_take_over_does_not_wait_for_the_locks_of_a_zombie() {
    let place = Place::new("locked").await.append_only();
    place.sink().prepare().await.unwrap();
    let (mut first, _) = place.resumed(1).await;
    first.write(changes(&[(1, 1, "a")])).await.unwrap();
    first.flush(&stamp(1, 10)).await.unwrap();
    let zombie = place.server.connect().await;
    drop(first);
    let name = application_name("weir-7", 1);
    zombie.batch_execute(&format!("SET application_name = '{name}'; BEGIN")).await.unwrap();
    zombie.execute("UPDATE weir_sink_offsets SET epoch = 99 WHERE sink = 'weir-7'", &[]).await.unwrap();
    let (_, newest) = place.resumed(2).await;
    assert_eq!(newest, Some(stamp(1, 10)));
    assert!(zombie.batch_execute("COMMIT").await.is_err());
}

#[tokio::test]
async fn a_lost_connection_loses_no_row_and_doubles_none() {
    let place = Place::new("lost").await.append_only();
    place.sink().prepare().await.unwrap();
    let (mut writer, _) = place.resumed(1).await;
    writer.write(changes(&[(1, 1, "a")])).await.unwrap();
    let kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1";
    place.client.execute(kill, &[&application_name("weir-7", 1)]).await.unwrap();
    let lost = writer.flush(&stamp(1, 10)).await.unwrap_err();
    assert!(matches!(lost, ConnectorError::Unavailable { .. }), "{lost}");
    // Until it is resumed, it takes nothing.
    assert!(writer.write(changes(&[(1, 1, "a")])).await.is_err());
    assert_eq!(writer.resume().await.unwrap(), None);
    writer.write(changes(&[(1, 1, "a")])).await.unwrap();
    writer.flush(&stamp(1, 20)).await.unwrap();
    assert_eq!(place.rows().await, ["(1,a)"]);
}

#[tokio::test]
async fn a_row_that_the_table_refuses_is_named() {
    let definition = "id bigint PRIMARY KEY, v text CHECK (v <> 'bad')";
    let place = Place::with("refusing", definition, keyed()).await.append_only();
    place.sink().prepare().await.unwrap();
    let (mut writer, _) = place.resumed(1).await;
    writer.write(changes(&[(1, 1, "a"), (1, 2, "bad")])).await.unwrap();
    let refused = writer.flush(&stamp(1, 10)).await.unwrap_err();
    assert!(matches!(refused, ConnectorError::Refused { .. }), "{refused}");
    assert!(refused.to_string().contains("refusing_v_check"), "{refused}");
    assert_eq!(writer.resume().await.unwrap(), None);
    assert_eq!(place.rows().await, Vec::<String>::new());
}

#[tokio::test]
async fn many_rows_stream_through_little_memory() {
    let place = Place::new("many").await;
    place.sink().prepare().await.unwrap();
    let (mut writer, _) = place.resumed(1).await;
    let value = "x".repeat(100);
    for start in (0..100_000).step_by(4_000) {
        let rows: Vec<(i8, i64, &str)> = (start..start + 4_000).map(|id| (1, id, value.as_str())).collect();
        writer.write(changes(&rows)).await.unwrap();
        assert!(writer.memory_bytes() < 256 << 10);
    }
    writer.flush(&stamp(1, 10)).await.unwrap();
    let count: i64 = place.client.query_one("SELECT count(*) FROM many", &[]).await.unwrap().get(0);
    assert_eq!(count, 100_000);
}

#[tokio::test]
async fn every_type_arrives_as_it_is() {
    let array = |item| SqlType::Array(Box::new(item));
    // Column, its type here and there, its value as text; `bytea` and others differ in no digit.
    let columns = [
        ("a", SqlType::Boolean, "boolean", "t"),
        ("b", SqlType::SmallInt, "smallint", "-1"),
        ("c", SqlType::Integer, "bigint", "2147483647"),
        ("d", SqlType::BigInt, "numeric", "9223372036854775807"),
        ("e", SqlType::Real, "real", "0.1"),
        ("f", SqlType::Double, "double precision", "-Infinity"),
        ("g", SqlType::Numeric(None), "numeric", "123456789012345678901234567890.5"),
        ("h", SqlType::Varchar, "uuid", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
        ("i", SqlType::Bytea, "bytea", "\\x005cff"),
        ("j", SqlType::Date, "date", "2024-02-29"),
        ("k", SqlType::Time, "time", "01:02:03.000004"),
        ("l", SqlType::Timestamp, "timestamp", "2024-02-29 01:02:03.5"),
        ("m", SqlType::TimestampTz, "timestamptz", "2024-02-29 01:02:03.5+00"),
        ("n", SqlType::Interval, "interval", "1 year 2 mons -3 days +04:05:06.7"),
        ("o", SqlType::Jsonb, "jsonb", "{\"a\": [1.0, \"x\\\\y\"]}"),
        ("p", array(SqlType::Varchar), "text[]", "{a,NULL,\"b\\\\c,\"}"),
        ("q", array(array(SqlType::Integer)), "int[]", "{{1,2},{3,4}}"),
    ];
    let definition: Vec<String> = columns.iter().map(|(name, _, there, _)| format!("{name} {there}")).collect();
    let types: Vec<(&str, SqlType)> = columns.iter().map(|(name, here, ..)| (*name, here.clone())).collect();
    let place = Place::with("types", &definition.join(", "), schema(&types)).await.append_only();
    place.sink().prepare().await.unwrap();
    let arrays = columns.iter().map(|(_, here, _, text)| {
        let mut column = TextColumn::new(here, chrono_tz::UTC);
        column.append(text).unwrap();
        column.append_null();
        column.finish()
    });
    let batch = RecordBatch::try_new(place.columns.clone(), arrays.collect()).unwrap();
    let (mut writer, _) = place.resumed(1).await;
    writer.write(Chunk::inserts(batch)).await.unwrap();
    writer.flush(&stamp(1, 10)).await.unwrap();
    place.client.batch_execute("SET timezone = 'UTC'").await.unwrap();
    let texts: Vec<String> = columns
        .iter()
        .map(|(name, ..)| if *name == "a" { "CASE WHEN a THEN 't' END".into() } else { format!("{name}::text") })
        .collect();
    let query = format!("SELECT {} FROM types ORDER BY a NULLS LAST", texts.join(", "));
    let rows = place.client.query(&query, &[]).await.unwrap();
    for (i, (name, _, _, text)) in columns.iter().enumerate() {
        assert_eq!(rows[0].get::<_, Option<String>>(i).as_deref(), Some(*text), "{name}");
        assert_eq!(rows[1].get::<_, Option<String>>(i), None, "{name}");
    }
}

#[tokio::test]
async fn what_does_not_fit_is_told_before_the_first_row() {
    let place = Place::with("narrow", "id int PRIMARY KEY, w text NOT NULL, x int NOT NULL DEFAULT 1", keyed()).await;
    let told = place.mismatch().await;
    assert!(told.starts_with("table public.narrow: "), "{told}");
    assert!(told.contains("column `id` has type integer, which bigint does not fit"), "{told}");
    assert!(told.contains("it has no column `v`, but `id`, `w` and `x`"), "{told}");
    assert!(told.contains("column `w` is NOT NULL, and the sink does not have it"), "{told}");
    assert!(!told.contains("`x` is NOT NULL"), "{told}");

    let place = Place::with("keyless", "id bigint NOT NULL, v text", keyed()).await;
    assert!(place.mismatch().await.contains("there is no unique index on just `id`"));
    place.client.batch_execute("CREATE UNIQUE INDEX ON keyless (id, v)").await.unwrap();
    place.client.batch_execute("CREATE UNIQUE INDEX ON keyless (id) WHERE v IS NULL").await.unwrap();
    assert!(place.mismatch().await.contains("there is no unique index on just `id`"));
    place.client.batch_execute("CREATE UNIQUE INDEX ON keyless (id) INCLUDE (v)").await.unwrap();
    place.sink().prepare().await.unwrap();

    let place = Place::with("nullable", "id bigint UNIQUE, v text", keyed()).await;
    assert!(place.mismatch().await.contains("columns of the key may be NULL there: `id`"));
    let place = place.append_only();
    place.sink().prepare().await.unwrap();

    let place = Place { table: "nowhere", ..place };
    assert!(place.mismatch().await.contains("there is no table public.nowhere"));
}

#[tokio::test]
async fn a_server_that_is_not_there_is_unavailable() {
    let place = Place::new("elsewhere").await;
    let mut spec = place.spec();
    spec.options.insert("port".into(), free_port().to_string());
    let down = weir_connector::postgres::open(&spec).unwrap().prepare().await.unwrap_err();
    assert!(matches!(down, ConnectorError::Unavailable { .. }), "{down}");
    assert!(down.to_string().contains("refused"), "{down}");
}
