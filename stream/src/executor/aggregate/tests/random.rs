//! Random inserts and deletes, restarts and evictions; after each epoch what is downstream must be what the live rows give.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::DataType::{Binary, Date32, Decimal256, Int16, Interval, Timestamp};
use arrow::datatypes::{IntervalUnit, TimeUnit, i256};
use datafusion::common::ScalarValue;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use weir_common::Chunk;

use super::*;
use crate::executor::check::{Driven, rows};

/// The columns of the input. The first two are what groups are made of; the last two are for FILTER.
fn columns() -> SchemaRef {
    schema(&[
        ("g", Int32),
        ("h", Float64),
        ("i16", Int16),
        ("i32", Int32),
        ("i64", Int64),
        ("short", Decimal128(10, 2)),
        ("long", Decimal128(38, 4)),
        ("numeric", Decimal256(76, 28)),
        ("f32", Float32),
        ("f64", Float64),
        ("text", Utf8),
        ("bytes", Binary),
        ("date", Date32),
        ("time", Timestamp(TimeUnit::Microsecond, None)),
        ("interval", Interval(IntervalUnit::MonthDayNano)),
        ("yes", Boolean),
        ("filter", Boolean),
    ])
}

const FILTER: usize = 16;

fn calls(input: &Schema) -> Vec<AggCall> {
    let mut calls = vec![call(Count, &[], input), filter(call(Count, &[], input), FILTER)];
    for arg in 2..=15 {
        let data_type = input.field(arg).data_type();
        calls.push(call(Count, &[arg], input));
        calls.push(distinct(call(Count, &[arg], input)));
        for function in [Sum, Avg, Min, Max, BoolAnd, BoolOr] {
            if output_type(function, Some(data_type)).is_some() {
                calls.push(call(function, &[arg], input));
                calls.push(filter(distinct(call(function, &[arg], input)), FILTER));
            }
        }
        let by = [(4, KeyOrder::DESC), (3, KeyOrder::ASC)];
        calls.push(call(ArrayAgg, &[arg], input));
        calls.push(filter(ordered(call(FirstValue, &[arg], input), &by), FILTER));
        calls.push(ordered(call(LastValue, &[arg], input), &by));
    }
    calls.push(distinct(call(ArrayAgg, &[3], input)));
    calls.push(filter(ordered(call(StringAgg, &[10, 10], input), &[(3, KeyOrder::DESC)]), FILTER));
    calls.push(distinct(call(StringAgg, &[10, 10], input)));
    calls.push(call(StringAgg, &[11, 11], input));
    calls
}

type Row = Vec<ScalarValue>;

fn random_row(input: &Schema, random: &mut StdRng) -> Row {
    let mut row = Vec::new();
    for field in input.fields() {
        let small = random.random_range(-6..6_i64);
        let float = [0.0, -0.0, 0.25, -2.5, f64::NAN, -f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 7.75];
        let float = float[random.random_range(0..float.len() * 2) % float.len()];
        let value = match field.data_type() {
            Boolean => ScalarValue::Boolean(Some(small > 0)),
            Int16 => ScalarValue::Int16(Some(small as i16)),
            Int32 => ScalarValue::Int32(Some(small as i32)),
            Int64 => ScalarValue::Int64(Some(if small == 5 { i64::MAX } else { small })),
            Decimal128(p, s) => ScalarValue::Decimal128(Some(i128::from(small) * 12345), *p, *s),
            Decimal256(p, s) => ScalarValue::Decimal256(Some(i256::from_i128(i128::from(small) * 123_456_789)), *p, *s),
            Float32 => ScalarValue::Float32(Some(float as f32)),
            Float64 => ScalarValue::Float64(Some(float)),
            Utf8 => ScalarValue::Utf8(Some(["", "a", "b", "ab", "ä\0"][small.unsigned_abs() as usize % 5].to_owned())),
            Binary => {
                ScalarValue::Binary(Some([vec![], vec![0], vec![0, 255]][small.unsigned_abs() as usize % 3].clone()))
            }
            Date32 => ScalarValue::Date32(Some(small as i32)),
            Timestamp(..) => ScalarValue::TimestampMicrosecond(Some(small), None),
            Interval(_) => {
                let forms = [(1, 0), (0, 30), (0, 1), (2, -30), (-1, 15)];
                let (months, days) = forms[small.unsigned_abs() as usize % forms.len()];
                ScalarValue::new_interval_mdn(months, days, 0)
            }
            other => panic!("no values of {other}"),
        };
        let is_null = random.random_range(0..8) == 0;
        row.push(if is_null { ScalarValue::try_from(field.data_type()).unwrap() } else { value });
    }
    row
}

