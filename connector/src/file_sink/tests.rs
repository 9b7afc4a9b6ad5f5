//! The sink of files through its contract: what readers see, and what becomes of crashes.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::{Field, Int64Type, Schema, SchemaRef};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use weir_common::{Chunk, Epoch, Generation, JobId, SqlType};

use super::open;
use crate::column::Column;
use crate::error::ConnectorError;
use crate::sink::{Commit, Committer, Sink, SinkSpec, SinkWriter, Stamp};

struct Place {
    directory: tempfile::TempDir,
    schema: SchemaRef,
    encode: &'static str,
    options: Vec<(&'static str, &'static str)>,
}

fn schema(columns: &[(&str, SqlType)]) -> SchemaRef {
    Arc::new(Schema::new(columns.iter().map(|(n, t)| Field::new(*n, t.to_arrow(), true)).collect::<Vec<_>>()))
}

/// Rows of texts; `~` is NULL.
fn chunk(schema: &SchemaRef, rows: &[&[&str]]) -> Chunk {
    let column = |(i, field): (usize, &Arc<Field>)| -> ArrayRef {
        let mut column = Column::new(field.data_type()).unwrap();
        for row in rows {
            if row[i] == "~" { column.push_null() } else { column.push_text(row[i]).unwrap() }
        }
        column.finish().unwrap()
    };
    let columns = schema.fields().iter().enumerate().map(column).collect();
    Chunk::inserts(RecordBatch::try_new(schema.clone(), columns).unwrap())
}

fn numbers(schema: &SchemaRef, values: std::ops::Range<i64>) -> Chunk {
    let texts: Vec<String> = values.map(|v| v.to_string()).collect();
    let rows: Vec<[&str; 1]> = texts.iter().map(|t| [t.as_str()]).collect();
    chunk(schema, &rows.iter().map(|r| r.as_slice()).collect::<Vec<_>>())
}

fn stamp(generation: u64, epoch: u64) -> Stamp {
    let commit = format!("commit-{generation}-{epoch}");
    Stamp { sink: JobId(7), commit, generation: Generation(generation), epoch: Epoch(epoch) }
}

impl Place {
    fn new(columns: &[(&str, SqlType)], encode: &'static str) -> Place {
        Place { directory: tempfile::tempdir().unwrap(), schema: schema(columns), encode, options: vec![] }
    }

    fn of_numbers() -> Place {
        Place::new(&[("v", SqlType::BigInt)], "PARQUET")
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn spec(&self) -> SinkSpec {
        let mut options: BTreeMap<String, String> =
            self.options.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        options.insert("connector".into(), "fs".into());
        options.insert("fs.path".into(), self.path().display().to_string());
        SinkSpec {
            sink: JobId(7),
            name: "out".into(),
            columns: self.schema.clone(),
            primary_key: vec![],
            append_only: true,
            options,
            format: Some(("PLAIN".into(), self.encode.into())),
        }
    }

    fn sink(&self) -> Box<dyn Sink> {
        open(&self.spec()).unwrap()
    }

    async fn writer(&self, generation: u64) -> Box<dyn SinkWriter> {
        self.sink().writer(Generation(generation), 0).await.unwrap()
    }

    async fn committer(&self, generation: u64) -> Box<dyn Committer> {
        let mut committer = self.sink().committer().await.unwrap();
        committer.fence(JobId(7), Generation(generation)).await.unwrap();
        committer
    }

    /// Writes chunks with a new writer, without a commit.
    async fn staged(&self, generation: u64, epoch: u64, chunks: &[Chunk]) -> Commit {
        let mut writer = self.writer(generation).await;
        for chunk in chunks {
            writer.write(chunk.clone()).await.unwrap();
        }
        let stamp = stamp(generation, epoch);
        let parts = writer.flush(&stamp).await.unwrap().into_iter().collect();
        assert_eq!(writer.flush(&stamp).await.unwrap(), None);
        Commit { stamp, parts }
    }

    async fn delivered(&self, chunks: &[Chunk]) -> Commit {
        let mut committer = self.committer(1).await;
        let commit = self.staged(1, 10, chunks).await;
        committer.commit(&commit).await.unwrap();
        commit
    }

    /// The files that a reader of the directory sees, by path below it.
    fn visible(&self) -> Vec<String> {
        let mut files = vec![];
        visit(self.path(), &mut |path| {
            files.push(path.strip_prefix(self.path()).unwrap().to_str().unwrap().to_owned());
        });
        files.sort();
        files
    }

    fn values(&self) -> Vec<i64> {
        let files = self.visible();
        let mut values: Vec<i64> = files.iter().flat_map(|f| read_parquet(&self.path().join(f))).collect();
        values.sort();
        values
    }

    fn texts(&self) -> Vec<String> {
        self.visible().iter().map(|f| fs::read_to_string(self.path().join(f)).unwrap()).collect()
    }

    fn below_weir(&self, what: &str) -> PathBuf {
        self.path().join(".weir/7").join(what)
    }
}

fn visit(directory: &Path, file: &mut dyn FnMut(PathBuf)) {
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        match entry.file_type().unwrap().is_dir() {
            _ if entry.file_name().to_str().unwrap().starts_with('.') => {}
            true => visit(&entry.path(), file),
            false => file(entry.path()),
        }
    }
}

