#![allow(clippy::unwrap_used)]

use std::cmp::Reverse;
use std::collections::BTreeMap;

use arrow::datatypes::DataType;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use weir_common::plan::{Node, Rank, StreamPlan};

use super::*;
use crate::executor::check::{self, Bench, Driven, schema};

/// `id` is the stream key, `p` the partition, `o` the order.
fn input() -> SchemaRef {
    schema(&[("id", DataType::Int64), ("p", DataType::Int64), ("o", DataType::Int64), ("v", DataType::Utf8)])
}

fn output(emit_rank: bool) -> SchemaRef {
    let mut columns =
        vec![("id", DataType::Int64), ("p", DataType::Int64), ("o", DataType::Int64), ("v", DataType::Utf8)];
    if emit_rank {
        columns.push(("rank", DataType::Int64));
    }
    schema(&columns)
}

#[derive(Clone, Copy, Debug)]
struct Query {
    rank: Rank,
    emit_rank: bool,
    offset: u64,
    limit: Option<u64>,
    partitioned: bool,
    order: KeyOrder,
}

const FIRST_TWO: Query = Query {
    rank: Rank::RowNumber,
    emit_rank: false,
    offset: 0,
    limit: Some(2),
    partitioned: true,
    order: KeyOrder::ASC,
};

impl Query {
    fn plan(self) -> plan::TopN {
        let partition_by = if self.partitioned { vec![1] } else { vec![] };
        let order_by = vec![SortColumn { column: 2, order: self.order }];
        let rows = table(&input(), &[0], &partition_by, &order_by, TableId(1));
        let values = plan::Values { rows: String::new(), emitted: rows.clone() };
        let input = Box::new(StreamPlan { schema: input(), node: Node::Values(values) });
        let Query { rank, emit_rank, offset, limit, .. } = self;
        plan::TopN { input, partition_by, order_by, offset, limit, rank, emit_rank, rows }
    }

    fn executor(self, bench: &Bench) -> TopN {
        let plan = self.plan();
        TopN::new(&plan, &input(), &output(self.emit_rank), bench.table(&plan.rows), bench.memory.clone()).unwrap()
    }

    /// The result by definition.
    fn result(self, rows: &BTreeMap<i64, Content>) -> BTreeMap<String, i64> {
        let mut partitions: BTreeMap<Option<i64>, Vec<(i64, Content)>> = BTreeMap::new();
        for (id, row) in rows {
            partitions.entry(row.p.filter(|_| self.partitioned)).or_default().push((*id, row.clone()));
        }
        let mut result = BTreeMap::new();
        for partition in partitions.values_mut() {
            partition.sort_by_key(|(id, row)| (self.sort_key(row.o), *id));
            let (mut rank, mut dense) = (0, 0);
            for i in 0..partition.len() {
                let (id, row) = &partition[i];
                if i == 0 || partition[i - 1].1.o != row.o {
                    (rank, dense) = (i as u64 + 1, dense + 1);
                }
                let rank = match self.rank {
                    Rank::RowNumber => i as u64 + 1,
                    Rank::Rank => rank,
                    Rank::DenseRank => dense,
                };
                if rank <= self.offset || self.limit.is_some_and(|limit| rank > self.offset + limit) {
                    continue;
                }
                let shown = |n: Option<i64>| n.map_or("NULL".to_owned(), |n| n.to_string());
                let mut text = format!("{id} {} {} {}", shown(row.p), shown(row.o), row.v);
                if self.emit_rank {
                    text += &format!(" {rank}");
                }
                result.insert(text, 1);
            }
        }
        result
    }

    fn sort_key(self, o: Option<i64>) -> (bool, Result<Reverse<i64>, i64>) {
        let null = o.is_none() != self.order.nulls_first;
        (null, if self.order.descending { Ok(Reverse(o.unwrap_or(0))) } else { Err(o.unwrap_or(0)) })
    }
}

type Result<A, B> = std::result::Result<A, B>;

#[derive(Clone, Debug, PartialEq)]
struct Content {
    p: Option<i64>,
    o: Option<i64>,
    v: i64,
}

async fn check(query: Query, script: &str, expected: &str) {
    check::check(&[input()], |bench| query.executor(bench), script, expected).await;
}

#[tokio::test]
async fn the_first_rows_of_each_partition() {
    let script = "
        + 1 7 30 a
        + 2 7 10 b
        + 3 7 20 c
        + 4 8 5 d
        barrier
        restart
        + 5 7 15 e
        barrier
        - 2 7 10 b
        - 5 7 15 e
        barrier
        + 6 7 1 f
        - 6 7 1 f
        barrier";
    let expected = "
        + 2 7 10 b
        + 3 7 20 c
        + 4 8 5 d
        barrier
        - 3 7 20 c
        + 5 7 15 e
        barrier
        - 2 7 10 b
        - 5 7 15 e
        + 1 7 30 a
        + 3 7 20 c
        barrier
        barrier";
    check(FIRST_TWO, script, expected).await;
}

