//! Which tables an aggregation has, and what is in them. Pure functions of the plan: the planner makes the tables with
//! them, the executor reads them by the same.
//!
//! ```text
//! groups   group columns | count | state columns of each call                     key: group columns
//! values   group columns | value columns | counts                                 key: group columns, value columns
//! ```
//!
//! A row of a values table says how often a value is in a group; a value that is in it zero times has no row. What the
//! value columns are, and so how a group's values sort, depends on the call's [`Family`].

use arrow::datatypes::{DataType, Field, Schema};
use weir_common::id::TableId;
use weir_common::key::{KeyOrder, SortColumn};
use weir_common::plan::{AggCall, AggFunction};
use weir_common::table::TableDef;
use weir_common::types::{NUMERIC_PRECISION, NUMERIC_SCALE};

use super::accumulator::{GroupState, StateField, plain};
use super::collected::Collected;
use super::first::First;
use super::peaks;
use super::value_key::ValueKey;

/// The most digits of a Decimal128.
const DECIMAL128_PRECISION: u8 = 38;
/// Digits after the point of an average of integers; the fewest of an average of decimals.
const AVERAGE_SCALE: i8 = 16;
/// The most digits after the point of an average that is a Decimal128.
const AVERAGE_SCALE_MAX: i8 = 20;

/// What a call keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Family {
    /// `count(*)`: the group's count is the result.
    Rows,
    /// An accumulator in the groups row: sums and counts, and `min` and `max` of what is never taken back.
    Plain,
    /// An accumulator that sees each value once. The values table has a count for each call with the same arguments, as
    /// these may differ in their FILTER; it belongs to the first of them.
    Distinct { leader: usize, member: usize },
    /// The first value in an order: `min`, `max`, `first_value`, `last_value`.
    First,
    /// All values in an order: `string_agg`, `array_agg`.
    Collected,
}

/// The family of each call.
pub(super) fn families(calls: &[AggCall], input: &Schema, append_only: bool) -> Vec<Family> {
    let mut families: Vec<Family> = Vec::with_capacity(calls.len());
    for (i, call) in calls.iter().enumerate() {
        let family = match call.function {
            AggFunction::Min | AggFunction::Max
                if append_only && peaks::takes(input.field(call.args[0]).data_type()) =>
            {
                Family::Plain
            }
            AggFunction::Min | AggFunction::Max | AggFunction::FirstValue | AggFunction::LastValue => Family::First,
            AggFunction::StringAgg | AggFunction::ArrayAgg => Family::Collected,
            AggFunction::Count if call.args.is_empty() && call.filter.is_none() => Family::Rows,
            AggFunction::Count | AggFunction::Sum | AggFunction::Avg if call.distinct && !call.args.is_empty() => {
                let shares = |other: &usize| {
                    matches!(families[*other], Family::Distinct { .. }) && calls[*other].args == call.args
                };
                let leader = (0..i).find(shares).unwrap_or(i);
                let member = (leader..i).filter(shares).count();
                Family::Distinct { leader, member }
            }
            AggFunction::Count | AggFunction::Sum | AggFunction::Avg => Family::Plain,
            // DISTINCT does not matter to them.
            AggFunction::BoolAnd | AggFunction::BoolOr => Family::Plain,
        };
        families.push(family);
    }
    families
}

/// The columns by which a call's values are told apart and sorted, in the order of the values table.
pub(super) fn value_columns(call: &AggCall) -> Vec<SortColumn> {
    let reverse = |order: KeyOrder| KeyOrder { descending: !order.descending, nulls_first: !order.nulls_first };
    let turn = |order| match call.function {
        AggFunction::Max | AggFunction::LastValue => reverse(order),
        _ => order,
    };
    let args = call.args.iter().map(|arg| SortColumn { column: *arg, order: KeyOrder::ASC });
    let ordered = match call.function {
        AggFunction::FirstValue | AggFunction::LastValue | AggFunction::StringAgg | AggFunction::ArrayAgg => {
            &call.order_by[..]
        }
        // The order can't change these.
        _ => &[],
    };
    let mut columns: Vec<SortColumn> = Vec::new();
    for column in ordered.iter().copied().chain(args) {
        if columns.iter().all(|c| c.column != column.column) {
            columns.push(SortColumn { column: column.column, order: turn(column.order) });
        }
    }
    columns
}

/// Whether equal values count once, whatever they look like.
pub(super) fn folds_equals(call: &AggCall) -> bool {
    match call.function {
        // DISTINCT does not matter to them.
        AggFunction::Min | AggFunction::Max | AggFunction::FirstValue | AggFunction::LastValue => false,
        AggFunction::BoolAnd | AggFunction::BoolOr => false,
        AggFunction::Count | AggFunction::Sum | AggFunction::Avg => call.distinct,
        AggFunction::StringAgg | AggFunction::ArrayAgg => call.distinct,
    }
}

/// The state columns of a call in the groups table.
fn state_fields(call: &AggCall, family: &Family, input: &Schema) -> Vec<StateField> {
    match family {
        Family::Rows => Vec::new(),
        Family::Plain | Family::Distinct { .. } => {
            plain(call, &arg_types(call, input)).map_or_else(Vec::new, |accumulator| accumulator.fields())
        }
        Family::First => First::new(call, input, None).fields(),
        Family::Collected => Collected::state_fields(&call.output),
    }
}

/// The types of the call's arguments.
pub(super) fn arg_types(call: &AggCall, input: &Schema) -> Vec<DataType> {
    call.args.iter().map(|arg| input.field(*arg).data_type().clone()).collect()
}

