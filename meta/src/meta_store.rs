//! The catalog, durably: a SQLite file, or PostgreSQL by URL.
//!
//! With the feature `failpoints` there is a failpoint before and after each transaction, at which `return` ends the
//! process.

use std::sync::Arc;

use sqlx::any::{AnyPoolOptions, install_default_drivers};
use sqlx::{AnyPool, Row};
use weir_common::JobId;
use weir_common::catalog::Object;
use weir_common::plan::PLAN_VERSION;

use crate::{MetaError, Result};

/// Connections to the store; meta writes one thing at a time.
const CONNECTIONS_MAX: u32 = 4;

/// A catalog entry as stored.
pub struct StoredObject {
    pub object: Arc<Object>,
    /// The job had caught up with its inputs.
    pub created: bool,
    /// Nobody waited for the creation.
    pub background: bool,
}

/// The meta store.
pub struct MetaStore {
    pool: AnyPool,
}

impl MetaStore {
    /// Connects and brings the schema up to date. `url`: `sqlite://…` or `postgres://…`.
    pub async fn open(url: &str) -> Result<MetaStore> {
        install_default_drivers();
        let connections = if url.starts_with("sqlite:") { 1 } else { CONNECTIONS_MAX };
        let pool = AnyPoolOptions::new().max_connections(connections).connect(url).await?;
        sqlx::migrate!("./migrations").run(&pool).await?;
        Ok(MetaStore { pool })
    }

    pub(crate) fn pool(&self) -> &AnyPool {
        &self.pool
    }

    /// Every object, oldest first.
    pub async fn load(&self) -> Result<Vec<StoredObject>> {
        let rows = sqlx::query("SELECT id, body, created, background FROM objects ORDER BY id").fetch_all(&self.pool);
        let mut objects = Vec::new();
        for row in rows.await? {
            let id: i64 = row.try_get(0)?;
            let body: String = row.try_get(1)?;
            let object = read_object(id, &body)?;
            let created: i64 = row.try_get(2)?;
            let background: i64 = row.try_get(3)?;
            objects.push(StoredObject { object: Arc::new(object), created: created != 0, background: background != 0 });
        }
        Ok(objects)
    }

    /// Adds an object.
    pub async fn insert(&self, object: &Object, background: bool) -> Result<()> {
        let id = i64::from(object.id.0);
        let body = serde_json::to_string(object).map_err(|source| MetaError::Entry { id, source })?;
        fail::fail_point!("meta::insert::before", |_| std::process::abort());
        sqlx::query("INSERT INTO objects (id, body, created, background) VALUES ($1, $2, 0, $3)")
            .bind(id)
            .bind(body)
            .bind(i64::from(background))
            .execute(&self.pool)
            .await?;
        fail::fail_point!("meta::insert::after", |_| std::process::abort());
        Ok(())
    }

    /// The job has caught up with its inputs.
    pub async fn set_created(&self, id: JobId) -> Result<()> {
        fail::fail_point!("meta::set_created::before", |_| std::process::abort());
        let update = sqlx::query("UPDATE objects SET created = 1 WHERE id = $1");
        update.bind(i64::from(id.0)).execute(&self.pool).await?;
        fail::fail_point!("meta::set_created::after", |_| std::process::abort());
        Ok(())
    }

    /// Changes objects and removes others, all or none.
    pub async fn update(&self, changed: &[Arc<Object>], removed: &[JobId]) -> Result<()> {
        fail::fail_point!("meta::update::before", |_| std::process::abort());
        let mut transaction = self.pool.begin().await?;
        for id in removed {
            let delete = sqlx::query("DELETE FROM objects WHERE id = $1");
            delete.bind(i64::from(id.0)).execute(&mut *transaction).await?;
        }
        for object in changed {
            let id = i64::from(object.id.0);
            let body = serde_json::to_string(object.as_ref()).map_err(|source| MetaError::Entry { id, source })?;
            let update = sqlx::query("UPDATE objects SET body = $2 WHERE id = $1");
            update.bind(id).bind(body).execute(&mut *transaction).await?;
        }
        fail::fail_point!("meta::update::within", |_| std::process::abort());
        transaction.commit().await?;
        fail::fail_point!("meta::update::after", |_| std::process::abort());
        Ok(())
    }

