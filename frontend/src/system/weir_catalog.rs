//! `weir_catalog`: jobs and what they are made of.

use std::collections::BTreeMap;
use std::time::UNIX_EPOCH;

use weir_common::catalog::ObjectKind;
use weir_common::plan::{Distribution, JobPlan, Node, Output};
use weir_common::{Epoch, JobId};
use weir_meta::JobStatus;
use weir_stream::driver::Backfill;

use super::relation::Type::{Bool, Int4, Int8, Text, TimestampTz};
use super::{Relation, SystemRelations, Value};
use crate::error::Result;

type Rows = Result<Vec<Vec<Value>>>;

pub(super) static RELATIONS: &[Relation] = &[
    Relation {
        name: "objects",
        columns: &[
            ("id", Int4),
            ("schema", Text),
            ("name", Text),
            ("kind", Text),
            ("append_only", Bool),
            ("definition", Text),
            ("depends_on", Text),
            ("owner", Text),
            ("created", TimestampTz),
        ],
        rows: objects,
    },
    Relation {
        name: "jobs",
        columns: &[
            ("id", Int4),
            ("schema", Text),
            ("name", Text),
            ("kind", Text),
            ("state", Text),
            ("created", Bool),
            ("parallelism", Int4),
            ("frontier", Int8),
            ("frontier_time", TimestampTz),
            ("lag_ms", Int8),
            ("changed", Int8),
            ("generation", Int8),
            ("failures", Int8),
            ("last_error", Text),
            ("next_attempt", TimestampTz),
            // The reader whose reading of the full change log is waited for.
            ("held_by", Text),
        ],
        rows: jobs,
    },
    Relation {
        name: "fragments",
        columns: &[
            ("job_id", Int4),
            ("job", Text),
            ("fragment", Int4),
            ("nodes", Text),
            ("actors", Int4),
            // E.g. `2 by hash(city), 3 by single`.
            ("outputs", Text),
        ],
        rows: fragments,
    },
    Relation {
        name: "actors",
        columns: &[
            ("job_id", Int4),
            ("job", Text),
            ("fragment", Int4),
            ("actor", Int4),
            ("node", Text),
            ("rows", Int8),
            ("epoch", Int8),
        ],
        rows: actors,
    },
    Relation {
        name: "backfill_progress",
        columns: &[
            ("job_id", Int4),
            ("job", Text),
            ("input_id", Int4),
            ("input", Text),
            ("finished", Bool),
            ("vnodes_finished", Int4),
            ("vnodes", Int4),
            ("rows", Int8),
            ("epoch", Int8),
        ],
        rows: backfill_progress,
    },
    Relation {
        name: "change_logs",
        columns: &[
            ("job_id", Int4),
            ("job", Text),
            ("table_id", Int4),
            ("readers", Text),
            ("slowest_reader", Int4),
            ("read_up_to", Int8),
            ("epochs", Int8),
            ("rows", Int8),
            ("bytes", Int8),
            ("oldest", Int8),
            ("newest", Int8),
        ],
        rows: change_logs,
    },
    Relation {
        name: "tables",
        columns: &[
            ("id", Int4),
            ("job_id", Int4),
            ("job", Text),
            ("fragment", Int4),
            ("node", Text),
            ("columns", Text),
            ("key", Text),
            ("distribution", Text),
            ("bytes", Int8),
        ],
        rows: tables,
    },
    Relation {
        name: "errors",
        columns: &[
            ("job_id", Int4),
            ("job", Text),
            ("failures", Int8),
            ("last_error", Text),
            ("expression_errors", Int8),
            ("last_expression_error", Text),
        ],
        rows: errors,
    },
    Relation {
        name: "source_errors",
        columns: &[
            ("job_id", Int4),
            ("job", Text),
            ("count", Int8),
            ("message", Text),
            ("record", Text),
            ("position", Text),
        ],
        rows: source_errors,
    },
];

fn objects(source: &SystemRelations<'_>) -> Rows {
    let row = |o: &std::sync::Arc<weir_common::catalog::Object>| {
        let depends_on: Vec<String> = o.depends_on.iter().map(JobId::to_string).collect();
        vec![
            o.id.0.into(),
            (&o.schema).into(),
            (&o.name).into(),
            o.kind.sql().into(),
            o.append_only.into(),
            (&o.definition).into(),
            depends_on.join(", ").into(),
            (&o.owner).into(),
            (o.created_ms.saturating_mul(1000)).into(),
        ]
    };
    Ok(source.moment.catalog.objects().map(row).collect())
}

