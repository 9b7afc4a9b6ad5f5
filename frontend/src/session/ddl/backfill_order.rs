//! `WITH (backfill_order = FIXED(a -> b, b -> c))`: what a job reads first.

use weir_common::JobId;
use weir_common::plan::{JobPlan, Node, StreamPlan};

use crate::error::{Result, SqlError, SqlState};
use crate::session::Moment;
use crate::statement::{Ident, Name};

/// The option.
pub(super) const OPTION: &str = "backfill_order";

/// Tells the readers of a job whom they come after.
pub(super) fn apply(moment: &Moment<'_>, plan: &mut JobPlan, order: &str) -> Result<()> {
    if ["none", "default", "auto"].contains(&order.to_lowercase().as_str()) {
        return Ok(());
    }
    let invalid = |message: String| SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message);
    let mut pairs = Vec::new();
    for pair in order.split(", ") {
        let (before, after) = pair.split_once(" -> ").ok_or_else(|| {
            invalid(format!("invalid backfill_order: \"{order}\"")).with_hint("Write FIXED(first -> second, …).")
        })?;
        let read = |name: &str| {
            let found = moment.find(&named(name))?.map(|o| o.id).filter(|id| plan.inputs.contains(id));
            found.ok_or_else(|| invalid(format!("backfill_order names \"{name}\", which is not read")))
        };
        pairs.push((read(before)?, read(after)?));
    }
    if plan.inputs.iter().any(|relation| comes_after_itself(*relation, &pairs)) {
        return Err(invalid("backfill_order goes in a circle".to_string()));
    }
    plan.fragments.iter_mut().for_each(|fragment| set(&mut fragment.plan, &pairs));
    Ok(())
}

fn named(text: &str) -> Name {
    let ident = |value: &str| Ident { value: value.to_string(), line: 0, column: 0 };
    match text.split_once('.') {
        Some((schema, name)) => Name { database: None, schema: Some(ident(schema)), name: ident(name) },
        None => Name { database: None, schema: None, name: ident(text) },
    }
}

fn comes_after_itself(relation: JobId, pairs: &[(JobId, JobId)]) -> bool {
    let (mut open, mut seen) = (vec![relation], Vec::new());
    while let Some(id) = open.pop() {
        for (_, after) in pairs.iter().filter(|(before, _)| *before == id) {
            if *after == relation {
                return true;
            }
            if !seen.contains(after) {
                seen.push(*after);
                open.push(*after);
            }
        }
    }
    false
}

fn set(plan: &mut StreamPlan, pairs: &[(JobId, JobId)]) {
    if let Node::Scan(scan) = &mut plan.node {
        scan.after = pairs.iter().filter(|(_, after)| *after == scan.job).map(|(before, _)| *before).collect();
    }
    plan.node.inputs_mut().into_iter().for_each(|input| set(input, pairs));
}
