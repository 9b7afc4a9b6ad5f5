//! A session with a language of its own, one word to provoke each thing that the protocol has to deal with.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use arrow::array::{ArrayRef, Int32Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::DataFusionError;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::scalar::ScalarValue;
use futures::future::BoxFuture;
use futures::{Stream, StreamExt, stream};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use weir_common::SqlType;
use weir_common::text::TextFormat;

use crate::error::{Result, SqlError, SqlState};
use crate::pg::backend::Backend;
use crate::pg::cancel::Registry;
use crate::pg::{CopyOptions, CopyTarget, oid, server};
use crate::session::{OutputColumn, Reply, TransactionStatus};

/// Rows of each batch of `rows`.
pub const BATCH_ROWS: usize = 1_000;

pub struct Fake {
    status: Mutex<TransactionStatus>,
    application_name: Mutex<String>,
    batches_read: Arc<AtomicUsize>,
    /// Rows that copies have brought.
    copied: Arc<AtomicUsize>,
}

struct Target {
    copied: Arc<AtomicUsize>,
    rows: u64,
}

impl CopyTarget for Target {
    fn write(&mut self, batch: RecordBatch) -> BoxFuture<'_, Result<()>> {
        self.rows += batch.num_rows() as u64;
        Box::pin(async { Ok(()) })
    }

    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<u64>> {
        self.copied.fetch_add(self.rows as usize, Ordering::SeqCst);
        Box::pin(async move { Ok(self.rows) })
    }
}

/// `format=csv header`.
fn copy_options(words: &[&str]) -> Result<CopyOptions> {
    CopyOptions::new(
        words.iter().map(|word| word.split_once('=').map_or((*word, None), |(name, value)| (name, Some(value)))),
    )
}

/// A statement: its words.
pub struct Prepared {
    words: Vec<String>,
    parameters: Vec<SqlType>,
    columns: Option<Vec<OutputColumn>>,
}

impl Backend for Fake {
    type Statement = Vec<String>;
    type Prepared = Prepared;

    fn parse(&self, sql: &str) -> Result<Vec<Vec<String>>> {
        if let Some(at) = sql.find("wrong") {
            return Err(SqlError { position: Some(at + 1), ..SqlError::syntax("syntax error at or near \"wrong\"") });
        }
        let statements = sql.split(';').map(|s| s.split_whitespace().map(str::to_lowercase).collect::<Vec<_>>());
        Ok(statements.filter(|words| !words.is_empty()).collect())
    }

    async fn run(&self, words: &Vec<String>) -> Result<Reply> {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let failed = *self.status.lock().unwrap() == TransactionStatus::Failed;
        if failed && !matches!(words[0], "rollback" | "commit") {
            return Err(SqlError::new(SqlState::FAILED_TRANSACTION, "current transaction is aborted"));
        }
        match words[..] {
            ["begin" | "start", ..] => self.enter(TransactionStatus::Active, "BEGIN"),
            ["commit"] => self.enter(TransactionStatus::Idle, "COMMIT"),
            ["rollback"] => self.enter(TransactionStatus::Idle, "ROLLBACK"),
            ["name", name] => {
                *self.application_name.lock().unwrap() = name.to_string();
                Ok(Reply::command("SET"))
            }
            ["insert", rows] => Ok(Reply::noticed(format!("INSERT 0 {rows}"), vec![SqlError::notice("inserted")])),
            ["rows", rows] => {
                let read = self.batches_read.clone();
                Ok(rows_reply(numbers(rows.parse().unwrap()).inspect(move |_| _ = read.fetch_add(1, Ordering::SeqCst))))
            }
            ["fail"] => Err(SqlError::new(SqlState::DIVISION_BY_ZERO, "division by zero").with_hint("do not")),
            ["fail", "late"] => {
                let error = SqlError::new(SqlState::DIVISION_BY_ZERO, "division by zero").into();
                Ok(rows_reply(numbers(BATCH_ROWS).chain(stream::iter([Err(error)]))))
            }
            ["panic"] => panic!("as told"),
            ["panic", "late"] => Ok(rows_reply(numbers(BATCH_ROWS).chain(stream::once(async { panic!("as told") })))),
            ["copy", "out", ref options @ ..] => {
                let batches = Box::pin(RecordBatchStreamAdapter::new(schema(), numbers(3)));
                Ok(Reply::CopyOut { columns: number_column(), batches, options: copy_options(options)? })
            }
            ["copy", "in", ref options @ ..] => {
                let target = Box::new(Target { copied: self.copied.clone(), rows: 0 });
                Ok(Reply::CopyIn { columns: number_column(), options: copy_options(options)?, target })
            }
            ["sleep"] => std::future::pending().await,
            ["sleep", "late"] => Ok(rows_reply(numbers(BATCH_ROWS).chain(stream::pending()))),
            _ => Err(SqlError::syntax(format!("what is {words:?}?"))),
        }
    }

