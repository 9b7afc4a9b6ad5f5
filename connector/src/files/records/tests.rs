#![allow(clippy::unwrap_used)]

use std::fs::OpenOptions;
use std::io::Write;
use std::sync::Arc;

use arrow::array::AsArray;
use arrow::datatypes::{DataType, Field, Int64Type, Schema};
use tempfile::TempDir;

use super::*;
use crate::files::csv::{Csv, CsvDialect};
use crate::files::json::JsonLines;

const FILE: &str = "f";

fn columns() -> Arc<Schema> {
    Arc::new(Schema::new(vec![Field::new("a", DataType::Int64, true), Field::new("b", DataType::Utf8, true)]))
}

fn write(directory: &TempDir, text: &str) {
    let path = directory.path().join(FILE);
    OpenOptions::new().create(true).append(true).open(path).unwrap().write_all(text.as_bytes()).unwrap();
}

fn reader<F: RecordFormat>(directory: &TempDir, format: F, offset: Option<&str>) -> RecordReader<F> {
    let rows = Rows::new(columns()).unwrap();
    let mut reader = RecordReader::new(FILE, directory.path().join(FILE), format, rows, offset).unwrap();
    reader.looks = Looks::always();
    reader.quiet = Duration::ZERO;
    reader
}

fn json(directory: &TempDir, offset: Option<&str>) -> RecordReader<JsonLines> {
    reader(directory, JsonLines, offset)
}

fn csv(directory: &TempDir, offset: Option<&str>) -> RecordReader<Csv> {
    reader(directory, Csv::new(CsvDialect { delimiter: b',', header: true }, columns()), offset)
}

/// Reads until there is nothing: rows as `a:b`, bad records as `!message`, `@offset` after each batch.
fn read(reader: &mut RecordReader<impl RecordFormat>, max_rows: usize) -> Vec<String> {
    let mut out = vec![];
    while let Some(batch) = reader.read(max_rows).unwrap() {
        let (a, b) = (batch.batch.column(0), batch.batch.column(1));
        let (a, b) = (a.as_primitive::<Int64Type>(), b.as_string::<i32>());
        out.extend(a.iter().zip(b).map(|(a, b)| {
            let a = a.map_or("-".to_owned(), |a| a.to_string());
            format!("{a}:{}", b.unwrap_or("-"))
        }));
        out.extend(batch.bad.iter().map(|bad| format!("!{}", bad.message)));
        out.push(format!("@{}", batch.offset));
    }
    out
}

#[test]
fn bad_records_are_skipped_and_told() {
    let directory = TempDir::new().unwrap();
    write(&directory, "\u{feff}{\"a\":1,\"b\":\"x\"}\r\n\n{\"a\":\"y\"}\n[1]\n{\"B\":\"z\",\"c\":[]}\n{\"a\":\n");
    let mut reader = json(&directory, None);
    let batch = reader.read(100).unwrap().unwrap();
    assert_eq!(batch.batch.num_rows(), 2);
    let bad: Vec<_> = batch.bad.iter().map(|b| (b.message.as_str(), b.raw.as_str(), b.position.as_str())).collect();
    assert_eq!(bad.len(), 3);
    assert_eq!(bad[0].1, "{\"a\":\"y\"}");
    assert_eq!(bad[0].2, "f, byte 21");
    assert!(bad[0].0.contains("column `a`"), "{}", bad[0].0);
    assert_eq!(bad[1].0, "not a JSON object");
    assert!(bad[2].0.starts_with("not JSON"), "{}", bad[2].0);
    assert!(reader.read(100).unwrap().is_none());
}

#[test]
fn reading_from_any_offset_gives_the_rest() {
    let directory = TempDir::new().unwrap();
    let lines: String =
        (0..50).map(|i| if i % 7 == 3 { "?\n\n".into() } else { format!("{i},\"x\n{i}\"\n") }).collect();
    write(&directory, &format!("a,b\n{}", lines.replace("?", "1,2,3")));
    let whole = |out: Vec<String>| out.into_iter().filter(|l| !l.starts_with('@')).collect::<Vec<_>>();
    let all = whole(read(&mut csv(&directory, None), 1_000));
    assert_eq!(all.iter().filter(|l| l.starts_with('!')).count(), 7);
    for size in [1, 3, 20] {
        let mut given = vec![];
        let mut first = csv(&directory, None);
        while let Some(batch) = first.read(size).unwrap() {
            assert!(batch.batch.num_rows() + batch.bad.len() <= size);
            given.push((batch.batch, batch.offset));
        }
        for (i, (_, offset)) in given.iter().enumerate() {
            let mut again = csv(&directory, Some(offset));
            for (batch, offset) in &given[i + 1..] {
                let next = again.read(size).unwrap().unwrap();
                assert_eq!((&next.batch, &next.offset), (batch, offset));
            }
            assert!(again.read(size).unwrap().is_none());
        }
    }
}

