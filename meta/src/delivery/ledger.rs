//! The part of the meta store that deliveries write to: generations, offsets, and commits that are about to be carried out.

use sqlx::Row;
use weir_common::{Epoch, Generation, JobId};
use weir_connector::{Commit, Stamp};

use crate::clock::now_ms;
use crate::meta_store::MetaStore;
use crate::{MetaError, Result};

/// What a delivery finds when it takes its place.
pub struct Claim {
    pub generation: Generation,
    pub offset: Epoch,
    pub record: Option<Commit>,
}

/// A record, for people.
pub struct PendingCommit {
    pub stamp: Stamp,
    pub parts: usize,
    pub recorded_ms: i64,
}

impl MetaStore {
    /// Takes the next generation of a sink. The ones before can't write here any more. It is the time in milliseconds, or one
    /// more than the last: so the newest start has the greatest one, also where a copy of this store, or another store that has
    /// forgotten all, was at work on the same destination.
    ///
    /// `ours`: the generation that the process has had so far. `None` comes back when another one has come since: a process
    /// that was taken over must not take over in turn because something has failed for it.
    pub(crate) async fn claim(&self, sink: JobId, ours: Option<Generation>) -> Result<Option<Claim>> {
        let mut transaction = self.pool().begin().await?;
        if let Some(ours) = ours
            && !guard(&mut transaction, sink, ours).await?
        {
            return Ok(None);
        }
        let take = "INSERT INTO sinks (id, generation, epoch) VALUES ($1, $2, 0) ON CONFLICT (id) DO UPDATE SET generation = \
                    CASE WHEN sinks.generation < $2 THEN $2 ELSE sinks.generation + 1 END RETURNING generation, epoch";
        let row = sqlx::query(take).bind(i64::from(sink.0)).bind(now_ms() as i64).fetch_one(&mut *transaction).await?;
        transaction.commit().await?;
        let (generation, epoch): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
        let record = self.record_of(sink).await?;
        Ok(Some(Claim { generation: Generation(generation as u64), offset: Epoch(epoch as u64), record }))
    }

    /// The commit of a sink that is in doubt.
    pub(crate) async fn record_of(&self, sink: JobId) -> Result<Option<Commit>> {
        let find = sqlx::query("SELECT body FROM pending_sink_commits WHERE sink = $1");
        let Some(row) = find.bind(i64::from(sink.0)).fetch_optional(self.pool()).await? else { return Ok(None) };
        let body: String = row.try_get(0)?;
        let parsed = serde_json::from_str(&body);
        parsed.map(Some).map_err(|source| MetaError::Entry { id: sink.0.into(), source })
    }

    /// Makes a commit durable before it is carried out. `false`: there is a newer generation.
    pub(crate) async fn record(&self, commit: &Commit) -> Result<bool> {
        let stamp = &commit.stamp;
        let id = i64::from(stamp.sink.0);
        let body = serde_json::to_string(commit).map_err(|source| MetaError::Entry { id, source })?;
        fail::fail_point!("sink::record::before", |_| std::process::abort());
        let mut transaction = self.pool().begin().await?;
        if !guard(&mut transaction, stamp.sink, stamp.generation).await? {
            return Ok(false);
        }
        let insert = "INSERT INTO pending_sink_commits (commit_id, sink, generation, epoch, body, recorded_ms) \
                      VALUES ($1, $2, $3, $4, $5, $6)";
        let insert = sqlx::query(insert).bind(&stamp.commit).bind(id).bind(stamp.generation.0 as i64);
        let insert = insert.bind(stamp.epoch.0 as i64).bind(body).bind(now_ms() as i64);
        insert.execute(&mut *transaction).await?;
        transaction.commit().await?;
        fail::fail_point!("sink::record::after", |_| std::process::abort());
        Ok(true)
    }

    /// Removes the record of a commit; with `offset`, everything up to there is outside. `false`: there is a newer generation
    /// than `ours`.
    pub(crate) async fn settle(&self, commit: &Commit, ours: Generation, offset: Option<Epoch>) -> Result<bool> {
        let sink = commit.stamp.sink;
        fail::fail_point!("sink::settle::before", |_| std::process::abort());
        let mut transaction = self.pool().begin().await?;
        if !guard(&mut transaction, sink, ours).await? {
            return Ok(false);
        }
        let delete = sqlx::query("DELETE FROM pending_sink_commits WHERE sink = $1");
        delete.bind(i64::from(sink.0)).execute(&mut *transaction).await?;
        if let Some(offset) = offset {
            let update = sqlx::query("UPDATE sinks SET epoch = $2 WHERE id = $1");
            update.bind(i64::from(sink.0)).bind(offset.0 as i64).execute(&mut *transaction).await?;
        }
        fail::fail_point!("sink::settle::within", |_| std::process::abort());
        transaction.commit().await?;
        fail::fail_point!("sink::settle::after", |_| std::process::abort());
        Ok(true)
    }