    async fn prepare(&self, words: Vec<String>, declared: &[Option<SqlType>]) -> Result<Prepared> {
        let (parameters, columns) = match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            // The parameters as they came.
            ["echo", ref types @ ..] => {
                let types: Vec<_> = types
                    .iter()
                    .enumerate()
                    .map(|(i, name)| {
                        let array = oid::BUILTIN_TYPES.iter().find(|t| name.strip_prefix('_') == Some(t.name));
                        let scalar = oid::BUILTIN_TYPES.iter().find(|t| t.name == *name);
                        let inferred = array.map(|t| t.array_oid).or(scalar.map(|t| t.oid)).and_then(oid::sql_type);
                        declared.get(i).cloned().flatten().or(inferred).unwrap()
                    })
                    .collect();
                let columns = types.iter().map(|t| OutputColumn::new("echo", t.clone())).collect();
                (types, Some(columns))
            }
            ["rows" | "fail" | "panic" | "sleep", ..] => (vec![], Some(number_column())),
            _ => (vec![], None),
        };
        Ok(Prepared { words, parameters, columns })
    }

    async fn execute(&self, prepared: &Prepared, parameters: Vec<ScalarValue>) -> Result<Reply> {
        if prepared.words[0] != "echo" {
            return self.run(&prepared.words).await;
        }
        let columns = prepared.columns.clone().unwrap();
        let fields: Vec<_> = columns.iter().map(|c| Field::new("echo", c.sql_type.to_arrow(), true)).collect();
        let arrays: Vec<ArrayRef> = parameters.iter().map(|p| p.to_array().unwrap()).collect();
        let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)?;
        Ok(Reply::batches(columns, vec![batch], "SELECT"))
    }

    fn parameters(prepared: &Prepared) -> &[SqlType] {
        &prepared.parameters
    }

    fn columns(prepared: &Prepared) -> Option<&[OutputColumn]> {
        prepared.columns.as_deref()
    }

    fn status(&self) -> TransactionStatus {
        *self.status.lock().unwrap()
    }

    fn abort(&self) {
        let mut status = self.status.lock().unwrap();
        if *status == TransactionStatus::Active {
            *status = TransactionStatus::Failed;
        }
    }

    fn parameter_statuses(&self) -> Vec<(&'static str, String)> {
        let name = self.application_name.lock().unwrap().clone();
        vec![("server_version", "15.0".into()), ("client_encoding", "UTF8".into()), ("application_name", name)]
    }

    fn text_format(&self) -> TextFormat {
        TextFormat::default()
    }
}

impl Fake {
    fn enter(&self, status: TransactionStatus, tag: &str) -> Result<Reply> {
        *self.status.lock().unwrap() = status;
        Ok(Reply::command(tag))
    }
}

type Batch = Result<RecordBatch, DataFusionError>;

fn schema() -> Arc<Schema> {
    Arc::new(Schema::new(vec![Field::new("n", DataType::Int32, true)]))
}

fn number_column() -> Vec<OutputColumn> {
    vec![OutputColumn { table: Some((7, 1)), ..OutputColumn::new("n", SqlType::Integer) }]
}

/// The numbers from 0, in batches.
fn numbers(rows: usize) -> impl Stream<Item = Batch> {
    stream::iter((0..rows).step_by(BATCH_ROWS)).map(move |start| {
        let numbers = (start..rows.min(start + BATCH_ROWS)).map(|n| n as i32);
        Ok(RecordBatch::try_new(schema(), vec![Arc::new(Int32Array::from_iter_values(numbers))])?)
    })
}

fn rows_reply(batches: impl Stream<Item = Batch> + Send + 'static) -> Reply {
    let batches = Box::pin(RecordBatchStreamAdapter::new(schema(), batches));
    Reply::Rows { columns: number_column(), batches, tag: "SELECT", notices: vec![] }
}

/// A server of fake sessions.
pub struct Server {
    pub address: SocketAddr,
    pub registry: Arc<Registry>,
    pub batches_read: Arc<AtomicUsize>,
    pub copied: Arc<AtomicUsize>,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Server {
    pub async fn start() -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (registry, batches_read) = (Arc::<Registry>::default(), Arc::<AtomicUsize>::default());
        let (stop, stopped) = oneshot::channel::<()>();
        let copied = Arc::<AtomicUsize>::default();
        let (read, copies) = (batches_read.clone(), copied.clone());
        let connect = move |startup: &BTreeMap<String, String>, _pid| match startup.get("database") {
            Some(name) if name != "dev" => {
                let message = format!("database \"{name}\" does not exist");
                Err(SqlError::new(SqlState::INVALID_DATABASE_NAME, message))
            }
            _ => Ok(Arc::new(Fake {
                status: Mutex::new(TransactionStatus::Idle),
                application_name: Mutex::new("none".into()),
                batches_read: read.clone(),
                copied: copies.clone(),
            })),
        };
        let shutdown = async { _ = stopped.await };
        let task = tokio::spawn(server::listen(registry.clone(), listener, shutdown, connect));
        Server { address, registry, batches_read, copied, stop, task }
    }

    /// Shuts down and waits until every connection has ended.
    pub async fn stop(self) {
        self.stop.send(()).unwrap();
        self.task.await.unwrap();
    }
}
