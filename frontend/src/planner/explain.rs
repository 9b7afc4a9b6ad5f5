//! The plan of a job as people read it.
//!
//! ```text
//! Fragment 0, parallel, to fragment 1 by hash(city)
//!   Filter (age > 3)                       -- key (id), hash(id)
//!     Scan people: id, city, age           -- key (id), hash(id)
//! Fragment 1, parallel
//!   Materialize key (city) …
//! ```

use std::fmt::Write;

use arrow::datatypes::SchemaRef;
use weir_common::TableDef;
use weir_common::key::SortColumn;
use weir_common::plan::{
    AggCall, AggFunction, Conflict, Distribution, Fragment, JobPlan, JoinKind, Node, Rank, StreamPlan,
};

use super::properties;

/// Shows a plan: its fragments, and in each the tree of nodes with their stream key, distribution and whether rows stay.
pub fn explain(plan: &JobPlan) -> String {
    let mut text = String::new();
    for fragment in &plan.fragments {
        let spread = match (fragment.single, plan.parallelism) {
            (true, _) => "single".to_string(),
            (false, 1) => "1 actor".to_string(),
            (false, n) => format!("{n} actors"),
        };
        let _ = write!(text, "Fragment {}, {spread}", fragment.id);
        for output in &fragment.outputs {
            let by = distribution(&output.distribution, &fragment.plan.schema);
            let _ = write!(text, ", to fragment {} by {by}", output.to);
        }
        text.push('\n');
        node(&fragment.plan, &plan.fragments, 1, &mut text);
    }
    text
}

fn node(plan: &StreamPlan, fragments: &[Fragment], depth: usize, text: &mut String) {
    let _ = write!(text, "{:indent$}{}", "", plan.node.name(), indent = depth * 2);
    let details = details(plan);
    if !details.is_empty() {
        let _ = write!(text, " {details}");
    }
    let _ = write!(text, " -- key {}", names(&plan.schema, &properties::key(plan, fragments)));
    for way in properties::spread(plan, fragments) {
        let _ = write!(text, ", {}", distribution(&way, &plan.schema));
    }
    if properties::stays(plan, fragments) {
        text.push_str(", append-only");
    }
    text.push('\n');
    for input in plan.node.inputs() {
        node(input, fragments, depth + 1, text);
    }
}

fn details(plan: &StreamPlan) -> String {
    match &plan.node {
        Node::Scan(n) => format!("job {}: {}", n.job, all_names(&plan.schema)),
        Node::Source(n) => {
            let connector = n.options.get("connector").map_or("", String::as_str);
            format!("{connector}: {}", all_names(&plan.schema))
        }
        Node::Dml(_) => all_names(&plan.schema),
        Node::Values(_) => all_names(&plan.schema),
        Node::Receive(n) => format!("from fragment {}", n.from),
        Node::Project(n) => {
            let column = |(i, e): (usize, &weir_common::plan::Expr)| {
                let name = shown(plan.schema.field(i).name());
                if e.text == name { name } else { format!("{} AS {name}", shown(&e.text)) }
            };
            n.exprs.iter().enumerate().map(column).collect::<Vec<_>>().join(", ")
        }
        Node::Filter(n) => shown(&n.predicate.text),
        Node::Aggregate(n) => {
            let input = &n.input.schema;
            let calls = n.calls.iter().map(|c| call(c, input)).collect::<Vec<_>>();
            let mut parts = vec![format!("by {}", names(input, &n.group_by))];
            if !calls.is_empty() {
                parts.push(calls.join(", "));
            }
            if n.append_only {
                parts.push("of append-only".into());
            }
            parts.push(format!("state {}", tables(&plan.node)));
            parts.join(", ")
        }
        Node::Join(n) => {
            let on = |(l, r): &(usize, usize)| {
                let equals = if n.null_equals_null { "IS NOT DISTINCT FROM" } else { "=" };
                let (l, r) = (n.left.schema.field(*l).name(), n.right.schema.field(*r).name());
                format!("{} {equals} {}", shown(l), shown(r))
            };
            let on = n.on.iter().map(on).collect::<Vec<_>>().join(" AND ");
            let on = if on.is_empty() { "true".to_string() } else { on };
            let residual = n.residual.as_ref().map_or(String::new(), |r| format!(" where {}", shown(&r.text)));
            format!("{} on {on}{residual}, state {}", kind(n.kind), tables(&plan.node))
        }
        Node::TopN(n) => {
            let input = &n.input.schema;
            let mut parts = vec![
                match n.rank {
                    Rank::RowNumber => "row_number",
                    Rank::Rank => "rank",
                    Rank::DenseRank => "dense_rank",
                }
                .to_string(),
            ];
            if !n.partition_by.is_empty() {
                parts.push(format!("partition by {}", names(input, &n.partition_by)));
            }
            if !n.order_by.is_empty() {
                parts.push(format!("order by {}", order(input, &n.order_by)));
            }
            if n.offset > 0 {
                parts.push(format!("offset {}", n.offset));
            }
            if let Some(limit) = n.limit {
                parts.push(format!("limit {limit}"));
            }
            if n.emit_rank {
                parts.push("emit rank".into());
            }
            parts.push(format!("state {}", tables(&plan.node)));
            parts.join(", ")
        }
        Node::Union(_) => String::new(),
        Node::Unnest(n) => shown(n.input.schema.field(n.column).name()),
        Node::Exchange(n) => distribution(&n.distribution, &plan.schema),
        Node::Materialize(n) => {
            let conflict = match n.conflict {
                Conflict::Checked => "",
                Conflict::Overwrite => ", on conflict overwrite",
                Conflict::DoNothing => ", on conflict do nothing",
            };
            format!("{}: state {}{conflict}", all_names(&n.table.schema), table(&n.table))
        }
        Node::Log(n) => {
            let consolidated = if n.consolidate { ", consolidated" } else { "" };
            format!("{}: log {}{consolidated}", all_names(&n.table.schema), table(&n.table))
        }
        Node::Sink(n) => {
            let connector = n.options.get("connector").map_or("", String::as_str);
            format!("{connector}: {}", all_names(&plan.schema))
        }
    }
}

