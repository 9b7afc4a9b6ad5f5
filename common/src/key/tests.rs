#![allow(clippy::unwrap_used)]
//! Random columns: keys sort as the rows do, and come back.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float64Array, Int32Array, StringArray};
use arrow::datatypes::{
    DataType, Date32Type, Float32Type, Float64Type, Int64Type, IntervalMonthDayNanoType, IntervalUnit,
};
use proptest::prelude::*;

use super::*;
use crate::codec::test_arrays::{array, data_type};

const ROWS: usize = 6;

/// Compares values of an array as SQL does, nulls last.
fn sql_order(array: &dyn Array, i: usize, j: usize) -> Ordering {
    match (array.is_null(i), array.is_null(j)) {
        (true, true) => return Ordering::Equal,
        (true, false) => return Ordering::Greater,
        (false, true) => return Ordering::Less,
        (false, false) => {}
    }
    let float = |a: f64, b: f64| a.partial_cmp(&b).unwrap_or(a.is_nan().cmp(&b.is_nan()));
    match array.data_type() {
        DataType::Float32 => {
            let values = array.as_primitive::<Float32Type>();
            float(values.value(i) as f64, values.value(j) as f64)
        }
        DataType::Float64 => {
            float(array.as_primitive::<Float64Type>().value(i), array.as_primitive::<Float64Type>().value(j))
        }
        DataType::Interval(IntervalUnit::MonthDayNano) => {
            let length = |i| {
                let value = array.as_primitive::<IntervalMonthDayNanoType>().value(i);
                (value.months as i128 * 30 + value.days as i128) * 86_400_000_000_000 + value.nanoseconds as i128
            };
            length(i).cmp(&length(j))
        }
        DataType::List(_) => {
            let (a, b) = (array.as_list::<i32>().value(i), array.as_list::<i32>().value(j));
            let both = arrow::compute::concat(&[&a, &b]).unwrap();
            let common = a.len().min(b.len());
            let order = (0..common).map(|e| sql_order(&both, e, a.len() + e)).find(|o| o.is_ne());
            order.unwrap_or(a.len().cmp(&b.len()))
        }
        DataType::Struct(_) => {
            let fields = array.as_struct().columns();
            fields.iter().map(|f| sql_order(f, i, j)).find(|o| o.is_ne()).unwrap_or(Ordering::Equal)
        }
        _ => arrow::array::make_comparator(array, array, Default::default()).unwrap()(i, j),
    }
}

fn column_order(array: &dyn Array, order: KeyOrder, i: usize, j: usize) -> Ordering {
    match (array.is_null(i), array.is_null(j)) {
        (false, false) if order.descending => sql_order(array, i, j).reverse(),
        (false, false) => sql_order(array, i, j),
        _ if order.nulls_first => sql_order(array, i, j).reverse(),
        _ => sql_order(array, i, j),
    }
}

fn columns() -> impl Strategy<Value = (Vec<ArrayRef>, Vec<KeyOrder>)> {
    let order = any::<(bool, bool)>().prop_map(|(descending, nulls_first)| KeyOrder { descending, nulls_first });
    let column = data_type().prop_flat_map(|t| array(&t, ROWS));
    prop::collection::vec((column, order), 1..4).prop_map(|columns| columns.into_iter().unzip())
}

fn types(columns: &[ArrayRef]) -> Vec<DataType> {
    columns.iter().map(|c| c.data_type().clone()).collect()
}

proptest! {
    #[test]
    fn keys_sort_as_rows_do((columns, orders) in columns()) {
        let keys = encode_keys(&columns, &orders).unwrap();
        let plain: Vec<_> = columns.iter().map(|c| crate::codec::cast(c, &plain_type(c.data_type())).unwrap()).collect();
        for i in 0..ROWS {
            for j in 0..ROWS {
                let by_column = plain.iter().zip(&orders).map(|(c, o)| column_order(c, *o, i, j));
                let expected = by_column.clone().find(|o| o.is_ne()).unwrap_or(Ordering::Equal);
                prop_assert_eq!(keys.get(i).cmp(keys.get(j)), expected, "{:?} rows {} and {}", &columns, i, j);
            }
        }
    }

    #[test]
    fn rows_come_back_from_keys((columns, orders) in columns()) {
        let keys = encode_keys(&columns, &orders).unwrap();
        let decoded = decode_keys(keys.iter(), &types(&columns), &orders).unwrap();
        for (column, decoded) in columns.iter().zip(&decoded) {
            prop_assert_eq!(column.data_type(), decoded.data_type());
            if is_exact(column.data_type()) {
                prop_assert_eq!(column, decoded);
            }
        }
        // What is not exact is equal in SQL, that is, it has the same key.
        prop_assert_eq!(encode_keys(&decoded, &orders).unwrap(), keys);
    }

    #[test]
    fn the_key_of_the_first_columns_is_a_prefix((columns, orders) in columns()) {
        let keys = encode_keys(&columns, &orders).unwrap();
        let first = encode_keys(&columns[..1], &orders[..1]).unwrap();
        for (key, prefix) in keys.iter().zip(first.iter()) {
            prop_assert!(key.starts_with(prefix));
        }
        let decoded = decode_keys(keys.iter(), &types(&columns[..1]), &orders[..1]).unwrap();
        prop_assert_eq!(encode_keys(&decoded, &orders[..1]).unwrap(), first);
    }

    #[test]
    fn slices_have_the_keys_of_their_rows((columns, orders) in columns()) {
        let keys = encode_keys(&columns, &orders).unwrap();
        let slices: Vec<_> = columns.iter().map(|c| c.slice(2, 3)).collect();
        let sliced = encode_keys(&slices, &orders).unwrap();
        prop_assert!(sliced.iter().eq((2..5).map(|i| keys.get(i))));
    }

    #[test]
    fn no_bytes_make_decoding_panic(bytes in prop::collection::vec(0u8..4, 0..40), t in data_type(), order in any::<bool>()) {
        let order = if order { KeyOrder::ASC } else { KeyOrder::DESC };
        let _ = decode_keys([&bytes[..]].into_iter(), &[t], &[order]);
    }
}

