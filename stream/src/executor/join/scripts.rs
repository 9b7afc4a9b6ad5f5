//! What must be right about joins, one script each. Left rows are `id k a`, right rows `id k b`, joined on `k`.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{BinaryExpr, Column, lit};
use weir_common::plan::{self, JoinKind, Node, Receive, StreamPlan};
use weir_common::{FragmentId, TableId};

use super::{Join, tables};
use crate::executor::check::{Bench, check};
use crate::expr::Expression;

struct Setup {
    kind: JoinKind,
    null_equals_null: bool,
    on: Vec<(usize, usize)>,
    residual: Option<Arc<dyn PhysicalExpr>>,
    inputs: [SchemaRef; 2],
}

/// On `k`, with one row per `id` on both sides.
fn join(kind: JoinKind) -> Setup {
    let input = |k_nullable, value| {
        Arc::new(Schema::new(vec![
            Field::new("id", DataType::Int64, false),
            Field::new("k", DataType::Int64, k_nullable),
            Field::new(value, DataType::Utf8, true),
        ]))
    };
    let inputs = [input(true, "a"), input(true, "b")];
    Setup { kind, null_equals_null: false, on: vec![(1, 1)], residual: None, inputs }
}

/// `left.a < right.b`
fn less() -> Option<Arc<dyn PhysicalExpr>> {
    let column = |name, i| Arc::new(Column::new(name, i)) as Arc<dyn PhysicalExpr>;
    Some(Arc::new(BinaryExpr::new(column("a", 2), Operator::Lt, column("b", 5))))
}

impl Setup {
    fn make(&self, bench: &Bench) -> Join {
        let [left, right] = &self.inputs;
        let mut id = 0;
        let mut next_id = || {
            id += 1;
            TableId(id)
        };
        let (left_rows, right_rows) = tables(left, &[0], right, &[0], self.kind, &self.on, &mut next_id);
        let both = Arc::new(Schema::new([left.fields().to_vec(), right.fields().to_vec()].concat()));
        let output = match self.kind {
            JoinKind::LeftSemi | JoinKind::LeftAnti => left.fields().to_vec(),
            _ => both.fields().to_vec(),
        };
        let output: Vec<_> = output.iter().map(|f| f.as_ref().clone().with_nullable(true)).collect();
        let input = |schema: &SchemaRef| {
            Box::new(StreamPlan {
                schema: schema.clone(),
                node: Node::Receive(Receive { from: FragmentId(0), output: 0 }),
            })
        };
        let (left_table, right_table) = (bench.table(&left_rows), bench.table(&right_rows));
        let plan = plan::Join {
            left: input(left),
            right: input(right),
            kind: self.kind,
            on: self.on.clone(),
            null_equals_null: self.null_equals_null,
            residual: None,
            left_rows,
            right_rows,
        };
        let residual = self.residual.clone().map(|r| Expression::new(r, &both).unwrap());
        let output = Arc::new(Schema::new(output));
        Join::new(&plan, left, right, &output, left_table, right_table, residual, bench.memory.clone()).unwrap()
    }

    async fn check(self, script: &str, expected: &str) {
        check(&self.inputs, |bench| self.make(bench), script, expected).await;
    }
}

#[tokio::test]
async fn a_row_whose_only_match_goes_is_unmatched_again() {
    let script = "
        0 + 1 7 x
        barrier
        1 + 10 7 y
        barrier
        1 - 10 7 y
        barrier
        restart
        1 + 11 7 z
        1 + 12 7 z
        barrier
        1 - 11 7 z
        barrier
        1 - 12 7 z
        barrier";
    let left = "
        + 1 7 x NULL NULL NULL
        barrier
        - 1 7 x NULL NULL NULL
        + 1 7 x 10 7 y
        barrier
        - 1 7 x 10 7 y
        + 1 7 x NULL NULL NULL
        barrier
        - 1 7 x NULL NULL NULL
        + 1 7 x 11 7 z
        + 1 7 x 12 7 z
        barrier
        - 1 7 x 11 7 z
        barrier
        - 1 7 x 12 7 z
        + 1 7 x NULL NULL NULL
        barrier";
    join(JoinKind::Left).check(script, left).await;
    Setup { residual: less(), ..join(JoinKind::Left) }.check(script, left).await;
    let anti = "
        + 1 7 x
        barrier
        - 1 7 x
        barrier
        + 1 7 x
        barrier
        - 1 7 x
        barrier
        barrier
        + 1 7 x
        barrier";
    join(JoinKind::LeftAnti).check(script, anti).await;
    Setup { residual: less(), ..join(JoinKind::LeftAnti) }.check(script, anti).await;
    let semi = "
        barrier
        + 1 7 x
        barrier
        - 1 7 x
        barrier
        + 1 7 x
        barrier
        barrier
        - 1 7 x
        barrier";
    join(JoinKind::LeftSemi).check(script, semi).await;
    Setup { residual: less(), ..join(JoinKind::LeftSemi) }.check(script, semi).await;
}