fn column(values: impl IntoIterator<Item = ScalarValue>, data_type: &DataType) -> ArrayRef {
    let values: Vec<_> = values.into_iter().collect();
    if values.is_empty() {
        return arrow::array::new_empty_array(data_type);
    }
    cast(&ScalarValue::iter_to_array(values).unwrap(), data_type).unwrap()
}

/// As SQL compares: NULL last, NaN last of the numbers.
fn compare(a: &ScalarValue, b: &ScalarValue) -> Ordering {
    let float = |v: &ScalarValue| match v {
        ScalarValue::Float32(Some(v)) => Some(f64::from(*v)),
        ScalarValue::Float64(Some(v)) => Some(*v),
        _ => None,
    };
    let interval = |v: &ScalarValue| match v {
        ScalarValue::IntervalMonthDayNano(Some(v)) => Some(i128::from(v.months) * 30 + i128::from(v.days)),
        _ => None,
    };
    match (a.is_null(), b.is_null()) {
        (true, true) => return Ordering::Equal,
        (true, false) => return Ordering::Greater,
        (false, true) => return Ordering::Less,
        (false, false) => {}
    }
    if let (Some(a), Some(b)) = (float(a), float(b)) {
        return a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()));
    }
    if let (Some(a), Some(b)) = (interval(a), interval(b)) {
        return a.cmp(&b);
    }
    a.partial_cmp(b).unwrap()
}

/// What tells equal values apart that look different; the engine sorts by it last.
fn exactly(a: &ScalarValue, b: &ScalarValue) -> Ordering {
    let bytes = |v: &ScalarValue| match v {
        ScalarValue::Float32(Some(v)) => v.to_le_bytes().to_vec(),
        ScalarValue::Float64(Some(v)) => v.to_le_bytes().to_vec(),
        ScalarValue::IntervalMonthDayNano(Some(v)) => [v.months.to_le_bytes(), v.days.to_le_bytes()].concat(),
        _ => Vec::new(),
    };
    bytes(a).cmp(&bytes(b))
}

fn compare_by(a: &ScalarValue, b: &ScalarValue, order: KeyOrder) -> Ordering {
    match (a.is_null(), b.is_null()) {
        (true, true) => Ordering::Equal,
        (true, false) if order.nulls_first => Ordering::Less,
        (true, false) => Ordering::Greater,
        (false, true) if order.nulls_first => Ordering::Greater,
        (false, true) => Ordering::Less,
        (false, false) if order.descending => compare(b, a),
        (false, false) => compare(a, b),
    }
}

/// Integers and decimals as a number of the smallest unit.
fn units(value: &ScalarValue) -> Option<i128> {
    match value {
        ScalarValue::Int16(Some(v)) => Some(i128::from(*v)),
        ScalarValue::Int32(Some(v)) => Some(i128::from(*v)),
        ScalarValue::Int64(Some(v)) => Some(i128::from(*v)),
        ScalarValue::Decimal128(Some(v), ..) => Some(*v),
        ScalarValue::Decimal256(Some(v), ..) => v.to_i128(),
        _ => None,
    }
}

