//! Cursors: on the rows of a query, and on the changes of a subscription's relation.
//!
//! A cursor is a source of batches and a buffer. A FETCH first fills the buffer, which may wait, and then takes rows from it,
//! which can't: when its future is dropped, no row is lost.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::physical_plan::SendableRecordBatchStream;
use futures::StreamExt;
use tokio::time::Instant;
use weir_common::catalog::{Object, ObjectKind};
use weir_common::types::SqlType;
use weir_common::{Chunk, Epoch, JobId, TableDef};
use weir_meta::Meta;
use weir_storage::{LogReader, StorageError};

use super::consistency::{EPOCHS_FROM, newest_at};
use super::query::output_columns;
use super::settings::parse_milliseconds;
use super::{OutputColumn, Params, Reply, Session, TransactionStatus, ddl};
use crate::batch;
use crate::error::{Result, SqlError, SqlState};
use crate::statement::{Declare, Declared, Fetch, Ident, Name, Since};

const DUPLICATE_CURSOR: SqlState = SqlState("42P03");

/// The cursors of a session, by name.
#[derive(Default)]
pub(super) struct Cursors(BTreeMap<String, Open>);

/// A cursor, and what is known of it without waiting for it.
#[derive(Clone)]
struct Open {
    columns: Vec<OutputColumn>,
    /// The subscription that it is on.
    subscription: Option<JobId>,
    /// Stays open after the block.
    hold: bool,
    cursor: Arc<tokio::sync::Mutex<Cursor>>,
}

struct Cursor {
    buffer: VecDeque<RecordBatch>,
    buffered: usize,
    source: Source,
}

enum Source {
    Query(SendableRecordBatchStream),
    Changes(Changes),
}

/// The changes of a relation.
struct Changes {
    relation: Arc<Object>,
    def: TableDef,
    schema: SchemaRef,
    /// The rows that were there, to come first.
    rows: Option<SendableRecordBatchStream>,
    /// Everything up to this epoch is in the buffer, or was.
    after: Epoch,
    /// What is being read, up to that epoch.
    log: Option<(LogReader, Epoch)>,
}

impl Cursors {
    /// The block has ended.
    pub fn end_block(&mut self) {
        self.0.retain(|_, open| open.hold);
    }

    /// All are closed.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// The names of cursors on subscriptions, with these, or of the others.
    pub fn names(&self, on_subscriptions: bool) -> Vec<(String, Option<JobId>)> {
        let wanted = self.0.iter().filter(|(_, open)| open.subscription.is_some() == on_subscriptions);
        wanted.map(|(name, open)| (name.clone(), open.subscription)).collect()
    }
}

impl Session {
    pub(super) async fn declare(&self, declare: &Declare, params: Params<'_>) -> Result<Reply> {
        let name = &declare.name;
        if self.state().cursors.0.contains_key(&name.value) {
            return Err(name.mark(SqlError::new(DUPLICATE_CURSOR, format!("cursor \"{}\" already exists", name.value))));
        }
        let (open, tag) = match &declare.what {
            Declared::Query { query, hold } => {
                if !hold && self.status() == TransactionStatus::Idle {
                    let message = "DECLARE CURSOR can only be used in transaction blocks";
                    return Err(SqlError::new(SqlState("25P01"), message).with_hint("Or say WITH HOLD."));
                }
                let (columns, rows) = self.moment()?.rows(query, params).await?;
                (Open::new(columns, None, *hold, Source::Query(rows)), "DECLARE CURSOR")
            }
            Declared::Subscription { subscription, since } => {
                (self.subscribe(subscription, *since).await?, "DECLARE SUBSCRIPTION_CURSOR")
            }
        };
        self.state().cursors.0.insert(name.value.clone(), open);
        Ok(Reply::command(tag))
    }

