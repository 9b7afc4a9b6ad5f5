//! What other clients see. Without `WEIR_PYTHON` these tests do nothing: it names an interpreter with the packages of
//! `scripts/python.sh`.

use std::process::{Command, Stdio};
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, Decimal256Array, Float32Array, Float64Array,
    Int16Array, Int32Array, Int64Array, LargeStringArray, ListArray, RecordBatch, StringArray, StructArray,
    Time64MicrosecondArray, TimestampMicrosecondArray,
};
use arrow::datatypes::{Field, Int64Type, Schema, i256};
use weir_common::{Chunk, Generation};

use crate::support::*;

/// Runs `client.py`, if there is a Python to do it. What it prints.
pub fn client(arguments: &[&str]) -> Option<Vec<String>> {
    let python = std::env::var("WEIR_PYTHON").ok()?;
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/iceberg/client.py");
    let output = Command::new(python).arg(script).args(arguments).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect())
}

/// The arguments that say which catalog.
fn catalog(warehouse: &Warehouse) -> [String; 2] {
    let path = warehouse.directory.path().to_str().unwrap();
    [format!("sqlite:///{path}/catalog.db"), format!("file://{path}")]
}

async fn deliver(warehouse: &Warehouse, generation: u64, rows: RecordBatch) {
    let sink = warehouse.open();
    let mut writer = sink.writer(Generation(generation), 0).await.unwrap();
    writer.write(Chunk::inserts(rows)).await.unwrap();
    let commit = flush(&mut writer, generation, generation).await;
    fenced(sink.as_ref(), generation).await.unwrap().commit(&commit).await.unwrap();
}

#[tokio::test]
async fn every_type_keeps_its_values() {
    let list = ListArray::from_iter_primitive::<Int64Type, _, _>([Some(vec![Some(1), None]), None, Some(vec![])]);
    let fields = vec![
        (
            Arc::new(Field::new("x", arrow::datatypes::DataType::Int32, true)),
            Arc::new(Int32Array::from(vec![1, 2, 3])) as ArrayRef,
        ),
        (
            Arc::new(Field::new("y", arrow::datatypes::DataType::Utf8, true)),
            Arc::new(StringArray::from(vec!["a", "b", "c"])),
        ),
    ];
    let one = i256::from_i128(10i128.pow(28));
    let numerics = [Some(one), Some(i256::from_i128(-15 * 10i128.pow(27))), None];
    let numerics = numerics.into_iter().collect::<Decimal256Array>().with_precision_and_scale(76, 28).unwrap();
    let decimal = |values: [Option<i128>; 3], precision, scale| {
        let array = values.into_iter().collect::<Decimal128Array>();
        Arc::new(array.with_precision_and_scale(precision, scale).unwrap()) as ArrayRef
    };
    let micros = [Some(-1i64), Some(1_700_000_000_123_456), None];
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("bool", Arc::new(BooleanArray::from(vec![Some(true), Some(false), None]))),
        ("i16", Arc::new(Int16Array::from(vec![Some(i16::MIN), Some(1), None]))),
        ("i32", Arc::new(Int32Array::from(vec![Some(i32::MIN), Some(1), None]))),
        ("i64", Arc::new(Int64Array::from(vec![Some(i64::MIN), Some(1), None]))),
        ("f32", Arc::new(Float32Array::from(vec![Some(1.5), Some(f32::NAN), None]))),
        ("f64", Arc::new(Float64Array::from(vec![Some(-0.1), Some(f64::INFINITY), None]))),
        ("d9", decimal([Some(-123_456_789), Some(1), None], 9, 2)),
        ("d18", decimal([Some(-123_456_789_012), Some(1), None], 18, 4)),
        ("d38", decimal([Some(-(10i128.pow(37))), Some(1), None], 38, 10)),
        ("numeric", Arc::new(numerics)),
        ("text", Arc::new(StringArray::from(vec![Some("ö and a long text, longer than a bound"), Some(""), None]))),
        ("json", Arc::new(LargeStringArray::from(vec![Some("{\"a\": 1}"), Some("null"), None]))),
        ("bytes", Arc::new(BinaryArray::from(vec![Some(&b"\xff\x00"[..]), Some(b""), None]))),
        ("date", Arc::new(Date32Array::from(vec![Some(-1), Some(20_000), None]))),
        ("time", Arc::new(Time64MicrosecondArray::from(vec![Some(0), Some(86_399_999_999), None]))),
        ("ts", Arc::new(TimestampMicrosecondArray::from(micros.to_vec()))),
        ("tstz", Arc::new(TimestampMicrosecondArray::from(micros.to_vec()).with_timezone("UTC"))),
        ("list", Arc::new(list)),
        ("struct", Arc::new(StructArray::from(fields))),
    ];
    let fields: Vec<Field> = columns.iter().map(|(n, c)| Field::new(*n, c.data_type().clone(), true)).collect();
    let mut warehouse = Warehouse::new(true, &[("partition_by", "year(ts), i16, d9, truncate(3, text), date")]);
    warehouse.spec.columns = Arc::new(Schema::new(fields));
    warehouse.prepared().await;
    let rows = RecordBatch::try_new(warehouse.spec.columns.clone(), columns.into_iter().map(|(_, c)| c).collect());
    deliver(&warehouse, 1, rows.unwrap()).await;

    let [catalog, path] = catalog(&warehouse);
    let Some(seen) = client(&["pyiceberg", &catalog, &path]) else { return };
    let expected = [
        r#"[false, 1, 1, 1, NaN, Infinity, "0.01", "0.0001", "1E-10", "-1.5", "", "null", "b''", "2024-10-04", "23:59:59.999999", "2023-11-14 22:13:20.123456", "2023-11-14 22:13:20.123456+00:00", null, {"x": 2, "y": "b"}]"#,
        r#"[null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, [], {"x": 3, "y": "c"}]"#,
        r#"[true, -32768, -2147483648, -9223372036854775808, 1.5, -0.1, "-1234567.89", "-12345678.9012", "-1000000000000000000000000000.0000000000", "1", "ö and a long text, longer than a bound", "{\"a\": 1}", "b'\\xff\\x00'", "1969-12-31", "00:00:00", "1969-12-31 23:59:59.999999", "1969-12-31 23:59:59.999999+00:00", [1, null], {"x": 1, "y": "a"}]"#,
    ];
    assert_eq!(seen, expected);
    // Partitions and bounds lead to the rows.
    for (filter, count) in [
        ("d9 = -1234567.89", 1),
        ("d18 < 0", 1),
        ("d38 < 0", 1),
        ("text = 'ö and a long text, longer than a bound'", 1),
        ("text > 'ö and a long text, longer'", 1),
        ("ts < '1970-01-01T00:00:00'", 1),
        ("date = '2024-10-04'", 1),
        ("i64 is null", 1),
        ("i64 > 0", 1),
        ("f64 < 0", 1),
        ("i64 = 77", 0),
    ] {
        assert_eq!(client(&["pyiceberg", &catalog, &path, filter]).unwrap().len(), count, "{filter}");
    }
    let seen = client(&["duckdb", &warehouse.metadata_location().await]).unwrap();
    assert_eq!(seen.len(), 3);
}

