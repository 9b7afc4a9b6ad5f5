//! An object store, served by moto.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use weir_common::Generation;

use crate::support::*;

/// Ends with its input.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

fn serve() -> Option<(Server, String)> {
    let python = std::env::var("WEIR_PYTHON").ok()?;
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/iceberg/client.py");
    let mut command = Command::new(python);
    command.args([script, "s3"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let mut url = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut url).unwrap();
    Some((Server(child), url.trim().to_owned()))
}

#[tokio::test]
async fn a_warehouse_on_an_object_store() {
    let Some((_server, url)) = serve() else { return };
    let warehouse = Warehouse::new(
        false,
        &[
            ("warehouse.path", "s3://bucket/w"),
            ("s3.endpoint", &url),
            ("s3.region", "us-east-1"),
            ("s3.access.key", "key"),
            ("s3.secret.key", "secret"),
            ("s3.path.style.access", "true"),
            ("partition_by", "name"),
        ],
    );
    let sink = warehouse.prepared().await;
    let mut committer = fenced(sink.as_ref(), 1).await.unwrap();
    committer.commit(&recorded(sink.as_ref(), 1, 1, "+1 a +2 b -1 a").await).await.unwrap();
    let left = recorded(sink.as_ref(), 1, 2, "-2 b +2 c").await;
    assert!(committer.is_intact(&left).await.unwrap());

    let sink = warehouse.open();
    let mut committer = fenced(sink.as_ref(), 2).await.unwrap();
    assert!(!committer.is_committed(&left).await.unwrap());
    // Its data file and its delete file.
    assert_eq!(committer.clean(SINK, Generation(2)).await.unwrap(), 2);
    assert_eq!(committer.clean(SINK, Generation(2)).await.unwrap(), 0);
    assert!(!committer.is_intact(&left).await.unwrap());
    let again = recorded(sink.as_ref(), 2, 2, "-2 b +2 c").await;
    committer.commit(&again).await.unwrap();
    assert!(committer.is_committed(&again).await.unwrap());
}
