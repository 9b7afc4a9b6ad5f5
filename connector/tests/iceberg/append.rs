//! Appends, to tables with and without partitions.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, Date32Array, Decimal128Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray,
};
use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use weir_common::{Chunk, Generation};

use crate::support::*;

#[tokio::test]
async fn rows_of_all_writers_come_with_the_commit() {
    let warehouse = Warehouse::new(true, &[]);
    let sink = warehouse.prepared().await;
    let mut committer = fenced(sink.as_ref(), 1).await.unwrap();
    let mut parts = Vec::new();
    let stamp = stamp(1, 10);
    for (index, rows) in ["+1 a +2 b", "+3 c", ""].iter().enumerate() {
        let mut writer = sink.writer(Generation(1), index).await.unwrap();
        writer.write(chunk(rows)).await.unwrap();
        parts.extend(writer.flush(&stamp).await.unwrap());
        assert_eq!(writer.memory_bytes(), 0);
    }
    assert_eq!(parts.len(), 2);
    assert!(warehouse.rows().await.is_empty());
    let commit = weir_connector::Commit { stamp, parts };
    committer.commit(&commit).await.unwrap();
    assert_eq!(warehouse.rows().await, ["1 a", "2 b", "3 c"]);

    let metadata = warehouse.metadata().await;
    let summary = &metadata.current_snapshot().unwrap().summary().additional_properties;
    for (key, value) in [("weir.sink", "7"), ("weir.commit", &commit.stamp.commit), ("weir.epoch", "10")] {
        assert_eq!(summary[key], value);
    }
    for (key, value) in [("added-records", "3"), ("total-records", "3"), ("total-data-files", "2")] {
        assert_eq!(summary[key], value);
    }
    assert_eq!(metadata.properties()["weir.sink.7.generation"], "1");

    // A commit without files says how far the sink is, and makes no snapshot.
    let empty = weir_connector::Commit { stamp: crate::support::stamp(1, 11), parts: Vec::new() };
    committer.commit(&empty).await.unwrap();
    assert!(committer.is_committed(&empty).await.unwrap());
    assert_eq!(warehouse.metadata().await.snapshots().len(), 1);
}

#[tokio::test]
async fn a_file_is_closed_at_its_target_size() {
    let warehouse = Warehouse::new(true, &[("target_file_size_mb", "1"), ("compression", "none")]);
    let sink = warehouse.prepared().await;
    let mut writer = sink.writer(Generation(1), 0).await.unwrap();
    let name = "x".repeat(1000);
    for batch in 0..10 {
        // Texts of 1 kB that have no like.
        let ids: Vec<i64> = (batch * 300..(batch + 1) * 300).collect();
        let names: Vec<String> = ids.iter().map(|id| format!("{id}{name}")).collect();
        let arrays: Vec<ArrayRef> = vec![Arc::new(Int64Array::from(ids)), Arc::new(StringArray::from(names))];
        writer.write(Chunk::inserts(RecordBatch::try_new(columns(), arrays).unwrap())).await.unwrap();
    }
    let commit = flush(&mut writer, 1, 1).await;
    fenced(sink.as_ref(), 1).await.unwrap().commit(&commit).await.unwrap();
    assert!((2..=4).contains(&warehouse.files(".parquet").len()), "{:?}", warehouse.files(".parquet"));
    assert_eq!(warehouse.rows().await.len(), 3000);
}

#[tokio::test]
async fn each_partition_has_a_file() {
    let warehouse = Warehouse::new(true, &[("partition_by", "truncate(1, name), bucket(2, id)")]);
    let sink = warehouse.prepared().await;
    let mut committer = fenced(sink.as_ref(), 1).await.unwrap();
    let commit = recorded(sink.as_ref(), 1, 1, "+1 a/1 +2 b +3 a/2 +4 a/1 +5 b +6 ../x").await;
    committer.commit(&commit).await.unwrap();
    assert_eq!(warehouse.rows().await, ["1 a/1", "2 b", "3 a/2", "4 a/1", "5 b", "6 ../x"]);
    for file in warehouse.files(".parquet") {
        let path = file.split("/d/t/data/").nth(1).unwrap();
        let levels: Vec<&str> = path.split('/').collect();
        assert!(levels[0].starts_with("name_trunc=") && levels[1].starts_with("id_bucket="), "{path}");
        assert!(levels[2].starts_with("weir-7-1-0-") && levels.len() == 3, "{path}");
    }
}

#[tokio::test]
async fn all_transforms_of_all_types() {
    let field = |name: &str, data_type| Field::new(name, data_type, true);
    let mut warehouse = Warehouse::new(true, &[]);
    warehouse.spec.columns = Arc::new(Schema::new(vec![
        field("id", DataType::Int64),
        field("name", DataType::Utf8),
        field("day", DataType::Date32),
        field("at", DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))),
        field("price", DataType::Decimal128(12, 2)),
    ]));
    let arrays: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from(vec![1, 2, 3])),
        Arc::new(StringArray::from(vec!["a", "ö", "c"])),
        Arc::new(Date32Array::from(vec![Some(-1), Some(20_000), None])),
        Arc::new(
            TimestampMicrosecondArray::from(vec![Some(-1), Some(1_700_000_000_000_000), None]).with_timezone("UTC"),
        ),
        Arc::new(Decimal128Array::from(vec![Some(-105), Some(999), None]).with_precision_and_scale(12, 2).unwrap()),
    ];
    let rows = RecordBatch::try_new(warehouse.spec.columns.clone(), arrays).unwrap();
    for (table, partition_by) in [
        ("a", "day, at, price"),
        ("b", "year(day), month(at), truncate(100, price)"),
        ("c", "month(day), day(at), bucket(4, price)"),
        ("d", "day(day), hour(at), truncate(2, name)"),
        ("e", "bucket(8, at), bucket(8, day), void(id), name"),
        ("f", "identity(id), year(at), truncate(2, id)"),
    ] {
        warehouse.spec.options.insert("table.name".into(), table.into());
        warehouse.spec.options.insert("partition_by".into(), partition_by.into());
        let sink = warehouse.prepared().await;
        let mut writer = sink.writer(Generation(1), 0).await.unwrap();
        writer.write(Chunk::inserts(rows.clone())).await.unwrap();
        let commit = flush(&mut writer, 1, 1).await;
        fenced(sink.as_ref(), 1).await.unwrap().commit(&commit).await.unwrap();
        // The values were written as they were recorded.
        assert!(sink.committer().await.unwrap().is_committed(&commit).await.unwrap(), "{partition_by}");
    }
}

#[tokio::test]
async fn many_partitions_within_the_bound_of_open_files() {
    let warehouse = Warehouse::new(true, &[("partition_by", "id")]);
    let sink = warehouse.prepared().await;
    let mut writer = sink.writer(Generation(1), 0).await.unwrap();
    let text: Vec<String> = (0..1200).map(|id| format!("+{id} x")).collect();
    writer.write(chunk(&text.join(" "))).await.unwrap();
    writer.write(chunk("+1199 y")).await.unwrap();
    let commit = flush(&mut writer, 1, 1).await;
    fenced(sink.as_ref(), 1).await.unwrap().commit(&commit).await.unwrap();
    assert_eq!(warehouse.rows().await.len(), 1201);
}
