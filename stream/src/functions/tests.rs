#![allow(clippy::unwrap_used)]

use arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{DataType, Schema};
use chrono_tz::Tz;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::logical_expr::{Expr, lit};
use datafusion::physical_expr::create_physical_expr;
use datafusion::physical_expr::execution_props::ExecutionProps;
use weir_common::parse::parse_text;
use weir_common::text::{TextFormat, write_value};
use weir_common::{SqlType, ValueError};

use super::*;

/// A constant from text.
fn value(sql_type: &str, text: &str) -> Expr {
    let sql_type = parse_type(sql_type).unwrap();
    let array = parse_text(text, &sql_type, Tz::UTC).unwrap();
    lit(ScalarValue::try_from_array(&array, 0).unwrap())
}

fn call(name: &str, args: Vec<Expr>) -> Expr {
    let named = |f: &&Arc<ScalarUDF>| f.name() == name || f.aliases().iter().any(|a| a == name);
    scalar_functions().iter().find(named).unwrap_or_else(|| panic!("no function {name}")).call(args)
}

/// What an expression gives: its type and value as PostgreSQL prints them, or the error.
fn eval(expr: Expr) -> String {
    let batch = RecordBatch::try_new_with_options(
        Arc::new(Schema::empty()),
        vec![],
        &RecordBatchOptions::new().with_row_count(Some(2)),
    )
    .unwrap();
    let schema = DFSchema::try_from(Schema::empty()).unwrap();
    let result = create_physical_expr(&expr, &schema, &ExecutionProps::new())
        .and_then(|physical| physical.evaluate(&batch)?.into_array(2));
    let array: ArrayRef = match result {
        Ok(array) => array,
        Err(e) => {
            let e = e.find_root();
            let datafusion::error::DataFusionError::External(source) = e else { return format!("error: {e}") };
            let refused = source.downcast_ref::<ValueError>().unwrap();
            return format!("{} {}", refused.state.0, refused.message);
        }
    };
    assert_eq!(array.len(), 2);
    if array.is_null(0) {
        return "NULL".into();
    }
    let mut out = String::new();
    write_value(&array, 0, &TextFormat::default(), &mut out);
    out
}

fn null(sql_type: &str) -> Expr {
    lit(ScalarValue::try_from(&parse_type(sql_type).unwrap().to_arrow()).unwrap())
}

fn binary(name: &str, sql_type: &str, a: &str, b: &str) -> String {
    eval(call(name, vec![value(sql_type, a), value(sql_type, b)]))
}

#[test]
fn integers_that_do_not_fit_are_errors() {
    assert_eq!(binary("pg_add", "integer", "2147483647", "1"), "22003 integer out of range");
    assert_eq!(binary("pg_sub", "smallint", "-32768", "1"), "22003 smallint out of range");
    assert_eq!(binary("pg_mul", "bigint", "9223372036854775807", "2"), "22003 bigint out of range");
    assert_eq!(binary("pg_div", "integer", "7", "-2"), "-3");
    assert_eq!(binary("pg_mod", "integer", "-7", "2"), "-1");
    assert_eq!(binary("pg_mod", "integer", "-2147483648", "-1"), "0");
    assert_eq!(binary("pg_div", "integer", "-2147483648", "-1"), "22003 integer out of range");
    assert_eq!(binary("pg_div", "bigint", "1", "0"), "22012 division by zero");
    assert_eq!(binary("pg_mod", "bigint", "1", "0"), "22012 division by zero");
    assert_eq!(eval(call("pg_neg", vec![value("integer", "-2147483648")])), "22003 integer out of range");
    assert_eq!(eval(call("pg_add", vec![value("integer", "1"), null("integer")])), "NULL");
    assert_eq!(
        eval(call("pg_typeof", vec![call("pg_add", vec![value("smallint", "1"), value("bigint", "1")])])),
        "bigint"
    );
    assert_eq!(
        eval(call("pg_add", vec![value("text", "1"), value("integer", "1")])),
        "42883 function pg_add(character varying, integer) does not exist"
    );
    assert_eq!(binary("pg_xor", "integer", "6", "3"), "5");
}