fn jobs(source: &SystemRelations<'_>) -> Rows {
    let now_ms = weir_meta::now_ms();
    let row = |job: &JobStatus| {
        let (object, state) = (&job.object, &job.state);
        let started = state.frontier > Epoch::ZERO;
        let parallelism = object.plan.as_ref().map(|p| p.parallelism);
        let held_by = state.held_by.and_then(|id| source.moment.catalog.get(id)).map(|o| o.name.clone());
        let next_attempt = state.next_attempt.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
        vec![
            object.id.0.into(),
            (&object.schema).into(),
            (&object.name).into(),
            object.kind.sql().into(),
            state.phase.name().into(),
            state.created.into(),
            parallelism.into(),
            state.frontier.0.into(),
            started.then(|| state.frontier.unix_ms().saturating_mul(1000)).into(),
            started.then(|| now_ms.saturating_sub(state.frontier.unix_ms())).into(),
            state.changed.0.into(),
            state.generation.0.into(),
            state.failures.into(),
            state.last_error.clone().into(),
            next_attempt.map(|at| at.as_micros() as u64).into(),
            held_by.into(),
        ]
    };
    Ok(source.jobs().iter().map(row).collect())
}

fn fragments(source: &SystemRelations<'_>) -> Rows {
    let mut rows = Vec::new();
    for job in source.jobs() {
        let Some(plan) = &job.object.plan else { continue };
        for fragment in &plan.fragments {
            let mut nodes = Vec::new();
            fragment.plan.visit(&mut |plan| nodes.push(plan.node.name()));
            let output = |output: &Output| match &output.distribution {
                Distribution::Single => format!("{} by single", output.to),
                Distribution::Hash(columns) => {
                    let name = |i: &usize| fragment.plan.schema.field(*i).name().clone();
                    format!("{} by hash({})", output.to, columns.iter().map(name).collect::<Vec<_>>().join(", "))
                }
            };
            let outputs = fragment.outputs.iter().map(output).collect::<Vec<_>>().join(", ");
            rows.push(vec![
                job.object.id.0.into(),
                (&job.object.name).into(),
                fragment.id.0.into(),
                nodes.join(" > ").into(),
                (if fragment.single { 1 } else { plan.parallelism }).into(),
                outputs.into(),
            ]);
        }
    }
    Ok(rows)
}

fn actors(source: &SystemRelations<'_>) -> Rows {
    let mut rows = Vec::new();
    for job in source.jobs() {
        for task in job.stats.tasks() {
            rows.push(vec![
                job.object.id.0.into(),
                (&job.object.name).into(),
                task.fragment.0.into(),
                task.actor.0.into(),
                task.node.into(),
                task.rows.into(),
                task.epoch.0.into(),
            ]);
        }
    }
    Ok(rows)
}

fn backfill_progress(source: &SystemRelations<'_>) -> Rows {
    let mut rows = Vec::new();
    for job in source.jobs() {
        // Each actor reports its own part.
        let mut inputs: BTreeMap<JobId, Backfill> = BTreeMap::new();
        for part in &job.state.backfills {
            let whole =
                inputs.entry(part.input).or_insert(Backfill { vnodes_finished: 0, vnodes: 0, rows: 0, ..*part });
            whole.vnodes_finished += part.vnodes_finished;
            whole.vnodes += part.vnodes;
            whole.rows += part.rows;
            whole.offset = whole.offset.min(part.offset);
        }
        for (id, backfill) in inputs {
            let input = source.moment.catalog.get(id);
            rows.push(vec![
                job.object.id.0.into(),
                (&job.object.name).into(),
                id.0.into(),
                input.map(|o| o.name.clone()).into(),
                backfill.finished().into(),
                backfill.vnodes_finished.into(),
                backfill.vnodes.into(),
                backfill.rows.into(),
                backfill.offset.0.into(),
            ]);
        }
    }
    Ok(rows)
}

