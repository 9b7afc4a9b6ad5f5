//! A topic that is read.

use std::sync::Arc;
use std::time::Instant;

use arrow::array::Array;
use arrow::datatypes::{Field, Schema, SchemaRef};
use weir_common::text::{TextFormat, write_value};
use weir_common::types::SqlType;
use weir_connector::{ConnectorError, Source, SourceBatch, SplitReader, open, validate};

use super::broker::{Broker, DEADLINE};

fn schema(columns: &[(&str, SqlType)]) -> SchemaRef {
    Arc::new(Schema::new(columns.iter().map(|(n, t)| Field::new(*n, t.to_arrow(), true)).collect::<Vec<_>>()))
}

fn format(encode: &str) -> (String, String) {
    ("PLAIN".into(), encode.into())
}

pub fn json(broker: &Broker, options: &[(&str, &str)]) -> Box<dyn Source> {
    let columns = schema(&[("k", SqlType::Integer), ("v", SqlType::Varchar)]);
    open(&broker.options(options), Some(&format("JSON")), &columns).unwrap()
}

/// The next batch that there is.
async fn batch(reader: &mut dyn SplitReader, max_rows: usize) -> SourceBatch {
    let begun = Instant::now();
    loop {
        assert!(begun.elapsed() < DEADLINE, "no batch comes");
        if let Some(batch) = reader.next(max_rows).await.unwrap() {
            return batch;
        }
        tokio::task::yield_now().await;
    }
}

/// `count` rows, and the offset and bad records after them.
pub async fn rows(reader: &mut dyn SplitReader, count: usize, max_rows: usize) -> (Vec<String>, String, Vec<String>) {
    let (mut rows, mut offset, mut bad) = (vec![], String::new(), vec![]);
    while rows.len() + bad.len() < count {
        let got = batch(reader, max_rows.min(count - rows.len() - bad.len())).await;
        for row in 0..got.batch.num_rows() {
            let text = |array: &Arc<dyn Array>| {
                let mut out = String::new();
                write_value(array, row, &TextFormat::default(), &mut out);
                if array.is_null(row) { "NULL".to_owned() } else { out }
            };
            rows.push(got.batch.columns().iter().map(text).collect::<Vec<_>>().join("|"));
        }
        bad.extend(got.bad.into_iter().map(|b| format!("{}: {} [{}]", b.position, b.message, b.raw)));
        offset = got.offset;
    }
    (rows, offset, bad)
}

#[tokio::test]
async fn from_an_offset_come_the_same_rows_in_any_batches() {
    let broker = Broker::new(2);
    let messages: Vec<String> = (0..50).map(|k| format!("{{\"k\":{k},\"v\":\"x{k}\"}}")).collect();
    broker.send(1, 1, &messages.iter().map(|m| ("-", m.as_str())).collect::<Vec<_>>());
    let mut source = json(&broker, &[]);
    assert_eq!(source.splits().await.unwrap(), ["0", "1"]);
    let mut reader = source.reader("1", None).unwrap();
    let (first, offset, _) = rows(&mut *reader, 20, 7).await;
    assert_eq!((first[19].as_str(), offset.as_str()), ("19|x19", "20"));
    let (rest, end, _) = rows(&mut *reader, 30, 1000).await;
    assert_eq!((rest.len(), end.as_str()), (30, "50"));
    assert!(reader.next(10).await.unwrap().is_none());
    // Another reader of the same source, and of another one.
    drop(reader);
    let mut again = source.reader("1", Some(&offset)).unwrap();
    assert_eq!(rows(&mut *again, 30, 3).await.0, rest);
    let mut again = json(&broker, &[]).reader("1", Some(&offset)).unwrap();
    assert_eq!(rows(&mut *again, 30, 11).await.0, rest);
    let mut other = source.reader("0", None).unwrap();
    broker.send(0, 1, &[("-", "{\"k\":7}")]);
    assert_eq!(rows(&mut *other, 1, 10).await.0, ["7|NULL"]);
}

