#![allow(clippy::unwrap_used)]
//! Random columns of every type that has an encoding, with many equal and many odd values.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, FixedSizeBinaryArray, LargeStringArray, ListArray, NullArray, PrimitiveArray,
    StringArray, StructArray,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Date32Type, Decimal128Type, Decimal256Type, Field, Float32Type, Float64Type,
    Int8Type, Int16Type, Int32Type, Int64Type, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit,
    Time64MicrosecondType, TimeUnit, TimestampMicrosecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type, i256,
};
use proptest::prelude::*;

use super::cast;

/// A type, nested up to two levels deep.
pub(crate) fn data_type() -> impl Strategy<Value = DataType> {
    let leaf = prop::sample::select(vec![
        DataType::Null,
        DataType::Boolean,
        DataType::Int8,
        DataType::Int16,
        DataType::Int32,
        DataType::Int64,
        DataType::UInt8,
        DataType::UInt16,
        DataType::UInt32,
        DataType::UInt64,
        DataType::Float32,
        DataType::Float64,
        DataType::Decimal128(38, 4),
        DataType::Decimal256(76, 28),
        DataType::Date32,
        DataType::Time64(TimeUnit::Microsecond),
        DataType::Timestamp(TimeUnit::Microsecond, None),
        DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        DataType::Interval(IntervalUnit::MonthDayNano),
        DataType::Utf8,
        DataType::LargeUtf8,
        DataType::Utf8View,
        DataType::Binary,
        DataType::BinaryView,
        DataType::FixedSizeBinary(3),
        DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8)),
    ]);
    // Arrow can't concatenate or cast every nesting of views and dictionaries, and nobody makes them.
    let nestable = leaf.clone().prop_filter("plain", |t| super::plain_type(t) == *t && *t != DataType::Null);
    let nested = nestable.prop_recursive(2, 6, 3, |inner| {
        prop_oneof![
            inner.clone().prop_map(|t| DataType::List(Arc::new(Field::new("item", t, true)))),
            prop::collection::vec(inner, 0..3).prop_map(|types| {
                let field = |(i, t)| Field::new(format!("f{i}"), t, true);
                DataType::Struct(types.into_iter().enumerate().map(field).collect())
            }),
        ]
    });
    prop_oneof![leaf, nested]
}

