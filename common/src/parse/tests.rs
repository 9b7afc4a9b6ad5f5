#![allow(clippy::unwrap_used)]

use arrow::array::Array;
use arrow::datatypes::IntervalMonthDayNano;

use super::*;
use crate::text::{TextFormat, write_value};

/// The value as PostgreSQL prints it, or the error.
fn read(text: &str, sql_type: &SqlType) -> String {
    read_in(text, sql_type, Tz::UTC)
}

fn read_in(text: &str, sql_type: &SqlType, zone: Tz) -> String {
    match parse_text(text, sql_type, zone) {
        Ok(array) => {
            assert_eq!((array.len(), array.data_type()), (1, &sql_type.to_arrow()));
            let mut out = String::new();
            write_value(&array, 0, &TextFormat { time_zone: zone, ..TextFormat::default() }, &mut out);
            out
        }
        Err(e) => format!("{} {}", e.state.0, e.message),
    }
}

fn all(sql_type: SqlType, cases: &[(&str, &str)]) {
    for (text, expected) in cases {
        assert_eq!(read(text, &sql_type), *expected, "{text:?} as {sql_type}");
    }
}

#[test]
fn booleans() {
    all(
        SqlType::Boolean,
        &[
            (" t ", "t"),
            ("YES", "t"),
            ("on", "t"),
            ("1", "t"),
            ("fal", "f"),
            ("of", "f"),
            ("n", "f"),
            ("o", "22P02 invalid input syntax for type boolean: \"o\""),
            ("", "22P02 invalid input syntax for type boolean: \"\""),
            ("11", "22P02 invalid input syntax for type boolean: \"11\""),
        ],
    );
}

#[test]
fn numbers() {
    all(
        SqlType::Integer,
        &[
            (" 42 ", "42"),
            ("-2147483648", "-2147483648"),
            ("+7", "7"),
            ("0xff", "255"),
            ("1_000", "1000"),
            ("x", "22P02 invalid input syntax for type integer: \"x\""),
            ("", "22P02 invalid input syntax for type integer: \"\""),
            ("1.5", "22P02 invalid input syntax for type integer: \"1.5\""),
            ("1__0", "22P02 invalid input syntax for type integer: \"1__0\""),
            ("2147483648", "22003 value \"2147483648\" is out of range for type integer"),
        ],
    );
    all(
        SqlType::BigInt,
        &[
            ("-9223372036854775808", "-9223372036854775808"),
            ("9223372036854775808", "22003 value \"9223372036854775808\" is out of range for type bigint"),
        ],
    );
    all(
        SqlType::Double,
        &[
            ("1e3", "1000"),
            (" .5", "0.5"),
            ("nan", "NaN"),
            ("-Infinity", "-Infinity"),
            ("1e400", "22003 \"1e400\" is out of range for type double precision"),
            ("1e-400", "22003 \"1e-400\" is out of range for type double precision"),
            ("abc", "22P02 invalid input syntax for type double precision: \"abc\""),
        ],
    );
    all(SqlType::Real, &[("0.1", "0.1"), ("1e40", "22003 \"1e40\" is out of range for type real")]);
    all(
        SqlType::Numeric(Some((5, 2))),
        &[
            ("1.005", "1.01"),
            ("-1.005", "-1.01"),
            ("999.994", "999.99"),
            ("999.995", "22003 numeric field overflow"),
            ("1e2", "100"),
            ("12e-1", "1.2"),
            ("0.001", "0"),
            ("00012", "12"),
            (".5", "0.5"),
            (".", "22P02 invalid input syntax for type numeric: \".\""),
            ("1e", "22P02 invalid input syntax for type numeric: \"1e\""),
        ],
    );
    all(SqlType::Numeric(Some((5, -2))), &[("12345", "12300"), ("1250", "1300")]);
    all(
        SqlType::Numeric(None),
        &[
            ("123456789012345678901234567890.123", "123456789012345678901234567890.123"),
            ("1e47", &format!("1{}", "0".repeat(47))),
            ("1e48", "22003 numeric field overflow"),
            ("-1e-28", &format!("-0.{}1", "0".repeat(27))),
            ("NaN", "0A000 numeric does not support NaN here"),
        ],
    );
}

