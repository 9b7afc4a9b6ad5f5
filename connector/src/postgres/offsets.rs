//! `weir_sink_offsets`: who has a sink, and its newest commit.

use tokio_postgres::{Client, Row};
use weir_common::{Epoch, Generation, JobId};

use super::config::PostgresConfig;
use super::session::{application_prefix, failed, quoted};
use crate::error::{ConnectorError, Result};
use crate::sink::Stamp;

/// The row of a sink.
pub struct Offsets {
    /// The table, in quotes.
    table: String,
    id: String,
    sink: JobId,
}

impl Offsets {
    pub fn new(config: &PostgresConfig, sink: JobId) -> Offsets {
        Offsets { table: format!("{}.weir_sink_offsets", quoted(&config.schema)), id: config.id.clone(), sink }
    }

    /// Makes the table, if it is not there.
    pub async fn create(&self, client: &Client) -> Result<()> {
        // Looked for first: a user may be allowed to use it but not to make it.
        if self.exists(client).await? {
            return Ok(());
        }
        let create = format!(
            "CREATE TABLE IF NOT EXISTS {} (
                sink text PRIMARY KEY,
                generation bigint NOT NULL,
                epoch bigint,
                commit text,
                committed_by bigint,
                committed_at timestamptz
            )",
            self.table
        );
        match client.batch_execute(&create).await {
            Ok(()) => Ok(()),
            // Another sink was making it.
            Err(_) if self.exists(client).await? => Ok(()),
            Err(e) => Err(failed("make the table of offsets", &e)),
        }
    }

    async fn exists(&self, client: &Client) -> Result<bool> {
        let found = client.query_one("SELECT to_regclass($1) IS NOT NULL", &[&self.table]).await;
        found.and_then(|row| row.try_get(0)).map_err(|e| failed("look for the table of offsets", &e))
    }

    /// Takes the sink over from older generations, and ends their sessions. The newest commit.
    pub async fn take_over(&self, client: &Client, generation: Generation) -> Result<Option<Stamp>> {
        let act = "take the sink over";
        if let Some(newer) = self.generation(client).await?.filter(|newer| *newer > generation) {
            return Err(ConnectorError::Fenced { ours: generation.0, newer: newer.0 });
        }
        self.end_older_sessions(client, generation).await?;
        let take = format!(
            "INSERT INTO {table} AS o (sink, generation) VALUES ($1, $2)
             ON CONFLICT (sink) DO UPDATE SET generation = excluded.generation WHERE o.generation <= excluded.generation
             RETURNING epoch, commit, committed_by",
            table = self.table
        );
        let ours = number(generation.0)?;
        match client.query_opt(&take, &[&self.id, &ours]).await.map_err(|e| failed(act, &e))? {
            Some(row) => self.stamp(&row).map_err(|e| failed(act, &e)),
            None => Err(self.fenced(client, generation).await?),
        }
    }

    /// Writes a stamp into the open transaction. No older generation can commit after that, for the row is locked.
    pub async fn write(&self, client: &Client, generation: Generation, stamp: &Stamp) -> Result<()> {
        let update = format!(
            "UPDATE {} SET generation = $2, epoch = $3, commit = $4, committed_by = $5, committed_at = now()
             WHERE sink = $1 AND generation <= $2",
            self.table
        );
        let (ours, epoch, by) = (number(generation.0)?, number(stamp.epoch.0)?, number(stamp.generation.0)?);
        let updated = client.execute(&update, &[&self.id, &ours, &epoch, &stamp.commit, &by]).await;
        match updated.map_err(|e| failed("write the offset of the sink", &e))? {
            1 => Ok(()),
            _ => Err(self.fenced(client, generation).await?),
        }
    }

    async fn generation(&self, client: &Client) -> Result<Option<Generation>> {
        let select = format!("SELECT generation FROM {} WHERE sink = $1", self.table);
        let row = client.query_opt(&select, &[&self.id]).await;
        let generation: Option<i64> = row
            .and_then(|row| row.map(|row| row.try_get(0)).transpose())
            .map_err(|e| failed("read the offset of the sink", &e))?;
        Ok(generation.map(|generation| Generation(generation as u64)))
    }

    /// The error for a row that is a newer generation's, or that somebody has deleted.
    async fn fenced(&self, client: &Client, ours: Generation) -> Result<ConnectorError> {
        Ok(match self.generation(client).await? {
            Some(newer) => ConnectorError::Fenced { ours: ours.0, newer: newer.0 },
            None => ConnectorError::Gone { what: format!("the row of sink `{}` in {}", self.id, self.table) },
        })
    }

    /// A stopped process of an older generation may be in a transaction, whose locks would stay.
    async fn end_older_sessions(&self, client: &Client, generation: Generation) -> Result<()> {
        let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
             WHERE datname = current_database() AND usename = current_user AND pid <> pg_backend_pid()
               AND starts_with(application_name, $1)
               AND substr(application_name, length($1) + 1) ~ '^[0-9]{1,18}$'
               AND substr(application_name, length($1) + 1)::bigint < $2";
        let ours = number(generation.0)?;
        let ended = client.execute(end, &[&application_prefix(&self.id), &ours]).await;
        ended.map(|_| ()).map_err(|e| failed("end older sessions", &e))
    }

    fn stamp(&self, row: &Row) -> std::result::Result<Option<Stamp>, tokio_postgres::Error> {
        let (epoch, commit, by): (Option<i64>, Option<String>, Option<i64>) =
            (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
        Ok(epoch.zip(commit).zip(by).map(|((epoch, commit), by)| Stamp {
            sink: self.sink,
            commit,
            generation: Generation(by as u64),
            epoch: Epoch(epoch as u64),
        }))
    }
}

/// As a bigint.
fn number(value: u64) -> Result<i64> {
    i64::try_from(value).map_err(|_| ConnectorError::Mismatch { reason: format!("{value} is no bigint") })
}