#[test]
fn numerics_have_the_digits_of_postgres() {
    assert_eq!(binary("pg_div", "numeric", "1", "3"), "0.33333333333333333333");
    assert_eq!(binary("pg_div", "numeric", "10", "3"), "3.3333333333333333");
    assert_eq!(binary("pg_div", "numeric", "-2", "3"), "-0.66666666666666666667");
    assert_eq!(binary("pg_div", "numeric", "1", "0"), "22012 division by zero");
    assert_eq!(binary("pg_div", "numeric", "100000000000000000000000000000", "7"), "14285714285714285714285714286");
    assert_eq!(binary("pg_mul", "numeric", "1.5", "-2.25"), "-3.375");
    assert_eq!(
        binary("pg_mul", "numeric", "100000000000000000000", "100000000000000000000"),
        format!("1{}", "0".repeat(40))
    );
    assert_eq!(binary("pg_mul", "numeric", "1e40", "1e40"), "22003 value overflows numeric format");
    assert_eq!(binary("pg_mod", "numeric", "-7.5", "2"), "-1.5");
    assert_eq!(eval(call("pg_add", vec![value("numeric(10,2)", "1.25"), value("integer", "2")])), "3.25");
    for (number, digits, expected) in
        [("2.5", "0", "3"), ("-2.5", "0", "-3"), ("1.005", "2", "1.01"), ("1234", "-2", "1200")]
    {
        assert_eq!(eval(call("round", vec![value("numeric", number), value("integer", digits)])), expected);
    }
    assert_eq!(eval(call("round", vec![value("double precision", "2.5")])), "2");
    assert_eq!(eval(call("trunc", vec![value("numeric", "-1.99"), value("integer", "1")])), "-1.9");
    assert_eq!(eval(call("floor", vec![value("numeric", "-1.5")])), "-2");
    assert_eq!(eval(call("ceiling", vec![value("numeric", "-1.5")])), "-1");
}

#[test]
fn floats_overflow() {
    assert_eq!(binary("pg_mul", "double precision", "1e200", "1e200"), "22003 value out of range: overflow");
    assert_eq!(binary("pg_div", "double precision", "1", "0"), "22012 division by zero");
    assert_eq!(binary("pg_div", "double precision", "1", "4"), "0.25");
    assert_eq!(binary("pg_mul", "double precision", "Infinity", "2"), "Infinity");
    assert_eq!(eval(call("pg_add", vec![value("real", "1.5"), value("integer", "1")])), "2.5");
}

#[test]
fn casts() {
    let cast = |from: &str, text: &str, to: &str| eval(call("pg_cast", vec![value(from, text), lit(to)]));
    for (from, text, to, expected) in [
        ("double precision", "2.5", "integer", "2"),
        ("double precision", "3.5", "integer", "4"),
        ("double precision", "1e10", "integer", "22003 integer out of range"),
        ("double precision", "NaN", "bigint", "22003 bigint out of range"),
        ("numeric", "2.5", "integer", "3"),
        ("numeric(10,1)", "-2.5", "smallint", "-3"),
        ("numeric", "40000", "smallint", "22003 smallint out of range"),
        ("bigint", "3000000000", "integer", "22003 integer out of range"),
        ("double precision", "0.1", "numeric", "0.1"),
        ("real", "0.1", "numeric", "0.1"),
        ("numeric", "0.1", "double precision", "0.1"),
        ("numeric(20,10)", "1234567.8901234567", "double precision", "1234567.8901234567"),
        ("numeric", "12.345", "numeric(4,2)", "12.35"),
        ("numeric", "123.45", "numeric(4,2)", "22003 numeric field overflow"),
        ("boolean", "t", "text", "true"),
        ("boolean", "t", "integer", "1"),
        ("integer", "2", "boolean", "t"),
        ("text", "{1,2}", "integer[]", "{1,2}"),
        ("integer[]", "{1,2}", "bigint[]", "{1,2}"),
        ("text", "x", "integer", "22P02 invalid input syntax for type integer: \"x\""),
        ("jsonb", "1.5", "numeric", "1.5"),
        ("jsonb", "1.5", "integer", "2"),
        ("jsonb", "\"x\"", "integer", "22023 cannot cast jsonb string to type integer"),
        ("jsonb", "{\"a\": 1}", "text", "{\"a\": 1}"),
        ("date", "2024-02-29", "timestamp without time zone", "2024-02-29 00:00:00"),
        ("timestamp without time zone", "1969-12-31 23:00", "date", "1969-12-31"),
        ("timestamp without time zone", "2024-02-29 12:30:01", "time without time zone", "12:30:01"),
        ("date", "infinity", "timestamp without time zone", "infinity"),
        ("integer", "1", "date", "42846 cannot cast type integer to date"),
        ("interval", "1 day 25:00", "text", "1 day 25:00:00"),
        ("bytea", "\\x01", "text", "\\x01"),
    ] {
        assert_eq!(cast(from, text, to), expected, "{text} {from} as {to}");
    }
    let zoned = |text: &str, to: &str| {
        eval(call("pg_cast", vec![value("timestamp with time zone", text), lit(to), lit("Europe/Berlin")]))
    };
    assert_eq!(zoned("2024-07-01 23:00+00", "text"), "2024-07-02 01:00:00+02");
    assert_eq!(zoned("2024-07-01 23:00+00", "date"), "2024-07-02");
    assert_eq!(zoned("2024-07-01 23:00+00", "timestamp without time zone"), "2024-07-02 01:00:00");
    let berlin: Tz = "Europe/Berlin".parse().unwrap();
    let back = cast_to(value("timestamp without time zone", "2024-07-01 12:00"), &SqlType::TimestampTz, berlin);
    assert_eq!(eval(back), "2024-07-01 10:00:00+00");
}