#[tokio::test]
async fn messages_that_do_not_fit_are_skipped_and_told() {
    let broker = Broker::new(1);
    let messages = [("a", "{\"k\":1}"), ("a", "{\"k\":\"x\"}"), ("a", "-"), ("a", "[1]"), ("a", "{\"k\":2,\"v\":3}")];
    broker.send(0, 1, &messages);
    let mut reader = json(&broker, &[]).reader("0", None).unwrap();
    let (good, offset, bad) = rows(&mut *reader, 5, 10).await;
    assert_eq!((good, offset.as_str()), (vec!["1|NULL".to_owned(), "2|3".into()], "5"));
    assert!(bad[0].starts_with("partition 0, offset 1: column `k`:"), "{bad:?}");
    assert_eq!(bad[1], "partition 0, offset 2: the message has no value []");
    assert_eq!(bad[2], "partition 0, offset 3: not a JSON object [[1]]");
}

#[tokio::test]
async fn columns_from_around_a_message() {
    let broker = Broker::new(2);
    broker.send(1, 1_709_164_800_123, &[("a", "{\"k\":1}"), ("-", "{\"k\":2}")]);
    let options =
        [("include.key", "key"), ("include.offset", "o"), ("include.partition", "p"), ("include.timestamp", "t")];
    let options = broker.options(&options);
    let declared = schema(&[("t", SqlType::Timestamp), ("k", SqlType::Integer), ("key", SqlType::Varchar)]);
    let columns = validate(&options, Some(&format("JSON")), Some(&declared)).unwrap();
    let names: Vec<_> = columns.fields().iter().map(|f| format!("{} {}", f.name(), f.data_type())).collect();
    assert_eq!(names, ["t Timestamp(µs)", "k Int32", "key Utf8", "o Int64", "p Int32"]);
    let mut reader = open(&options, Some(&format("JSON")), &columns).unwrap().reader("1", None).unwrap();
    let expected = ["2024-02-29 00:00:00.123|1|a|0|1", "2024-02-29 00:00:00.123|2|NULL|1|1"];
    assert_eq!(rows(&mut *reader, 2, 10).await.0, expected);
}

#[tokio::test]
async fn csv_goes_by_position_and_bytes_are_one_column() {
    let broker = Broker::new(1);
    broker.send(0, 1, &[("-", "1;\"a;b\""), ("-", "2;\n"), ("-", "3")]);
    let columns = schema(&[("n", SqlType::Integer), ("o", SqlType::BigInt), ("s", SqlType::Varchar)]);
    let options = broker.options(&[("delimiter", ";"), ("include.offset", "o")]);
    let mut reader = open(&options, Some(&format("CSV")), &columns).unwrap().reader("0", None).unwrap();
    let (good, _, bad) = rows(&mut *reader, 3, 10).await;
    assert_eq!(
        (good, bad),
        (
            vec!["1|0|a;b".to_owned(), "2|1|NULL".into()],
            vec!["partition 0, offset 2: 1 fields instead of 2 [3]".to_owned()]
        )
    );
    let options = broker.options(&[]);
    let columns = validate(&options, Some(&format("BYTES")), None).unwrap();
    let mut reader = open(&options, Some(&format("BYTES")), &columns).unwrap().reader("0", None).unwrap();
    assert_eq!(rows(&mut *reader, 3, 10).await.0, ["\\x313b22613b6222", "\\x323b0a", "\\x33"]);
}