fn numeric(value: i256, output: &DataType) -> ScalarValue {
    match output {
        Int64 => ScalarValue::Int64(value.to_i128().and_then(|v| i64::try_from(v).ok())),
        Decimal128(p, s) => ScalarValue::Decimal128(value.to_i128(), *p, *s),
        Decimal256(p, s) => ScalarValue::Decimal256(Some(value), *p, *s),
        other => panic!("not a sum: {other}"),
    }
}

/// The sum or average of values that are not null, of which there is at least one.
fn total(call: &AggCall, values: &[ScalarValue]) -> ScalarValue {
    let average = call.function == Avg;
    let n = values.len();
    match &values[0] {
        ScalarValue::Float32(_) | ScalarValue::Float64(_) => {
            let floats = column(values.iter().cloned(), &Float64);
            let floats = arrow::array::as_primitive_array::<arrow::datatypes::Float64Type>(&floats);
            let sum: f64 = floats.values().iter().sum();
            // Without a sign, as the engine's NaN has none; and no sum is -0.
            let sum = if sum.is_nan() { f64::NAN } else { sum + 0.0 };
            let result = if average { sum / n as f64 } else { sum };
            ScalarValue::Float64(Some(result)).cast_to(&call.output).unwrap()
        }
        ScalarValue::IntervalMonthDayNano(_) => {
            let sum = |part: fn(arrow::datatypes::IntervalMonthDayNano) -> i32| {
                values
                    .iter()
                    .map(|v| match v {
                        ScalarValue::IntervalMonthDayNano(Some(v)) => part(*v),
                        other => panic!("not an interval: {other}"),
                    })
                    .sum::<i32>()
            };
            let (months, days) = (sum(|v| v.months), sum(|v| v.days));
            if !average {
                return ScalarValue::new_interval_mdn(months, days, 0);
            }
            // Months and days round down to whole ones; what is left of a day is time, in whole microseconds.
            let n = n as i32;
            let rest_days = ((f64::from(months % n) / f64::from(n) * 30.0) * 1e6).round_ties_even() / 1e6;
            let rest = f64::from(days % n) / f64::from(n) + rest_days.fract();
            let seconds = (rest * 86_400.0 * 1e6).round_ties_even() / 1e6;
            let carried = (seconds / 86_400.0).trunc();
            let micros = ((seconds - carried * 86_400.0) * 1e6).round_ties_even() as i64;
            let days = days / n + rest_days.trunc() as i32 + carried as i32;
            ScalarValue::new_interval_mdn(months / n, days, micros * 1000)
        }
        first => {
            let sum: i128 = values.iter().map(|v| units(v).unwrap()).sum();
            if !average {
                return numeric(i256::from_i128(sum), &call.output);
            }
            let scale = |t: &DataType| match t {
                Decimal128(_, s) | Decimal256(_, s) => *s,
                _ => 0,
            };
            let shift = scale(&call.output) - scale(&first.data_type());
            let scaled = i256::from_i128(sum) * i256::from_i128(10_i128.pow(shift as u32));
            let n = i256::from_i128(n as i128);
            // Half away from zero: (2a ± n) / 2n, cut off.
            let two = i256::from_i128(2);
            let half = if sum < 0 { i256::ZERO - n } else { n };
            numeric((scaled * two + half) / (n * two), &call.output)
        }
    }
}