#[tokio::test]
async fn delete_and_insert_of_a_key_in_one_chunk() {
    for residual in [None, less()] {
        Setup { residual, ..join(JoinKind::Full) }
            .check(
                "
                0 + 1 7 a
                1 + 10 7 b
                barrier
                0 - 1 7 a
                0 + 1 7 aa
                0 - 1 7 aa
                0 + 1 7 aaa
                barrier
                1 - 10 7 b
                1 + 10 7 bb
                0 - 1 7 aaa
                barrier",
                "
                + 1 7 a 10 7 b
                barrier
                - 1 7 a 10 7 b
                + 1 7 aaa 10 7 b
                barrier
                - 1 7 aaa 10 7 b
                + NULL NULL NULL 10 7 bb
                barrier",
            )
            .await;
    }
}

#[tokio::test]
async fn updates_move_rows_to_another_key() {
    for residual in [None, less()] {
        Setup { residual, ..join(JoinKind::Full) }
            .check(
                "
                0 + 1 7 a
                0 + 2 8 a
                1 + 10 7 b
                barrier
                1 - 10 7 b
                1 + 10 8 b
                barrier
                restart
                1 - 10 8 b
                1 + 10 9 b
                0 - 2 8 a
                0 + 2 9 a
                barrier",
                "
                + 1 7 a 10 7 b
                + 2 8 a NULL NULL NULL
                barrier
                - 1 7 a 10 7 b
                + 1 7 a NULL NULL NULL
                - 2 8 a NULL NULL NULL
                + 2 8 a 10 8 b
                barrier
                - 2 8 a 10 8 b
                + 2 9 a 10 9 b
                barrier",
            )
            .await;
    }
}

#[tokio::test]
async fn equal_rows_count_one_by_one() {
    join(JoinKind::Inner)
        .check(
            "
            0 + 1 7 a
            0 + 2 7 a
            1 + 10 7 b
            1 + 11 7 b
            barrier
            0 - 1 7 a
            1 - 11 7 b
            barrier",
            "
            + 1 7 a 10 7 b
            + 1 7 a 11 7 b
            + 2 7 a 10 7 b
            + 2 7 a 11 7 b
            barrier
            - 1 7 a 10 7 b
            - 1 7 a 11 7 b
            - 2 7 a 11 7 b
            barrier",
        )
        .await;
}

#[tokio::test]
async fn null_keys_match_nothing_and_are_still_there() {
    let script = "
        0 + 1 NULL a
        1 + 10 NULL b
        barrier
        restart
        0 - 1 NULL a
        barrier";
    let full = "
        + 1 NULL a NULL NULL NULL
        + NULL NULL NULL 10 NULL b
        barrier
        - 1 NULL a NULL NULL NULL
        barrier";
    join(JoinKind::Full).check(script, full).await;
    Setup { residual: less(), ..join(JoinKind::Full) }.check(script, full).await;
    join(JoinKind::Inner).check(script, "barrier\nbarrier").await;
    join(JoinKind::LeftSemi).check(script, "barrier\nbarrier").await;
    join(JoinKind::LeftAnti).check(script, "+ 1 NULL a\nbarrier\n- 1 NULL a\nbarrier").await;
    Setup { null_equals_null: true, ..join(JoinKind::Full) }
        .check(
            script,
            "
            + 1 NULL a 10 NULL b
            barrier
            - 1 NULL a 10 NULL b
            + NULL NULL NULL 10 NULL b
            barrier",
        )
        .await;
}

