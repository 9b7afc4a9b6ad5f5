//! Every order in which a process may die, and every way to lose one's place.

use weir_common::Generation;
use weir_connector::ConnectorError;

use crate::support::*;

#[tokio::test]
async fn a_recorded_commit_is_carried_out_once() {
    let warehouse = Warehouse::new(true, &[]);
    let sink = warehouse.prepared().await;
    fenced(sink.as_ref(), 1).await.unwrap();
    let commit = recorded(sink.as_ref(), 1, 10, "+1 a").await;
    drop(sink);

    // Died before the commit.
    let sink = warehouse.open();
    let mut committer = fenced(sink.as_ref(), 2).await.unwrap();
    assert!(!committer.is_committed(&commit).await.unwrap());
    assert!(committer.is_intact(&commit).await.unwrap());
    committer.commit(&commit).await.unwrap();
    assert!(committer.is_committed(&commit).await.unwrap());
    committer.commit(&commit).await.unwrap();

    // Died after the commit.
    let sink = warehouse.open();
    let mut committer = fenced(sink.as_ref(), 3).await.unwrap();
    assert!(committer.is_committed(&commit).await.unwrap());
    committer.commit(&commit).await.unwrap();
    let next = recorded(sink.as_ref(), 3, 11, "+2 b").await;
    assert!(!committer.is_committed(&next).await.unwrap());
    committer.commit(&next).await.unwrap();
    assert!(committer.is_committed(&commit).await.unwrap());

    assert_eq!(warehouse.rows().await, ["1 a", "2 b"]);
    assert_eq!((warehouse.commits().await, warehouse.metadata().await.snapshots().len()), (2, 2));
}

#[tokio::test]
async fn a_commit_is_found_when_its_snapshot_has_expired() {
    let warehouse = Warehouse::new(true, &[]);
    let sink = warehouse.prepared().await;
    let mut committer = fenced(sink.as_ref(), 1).await.unwrap();
    let mut commits = Vec::new();
    for epoch in 1..=3 {
        commits.push(recorded(sink.as_ref(), 1, epoch, &format!("+{epoch} a")).await);
        committer.commit(commits.last().unwrap()).await.unwrap();
    }
    let metadata = warehouse.metadata().await;
    let current = metadata.current_snapshot_id().unwrap();
    let old: Vec<i64> = metadata.snapshots().map(|s| s.snapshot_id()).filter(|id| *id != current).collect();
    let expired = metadata.into_builder(None).remove_snapshots(&old).build().unwrap().metadata;
    warehouse.set_metadata(&expired).await;

    let mut committer = fenced(warehouse.open().as_ref(), 2).await.unwrap();
    for commit in &commits {
        assert!(committer.is_committed(commit).await.unwrap());
    }
    committer.commit(&recorded(warehouse.open().as_ref(), 2, 4, "+4 a").await).await.unwrap();
    assert_eq!(warehouse.rows().await, ["1 a", "2 a", "3 a", "4 a"]);
}

#[tokio::test]
async fn who_has_lost_his_place_cannot_commit() {
    let warehouse = Warehouse::new(true, &[]);
    let sink = warehouse.prepared().await;
    let mut zombie = fenced(sink.as_ref(), 1).await.unwrap();
    let commit = recorded(sink.as_ref(), 1, 10, "+1 a").await;

    let mut committer = fenced(sink.as_ref(), 2).await.unwrap();
    let error = zombie.commit(&commit).await.unwrap_err();
    assert!(matches!(error, ConnectorError::Fenced { ours: 1, newer: 2 }), "{error}");
    let error = zombie.fence(SINK, Generation(1)).await.unwrap_err();
    assert!(matches!(error, ConnectorError::Fenced { ours: 1, newer: 2 }), "{error}");
    assert!(warehouse.rows().await.is_empty());

    // One that does not even know its generation is refused by that of the commit.
    let error = sink.committer().await.unwrap().commit(&commit).await.unwrap_err();
    assert!(matches!(error, ConnectorError::Fenced { .. }), "{error}");
    // Whoever has the place may carry out what was left.
    committer.commit(&commit).await.unwrap();
    assert_eq!(warehouse.rows().await, ["1 a"]);
}

#[tokio::test]
async fn a_commit_whose_file_was_removed_is_not_intact() {
    let warehouse = Warehouse::new(true, &[]);
    let sink = warehouse.prepared().await;
    let mut committer = fenced(sink.as_ref(), 1).await.unwrap();
    let commit = recorded(sink.as_ref(), 1, 10, "+1 a").await;
    std::fs::remove_file(&warehouse.files(".parquet")[0]).unwrap();
    assert!(!committer.is_intact(&commit).await.unwrap());

    let again = recorded(sink.as_ref(), 1, 10, "+1 a").await;
    committer.discard(&commit).await.unwrap();
    committer.commit(&again).await.unwrap();
    assert_eq!(warehouse.rows().await, ["1 a"]);
}