/// The result of a call over the rows of a group.
fn result(call: &AggCall, rows: &[&Row]) -> ScalarValue {
    let null = || ScalarValue::try_from(&call.output).unwrap();
    let passes = |row: &&&Row| call.filter.is_none_or(|f| row[f] == ScalarValue::Boolean(Some(true)));
    let mut rows: Vec<&Row> = rows.iter().filter(passes).copied().collect();
    let Some(arg) = call.args.first().copied() else { return ScalarValue::Int64(Some(rows.len() as i64)) };
    if !matches!(call.function, ArrayAgg | FirstValue | LastValue) {
        rows.retain(|row| !row[arg].is_null());
    }
    rows.sort_by(|a, b| {
        let by = call.order_by.iter().map(|c| compare_by(&a[c.column], &b[c.column], c.order));
        let by = by.fold(Ordering::Equal, Ordering::then).then(compare(&a[arg], &b[arg]));
        // The last is the first of the reverse order, in which what tells equal values apart is not reversed.
        let exact = exactly(&a[arg], &b[arg]);
        by.then(if call.function == LastValue { exact.reverse() } else { exact })
    });
    let mut values: Vec<ScalarValue> = rows.iter().map(|row| row[arg].clone()).collect();
    if call.distinct {
        values.dedup_by(|a, b| compare(a, b).is_eq());
    }
    if call.distinct
        && let Interval(_) = call.output
    {
        // Equal intervals count as one, of as many months as fit.
        for value in &mut values {
            if let (Sum | Avg, ScalarValue::IntervalMonthDayNano(Some(v))) = (call.function, &value) {
                let days = v.months * 30 + v.days;
                *value = ScalarValue::new_interval_mdn(days / 30, days % 30, 0);
            }
        }
    }
    if call.function == Count {
        return ScalarValue::Int64(Some(values.len() as i64));
    }
    if values.is_empty() {
        return null();
    }
    let truths = || values.iter().map(|v| *v == ScalarValue::Boolean(Some(true)));
    match call.function {
        Count => unreachable!(),
        Sum | Avg => total(call, &values),
        Min | FirstValue => values[0].clone(),
        LastValue => values[values.len() - 1].clone(),
        Max => {
            let max = &values[values.len() - 1];
            values.iter().find(|v| compare(v, max).is_eq()).unwrap().clone()
        }
        BoolAnd => ScalarValue::Boolean(Some(truths().all(|t| t))),
        BoolOr => ScalarValue::Boolean(Some(truths().any(|t| t))),
        ArrayAgg => ScalarValue::List(ScalarValue::new_list_nullable(&values, &values[0].data_type())),
        StringAgg => {
            // The separator is the value itself.
            let first = values[0].clone();
            values.iter().skip(1).fold(first, |all, value| match (all, value) {
                (ScalarValue::Utf8(Some(all)), ScalarValue::Utf8(Some(v))) => ScalarValue::Utf8(Some(all + v + v)),
                (ScalarValue::Binary(Some(all)), ScalarValue::Binary(Some(v))) => {
                    ScalarValue::Binary(Some([&all[..], v, v].concat()))
                }
                other => panic!("not text: {other:?}"),
            })
        }
    }
}

/// A group column as equal groups have it in common.
fn group_value(value: &ScalarValue) -> ScalarValue {
    match value {
        ScalarValue::Float64(Some(v)) if v.is_nan() => ScalarValue::Float64(Some(f64::NAN)),
        ScalarValue::Float64(Some(v)) => ScalarValue::Float64(Some(*v + 0.0)),
        other => other.clone(),
    }
}

/// What must be downstream when these are the rows.
fn expected(case: &Case, live: &[Row]) -> BTreeMap<String, i64> {
    let mut groups: Vec<(Row, Vec<&Row>)> = Vec::new();
    if case.group_by.is_empty() {
        groups.push((Vec::new(), Vec::new()));
    }
    for row in live {
        let key: Row = case.group_by.iter().map(|c| group_value(&row[*c])).collect();
        match groups.iter_mut().find(|(k, _)| k.iter().zip(&key).all(|(a, b)| compare(a, b).is_eq())) {
            Some((_, rows)) => rows.push(row),
            None => groups.push((key, vec![row])),
        }
    }
    let mut lines = BTreeMap::new();
    for (key, group) in groups {
        let values = key.into_iter().chain(case.calls.iter().map(|call| result(call, &group)));
        let output = case.output();
        let columns = values.zip(output.fields()).map(|(v, f)| column([v], f.data_type())).collect();
        let batch = RecordBatch::try_new(output.clone(), columns).unwrap();
        *lines.entry(rows(&batch).remove(0)).or_default() += 1;
    }
    lines
}

