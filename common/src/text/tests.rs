#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, Decimal128Array, Decimal256Array, DurationMicrosecondArray, Int32Array,
    Int64Array, IntervalMonthDayNanoArray, ListArray, StringArray, StructArray, Time64MicrosecondArray,
    TimestampMicrosecondArray,
};
use arrow::datatypes::{Field, Int32Type, IntervalMonthDayNano, i256};

use super::*;

fn text(array: &dyn Array) -> String {
    text_with(array, &TextFormat::default())
}

fn text_with(array: &dyn Array, format: &TextFormat) -> String {
    let mut out = String::new();
    write_value(array, 0, format, &mut out);
    out
}

#[test]
fn floats() {
    let float8 = |value: f64, extra: i32| {
        let mut out = String::new();
        write_float8(value, extra, &mut out);
        out
    };
    for (value, expected) in [
        (0.0, "0"),
        (-0.0, "-0"),
        (1.0, "1"),
        (-1.5, "-1.5"),
        (0.1, "0.1"),
        (100.0, "100"),
        (123456.789, "123456.789"),
        (0.0001, "0.0001"),
        (0.00001, "1e-05"),
        (1e14, "100000000000000"),
        (1e15, "1e+15"),
        (1.5e20, "1.5e+20"),
        (1e300, "1e+300"),
        (0.1 + 0.2, "0.30000000000000004"),
        (5e-324, "5e-324"),
        (f64::NAN, "NaN"),
        (f64::INFINITY, "Infinity"),
        (f64::NEG_INFINITY, "-Infinity"),
    ] {
        assert_eq!(float8(value, 1), expected);
    }
    assert_eq!(float8(0.1 + 0.2, 0), "0.3");
    assert_eq!(float8(1.0 / 3.0, 0), "0.333333333333333");
    assert_eq!(float8(1.0 / 3.0, -13), "0.33");
    assert_eq!(float8(123456789012345680.0, 0), "1.23456789012346e+17");
    let float4 = |value: f32| {
        let mut out = String::new();
        write_float4(value, 1, &mut out);
        out
    };
    assert_eq!(float4(0.1), "0.1");
    assert_eq!(float4(100000.0), "100000");
    assert_eq!(float4(1000000.0), "1e+06");
    assert_eq!(float4(16777216.0), "1.6777216e+07");
}

#[test]
fn numerics() {
    let decimal = |unscaled: i128, scale: i8, declared: Option<i8>| {
        let array = Decimal128Array::from(vec![unscaled]).with_precision_and_scale(38, scale).unwrap();
        text_with(&array, &TextFormat { declared_scale: declared, ..TextFormat::default() })
    };
    assert_eq!(decimal(12300, 2, None), "123");
    assert_eq!(decimal(12300, 2, Some(2)), "123.00");
    assert_eq!(decimal(12300, 2, Some(4)), "123.0000");
    assert_eq!(decimal(12355, 2, Some(1)), "123.6");
    assert_eq!(decimal(99995, 4, Some(2)), "10.00");
    assert_eq!(decimal(-5, 3, None), "-0.005");
    assert_eq!(decimal(-4, 3, Some(2)), "0.00");
    assert_eq!(decimal(0, 2, None), "0");
    assert_eq!(decimal(0, 2, Some(2)), "0.00");
    assert_eq!(decimal(12, -2, None), "1200");
    assert_eq!(decimal(i128::MIN + 1, 0, None), "-170141183460469231731687303715884105727");
    let wide = Decimal256Array::from(vec![i256::from_string(&format!("-15{}", "0".repeat(60))).unwrap()])
        .with_precision_and_scale(76, 28)
        .unwrap();
    assert_eq!(text(&wide), format!("-15{}", "0".repeat(32)));
}

