//! The webhook sink against a server of the tests' own, which answers as it is told.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use weir_common::{Chunk, Epoch, Generation, JobId};
use weir_connector::{ConnectorError, SinkSpec, SinkWriter, Stamp};

/// A request: its headers in lower case, and its body.
struct Request {
    headers: BTreeMap<String, String>,
    body: String,
}

/// Answers requests with these texts, in order; `None` at the end of the list: never.
struct Receiver {
    url: String,
    requests: mpsc::UnboundedReceiver<Request>,
}

impl Receiver {
    async fn start(answers: &[&str]) -> Receiver {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/in?token=secret", listener.local_addr().unwrap());
        let (sender, requests) = mpsc::unbounded_channel();
        let answers: Vec<String> = answers.iter().map(|a| a.to_string()).collect();
        tokio::spawn(async move {
            let mut answers = answers.into_iter();
            let mut kept = vec![];
            loop {
                let mut stream = BufReader::new(listener.accept().await.unwrap().0);
                while let Some(request) = read(&mut stream).await {
                    sender.send(request).unwrap();
                    let Some(answer) = answers.next() else { break };
                    stream.write_all(answer.as_bytes()).await.unwrap();
                }
                // Open, so that who waits for an answer waits.
                kept.push(stream);
            }
        });
        Receiver { url, requests }
    }

    async fn writer(&self, more: &[(&str, &str)]) -> Box<dyn SinkWriter> {
        let mut options = BTreeMap::from([("connector".into(), "webhook".into()), ("url".into(), self.url.clone())]);
        options.extend(more.iter().map(|(k, v)| (k.to_string(), v.to_string())));
        let spec = SinkSpec {
            sink: JobId(7),
            name: "out".into(),
            columns: changes(&[]).schema(),
            primary_key: vec![0],
            append_only: false,
            options,
            format: None,
        };
        let sink = weir_connector::webhook::open(&spec).unwrap();
        sink.prepare().await.unwrap();
        sink.writer(Generation(3), 1).await.unwrap()
    }

    /// The requests that have come so far, as sequence, commit and operations with ids.
    fn told(&mut self) -> Vec<String> {
        let mut told = vec![];
        while let Ok(request) = self.requests.try_recv() {
            let rows: Vec<serde_json::Value> = serde_json::from_str(&request.body).unwrap();
            let rows = rows.iter().map(|r| format!(" {}{}", r["op"].as_str().unwrap(), r["row"]["id"]));
            let commit = request.headers.get("weir-commit").map(|c| format!(" ends {c}")).unwrap_or_default();
            told.push(format!("{}{}{commit}", request.headers["weir-sequence"], rows.collect::<String>()));
        }
        told
    }
}

async fn read(stream: &mut BufReader<TcpStream>) -> Option<Request> {
    let mut headers = BTreeMap::new();
    let mut line = String::new();
    stream.read_line(&mut line).await.ok().filter(|length| *length > 0)?;
    assert!(line.starts_with("POST /in?token=secret "), "{line}");
    loop {
        line.clear();
        stream.read_line(&mut line).await.unwrap();
        let Some((name, value)) = line.trim().split_once(": ") else { break };
        headers.insert(name.to_lowercase(), value.to_owned());
    }
    let mut body = vec![0; headers["content-length"].parse().unwrap()];
    stream.read_exact(&mut body).await.unwrap();
    Some(Request { headers, body: String::from_utf8(body).unwrap() })
}

