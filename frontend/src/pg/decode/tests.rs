#![allow(clippy::unwrap_used)]
use bytes::BytesMut;

use super::*;
use crate::pg::encode::Cells;

fn parameter(type_oid: u32) -> Parameter {
    Parameter { oid: type_oid, sql_type: oid::sql_type(type_oid).unwrap() }
}

fn decode(type_oid: u32, bytes: &[u8], format: Format) -> Result<ScalarValue> {
    parameter(type_oid).decode(Some(bytes), format, &TextFormat::default())
}

/// What a value is written as in either format is read back as the same value.
#[track_caller]
fn check(text: &str, type_oid: u32) {
    let value = decode(type_oid, text.as_bytes(), Format::Text).unwrap();
    let sql_type = oid::sql_type(type_oid).unwrap();
    assert_eq!(value.data_type(), sql_type.to_arrow());
    for format in [Format::Text, Format::Binary] {
        let cells = Cells::new(&value.to_array().unwrap(), &sql_type, format, TextFormat::default()).unwrap();
        let mut bytes = BytesMut::new();
        cells.write(0, &mut String::new(), &mut bytes).unwrap();
        assert_eq!(decode(type_oid, &bytes, format).unwrap(), value, "{text} as {format:?} {bytes:?}");
    }
}

#[test]
fn values_come_back() {
    check("true", oid::BOOL);
    check("-32768", oid::INT2);
    check("2147483647", oid::INT4);
    check("-9223372036854775808", oid::INT8);
    check("1.5e-7", oid::FLOAT4);
    check("-0.1", oid::FLOAT8);
    for numeric in ["0", "-1", "10000", "12345.678", "0.00001", "-99999999999999999999999999999999999999999999.5"] {
        check(numeric, oid::NUMERIC);
    }
    check("", oid::VARCHAR);
    check("é\n", oid::TEXT);
    check("\\x00ff", oid::BYTEA);
    check("1969-12-31", oid::DATE);
    check("infinity", oid::DATE);
    check("23:59:59.999999", oid::TIME);
    check("1999-12-31 23:59:59.5", oid::TIMESTAMP);
    check("-infinity", oid::TIMESTAMP);
    check("2024-02-29 12:00:00+02", oid::TIMESTAMPTZ);
    check("1 year 2 mons -3 days 04:05:06.7", oid::INTERVAL);
    check("{\"a\": [1, null]}", oid::JSONB);
    check("{1,NULL,3}", 1007);
    check("{}", 1007);
    check("{\"a,b\",NULL,\"NULL\"}", 1009);
    check("{0.5,-20000}", 1231);
}

#[test]
fn null_is_a_null_of_the_type() {
    let value = parameter(oid::INT4).decode(None, Format::Binary, &TextFormat::default()).unwrap();
    assert_eq!(value, ScalarValue::Int32(None));
}

#[test]
fn declared_types_become_what_the_statement_needs() {
    let decode = |sent: u32, needed: SqlType, bytes: &[u8], format| {
        let parameter = Parameter { oid: sent, sql_type: needed };
        parameter.decode(Some(bytes), format, &TextFormat::default()).unwrap()
    };
    let binary = Format::Binary;
    assert_eq!(decode(oid::OID, SqlType::BigInt, &[255; 4], binary), ScalarValue::from(4_294_967_295i64));
    assert_eq!(decode(oid::INT4, SqlType::BigInt, &[0, 0, 0, 5], binary), ScalarValue::from(5i64));
    assert_eq!(decode(oid::TEXT, SqlType::Integer, b"7", Format::Text), ScalarValue::from(7i32));
    let uuid = [0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde, 0xf0, 1, 2, 3, 4, 5, 6, 7, 8];
    let text = ScalarValue::from("12345678-9abc-def0-0102-030405060708");
    assert_eq!(decode(oid::UUID, SqlType::Varchar, &uuid, binary), text);
    assert_eq!(decode(oid::JSON, SqlType::Jsonb, b"{}", binary), ScalarValue::LargeUtf8(Some("{}".into())));
}

#[test]
fn nested_arrays() {
    let grid = Parameter { oid: 1007, sql_type: SqlType::Array(Box::new(SqlType::Array(Box::new(SqlType::Integer)))) };
    let text = grid.decode(Some(b"{{1,2},{3,4}}"), Format::Text, &TextFormat::default());
    let mut bytes = BytesMut::new();
    let header = [2u32, 0, 23, 2, 1, 2, 1];
    header.iter().for_each(|word| bytes.extend_from_slice(&word.to_be_bytes()));
    (1u32..=4).for_each(|n| bytes.extend_from_slice(&[&4u32.to_be_bytes()[..], &n.to_be_bytes()].concat()));
    let binary = grid.decode(Some(&bytes), Format::Binary, &TextFormat::default());
    let rows = [[1, 2], [3, 4]].map(|row| {
        let row = row.map(|n| ScalarValue::Int32(Some(n)));
        ScalarValue::List(ScalarValue::new_list_nullable(&row, &SqlType::Integer.to_arrow()))
    });
    let expected = ScalarValue::new_list_nullable(&rows, &SqlType::Array(Box::new(SqlType::Integer)).to_arrow());
    assert_eq!(binary.unwrap(), ScalarValue::List(expected.clone()));
    assert_eq!(text.unwrap(), ScalarValue::List(expected));
}

#[test]
fn what_is_no_value_is_refused() {
    let refused = |type_oid, bytes: &[u8], format, state: &str| {
        assert_eq!(decode(type_oid, bytes, format).unwrap_err().state.0, state, "{type_oid} {bytes:?}");
    };
    refused(oid::INT4, b"abc", Format::Text, "22P02");
    refused(oid::INT4, b"3000000000", Format::Text, "22003");
    refused(oid::TEXT, b"\xff", Format::Text, "22021");
    refused(oid::TEXT, b"a\0b", Format::Binary, "22021");
    for bytes in [&b""[..], b"\0\0\0", b"\0\0\0\0\0"] {
        refused(oid::INT4, bytes, Format::Binary, "22P03");
    }
    refused(oid::JSONB, b"\x02{}", Format::Binary, "22P03");
    refused(oid::DATE, &i32::MAX.wrapping_sub(1).to_be_bytes(), Format::Binary, "22008");
    refused(oid::TIME, &(-1i64).to_be_bytes(), Format::Binary, "22008");
    // A digit of 10,000; a sign that is none; more groups than there are bytes; a weight beyond all numbers.
    refused(oid::NUMERIC, b"\0\x01\0\0\0\0\0\0\x27\x10", Format::Binary, "22P03");
    refused(oid::NUMERIC, b"\0\0\0\0\x12\x34\0\0", Format::Binary, "22P03");
    refused(oid::NUMERIC, b"\x7f\xff\0\0\0\0\0\0", Format::Binary, "22P03");
    refused(oid::NUMERIC, b"\0\x01\x7f\xff\0\0\0\0\0\x01", Format::Binary, "22003");
    // An array that promises two thousand million items, one of seven dimensions, one of dates.
    refused(1007, b"\0\0\0\x01\0\0\0\0\0\0\0\x17\x7f\xff\xff\xff\0\0\0\x01", Format::Binary, "22P03");
    refused(1007, b"\0\0\0\x07\0\0\0\0\0\0\0\x17", Format::Binary, "54000");
    refused(1007, b"\0\0\0\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x01", Format::Binary, "42804");
}