#[tokio::test]
async fn on_false_matches_nothing() {
    for on in [vec![], vec![(1, 1)]] {
        Setup { residual: Some(lit(false)), on, ..join(JoinKind::Full) }
            .check(
                "
                0 + 1 7 a
                1 + 10 7 b
                barrier
                restart
                1 - 10 7 b
                barrier",
                "
                + 1 7 a NULL NULL NULL
                + NULL NULL NULL 10 7 b
                barrier
                - NULL NULL NULL 10 7 b
                barrier",
            )
            .await;
    }
}

#[tokio::test]
async fn a_condition_that_is_null_does_not_match() {
    Setup { residual: less(), ..join(JoinKind::Left) }
        .check(
            "
            0 + 1 7 a
            1 + 10 7 NULL
            barrier
            1 - 10 7 NULL
            1 + 10 7 b
            barrier",
            "
            + 1 7 a NULL NULL NULL
            barrier
            - 1 7 a NULL NULL NULL
            + 1 7 a 10 7 b
            barrier",
        )
        .await;
}

#[tokio::test]
async fn sides_may_come_in_any_order() {
    let expected = "+ 1 7 a 10 7 b\nbarrier\n- 1 7 a 10 7 b\nbarrier";
    for residual in [None, less()] {
        let left_first = "0 + 1 7 a\n1 + 10 7 b\nbarrier\n0 - 1 7 a\n1 - 10 7 b\nbarrier";
        let right_first = "1 + 10 7 b\n0 + 1 7 a\nbarrier\n1 - 10 7 b\n0 - 1 7 a\nbarrier";
        for script in [left_first, right_first] {
            Setup { residual: residual.clone(), ..join(JoinKind::Full) }.check(script, expected).await;
        }
    }
}

#[tokio::test]
async fn keys_of_different_nullability_match() {
    let mut setup = join(JoinKind::Full);
    let fields = setup.inputs[1].fields().iter().map(|f| f.as_ref().clone().with_nullable(f.name() == "b"));
    setup.inputs[1] = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    setup
        .check(
            "
            0 + 1 7 a
            0 + 2 NULL a
            1 + 10 7 b
            barrier
            restart
            0 - 1 7 a
            barrier",
            "
            + 1 7 a 10 7 b
            + 2 NULL a NULL NULL NULL
            barrier
            - 1 7 a 10 7 b
            + NULL NULL NULL 10 7 b
            barrier",
        )
        .await;
}

#[tokio::test]
async fn without_keys_every_row_meets_every_row() {
    Setup { on: vec![], ..join(JoinKind::Left) }
        .check(
            "
            0 + 1 7 a
            0 + 2 NULL c
            barrier
            1 + 10 8 b
            barrier
            restart
            1 - 10 8 b
            0 - 1 7 a
            barrier",
            "
            + 1 7 a NULL NULL NULL
            + 2 NULL c NULL NULL NULL
            barrier
            - 1 7 a NULL NULL NULL
            - 2 NULL c NULL NULL NULL
            + 1 7 a 10 8 b
            + 2 NULL c 10 8 b
            barrier
            - 1 7 a 10 8 b
            - 2 NULL c 10 8 b
            + 2 NULL c NULL NULL NULL
            barrier",
        )
        .await;
}

#[tokio::test]
async fn what_came_after_the_last_barrier_is_lost_with_the_counts() {
    for residual in [None, less()] {
        Setup { residual, ..join(JoinKind::Left) }
            .check(
                "
                0 + 1 7 a
                1 + 10 7 b
                barrier
                1 + 11 7 c
                1 - 10 7 b
                restart
                1 - 10 7 b
                barrier",
                "
                + 1 7 a 10 7 b
                barrier
                - 1 7 a 10 7 b
                + 1 7 a NULL NULL NULL
                barrier",
            )
            .await;
    }
}
