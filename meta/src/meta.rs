//! What the frontend asks of meta: objects made and dropped, rows written, frontiers waited for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock, oneshot};
use weir_common::catalog::{Object, ObjectKind};
use weir_common::{Chunk, Epoch, JobId, TableId, VNODE_COUNT};
use weir_storage::Store;
use weir_stream::executor::dml::{Mark, Statement};
use weir_stream::job::Engine;

use crate::catalog::Catalog;
use crate::clock::EpochClock;
use crate::controller::Event;
use crate::delivery::{self, Delivery};
use crate::error::{MetaError, Result};
use crate::job::{self, Creation, Job, JobStatus, Phase, ShellEvent, Surroundings};
use crate::logs;
use crate::meta_store::MetaStore;

/// Failures in a row after which a creation that somebody waits for is given up.
const CREATION_ATTEMPTS_MAX: u64 = 3;

/// How meta is started.
pub struct MetaOptions {
    /// URL of the meta store, `sqlite://…` or `postgres://…`.
    pub meta_store: String,
    /// Time between epochs when nobody asks for one.
    pub barrier_interval: Duration,
    /// How long a read waits for the relations it names.
    pub wait_timeout: Duration,
}

/// The meta service.
pub struct Meta {
    engine: Engine,
    pub(crate) store: Arc<MetaStore>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) clock: EpochClock,
    pub(crate) wait_timeout: Duration,
    /// The newest epoch that was committed before this process: reads see at least what was acknowledged until then.
    pub(crate) recovered: Epoch,
    /// Held while the set of objects changes.
    pub(crate) ddl: tokio::sync::Mutex<()>,
    locks: Mutex<BTreeMap<JobId, Arc<RwLock<()>>>>,
    truncation: OnceLock<tokio::task::JoinHandle<()>>,
}

impl Drop for Meta {
    fn drop(&mut self) {
        if let Some(truncation) = self.truncation.get() {
            truncation.abort();
        }
    }
}

/// What the clock and the truncation task see of meta.
#[derive(Default)]
pub(crate) struct Shared {
    jobs: Mutex<BTreeMap<JobId, Arc<Job>>>,
    catalog: Mutex<Arc<Catalog>>,
    deliveries: Mutex<BTreeMap<JobId, Delivery>>,
}

impl Shared {
    pub(crate) fn catalog(&self) -> Arc<Catalog> {
        lock(&self.catalog).clone()
    }

    pub(crate) fn jobs(&self) -> MutexGuard<'_, BTreeMap<JobId, Arc<Job>>> {
        lock(&self.jobs)
    }

    pub(crate) fn deliveries(&self) -> MutexGuard<'_, BTreeMap<JobId, Delivery>> {
        lock(&self.deliveries)
    }

    pub(crate) fn update_catalog(&self, change: impl FnOnce(&mut Catalog)) {
        let mut catalog = lock(&self.catalog);
        change(Arc::make_mut(&mut catalog));
    }
}

/// What is behind these locks is valid at any moment, also when a holder panicked.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Actors of each fragment of a job, if it is to have this many (`None`: one per core).
pub fn actors(wanted: Option<usize>) -> usize {
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    wanted.unwrap_or_else(cores).clamp(1, VNODE_COUNT)
}

/// Held by a statement that writes to a table, until its rows are committed: UPDATE and DELETE exclude each other and
/// INSERT, since they compute their rows from what they read.
pub enum DmlGuard {
    Shared(OwnedRwLockReadGuard<()>),
    Exclusive(OwnedRwLockWriteGuard<()>),
}

