//! Functions that make text, and `pg_typeof`.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, StringArray, StringBuilder};
use arrow::datatypes::{DataType, Int64Type};
use chrono_tz::Tz;
use datafusion::error::Result;
use weir_common::text::{TextFormat, write_value};
use weir_common::{SqlState, SqlType};

use super::cast::text;
use super::function::{Arguments, Call, Function, argument, no_such_function, refuse};

pub(super) fn functions() -> Vec<Function> {
    vec![
        Function::new("pg_typeof", &[1], |_| Ok(DataType::Utf8), pg_typeof),
        Function::new("concat", &[], |_| Ok(DataType::Utf8), |call| concat(call, 0)),
        Function::new("concat_ws", &[], |_| Ok(DataType::Utf8), |call| concat(call, 1)),
        Function::new("split_part", &[3], |_| Ok(DataType::Utf8), split_part),
        Function::new("to_hex", &[1], to_hex_type, to_hex),
        Function::new("quote_ident", &[1], |_| Ok(DataType::Utf8), |call| each(call, quote_ident)),
        Function::new("quote_literal", &[1], |_| Ok(DataType::Utf8), |call| each(call, quote_literal)),
        Function::new("format", &[], |_| Ok(DataType::Utf8), format),
    ]
}

fn pg_typeof(call: &Call<'_>) -> Result<ArrayRef> {
    let name = match call.type_of(0) {
        DataType::Null => "unknown".to_owned(),
        DataType::Decimal128(..) | DataType::Decimal256(..) => "numeric".to_owned(),
        other => SqlType::from_arrow(&other).map_or_else(|| other.to_string(), |t| t.to_string()),
    };
    Ok(Arc::new(StringArray::from(vec![name; call.rows()])))
}

/// Each argument as text. Unlike a cast, booleans are `t` and `f`.
fn outputs(call: &Call<'_>) -> Result<Vec<ArrayRef>> {
    // An array of no type does not say that its values are NULL.
    let output = |i| match call.type_of(i) {
        DataType::Null => call.array_as(i, &DataType::Utf8),
        _ => call.array(i),
    };
    (0..call.len()).map(output).collect()
}

/// The arguments one after the other; NULLs are left out. With `separators` the first one stands between them.
fn concat(call: &Call<'_>, separators: usize) -> Result<ArrayRef> {
    let args = outputs(call)?;
    let separator = if separators > 0 { args.first().map(|a| text(a, Tz::UTC)) } else { None };
    let separator = separator.as_ref().map(|a| a.as_string::<i32>());
    let format = TextFormat::default();
    let mut builder = StringBuilder::with_capacity(call.rows(), call.rows() * 16);
    let mut out = String::new();
    for row in 0..call.rows() {
        if separator.is_some_and(|s| s.is_null(row)) {
            builder.append_null();
            continue;
        }
        out.clear();
        let mut first = true;
        for arg in args.iter().skip(separators).filter(|a| !a.is_null(row)) {
            if let (Some(separator), false) = (separator, first) {
                out.push_str(separator.value(row));
            }
            first = false;
            write_value(arg, row, &format, &mut out);
        }
        builder.append_value(&out);
    }
    Ok(Arc::new(builder.finish()))
}

fn each(call: &Call<'_>, of: fn(&str) -> String) -> Result<ArrayRef> {
    let values = text(&call.array(0)?, Tz::UTC);
    Ok(Arc::new(values.as_string::<i32>().iter().map(|v| v.map(of)).collect::<StringArray>()))
}

