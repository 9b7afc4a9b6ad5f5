//! Runs bound plans within the bounds of memory and disk.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use arrow::array::RecordBatch;
use datafusion::config::ConfigOptions;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::execution::{SessionState, SessionStateBuilder};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::{ExecutionPlan, SendableRecordBatchStream, execute_stream};
use datafusion::prelude::SessionConfig;
use futures::TryStreamExt;

use super::room::{self, WriteRoom};
use super::zeros;
use crate::error::{Result, SqlError};

/// Memory that all batch queries together may hold, unless [`configure`] says otherwise.
const MEMORY_BYTES: usize = 512 << 20;
/// Disk that they may spill to.
const SPILL_BYTES: u64 = 16 << 30;
/// Tasks of one query.
const PARTITIONS: usize = 2;
/// Rows of a batch.
pub(super) const BATCH_ROWS: usize = 8192;

static RUNTIME: OnceLock<Arc<RuntimeEnv>> = OnceLock::new();

/// Sets the memory of all batch queries together and the folder they spill to, and the memory that the rows of one statement
/// may cost. Only before the first query.
pub fn configure(memory_bytes: usize, spill: Option<PathBuf>, write_bytes: usize) -> Result<()> {
    room::limit(write_bytes);
    let runtime = runtime(memory_bytes, spill)?;
    RUNTIME.set(runtime).map_err(|_| SqlError::internal("batch queries are configured before the first of them"))
}

fn runtime(memory_bytes: usize, spill: Option<PathBuf>) -> Result<Arc<RuntimeEnv>> {
    let mode = match spill {
        Some(folder) => DiskManagerMode::Directories(vec![folder]),
        None => DiskManagerMode::OsTmpDirectory,
    };
    let disk = DiskManagerBuilder::default().with_mode(mode).with_max_temp_directory_size(SPILL_BYTES);
    let builder = RuntimeEnvBuilder::new()
        .with_memory_pool(Arc::new(FairSpillPool::new(memory_bytes)))
        .with_disk_manager_builder(disk);
    Ok(builder.build_arc()?)
}

fn shared_runtime() -> Result<Arc<RuntimeEnv>> {
    if let Some(runtime) = RUNTIME.get() {
        return Ok(runtime.clone());
    }
    let runtime = runtime(MEMORY_BYTES, None)?;
    Ok(RUNTIME.get_or_init(|| runtime).clone())
}

/// The settings of DataFusion in a session with this time zone.
pub fn config(time_zone: &str) -> SessionConfig {
    let mut config = SessionConfig::new()
        .with_target_partitions(PARTITIONS)
        .with_batch_size(BATCH_ROWS)
        .with_information_schema(false)
        .with_create_default_catalog_and_schema(false);
    let options: &mut ConfigOptions = config.options_mut();
    options.execution.time_zone = Some(time_zone.to_string());
    options.execution.collect_statistics = false;
    // It says an error where a plan's columns may be NULL though they never are: `SELECT DISTINCT x IS NOT FALSE`.
    options.execution.skip_physical_aggregate_schema_check = true;
    options.sql_parser.default_null_ordering = "nulls_max".to_string();
    options.sql_parser.collect_spans = true;
    config
}

/// What plans of one statement are optimized and run with. `now()` is the moment of this call.
pub fn state(config: SessionConfig) -> Result<SessionState> {
    let mut state = SessionStateBuilder::new().with_config(config).with_runtime_env(shared_runtime()?).build();
    state.mark_start_execution();
    Ok(state)
}

/// Optimizes a bound plan and makes it executable.
pub async fn physical_plan(state: &SessionState, plan: &LogicalPlan) -> Result<Arc<dyn ExecutionPlan>> {
    let plan = zeros::as_equal_keys(state.optimize(plan)?)?;
    Ok(state.query_planner().create_physical_plan(&plan, state).await?)
}

/// Runs a bound plan.
pub async fn execute(state: &SessionState, plan: &LogicalPlan) -> Result<SendableRecordBatchStream> {
    let plan = physical_plan(state, plan).await?;
    Ok(execute_stream(plan, state.task_ctx())?)
}

/// Runs a bound plan whose rows are to be written, to its end.
pub async fn collect(state: &SessionState, plan: &LogicalPlan) -> Result<Vec<RecordBatch>> {
    let mut rows = execute(state, plan).await?;
    let (mut batches, mut room) = (Vec::new(), WriteRoom::default());
    while let Some(batch) = rows.try_next().await? {
        room.add(&batch)?;
        batches.push(batch);
    }
    Ok(batches)
}