impl Meta {
    /// Loads the catalog, removes state that nothing owns, and starts every job where it stood.
    pub async fn open(options: MetaOptions, engine: Engine) -> Result<Arc<Meta>> {
        let store = Arc::new(MetaStore::open(&options.meta_store).await?);
        let shared = Arc::new(Shared::default());
        for schema in store.schemas().await? {
            shared.update_catalog(|c| c.insert_schema(schema));
        }
        let mut objects = Vec::new();
        let mut abandoned = Vec::new();
        for stored in store.load().await? {
            // Whoever waited for the creation is gone.
            let object = &stored.object;
            let begun = !stored.created || object.replaces.is_some();
            let unfinished = object.plan.is_some() && begun && !stored.background;
            let orphaned = stored.object.depends_on.iter().any(|id| abandoned.contains(id));
            if unfinished || orphaned { abandoned.push(stored.object.id) } else { objects.push(stored) }
        }
        if !abandoned.is_empty() {
            store.delete(&abandoned).await?;
        }
        let jobs: Vec<_> = objects.iter().map(|o| o.object.id).collect();
        let plans = || objects.iter().filter_map(|o| o.object.plan.as_ref());
        let tables: Vec<TableId> = plans().flat_map(|p| p.tables().into_iter().map(|t| t.id)).collect();
        engine.store.retain(&jobs, &tables)?;
        for (sink, _) in store.sinks().await?.into_iter().filter(|(sink, _)| !jobs.contains(sink)) {
            store.forget_sink(sink).await?;
        }

        let recovered = engine.store.max_frontier()?;
        let clock = start_clock(&engine, &shared, options.barrier_interval)?;
        let meta = Arc::new(Meta {
            engine,
            store,
            shared,
            clock,
            wait_timeout: options.wait_timeout,
            recovered,
            ddl: tokio::sync::Mutex::new(()),
            locks: Mutex::default(),
            truncation: OnceLock::new(),
        });
        for mut stored in objects {
            let object = Arc::make_mut(&mut stored.object);
            if let Some(plan) = &mut object.plan {
                // As many as this machine has cores, where nothing else was said.
                plan.parallelism = actors(object.parallelism);
            }
            meta.shared.update_catalog(|c| c.insert(stored.object.clone()));
            let creation = if stored.created { Creation::Done } else { Creation::UnderWay };
            meta.register(stored.object, creation)?;
        }
        for object in meta.catalog().objects() {
            meta.keep_log_for(object);
            if object.replaces.is_some() {
                meta.take_place_later(object.id);
            }
        }
        // Not before every reader is known: the log of a relation without readers goes.
        let care = logs::care(meta.engine.store.clone(), Arc::downgrade(&meta.shared));
        meta.truncation.get_or_init(|| tokio::spawn(care));
        for job in meta.all_jobs() {
            if !job.object().paused {
                job.send(Event::Start);
            }
            meta.start_delivery(&job);
        }
        Ok(meta)
    }

    /// The objects as they are now.
    pub fn catalog(&self) -> Arc<Catalog> {
        lock(&self.shared.catalog).clone()
    }

    /// The state store.
    pub fn store(&self) -> &Arc<Store> {
        &self.engine.store
    }

    /// The first of `count` fresh ids. Jobs and tables share the numbers.
    pub async fn allocate_ids(&self, count: u32) -> Result<u32> {
        self.store.allocate_ids(count).await
    }