#[test]
fn every_type_is_found_by_its_name() {
    for sql_type in [
        SqlType::Boolean,
        SqlType::SmallInt,
        SqlType::Numeric(None),
        SqlType::Numeric(Some((10, 2))),
        SqlType::Varchar,
        SqlType::Time,
        SqlType::TimestampTz,
        SqlType::Array(Box::new(SqlType::Array(Box::new(SqlType::Jsonb)))),
    ] {
        assert_eq!(parse_type(&sql_type.to_string()), Some(sql_type));
    }
}

#[test]
fn times() {
    let timestamp = |text: &str| value("timestamp without time zone", text);
    let part = |field: &str, of: Expr| eval(call("date_part", vec![lit(field), of]));
    let t = || timestamp("2024-02-29 12:34:56.789");
    for (field, expected) in [
        ("year", "2024"),
        ("month", "2"),
        ("day", "29"),
        ("hour", "12"),
        ("minute", "34"),
        ("second", "56.789"),
        ("milliseconds", "56789"),
        ("microseconds", "56789000"),
        ("dow", "4"),
        ("isodow", "4"),
        ("doy", "60"),
        ("week", "9"),
        ("quarter", "1"),
        ("decade", "202"),
        ("century", "21"),
        ("millennium", "3"),
        ("epoch", "1709210096.789"),
        ("julian", "2460370.5242683912037037037"),
        ("foo", "22023 unit \"foo\" not recognized for type timestamp without time zone"),
        ("timezone", "0A000 unit \"timezone\" not supported for type timestamp without time zone"),
    ] {
        assert_eq!(part(field, t()), expected, "{field}");
    }
    assert_eq!(part("epoch", value("interval", "1 year 1 mon 1 day 00:00:01")), "34236001");
    assert_eq!(part("hour", value("interval", "1 day 26:00")), "26");
    assert_eq!(part("century", timestamp("2000-12-31")), "20");
    assert_eq!(part("year", value("date", "0044-03-15 BC")), "-44");
    assert_eq!(part("hour", value("date", "2024-01-01")), "0A000 unit \"hour\" not supported for type date");

    let trunc = |field: &str| eval(call("date_trunc", vec![lit(field), t()]));
    for (field, expected) in [
        ("second", "2024-02-29 12:34:56"),
        ("hour", "2024-02-29 12:00:00"),
        ("day", "2024-02-29 00:00:00"),
        ("week", "2024-02-26 00:00:00"),
        ("month", "2024-02-01 00:00:00"),
        ("quarter", "2024-01-01 00:00:00"),
        ("year", "2024-01-01 00:00:00"),
        ("decade", "2020-01-01 00:00:00"),
        ("century", "2001-01-01 00:00:00"),
        ("millennium", "2001-01-01 00:00:00"),
    ] {
        assert_eq!(trunc(field), expected, "{field}");
    }
    let zoned = value("timestamp with time zone", "2024-07-01 23:30+00");
    assert_eq!(
        eval(call("date_trunc", vec![lit("day"), zoned.clone(), lit("Europe/Berlin")])),
        "2024-07-01 22:00:00+00"
    );
    assert_eq!(eval(call("timezone", vec![lit("America/New_York"), zoned])), "2024-07-01 19:30:00");
    assert_eq!(
        eval(call("timezone", vec![lit("America/New_York"), timestamp("2024-07-01 12:00")])),
        "2024-07-01 16:00:00+00"
    );
    // 01:35 comes twice on this day.
    let repeated = |offset: &str| {
        let t = value("timestamp with time zone", &format!("2026-11-01 01:35:00{offset}"));
        eval(call("date_trunc", vec![lit("hour"), t, lit("America/New_York")]))
    };
    assert_eq!((repeated("-04"), repeated("-05")), ("2026-11-01 05:00:00+00".into(), "2026-11-01 06:00:00+00".into()));
    assert_eq!(eval(call("timezone", vec![lit("Nowhere"), t()])), "22023 time zone \"Nowhere\" not recognized");

    let diff = |a: &str, b: &str| eval(call("pg_timestamp_diff", vec![timestamp(a), timestamp(b)]));
    assert_eq!(diff("2024-03-01 10:00", "2024-02-28 12:00"), "1 day 22:00:00");
    assert_eq!(diff("2024-02-28 12:00", "2024-03-01 10:00"), "-1 days -22:00:00");
    let age = |a: &str, b: &str| eval(call("age", vec![timestamp(a), timestamp(b)]));
    assert_eq!(age("2001-04-10", "1957-06-13"), "43 years 9 mons 27 days");
    assert_eq!(age("1957-06-13", "2001-04-10"), "-43 years -9 mons -27 days");
    let times = |i: &str, x: f64| eval(call("pg_interval_mul", vec![value("interval", i), lit(x)]));
    assert_eq!(times("1 day", 1.5), "1 day 12:00:00");
    assert_eq!(times("1 mon", 0.5), "15 days");
    assert_eq!(times("01:00:00", -2.0), "-02:00:00");
    assert_eq!(eval(call("pg_interval_div", vec![value("interval", "1 day"), lit(0.0)])), "22012 division by zero");
    assert_eq!(eval(call("to_timestamp", vec![lit(1.5)])), "1970-01-01 00:00:01.5+00");
}