#[test]
fn dates() {
    all(
        SqlType::Date,
        &[
            ("2024-02-29", "2024-02-29"),
            ("2023-02-29", "22008 date/time field value out of range: \"2023-02-29\""),
            ("1999-1-8", "1999-01-08"),
            ("January 8, 1999", "1999-01-08"),
            ("8 Jan 1999", "1999-01-08"),
            ("1999-Jan-08", "1999-01-08"),
            ("Jan-08-1999", "1999-01-08"),
            ("08-Jan-1999", "1999-01-08"),
            ("1/8/1999", "1999-01-08"),
            ("01/02/03", "2003-01-02"),
            ("19990108", "1999-01-08"),
            ("990108", "1999-01-08"),
            ("1999.008", "1999-01-08"),
            ("January 8, 99 BC", "0099-01-08 BC"),
            ("0044-03-15 BC", "0044-03-15 BC"),
            ("2024-01-01 10:00:00", "2024-01-01"),
            ("infinity", "infinity"),
            ("epoch", "1970-01-01"),
            ("12345-06-07", "12345-06-07"),
            ("x", "22007 invalid input syntax for type date: \"x\""),
            ("", "22007 invalid input syntax for type date: \"\""),
            ("2024-13-01", "22008 date/time field value out of range: \"2024-13-01\""),
            ("10:00", "22007 invalid input syntax for type date: \"10:00\""),
        ],
    );
}

#[test]
fn times() {
    all(
        SqlType::Time,
        &[
            ("04:05:06.789", "04:05:06.789"),
            ("04:05", "04:05:00"),
            ("04:05 AM", "04:05:00"),
            ("04:05 pm", "16:05:00"),
            ("12:00am", "00:00:00"),
            ("24:00:00", "24:00:00"),
            ("23:59:60", "24:00:00"),
            ("04:05:06.0000005", "04:05:06"),
            ("04:05:06.0000015", "04:05:06.000002"),
            ("allballs", "00:00:00"),
            ("25:00", "22008 date/time field value out of range: \"25:00\""),
            ("x", "22007 invalid input syntax for type time: \"x\""),
            ("2024-01-01", "22007 invalid input syntax for type time: \"2024-01-01\""),
        ],
    );
    all(
        SqlType::Timestamp,
        &[
            ("2024-02-29 12:34:56.5", "2024-02-29 12:34:56.5"),
            ("2024-02-29T12:34:56Z", "2024-02-29 12:34:56"),
            ("2024-02-29", "2024-02-29 00:00:00"),
            ("20240229T123456", "2024-02-29 12:34:56"),
            ("2024-02-29 12:34:56+05", "2024-02-29 12:34:56"),
            ("Thu Feb 29 12:34:56 2024", "2024-02-29 12:34:56"),
            ("2024-02-29 24:00:00", "2024-03-01 00:00:00"),
            ("2024-02-29 12:34:56.1234567", "2024-02-29 12:34:56.123457"),
            ("-infinity", "-infinity"),
            ("2024-02-29 25:00", "22008 date/time field value out of range: \"2024-02-29 25:00\""),
            ("hello", "22007 invalid input syntax for type timestamp: \"hello\""),
            ("999999-01-01", "22008 timestamp out of range: \"999999-01-01\""),
        ],
    );
    all(
        SqlType::TimestampTz,
        &[
            ("2024-02-29 12:34:56+05:30", "2024-02-29 07:04:56+00"),
            ("2024-02-29 12:34:56-0130", "2024-02-29 14:04:56+00"),
            ("2024-02-29 12:34 PST", "2024-02-29 20:34:00+00"),
            ("2024-07-01 12:00 America/New_York", "2024-07-01 16:00:00+00"),
            ("2024-07-01 12:00 america/new_york", "2024-07-01 16:00:00+00"),
            ("2024-07-01 12:00:00 UTC", "2024-07-01 12:00:00+00"),
            ("now!", "22007 invalid input syntax for type timestamp with time zone: \"now!\""),
        ],
    );
    let berlin: Tz = "Europe/Berlin".parse().unwrap();
    assert_eq!(read_in("2024-07-01 12:00", &SqlType::TimestampTz, berlin), "2024-07-01 12:00:00+02");
    assert_eq!(parse_timestamptz("2024-07-01 12:00", berlin).unwrap() % 86_400_000_000, 10 * 3_600_000_000);
}