fn answer(status: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

fn changes(rows: &[(i8, i64)]) -> Chunk {
    let columns = [("id", DataType::Int64), ("v", DataType::Utf8)].map(|(n, t)| Field::new(n, t, true));
    let ids: ArrayRef = Arc::new(rows.iter().map(|r| r.1).collect::<Int64Array>());
    let values: ArrayRef = Arc::new(rows.iter().map(|_| Some("a\"")).collect::<StringArray>());
    let schema = Arc::new(Schema::new(columns.to_vec()));
    Chunk::new(RecordBatch::try_new(schema, vec![ids, values]).unwrap(), rows.iter().map(|r| r.0).collect())
}

fn stamp(epoch: u64) -> Stamp {
    let commit = format!("c{epoch}");
    Stamp { sink: JobId(7), commit, generation: Generation(3), epoch: Epoch(epoch) }
}

#[tokio::test]
async fn changes_come_in_order_and_commits_have_an_end() {
    let ok = answer("204 No Content", "");
    let mut receiver = Receiver::start(&[ok.as_str(); 9]).await;
    let mut writer = receiver.writer(&[("batch_rows", "2")]).await;
    writer.write(changes(&[(1, 1), (-1, 2), (1, 2), (-1, 3), (1, 4)])).await.unwrap();
    assert_eq!(receiver.told(), ["1 insert1 update_before2 update_after2", "2 delete3 insert4"]);
    writer.flush(&stamp(10)).await.unwrap();
    assert_eq!(receiver.told(), ["3 ends c10"]);
    writer.flush(&stamp(20)).await.unwrap();
    writer.write(changes(&[(1, 5)])).await.unwrap();
    assert_eq!(receiver.told(), Vec::<String>::new());
    writer.flush(&stamp(30)).await.unwrap();
    assert_eq!(receiver.told(), ["4 insert5 ends c30"]);
}

#[tokio::test]
async fn a_request_says_who_sends_what() {
    let mut receiver = Receiver::start(&[&answer("200 OK", "fine")]).await;
    let mut writer = receiver.writer(&[("header.x-key", "k")]).await;
    writer.write(changes(&[(1, 1)])).await.unwrap();
    writer.flush(&stamp(10)).await.unwrap();
    let request = receiver.requests.recv().await.unwrap();
    assert_eq!(request.body, r#"[{"op":"insert","row":{"id":1,"v":"a\""}}]"#);
    let expected = [
        ("content-type", "application/json"),
        ("x-key", "k"),
        ("weir-sink", "7"),
        ("weir-generation", "3"),
        ("weir-writer", "1"),
        ("weir-sequence", "1"),
        ("weir-commit", "c10"),
        ("weir-epoch", "10"),
    ];
    for (name, value) in expected {
        assert_eq!(request.headers[name], value, "{name}");
    }
}

#[tokio::test]
async fn answers_tell_whether_trying_again_may_help() {
    let cases = [
        ("500 Internal Server Error", true),
        ("429 Too Many Requests", true),
        ("400 Bad Request", false),
        ("302 Found", false),
    ];
    for (status, passing) in cases {
        let receiver = Receiver::start(&[&answer(status, &"no such thing ".repeat(99))]).await;
        let mut writer = receiver.writer(&[]).await;
        writer.write(changes(&[(1, 1)])).await.unwrap();
        let error = writer.flush(&stamp(10)).await.unwrap_err();
        assert_eq!(matches!(error, ConnectorError::Unavailable { .. }), passing, "{error}");
        assert_eq!(matches!(error, ConnectorError::Refused { .. }), !passing, "{error}");
        let told = error.to_string();
        assert!(told.contains(status) && told.contains("no such thing"), "{told}");
        assert!(told.len() < 500 && !told.contains("secret"), "{told}");
    }
}

#[tokio::test]
async fn silence_and_absence_are_failures_that_may_pass() {
    let mut receiver = Receiver::start(&[]).await;
    let mut writer = receiver.writer(&[("timeout_ms", "50")]).await;
    writer.write(changes(&[(1, 1)])).await.unwrap();
    let silent = writer.flush(&stamp(10)).await.unwrap_err();
    assert!(matches!(silent, ConnectorError::Unavailable { .. }), "{silent}");
    assert!(silent.to_string().contains("no answer in time"), "{silent}");

    receiver.url = "http://127.0.0.1:1/in?token=secret".into();
    let mut writer = receiver.writer(&[]).await;
    writer.write(changes(&[(1, 1)])).await.unwrap();
    let absent = writer.flush(&stamp(10)).await.unwrap_err();
    assert!(matches!(absent, ConnectorError::Unavailable { .. }), "{absent}");
    assert!(absent.to_string().contains("no connection") && !absent.to_string().contains("secret"), "{absent}");
}
