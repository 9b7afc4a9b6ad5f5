//! What is known about the rows that come out of a plan: what identifies them, how they are spread, whether they stay.
//!
//! All are functions of the plan, with an arm for each node. Within fragments, what comes before a [`Receive`] is found in
//! the fragment that sends; plans that are not cut yet have none.

use datafusion_proto::protobuf::PhysicalExprNode;
use datafusion_proto::protobuf::physical_expr_node::ExprType;
use prost::Message;
use weir_common::plan::{Distribution, Expr, Fragment, JoinKind, Node, Rank, Receive, StreamPlan};
use weir_stream::executor::join::{full_join_needs_marker, stream_key as join_key};

/// The columns that identify a row, so that within an epoch the changes of a key add up. Empty: there is at most one row.
pub(super) fn stream_key(plan: &StreamPlan) -> Vec<usize> {
    key(plan, &[])
}

/// The ways in which the rows are spread, each of them true. None: they are spread in a way without a name.
pub(super) fn distributions(plan: &StreamPlan) -> Vec<Distribution> {
    spread(plan, &[])
}

/// Whether no row is ever deleted or updated.
pub(super) fn append_only(plan: &StreamPlan) -> bool {
    stays(plan, &[])
}

pub(super) fn key(plan: &StreamPlan, fragments: &[Fragment]) -> Vec<usize> {
    match &plan.node {
        Node::Scan(scan) => {
            let place = |column: usize| scan.columns.iter().position(|c| *c == column);
            scan.table.key.iter().filter_map(|k| place(k.column)).collect()
        }
        Node::Source(_) | Node::Values(_) => vec![plan.schema.fields().len() - 1],
        Node::Dml(dml) => dml.row_id.into_iter().collect(),
        Node::Receive(receive) => match sender(receive, fragments) {
            Some((fragment, distribution)) => spread_key(key(&fragment.plan, fragments), distribution),
            None => vec![],
        },
        Node::Project(project) => {
            let place = |column: usize| project.exprs.iter().position(|e| column_of(e) == Some(column));
            key(&project.input, fragments).into_iter().filter_map(place).collect()
        }
        Node::Filter(filter) => key(&filter.input, fragments),
        Node::Aggregate(aggregate) => (0..aggregate.group_by.len()).collect(),
        Node::Join(join) => {
            let left_width = join.left.schema.fields().len();
            let mut left = key(&join.left, fragments);
            let right = key(&join.right, fragments);
            let (left_schema, right_schema) = (&join.left.schema, &join.right.schema);
            if join.kind == JoinKind::Full && full_join_needs_marker(left_schema, &left, right_schema, &right, &join.on)
            {
                left.push(left_width - 1);
            }
            join_key(left_width, &left, &right, join.kind, &join.on)
        }
        Node::TopN(top_n) if top_n.limit == Some(1) && top_n.rank == Rank::RowNumber => top_n.partition_by.clone(),
        // The partition too: a row that moves from one to another is deleted and inserted in any order.
        Node::TopN(top_n) => {
            let mut columns = top_n.partition_by.clone();
            columns.extend(key(&top_n.input, fragments));
            columns.sort_unstable();
            columns.dedup();
            columns
        }
        Node::Union(union) => {
            let mut columns: Vec<usize> = union.inputs.iter().flat_map(|input| key(input, fragments)).collect();
            columns.push(plan.schema.fields().len() - 1);
            columns.sort_unstable();
            columns.dedup();
            columns
        }
        Node::Unnest(unnest) => {
            let input = key(&unnest.input, fragments).into_iter().filter(|c| *c != unnest.column);
            input.chain([plan.schema.fields().len() - 1]).collect()
        }
        Node::Exchange(exchange) => spread_key(key(&exchange.input, fragments), &exchange.distribution),
        Node::Materialize(materialize) => materialize.table.key_indices(),
        Node::Log(log) => key(&log.input, fragments),
        Node::Sink(sink) => key(&sink.input, fragments),
    }
}

/// After an exchange a row is identified also by what it was spread by: then changes of a key come from one actor.
fn spread_key(mut key: Vec<usize>, distribution: &Distribution) -> Vec<usize> {
    if let Distribution::Hash(columns) = distribution {
        for column in columns {
            if !key.contains(column) {
                key.push(*column);
            }
        }
    }
    key
}