    /// Everything that a sink has here goes.
    pub(crate) async fn forget_sink(&self, sink: JobId) -> Result<()> {
        let mut transaction = self.pool().begin().await?;
        for table in ["DELETE FROM pending_sink_commits WHERE sink = $1", "DELETE FROM sinks WHERE id = $1"] {
            sqlx::query(table).bind(i64::from(sink.0)).execute(&mut *transaction).await?;
        }
        transaction.commit().await?;
        Ok(())
    }

    /// The sinks that have something here.
    pub(crate) async fn sinks(&self) -> Result<Vec<(JobId, Epoch)>> {
        let rows = sqlx::query("SELECT id, epoch FROM sinks ORDER BY id").fetch_all(self.pool()).await?;
        let sink = |row: &sqlx::any::AnyRow| {
            let (id, epoch): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
            Ok((JobId(id as u32), Epoch(epoch as u64)))
        };
        rows.iter().map(sink).collect()
    }

    /// Every record.
    pub(crate) async fn records(&self) -> Result<Vec<PendingCommit>> {
        let select = "SELECT body, recorded_ms FROM pending_sink_commits ORDER BY sink";
        let mut records = Vec::new();
        for row in sqlx::query(select).fetch_all(self.pool()).await? {
            let (body, recorded_ms): (String, i64) = (row.try_get(0)?, row.try_get(1)?);
            let commit: Commit = serde_json::from_str(&body).map_err(|source| MetaError::Entry { id: 0, source })?;
            records.push(PendingCommit { stamp: commit.stamp, parts: commit.parts.len(), recorded_ms });
        }
        Ok(records)
    }
}

/// Whether the generation is still the newest; until the transaction ends no other can take its place.
async fn guard(
    transaction: &mut sqlx::Transaction<'_, sqlx::Any>,
    sink: JobId,
    generation: Generation,
) -> Result<bool> {
    let lock = "UPDATE sinks SET generation = generation WHERE id = $1 AND generation = $2";
    let lock = sqlx::query(lock).bind(i64::from(sink.0)).bind(generation.0 as i64);
    Ok(lock.execute(&mut **transaction).await?.rows_affected() == 1)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const SINK: JobId = JobId(7);

    fn commit(generation: Generation, epoch: u64) -> Commit {
        let stamp = Stamp { sink: SINK, commit: format!("c{epoch}"), generation, epoch: Epoch(epoch) };
        Commit { stamp, parts: vec![serde_json::json!("file")] }
    }

    #[tokio::test]
    async fn only_the_newest_generation_writes() {
        let dir = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}?mode=rwc", dir.path().join("meta.db").display());
        let store = MetaStore::open(&url).await.unwrap();
        let first = store.claim(SINK, None).await.unwrap().unwrap();
        assert_eq!((first.offset, first.record), (Epoch::ZERO, None));
        let begun = commit(first.generation, 5);
        assert!(store.record(&begun).await.unwrap());
        let second = store.claim(SINK, None).await.unwrap().unwrap();
        assert!(second.generation > first.generation);
        assert_eq!(second.record, Some(begun.clone()));
        // The first one is not dead, only slow.
        assert!(!store.record(&commit(first.generation, 6)).await.unwrap());
        assert!(!store.settle(&begun, first.generation, Some(Epoch(5))).await.unwrap());
        assert_eq!(store.records().await.unwrap().len(), 1);
        assert!(store.claim(SINK, Some(first.generation)).await.unwrap().is_none());
        // The second one finds what the first has committed.
        assert!(store.settle(&begun, second.generation, Some(Epoch(5))).await.unwrap());
        let third = store.claim(SINK, None).await.unwrap().unwrap();
        assert_eq!((third.offset, third.record), (Epoch(5), None));
        assert_eq!(store.sinks().await.unwrap(), [(SINK, Epoch(5))]);
        store.forget_sink(SINK).await.unwrap();
        assert!(!store.record(&commit(third.generation, 7)).await.unwrap());
    }
}
