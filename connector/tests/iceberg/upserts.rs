//! Updates and deletes.

use std::collections::BTreeMap;

use weir_common::Generation;

use crate::support::*;

/// Commits each of these, and reads the table after the last one.
async fn check(options: &[(&str, &str)], commits: &[&str], expected: &[&str]) {
    let warehouse = Warehouse::new(false, options);
    let sink = warehouse.prepared().await;
    let mut committer = fenced(sink.as_ref(), 1).await.unwrap();
    for (epoch, changes) in commits.iter().enumerate() {
        let commit = recorded(sink.as_ref(), 1, epoch as u64 + 1, changes).await;
        committer.commit(&commit).await.unwrap();
    }
    assert_eq!(warehouse.rows().await, expected, "{commits:?}");
}

#[tokio::test]
async fn within_a_commit() {
    check(&[], &["+1 a +2 b -1 a"], &["2 b"]).await;
    check(&[], &["+1 a -1 a +1 b"], &["1 b"]).await;
    check(&[], &["+1 a -1 a +1 b -1 b"], &[]).await;
    check(&[], &["+1 a -1 a +1 b -1 b +1 c +2 x -1 c +1 d"], &["1 d", "2 x"]).await;
}

#[tokio::test]
async fn over_commits() {
    check(&[], &["+1 a +2 b", "-1 a"], &["2 b"]).await;
    check(&[], &["+1 a", "-1 a +1 b", "-1 b +1 c"], &["1 c"]).await;
    check(&[], &["+1 a", "-1 a", "+1 b"], &["1 b"]).await;
    check(&[], &["+1 a", "-1 a +1 b -1 b", "+1 c", "-1 c +1 d -1 d +1 e"], &["1 e"]).await;
}

#[tokio::test]
async fn over_partitions() {
    let by_name = [("partition_by", "name")];
    check(&by_name, &["+1 a +2 b", "-1 a +1 b", "-2 b +2 a"], &["1 b", "2 a"]).await;
    check(&by_name, &["+1 a -1 a +1 b +2 a", "-1 b +1 a -1 a +1 c"], &["1 c", "2 a"]).await;
}

#[tokio::test]
async fn random_changes_have_the_effect_they_have_on_a_map() {
    for (seed, options) in [(1, &[][..]), (2, &[("partition_by", "name")]), (3, &[("partition_by", "bucket(3, id)")])] {
        random_commits(&Warehouse::new(false, options), seed).await;
    }
}

/// Commits random changes, and compares the table with a map after each.
pub async fn random_commits(warehouse: &Warehouse, seed: u64) {
    let sink = warehouse.prepared().await;
    let mut committer = fenced(sink.as_ref(), 1).await.unwrap();
    let mut writer = sink.writer(Generation(1), 0).await.unwrap();
    let mut rows: BTreeMap<u64, u64> = BTreeMap::new();
    let mut state = seed;
    let mut random = |n: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % n
    };
    for epoch in 1..=8 {
        for _ in 0..random(4) {
            let mut changes = String::new();
            for _ in 0..random(40) {
                let (id, name) = (random(12), random(5));
                if let Some(old) = rows.remove(&id) {
                    changes.push_str(&format!("-{id} n{old} "));
                }
                if random(3) > 0 {
                    changes.push_str(&format!("+{id} n{name} "));
                    rows.insert(id, name);
                }
            }
            writer.write(chunk(&changes)).await.unwrap();
        }
        let commit = flush(&mut writer, 1, epoch).await;
        committer.commit(&commit).await.unwrap();
        let mut expected: Vec<String> = rows.iter().map(|(id, name)| format!("{id} n{name}")).collect();
        expected.sort();
        assert_eq!(warehouse.rows().await, expected, "seed {seed}, epoch {epoch}");
    }
}

#[tokio::test]
async fn a_key_is_needed() {
    let mut warehouse = Warehouse::new(false, &[]);
    warehouse.spec.primary_key.clear();
    let error = weir_connector::iceberg::open(&warehouse.spec).err().unwrap();
    assert!(error.to_string().contains("needs option `primary_key`"), "{error}");
}