fn read_parquet(path: &Path) -> Vec<i64> {
    let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(path).unwrap()).unwrap().build().unwrap();
    reader.flat_map(|batch| batch.unwrap().column(0).as_primitive::<Int64Type>().values().to_vec()).collect()
}

#[tokio::test]
async fn a_commit_shows_all_files_at_once() {
    let place = Place::of_numbers();
    place.sink().prepare().await.unwrap();
    let mut committer = place.committer(1).await;
    let first = place.staged(1, 10, &[numbers(&place.schema, 0..3)]).await;
    assert_eq!(place.visible(), Vec::<String>::new());
    assert!(!committer.is_committed(&first).await.unwrap());
    assert!(committer.is_intact(&first).await.unwrap());
    committer.commit(&first).await.unwrap();
    committer.commit(&first).await.unwrap();
    assert!(committer.is_committed(&first).await.unwrap());
    let second = place.staged(1, 20, &[numbers(&place.schema, 3..5)]).await;
    committer.commit(&second).await.unwrap();
    assert_eq!(place.values(), [0, 1, 2, 3, 4]);
    assert!(committer.is_committed(&first).await.unwrap());
    // The take-over and two commits. Nothing below `.weir` ends like a data file, for some readers look there too.
    let entries: Vec<_> = fs::read_dir(place.below_weir("log")).unwrap().map(|e| e.unwrap().path()).collect();
    assert_eq!(entries.len(), 3);
    assert!(entries.iter().all(|entry| entry.extension().unwrap() == "entry"));
}

#[tokio::test]
async fn a_commit_left_behind_is_carried_out_by_the_next_generation() {
    let place = Place::of_numbers();
    let mut old = place.committer(1).await;
    let left = place.staged(1, 10, &[numbers(&place.schema, 0..3)]).await;
    let mut new = place.committer(2).await;
    let refused = old.commit(&left).await.unwrap_err();
    assert!(matches!(refused, ConnectorError::Fenced { ours: 1, newer: 2 }), "{refused}");
    assert!(!new.is_committed(&left).await.unwrap());
    assert!(new.is_intact(&left).await.unwrap());
    new.commit(&left).await.unwrap();
    // To the old one it is committed too, for it looks it up first.
    old.commit(&left).await.unwrap();
    assert_eq!(place.values(), [0, 1, 2]);
    let refused = place.sink().committer().await.unwrap().fence(JobId(7), Generation(1)).await.unwrap_err();
    assert!(matches!(refused, ConnectorError::Fenced { .. }), "{refused}");
}

#[tokio::test]
async fn a_committer_that_has_read_the_log_before_a_take_over_is_refused() {
    use super::commit_log::{CommitLog, Committed};
    use super::layout::Layout;
    let place = Place::of_numbers();
    let left = place.staged(1, 10, &[numbers(&place.schema, 0..3)]).await;
    let layout = || Layout::new(place.path().to_owned(), "7".into());
    let mut zombie = CommitLog::open(layout()).unwrap();
    zombie.take_over(Generation(1)).unwrap();
    CommitLog::open(layout()).unwrap().take_over(Generation(2)).unwrap();
    let files = left.parts.iter().flat_map(|p| serde_json::from_value::<Vec<_>>(p.clone()).unwrap()).collect();
    let commit = Committed { stamp: left.stamp.clone(), files };
    // It adds without a look: the number is taken.
    assert!(!zombie.add_for_test(Generation(1), commit.clone()).unwrap());
    let refused = zombie.commit(Generation(1), commit).unwrap_err();
    assert!(matches!(refused, ConnectorError::Fenced { ours: 1, newer: 2 }), "{refused}");
    assert_eq!(place.visible(), Vec::<String>::new());
}