#[test]
fn intervals() {
    all(
        SqlType::Interval,
        &[
            ("1 day", "1 day"),
            ("1 year 2 mons 3 days 04:05:06.789", "1 year 2 mons 3 days 04:05:06.789"),
            ("-1 years -2 mons +3 days -04:05:06", "-1 years -2 mons +3 days -04:05:06"),
            ("@ 1 hour 30 minutes ago", "-01:30:00"),
            ("1.5 days", "1 day 12:00:00"),
            ("1.5 months", "1 mon 15 days"),
            ("1.5 years", "1 year 6 mons"),
            ("1.5 weeks", "10 days 12:00:00"),
            ("90 minutes", "01:30:00"),
            ("1d2h", "1 day 02:00:00"),
            ("10", "00:00:10"),
            ("1.000001 s", "00:00:01.000001"),
            ("500 ms", "00:00:00.5"),
            ("1:30", "01:30:00"),
            ("1:30.5", "00:01:30.5"),
            ("1-2", "1 year 2 mons"),
            ("1-2 3 4:05:06", "1 year 2 mons 3 days 04:05:06"),
            ("3 4:05", "3 days 04:05:00"),
            ("P1Y2M3DT4H5M6.7S", "1 year 2 mons 3 days 04:05:06.7"),
            ("P2W", "14 days"),
            ("PT-1H", "-01:00:00"),
            ("1 century", "100 years"),
            ("x", "22007 invalid input syntax for type interval: \"x\""),
            ("", "22007 invalid input syntax for type interval: \"\""),
            ("1 fortnight", "22007 invalid input syntax for type interval: \"1 fortnight\""),
            ("999999999999 days", "22015 interval field value out of range: \"999999999999 days\""),
        ],
    );
    assert_eq!(parse_interval("2 days 1 us").unwrap(), IntervalMonthDayNano::new(0, 2, 1_000));
}

#[test]
fn bytes_arrays_and_records() {
    all(
        SqlType::Bytea,
        &[
            ("\\x00fF", "\\x00ff"),
            ("a\\\\b\\001", "\\x615c6201"),
            ("\\x0", "22023 invalid hexadecimal data: odd number of digits"),
            ("\\xzz", "22023 invalid hexadecimal digit: \"z\""),
            ("\\9", "22P02 invalid input syntax for type bytea"),
        ],
    );
    all(
        SqlType::Array(Box::new(SqlType::Integer)),
        &[
            ("{1, 2,NULL}", "{1,2,NULL}"),
            (" {} ", "{}"),
            ("{1", "22P02 malformed array literal: \"{1\""),
            ("{1,}", "22P02 malformed array literal: \"{1,}\""),
            ("{x}", "22P02 invalid input syntax for type integer: \"x\""),
        ],
    );
    all(
        SqlType::Array(Box::new(SqlType::Varchar)),
        &[
            (r#"{a, "b c" ,"d\"e",null,"null",""}"#, r#"{a,"b c","d\"e",NULL,"null",""}"#),
            ("{{a}}", "22P02 malformed array literal: \"{{a}}\""),
        ],
    );
    all(
        SqlType::Array(Box::new(SqlType::Array(Box::new(SqlType::Varchar)))),
        &[(r#"{{a,"}"},{b,c}}"#, r#"{{a,"}"},{b,c}}"#), ("{a}", "22P02 malformed array literal: \"{a}\"")],
    );
    let record = SqlType::Struct(vec![("a".into(), SqlType::Integer), ("b".into(), SqlType::Varchar)]);
    all(
        record,
        &[
            (r#"(1,"x ""y""")"#, r#"(1,"x ""y""")"#),
            ("(,)", "(,)"),
            (r#"(2,"")"#, r#"(2,"")"#),
            ("(1)", "22P02 malformed record literal: \"(1)\""),
        ],
    );
    all(SqlType::Jsonb, &[("{\"b\":1,\"a\":[1, 2]}", "{\"a\": [1, 2], \"b\": 1}")]);
    assert!(read("{", &SqlType::Jsonb).starts_with("22P02 invalid input syntax for type json"));
}

#[test]
fn columns_with_nulls() {
    let mut column = TextColumn::new(&SqlType::Array(Box::new(SqlType::Integer)), Tz::UTC);
    column.append("{1,2}").unwrap();
    column.append_null();
    column.append("{}").unwrap();
    let array = column.finish();
    assert_eq!((array.len(), array.null_count()), (3, 1));
    let mut column = TextColumn::new(&SqlType::Struct(vec![("a".into(), SqlType::Integer)]), Tz::UTC);
    column.append_null();
    column.append("(1)").unwrap();
    let array = column.finish();
    assert_eq!((array.len(), array.null_count()), (2, 1));
}
