#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, Decimal128Array, Float64Array, Int32Array, Int64Array, LargeStringArray, RecordBatch, StringArray,
    TimestampNanosecondArray,
};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;
use tempfile::TempDir;
use weir_common::text::{TextFormat, write_value};
use weir_common::types::SqlType;

use crate::{ConnectorError, SourceBatch, open, reads_by_position, validate};

fn format(encode: &str) -> Option<(String, String)> {
    Some(("PLAIN".to_owned(), encode.to_owned()))
}

fn options(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    [("connector", "posix_fs")].iter().chain(pairs).map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
}

fn directory(files: &[(&str, &str)]) -> TempDir {
    let directory = TempDir::new().unwrap();
    for (name, text) in files {
        let path = directory.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    directory
}

fn columns(columns: &[(&str, SqlType)]) -> SchemaRef {
    Arc::new(Schema::new(columns.iter().map(|(n, t)| Field::new(*n, t.to_arrow(), true)).collect::<Vec<_>>()))
}

fn show(batch: &RecordBatch) -> Vec<String> {
    let value = |column: &ArrayRef, row: usize| {
        let mut out = String::new();
        write_value(column, row, &TextFormat::default(), &mut out);
        if column.is_null(row) { "NULL".to_owned() } else { out }
    };
    let row = |row| batch.columns().iter().map(|c| value(c, row)).collect::<Vec<_>>().join("|");
    (0..batch.num_rows()).map(row).collect()
}

/// All batches of a split.
async fn read(
    options: &BTreeMap<String, String>,
    encode: &str,
    columns: &SchemaRef,
    split: &str,
    offset: Option<&str>,
    rows: usize,
) -> Vec<SourceBatch> {
    let mut source = open(options, format(encode).as_ref(), columns).unwrap();
    let mut reader = source.reader(split, offset).unwrap();
    let mut out = vec![];
    while let Some(batch) = reader.next(rows).await.unwrap() {
        out.push(batch);
    }
    out
}

async fn splits(pairs: &[(&str, &str)]) -> Vec<String> {
    let columns = columns(&[("a", SqlType::Integer)]);
    open(&options(pairs), format("json").as_ref(), &columns).unwrap().splits().await.unwrap()
}

#[tokio::test]
async fn the_files_that_match_are_the_splits() {
    let files = ["b.json", "a.json", "c.csv", ".hidden.json", "d/e/f.json", ".d/g.json"].map(|f| (f, ""));
    let directory = directory(&files);
    let root = directory.path().to_str().unwrap();
    assert_eq!(splits(&[("posix_fs.root", root)]).await, ["a.json", "b.json", "c.csv", "d/e/f.json"]);
    let json = [("posix_fs.root", root), ("match_pattern", "*.json")];
    assert_eq!(splits(&json).await, ["a.json", "b.json", "d/e/f.json"]);
    fs::write(directory.path().join("aa.json"), "").unwrap();
    assert_eq!(splits(&json).await, ["a.json", "aa.json", "b.json", "d/e/f.json"]);
    for (path, files) in [("", 5), ("/*.json", 3), ("/d/**/*.json", 1), ("/a.json", 1), ("/[ab]*.json", 3)] {
        assert_eq!(splits(&[("path", &format!("{root}{path}"))]).await.len(), files, "{path}");
    }
}

#[tokio::test]
async fn json_lines_become_rows() {
    let lines = "{\"id\":1,\"price\":0.1234567890123456789,\"tags\":[\"x\",null],\"doc\":{\"b\":1,\"a\":[1.0]},\"extra\":1}\n\
                 {\"ID\":2,\"price\":\"7\",\"at\":\"2024-02-29T01:02:03Z\"}\n\
                 {\"id\":3,\"at\":\"yesterday\"}\n";
    let directory = directory(&[("a", lines)]);
    let schema = columns(&[
        ("doc", SqlType::Jsonb),
        ("id", SqlType::BigInt),
        ("price", SqlType::Numeric(None)),
        ("tags", SqlType::Array(Box::new(SqlType::Varchar))),
        ("at", SqlType::TimestampTz),
    ]);
    let options = options(&[("posix_fs.root", directory.path().to_str().unwrap())]);
    assert_eq!(validate(&options, format("JSON").as_ref(), Some(&schema)).unwrap(), schema);
    let batches = read(&options, "JSON", &schema, "a", None, 100).await;
    assert_eq!(
        show(&batches[0].batch),
        ["{\"a\": [1.0], \"b\": 1}|1|0.1234567890123456789|{x,NULL}|NULL", "NULL|2|7|NULL|2024-02-29 01:02:03+00",]
    );
    assert_eq!(batches[0].bad.len(), 1);
    let none = Arc::new(Schema::empty());
    let batches = read(&options, "JSON", &none, "a", None, 100).await;
    assert_eq!(batches[0].batch.num_rows(), 3);
}

#[tokio::test]
async fn not_null_columns_refuse_null() {
    let directory = directory(&[("a", "{\"a\":1}\n{}\n{\"a\":null}\n{\"a\":2}\n")]);
    let options = options(&[("path", directory.path().to_str().unwrap())]);
    let schema = Arc::new(Schema::new(vec![Field::new("a", DataType::Int32, false)]));
    let batches = read(&options, "JSON", &schema, "a", None, 100).await;
    assert_eq!(show(&batches[0].batch), ["1", "2"]);
    assert_eq!(batches[0].bad.len(), 2);
}

#[tokio::test]
async fn csv_without_a_header_goes_by_position() {
    let directory = directory(&[("a.csv", "1;x\n2;\n;\"\"\n")]);
    let root = directory.path().to_str().unwrap();
    let options = options(&[("posix_fs.root", root), ("without_header", "true"), ("delimiter", ";")]);
    let schema = columns(&[("n", SqlType::SmallInt), ("s", SqlType::Varchar)]);
    assert!(reads_by_position(&options, format("csv").as_ref()).unwrap());
    let batches = read(&options, "CSV", &schema, "a.csv", None, 100).await;
    assert_eq!(show(&batches[0].batch), ["1|x", "2|NULL", "NULL|"]);
}

#[test]
fn columns_are_found_in_the_first_file() {
    let infer = |encode: &str, text: &str| {
        let directory = directory(&[("a", text)]);
        let options = options(&[("posix_fs.root", directory.path().to_str().unwrap())]);
        let schema = validate(&options, format(encode).as_ref(), None)?;
        let name = |t| SqlType::from_arrow(t).unwrap().to_string();
        let fields = schema.fields().iter().map(|f| format!("{} {}", f.name(), name(f.data_type())));
        Ok::<_, ConnectorError>(fields.collect::<Vec<_>>().join(", "))
    };
    assert_eq!(
        infer("json", "{\"a\":1,\"b\":null,\"c\":\"x\"}\n?\n{\"a\":1.5,\"d\":true,\"e\":{},\"c\":1}").unwrap(),
        "a double precision, b jsonb, c jsonb, d boolean, e jsonb"
    );
    assert_eq!(
        infer("csv", "id,zip,at,day,x,ok\n1,01234,2024-01-01 10:00:00,2024-01-01,1,true\n2,99999,,2024-01-02,1.5,\n")
            .unwrap(),
        "id bigint, zip character varying, at timestamp without time zone, day date, x double precision, ok boolean"
    );
    assert_eq!(
        infer("json", "").unwrap_err().to_string(),
        "the columns must be declared: a: there is no record in the file"
    );
}

fn write_parquet(path: &Path, columns: Vec<(&str, ArrayRef)>, group_rows: usize) {
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(group_rows)).build();
    let mut writer = ArrowWriter::try_new(File::create(path).unwrap(), batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
}

#[tokio::test]
async fn parquet_is_read_from_any_row() {
    let directory = TempDir::new().unwrap();
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..1_000));
    let strings: ArrayRef = Arc::new(StringArray::from_iter_values((0..1_000).map(|i| format!("s{i}"))));
    write_parquet(&directory.path().join("f.parquet"), vec![("N", numbers), ("s", strings)], 300);
    let options = options(&[("posix_fs.root", directory.path().to_str().unwrap())]);
    let schema = columns(&[("s", SqlType::Varchar), ("n", SqlType::BigInt)]);
    let all = read(&options, "PARQUET", &schema, "f.parquet", None, 1_000).await;
    let all: Vec<String> = all.iter().flat_map(|b| show(&b.batch)).collect();
    assert_eq!(all, (0..1_000).map(|i| format!("s{i}|{i}")).collect::<Vec<_>>());
    for start in [0usize, 1, 299, 300, 301, 650, 999, 1_000, 2_000] {
        let rest = read(&options, "PARQUET", &schema, "f.parquet", Some(&start.to_string()), 77).await;
        assert!(rest.iter().all(|b| b.batch.num_rows() <= 77));
        let rest: Vec<String> = rest.iter().flat_map(|b| show(&b.batch)).collect();
        assert_eq!(rest, all[start.min(1_000)..], "{start}");
    }
    let none = read(&options, "PARQUET", &Arc::new(Schema::empty()), "f.parquet", Some("990"), 1_000).await;
    assert_eq!(none.iter().map(|b| b.batch.num_rows()).sum::<usize>(), 10);
}