pub(super) fn spread(plan: &StreamPlan, fragments: &[Fragment]) -> Vec<Distribution> {
    let place_all = |columns: &[usize], place: &dyn Fn(usize) -> Option<usize>| {
        columns.iter().map(|c| place(*c)).collect::<Option<Vec<_>>>().map(Distribution::Hash)
    };
    let through = |input: &StreamPlan, place: &dyn Fn(usize) -> Option<usize>| {
        let map = |distribution: Distribution| match distribution {
            Distribution::Single => Some(Distribution::Single),
            Distribution::Hash(columns) => place_all(&columns, place),
        };
        spread(input, fragments).into_iter().filter_map(map).collect::<Vec<_>>()
    };
    match &plan.node {
        Node::Scan(scan) if scan.table.distribution.is_empty() => vec![Distribution::Single],
        Node::Scan(scan) => {
            let place = |column: usize| scan.columns.iter().position(|c| *c == column);
            place_all(&scan.table.distribution, &place).into_iter().collect()
        }
        Node::Source(_) | Node::Dml(_) | Node::Values(_) => vec![Distribution::Single],
        Node::Receive(receive) => match sender(receive, fragments) {
            Some((_, distribution)) => vec![distribution.clone()],
            None => vec![],
        },
        Node::Project(project) => {
            let place = |column: usize| project.exprs.iter().position(|e| column_of(e) == Some(column));
            through(&project.input, &place)
        }
        Node::Filter(filter) => spread(&filter.input, fragments),
        Node::Aggregate(aggregate) => {
            let place = |column: usize| aggregate.group_by.iter().position(|g| *g == column);
            through(&aggregate.input, &place)
        }
        Node::Join(join) => {
            let left_width = join.left.schema.fields().len();
            let left = || spread(&join.left, fragments);
            let right = || through(&join.right, &|column| Some(column + left_width));
            match join.kind {
                JoinKind::Inner if spread(&join.left, fragments) == [Distribution::Single] => left(),
                JoinKind::Inner => left().into_iter().chain(right()).collect(),
                JoinKind::Left | JoinKind::LeftSemi | JoinKind::LeftAnti => left(),
                JoinKind::Right => right(),
                // A row is where the key is of the side that it has.
                JoinKind::Full => left().into_iter().filter(|d| *d == Distribution::Single).collect(),
            }
        }
        Node::TopN(top_n) => spread(&top_n.input, fragments),
        Node::Union(union) => {
            let mut common: Option<Vec<Distribution>> = None;
            for input in &union.inputs {
                let ways = spread(input, fragments);
                common = Some(match common {
                    None => ways,
                    Some(common) => common.into_iter().filter(|d| ways.contains(d)).collect(),
                });
            }
            common.unwrap_or_default()
        }
        Node::Unnest(unnest) => through(&unnest.input, &|column| (column != unnest.column).then_some(column)),
        Node::Exchange(exchange) => vec![exchange.distribution.clone()],
        Node::Materialize(materialize) => spread(&materialize.input, fragments),
        Node::Log(log) => spread(&log.input, fragments),
        Node::Sink(sink) => spread(&sink.input, fragments),
    }
}

pub(super) fn stays(plan: &StreamPlan, fragments: &[Fragment]) -> bool {
    match &plan.node {
        Node::Scan(scan) => scan.append_only,
        Node::Source(_) | Node::Values(_) => true,
        // Statements delete and update; Materialize knows whether the table lets them.
        Node::Dml(_) => false,
        Node::Receive(receive) => sender(receive, fragments).is_some_and(|(f, _)| stays(&f.plan, fragments)),
        Node::Project(project) => stays(&project.input, fragments),
        Node::Filter(filter) => stays(&filter.input, fragments),
        // DISTINCT of rows that stay: a row that is there stays.
        Node::Aggregate(aggregate) => {
            aggregate.calls.is_empty() && !aggregate.group_by.is_empty() && stays(&aggregate.input, fragments)
        }
        Node::Join(join) => {
            let inputs_stay = stays(&join.left, fragments) && stays(&join.right, fragments);
            match join.kind {
                JoinKind::Inner | JoinKind::LeftSemi => inputs_stay,
                // A match takes back the row without one.
                JoinKind::Left | JoinKind::Right | JoinKind::Full | JoinKind::LeftAnti => false,
            }
        }
        Node::TopN(_) => false,
        Node::Union(union) => union.inputs.iter().all(|input| stays(input, fragments)),
        Node::Unnest(unnest) => stays(&unnest.input, fragments),
        Node::Exchange(exchange) => stays(&exchange.input, fragments),
        Node::Materialize(materialize) => stays(&materialize.input, fragments),
        Node::Log(log) => stays(&log.input, fragments),
        Node::Sink(sink) => stays(&sink.input, fragments),
    }
}

/// Whether one actor has all rows.
pub(super) fn is_single(plan: &StreamPlan) -> bool {
    distributions(plan).contains(&Distribution::Single)
}

/// The input column that an expression is, if it is nothing else.
fn column_of(expr: &Expr) -> Option<usize> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let byte = |pair: &[u8]| match *pair {
        [high, low] => Some((digit(high)? << 4 | digit(low)?) as u8),
        _ => None,
    };
    let bytes = expr.proto.as_bytes().chunks(2).map(byte).collect::<Option<Vec<u8>>>()?;
    match PhysicalExprNode::decode(&bytes[..]).ok()?.expr_type? {
        ExprType::Column(column) => Some(column.index as usize),
        _ => None,
    }
}

fn sender<'a>(receive: &Receive, fragments: &'a [Fragment]) -> Option<(&'a Fragment, &'a Distribution)> {
    let fragment = fragments.get(receive.from.0 as usize)?;
    Some((fragment, &fragment.outputs.get(receive.output)?.distribution))
}