#[tokio::test]
async fn another_client_writes_to_the_same_table() {
    let warehouse = Warehouse::new(true, &[("partition_by", "bucket(4, id)")]);
    let sink = warehouse.prepared().await;
    let [catalog, path] = catalog(&warehouse);
    let mut committer = fenced(sink.as_ref(), 1).await.unwrap();
    committer.commit(&recorded(sink.as_ref(), 1, 1, "+1 a +2 b").await).await.unwrap();
    if client(&["append", &catalog, &path]).is_none() {
        return;
    }
    committer.commit(&recorded(sink.as_ref(), 1, 2, "+3 c").await).await.unwrap();
    client(&["append", &catalog, &path]).unwrap();
    let expected = [r#"[1, "a"]"#, r#"[100, "pyiceberg"]"#, r#"[100, "pyiceberg"]"#, r#"[2, "b"]"#, r#"[3, "c"]"#];
    assert_eq!(client(&["pyiceberg", &catalog, &path]).unwrap(), expected);
    assert_eq!(client(&["pyiceberg", &catalog, &path, "id = 3"]).unwrap(), [r#"[3, "c"]"#]);
    assert_eq!(warehouse.rows().await.len(), 5);
    // Its snapshots hide none of ours.
    let mut committer = fenced(warehouse.open().as_ref(), 2).await.unwrap();
    committer.clean(SINK, Generation(2)).await.unwrap();
    assert_eq!(warehouse.rows().await.len(), 5);
}

#[tokio::test]
async fn a_table_that_another_client_has_made() {
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("id", Arc::new(Int64Array::from(vec![1, 2]))),
        ("name", Arc::new(StringArray::from(vec![Some("a b/ö"), None]))),
        ("u", Arc::new(StringArray::from(vec![Some("0b7f7a4e-3f0e-4f39-8d3a-7d4f4a3d2e11"), None]))),
        ("f", Arc::new(BinaryArray::from(vec![Some(&b"ab"[..]), None]))),
        ("n", {
            let values = [Some(i256::from_i128(5 * 10i128.pow(27))), None].into_iter();
            Arc::new(values.collect::<Decimal256Array>().with_precision_and_scale(76, 28).unwrap())
        }),
    ];
    let fields: Vec<Field> = columns.iter().map(|(n, c)| Field::new(*n, c.data_type().clone(), true)).collect();
    let mut warehouse = Warehouse::new(true, &[]);
    warehouse.spec.columns = Arc::new(Schema::new(fields));
    let [catalog, path] = catalog(&warehouse);
    if client(&["create", &catalog, &path]).is_none() {
        return;
    }
    warehouse.prepared().await;
    let rows = RecordBatch::try_new(warehouse.spec.columns.clone(), columns.into_iter().map(|(_, c)| c).collect());
    deliver(&warehouse, 1, rows.unwrap()).await;
    let expected = [
        r#"[1, null, "a b/ö", "0b7f7a4e-3f0e-4f39-8d3a-7d4f4a3d2e11", "b'ab'", "0.500"]"#,
        "[2, null, null, null, null, null]",
    ];
    assert_eq!(client(&["pyiceberg", &catalog, &path]).unwrap(), expected);
}

#[tokio::test]
async fn another_reader_applies_our_deletes() {
    for options in [&[][..], &[("partition_by", "name")], &[("partition_by", "bucket(3, id)")]] {
        let warehouse = Warehouse::new(false, options);
        crate::upserts::random_commits(&warehouse, 42).await;
        let expected: Vec<String> =
            warehouse.rows().await.iter().map(|r| format!("[\"{}\"]", r.replace(' ', "\", \""))).collect();
        assert!(!expected.is_empty());
        let Some(seen) = client(&["duckdb", &warehouse.metadata_location().await]) else { return };
        assert_eq!(seen, expected, "{options:?}");
    }
}
