#![allow(clippy::unwrap_used)]
use std::sync::Arc;

use arrow::array::{
    Decimal256Array, DictionaryArray, Int32Builder, ListBuilder, NullArray, StringViewArray, StructArray,
    TimestampNanosecondArray, UInt64Array,
};
use arrow::datatypes::{Field, Fields, Int8Type, IntervalMonthDayNano, i256};

use super::*;

fn cells(array: ArrayRef, format: Format, declared_scale: Option<i8>) -> Cells {
    let sql_type = SqlType::from_arrow(array.data_type()).unwrap();
    Cells::new(&array, &sql_type, format, TextFormat { declared_scale, ..TextFormat::default() }).unwrap()
}

/// What a row of the array looks like in both formats; the binary as hex with spaces anywhere.
#[track_caller]
fn check(array: impl Array + 'static, text: &str, binary: &str) {
    check_scaled(array, None, text, binary);
}

#[track_caller]
fn check_scaled(array: impl Array + 'static, scale: Option<i8>, text: &str, binary: &str) {
    let array: ArrayRef = Arc::new(array);
    let write = |format| {
        let mut out = BytesMut::new();
        cells(array.clone(), format, scale).write(0, &mut String::new(), &mut out).unwrap();
        out
    };
    assert_eq!(std::str::from_utf8(&write(Format::Text)).unwrap(), text);
    let hex: String = write(Format::Binary).iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!(hex, binary.replace(' ', ""), "binary of {text}");
}

fn decimal(unscaled: i128, scale: i8) -> Decimal128Array {
    Decimal128Array::from(vec![unscaled]).with_precision_and_scale(38, scale).unwrap()
}

#[test]
fn scalars() {
    check(BooleanArray::from(vec![true]), "t", "01");
    check(Int16Array::from(vec![-2]), "-2", "fffe");
    check(Int32Array::from(vec![1_000_000]), "1000000", "000f4240");
    check(Int64Array::from(vec![i64::MIN]), "-9223372036854775808", "8000000000000000");
    check(Float32Array::from(vec![1.5]), "1.5", "3fc00000");
    check(Float64Array::from(vec![0.1]), "0.1", "3fb999999999999a");
    check(StringArray::from(vec!["é"]), "é", "c3a9");
    check(LargeStringArray::from(vec!["{}"]), "{}", "01 7b7d");
    check(BinaryArray::from(vec![&b"\0\xff"[..]]), "\\x00ff", "00ff");
}

#[test]
fn dates_and_times_count_from_2000() {
    check(Date32Array::from(vec![10_957]), "2000-01-01", "00000000");
    check(Date32Array::from(vec![0]), "1970-01-01", "ffffd533");
    check(Date32Array::from(vec![i32::MAX]), "infinity", "7fffffff");
    check(Time64MicrosecondArray::from(vec![3_661_000_000]), "01:01:01", "00000000da366d40");
    check(TimestampMicrosecondArray::from(vec![946_684_800_000_001]), "2000-01-01 00:00:00.000001", "0000000000000001");
    check(TimestampMicrosecondArray::from(vec![i64::MIN]), "-infinity", "8000000000000000");
    let months = IntervalMonthDayNano::new(14, -3, 1_000_000_000);
    check(
        IntervalMonthDayNanoArray::from(vec![months]),
        "1 year 2 mons -3 days +00:00:01",
        "00000000000f4240 fffffffd 0000000e",
    );
}

#[test]
fn timestamptz_is_shown_in_the_zone_of_the_session_and_sent_as_utc() {
    let array: ArrayRef = Arc::new(TimestampMicrosecondArray::from(vec![946_684_800_000_000]).with_timezone("UTC"));
    let text = TextFormat { time_zone: "Asia/Tokyo".parse().unwrap(), ..TextFormat::default() };
    let write = |format| {
        let mut out = BytesMut::new();
        let cells = Cells::new(&array, &SqlType::TimestampTz, format, text.clone()).unwrap();
        cells.write(0, &mut String::new(), &mut out).unwrap();
        out
    };
    assert_eq!(&write(Format::Text)[..], b"2000-01-01 09:00:00+09");
    assert_eq!(&write(Format::Binary)[..], &[0; 8]);
}