#[tokio::test]
async fn shifted_rows_get_their_new_rank() {
    let query = Query { emit_rank: true, ..FIRST_TWO };
    let script = "
        + 1 7 10 a
        + 2 7 20 b
        barrier
        + 3 7 5 c
        barrier";
    let expected = "
        + 1 7 10 a 1
        + 2 7 20 b 2
        barrier
        - 1 7 10 a 1
        - 2 7 20 b 2
        + 3 7 5 c 1
        + 1 7 10 a 2
        barrier";
    check(query, script, expected).await;
}

#[tokio::test]
async fn ties_share_a_rank() {
    let query = Query { rank: Rank::Rank, emit_rank: true, ..FIRST_TWO };
    let script = "
        + 1 7 10 a
        + 2 7 20 b
        + 3 7 20 c
        + 4 7 30 d
        barrier
        restart
        - 1 7 10 a
        barrier";
    let expected = "
        + 1 7 10 a 1
        + 2 7 20 b 2
        + 3 7 20 c 2
        barrier
        - 1 7 10 a 1
        - 2 7 20 b 2
        - 3 7 20 c 2
        + 2 7 20 b 1
        + 3 7 20 c 1
        barrier";
    check(query, script, expected).await;
    let query = Query { rank: Rank::DenseRank, emit_rank: true, ..FIRST_TWO };
    let expected = "
        + 1 7 10 a 1
        + 2 7 20 b 2
        + 3 7 20 c 2
        barrier
        - 1 7 10 a 1
        - 2 7 20 b 2
        - 3 7 20 c 2
        + 2 7 20 b 1
        + 3 7 20 c 1
        + 4 7 30 d 2
        barrier";
    check(query, script, expected).await;
}

#[tokio::test]
async fn the_window_equals_its_definition_after_random_changes() {
    let seed = std::env::var("WEIR_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(1);
    println!("WEIR_SEED={seed}");
    let mut random = StdRng::seed_from_u64(seed);
    for rank in [Rank::RowNumber, Rank::Rank, Rank::DenseRank] {
        for (offset, limit) in [(0, Some(1)), (0, Some(4)), (3, Some(2)), (2, None), (0, None), (0, Some(300))] {
            for partitioned in [true, false] {
                let order = KeyOrder { descending: random.random(), nulls_first: random.random() };
                let emit_rank = random.random();
                let query = Query { rank, emit_rank, offset, limit, partitioned, order };
                changes_at_random(query, &mut random).await;
            }
        }
    }
}

async fn changes_at_random(query: Query, random: &mut StdRng) {
    let mut bench = Bench::new();
    let mut driven = Driven::new(query.executor(&bench), &[input()]);
    let mut rows: BTreeMap<i64, Content> = BTreeMap::new();
    let mut committed = rows.clone();
    let mut next_id = 0;
    let pressure = 2 << 30;
    let append_only = random.random_ratio(1, 4);
    // Now and then few partitions have all the rows.
    let partitions = if random.random_ratio(1, 3) { 2 } else { 8 };
    for epoch in 0..25 {
        for _ in 0..random.random_range(0..3) {
            let mut lines = Vec::new();
            // At times most changes are deletes, so that windows run dry.
            let deletes = if random.random_ratio(1, 4) { 0.95 } else { 0.5 };
            let changes = if random.random_ratio(1, 10) { 400 } else { random.random_range(1..12) };
            for _ in 0..changes {
                let text = |id: i64, row: &Content, sign| {
                    let shown = |n: Option<i64>| n.map_or("NULL".to_owned(), |n| n.to_string());
                    format!("{sign} {id} {} {} {}", shown(row.p), shown(row.o), row.v)
                };
                let some =
                    rows.iter().nth(random.random_range(0..rows.len().max(1))).map(|(id, row)| (*id, row.clone()));
                if let (Some((id, row)), true) = (some, !append_only && random.random_bool(deletes)) {
                    lines.push(text(id, &row, '-'));
                    if random.random_ratio(1, 2) {
                        rows.remove(&id);
                        continue;
                    }
                    let row = Content { v: row.v + 1, o: Some(random.random_range(0..9)), ..row };
                    lines.push(text(id, &row, '+'));
                    rows.insert(id, row);
                } else {
                    let p = Some(random.random_range(0..partitions)).filter(|p| *p > 0);
                    let o = Some(random.random_range(0..9)).filter(|o| *o > 0);
                    let row = Content { p, o, v: 0 };
                    lines.push(text(next_id, &row, '+'));
                    rows.insert(next_id, row);
                    next_id += 1;
                }
            }
            let lines: Vec<_> = lines.iter().map(String::as_str).collect();
            driven.apply(0, check::chunk(&input(), &lines)).await;
        }
        match random.random_range(0..8) {
            0 => {
                driven.restart(query.executor(&bench));
                rows = committed.clone();
            }
            1 => {
                bench.memory.add(pressure);
                driven.barrier(&mut bench).await;
                bench.memory.add(-pressure);
                committed = rows.clone();
            }
            _ => {
                driven.barrier(&mut bench).await;
                committed = rows.clone();
            }
        }
        assert_eq!(driven.relation(), query.result(&rows), "{query:?}, epoch {epoch}");
    }
}
