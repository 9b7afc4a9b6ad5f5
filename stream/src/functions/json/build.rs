//! jsonb made out of other values.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::DataType;
use datafusion::error::Result;
use weir_common::json::{Json, write_string};
use weir_common::text::{TextFormat, write_value};
use weir_common::{SqlState, SqlType};

use super::super::function::argument;
use super::{Call, Function, JSONB, collect, documents, invalid, parse, refuse};

/// Blanks before a line, per level, in pretty JSON.
const INDENT: usize = 4;

pub(super) fn functions() -> Vec<Function> {
    vec![
        Function::new("jsonb_build_array", &[], |_| Ok(JSONB), build_array).alias("json_build_array"),
        Function::new("jsonb_build_object", &[], |_| Ok(JSONB), build_object).alias("json_build_object"),
        Function::new("to_jsonb", &[1], |args| argument_is_known(argument(args, 0)), to_jsonb)
            .alias("to_json")
            .alias("row_to_json"),
        Function::new("jsonb_pretty", &[1], |_| Ok(DataType::Utf8), pretty),
    ]
}

fn argument_is_known(data_type: &DataType) -> Result<DataType> {
    match SqlType::from_arrow(data_type) {
        Some(_) => Ok(JSONB),
        None => Err(refuse(SqlState::FEATURE_NOT_SUPPORTED, format!("to_jsonb of {data_type} is not supported"))),
    }
}

fn arrays(call: &Call<'_>) -> Result<Vec<ArrayRef>> {
    // An array of no type does not say that its values are NULL.
    let array = |i| match call.type_of(i) {
        DataType::Null => call.array_as(i, &DataType::Utf8),
        _ => call.array(i),
    };
    (0..call.len()).map(array).collect()
}

fn build_array(call: &Call<'_>) -> Result<ArrayRef> {
    let args = arrays(call)?;
    collect(call, |row, out| {
        out.push('[');
        for (i, arg) in args.iter().enumerate() {
            out.push_str(if i == 0 { "" } else { ", " });
            write_json(arg, row, out);
        }
        out.push(']');
        Ok(true)
    })
}

fn build_object(call: &Call<'_>) -> Result<ArrayRef> {
    let args = arrays(call)?;
    if args.len() % 2 != 0 {
        return Err(invalid("argument list must have even number of elements"));
    }
    collect(call, |row, out| {
        let mut object = String::from("{");
        for (i, pair) in args.chunks_exact(2).enumerate() {
            if pair[0].is_null(row) {
                return Err(invalid(format!("argument {}: key must not be null", 2 * i + 1)));
            }
            object.push_str(if i == 0 { "" } else { ", " });
            let mut key = String::new();
            write_value(&pair[0], row, &TextFormat::default(), &mut key);
            write_string(&key, &mut object);
            object.push_str(": ");
            write_json(&pair[1], row, &mut object);
        }
        object.push('}');
        // Puts the members in order.
        parse(&object)?.write_normal(out);
        Ok(true)
    })
}

fn to_jsonb(call: &Call<'_>) -> Result<ArrayRef> {
    let values = call.array(0)?;
    collect(call, |row, out| {
        if values.is_null(row) {
            return Ok(false);
        }
        let mut json = String::new();
        write_json(&values, row, &mut json);
        parse(&json)?.write_normal(out);
        Ok(true)
    })
}

/// Appends a value of any type as JSON.
fn write_json(array: &dyn Array, row: usize, out: &mut String) {
    if array.is_null(row) {
        return out.push_str("null");
    }
    match array.data_type() {
        DataType::Boolean => out.push_str(if array.as_boolean().value(row) { "true" } else { "false" }),
        DataType::LargeUtf8 => out.push_str(array.as_string::<i64>().value(row)),
        DataType::List(_) => {
            let items = array.as_list::<i32>().value(row);
            out.push('[');
            for i in 0..items.len() {
                out.push_str(if i == 0 { "" } else { ", " });
                write_json(&items, i, out);
            }
            out.push(']');
        }
        DataType::Struct(fields) => {
            out.push('{');
            for (i, (field, column)) in fields.iter().zip(array.as_struct().columns()).enumerate() {
                out.push_str(if i == 0 { "" } else { ", " });
                write_string(field.name(), out);
                out.push_str(": ");
                write_json(column, row, out);
            }
            out.push('}');
        }
        other => {
            let mut text = String::new();
            write_value(array, row, &TextFormat::default(), &mut text);
            match other {
                DataType::Timestamp(_, zone) => write_string(&iso(text, zone.is_some()), out),
                // NaN and infinities are no numbers in JSON.
                t if t.is_numeric() && text.ends_with(|c: char| c.is_ascii_digit()) => out.push_str(&text),
                _ => write_string(&text, out),
            }
        }
    }
}

/// A timestamp as ISO 8601 writes it: with a T, and minutes in the zone.
fn iso(text: String, with_zone: bool) -> String {
    let text = text.replacen(' ', "T", 1);
    let short = text.rfind(['+', '-']).is_some_and(|sign| text.len() - sign == 3);
    if with_zone && short { text + ":00" } else { text }
}

fn pretty(call: &Call<'_>) -> Result<ArrayRef> {
    let values = documents(call, 0)?;
    collect(call, |row, out| {
        if values.is_null(row) {
            return Ok(false);
        }
        write_pretty(&parse(values.value(row))?, 0, out);
        Ok(true)
    })
}

fn write_pretty(value: &Json<'_>, level: usize, out: &mut String) {
    let line = |level: usize, out: &mut String| {
        out.push('\n');
        out.extend(std::iter::repeat_n(' ', level * INDENT));
    };
    match value {
        Json::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                out.push_str(if i == 0 { "" } else { "," });
                line(level + 1, out);
                write_pretty(item, level + 1, out);
            }
            line(level, out);
            out.push(']');
        }
        Json::Object(members) => {
            out.push('{');
            for (i, (key, member)) in members.iter().enumerate() {
                out.push_str(if i == 0 { "" } else { "," });
                line(level + 1, out);
                write_string(key, out);
                out.push_str(": ");
                write_pretty(member, level + 1, out);
            }
            line(level, out);
            out.push('}');
        }
        scalar => scalar.write_normal(out),
    }
}
