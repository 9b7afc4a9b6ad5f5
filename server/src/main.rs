//! The `weir` binary: wires storage, engine, meta and frontend into one process.

mod config;
mod data_dir;
mod http;
mod memory;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Parser;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tracing_subscriber::EnvFilter;
use weir_meta::{Meta, MetaOptions};
use weir_storage::{MemoryLimit, Store, StoreOptions};
use weir_stream::job::Engine;

use crate::config::{Cli, Command, Config};
use crate::data_dir::DataDir;

/// Batches come and go on several threads, and so do those of RocksDB: glibc's allocator takes up to a quarter of the time
/// for them, and does not give back what is free between what is used.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// What jemalloc reads at its start: memory that is free goes back to the system after a second.
// SAFETY: jemalloc declares this symbol as a pointer to a C string that is there from the start, and reads it only.
#[unsafe(export_name = "malloc_conf")]
static ALLOCATOR_SETTINGS: &std::ffi::c_char = {
    const SETTINGS: &std::ffi::CStr = c"background_thread:true,dirty_decay_ms:1000,muzzy_decay_ms:0";
    // SAFETY: a C string has at least its end to point to.
    unsafe { &*SETTINGS.as_ptr() }
};

/// Stack of each thread of the runtime.
const THREAD_STACK_BYTES: usize = 64 << 20;

fn main() -> std::process::ExitCode {
    let cli = Cli::parse();
    let result = Config::load(&cli).and_then(|config| match cli.command {
        None | Some(Command::Serve) => serve(config),
    });
    match result {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("weir: {error:#}");
            std::process::ExitCode::FAILURE
        }
    }
}

/// Threads that run tasks.
const WORKERS_PER_CORE: usize = 3;

fn serve(config: Config) -> Result<()> {
    init_log(&config)?;
    let _failpoints = fail::FailScenario::setup();
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        // A task that computes for a millisecond, as those of a backfill do, holds up what is queued behind it. With more
        // threads than cores, the operating system lets those go first that mostly wait: statements and small epochs.
        .worker_threads(cores * WORKERS_PER_CORE)
        .thread_name("weir")
        // Planning recurses over a query's tree; only what is touched takes memory.
        .thread_stack_size(THREAD_STACK_BYTES)
        .build()
        .context("start the async runtime")?;
    let result = runtime.block_on(run(config));
    // Blocking work that is still under way has nothing to do with what was acknowledged.
    runtime.shutdown_timeout(Duration::from_secs(5));
    result
}

fn init_log(config: &Config) -> Result<()> {
    let filter = EnvFilter::try_new(&config.log).with_context(|| format!("log filter `{}`", config.log))?;
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    if config.log_json {
        log.json().init()
    } else {
        log.init()
    }
    Ok(())
}

async fn run(config: Config) -> Result<()> {
    let listen = |address: String| async move {
        let listener = TcpListener::bind(&address).await;
        listener.with_context(|| format!("listen on {address}: is another server running there?"))
    };
    let sql = listen(config.listen.clone()).await?;
    let http = listen(config.http_listen.clone()).await?;
    let dir = DataDir::open(&config.data_dir)?;
    let limit = config.memory_limit.unwrap_or_else(memory::default_limit);
    let store = Store::open(&dir.store(), store_options(limit)).context("open the state store")?;
    weir_frontend::batch::configure(limit / 10, Some(dir.spill()?), limit / 2).context("set up batch queries")?;
    let engine = Engine { store, memory: Arc::new(MemoryLimit::new(limit / 5 * 2)), courtesy: Arc::default() };
    let options = MetaOptions {
        meta_store: config.meta_store.clone().unwrap_or_else(|| dir.meta_store_url()),
        barrier_interval: Duration::from_millis(config.barrier_interval_ms),
        wait_timeout: Duration::from_secs(config.wait_timeout_s),
    };
    let meta = Meta::open(options, engine).await.context("start the meta service")?;

    let (stop, stopped) = watch::channel(false);
    let until_stopped = |mut stopped: watch::Receiver<bool>| async move {
        // The sender lives until the end of this function.
        let _ = stopped.wait_for(|stop| *stop).await;
    };
    let http_address = http.local_addr().context("address of the HTTP listener")?;
    let http = tokio::spawn(http::serve(meta.clone(), http, until_stopped(stopped.clone())));
    let sql_address = sql.local_addr().context("address of the SQL listener")?;
    let serving = tokio::spawn(weir_frontend::pg::serve(meta.clone(), sql, until_stopped(stopped)));
    dir.say_ready(sql_address, http_address)?;
    tracing::info!(%sql_address, %http_address, data_dir = %config.data_dir.display(), memory_limit = limit, "ready");

    wait_for_signal().await?;
    tracing::info!("stopping");
    stop.send_replace(true);
    let (sql_ended, http_ended) = tokio::join!(serving, http);
    sql_ended.context("SQL server")?.context("SQL server")?;
    http_ended.context("HTTP server")?.context("HTTP server")?;
    Ok(())
}

/// Uncommitted writes beyond this many bytes would not make anything faster.
const UNCOMMITTED_MAX: usize = 256 << 20;

/// Two fifths of the memory limit are for operators, a tenth for queries, nearly half for the store; the rest is slack.
fn store_options(limit: usize) -> StoreOptions {
    StoreOptions {
        block_cache_bytes: limit / 5,
        tail_bytes: limit / 10,
        uncommitted_bytes: UNCOMMITTED_MAX.min(limit / 8),
        // It is there three times when it is committed: as what is written, as the batch of the store, and as its log.
        epoch_bytes: limit / 6,
        sync: true,
    }
}

async fn wait_for_signal() -> Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("listen for SIGINT")?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}