#[test]
fn a_file_that_grows_is_read_on() {
    let directory = TempDir::new().unwrap();
    write(&directory, "{\"a\":1}\n{\"a\"");
    let mut reader = json(&directory, None);
    reader.quiet = Duration::from_secs(1_000);
    assert_eq!(read(&mut reader, 10), ["1:-", "@8"]);
    assert!(read(&mut reader, 10).is_empty());
    write(&directory, ":2}\n{\"a\":3}\n");
    assert_eq!(read(&mut reader, 10), ["2:-", "3:-", "@24"]);
    assert_eq!(read(&mut json(&directory, Some("8")), 10), ["2:-", "3:-", "@24"]);
}

#[test]
fn the_last_line_counts_once_it_stays_the_same() {
    let directory = TempDir::new().unwrap();
    write(&directory, "{\"a\":1}");
    let mut reader = json(&directory, None);
    assert!(reader.read(10).unwrap().is_none());
    write(&directory, " ");
    assert!(reader.read(10).unwrap().is_none());
    assert_eq!(read(&mut reader, 10), ["1:-", "@8"]);
    write(&directory, "\n{\"a\":2}\n");
    assert_eq!(read(&mut reader, 10), ["2:-", "@17"]);
}

#[test]
fn a_quote_that_is_never_closed_costs_one_line() {
    let directory = TempDir::new().unwrap();
    write(&directory, "a,b\n1,\"x\n2,y\n3,z\n");
    let mut reader = csv(&directory, None);
    assert!(reader.read(10).unwrap().is_none());
    assert_eq!(read(&mut reader, 10), ["!a quote is not closed", "@9", "2:y", "3:z", "@17"]);
}

#[test]
fn a_record_that_is_too_long_is_skipped() {
    let directory = TempDir::new().unwrap();
    let long = "x".repeat(RECORD_BYTES_MAX + READ_BYTES);
    write(&directory, &format!("{{\"a\":1}}\n{{\"b\":\"{long}\"}}\n{{\"a\":2}}\n"));
    let out = read(&mut json(&directory, None), 10);
    assert_eq!(out.iter().filter(|l| !l.starts_with('@')).collect::<Vec<_>>(), ["1:-", "!longer than 16 MiB", "2:-"]);
    assert_eq!(out, read(&mut json(&directory, None), 10));
}

#[test]
fn a_file_that_is_gone_or_shorter_is_told_once() {
    let directory = TempDir::new().unwrap();
    write(&directory, "{\"a\":1}\n");
    let mut reader = json(&directory, None);
    assert_eq!(read(&mut reader, 10), ["1:-", "@8"]);
    std::fs::write(directory.path().join(FILE), "{}").unwrap();
    assert_eq!(read(&mut reader, 10), ["!the file has 2 bytes, of which 8 were read already", "@8"]);
    assert!(read(&mut reader, 10).is_empty());
    std::fs::remove_file(directory.path().join(FILE)).unwrap();
    let out = read(&mut reader, 10);
    assert!(out[0].contains("No such file"), "{out:?}");
    assert!(read(&mut reader, 10).is_empty());
}

#[test]
fn a_header_must_have_the_columns() {
    let directory = TempDir::new().unwrap();
    write(&directory, "x,A\n");
    assert_eq!(read(&mut csv(&directory, None), 10), ["!the file has no column `b`; it has `x` and `A`", "@0"]);
    std::fs::remove_file(directory.path().join(FILE)).unwrap();
    write(&directory, "B, A ,x\nq,1,\n\"\",,\n,5\n");
    assert_eq!(read(&mut csv(&directory, None), 10), ["1:q", "-:", "!2 fields instead of 3", "@21"]);
}
