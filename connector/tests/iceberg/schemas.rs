//! Tables whose columns or partitions are not those of the sink.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema};
use weir_common::{Chunk, Generation};

use crate::support::*;

fn with_column(warehouse: &mut Warehouse, name: &str, data_type: DataType) {
    let mut fields = warehouse.spec.columns.fields().to_vec();
    fields.push(Arc::new(Field::new(name, data_type, true)));
    warehouse.spec.columns = Arc::new(Schema::new(fields));
}

#[tokio::test]
async fn differences_are_refused_by_name() {
    let mut warehouse = Warehouse::new(true, &[]);
    warehouse.prepared().await;
    with_column(&mut warehouse, "extra", DataType::Int64);
    let error = warehouse.open().prepare().await.unwrap_err();
    assert_eq!(error.to_string(), "the destination does not fit: the table has no column `extra`");

    let mut other = Warehouse::new(true, &[("create_table_if_not_exists", "false")]);
    assert_eq!(other.open().prepare().await.unwrap_err().to_string(), "table d.t is gone");
    other.spec.options.insert("partition_by".into(), "nope".into());
    other.spec.options.insert("create_table_if_not_exists".into(), "true".into());
    let error = other.open().prepare().await.unwrap_err();
    assert_eq!(error.to_string(), "partition_by has no column `nope`; it has `id` and `name`");
    other.spec.options.insert("partition_by".into(), "day(id)".into());
    let error = other.open().prepare().await.unwrap_err();
    assert_eq!(error.to_string(), "the destination does not fit: partition_by: day(id) cannot be made of type long");

    warehouse.spec.columns = columns();
    warehouse.spec.options.insert("partition_by".into(), "id".into());
    let error = warehouse.open().prepare().await.unwrap_err();
    assert_eq!(error.to_string(), "the destination does not fit: the table is partitioned by (), not by (id)");
}

#[tokio::test]
async fn a_new_column_is_added_when_asked_for() {
    let mut warehouse = Warehouse::new(true, &[("auto_schema_change", "true")]);
    let sink = warehouse.prepared().await;
    let mut committer = fenced(sink.as_ref(), 1).await.unwrap();
    committer.commit(&recorded(sink.as_ref(), 1, 1, "+1 a").await).await.unwrap();
    let before = recorded(sink.as_ref(), 1, 2, "+2 b").await;

    with_column(&mut warehouse, "Extra", DataType::Decimal128(10, 2));
    with_column(&mut warehouse, "more", DataType::Utf8);
    let sink = warehouse.open();
    let mut committer = fenced(sink.as_ref(), 2).await.unwrap();
    let mut writer = sink.writer(Generation(2), 0).await.unwrap();
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from(vec![3])),
        Arc::new(StringArray::from(vec!["c"])),
        arrow::array::new_null_array(warehouse.spec.columns.field(2).data_type(), 1),
        Arc::new(StringArray::from(vec!["x"])),
    ];
    let rows = RecordBatch::try_new(warehouse.spec.columns.clone(), columns).unwrap();
    writer.write(Chunk::inserts(rows)).await.unwrap();
    let after = flush(&mut writer, 2, 3).await;
    // Files with the old columns are as good as before.
    committer.commit(&before).await.unwrap();
    committer.commit(&after).await.unwrap();
    assert_eq!(warehouse.rows().await, ["1 a", "2 b", "3 c"]);
    let metadata = warehouse.metadata().await;
    let fields: Vec<(i32, String)> =
        metadata.current_schema().as_struct().fields().iter().map(|f| (f.id, f.name.clone())).collect();
    assert_eq!(fields, [(1, "id".into()), (2, "name".into()), (3, "Extra".into()), (4, "more".into())]);
}