    /// Adds an object and starts its job. Returns when it can be queried (`foreground`), or when it is registered. A
    /// foreground creation whose future is dropped is undone. A table is there with its first rows, or not at all.
    pub async fn create(self: &Arc<Self>, object: Object, foreground: bool, first: Vec<Chunk>) -> Result<()> {
        let object = Arc::new(object);
        let id = object.id;
        let mut undo = UndoCreation { meta: self.clone(), id: None };
        let job = {
            let _ddl = self.ddl.lock().await;
            self.check_new(&object)?;
            self.store.insert(&object, !foreground).await?;
            self.shared.update_catalog(|c| c.insert(object.clone()));
            // What is registered and never started would be waited for by the logs of its inputs.
            undo.id = Some(id);
            let creation = if first.is_empty() { Creation::UnderWay } else { Creation::Held };
            let job = self.register(object, creation)?;
            if let Some(job) = &job {
                for input in self.inputs(job) {
                    // Commits that were begun before the reader was known keep no log; the backfill starts after them.
                    input.settle().await;
                    input.log_is_kept(input.now().frontier);
                }
                job.send(Event::Start);
                self.start_delivery(job);
                self.clock.request();
            }
            job
        };
        let Some(job) = job else {
            undo.id = None;
            return Ok(());
        };
        let replaces = job.object().replaces.is_some();
        if !foreground {
            undo.id = None;
            if replaces {
                self.take_place_later(id);
            }
            return Ok(());
        }
        if !first.is_empty() {
            self.write(&job, first).await?;
            let _ = job.events.send(ShellEvent::Filled);
        }
        let mut state = job.state.clone();
        let given_up = |s: &job::JobState| {
            s.phase == Phase::Dropped
                || s.phase == Phase::Stopped && s.last_error.is_some()
                || s.failures >= CREATION_ATTEMPTS_MAX
        };
        let (created, error) = {
            let end = state.wait_for(|s| s.created || given_up(s)).await.map_err(|_| MetaError::Dropped(id))?;
            (end.created, end.last_error.clone())
        };
        if created {
            if replaces {
                self.take_place(id).await?;
            }
            undo.id = None;
            return Ok(());
        }
        undo.id = None;
        self.drop_objects(&[id]).await?;
        Err(match error {
            Some(reason) => MetaError::BuildFailed { name: job.object().name.clone(), reason },
            None => MetaError::Cancelled,
        })
    }

    pub(crate) fn check_new(&self, object: &Object) -> Result<()> {
        let catalog = self.catalog();
        if !catalog.has_schema(&object.schema) {
            return Err(MetaError::NoSuchSchema(object.schema.clone()));
        }
        if let Some(existing) = catalog.find(&object.schema, &object.name) {
            let kind = if existing.kind == ObjectKind::Index { "relation" } else { existing.kind.sql() };
            return Err(MetaError::Exists { kind, name: object.name.clone() });
        }
        if let Some(gone) = object.depends_on.iter().find(|id| catalog.get(**id).is_none()) {
            return Err(MetaError::InputGone(*gone));
        }
        // What is still being created may be undone, at the next start too, and would take with it what was created on it.
        let jobs = self.shared.jobs();
        match object.depends_on.iter().filter_map(|id| jobs.get(id)).find(|job| !job.state.borrow().created) {
            Some(unfinished) => Err(MetaError::NotCreated { name: unfinished.object().name.clone() }),
            None => Ok(()),
        }
    }

    /// Makes the job of an object, with its edges to its inputs. The job waits for [`Event::Start`].
    fn register(&self, object: Arc<Object>, creation: Creation) -> Result<Option<Arc<Job>>> {
        let Some(plan) = object.plan.clone() else { return Ok(None) };
        let id = object.id;
        let frontier = self.engine.store.frontier(id)?.unwrap_or(Epoch::ZERO);
        let inputs: Vec<_> = {
            let jobs = self.shared.jobs();
            let inputs = plan.inputs.iter().map(|i| jobs.get(i).cloned().ok_or(MetaError::InputGone(*i)));
            inputs.collect::<Result<_>>()?
        };
        let around = Surroundings {
            engine: self.engine.clone(),
            meta_store: self.store.clone(),
            clock: self.clock.requester(),
            inputs: inputs.clone(),
        };
        let job = job::spawn(object, Arc::new(plan), frontier, creation, around);
        for input in inputs {
            // A job that had caught up stands at its frontier; one that had not may be anywhere.
            let offset = if creation == Creation::Done { frontier } else { Epoch::ZERO };
            input.add_reader(id, offset, job.events.clone());
            if creation == Creation::Done {
                input.log_is_kept(frontier);
                input.send(Event::Taken { epoch: frontier });
            }
            let now = input.now();
            job.send(Event::Input { job: input.id, frontier: now.frontier, changed: now.changed });
        }
        if delivery::log_table(&job.object()).is_some() {
            // All of it, until the delivery says how far it is.
            job.add_delivery();
        }
        self.shared.jobs().insert(id, job.clone());
        Ok(Some(job))
    }