    async fn subscribe(&self, name: &Name, since: Since) -> Result<Open> {
        let moment = self.moment()?;
        let Some(subscription) = moment.find(name)?.filter(|o| o.kind == ObjectKind::Subscription) else {
            let message = format!("subscription \"{}\" does not exist", name.name.value);
            return Err(name.mark(SqlError::new(SqlState::UNDEFINED_OBJECT, message)));
        };
        let relation = subscription.depends_on.first().and_then(|id| moment.catalog.get(*id)).cloned();
        let relation = relation.ok_or_else(|| SqlError::internal("a subscription is on a relation"))?;
        let def = relation.plan.as_ref().and_then(|plan| plan.relation.clone());
        let def = def.ok_or_else(|| SqlError::internal("the relation of a subscription has rows"))?;
        let bound = moment.plan(&ddl::select_all(&relation), &[])?;
        // Read before the snapshot, which then has at least that much.
        let reached = self.meta.frontier(relation.id).unwrap_or(Epoch::ZERO);
        moment.settle(&bound.relations).await?;
        let kept = subscription.retention.map_or(Epoch::ZERO, |retention| retention.kept_after(weir_meta::now_ms()));
        let mut rows = None;
        let after = match since {
            Since::Now => self.meta.frontier(relation.id).unwrap_or(Epoch::ZERO),
            Since::Begin => kept,
            Since::After(number) if number >= EPOCHS_FROM => Epoch(number),
            Since::After(unix_ms) => newest_at(unix_ms),
            Since::Full => {
                rows = Some(batch::execute(&batch::state(moment.config.clone())?, &bound.plan).await?);
                // What was committed last may be long ago.
                moment.snapshot()?.frontier(relation.id)?.unwrap_or(Epoch::ZERO).max(reached)
            }
        };
        if after < kept && matches!(since, Since::After(_)) {
            let message = format!("changes since epoch {after} are not kept by \"{}\"", subscription.name);
            let error = SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message);
            return Err(error.with_hint(format!("The oldest epoch that it keeps is {kept}.")));
        }
        let mut columns = output_columns(&bound);
        columns.push(OutputColumn::new("op", SqlType::Varchar));
        columns.push(OutputColumn::new("rw_timestamp", SqlType::BigInt));
        let field = |c: &OutputColumn| Field::new(&c.name, c.sql_type.to_arrow(), true);
        let schema = Arc::new(Schema::new(columns.iter().map(field).collect::<Vec<_>>()));
        let changes = Changes { relation, def, schema, rows, after, log: None };
        Ok(Open::new(columns, Some(subscription.id), true, Source::Changes(changes)))
    }

    /// The columns that a FETCH returns.
    pub(super) fn cursor_columns(&self, cursor: &Ident) -> Result<Vec<OutputColumn>> {
        Ok(self.open_cursor(cursor)?.columns)
    }

    fn open_cursor(&self, name: &Ident) -> Result<Open> {
        self.state().cursors.0.get(&name.value).cloned().ok_or_else(|| absent(name))
    }

    pub(super) async fn fetch(&self, fetch: &Fetch) -> Result<Reply> {
        let open = self.open_cursor(&fetch.cursor)?;
        let timeout = match &fetch.timeout {
            None => self.state().settings.milliseconds("cursor_fetch_timeout"),
            Some(text) => Some(parse_milliseconds(text).ok_or_else(|| {
                SqlError::new(SqlState::INVALID_PARAMETER_VALUE, format!("invalid timeout: \"{text}\""))
            })?),
        };
        let deadline = timeout.map(|ms| Instant::now() + Duration::from_millis(ms));
        let mut cursor = open.cursor.lock().await;
        let relation = match &cursor.source {
            Source::Changes(changes) => Some(changes.relation.clone()),
            Source::Query(_) => None,
        };
        if let (Some(subscription), Some(relation)) = (open.subscription, &relation) {
            self.settle_cursor(relation, subscription).await?;
        }
        let wanted = fetch.rows.unwrap_or(usize::MAX);
        loop {
            cursor.fill(&self.meta, wanted).await?;
            let (Source::Changes(changes), Some(deadline)) = (&cursor.source, deadline) else { break };
            if cursor.buffered > 0 || wanted == 0 {
                break;
            }
            let (relation, after) = (changes.relation.id, changes.after);
            if tokio::time::timeout_at(deadline, self.meta.wait_changed(relation, after)).await.is_err() {
                break;
            }
        }
        let batches = cursor.take(wanted);
        if fetch.moves {
            return Ok(Reply::command(format!("MOVE {}", batches.iter().map(RecordBatch::num_rows).sum::<usize>())));
        }
        Ok(Reply::batches(open.columns, batches, "FETCH"))
    }

    /// The subscription is there, and its relation has what this session wrote.
    async fn settle_cursor(&self, relation: &Arc<Object>, subscription: JobId) -> Result<()> {
        let moment = self.moment()?;
        if moment.catalog.get(subscription).is_none() {
            let message = "the subscription of the cursor was dropped";
            return Err(SqlError::new(SqlState::UNDEFINED_OBJECT, message));
        }
        moment.settle(std::slice::from_ref(relation)).await
    }

    pub(super) fn close(&self, name: &Ident) -> Result<Reply> {
        match self.state().cursors.0.remove(&name.value) {
            Some(_) => Ok(Reply::command("CLOSE CURSOR")),
            None => Err(absent(name)),
        }
    }
}