#[test]
fn dates_and_times() {
    let day = |year, month, day| Civil { year, month, day }.to_days() as i32;
    let date = |days: i32| {
        let mut out = String::new();
        write_date(days, &mut out);
        out
    };
    assert_eq!(date(0), "1970-01-01");
    assert_eq!(date(day(2024, 2, 29)), "2024-02-29");
    assert_eq!(date(day(12345, 12, 1)), "12345-12-01");
    assert_eq!(date(day(0, 1, 1)), "0001-01-01 BC");
    assert_eq!(date(day(-43, 3, 15)), "0044-03-15 BC");
    assert_eq!(date(i32::MAX), "infinity");
    let micros = i64::from(day(2024, 7, 1)) * crate::calendar::MICROS_PER_DAY + 1_500_000;
    let plain = TimestampMicrosecondArray::from(vec![micros]);
    assert_eq!(text(&plain), "2024-07-01 00:00:01.5");
    let zoned = plain.with_timezone("UTC");
    assert_eq!(text(&zoned), "2024-07-01 00:00:01.5+00");
    let shown =
        |zone: &str| text_with(&zoned, &TextFormat { time_zone: zone.parse().unwrap(), ..TextFormat::default() });
    assert_eq!(shown("Europe/Berlin"), "2024-07-01 02:00:01.5+02");
    assert_eq!(shown("Asia/Kolkata"), "2024-07-01 05:30:01.5+05:30");
    assert_eq!(shown("America/St_Johns"), "2024-06-30 21:30:01.5-02:30");
    let before_1970 = TimestampMicrosecondArray::from(vec![-1]);
    assert_eq!(text(&before_1970), "1969-12-31 23:59:59.999999");
    assert_eq!(text(&TimestampMicrosecondArray::from(vec![i64::MIN])), "-infinity");
    assert_eq!(text(&Time64MicrosecondArray::from(vec![86_399_000_010])), "23:59:59.00001");
}

use crate::calendar::Civil;

#[test]
fn intervals() {
    let interval = |months, days, nanos| {
        text(&IntervalMonthDayNanoArray::from(vec![IntervalMonthDayNano::new(months, days, nanos)]))
    };
    const HOUR: i64 = 3_600_000_000_000;
    assert_eq!(interval(0, 0, 0), "00:00:00");
    assert_eq!(interval(0, 1, 2 * HOUR), "1 day 02:00:00");
    assert_eq!(interval(14, 3, 0), "1 year 2 mons 3 days");
    assert_eq!(interval(-14, 3, 0), "-1 years -2 mons +3 days");
    assert_eq!(interval(0, -1, HOUR), "-1 days +01:00:00");
    assert_eq!(interval(0, 1, -HOUR), "1 day -01:00:00");
    assert_eq!(interval(0, 0, 100 * HOUR + 1_500_000_000), "100:00:01.5");
    assert_eq!(text(&DurationMicrosecondArray::from(vec![90_000_000_000])), "1 day 01:00:00");
}

#[test]
fn everything_else() {
    assert_eq!(text(&BooleanArray::from(vec![true])), "t");
    let mut cast = String::new();
    write_cast(&BooleanArray::from(vec![false]), 0, &TextFormat::default(), &mut cast);
    assert_eq!(cast, "false");
    assert_eq!(text(&Int64Array::from(vec![i64::MIN])), "-9223372036854775808");
    assert_eq!(text(&Int32Array::from(vec![0])), "0");
    assert_eq!(text(&Int32Array::from(vec![None])), "");
    assert_eq!(text(&BinaryArray::from(vec![&b"\x00\xffa"[..]])), "\\x00ff61");
    let ints = ListArray::from_iter_primitive::<Int32Type, _, _>([Some([Some(1), None, Some(-3)])]);
    assert_eq!(text(&ints), "{1,NULL,-3}");
    let words: ArrayRef = Arc::new(StringArray::from(vec!["a", "", "null", "b c", "d\"e", "f\\g", "{", "x,y"]));
    let field = Arc::new(Field::new("item", DataType::Utf8, true));
    let offsets = arrow::buffer::OffsetBuffer::from_lengths([words.len()]);
    let list = ListArray::new(field, offsets, words, None);
    assert_eq!(text(&list), r#"{a,"","null","b c","d\"e","f\\g","{","x,y"}"#);
    let record = StructArray::from(vec![
        (Arc::new(Field::new("a", DataType::Int32, true)), Arc::new(Int32Array::from(vec![1])) as ArrayRef),
        (Arc::new(Field::new("b", DataType::Utf8, true)), Arc::new(StringArray::from(vec!["x \"y\""])) as ArrayRef),
        (Arc::new(Field::new("c", DataType::Utf8, true)), Arc::new(StringArray::from(vec![None::<&str>])) as ArrayRef),
    ]);
    assert_eq!(text(&record), r#"(1,"x ""y""",)"#);
}
