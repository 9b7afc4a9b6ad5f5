//! Runs sqllogictest files, with events of the server as markers in comments.
//!
//! | marker | meaning |
//! |---|---|
//! | `# @restart` | SIGTERM, wait, start again; all sessions are new |
//! | `# @kill9` | the same with SIGKILL |
//! | `# @poll 10s` | the next record is tried again until it holds, for so long at most |
//! | `# @nopg`, `# @pgsql SQL` | for `oracle/check.py`, which checks the files against PostgreSQL; nothing to do here |
//!
//! In SQL, `${dir}` stands for the directory of the file, for tests that read data files.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use async_trait::async_trait;
use sqllogictest::{AsyncDB, DBOutput, DefaultColumnType, MakeConnection, Record, Runner};
use thiserror::Error;
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

use crate::Server;

/// One session of a test file.
pub struct Session(Client);

/// What the server answered instead of rows.
#[derive(Debug, Error)]
#[error("{message}")]
pub struct SqlError {
    message: String,
    state: Option<String>,
}

impl From<tokio_postgres::Error> for SqlError {
    fn from(error: tokio_postgres::Error) -> SqlError {
        match error.as_db_error() {
            Some(db) => {
                let parts = [Some(db.message()), db.detail(), db.hint()];
                let message = parts.into_iter().flatten().collect::<Vec<_>>().join("\n");
                SqlError { message, state: Some(db.code().code().to_owned()) }
            }
            None => SqlError { message: error.to_string(), state: None },
        }
    }
}

#[async_trait]
impl AsyncDB for Session {
    type Error = SqlError;
    type ColumnType = DefaultColumnType;

    async fn run(&mut self, sql: &str) -> Result<DBOutput<DefaultColumnType>, SqlError> {
        let mut rows = Vec::new();
        let mut columns = None;
        let mut count = 0;
        for message in self.0.simple_query(sql).await? {
            match message {
                SimpleQueryMessage::Row(row) => {
                    let cell = |i| match row.get(i) {
                        None => "NULL".to_owned(),
                        Some("") => "(empty)".to_owned(),
                        Some(text) => text.to_owned(),
                    };
                    rows.push((0..row.len()).map(cell).collect());
                }
                SimpleQueryMessage::RowDescription(described) => columns = Some(described.len()),
                SimpleQueryMessage::CommandComplete(n) => count = n,
                _ => {}
            }
        }
        Ok(match columns {
            Some(columns) => DBOutput::Rows { types: vec![DefaultColumnType::Any; columns], rows },
            None => DBOutput::StatementComplete(count),
        })
    }

    async fn shutdown(&mut self) {}

    fn engine_name(&self) -> &str {
        "weir"
    }

    async fn sleep(duration: Duration) {
        tokio::time::sleep(duration).await;
    }

    fn error_sql_state(error: &SqlError) -> Option<String> {
        error.state.clone()
    }
}

async fn session(port: u16) -> Result<Session, SqlError> {
    let config = format!("host=127.0.0.1 port={port} user=root dbname=dev");
    let (client, connection) = tokio_postgres::connect(&config, NoTls).await?;
    tokio::spawn(connection);
    Ok(Session(client))
}

/// Runs a file against a server of its own.
pub async fn run_file(path: &Path) -> Result<()> {
    let mut server = Server::start().await?;
    let result = run_on(&mut server, path).await;
    if !server.is_running() {
        bail!("the server ended by itself:\n{}", server.log_tail());
    }
    result?;
    server.stop().await
}

async fn run_on(server: &mut Server, path: &Path) -> Result<()> {
    let records = sqllogictest::parse_file::<DefaultColumnType>(path).context("parse")?;
    let mut runner = new_runner(server, path)?;
    let mut poll = None;
    for record in records {
        if let Record::Comment(lines) = &record {
            for marker in lines.iter().filter_map(|l| l.trim().strip_prefix('@')) {
                let (name, argument) = marker.split_once(' ').unwrap_or((marker, ""));
                match name {
                    "restart" => {
                        drop(runner);
                        server.stop().await?;
                        server.restart().await?;
                        runner = new_runner(server, path)?;
                    }
                    "kill9" => {
                        drop(runner);
                        server.kill()?;
                        server.restart().await?;
                        runner = new_runner(server, path)?;
                    }
                    "poll" => poll = Some(seconds(argument)?),
                    "nopg" | "pgsql" => {}
                    other => bail!("no such marker: @{other}"),
                }
            }
            continue;
        }
        let runs = matches!(record, Record::Query { .. } | Record::Statement { .. });
        let until = Instant::now() + poll.take_if(|_| runs).unwrap_or(Duration::ZERO);
        loop {
            match runner.run_async(record.clone()).await {
                Ok(_) => break,
                Err(_) if Instant::now() < until => tokio::time::sleep(Duration::from_millis(20)).await,
                Err(error) => bail!("{error}"),
            }
        }
    }
    Ok(())
}

fn new_runner(server: &Server, path: &Path) -> Result<Runner<Session, impl MakeConnection<Conn = Session> + use<>>> {
    let port = server.port()?;
    let mut runner = Runner::new(move || session(port));
    runner.set_var("server_dir".to_owned(), server.dir().display().to_string());
    let dir = path.parent().map(|d| d.display().to_string()).unwrap_or_default();
    runner.set_var("dir".to_owned(), dir);
    Ok(runner)
}

fn seconds(text: &str) -> Result<Duration> {
    let number = text.trim().strip_suffix('s').with_context(|| format!("`{text}`: expected seconds, like 10s"))?;
    Ok(Duration::from_secs_f64(number.parse().with_context(|| format!("`{text}`: expected seconds"))?))
}
