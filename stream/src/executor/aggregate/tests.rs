//! Scripts for the meaning of each function, and random changes against a model that recomputes every group from its
//! rows.

#![allow(clippy::unwrap_used)]

use arrow::datatypes::DataType::{self, Boolean, Decimal128, Float32, Float64, Int32, Int64, Utf8};
use arrow::datatypes::{Field, Schema, SchemaRef};
use weir_common::id::{FragmentId, TableId};
use weir_common::key::{KeyOrder, SortColumn};
use weir_common::plan::AggFunction::{
    ArrayAgg, Avg, BoolAnd, BoolOr, Count, FirstValue, LastValue, Max, Min, StringAgg, Sum,
};
use weir_common::plan::{self, AggCall, AggFunction, Node, Receive, StreamPlan};

use super::{Aggregate, output_type, tables};
use crate::executor::check::{Bench, check, schema};

mod random;

fn call(function: AggFunction, args: &[usize], input: &Schema) -> AggCall {
    let arg = args.first().map(|arg| input.field(*arg).data_type());
    AggCall {
        function,
        args: args.to_vec(),
        filter: None,
        distinct: false,
        order_by: Vec::new(),
        output: output_type(function, arg).unwrap(),
        values: None,
    }
}

fn distinct(call: AggCall) -> AggCall {
    AggCall { distinct: true, ..call }
}

fn filter(call: AggCall, column: usize) -> AggCall {
    AggCall { filter: Some(column), ..call }
}

fn ordered(call: AggCall, order_by: &[(usize, KeyOrder)]) -> AggCall {
    let order_by = order_by.iter().map(|(column, order)| SortColumn { column: *column, order: *order }).collect();
    AggCall { order_by, ..call }
}

/// An aggregation as the planner makes it.
struct Case {
    input: SchemaRef,
    group_by: Vec<usize>,
    calls: Vec<AggCall>,
    append_only: bool,
}

impl Case {
    fn executor(&self, bench: &Bench) -> Aggregate {
        let mut id = 0;
        let mut next_id = || {
            id += 1;
            TableId(id)
        };
        let (groups, values) = tables(&self.input, &self.group_by, &self.calls, self.append_only, &mut next_id);
        let calls = self.calls.iter().zip(&values).map(|(c, v)| AggCall { values: v.clone(), ..c.clone() }).collect();
        let receive = Node::Receive(Receive { from: FragmentId(0), output: 0 });
        let plan = plan::Aggregate {
            input: Box::new(StreamPlan { schema: self.input.clone(), node: receive }),
            group_by: self.group_by.clone(),
            calls,
            append_only: self.append_only,
            groups: groups.clone(),
        };
        let values = values.iter().map(|def| def.as_ref().map(|def| bench.table(def))).collect();
        Aggregate::new(&plan, &self.input, &self.output(), bench.table(&groups), values, bench.memory.clone()).unwrap()
    }

    fn output(&self) -> SchemaRef {
        let groups = self.group_by.iter().map(|column| self.input.field(*column).clone());
        let calls = self.calls.iter().enumerate().map(|(i, c)| Field::new(format!("c{i}"), c.output.clone(), true));
        Schema::new(groups.chain(calls).collect::<Vec<_>>()).into()
    }
}

/// Runs a script over `columns`, grouped by the first ones.
async fn script(
    columns: &[(&str, DataType)],
    groups: usize,
    calls: impl Fn(&Schema) -> Vec<AggCall>,
    script: &str,
    expected: &str,
) {
    let input = schema(columns);
    let calls = calls(&input);
    let case = Case { input, group_by: (0..groups).collect(), calls, append_only: false };
    check(std::slice::from_ref(&case.input), |bench| case.executor(bench), script, expected).await;
}

#[tokio::test]
async fn groups_appear_change_and_vanish() {
    script(
        &[("k", Utf8), ("v", Int32)],
        1,
        |i| vec![call(Count, &[], i), call(Count, &[1], i), call(Sum, &[1], i), call(Avg, &[1], i)],
        "
        + a 1
        + a 2
        + b NULL
        + NULL 7
        barrier
        - a 1
        - NULL 7
        restart
        - a 1
        - NULL 7
        barrier
        + a 5
        - a 5
        barrier
        + NULL 8
        - NULL 8
        - a 2
        - b NULL
        barrier
        ",
        "
        + a 2 2 3 1.5000000000000000
        + b 1 0 NULL NULL
        + NULL 1 1 7 7.0000000000000000
        barrier
        - a 2 2 3 1.5000000000000000
        + a 1 1 2 2.0000000000000000
        - NULL 1 1 7 7.0000000000000000
        barrier
        barrier
        - a 1 1 2 2.0000000000000000
        - b 1 0 NULL NULL
        barrier
        ",
    )
    .await;
}