#[tokio::test]
async fn reading_begins_at_the_end_or_at_a_time() {
    let broker = Broker::new(2);
    broker.send(0, 1000, &[("-", "{\"k\":1}")]);
    broker.send(0, 2000, &[("-", "{\"k\":2}")]);
    let mut source = json(&broker, &[("scan.startup.mode", "latest")]);
    source.splits().await.unwrap();
    let mut reader = source.reader("0", None).unwrap();
    // The place is told before there is a row, so that a restart does not miss what comes until then.
    let place = batch(&mut *reader, 10).await;
    assert_eq!((place.batch.num_rows(), place.offset.as_str()), (0, "2"));
    broker.send(0, 3000, &[("-", "{\"k\":3}")]);
    assert_eq!(rows(&mut *reader, 1, 10).await.0, ["3|NULL"]);
    // A partition without an offset beside one with an offset is new: nothing of it is missed.
    broker.send(1, 1, &[("-", "{\"k\":9}")]);
    let mut source = json(&broker, &[("scan.startup.mode", "latest")]);
    let mut known = source.reader("0", Some("2")).unwrap();
    let mut new = source.reader("1", None).unwrap();
    assert_eq!(rows(&mut *new, 1, 10).await.0, ["9|NULL"]);
    assert_eq!(rows(&mut *known, 1, 10).await.0, ["3|NULL"]);
}

#[tokio::test]
async fn what_is_gone_or_cannot_be_reached_is_an_error_that_says_so() {
    let broker = Broker::new(1);
    let mut options = broker.options(&[]);
    options.insert("topic".into(), "other".into());
    let columns = schema(&[("k", SqlType::Integer)]);
    let error = open(&options, Some(&format("JSON")), &columns).unwrap().splits().await.unwrap_err();
    assert_eq!(error.to_string(), "topic `other` is gone");
    broker.send(0, 1, &[("-", "{\"k\":1}")]);
    let mut reader = json(&broker, &[]).reader("0", Some("17")).unwrap();
    let error = loop {
        match reader.next(10).await {
            Ok(None) => tokio::task::yield_now().await,
            Ok(Some(batch)) => panic!("{batch:?}"),
            Err(error) => break error,
        }
    };
    assert_eq!(error.to_string(), "offset 17 of partition 0 of topic `orders` is gone");
    assert!(matches!(json(&broker, &[]).reader("x", None), Err(ConnectorError::UnknownSplit { .. })));
    assert!(matches!(json(&broker, &[]).reader("0", Some("-1")), Err(ConnectorError::InvalidOffset { .. })));
}

#[test]
fn options_are_checked_without_a_broker() {
    /// ENCODE, options, and what the error says.
    type Case = (&'static str, &'static [(&'static str, &'static str)], &'static str);
    let cases: [Case; 9] = [
        ("JSON", &[], "connector `kafka` needs option `topic`: the name of the topic"),
        ("JSON", &[("topic", "t")], "needs option `properties.bootstrap.server`"),
        ("JSON", &[("topic", "t"), ("tpoic", "x")], "has no option `tpoic`; it has `topic`"),
        ("AVRO", &BOTH, "it is FORMAT PLAIN ENCODE JSON, CSV or BYTES"),
        ("JSON", &[BOTH[0], BOTH[1], ("properties.nope", "x")], "option `properties.nope` was refused: No such"),
        ("JSON", &[BOTH[0], BOTH[1], ("properties.auto.offset.reset", "earliest")], "it is set by what the source"),
        ("JSON", &[BOTH[0], BOTH[1], ("scan.startup.mode", "middle")], "it is 'earliest', 'latest' or 'timestamp'"),
        ("JSON", &[BOTH[0], BOTH[1], ("delimiter", ";")], "it is for ENCODE CSV"),
        ("JSON", &[BOTH[0], BOTH[1], ("include.offset", "k")], "column `k` has type Utf8View, which the offset of"),
    ];
    for (encode, options, expected) in cases {
        let all = [("connector", "kafka")].iter().chain(options).map(|(k, v)| ((*k).into(), (*v).into())).collect();
        let k = Field::new("k", arrow::datatypes::DataType::Utf8View, true);
        let columns = Arc::new(Schema::new(vec![k]));
        let error = validate(&all, Some(&format(encode)), Some(&columns)).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

const BOTH: [(&str, &str); 2] = [("topic", "t"), ("properties.bootstrap.server", "127.0.0.1:1")];
