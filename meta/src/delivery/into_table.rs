//! Delivers a sink's log into a table.
//!
//! The rows go the way of a statement's rows, with a mark that says which part of the log they are. The table's job commits the
//! mark with the rows, and takes no part but the one after its mark: so each part is applied once, whatever fails on either
//! side. Several parts are under way at a time.

use std::collections::VecDeque;
use std::sync::Arc;

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesOrdered;
use tokio::sync::watch;
use weir_common::plan::JobPlan;
use weir_common::{Chunk, Epoch, JobId, Vnode};
use weir_connector::SinkSettings;
use weir_storage::Store;
use weir_stream::delivery::{Selection, for_table};
use weir_stream::executor::dml::{Mark, mark_of};
use weir_stream::rate_limit::Allowance;

use super::{Around, DeliveryState, Failure, back_off, report};
use crate::MetaError;
use crate::job::Job;
use crate::meta::Meta;

/// Parts that are under way at a time.
const PARTS_MAX: usize = 4;

/// The epoch up to which a table has applied the log of a sink.
pub(crate) fn mark(store: &Arc<Store>, target: &Job, sink: JobId) -> Result<Epoch, weir_storage::StorageError> {
    let object = target.object();
    let Some((dml, _)) = object.plan.as_ref().and_then(JobPlan::dml) else { return Ok(Epoch::ZERO) };
    let (rows, _) = store.snapshot().scan(&dml.marks, Vnode(0), None, usize::MAX)?;
    Ok(mark_of(&rows, sink))
}

/// Delivers until it is aborted.
pub(super) async fn run(around: Around, target: JobId, state: watch::Sender<DeliveryState>) {
    let name = around.job.object().full_name();
    let mut attempt = 0;
    loop {
        state.send_modify(|s| s.step = "writing");
        let Err(failure) = deliver(&around, target, &state, &mut attempt).await;
        report(&state, &name, &failure);
        attempt += 1;
        state.send_modify(|s| s.step = "failing");
        back_off(&state, attempt).await;
    }
}

enum Never {}

/// Delivers until something fails.
async fn deliver(
    around: &Around,
    target: JobId,
    state: &watch::Sender<DeliveryState>,
    attempt: &mut u32,
) -> Result<Never, Failure> {
    let meta = around.meta.upgrade().ok_or(MetaError::ShuttingDown)?;
    let object = around.job.object();
    let selection = Selection {
        columns: object.columns.iter().filter(|c| !c.hidden).count(),
        inserts_only: SinkSettings::parse(&object.options)?.force_append_only,
    };
    let mut allowance = Allowance::new(around.job.limits().sink.clone());
    let table = meta.table(target)?;
    let mut at = mark(&around.store, &table, around.job.id)?;
    around.keep_log_after(at);
    state.send_modify(|s| s.offset = at);
    let mut under_way: FuturesOrdered<BoxFuture<'static, crate::Result<Epoch>>> = FuturesOrdered::new();
    let mut parts: VecDeque<(Epoch, u64)> = VecDeque::new();
    loop {
        tokio::select! {
            Some(written) = under_way.next() => {
                written?;
                let (up_to, rows) = parts.pop_front().unwrap_or((at, 0));
                around.keep_log_after(up_to);
                *attempt = 0;
                state.send_modify(|s| {
                    s.offset = up_to;
                    s.rows += rows;
                    s.commits += 1;
                    s.last_error = None;
                });
            }
            to = around.more(at), if under_way.len() < PARTS_MAX => {
                let mut chunks = Vec::new();
                for logged in around.store.read_log(around.table.id, at, to)? {
                    chunks.push(selection.of(&logged?.chunk)?);
                }
                let rows = chunks.iter().map(Chunk::len).sum::<usize>();
                allowance.wait(1).await;
                allowance.spend(rows);
                let mark = Mark { sink: around.job.id, after: at, up_to: to };
                under_way.push_back(hand_over(&meta, target, &chunks, mark).await?);
                parts.push_back((to, rows as u64));
                at = to;
            }
        }
    }
}

/// Hands a part to the table's job, in order; the future ends when it is durable.
async fn hand_over(
    meta: &Arc<Meta>,
    target: JobId,
    chunks: &[Chunk],
    mark: Mark,
) -> Result<BoxFuture<'static, crate::Result<Epoch>>, Failure> {
    let table = meta.table(target)?;
    let object = table.object();
    let (_, schema) = object.plan.as_ref().and_then(JobPlan::dml).ok_or(MetaError::NotATable(target))?;
    let mut rows = Vec::with_capacity(chunks.len());
    for chunk in chunks.iter().filter(|chunk| !chunk.is_empty()) {
        rows.push(for_table(chunk, &object, schema)?);
    }
    // UPDATE and DELETE compute their rows from what they read: nothing comes in between.
    let guard = meta.lock_dml(target, false).await;
    let written = meta.deliver(&table, rows, mark).await?;
    Ok(Box::pin(async move {
        let epoch = written.await;
        drop(guard);
        epoch
    }))
}