#[test]
fn windows() {
    let t = || value("timestamp without time zone", "2024-01-01 00:07:30");
    let length = |text: &str| value("interval", text);
    assert_eq!(eval(call("tumble_start", vec![t(), length("5 minutes")])), "2024-01-01 00:05:00");
    assert_eq!(eval(call("tumble_start", vec![t(), length("5 minutes"), length("3 minutes")])), "2024-01-01 00:03:00");
    assert_eq!(
        eval(call("hop_starts", vec![t(), length("2 minutes"), length("6 minutes")])),
        r#"{"2024-01-01 00:02:00","2024-01-01 00:04:00","2024-01-01 00:06:00"}"#
    );
    // Between two windows.
    assert_eq!(eval(call("hop_starts", vec![t(), length("5 minutes"), length("1 minute")])), "{}");
    assert_eq!(eval(call("hop_starts", vec![t(), length("5 minutes"), length("150 seconds")])), "{}");
    assert_eq!(
        eval(call("hop_starts", vec![t(), length("5 minutes"), length("151 seconds")])),
        r#"{"2024-01-01 00:05:00"}"#
    );
    let before_1970 = value("timestamp without time zone", "1969-12-31 23:59:59");
    assert_eq!(eval(call("tumble_start", vec![before_1970, length("1 hour")])), "1969-12-31 23:00:00");
    assert_eq!(
        eval(call("tumble_start", vec![t(), length("1 mon")])),
        "22023 the length of a window must not contain months, which differ in length"
    );
    assert_eq!(eval(call("tumble_start", vec![t(), length("0")])), "22023 the length of a window must be positive");
    assert_eq!(eval(call("tumble_start", vec![null("timestamp without time zone"), length("1 hour")])), "NULL");
    let zoned = value("timestamp with time zone", "2024-01-01 00:07:30+00");
    assert_eq!(eval(call("tumble_start", vec![zoned, length("5 minutes")])), "2024-01-01 00:05:00+00");
}