/// A column of as many rows.
pub(crate) fn array(data_type: &DataType, rows: usize) -> BoxedStrategy<ArrayRef> {
    let t = data_type.clone();
    match data_type {
        DataType::Null => Just(Arc::new(NullArray::new(rows)) as ArrayRef).boxed(),
        DataType::Boolean => {
            values(any::<bool>(), rows).prop_map(|v| Arc::new(BooleanArray::from(v)) as ArrayRef).boxed()
        }
        DataType::Int8 => primitive::<Int8Type>(any::<i8>(), rows, t),
        DataType::Int16 => primitive::<Int16Type>(any::<i16>(), rows, t),
        DataType::Int32 => primitive::<Int32Type>(any::<i32>(), rows, t),
        DataType::Int64 => primitive::<Int64Type>(prop_oneof![any::<i64>(), -2..2i64], rows, t),
        DataType::UInt8 => primitive::<UInt8Type>(any::<u8>(), rows, t),
        DataType::UInt16 => primitive::<UInt16Type>(any::<u16>(), rows, t),
        DataType::UInt32 => primitive::<UInt32Type>(any::<u32>(), rows, t),
        DataType::UInt64 => primitive::<UInt64Type>(any::<u64>(), rows, t),
        DataType::Float32 => {
            let odd = prop::sample::select(vec![0.0, -0.0, f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY]);
            primitive::<Float32Type>(prop_oneof![any::<u32>().prop_map(f32::from_bits), odd], rows, t)
        }
        DataType::Float64 => {
            let odd = prop::sample::select(vec![0.0, -0.0, f64::NAN, -f64::NAN, f64::INFINITY, f64::NEG_INFINITY]);
            primitive::<Float64Type>(prop_oneof![any::<u64>().prop_map(f64::from_bits), odd], rows, t)
        }
        DataType::Decimal128(_, _) => {
            primitive::<Decimal128Type>(prop_oneof![any::<i128>(), -300..300i128, Just(i128::MIN)], rows, t)
        }
        DataType::Decimal256(_, _) => {
            let wide = any::<(u128, i128)>().prop_map(|(low, high)| i256::from_parts(low, high));
            let narrow = (-300..300i128).prop_map(i256::from_i128);
            primitive::<Decimal256Type>(prop_oneof![wide, narrow], rows, t)
        }
        DataType::Date32 => primitive::<Date32Type>(any::<i32>(), rows, t),
        DataType::Time64(_) => primitive::<Time64MicrosecondType>(any::<i64>(), rows, t),
        DataType::Timestamp(_, _) => primitive::<TimestampMicrosecondType>(any::<i64>(), rows, t),
        DataType::Interval(_) => {
            let any_interval = any::<(i32, i32, i64)>().prop_map(|(m, d, n)| IntervalMonthDayNano::new(m, d, n));
            let small = (-1..2i32, -30..31i32).prop_map(|(m, d)| IntervalMonthDayNano::new(m, d, 0));
            primitive::<IntervalMonthDayNanoType>(prop_oneof![any_interval, small], rows, t)
        }
        DataType::Utf8 => values(text(), rows).prop_map(|v| Arc::new(StringArray::from(v)) as ArrayRef).boxed(),
        DataType::LargeUtf8 => {
            values(text(), rows).prop_map(|v| Arc::new(LargeStringArray::from(v)) as ArrayRef).boxed()
        }
        DataType::Binary => {
            values(bytes(), rows).prop_map(|v| Arc::new(v.into_iter().collect::<BinaryArray>()) as ArrayRef).boxed()
        }
        DataType::FixedSizeBinary(size) => {
            let (size, value) = (*size, prop::collection::vec(any::<u8>(), *size as usize));
            let build = move |v: Vec<Option<Vec<u8>>>| {
                Arc::new(FixedSizeBinaryArray::try_from_sparse_iter_with_size(v.into_iter(), size).unwrap()) as ArrayRef
            };
            values(value, rows).prop_map(build).boxed()
        }
        DataType::List(item) => {
            let item = item.clone();
            (prop::collection::vec(0..4usize, rows), array(item.data_type(), rows * 4), nulls(rows))
                .prop_map(move |(lengths, elements, nulls)| {
                    let offsets = OffsetBuffer::from_lengths(lengths);
                    let elements = elements.slice(0, *offsets.last().unwrap() as usize);
                    Arc::new(ListArray::new(item.clone(), offsets, elements, nulls)) as ArrayRef
                })
                .boxed()
        }
        DataType::Struct(fields) => {
            let columns: Vec<_> = fields.iter().map(|f| array(f.data_type(), rows)).collect();
            let fields = fields.clone();
            (columns, nulls(rows))
                .prop_map(move |(columns, nulls)| {
                    Arc::new(StructArray::try_new_with_length(fields.clone(), columns, nulls, rows).unwrap())
                        as ArrayRef
                })
                .boxed()
        }
        other => array(&super::plain_type(other), rows).prop_map(move |a| cast(&a, &t).unwrap()).boxed(),
    }
}

fn values<T: std::fmt::Debug>(value: impl Strategy<Value = T>, rows: usize) -> impl Strategy<Value = Vec<Option<T>>> {
    prop::collection::vec(prop::option::of(value), rows)
}

fn nulls(rows: usize) -> impl Strategy<Value = Option<NullBuffer>> {
    prop::option::of(prop::collection::vec(any::<bool>(), rows).prop_map(NullBuffer::from))
}

fn primitive<T: ArrowPrimitiveType>(
    value: impl Strategy<Value = T::Native> + 'static,
    rows: usize,
    data_type: DataType,
) -> BoxedStrategy<ArrayRef> {
    let build = move |values: Vec<Option<T::Native>>| {
        Arc::new(values.into_iter().collect::<PrimitiveArray<T>>().with_data_type(data_type.clone())) as ArrayRef
    };
    values(value, rows).prop_map(build).boxed()
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop_oneof![0u8..4, any::<u8>()], 0..5)
}

fn text() -> impl Strategy<Value = String> {
    let odd = prop::sample::select(vec!['\0', '\u{1}', '\u{2}', 'a', 'b', 'ß', '\u{10ffff}']);
    prop::collection::vec(odd, 0..5).prop_map(|chars| chars.into_iter().collect())
}