fn absent(name: &Ident) -> SqlError {
    name.mark(SqlError::new(SqlState::INVALID_CURSOR_NAME, format!("cursor \"{}\" does not exist", name.value)))
}

impl Open {
    fn new(columns: Vec<OutputColumn>, subscription: Option<JobId>, hold: bool, source: Source) -> Open {
        let cursor = Cursor { buffer: VecDeque::new(), buffered: 0, source };
        Open { columns, subscription, hold, cursor: Arc::new(tokio::sync::Mutex::new(cursor)) }
    }
}

impl Cursor {
    /// Reads until so many rows are in the buffer, or there are no more for now.
    async fn fill(&mut self, meta: &Meta, wanted: usize) -> Result<()> {
        while self.buffered < wanted {
            let next = match &mut self.source {
                Source::Query(rows) => rows.next().await.transpose()?,
                Source::Changes(changes) => changes.next(meta).await?,
            };
            let Some(batch) = next else { return Ok(()) };
            self.buffered += batch.num_rows();
            self.buffer.push_back(batch);
        }
        Ok(())
    }

    fn take(&mut self, mut wanted: usize) -> Vec<RecordBatch> {
        let mut taken = Vec::new();
        while wanted > 0
            && let Some(batch) = self.buffer.pop_front()
        {
            let rows = batch.num_rows().min(wanted);
            if rows < batch.num_rows() {
                self.buffer.push_front(batch.slice(rows, batch.num_rows() - rows));
            }
            wanted -= rows;
            self.buffered -= rows;
            taken.push(batch.slice(0, rows));
        }
        taken
    }
}

impl Changes {
    /// The next changes that are there.
    async fn next(&mut self, meta: &Meta) -> Result<Option<RecordBatch>> {
        if let Some(rows) = &mut self.rows {
            if let Some(batch) = rows.next().await.transpose()? {
                let ops = vec!["Insert"; batch.num_rows()];
                return self.batch(batch.columns().to_vec(), ops, None).map(Some);
            }
            self.rows = None;
        }
        // From here on nothing is awaited: a chunk that was read is in the buffer.
        loop {
            let (log, up_to) = match &mut self.log {
                Some(log) => log,
                None => {
                    let frontier = meta.frontier(self.relation.id).unwrap_or(Epoch::ZERO);
                    if frontier <= self.after {
                        return Ok(None);
                    }
                    let log = meta.store().read_log(self.def.id, self.after, frontier).map_err(lost)?;
                    self.log.insert((log, frontier))
                }
            };
            match log.next() {
                Some(chunk) => {
                    let chunk = chunk.map_err(lost)?;
                    return self.changes(&chunk.chunk, chunk.epoch).map(Some);
                }
                None => {
                    self.after = *up_to;
                    self.log = None;
                }
            }
        }
    }

    fn changes(&self, chunk: &Chunk, epoch: Epoch) -> Result<RecordBatch> {
        let visible = (0..self.relation.columns.len()).filter(|i| !self.relation.columns[*i].hidden);
        let columns = visible.map(|i| chunk.column(i).clone()).collect();
        let keys = batch::relation_keys(&self.def, |i| chunk.column(i))?;
        // An update is a delete and an insert of one key, next to each other.
        let pairs = |old: usize| {
            old + 1 < chunk.len()
                && chunk.sign(old) < 0
                && chunk.sign(old + 1) > 0
                && keys.get(old) == keys.get(old + 1)
        };
        let op = |row: usize| match chunk.sign(row) > 0 {
            true if row > 0 && pairs(row - 1) => "UpdateInsert",
            true => "Insert",
            false if pairs(row) => "UpdateDelete",
            false => "Delete",
        };
        self.batch(columns, (0..chunk.len()).map(op).collect(), Some(epoch.unix_ms() as i64))
    }

    fn batch(&self, mut columns: Vec<ArrayRef>, ops: Vec<&str>, unix_ms: Option<i64>) -> Result<RecordBatch> {
        let times: Int64Array = ops.iter().map(|_| unix_ms).collect();
        columns.push(Arc::new(StringArray::from(ops)));
        columns.push(Arc::new(times));
        Ok(RecordBatch::try_new(self.schema.clone(), columns)?)
    }
}

fn lost(error: StorageError) -> SqlError {
    match error {
        StorageError::TruncatedLog { .. } | StorageError::MissingLogChunk { .. } => SqlError::new(
            SqlState::NOT_IN_PREREQUISITE_STATE,
            "the changes that the cursor would return next are not kept any more",
        )
        .with_hint("Declare a new cursor; a longer retention keeps changes for longer."),
        other => other.into(),
    }
}