#[tokio::test]
async fn without_group_columns_there_is_always_one_row() {
    script(
        &[("v", Int64)],
        0,
        |i| vec![call(Count, &[], i), call(Sum, &[0], i), call(Max, &[0], i), call(ArrayAgg, &[0], i)],
        "
        barrier
        restart
        barrier
        + 9223372036854775807
        + 1
        barrier
        restart
        - 1
        - 9223372036854775807
        barrier
        ",
        "
        + 0 NULL NULL NULL
        barrier
        barrier
        - 0 NULL NULL NULL
        + 2 9223372036854775808 9223372036854775807 [1,_9223372036854775807]
        barrier
        - 2 9223372036854775808 9223372036854775807 [1,_9223372036854775807]
        + 0 NULL NULL NULL
        barrier
        ",
    )
    .await;
}

#[tokio::test]
async fn without_calls_it_is_distinct() {
    script(
        &[("a", Utf8), ("b", Float64)],
        2,
        |_| vec![],
        "
        + x 0.0
        + x -0.0
        + x NaN
        barrier
        - x 0.0
        + NULL NULL
        + NULL NULL
        - x NaN
        barrier
        restart
        - x -0.0
        - NULL NULL
        barrier
        ",
        "
        + x 0.0
        + x NaN
        barrier
        + NULL NULL
        - x NaN
        barrier
        - x 0.0
        barrier
        ",
    )
    .await;
}

#[tokio::test]
async fn a_result_that_does_not_fit_is_null_until_it_fits() {
    script(
        &[("k", Utf8), ("d", Decimal128(38, 0)), ("f", Float64)],
        1,
        |i| vec![call(Sum, &[1], i), call(Avg, &[1], i), call(Sum, &[2], i)],
        "
        + a 99999999999999999999999999999999999999 1.7e308
        + a 1 1.7e308
        barrier
        restart
        - a 1 1.7e308
        barrier
        ",
        "
        + a NULL NULL NULL
        barrier
        - a NULL NULL NULL
        + a 99999999999999999999999999999999999999 NULL 1.7e308
        barrier
        ",
    )
    .await;
}

#[tokio::test]
async fn floats_come_back_exactly() {
    script(
        &[("k", Utf8), ("f", Float64), ("r", Float32)],
        1,
        |i| vec![call(Sum, &[1], i), call(Avg, &[1], i), call(Sum, &[2], i), call(Min, &[1], i), call(Max, &[1], i)],
        "
        + a 0.1 0.5
        + a 1e300 0.5
        + a NaN 1
        barrier
        - a NaN 1
        barrier
        restart
        - a 1e300 0.5
        barrier
        + a inf 0.5
        barrier
        + a -inf 0.5
        barrier
        restart
        - a inf 0.5
        - a 0.1 0.5
        barrier
        ",
        "
        + a NaN NaN 2.0 0.1 NaN
        barrier
        - a NaN NaN 2.0 0.1 NaN
        + a 1e300 5e299 1.0 0.1 1e300
        barrier
        - a 1e300 5e299 1.0 0.1 1e300
        + a 0.1 0.1 0.5 0.1 0.1
        barrier
        - a 0.1 0.1 0.5 0.1 0.1
        + a inf inf 1.0 0.1 inf
        barrier
        - a inf inf 1.0 0.1 inf
        + a NaN NaN 1.5 -inf inf
        barrier
        - a NaN NaN 1.5 -inf inf
        + a -inf -inf 0.5 -inf -inf
        barrier
        ",
    )
    .await;
}

#[tokio::test]
async fn extremes_find_the_next_value() {
    script(
        &[("k", Utf8), ("v", Utf8)],
        1,
        |i| vec![call(Min, &[1], i), call(Max, &[1], i), distinct(call(Min, &[1], i))],
        "
        + a m
        + a b
        + a b
        + a z
        + a NULL
        barrier
        - a b
        - a z
        barrier
        restart
        - a b
        + a c
        barrier
        - a c
        - a m
        barrier
        - a NULL
        barrier
        ",
        "
        + a b z b
        barrier
        - a b z b
        + a b m b
        barrier
        - a b m b
        + a c m c
        barrier
        - a c m c
        + a NULL NULL NULL
        barrier
        - a NULL NULL NULL
        barrier
        ",
    )
    .await;
}

#[tokio::test]
async fn more_values_than_memory_keeps_in_view() {
    let lines = |sign: &str, range: std::ops::Range<i32>| {
        range.map(|v| format!("{sign} a {v}\n")).collect::<String>() + "barrier\n"
    };
    let text = lines("+", 0..100) + &lines("-", 0..50) + "restart\n" + &lines("-", 50..99);
    script(
        &[("k", Utf8), ("v", Int32)],
        1,
        |i| vec![call(Min, &[1], i), call(Max, &[1], i)],
        &text,
        "
        + a 0 99
        barrier
        - a 0 99
        + a 50 99
        barrier
        - a 50 99
        + a 99 99
        barrier
        ",
    )
    .await;
}