fn quote_ident(name: &str) -> String {
    let plain = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    if plain { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}

fn quote_literal(text: &str) -> String {
    let escape = if text.contains('\\') { "E" } else { "" };
    format!("{escape}'{}'", text.replace('\'', "''").replace('\\', "\\\\"))
}

/// Part `n` of a text between delimiters, from 1; from the end if negative.
fn split_part(call: &Call<'_>) -> Result<ArrayRef> {
    let (texts, delimiters) = (call.array_as(0, &DataType::Utf8)?, call.array_as(1, &DataType::Utf8)?);
    let numbers = call.array_as(2, &DataType::Int64)?;
    let (texts, delimiters) = (texts.as_string::<i32>(), delimiters.as_string::<i32>());
    let numbers = numbers.as_primitive::<Int64Type>();
    let mut builder = StringBuilder::new();
    for row in 0..call.rows() {
        if texts.is_null(row) || delimiters.is_null(row) || numbers.is_null(row) {
            builder.append_null();
        } else {
            builder.append_value(part(texts.value(row), delimiters.value(row), numbers.value(row))?);
        }
    }
    Ok(Arc::new(builder.finish()))
}

fn part<'a>(text: &'a str, delimiter: &str, number: i64) -> Result<&'a str> {
    let index = usize::try_from(number.unsigned_abs()).unwrap_or(usize::MAX).wrapping_sub(1);
    if number == 0 {
        return Err(refuse(SqlState::INVALID_PARAMETER_VALUE, "field position must not be zero"));
    }
    // Nothing splits it: the text is the only part.
    if delimiter.is_empty() {
        return Ok(if index == 0 { text } else { "" });
    }
    let found = if number > 0 { text.split(delimiter).nth(index) } else { text.rsplit(delimiter).nth(index) };
    Ok(found.unwrap_or_default())
}

fn to_hex_type(args: &Arguments<'_>) -> Result<DataType> {
    match argument(args, 0) {
        DataType::Int16 | DataType::Int32 | DataType::Int64 | DataType::Null => Ok(DataType::Utf8),
        _ => Err(no_such_function("to_hex", args)),
    }
}

fn to_hex(call: &Call<'_>) -> Result<ArrayRef> {
    let wide = call.type_of(0) == DataType::Int64;
    let values = call.array_as(0, &DataType::Int64)?;
    let of = |v: i64| if wide { format!("{v:x}") } else { format!("{:x}", v as i32) };
    Ok(Arc::new(values.as_primitive::<Int64Type>().iter().map(|v| v.map(of)).collect::<StringArray>()))
}

/// `format('%s %I %L %%', …)`, with positions as in `%1$s`.
fn format(call: &Call<'_>) -> Result<ArrayRef> {
    let args = outputs(call)?;
    let Some(formats) = args.first().map(|a| text(a, Tz::UTC)) else {
        return Err(refuse(SqlState::UNDEFINED_FUNCTION, "function format() does not exist"));
    };
    let formats = formats.as_string::<i32>();
    let mut builder = StringBuilder::new();
    for row in 0..call.rows() {
        if formats.is_null(row) {
            builder.append_null();
        } else {
            builder.append_value(formatted(formats.value(row), &args[1..], row)?);
        }
    }
    Ok(Arc::new(builder.finish()))
}

fn formatted(format: &str, args: &[ArrayRef], row: usize) -> Result<String> {
    let invalid = |message: &str| refuse(SqlState::INVALID_PARAMETER_VALUE, message);
    let mut out = String::new();
    let mut next = 0;
    let mut rest = format;
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('%') {
            out.push('%');
            rest = after;
            continue;
        }
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        if digits > 0 && rest[digits..].starts_with('$') {
            let position: usize = rest[..digits].parse().unwrap_or(0);
            next = position
                .checked_sub(1)
                .ok_or_else(|| invalid("format specifies argument 0, but arguments are numbered from 1"))?;
            rest = &rest[digits + 1..];
        }
        let arg = args.get(next).ok_or_else(|| invalid("too few arguments for format()"))?;
        next += 1;
        let kind = rest.chars().next().ok_or_else(|| invalid("unterminated format() type specifier"))?;
        rest = &rest[kind.len_utf8()..];
        let mut value = String::new();
        write_value(arg, row, &TextFormat::default(), &mut value);
        match (kind, arg.is_null(row)) {
            ('s', _) => out.push_str(&value),
            ('I', false) => out.push_str(&quote_ident(&value)),
            ('I', true) => return Err(invalid("null values cannot be formatted as an SQL identifier")),
            ('L', false) => out.push_str(&quote_literal(&value)),
            ('L', true) => out.push_str("NULL"),
            (other, _) => return Err(invalid(&format!("unrecognized format() type specifier \"{other}\""))),
        }
    }
    out.push_str(rest);
    Ok(out)
}