#[test]
fn the_layout_is_stable() {
    let check = |column: ArrayRef, order: KeyOrder, expected: &[&[u8]]| {
        let keys = encode_keys(&[column], &[order]).unwrap();
        assert_eq!(keys.iter().collect::<Vec<_>>(), expected);
    };
    let ints = || Arc::new(Int32Array::from(vec![Some(1), Some(-1), None])) as ArrayRef;
    check(ints(), KeyOrder::ASC, &[&[1, 0x80, 0, 0, 1], &[1, 0x7f, 0xff, 0xff, 0xff], &[2]]);
    check(ints(), KeyOrder::DESC, &[&[1, 0x7f, 0xff, 0xff, 0xfe], &[1, 0x80, 0, 0, 0], &[0]]);
    let texts = Arc::new(StringArray::from(vec!["", "ab", "a\0\u{1}\u{2}"]));
    check(texts, KeyOrder::ASC, &[&[1, 0], &[1, b'a', b'b', 0], &[1, b'a', 1, 1, 1, 2, 2, 0]]);
    let floats = Arc::new(Float64Array::from(vec![-0.0, -2.0, -f64::NAN]));
    let zero: &[u8] = &[1, 0x80, 0, 0, 0, 0, 0, 0, 0];
    let nan: &[u8] = &[1, 0xff, 0xf8, 0, 0, 0, 0, 0, 0];
    check(floats, KeyOrder::ASC, &[zero, &[1, 0x3f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], nan]);
    let lists =
        arrow::array::ListArray::from_iter_primitive::<Date32Type, _, _>([Some(vec![Some(1), None]), Some(vec![])]);
    check(Arc::new(lists), KeyOrder::ASC, &[&[1, 1, 0x80, 0, 0, 1, 2, 0], &[1, 0]]);
}

#[test]
fn equal_intervals_have_one_key() {
    use arrow::datatypes::IntervalMonthDayNano as Interval;
    let hour = 3_600_000_000_000;
    let values = [Interval::new(1, 0, 0), Interval::new(0, 30, 0), Interval::new(0, 29, 24 * hour)];
    let column: ArrayRef = Arc::new(arrow::array::IntervalMonthDayNanoArray::from(values.to_vec()));
    let keys = encode_keys(&[column], &[KeyOrder::ASC]).unwrap();
    assert!(keys.get(0) == keys.get(1) && keys.get(1) == keys.get(2));
    let types = [DataType::Interval(IntervalUnit::MonthDayNano)];
    let decoded = decode_keys(keys.iter(), &types, &[KeyOrder::ASC]).unwrap();
    assert_eq!(decoded[0].as_primitive::<IntervalMonthDayNanoType>().value(1), values[0]);
}

#[test]
fn damaged_keys_are_errors() {
    let decode = |key: &[u8], t: DataType| decode_keys([key].into_iter(), &[t], &[KeyOrder::ASC]);
    assert!(matches!(decode(&[1, 0x80], DataType::Int32), Err(CodecError::Truncated { .. })));
    assert!(matches!(decode(&[7], DataType::Int32), Err(CodecError::InvalidByte { byte: 7, .. })));
    assert!(matches!(decode(&[1, 0xff, 0], DataType::Utf8), Err(CodecError::Arrow(_))));
    assert!(matches!(decode(&[1, b'a'], DataType::Utf8), Err(CodecError::Truncated { .. })));
    assert!(matches!(decode(&[], DataType::Int64), Err(CodecError::Truncated { .. })));
    let unsupported = DataType::Duration(arrow::datatypes::TimeUnit::Second);
    assert!(decode(&[1, 0x80, 0, 0, 0, 0, 0, 0, 1], unsupported).unwrap()[0].len() == 1);
    let empty: ArrayRef = Arc::new(arrow::array::Int64Array::from(Vec::<i64>::new()));
    assert!(encode_keys(&[empty], &[KeyOrder::ASC]).unwrap().is_empty());
    let none = decode_keys(std::iter::empty(), &[DataType::Int64], &[KeyOrder::ASC]).unwrap();
    assert_eq!(none[0].as_primitive::<Int64Type>().len(), 0);
}
