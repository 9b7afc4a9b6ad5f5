//! `weir_catalog.sinks` and `weir_catalog.pending_sink_commits`: what leaves Weir, and how far it is.

use std::time::UNIX_EPOCH;

use tokio::runtime::Handle;
use weir_common::Epoch;
use weir_meta::SinkStatus;

use super::relation::Type::{Int4, Int8, Text, TimestampTz};
use super::{Relation, SystemRelations, Value};
use crate::error::Result;

type Rows = Result<Vec<Vec<Value>>>;

pub(super) static RELATIONS: &[Relation] = &[
    Relation {
        name: "sinks",
        columns: &[
            ("id", Int4),
            ("schema", Text),
            ("name", Text),
            // Where it delivers to: a connector, or a table.
            ("connector", Text),
            ("target", Text),
            // What the delivery does now.
            ("state", Text),
            ("generation", Int8),
            // All changes up to this epoch are delivered.
            ("delivered", Int8),
            ("delivered_time", TimestampTz),
            // What is in the log and not delivered, and how old the oldest of it is.
            ("lag_rows", Int8),
            ("lag_bytes", Int8),
            ("lag_ms", Int8),
            // Since the process began.
            ("rows", Int8),
            ("commits", Int8),
            ("failures", Int8),
            ("last_error", Text),
            ("next_attempt", TimestampTz),
        ],
        rows: sinks,
    },
    Relation {
        name: "pending_sink_commits",
        columns: &[
            ("sink_id", Int4),
            ("sink", Text),
            ("commit_id", Text),
            ("generation", Int8),
            ("epoch", Int8),
            // Pieces that the writers have written, such as files.
            ("parts", Int8),
            ("recorded", TimestampTz),
        ],
        rows: pending_sink_commits,
    },
];

fn sinks(source: &SystemRelations<'_>) -> Rows {
    let now_ms = weir_meta::now_ms();
    let row = |sink: SinkStatus| {
        let (object, delivery) = (&sink.object, &sink.delivery);
        let target = object.into.and_then(|id| source.moment.catalog.get(id)).map(|o| o.full_name());
        let next_attempt = delivery.next_attempt.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
        let begun = delivery.offset > Epoch::ZERO;
        vec![
            object.id.0.into(),
            (&object.schema).into(),
            (&object.name).into(),
            object.options.get("connector").cloned().into(),
            target.into(),
            if object.paused { "paused" } else { delivery.step }.into(),
            delivery.generation.0.into(),
            delivery.offset.0.into(),
            begun.then(|| delivery.offset.unix_ms().saturating_mul(1000)).into(),
            sink.lag.rows.into(),
            sink.lag.bytes.into(),
            sink.lag.oldest.map_or(0, |oldest| now_ms.saturating_sub(oldest.unix_ms())).into(),
            delivery.rows.into(),
            delivery.commits.into(),
            delivery.failures.into(),
            delivery.last_error.clone().into(),
            next_attempt.map(|at| at.as_micros() as u64).into(),
        ]
    };
    Ok(source.moment.session.meta().sinks().into_iter().map(row).collect())
}

fn pending_sink_commits(source: &SystemRelations<'_>) -> Rows {
    let meta = source.moment.session.meta();
    // A short query of the meta store, from within the planning of another.
    let records = tokio::task::block_in_place(|| Handle::current().block_on(meta.pending_sink_commits()))?;
    let mut rows = Vec::with_capacity(records.len());
    for record in records {
        let stamp = &record.stamp;
        rows.push(vec![
            stamp.sink.0.into(),
            source.moment.catalog.get(stamp.sink).map(|o| o.name.clone()).into(),
            (&stamp.commit).into(),
            stamp.generation.0.into(),
            stamp.epoch.0.into(),
            (record.parts as u64).into(),
            (record.recorded_ms as u64).saturating_mul(1000).into(),
        ]);
    }
    Ok(rows)
}