    fn start_delivery(self: &Arc<Self>, job: &Arc<Job>) {
        if let Some(delivery) = delivery::start(self, job) {
            self.shared.deliveries().insert(job.id, delivery);
        }
    }

    pub(crate) fn inputs(&self, job: &Job) -> Vec<Arc<Job>> {
        let jobs = self.shared.jobs();
        let object = job.object();
        object.plan.iter().flat_map(|p| p.inputs.iter()).filter_map(|i| jobs.get(i).cloned()).collect()
    }

    /// Changes catalog entries, all or none: names, schemas, owners, options, parallelism. Each comes with the entry that it
    /// was made from; [`MetaError::Changed`] when that is not what is there any more.
    pub async fn alter(self: &Arc<Self>, changes: Vec<(Arc<Object>, Object)>) -> Result<()> {
        let _ddl = self.ddl.lock().await;
        let catalog = self.catalog();
        let mut taken = BTreeSet::new();
        for (base, changed) in &changes {
            match catalog.get(base.id) {
                None => return Err(MetaError::NoSuchObject(base.id)),
                Some(now) if !Arc::ptr_eq(now, base) => return Err(MetaError::Changed { name: base.name.clone() }),
                Some(_) => {}
            }
            if !catalog.has_schema(&changed.schema) {
                return Err(MetaError::NoSuchSchema(changed.schema.clone()));
            }
            let other = catalog.find(&changed.schema, &changed.name);
            let other = other.filter(|o| !changes.iter().any(|(base, _)| base.id == o.id));
            if other.is_some() || !taken.insert((&changed.schema, &changed.name)) {
                return Err(MetaError::Exists { kind: "relation", name: changed.name.clone() });
            }
        }
        let changed: Vec<Arc<Object>> = changes.into_iter().map(|(_, changed)| Arc::new(changed)).collect();
        self.store.update(&changed, &[]).await?;
        self.shared.update_catalog(|c| c.change(&changed));
        for object in changed {
            let job = self.shared.jobs().get(&object.id).cloned();
            if let Some(job) = job {
                let delivers_otherwise = delivery::other_options(&job.object(), &object);
                job.alter(object);
                if delivers_otherwise {
                    self.restart_delivery(&job).await;
                }
            }
        }
        Ok(())
    }

    /// Stops a job until it is resumed, also by the next process; or lets it run again, also one that failed for good.
    pub async fn pause(self: &Arc<Self>, base: Arc<Object>, paused: bool) -> Result<()> {
        let id = base.id;
        let mut changed = base.as_ref().clone();
        changed.paused = paused;
        self.alter(vec![(base, changed)]).await?;
        let job = self.shared.jobs().get(&id).cloned().ok_or(MetaError::NoSuchObject(id))?;
        let _ = job.events.send(if paused { ShellEvent::Pause } else { ShellEvent::Resume });
        let settled = |s: &job::JobState| s.phase.is_halted() == paused;
        let _ = job.state.clone().wait_for(settled).await;
        let stopped = self.shared.deliveries().get(&id).is_some_and(|delivery| delivery.state.borrow().stopped);
        if stopped && !paused {
            self.restart_delivery(&job).await;
        }
        Ok(())
    }