#[tokio::test]
async fn a_crash_between_entry_and_files_is_finished_by_whoever_comes_next() {
    let place = Place::of_numbers();
    let commit = place.delivered(&[numbers(&place.schema, 0..3)]).await;
    let unmove = || {
        let file = place.visible().remove(0);
        fs::rename(place.path().join(&file), place.below_weir("staged/1").join(format!("{file}.part"))).unwrap();
        assert_eq!(place.visible(), Vec::<String>::new());
    };
    // By the take-over.
    unmove();
    let mut next = place.committer(2).await;
    assert_eq!(place.values(), [0, 1, 2]);
    // By looking it up.
    unmove();
    assert!(next.is_committed(&commit).await.unwrap());
    assert_eq!(place.values(), [0, 1, 2]);
    // By cleaning, which would delete it else.
    unmove();
    next.clean(JobId(7), Generation(2)).await.unwrap();
    assert_eq!(place.values(), [0, 1, 2]);
}

#[tokio::test]
async fn what_nobody_committed_is_cleaned() {
    let place = Place::of_numbers();
    let committed = place.delivered(&[numbers(&place.schema, 0..2)]).await;
    let discarded = place.staged(1, 20, &[numbers(&place.schema, 2..4)]).await;
    place.staged(1, 30, &[numbers(&place.schema, 2..4)]).await;
    // Without flush.
    place.writer(1).await.write(numbers(&place.schema, 0..9)).await.unwrap();
    let mut next = place.committer(2).await;
    let kept = place.staged(2, 40, &[numbers(&place.schema, 4..5)]).await;
    next.discard(&discarded).await.unwrap();
    assert!(!next.is_intact(&discarded).await.unwrap());
    let refused = next.commit(&discarded).await.unwrap_err();
    assert!(matches!(refused, ConnectorError::Gone { .. }), "{refused}");
    assert_eq!(next.clean(JobId(7), Generation(2)).await.unwrap(), 2);
    assert!(next.is_intact(&kept).await.unwrap());
    assert!(next.is_committed(&committed).await.unwrap());
    assert_eq!(place.values(), [0, 1]);
}

#[tokio::test]
async fn partitions_are_directories() {
    let columns = [("day", SqlType::Date), ("v", SqlType::BigInt), ("kind", SqlType::Varchar)];
    let mut place = Place::new(&columns, "JSON");
    place.options.push(("partition_by", "day, kind"));
    let rows: [&[&str]; 4] =
        [&["2024-02-29", "1", "a/b"], &["2024-02-29", "2", "~"], &["2024-02-29", "3", "a/b"], &["~", "4", ""]];
    place.delivered(&[chunk(&place.schema, &rows)]).await;
    let directories: Vec<String> = place.visible().iter().map(|f| f.rsplit_once('/').unwrap().0.to_owned()).collect();
    let null = "__HIVE_DEFAULT_PARTITION__";
    let expected = [
        "day=2024-02-29/kind=__HIVE_DEFAULT_PARTITION__".to_owned(),
        "day=2024-02-29/kind=a%2Fb".to_owned(),
        format!("day={null}/kind="),
    ];
    assert_eq!(directories, expected);
    assert_eq!(place.texts(), ["{\"v\":2}\n", "{\"v\":1}\n{\"v\":3}\n", "{\"v\":4}\n"]);
}

#[tokio::test]
async fn open_files_are_bounded_and_large_ones_are_ended() {
    let mut place = Place::new(&[("p", SqlType::Integer), ("v", SqlType::Varchar)], "CSV");
    place.options.extend([("partition_by", "p"), ("open_files_max", "1")]);
    let rows: [&[&str]; 3] = [&["1", "a"], &["2", "b"], &["1", "c"]];
    let chunks: Vec<Chunk> = rows.iter().map(|row| chunk(&place.schema, &[*row])).collect();
    place.delivered(&chunks).await;
    assert_eq!(place.visible().len(), 3);

    let mut place = Place::new(&[("v", SqlType::Varchar)], "CSV");
    place.options.push(("target_file_size_mb", "1"));
    let text = "x".repeat(700_000);
    let one = chunk(&place.schema, &[&[&text]]);
    place.delivered(&[one.clone(), one.clone(), one]).await;
    let lengths: Vec<usize> = place.texts().iter().map(String::len).collect();
    assert_eq!(lengths, [1_400_004, 700_003]);
}

#[tokio::test]
async fn text_files() {
    let columns = [("a", SqlType::Varchar), ("b, c", SqlType::Boolean), ("d", SqlType::Numeric(Some((5, 2))))];
    let rows: [&[&str]; 3] = [&["x,\"y\"\n", "t", "1.5"], &["", "~", "~"], &["~", "f", "0"]];
    let place = Place::new(&columns, "CSV");
    place.delivered(&[chunk(&place.schema, &rows)]).await;
    assert_eq!(place.texts(), ["a,\"b, c\",d\n\"x,\"\"y\"\"\n\",true,1.50\n\"\",,\n,false,0.00\n"]);

    let mut place = Place::new(&columns, "csv");
    place.options.extend([("delimiter", "\\t"), ("without_header", "true")]);
    place.delivered(&[chunk(&place.schema, &rows[2..])]).await;
    assert_eq!(place.texts(), ["\tfalse\t0.00\n"]);

    let place = Place::new(&columns, "json");
    place.delivered(&[chunk(&place.schema, &rows[1..2])]).await;
    assert_eq!(place.texts(), ["{\"a\":\"\",\"b, c\":null,\"d\":null}\n"]);
}

