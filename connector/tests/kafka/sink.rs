//! A topic that is written.

use std::sync::Arc;

use arrow::array::{Int32Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use rdkafka::types::RDKafkaRespErr;
use weir_common::{Chunk, Epoch, Generation, JobId};
use weir_connector::kafka::KafkaSink;
use weir_connector::{Protocol, Sink, SinkSpec, Stamp};

use super::broker::Broker;

fn columns() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("k", DataType::Int32, true), Field::new("v", DataType::Utf8, true)]))
}

pub fn spec(broker: &Broker, format: &str, options: &[(&str, &str)]) -> SinkSpec {
    let mut options = broker.options(options);
    options.remove("connector");
    SinkSpec {
        sink: JobId(7),
        name: "out".into(),
        columns: columns(),
        primary_key: if format == "PLAIN" { vec![] } else { vec![0] },
        append_only: format == "PLAIN",
        options,
        format: Some((format.into(), "JSON".into())),
    }
}

/// Changes such as `-1 a`.
pub fn chunk(changes: &[&str]) -> Chunk {
    let keys = changes.iter().map(|c| c[1..2].parse::<i32>().unwrap());
    let values = changes.iter().map(|c| &c[3..]);
    let columns_ =
        vec![Arc::new(Int32Array::from_iter_values(keys)) as _, Arc::new(StringArray::from_iter_values(values)) as _];
    let batch = RecordBatch::try_new(columns(), columns_).unwrap();
    Chunk::new(batch, changes.iter().map(|c| if c.starts_with('-') { -1 } else { 1 }).collect())
}

pub fn stamp(epoch: u64) -> Stamp {
    Stamp { sink: JobId(7), commit: format!("c{epoch}"), generation: Generation(1), epoch: Epoch(epoch) }
}

#[tokio::test]
async fn what_is_flushed_is_there_in_the_order_of_each_key() {
    let broker = Broker::new(3);
    let sink = KafkaSink::open(&spec(&broker, "UPSERT", &[])).unwrap();
    assert_eq!(sink.protocol(), Protocol::AtLeastOnce);
    sink.prepare().await.unwrap();
    let mut writer = sink.writer(Generation(1), 0).await.unwrap();
    writer.write(chunk(&["+1 a", "+2 b", "+3 c", "-1 a", "+1 d", "-2 b"])).await.unwrap();
    writer.write(chunk(&["-3 c"])).await.unwrap();
    writer.write(chunk(&["+3 e"])).await.unwrap();
    assert_eq!(writer.flush(&stamp(1)).await.unwrap(), None);
    let messages = broker.messages(3);
    let of = |key: &str| -> Vec<&str> {
        let key = format!("{{\"k\":{key}}} => ");
        messages.iter().filter_map(|m| m.split_once(": ").unwrap().1.strip_prefix(&key)).collect()
    };
    assert_eq!(of("1"), ["{\"k\":1,\"v\":\"a\"}", "{\"k\":1,\"v\":\"d\"}"]);
    assert_eq!(of("2"), ["{\"k\":2,\"v\":\"b\"}", "-"]);
    assert_eq!(of("3"), ["{\"k\":3,\"v\":\"c\"}", "{\"k\":3,\"v\":\"e\"}"]);
    assert_eq!(messages.len(), 6);
}

#[tokio::test]
async fn sending_waits_when_the_queue_is_full() {
    let broker = Broker::new(1);
    let sink = KafkaSink::open(&spec(&broker, "PLAIN", &[("properties.queue.buffering.max.messages", "2")])).unwrap();
    let mut writer = sink.writer(Generation(1), 0).await.unwrap();
    let changes: Vec<String> = (0..40).map(|i| format!("+{} x{i}", i % 10)).collect();
    writer.write(chunk(&changes.iter().map(String::as_str).collect::<Vec<_>>())).await.unwrap();
    assert!(writer.memory_bytes() > 0);
    writer.flush(&stamp(1)).await.unwrap();
    let messages = broker.messages(1);
    assert_eq!(messages.len(), 40);
    assert_eq!(messages[39], "0: - => {\"k\":9,\"v\":\"x39\"}");
}

#[tokio::test]
async fn a_message_that_is_refused_fails_its_flush_and_what_follows() {
    let broker = Broker::new(1);
    let sink = KafkaSink::open(&spec(&broker, "PLAIN", &[("properties.message.max.bytes", "1000")])).unwrap();
    let mut writer = sink.writer(Generation(1), 0).await.unwrap();
    let long = format!("+1 {}", "x".repeat(2000));
    let error = writer.write(chunk(&[&long])).await.unwrap_err().to_string();
    let expected = "topic `orders` refused: a message has 2014 bytes, more than `properties.message.max.bytes` allows";
    assert_eq!(error, expected);
    let mut writer = sink.writer(Generation(1), 0).await.unwrap();
    let api_key_of_produce = rdkafka::types::RDKafkaApiKey::Produce;
    let refusal = RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED;
    broker.cluster.as_ref().unwrap().request_errors(api_key_of_produce, &[refusal; 5]);
    writer.write(chunk(&["+1 a"])).await.unwrap();
    let error = writer.flush(&stamp(1)).await.unwrap_err().to_string();
    assert!(error.starts_with("topic `orders` refused: "), "{error}");
    assert!(writer.flush(&stamp(2)).await.is_err());
}

#[tokio::test]
async fn a_topic_or_broker_that_is_not_there_is_told_before_anything_is_written() {
    let broker = Broker::new(1);
    let mut unknown = spec(&broker, "PLAIN", &[]);
    unknown.options.insert("topic".into(), "other".into());
    let error = KafkaSink::open(&unknown).unwrap().prepare().await.unwrap_err();
    assert_eq!(error.to_string(), "topic `other` is gone");
    // Nobody listens where somebody did just now.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut nobody = spec(&broker, "PLAIN", &[("properties.socket.connection.setup.timeout.ms", "1000")]);
    nobody.options.insert("properties.bootstrap.server".into(), port.to_string());
    let error = KafkaSink::open(&nobody).unwrap().prepare().await.unwrap_err().to_string();
    assert!(error.starts_with("topic `orders`: ") && error.contains("Connection refused"), "{error}");
}

#[test]
fn formats_and_options_are_checked() {
    let broker = Broker::new(1);
    let open = |spec: &SinkSpec| KafkaSink::open(spec).err().unwrap().to_string();
    let mut updates = spec(&broker, "PLAIN", &[]);
    updates.append_only = false;
    assert!(open(&updates).contains("there are updates and deletes"));
    let mut keyless = spec(&broker, "UPSERT", &[]);
    keyless.primary_key.clear();
    assert!(open(&keyless).contains("needs option `primary_key`"));
    assert!(open(&spec(&broker, "CANAL", &[])).contains("it is FORMAT PLAIN, UPSERT or DEBEZIUM"));
    assert!(open(&spec(&broker, "UPSERT", &[("properties.acks", "0")])).contains("`properties.acks` was refused"));
    assert!(open(&spec(&broker, "UPSERT", &[("transactional.id", "x")])).contains("transactional = 'true'"));
}