    /// Drops objects. Everything that depends on them must be among them.
    pub async fn drop_objects(&self, ids: &[JobId]) -> Result<()> {
        let _ddl = self.ddl.lock().await;
        let catalog = self.catalog();
        for id in ids {
            let object = catalog.get(*id).ok_or(MetaError::NoSuchObject(*id))?;
            if catalog.dependants(*id).iter().any(|d| !ids.contains(&d.id)) {
                return Err(MetaError::HasDependants { name: object.name.clone() });
            }
        }
        self.store.delete(ids).await?;
        self.shared.update_catalog(|c| ids.iter().for_each(|id| c.remove(*id)));
        // Readers end before what they read. Younger objects read older ones.
        let mut ids = ids.to_vec();
        ids.sort_unstable_by_key(|id| std::cmp::Reverse(*id));
        for id in ids {
            let job = self.shared.jobs().remove(&id);
            if let Some(subscription) = catalog.get(id).filter(|o| o.retention.is_some()) {
                let jobs = self.shared.jobs();
                let of = subscription.depends_on.iter().filter_map(|id| jobs.get(id));
                of.for_each(|job| job.remove_reader(id));
            }
            let Some(job) = job else { continue };
            self.end_delivery(&job.object()).await?;
            self.end(&job).await?;
        }
        Ok(())
    }

    pub(crate) async fn end(&self, job: &Job) -> Result<()> {
        job.send(Event::Drop);
        // An error means that the task is gone already.
        let _ = job.state.clone().wait_for(|s| s.phase == Phase::Dropped).await;
        for input in self.inputs(job) {
            input.remove_reader(job.id);
        }
        let object = job.object();
        let tables: Vec<_> = object.plan.iter().flat_map(|p| p.tables()).map(|t| t.id).collect();
        let (store, id) = (self.engine.store.clone(), job.id);
        let dropped = tokio::task::spawn_blocking(move || store.drop_tables(id, &tables)).await;
        lock(&self.locks).remove(&id);
        match dropped {
            Ok(result) => Ok(result?),
            // What is left is removed at the next start.
            Err(_) => Ok(()),
        }
    }

    /// Adds a schema.
    pub async fn create_schema(&self, name: &str) -> Result<()> {
        let _ddl = self.ddl.lock().await;
        if self.catalog().has_schema(name) {
            return Err(MetaError::Exists { kind: "schema", name: name.into() });
        }
        self.store.insert_schema(name).await?;
        self.shared.update_catalog(|c| c.insert_schema(name.into()));
        Ok(())
    }

    /// Drops a schema that is empty.
    pub async fn drop_schema(&self, name: &str) -> Result<()> {
        let _ddl = self.ddl.lock().await;
        let catalog = self.catalog();
        if !catalog.has_schema(name) {
            return Err(MetaError::NoSuchSchema(name.into()));
        }
        if catalog.objects().any(|o| o.schema == name) {
            return Err(MetaError::HasDependants { name: name.into() });
        }
        self.store.delete_schema(name).await?;
        self.shared.update_catalog(|c| c.remove_schema(name));
        Ok(())
    }

    /// Writes the changes of one statement, or transaction, to a table: all in one epoch. Returns it when it is durable.
    pub async fn dml(&self, table: JobId, chunks: Vec<Chunk>) -> Result<Epoch> {
        let job = self.shared.jobs().get(&table).cloned().ok_or(MetaError::NotATable(table))?;
        let object = job.object();
        if object.kind != ObjectKind::Table {
            return Err(MetaError::NotATable(table));
        }
        if !job.state.borrow().created {
            // The creation may still be undone, with all rows.
            return Err(MetaError::NotCreated { name: object.name.clone() });
        }
        if object.paused {
            return Err(MetaError::Paused { name: object.name.clone() });
        }
        let held_by = job.state.borrow().held_by;
        if let Some(reader) = held_by {
            let reader = self.catalog().get(reader).map_or_else(|| format!("job {reader}"), |o| o.full_name());
            return Err(MetaError::LogFull { name: object.name.clone(), reader });
        }
        job.allow_dml(chunks.iter().map(Chunk::len).sum()).await;
        self.write(&job, chunks).await
    }

    async fn write(&self, job: &Job, chunks: Vec<Chunk>) -> Result<Epoch> {
        hand_over(job, chunks, None)?.await
    }