#[tokio::test]
async fn parquet_has_every_type() {
    let columns = [
        ("a", SqlType::Boolean, "t"),
        ("b", SqlType::SmallInt, "1"),
        ("c", SqlType::Real, "1.5"),
        ("d", SqlType::Numeric(Some((5, 2))), "1.5"),
        ("e", SqlType::Numeric(None), "1.5"),
        ("f", SqlType::Bytea, "\\x00ff"),
        ("g", SqlType::Date, "2024-02-29"),
        ("h", SqlType::Time, "01:02:03"),
        ("i", SqlType::Timestamp, "2024-02-29 01:02:03"),
        ("j", SqlType::TimestampTz, "2024-02-29 01:02:03+00"),
        ("k", SqlType::Interval, "1 day"),
        ("l", SqlType::Jsonb, "{\"a\": 1}"),
        ("m", SqlType::Array(Box::new(SqlType::Numeric(None))), "{1.5,NULL}"),
        ("n", SqlType::Struct(vec![("x".into(), SqlType::Interval)]), "{\"x\":\"2 days\"}"),
    ];
    let types: Vec<(&str, SqlType)> = columns.iter().map(|(n, t, _)| (*n, t.clone())).collect();
    let values: Vec<&str> = columns.iter().map(|(_, _, v)| *v).collect();
    let nulls = vec!["~"; columns.len()];
    for compression in ["zstd", "snappy", "lz4", "gzip", "none"] {
        let mut place = Place::new(&types, "PARQUET");
        place.options.push(("compression", compression));
        place.delivered(&[chunk(&place.schema, &[&values, &nulls])]).await;
        let file = File::open(place.path().join(&place.visible()[0])).unwrap();
        let mut reader = ParquetRecordBatchReaderBuilder::try_new(file).unwrap().build().unwrap();
        let batch = reader.next().unwrap().unwrap();
        assert_eq!(batch.num_rows(), 2);
        let text = |array: &ArrayRef, row| {
            let mut out = String::new();
            weir_common::text::write_value(array, row, &Default::default(), &mut out);
            out
        };
        let read: Vec<String> = batch.columns().iter().map(|column| text(column, 0)).collect();
        let written = ["t", "1", "1.5", "1.5", "1.5", "\\x00ff", "2024-02-29", "01:02:03", "2024-02-29 01:02:03"];
        assert_eq!(read[..9], written);
        assert_eq!(read[9..], ["2024-02-29 01:02:03+00", "1 day", "{\"a\": 1}", "{1.5,NULL}", "(\"2 days\")"]);
        assert!(batch.columns().iter().all(|column| column.is_null(1)));
    }
}

#[test]
fn options_are_checked() {
    let refused = |change: &dyn Fn(&mut SinkSpec)| {
        let mut spec = Place::of_numbers().spec();
        change(&mut spec);
        open(&spec).err().unwrap().to_string()
    };
    let option = |name: &'static str, value: &'static str| {
        refused(&move |spec| {
            spec.options.insert(name.into(), value.into());
        })
    };
    assert!(refused(&|spec| spec.append_only = false).contains("append-only"));
    assert!(refused(&|spec| spec.format = None).contains("needs a format"));
    assert!(refused(&|spec| spec.format = Some(("UPSERT".into(), "JSON".into()))).contains("FORMAT PLAIN"));
    assert!(refused(&|spec| spec.format = Some(("PLAIN".into(), "AVRO".into()))).contains("PARQUET, JSON or CSV"));
    let without_path = refused(&|spec| {
        spec.options.remove("fs.path");
    });
    assert_eq!(without_path, "connector `fs` needs option `fs.path`: the directory for the files");
    assert!(option("rate", "1").contains("has no option `rate`; it has `fs.path`"));
    assert_eq!(option("partition_by", "w"), "sink `out` has no column `w`; it has `v`");
    assert!(option("partition_by", "v").contains("a column must be left"));
    assert!(option("target_file_size_mb", "0").contains("from 1 to"));
    assert!(option("open_files_max", "x").contains("from 1 to"));
    assert!(option("compression", "brotli").contains("'zstd'"));
    assert!(option("delimiter", ";").contains("it is for ENCODE CSV"));
    assert!(option("sink_id", "../x").contains("does not start with a dot"));
}