#[tokio::test]
async fn parquet_values_that_do_not_fit_are_bad() {
    let directory = TempDir::new().unwrap();
    let columns_of_file: Vec<(&str, ArrayRef)> = vec![
        ("small", Arc::new(Int64Array::from(vec![Some(1), Some(70_000), None, Some(4)]))),
        ("doc", Arc::new(LargeStringArray::from(vec!["{\"b\":1,\"a\":2}", "[]", "1.0", "{"]))),
        ("at", Arc::new(TimestampNanosecondArray::from(vec![1_500; 4]))),
        ("d", Arc::new(Decimal128Array::from(vec![125; 4]).with_precision_and_scale(10, 2).unwrap())),
    ];
    write_parquet(&directory.path().join("f"), columns_of_file, 100);
    let options = options(&[("posix_fs.root", directory.path().to_str().unwrap())]);
    let schema = columns(&[
        ("small", SqlType::SmallInt),
        ("doc", SqlType::Jsonb),
        ("at", SqlType::Timestamp),
        ("d", SqlType::Numeric(None)),
    ]);
    let batches = read(&options, "PARQUET", &schema, "f", None, 100).await;
    assert_eq!(
        show(&batches[0].batch),
        ["1|{\"a\": 2, \"b\": 1}|1970-01-01 00:00:00.000001|1.25", "NULL|1.0|1970-01-01 00:00:00.000001|1.25",]
    );
    let bad: Vec<_> = batches[0].bad.iter().map(|b| (b.position.as_str(), b.message.as_str())).collect();
    assert_eq!(bad[0], ("f, row 1", "column `small`: the value does not fit smallint"));
    assert_eq!(bad[1].0, "f, row 3");
    let inferred = validate(&options, format("parquet").as_ref(), None).unwrap();
    assert_eq!(inferred.field_with_name("doc").unwrap().data_type(), &DataType::Utf8);
}