#[test]
fn json() {
    let json = |text: &str| value("jsonb", text);
    let two = |name: &str, a: &str, b: Expr| eval(call(name, vec![json(a), b]));
    let doc = r#"{"a": {"b": [10, "x", null]}, "c": 1.50}"#;
    assert_eq!(two("jsonb_get", doc, lit("a")), r#"{"b": [10, "x", null]}"#);
    assert_eq!(two("jsonb_get", doc, lit("z")), "NULL");
    assert_eq!(two("jsonb_get_text", doc, lit("c")), "1.50");
    assert_eq!(two("jsonb_get", "[1, 2, 3]", lit(-1i32)), "3");
    assert_eq!(two("jsonb_get", "[1, 2, 3]", lit("0")), "NULL");
    assert_eq!(two("jsonb_get_text", r#"["x"]"#, lit(0i64)), "x");
    assert_eq!(two("jsonb_get_text", "[null]", lit(0i64)), "NULL");
    assert_eq!(two("jsonb_get_path", doc, value("text[]", "{a,b,0}")), "10");
    assert_eq!(two("jsonb_get_path_text", doc, lit("{a,b,-2}")), "x");
    for (a, b, expected) in [
        (r#"{"a": 1, "b": 2}"#, r#"{"a": 1.0}"#, "t"),
        (r#"{"a": 1}"#, r#"{"a": 2}"#, "f"),
        ("[1, 2, 3]", "[3, 1]", "t"),
        ("[1, 2]", "[3]", "f"),
        ("[1, 2]", "1", "t"),
        ("1", "[1]", "f"),
        (r#"{"a": [1]}"#, r#"{"a": 1}"#, "f"),
        ("[[1, 2]]", "[[1]]", "t"),
        ("[1]", "{}", "f"),
    ] {
        assert_eq!(two("jsonb_contains", a, json(b)), expected, "{a} @> {b}");
        assert_eq!(two("jsonb_contained", b, json(a)), expected, "{b} <@ {a}");
    }
    assert_eq!(two("jsonb_exists", r#"["a", 1]"#, lit("a")), "t");
    assert_eq!(two("jsonb_exists", r#"{"a": 1}"#, lit("b")), "f");
    assert_eq!(two("jsonb_exists_any", r#"{"a": 1}"#, value("text[]", "{b,a}")), "t");
    assert_eq!(two("jsonb_exists_all", r#"{"a": 1}"#, value("text[]", "{b,a}")), "f");
    assert_eq!(two("jsonb_concat", r#"{"a": 1, "b": 1}"#, json(r#"{"a": 2}"#)), r#"{"a": 2, "b": 1}"#);
    assert_eq!(two("jsonb_concat", "1", json("[2]")), "[1, 2]");
    assert_eq!(two("jsonb_delete", r#"{"a": 1, "b": 1}"#, lit("a")), r#"{"b": 1}"#);
    assert_eq!(two("jsonb_delete", "[1, 2, 3]", lit(-1i64)), "[1, 2]");
    assert_eq!(two("jsonb_delete_path", doc, value("text[]", "{a,b,1}")), r#"{"a": {"b": [10, null]}, "c": 1.50}"#);
    let set = |a: &str, path: &str, new: &str| eval(call("jsonb_set", vec![json(a), value("text[]", path), json(new)]));
    assert_eq!(set(r#"{"a": [1]}"#, "{a,0}", "2"), r#"{"a": [2]}"#);
    assert_eq!(set(r#"{"a": [1]}"#, "{a,5}", "2"), r#"{"a": [1, 2]}"#);
    assert_eq!(set(r#"{"a": 1}"#, "{b}", "2"), r#"{"a": 1, "b": 2}"#);
    assert_eq!(set(r#"{"a": 1}"#, "{b,c}", "2"), r#"{"a": 1}"#);
    assert_eq!(eval(call("jsonb_pretty", vec![json(r#"{"a": [1]}"#)])), "{\n    \"a\": [\n        1\n    ]\n}");
    assert_eq!(eval(call("jsonb_typeof", vec![json("[]")])), "array");
    assert_eq!(eval(call("jsonb_array_length", vec![json("[1, 2]")])), "2");
    assert_eq!(eval(call("jsonb_array_length", vec![json("1")])), "22023 cannot get array length of a scalar");
    assert_eq!(eval(call("jsonb_elements", vec![json("[1, \"a\"]")])), r#"{1,"\"a\""}"#);
    assert_eq!(eval(call("jsonb_elements_text", vec![json("[1, \"a\", null]")])), "{1,a,NULL}");
    let timestamp = value("timestamp with time zone", "2024-01-01 10:00+00");
    let built = call(
        "jsonb_build_object",
        vec![
            lit("bb"),
            value("numeric", "1.50"),
            lit("a"),
            value("integer[]", "{1,NULL}"),
            lit("t"),
            timestamp,
            lit("f"),
            value("double precision", "NaN"),
            lit("x"),
            lit(true),
        ],
    );
    assert_eq!(eval(built), r#"{"a": [1, null], "f": "NaN", "t": "2024-01-01T10:00:00+00:00", "x": true, "bb": 1.5}"#);
    assert_eq!(
        eval(call("jsonb_build_object", vec![lit("a")])),
        "22023 argument list must have even number of elements"
    );
    assert_eq!(eval(call("to_jsonb", vec![lit("a\"b")])), r#""a\"b""#);
    assert!(eval(call("cast_to_jsonb", vec![lit("{")])).starts_with("22P02 invalid input syntax for type json"));
}

#[test]
fn texts() {
    assert_eq!(eval(call("concat", vec![lit("a"), null("text"), lit(1i64), lit(true), lit(1.0)])), "a1t1");
    assert_eq!(eval(call("concat_ws", vec![lit(","), lit("a"), null("text"), lit("b")])), "a,b");
    assert_eq!(eval(call("pg_text", vec![lit(true)])), "true");
    let part = |n: i32| eval(call("split_part", vec![lit("a,b,c"), lit(","), lit(n)]));
    assert_eq!((part(1), part(-1), part(4)), ("a".into(), "c".into(), String::new()));
    assert_eq!(part(0), "22023 field position must not be zero");
    assert_eq!(
        eval(call("format", vec![lit("%s %I %L %% %1$s"), lit("x"), lit("My Col"), lit("it's")])),
        r#"x "My Col" 'it''s' % x"#
    );
    assert_eq!(
        eval(call("pg_typeof", vec![value("timestamp with time zone", "2024-01-01")])),
        "timestamp with time zone"
    );
    assert_eq!(eval(call("to_hex", vec![lit(-1i32)])), "ffffffff");
}

#[test]
fn patterns() {
    let t = |pattern: &str| {
        eval(call("to_char", vec![value("timestamp without time zone", "2024-02-05 15:04:09.012345"), lit(pattern)]))
    };
    for (pattern, expected) in [
        ("YYYY-MM-DD HH24:MI:SS.US", "2024-02-05 15:04:09.012345"),
        ("yyyy/mm/dd", "2024/02/05"),
        ("Day, DDth Month", "Monday   , 05th February "),
        ("FMDay, FMDDth FMMonth YYYY", "Monday, 5th February 2024"),
        ("HH12:MI AM", "03:04 PM"),
        ("Dy DY dy Mon MON", "Mon MON mon Feb FEB"),
        ("Q IW DDD D MS", "1 06 036 2 012"),
        ("\"year\" YY", "year 24"),
    ] {
        assert_eq!(t(pattern), expected, "{pattern}");
    }
    let n = |number: &str, pattern: &str| eval(call("to_char", vec![value("numeric", number), lit(pattern)]));
    for (number, pattern, expected) in [
        ("-12", "9999", "  -12"),
        ("12", "9999", "   12"),
        ("0.1", "0.9", " 0.1"),
        ("0.5", "9.9", "  .5"),
        ("0", "999", "   0"),
        ("485", "999", " 485"),
        ("1485", "9,999", " 1,485"),
        ("148.5", "999.999", " 148.500"),
        ("148.5", "FM999.999", "148.5"),
        ("148.5", "FM999.990", "148.500"),
        ("12", "0000", " 0012"),
        ("-485", "999S", "485-"),
        ("485", "S999", "+485"),
        ("-485", "999MI", "485-"),
        ("-485", "999PR", "<485>"),
        ("12345", "999", " ###"),
        ("0", "FM9.99", "0."),
        ("0", "9.99", "  .00"),
        ("-0.1", "99.99", "  -.10"),
        ("12", "9990999.9", "    0012.0"),
        ("12", "FM9990999.9", "0012."),
        ("-485", "SG999", "-485"),
        ("485", "\"Good number:\"999", "Good number: 485"),
        ("485", "999MI", "485 "),
        ("5", "999S", "  5+"),
        ("-5", "S999", "  -5"),
        ("1234.5", "999,999.99", "   1,234.50"),
        ("1234567.891", "FM9,999,999.99", "1,234,567.89"),
    ] {
        assert_eq!(n(number, pattern), expected, "{number} as {pattern}");
    }
    assert_eq!(eval(call("to_char", vec![null("numeric"), lit("9")])), "NULL");
}

#[test]
fn degrees() {
    let of = |name: &str, x: f64| eval(call(name, vec![lit(x)]));
    for (name, x, expected) in [
        ("sind", 30.0, "0.5"),
        ("sind", -450.0, "-1"),
        ("cosd", 60.0, "0.5"),
        ("cosd", 180.0, "-1"),
        ("tand", 45.0, "1"),
        ("tand", 135.0, "-1"),
        ("cotd", 45.0, "1"),
        ("asind", 0.5, "30"),
        ("asind", -1.0, "-90"),
        ("acosd", 0.5, "60"),
        ("acosd", 2.0, "22003 input is out of range"),
        ("atand", 1.0, "45"),
    ] {
        assert_eq!(of(name, x), expected, "{name}({x})");
    }
    assert_eq!(eval(call("atan2d", vec![lit(1.0), lit(-1.0)])), "135");
}

#[test]
fn times_from_parts() {
    let ints = |values: &[i32]| values.iter().map(|v| lit(*v)).collect::<Vec<_>>();
    assert_eq!(eval(call("make_date", ints(&[2024, 2, 29]))), "2024-02-29");
    assert_eq!(eval(call("make_date", ints(&[-44, 3, 15]))), "0044-03-15 BC");
    assert_eq!(eval(call("make_date", ints(&[2023, 2, 29]))), "22008 date field value out of range: 2023-02-29");
    let mut parts = ints(&[2024, 7, 1, 12, 30]);
    parts.push(lit(1.5));
    assert_eq!(eval(call("make_timestamp", parts.clone())), "2024-07-01 12:30:01.5");
    parts.push(lit("Europe/Berlin"));
    assert_eq!(eval(call("make_timestamptz", parts)), "2024-07-01 10:30:01.5+00");
    assert_eq!(eval(call("make_interval", ints(&[1, 2, 1, 3]))), "1 year 2 mons 10 days");
    let tidy = |name: &str, i: &str| eval(call(name, vec![value("interval", i)]));
    assert_eq!(tidy("justify_hours", "27:00"), "1 day 03:00:00");
    assert_eq!(tidy("justify_days", "35 days"), "1 mon 5 days");
    assert_eq!(tidy("justify_interval", "1 mon -1 hour"), "29 days 23:00:00");
    let by = |text: &str, pattern: &str| eval(call("to_timestamp", vec![lit(text), lit(pattern)]));
    assert_eq!(by("2024-02-29 12:34:56", "YYYY-MM-DD HH24:MI:SS"), "2024-02-29 12:34:56+00");
    assert_eq!(by("05 Dec 2000", "DD Mon YYYY"), "2000-12-05 00:00:00+00");
    assert_eq!(by("20240229 0130 PM", "YYYYMMDD HH12MI PM"), "2024-02-29 13:30:00+00");
    assert_eq!(by("12:30:01.5", "HH24:MI:SS.MS"), "0001-01-01 12:30:01.5+00 BC");
    assert_eq!(by("2024-13-01", "YYYY-MM-DD"), "22008 date/time field value out of range: \"2024-13-01\"");
    assert_eq!(eval(call("to_date", vec![lit("2024/02/29"), lit("YYYY/MM/DD")])), "2024-02-29");
}

#[test]
fn results_have_the_declared_types() {
    let of = |expr: Expr| {
        let schema = DFSchema::try_from(Schema::empty()).unwrap();
        use datafusion::logical_expr::ExprSchemable;
        expr.get_type(&schema).unwrap()
    };
    assert_eq!(of(call("pg_cast", vec![lit("1"), lit("numeric(10,2)")])), DataType::Decimal128(10, 2));
    assert_eq!(
        of(call("date_trunc", vec![lit("day"), value("timestamp with time zone", "2024-01-01")])),
        SqlType::TimestampTz.to_arrow()
    );
    assert_eq!(of(call("jsonb_get_text", vec![value("jsonb", "1"), lit("a")])), DataType::Utf8);
}
