//! A catalog in PostgreSQL, at the URL in `WEIR_TEST_POSTGRES`; without it the test does nothing.

use weir_connector::ConnectorError;

use crate::support::*;

#[tokio::test]
async fn commits_and_take_overs() {
    let Ok(url) = std::env::var("WEIR_TEST_POSTGRES") else { return };
    let name = uuid::Uuid::new_v4().to_string();
    let warehouse = Warehouse::new(false, &[("catalog.uri", &url), ("catalog.name", &name)]);
    let sink = warehouse.prepared().await;
    sink.prepare().await.unwrap();
    let mut zombie = fenced(sink.as_ref(), 1).await.unwrap();
    let first = recorded(sink.as_ref(), 1, 1, "+1 a +2 b").await;
    zombie.commit(&first).await.unwrap();
    let left = recorded(sink.as_ref(), 1, 2, "-1 a +1 c").await;

    let sink = warehouse.open();
    let mut committer = fenced(sink.as_ref(), 2).await.unwrap();
    let error = zombie.commit(&left).await.unwrap_err();
    assert!(matches!(error, ConnectorError::Fenced { ours: 1, newer: 2 }), "{error}");
    assert!(committer.is_committed(&first).await.unwrap());
    assert!(!committer.is_committed(&left).await.unwrap());
    committer.commit(&left).await.unwrap();
    assert!(committer.is_committed(&left).await.unwrap());
}