fn kind(kind: JoinKind) -> &'static str {
    match kind {
        JoinKind::Inner => "inner",
        JoinKind::Left => "left",
        JoinKind::Right => "right",
        JoinKind::Full => "full",
        JoinKind::LeftSemi => "left semi",
        JoinKind::LeftAnti => "left anti",
    }
}

fn call(call: &AggCall, input: &SchemaRef) -> String {
    let function = match call.function {
        AggFunction::Count => "count",
        AggFunction::Sum => "sum",
        AggFunction::Avg => "avg",
        AggFunction::Min => "min",
        AggFunction::Max => "max",
        AggFunction::BoolAnd => "bool_and",
        AggFunction::BoolOr => "bool_or",
        AggFunction::StringAgg => "string_agg",
        AggFunction::ArrayAgg => "array_agg",
        AggFunction::FirstValue => "first_value",
        AggFunction::LastValue => "last_value",
    };
    let args = call.args.iter().map(|a| shown(input.field(*a).name())).collect::<Vec<_>>().join(", ");
    let args = if args.is_empty() { "*".to_string() } else { args };
    let distinct = if call.distinct { "DISTINCT " } else { "" };
    let order =
        if call.order_by.is_empty() { String::new() } else { format!(" ORDER BY {}", order(input, &call.order_by)) };
    let filter = call.filter.map_or(String::new(), |f| format!(" FILTER (WHERE {})", shown(input.field(f).name())));
    format!("{function}({distinct}{args}{order}){filter}")
}

fn order(schema: &SchemaRef, columns: &[SortColumn]) -> String {
    let column = |c: &SortColumn| {
        let direction = match (c.order.descending, c.order.nulls_first) {
            (false, false) => "",
            (true, true) => " DESC",
            (false, true) => " NULLS FIRST",
            (true, false) => " DESC NULLS LAST",
        };
        format!("{}{direction}", shown(schema.field(c.column).name()))
    };
    columns.iter().map(column).collect::<Vec<_>>().join(", ")
}

fn tables(node: &Node) -> String {
    node.tables().into_iter().map(table).collect::<Vec<_>>().join(" ")
}

/// Its id, its key, and what it is distributed by.
fn table(table: &TableDef) -> String {
    let key = order(&table.schema, &table.key);
    let distribution = names(&table.schema, &table.distribution);
    format!(
        "{}({key}){}",
        table.id,
        if table.distribution.is_empty() { String::new() } else { format!("@{distribution}") }
    )
}

fn distribution(distribution: &Distribution, schema: &SchemaRef) -> String {
    match distribution {
        Distribution::Single => "single".into(),
        Distribution::Hash(columns) => format!("hash{}", names(schema, columns)),
    }
}

fn names(schema: &SchemaRef, columns: &[usize]) -> String {
    let names = columns.iter().map(|c| shown(schema.field(*c).name())).collect::<Vec<_>>();
    format!("({})", names.join(", "))
}

fn all_names(schema: &SchemaRef) -> String {
    schema.fields().iter().map(|f| shown(f.name())).collect::<Vec<_>>().join(", ")
}

/// Without what makes names differ that users did not give.
fn shown(text: &str) -> String {
    let mut parts = text.split(super::names::NUMBERED);
    let mut shown = parts.next().unwrap_or_default().to_string();
    for part in parts {
        shown.push_str(part.trim_start_matches(|c: char| c.is_ascii_digit()));
    }
    shown
}