#[tokio::test]
async fn values_in_order() {
    let by = |c: AggCall| ordered(c, &[(2, KeyOrder::DESC)]);
    script(
        &[("k", Utf8), ("v", Utf8), ("o", Int32), ("sep", Utf8)],
        1,
        |i| {
            vec![
                by(call(ArrayAgg, &[1], i)),
                by(call(StringAgg, &[1, 3], i)),
                by(call(FirstValue, &[1], i)),
                by(call(LastValue, &[1], i)),
                distinct(call(StringAgg, &[1, 3], i)),
            ]
        },
        "
        + a x 1 ,
        + a y 2 ;
        + a x 1 ,
        + a NULL 3 -
        barrier
        restart
        - a NULL 3 -
        - a x 1 ,
        + a z NULL NULL
        barrier
        - a y 2 ;
        - a x 1 ,
        barrier
        - a z NULL NULL
        + a NULL NULL ,
        barrier
        ",
        "
        + a [NULL,_y,_x,_x] y,x,x NULL x x;y
        barrier
        - a [NULL,_y,_x,_x] y,x,x NULL x x;y
        + a [z,_y,_x] z;y,x z x x;yz
        barrier
        - a [z,_y,_x] z;y,x z x x;yz
        + a [z] z z z z
        barrier
        - a [z] z z z z
        + a [NULL] NULL NULL NULL NULL
        barrier
        ",
    )
    .await;
}

#[tokio::test]
async fn distinct_and_filter() {
    script(
        &[("k", Utf8), ("v", Int32), ("f", Boolean), ("b", Boolean)],
        1,
        |i| {
            vec![
                distinct(call(Count, &[1], i)),
                filter(distinct(call(Count, &[1], i)), 2),
                filter(distinct(call(Sum, &[1], i)), 2),
                filter(call(Count, &[], i), 2),
                filter(call(BoolAnd, &[3], i), 2),
                call(BoolOr, &[3], i),
            ]
        },
        "
        + a 1 true false
        + a 1 false true
        + a 2 NULL NULL
        + a NULL true NULL
        barrier
        restart
        - a 1 true false
        + a 3 true true
        + a 3 true true
        barrier
        - a 3 true true
        - a 1 false true
        - a 2 NULL NULL
        barrier
        - a 3 true true
        barrier
        ",
        "
        + a 2 1 1 2 false true
        barrier
        - a 2 1 1 2 false true
        + a 3 1 3 3 true true
        barrier
        - a 3 1 3 3 true true
        + a 1 1 3 2 true true
        barrier
        - a 1 1 3 2 true true
        + a 0 0 NULL 1 NULL NULL
        barrier
        ",
    )
    .await;
}

#[tokio::test]
async fn an_append_only_input_needs_no_table_of_values() {
    let input = schema(&[("k", Utf8), ("v", Int32), ("s", Utf8)]);
    let by = |c: AggCall| ordered(c, &[(1, KeyOrder::ASC)]);
    let calls = vec![
        call(Min, &[1], &input),
        call(Max, &[2], &input),
        call(FirstValue, &[2], &input),
        call(LastValue, &[2], &input),
        by(call(FirstValue, &[2], &input)),
        by(call(LastValue, &[2], &input)),
    ];
    let case = Case { input, group_by: vec![0], calls, append_only: true };
    let (_, values) = tables(&case.input, &case.group_by, &case.calls, true, &mut || TableId(1));
    assert!(values.iter().all(Option::is_none));
    check(
        std::slice::from_ref(&case.input),
        |bench| case.executor(bench),
        "
        + a 2 p
        + a NULL z
        + a 1 q
        barrier
        restart
        + a 5 b
        + a 2 NULL
        barrier
        ",
        "
        + a 1 z p q q z
        barrier
        - a 1 z p q q z
        + a 1 z p NULL q z
        barrier
        ",
    )
    .await;
}

#[test]
fn calls_with_the_same_distinct_arguments_share_a_table() {
    let input = schema(&[("k", Utf8), ("v", Int32), ("f", Boolean)]);
    let count = || distinct(call(Count, &[1], &input));
    let calls = [count(), filter(count(), 2), distinct(call(Sum, &[1], &input)), distinct(call(Count, &[2], &input))];
    let (groups, values) = tables(&input, &[0], &calls, false, &mut || TableId(1));
    let names = |schema: &Schema| schema.fields().iter().map(|f| f.name().clone()).collect::<Vec<_>>().join(" ");
    assert_eq!(names(&groups.schema), "k count count_0_rows count_1_rows sum_2_sum sum_2_values count_3_rows");
    let values: Vec<_> = values.iter().map(|v| v.as_ref().map(|v| names(&v.schema))).collect();
    let expected = [Some("k v count count_1 count_2"), None, None, Some("k f count")];
    assert_eq!(values, expected.map(|names| names.map(str::to_owned)));
}