/// The tables of an aggregation: that of the groups, and for each call one of its values where it needs one.
pub fn tables(
    input: &Schema,
    group_by: &[usize],
    calls: &[AggCall],
    append_only: bool,
    next_id: &mut dyn FnMut() -> TableId,
) -> (TableDef, Vec<Option<TableDef>>) {
    let families = families(calls, input, append_only);
    let mut groups = Columns::of_groups(input, group_by);
    groups.add("count", DataType::Int64);
    for (i, (call, family)) in calls.iter().zip(&families).enumerate() {
        for (name, data_type) in state_fields(call, family, input) {
            groups.add(&format!("{}_{i}_{name}", name_of(call.function)), data_type);
        }
    }
    let groups = groups.into_table(next_id(), &[], group_by.len());
    let values = (0..calls.len()).map(|i| {
        let counts = match &families[i] {
            Family::Distinct { leader, .. } if *leader == i => {
                families.iter().filter(|f| matches!(f, Family::Distinct { leader, .. } if *leader == i)).count()
            }
            Family::First if append_only => 0,
            Family::First | Family::Collected => 1,
            Family::Distinct { .. } | Family::Plain | Family::Rows => 0,
        };
        (counts > 0).then(|| values_table(input, group_by, &calls[i], counts, next_id()))
    });
    let values = values.collect();
    (groups, values)
}

/// The table of a call's values, with this many counts.
fn values_table(input: &Schema, group_by: &[usize], call: &AggCall, counts: usize, id: TableId) -> TableDef {
    let mut columns = Columns::of_groups(input, group_by);
    let key = ValueKey::new(call, input);
    for (name, data_type, _) in key.fields() {
        columns.add(name, data_type.clone());
    }
    for _ in 0..counts {
        columns.add("count", DataType::Int64);
    }
    let orders: Vec<KeyOrder> = key.fields().map(|(_, _, order)| order).collect();
    columns.into_table(id, &orders, group_by.len())
}

/// Columns of a table in the making, with names that differ.
struct Columns(Vec<Field>);

impl Columns {
    fn of_groups(input: &Schema, group_by: &[usize]) -> Columns {
        let mut columns = Columns(Vec::new());
        for column in group_by {
            columns.add(input.field(*column).name(), input.field(*column).data_type().clone());
        }
        columns
    }

    fn add(&mut self, name: &str, data_type: DataType) {
        let is_free = |name: &String| self.0.iter().all(|f| f.name() != name);
        let name = std::iter::once(name.to_owned()).chain((1..).map(|n| format!("{name}_{n}"))).find(is_free);
        self.0.push(Field::new(name.expect("there are more names than columns"), data_type, true));
    }

    /// Keyed by the group columns ascending, then by as many columns as there are orders.
    fn into_table(self, id: TableId, orders: &[KeyOrder], groups: usize) -> TableDef {
        let orders = std::iter::repeat_n(&KeyOrder::ASC, groups).chain(orders);
        let key = orders.enumerate().map(|(column, order)| SortColumn { column, order: *order }).collect();
        TableDef { id, schema: Schema::new(self.0).into(), key, distribution: (0..groups).collect() }
    }
}

/// PostgreSQL's result type of a function, by the type of its (first) argument. `None`: it takes no such argument.
pub fn output_type(function: AggFunction, arg: Option<&DataType>) -> Option<DataType> {
    use DataType::{Binary, Boolean, Decimal128, Decimal256, Float32, Float64, Int8, Int16, Int32, Int64, Interval};
    use DataType::{LargeUtf8, List, UInt8, UInt16, UInt32, UInt64, Utf8};
    if function == AggFunction::Count {
        return Some(Int64);
    }
    let arg = arg?;
    Some(match (function, arg) {
        (AggFunction::Sum, Int8 | Int16 | Int32 | UInt8 | UInt16 | UInt32) => Int64,
        (AggFunction::Sum, Int64 | UInt64) => Decimal128(DECIMAL128_PRECISION, 0),
        (AggFunction::Sum, Decimal128(_, scale)) => Decimal128(DECIMAL128_PRECISION, *scale),
        (AggFunction::Sum, Decimal256(_, scale)) => Decimal256(NUMERIC_PRECISION, *scale),
        (AggFunction::Sum, Float32 | Float64 | Interval(_)) => arg.clone(),
        (AggFunction::Avg, Int8 | Int16 | Int32 | Int64 | UInt8 | UInt16 | UInt32 | UInt64) => {
            Decimal128(DECIMAL128_PRECISION, AVERAGE_SCALE)
        }
        (AggFunction::Avg, Decimal128(_, scale)) => {
            Decimal128(DECIMAL128_PRECISION, (*scale).clamp(AVERAGE_SCALE, AVERAGE_SCALE_MAX))
        }
        (AggFunction::Avg, Decimal256(..)) => Decimal256(NUMERIC_PRECISION, NUMERIC_SCALE),
        (AggFunction::Avg, Float32 | Float64) => Float64,
        (AggFunction::Avg, Interval(_)) => arg.clone(),
        (AggFunction::Min | AggFunction::Max, Boolean | LargeUtf8 | DataType::Null) => return None,
        (AggFunction::Min | AggFunction::Max | AggFunction::FirstValue | AggFunction::LastValue, _) => arg.clone(),
        (AggFunction::BoolAnd | AggFunction::BoolOr, Boolean) => Boolean,
        (AggFunction::StringAgg, Utf8 | Binary) => arg.clone(),
        (AggFunction::ArrayAgg, _) => List(Field::new("item", arg.clone(), true).into()),
        (AggFunction::Sum | AggFunction::Avg, _) => return None,
        (AggFunction::BoolAnd | AggFunction::BoolOr | AggFunction::StringAgg, _) => return None,
        (AggFunction::Count, _) => Int64,
    })
}

/// The name of a function in SQL.
fn name_of(function: AggFunction) -> &'static str {
    match function {
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
    }
}