#[tokio::test]
async fn a_file_that_is_not_parquet_is_told_once_it_stays() {
    let directory = directory(&[("f", "not parquet at all")]);
    let options = options(&[("posix_fs.root", directory.path().to_str().unwrap())]);
    let schema = columns(&[("a", SqlType::Integer)]);
    let mut reader = super::parquet::ParquetReader::new("f", directory.path().join("f"), schema.clone(), None).unwrap();
    reader.look_always();
    assert!(reader.read(10).unwrap().is_none());
    assert_eq!(reader.read(10).unwrap().unwrap().bad.len(), 1);
    assert!(reader.read(10).unwrap().is_none());
    write_parquet(&directory.path().join("f"), vec![("a", Arc::new(Int32Array::from(vec![7])))], 10);
    assert_eq!(show(&reader.read(10).unwrap().unwrap().batch), ["7"]);
    let floats: ArrayRef = Arc::new(Float64Array::from(vec![1.5]));
    write_parquet(&directory.path().join("f"), vec![("a", floats)], 10);
    let error = validate(&options, format("parquet").as_ref(), Some(&schema)).unwrap_err().to_string();
    assert_eq!(
        error,
        "the columns do not fit file f: column `a` of the file has type Float64, which does not fit integer"
    );
}

#[test]
fn what_is_wrong_is_refused_with_what_is_right() {
    let directory = directory(&[("a.csv", "x,y\n")]);
    let root = directory.path().to_str().unwrap();
    let schema = columns(&[("a", SqlType::Integer)]);
    let check = |pairs: &[(&str, &str)], encode: &str, message: &str| {
        let error = validate(&options(pairs), format(encode).as_ref(), Some(&schema)).unwrap_err();
        assert_eq!(error.to_string(), message);
        assert_eq!(error.remedy(), weir_common::Remedy::Reject);
    };
    check(&[], "JSON", "connector `posix_fs` needs option `posix_fs.root`: the directory with the files");
    check(
        &[("posix_fs.root", root)],
        "AVRO",
        "connector `posix_fs` cannot read FORMAT PLAIN ENCODE AVRO; it is FORMAT PLAIN ENCODE JSON, CSV or PARQUET",
    );
    check(
        &[("posix_fs.root", root), ("delimiter", "ab")],
        "CSV",
        "option `delimiter` cannot be 'ab': it is one character of ASCII, or '\\t'",
    );
    check(
        &[("posix_fs.root", root)],
        "CSV",
        "the columns do not fit file a.csv: the file has no column `a`; it has `x` and `y`",
    );
    check(
        &[("posix_fs.root", "/there/is/no/such")],
        "JSON",
        "option `posix_fs.root` cannot be '/there/is/no/such': it is not a directory that can be read",
    );
    let missing = validate(&options(&[("path", root)]), None, Some(&schema)).unwrap_err();
    assert_eq!(missing.to_string(), "connector `posix_fs` needs a format, such as FORMAT PLAIN ENCODE JSON");
}