#[test]
fn numerics() {
    //                              ndig weight sign dscale digits
    check(decimal(0, 2), "0", "0000 0000 0000 0000");
    check_scaled(decimal(0, 2), Some(2), "0.00", "0000 0000 0000 0002");
    check(decimal(1, 0), "1", "0001 0000 0000 0000 0001");
    check(decimal(-12_345, 0), "-12345", "0002 0001 4000 0000 0001 0929");
    check(decimal(100_000_000, 0), "100000000", "0001 0002 0000 0000 0001");
    check(decimal(123_400, 3), "123.4", "0002 0000 0000 0001 007b 0fa0");
    check_scaled(decimal(123_400, 3), Some(3), "123.400", "0002 0000 0000 0003 007b 0fa0");
    check(decimal(1, 5), "0.00001", "0001 fffe 0000 0005 03e8");
    check(decimal(1, 4), "0.0001", "0001 ffff 0000 0004 0001");
    check(decimal(99_995_000, 4), "9999.5", "0002 0000 0000 0001 270f 1388");
    let wide = i256::from_string("123450000000000000000000000000000000000000000").unwrap();
    let wide = Decimal256Array::from(vec![wide]).with_precision_and_scale(76, 28).unwrap();
    check(wide, "12345000000000000", "0002 0004 0000 0000 0001 0929");
}

#[test]
fn arrays() {
    let mut list = ListBuilder::new(Int32Builder::new());
    list.append_value([Some(1), None]);
    check(list.finish(), "{1,NULL}", "00000001 00000001 00000017 00000002 00000001 00000004 00000001 ffffffff");
    let mut empty = ListBuilder::new(Int32Builder::new());
    empty.append_value([]);
    check(empty.finish(), "{}", "00000000 00000000 00000017");
    let mut nested = ListBuilder::new(ListBuilder::new(Int32Builder::new()));
    nested.values().append_value([Some(1)]);
    nested.values().append_value([Some(2)]);
    nested.append(true);
    check(
        nested.finish(),
        "{{1},{2}}",
        "00000002 00000000 00000017 00000002 00000001 00000001 00000001 00000004 00000001 00000004 00000002",
    );
}

#[test]
fn ragged_arrays_have_no_binary_form() {
    let mut nested = ListBuilder::new(ListBuilder::new(Int32Builder::new()));
    nested.values().append_value([Some(1)]);
    nested.values().append_value([Some(2), Some(3)]);
    nested.append(true);
    let cells = cells(Arc::new(nested.finish()), Format::Binary, None);
    let mut out = BytesMut::new();
    assert_eq!(cells.write(0, &mut String::new(), &mut out).unwrap_err().state.0, "2202E");
}

#[test]
fn records() {
    let fields = Fields::from(vec![Field::new("a", DataType::Int32, true), Field::new("b", DataType::Utf8, true)]);
    let columns: Vec<ArrayRef> =
        vec![Arc::new(Int32Array::from(vec![7])), Arc::new(StringArray::from(vec![None::<&str>]))];
    check(StructArray::new(fields, columns, None), "(7,)", "00000002 00000017 00000004 00000007 00000413 ffffffff");
}

#[test]
fn other_arrow_types_are_cast() {
    check(UInt64Array::from(vec![5]), "5", "0000000000000005");
    check(StringViewArray::from(vec!["x"]), "x", "78");
    check(vec!["a"].into_iter().collect::<DictionaryArray<Int8Type>>(), "a", "61");
    check(
        TimestampNanosecondArray::from(vec![946_684_800_000_001_000]),
        "2000-01-01 00:00:00.000001",
        "0000000000000001",
    );
}

#[test]
fn null_has_length_minus_one() {
    let arrays: [ArrayRef; 2] = [Arc::new(NullArray::new(1)), Arc::new(Int32Array::from(vec![None]))];
    for array in arrays {
        let mut out = BytesMut::new();
        cells(array, Format::Text, None).write_sized(0, &mut String::new(), &mut out).unwrap();
        assert_eq!(&out[..], [255; 4]);
    }
}