fn change_logs(source: &SystemRelations<'_>) -> Rows {
    let store = source.moment.session.meta().store();
    let mut rows = Vec::new();
    for job in source.jobs() {
        let Some(table) = job.object.plan.as_ref().and_then(|p| p.relation.as_ref()) else { continue };
        if job.readers.is_empty() {
            continue;
        }
        let stats = store.log_stats(table.id)?;
        let readers: Vec<String> = job.readers.keys().map(JobId::to_string).collect();
        let slowest = job.readers.iter().min_by_key(|(_, epoch)| **epoch);
        rows.push(vec![
            job.object.id.0.into(),
            (&job.object.name).into(),
            table.id.0.into(),
            readers.join(", ").into(),
            slowest.map(|(id, _)| id.0).into(),
            slowest.map(|(_, epoch)| epoch.0).into(),
            stats.epochs.into(),
            stats.rows.into(),
            stats.bytes.into(),
            stats.oldest.map(|e| e.0).into(),
            stats.newest.map(|e| e.0).into(),
        ]);
    }
    Ok(rows)
}

fn tables(source: &SystemRelations<'_>) -> Rows {
    let store = source.moment.session.meta().store();
    let mut rows = Vec::new();
    for object in source.moment.catalog.objects() {
        let Some(plan) = &object.plan else { continue };
        for_each_table(plan, |fragment, node, table| {
            let name = |i: &usize| table.schema.field(*i).name().clone();
            let names = |columns: &[usize]| columns.iter().map(name).collect::<Vec<_>>().join(", ");
            let all: Vec<usize> = (0..table.schema.fields().len()).collect();
            rows.push(vec![
                table.id.0.into(),
                object.id.0.into(),
                (&object.name).into(),
                fragment.into(),
                node.name().into(),
                names(&all).into(),
                names(&table.key_indices()).into(),
                names(&table.distribution).into(),
                store.table_bytes(table.id).into(),
            ]);
        });
    }
    Ok(rows)
}

fn for_each_table(plan: &JobPlan, mut f: impl FnMut(u32, &Node, &weir_common::TableDef)) {
    for fragment in &plan.fragments {
        fragment.plan.visit(&mut |plan| {
            for table in plan.node.tables() {
                f(fragment.id.0, &plan.node, table);
            }
        });
    }
}

fn errors(source: &SystemRelations<'_>) -> Rows {
    let jobs = source.jobs();
    let failed = jobs.iter().filter(|j| j.state.failures > 0 || j.stats.expression_errors.count() > 0);
    let row = |job: &JobStatus| {
        vec![
            job.object.id.0.into(),
            (&job.object.name).into(),
            job.state.failures.into(),
            job.state.last_error.clone().into(),
            job.stats.expression_errors.count().into(),
            job.stats.expression_errors.last().into(),
        ]
    };
    Ok(failed.map(row).collect())
}

fn source_errors(source: &SystemRelations<'_>) -> Rows {
    let mut rows = Vec::new();
    for job in source.jobs() {
        let bad = job.stats.bad();
        for record in &bad.newest {
            rows.push(vec![
                job.object.id.0.into(),
                (&job.object.name).into(),
                bad.count.into(),
                (&record.message).into(),
                (&record.raw).into(),
                (&record.position).into(),
            ]);
        }
    }
    Ok(rows)
}

/// How far the making of a job has come, for people: vnodes read of all, and rows.
pub fn progress(job: &JobStatus) -> String {
    if job.state.created {
        return "100%".to_string();
    }
    let (finished, all, rows) = job
        .state
        .backfills
        .iter()
        .fold((0, 0, 0), |(finished, all, rows), b| (finished + b.vnodes_finished, all + b.vnodes, rows + b.rows));
    let percent = (finished * 100).checked_div(all).unwrap_or(0);
    let elapsed = job.state.backfilling_since.and_then(|(at, before)| Some((at.elapsed().ok()?, before)));
    let rows_per_s =
        elapsed.map_or(0.0, |(elapsed, before)| rows.saturating_sub(before) as f64 / elapsed.as_secs_f64().max(0.001));
    // Vnodes are about equally large.
    let left = match (finished, rows_per_s > 0.0) {
        (0, _) | (_, false) => String::new(),
        (finished, true) => {
            let total = rows as f64 * all as f64 / finished as f64;
            format!(", {:.0} s left", (total - rows as f64).max(0.0) / rows_per_s)
        }
    };
    format!("{percent}% ({rows} rows, {rows_per_s:.0} rows/s{left})")
}

/// Whether a kind of object is a relation with rows or a query of its own.
pub(super) fn is_relation(kind: ObjectKind) -> bool {
    !matches!(kind, ObjectKind::Sink | ObjectKind::Subscription | ObjectKind::Secret)
}
