//! What is committed together, and by whom.

use weir_common::{Epoch, Generation, JobId};
use weir_connector::kafka::KafkaSink;
use weir_connector::{ConnectorError, Protocol, Sink, SinkWriter, Stamp};

use super::broker::Broker;
use super::server::Server;
use super::sink::{chunk, spec, stamp};
use super::source::{json, rows};

async fn writer(broker: &Broker, generation: u64) -> Box<dyn SinkWriter> {
    let sink = KafkaSink::open(&spec(broker, "PLAIN", &[("transactional", "true")])).unwrap();
    assert_eq!(sink.protocol(), Protocol::Transactional);
    sink.prepare().await.unwrap();
    sink.writer(Generation(generation), 0).await.unwrap()
}

fn newer(epoch: u64, generation: u64) -> Stamp {
    Stamp { sink: JobId(7), commit: format!("c{epoch}"), generation: Generation(generation), epoch: Epoch(epoch) }
}

#[tokio::test]
async fn a_commit_is_there_with_its_stamp_or_not_at_all() {
    let server = Server::new(1);
    let broker = Broker::of(&server);
    let mut first = writer(&broker, 1).await;
    assert_eq!(first.resume().await.unwrap(), None);
    first.write(chunk(&["+1 a", "+2 b"])).await.unwrap();
    first.flush(&stamp(10)).await.unwrap();
    // Sent, acknowledged by the broker, and never committed.
    let row = |k: i32, v: &str| format!("0: - => {{\"k\":{k},\"v\":\"{v}\"}}");
    first.write(chunk(&["+3 c"])).await.unwrap();
    drop(first);
    let mut second = writer(&broker, 2).await;
    assert_eq!(second.resume().await.unwrap(), Some(stamp(10)));
    assert_eq!(broker.messages(1), [row(1, "a"), row(2, "b")]);
    second.write(chunk(&["+4 d"])).await.unwrap();
    second.flush(&newer(20, 2)).await.unwrap();
    // An empty commit moves the stamp.
    second.flush(&newer(30, 2)).await.unwrap();
    let mut third = writer(&broker, 3).await;
    assert_eq!(third.resume().await.unwrap(), Some(newer(30, 2)));
    assert_eq!(broker.messages(1), [row(1, "a"), row(2, "b"), row(4, "d")]);
}

#[tokio::test]
async fn an_older_generation_is_refused_in_the_middle_and_from_the_start() {
    let server = Server::new(1);
    let broker = Broker::of(&server);
    let mut old = writer(&broker, 1).await;
    old.resume().await.unwrap();
    old.write(chunk(&["+1 a"])).await.unwrap();
    let mut new = writer(&broker, 2).await;
    assert_eq!(new.resume().await.unwrap(), None);
    let error = old.flush(&stamp(10)).await.unwrap_err();
    assert!(matches!(error, ConnectorError::Fenced { ours: 1, newer: 2 }), "{error}");
    let error = writer(&broker, 1).await.resume().await.unwrap_err();
    assert!(matches!(error, ConnectorError::Fenced { ours: 1, newer: 2 }), "{error}");
    // It has not been disturbed by that.
    new.write(chunk(&["+2 b"])).await.unwrap();
    new.flush(&newer(20, 2)).await.unwrap();
    assert_eq!(broker.messages(1), ["0: - => {\"k\":2,\"v\":\"b\"}"]);
}

#[tokio::test]
async fn a_source_reads_what_is_committed() {
    let server = Server::new(1);
    let broker = Broker::of(&server);
    let mut sink = writer(&broker, 1).await;
    sink.resume().await.unwrap();
    sink.write(chunk(&["+1 a"])).await.unwrap();
    drop(sink);
    let mut sink = writer(&broker, 2).await;
    sink.resume().await.unwrap();
    sink.write(chunk(&["+2 b", "+3 c"])).await.unwrap();
    sink.flush(&stamp(10)).await.unwrap();
    let mut reader = json(&broker, &[]).reader("0", None).unwrap();
    let (found, offset, _) = rows(&mut *reader, 1, 10).await;
    assert_eq!(found, ["2|b"]);
    let mut reader = json(&broker, &[]).reader("0", Some(&offset)).unwrap();
    assert_eq!(rows(&mut *reader, 1, 10).await.0, ["3|c"]);
}

#[tokio::test]
async fn a_partition_that_is_added_is_found() {
    let server = Server::new(1);
    let broker = Broker::of(&server);
    let mut source = json(&broker, &[("scan.startup.mode", "latest")]);
    assert_eq!(source.splits().await.unwrap(), ["0"]);
    server.grow();
    while source.splits().await.unwrap().len() < 2 {
        tokio::task::yield_now().await;
    }
}