#[tokio::test]
async fn what_an_earlier_generation_left_is_cleaned() {
    let warehouse = Warehouse::new(true, &[]);
    let sink = warehouse.prepared().await;
    let mut committer = fenced(sink.as_ref(), 1).await.unwrap();
    committer.commit(&recorded(sink.as_ref(), 1, 10, "+1 a").await).await.unwrap();
    let discarded = recorded(sink.as_ref(), 1, 11, "+2 b").await;
    let mut unfinished = sink.writer(Generation(1), 0).await.unwrap();
    unfinished.write(chunk("+3 c")).await.unwrap();
    drop(unfinished);
    let foreign = warehouse.directory.path().join("d/t/data/foreign.parquet");
    std::fs::write(&foreign, b"x").unwrap();
    assert_eq!(warehouse.files(".parquet").len(), 4);

    let mut committer = fenced(sink.as_ref(), 2).await.unwrap();
    let ours = recorded(sink.as_ref(), 2, 11, "+2 b").await;
    assert_eq!(committer.clean(SINK, Generation(2)).await.unwrap(), 2);
    assert_eq!(committer.clean(SINK, Generation(2)).await.unwrap(), 0);
    assert!(!committer.is_intact(&discarded).await.unwrap());
    committer.commit(&ours).await.unwrap();
    assert_eq!(warehouse.rows().await, ["1 a", "2 b"]);
    assert!(foreign.exists());
}

#[tokio::test]
async fn others_write_to_the_table_at_the_same_time() {
    let warehouse = Warehouse::new(true, &[]);
    warehouse.prepared().await;
    let mut tasks = Vec::new();
    for sink_id in 1..=3 {
        let mut spec = warehouse.spec.clone();
        spec.sink = weir_common::JobId(sink_id);
        tasks.push(tokio::spawn(async move {
            let sink = weir_connector::iceberg::open(&spec).unwrap();
            let mut committer = sink.committer().await.unwrap();
            committer.fence(spec.sink, Generation(1)).await.unwrap();
            for epoch in 1..=5 {
                let mut commit = recorded(sink.as_ref(), 1, epoch, &format!("+{epoch} s{sink_id}")).await;
                commit.stamp.sink = spec.sink;
                committer.commit(&commit).await.unwrap();
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(warehouse.rows().await.len(), 15);
    assert_eq!(warehouse.commits().await, 15);
}

#[tokio::test]
async fn a_table_that_is_not_what_it_was() {
    let warehouse = Warehouse::new(true, &[]);
    let sink = warehouse.prepared().await;
    let mut committer = fenced(sink.as_ref(), 1).await.unwrap();
    committer.commit(&recorded(sink.as_ref(), 1, 10, "+1 a").await).await.unwrap();
    let first = warehouse.metadata().await;
    committer.commit(&recorded(sink.as_ref(), 1, 11, "+2 b").await).await.unwrap();
    let next = recorded(sink.as_ref(), 1, 12, "+3 c").await;

    // Rolled back.
    let second = warehouse.metadata().await;
    let reference = first.current_snapshot_id().unwrap();
    let reference =
        iceberg::spec::SnapshotReference::new(reference, iceberg::spec::SnapshotRetention::branch(None, None, None));
    let rolled_back = second.clone().into_builder(None).set_ref("main", reference).unwrap().build().unwrap().metadata;
    warehouse.set_metadata(&rolled_back).await;
    for error in [
        committer.commit(&next).await.unwrap_err(),
        committer.is_committed(&next).await.unwrap_err(),
        fenced(sink.as_ref(), 2).await.err().unwrap(),
    ] {
        assert!(error.to_string().contains("rolled back"), "{error}");
    }
    warehouse.set_metadata(&second).await;

    // Dropped.
    warehouse.drop_table().await;
    for error in [committer.commit(&next).await.unwrap_err(), fenced(sink.as_ref(), 2).await.err().unwrap()] {
        assert_eq!(error.to_string(), "table d.t is gone");
    }
    assert_eq!(sink.writer(Generation(2), 0).await.err().unwrap().to_string(), "table d.t is gone");

    // Replaced.
    warehouse.prepared().await;
    for error in [committer.commit(&next).await.unwrap_err(), committer.is_committed(&next).await.unwrap_err()] {
        assert!(error.to_string().contains("the table was replaced"), "{error}");
    }
}