    /// Removes objects, all or none.
    pub async fn delete(&self, ids: &[JobId]) -> Result<()> {
        fail::fail_point!("meta::delete::before", |_| std::process::abort());
        let mut transaction = self.pool.begin().await?;
        for id in ids {
            let delete = sqlx::query("DELETE FROM objects WHERE id = $1");
            delete.bind(i64::from(id.0)).execute(&mut *transaction).await?;
        }
        fail::fail_point!("meta::delete::within", |_| std::process::abort());
        transaction.commit().await?;
        fail::fail_point!("meta::delete::after", |_| std::process::abort());
        Ok(())
    }

    /// Takes `count` fresh ids and returns the first.
    pub async fn allocate_ids(&self, count: u32) -> Result<u32> {
        fail::fail_point!("meta::allocate_ids::before", |_| std::process::abort());
        let take = sqlx::query("UPDATE counters SET value = value + $1 WHERE name = 'next_id' RETURNING value");
        let row = take.bind(i64::from(count)).fetch_one(&self.pool).await?;
        fail::fail_point!("meta::allocate_ids::after", |_| std::process::abort());
        let next: i64 = row.try_get(0)?;
        Ok((next - i64::from(count)) as u32)
    }

    /// Names of the schemas beside the built-in one.
    pub async fn schemas(&self) -> Result<Vec<String>> {
        let rows = sqlx::query("SELECT name FROM schemas ORDER BY name").fetch_all(&self.pool).await?;
        rows.iter().map(|row| row.try_get(0).map_err(MetaError::from)).collect()
    }

    /// Adds a schema.
    pub async fn insert_schema(&self, name: &str) -> Result<()> {
        fail::fail_point!("meta::insert_schema::before", |_| std::process::abort());
        sqlx::query("INSERT INTO schemas (name) VALUES ($1)").bind(name).execute(&self.pool).await?;
        fail::fail_point!("meta::insert_schema::after", |_| std::process::abort());
        Ok(())
    }

    /// Removes a schema.
    pub async fn delete_schema(&self, name: &str) -> Result<()> {
        fail::fail_point!("meta::delete_schema::before", |_| std::process::abort());
        sqlx::query("DELETE FROM schemas WHERE name = $1").bind(name).execute(&self.pool).await?;
        fail::fail_point!("meta::delete_schema::after", |_| std::process::abort());
        Ok(())
    }
}

/// Reads an entry of the catalog. The version of its plan is looked at first: a plan of another version can't be decoded.
fn read_object(id: i64, body: &str) -> Result<Object> {
    let entry = |source| MetaError::Entry { id, source };
    let body: serde_json::Value = serde_json::from_str(body).map_err(entry)?;
    if let Some(found) = body["plan"]["version"].as_u64()
        && found != u64::from(PLAN_VERSION)
    {
        let name = body["name"].as_str().unwrap_or_default().to_string();
        return Err(MetaError::PlanVersion { name, found, known: PLAN_VERSION });
    }
    serde_json::from_value(body).map_err(entry)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeMap;

    use weir_common::catalog::ObjectKind;

    use super::*;

    fn object(id: u32, name: &str) -> Object {
        Object {
            id: JobId(id),
            schema: "public".into(),
            name: name.into(),
            kind: ObjectKind::View,
            columns: vec![],
            primary_key: vec![],
            append_only: false,
            definition: format!("CREATE VIEW {name} AS SELECT 1"),
            query: Some("SELECT 1".into()),
            options: BTreeMap::new(),
            format: None,
            depends_on: vec![],
            plan: None,
            owner: "root".into(),
            paused: false,
            replaces: None,
            into: None,
            retention: None,
            parallelism: None,
            created_ms: 1,
        }
    }

    #[tokio::test]
    async fn what_was_stored_is_there_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}?mode=rwc", dir.path().join("meta.db").display());
        let store = MetaStore::open(&url).await.unwrap();
        let first = store.allocate_ids(3).await.unwrap();
        store.insert(&object(first, "a"), false).await.unwrap();
        store.insert(&object(first + 1, "b"), true).await.unwrap();
        store.set_created(JobId(first)).await.unwrap();
        store.insert_schema("s").await.unwrap();
        drop(store);

        let store = MetaStore::open(&url).await.unwrap();
        let loaded = store.load().await.unwrap();
        let seen: Vec<_> = loaded.iter().map(|o| (o.object.name.as_str(), o.created, o.background)).collect();
        assert_eq!(seen, [("a", true, false), ("b", false, true)]);
        assert_eq!(store.allocate_ids(1).await.unwrap(), first + 3);
        assert_eq!(store.schemas().await.unwrap(), ["s"]);
        store.delete(&[JobId(first), JobId(first + 1)]).await.unwrap();
        assert!(store.load().await.unwrap().is_empty());
    }
}