    /// The job of a table that takes rows.
    pub(crate) fn table(&self, table: JobId) -> Result<Arc<Job>> {
        let job = self.shared.jobs().get(&table).cloned();
        job.filter(|job| job.object().kind == ObjectKind::Table).ok_or(MetaError::NotATable(table))
    }

    /// Hands part of a sink's log to a table. The future ends when it is durable.
    pub(crate) async fn deliver(
        &self,
        table: &Job,
        chunks: Vec<Chunk>,
        mark: Mark,
    ) -> Result<impl Future<Output = Result<Epoch>> + Send + use<>> {
        // A pause of the table, or a full log, holds up what is delivered to it.
        let takes_rows = |s: &job::JobState| s.created && s.held_by.is_none() && !s.phase.is_halted();
        table.state.clone().wait_for(takes_rows).await.map_err(|_| MetaError::Dropped(table.id))?;
        table.allow_dml(chunks.iter().map(Chunk::len).sum()).await;
        hand_over(table, chunks, Some(mark))
    }

    /// Waits for its turn to write to a table.
    pub async fn lock_dml(&self, table: JobId, exclusive: bool) -> DmlGuard {
        let table_lock = lock(&self.locks).entry(table).or_default().clone();
        if exclusive {
            DmlGuard::Exclusive(table_lock.write_owned().await)
        } else {
            DmlGuard::Shared(table_lock.read_owned().await)
        }
    }

    /// Every job, for system views.
    pub fn jobs(&self) -> Vec<JobStatus> {
        let status = |job: &Arc<Job>| JobStatus {
            object: job.object(),
            state: job.now(),
            stats: job.stats.clone(),
            readers: job.offsets(),
        };
        self.all_jobs().iter().map(status).collect()
    }

    pub(crate) fn all_jobs(&self) -> Vec<Arc<Job>> {
        self.shared.jobs().values().cloned().collect()
    }
}

/// Hands rows to a table's job. The future ends when they are durable.
fn hand_over(
    job: &Job,
    chunks: Vec<Chunk>,
    mark: Option<Mark>,
) -> Result<impl Future<Output = Result<Epoch>> + Send + use<>> {
    let table = job.id;
    let (sender, receiver) = oneshot::channel();
    let statement = Statement { chunks, mark, epoch: sender };
    job.events.send(ShellEvent::Dml(statement)).map_err(|_| MetaError::Dropped(table))?;
    let mut state = job.state.clone();
    Ok(async move {
        let epoch = receiver.await.map_err(|_| MetaError::WriteLost)?;
        let ended = |s: &job::JobState| s.frontier >= epoch || s.has_lost(epoch) || s.phase == Phase::Dropped;
        let end = state.wait_for(ended).await.map_err(|_| MetaError::Dropped(table))?;
        match end.frontier >= epoch && !end.has_lost(epoch) {
            true => Ok(epoch),
            false => Err(MetaError::WriteLost),
        }
    })
}

/// Drops a half-made object when the one who waited for it went away.
struct UndoCreation {
    meta: Arc<Meta>,
    id: Option<JobId>,
}

impl Drop for UndoCreation {
    fn drop(&mut self) {
        if let Some(id) = self.id.take() {
            let meta = self.meta.clone();
            tokio::spawn(async move {
                if let Err(error) = meta.drop_objects(&[id]).await {
                    tracing::warn!(%id, %error, "undo a cancelled creation");
                }
            });
        }
    }
}

fn start_clock(engine: &Engine, shared: &Arc<Shared>, interval: Duration) -> Result<EpochClock> {
    let last = engine.store.max_frontier()?;
    let ticked = Arc::downgrade(shared);
    let clock = EpochClock::start(last, interval, move |epoch| {
        let Some(shared) = ticked.upgrade() else { return };
        for job in shared.jobs().values() {
            job.send(Event::Tick { epoch });
        }
    });
    let requester = clock.requester();
    engine.store.uncommitted().ask_with(move || requester.notify_one());
    Ok(clock)
}