/// Groups show the zero and the NaN that came first, which the model does not know.
fn comparable(relation: &BTreeMap<String, i64>, case: &Case) -> BTreeMap<String, i64> {
    if !case.group_by.contains(&1) {
        return relation.clone();
    }
    let at = case.group_by.iter().position(|c| *c == 1).unwrap();
    let plain = |line: &str| {
        let mut words: Vec<&str> = line.split(' ').collect();
        words[at] = if words[at] == "-0.0" { "0.0" } else { words[at] };
        words.join(" ")
    };
    relation.iter().map(|(line, count)| (plain(line), *count)).collect()
}

async fn run(case: &Case, seed: u64) {
    let mut random = StdRng::seed_from_u64(seed);
    let mut bench = Bench::new();
    let mut driven = Driven::new(case.executor(&bench), std::slice::from_ref(&case.input));
    let (mut live, mut committed): (Vec<Row>, Vec<Row>) = (Vec::new(), Vec::new());
    for step in 0..25 {
        let growing = random.random_bool(0.6);
        for _ in 0..random.random_range(0..4) {
            let (mut changes, mut signs) = (Vec::new(), Vec::new());
            for _ in 0..random.random_range(1..12) {
                if !case.append_only && !live.is_empty() && random.random_bool(if growing { 0.2 } else { 0.8 }) {
                    changes.push(live.swap_remove(random.random_range(0..live.len())));
                    signs.push(-1);
                } else {
                    let row = random_row(&case.input, &mut random);
                    live.push(row.clone());
                    changes.push(row);
                    signs.push(1);
                }
            }
            let columns = case.input.fields().iter().enumerate();
            let columns = columns.map(|(c, f)| column(changes.iter().map(|row| row[c].clone()), f.data_type()));
            let batch = RecordBatch::try_new(case.input.clone(), columns.collect()).unwrap();
            driven.apply(0, Chunk::new(batch, signs)).await;
        }
        if random.random_range(0..6) == 0 {
            driven.restart(case.executor(&bench));
            live.clone_from(&committed);
        }
        let pressure = if random.random_range(0..3) == 0 { 4 << 30 } else { 0 };
        bench.memory.add(pressure);
        driven.barrier(&mut bench).await;
        bench.memory.add(-pressure);
        committed.clone_from(&live);
        let (got, wanted) = (comparable(&driven.relation(), case), expected(case, &live));
        if got != wanted {
            for (got, wanted) in got.keys().zip(wanted.keys()).filter(|(got, wanted)| got != wanted) {
                for (i, (got, wanted)) in got.split(' ').zip(wanted.split(' ')).enumerate().filter(|(_, (g, w))| g != w)
                {
                    let call = i.checked_sub(case.group_by.len()).map(|i| &case.calls[i]);
                    println!("column {i}, {call:?}: {got}, not {wanted}");
                }
            }
            panic!("seed {seed}, step {step}: {got:#?} is not {wanted:#?}");
        }
    }
}

#[tokio::test]
async fn a_change_log_gives_what_its_rows_give() {
    let input = columns();
    for (seed, group_by) in [vec![0], vec![0, 1], vec![], vec![10, 0], vec![0]].into_iter().enumerate() {
        let case = Case { input: input.clone(), group_by, calls: calls(&input), append_only: false };
        run(&case, seed as u64).await;
    }
}

#[tokio::test]
async fn appended_rows_give_the_same() {
    let input = columns();
    // Without an order, first and last are those that came so; the model knows no such thing.
    for (seed, group_by) in [vec![0], vec![1]].into_iter().enumerate() {
        let case = Case { input: input.clone(), group_by, calls: calls(&input), append_only: true };
        run(&case, 100 + seed as u64).await;
    }
}
