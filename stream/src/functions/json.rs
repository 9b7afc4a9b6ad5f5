//! Functions and operators of jsonb. Values come and go in jsonb's normal form, so equal values are equal texts.
//!
//! Here are those that look into a value; [`change`] has those that change one, [`build`] those that make one.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, GenericStringBuilder, Int32Array, LargeStringArray, LargeStringBuilder,
    ListBuilder, OffsetSizeTrait, StringArray, StringBuilder,
};
use arrow::datatypes::{DataType, Field, Int64Type};
use datafusion::error::{DataFusionError, Result};
use weir_common::json::{Json, normalize};
use weir_common::{SqlState, SqlType};

use super::function::{Call, Function, convert, refuse};

mod build;
mod change;

const JSONB: DataType = DataType::LargeUtf8;

fn list_of(item: DataType) -> DataType {
    DataType::List(Arc::new(Field::new("item", item, true)))
}

pub(super) fn functions() -> Vec<Function> {
    let here = vec![
        Function::new("jsonb_get", &[2], |_| Ok(JSONB), |call| step(call, member_or_item, as_json)),
        Function::new("jsonb_get_text", &[2], |_| Ok(DataType::Utf8), |call| step(call, member_or_item, as_text)),
        Function::new("jsonb_get_path", &[2], |_| Ok(JSONB), |call| walk(call, as_json)),
        Function::new("jsonb_get_path_text", &[2], |_| Ok(DataType::Utf8), |call| walk(call, as_text)),
        Function::new("jsonb_extract_path", &[], |_| Ok(JSONB), |call| walk_args(call, as_json)),
        Function::new("jsonb_extract_path_text", &[], |_| Ok(DataType::Utf8), |call| walk_args(call, as_text)),
        Function::new("jsonb_contains", &[2], |_| Ok(DataType::Boolean), |call| compare(call, contains)),
        Function::new("jsonb_contained", &[2], |_| Ok(DataType::Boolean), |call| compare(call, |a, b| contains(b, a))),
        Function::new("jsonb_exists", &[2], |_| Ok(DataType::Boolean), exists_one),
        Function::new("jsonb_exists_any", &[2], |_| Ok(DataType::Boolean), |call| exists(call, false)),
        Function::new("jsonb_exists_all", &[2], |_| Ok(DataType::Boolean), |call| exists(call, true)),
        Function::new("jsonb_typeof", &[1], |_| Ok(DataType::Utf8), type_of).alias("json_typeof"),
        Function::new("jsonb_array_length", &[1], |_| Ok(DataType::Int32), array_length).alias("json_array_length"),
        Function::new("jsonb_elements", &[1], |_| Ok(list_of(JSONB)), elements),
        Function::new("jsonb_elements_text", &[1], |_| Ok(list_of(DataType::Utf8)), elements_text),
        Function::new("jsonb_keys", &[1], |_| Ok(list_of(DataType::Utf8)), keys),
    ];
    here.into_iter().chain(change::functions()).chain(build::functions()).collect()
}

fn parse(text: &str) -> Result<Json<'_>> {
    Json::parse(text).map_err(|e| refuse(SqlState::INVALID_TEXT, format!("invalid input syntax for type json: {e}")))
}

fn invalid(message: impl Into<String>) -> DataFusionError {
    refuse(SqlState::INVALID_PARAMETER_VALUE, message)
}

/// Argument `i` as jsonb. A text is read as JSON, for functions may be called with a literal.
fn documents(call: &Call<'_>, i: usize) -> Result<LargeStringArray> {
    let array = call.array(i)?;
    match array.data_type() {
        DataType::Utf8 | DataType::Utf8View => {
            let texts = convert(&array, &DataType::Utf8)?;
            let normal = |text: &str| {
                normalize(text)
                    .map_err(|e| refuse(SqlState::INVALID_TEXT, format!("invalid input syntax for type json: {e}")))
            };
            texts.as_string::<i32>().iter().map(|t| t.map(normal).transpose()).collect()
        }
        _ => Ok(convert(&array, &JSONB)?.as_string::<i64>().clone()),
    }
}

fn texts(call: &Call<'_>, i: usize) -> Result<StringArray> {
    Ok(call.array_as(i, &DataType::Utf8)?.as_string().clone())
}

/// Argument `i` as lists of texts: the steps of a path.
fn paths(call: &Call<'_>, i: usize) -> Result<Vec<Option<Vec<Option<String>>>>> {
    let array = match call.type_of(i) {
        DataType::Utf8 | DataType::Utf8View => {
            super::cast::cast(&call.array(i)?, &SqlType::Array(Box::new(SqlType::Varchar)), chrono_tz::Tz::UTC)?
        }
        _ => call.array_as(i, &list_of(DataType::Utf8))?,
    };
    let lists = array.as_list::<i32>();
    let path = |row: usize| {
        lists.is_valid(row).then(|| {
            let steps = lists.value(row);
            steps.as_string::<i32>().iter().map(|s| s.map(str::to_owned)).collect()
        })
    };
    Ok((0..lists.len()).map(path).collect())
}

/// Writes what was found; `false` makes it NULL.
type Show = fn(&Json<'_>, &mut String) -> bool;

fn as_json(value: &Json<'_>, out: &mut String) -> bool {
    value.write_normal(out);
    true
}

fn as_text(value: &Json<'_>, out: &mut String) -> bool {
    match value {
        Json::Null => return false,
        Json::String(text) => out.push_str(text),
        other => other.write_normal(out),
    }
    true
}

/// A column of jsonb or text, by the type of the call's result.
fn collect(call: &Call<'_>, of: impl FnMut(usize, &mut String) -> Result<bool>) -> Result<ArrayRef> {
    fn build<O: OffsetSizeTrait>(
        rows: usize,
        mut of: impl FnMut(usize, &mut String) -> Result<bool>,
    ) -> Result<ArrayRef> {
        let mut builder = GenericStringBuilder::<O>::with_capacity(rows, rows * 16);
        let mut out = String::new();
        for row in 0..rows {
            out.clear();
            if of(row, &mut out)? {
                builder.append_value(&out);
            } else {
                builder.append_null();
            }
        }
        Ok(Arc::new(builder.finish()))
    }
    if *call.result_type() == JSONB { build::<i64>(call.rows(), of) } else { build::<i32>(call.rows(), of) }
}

/// A step into a value: by a name, or by a number.
enum Step<'a> {
    Name(&'a str),
    Number(i64),
}

fn member_or_item<'a, 'b>(value: &'a Json<'b>, step: &Step<'_>) -> Option<&'a Json<'b>> {
    match (value, step) {
        (Json::Object(_), Step::Name(name)) => value.get(name),
        (Json::Array(items), Step::Number(n)) => item(items, *n),
        _ => None,
    }
}

/// Counted from 0; from the end if negative.
fn item<'a, 'b>(items: &'a [Json<'b>], number: i64) -> Option<&'a Json<'b>> {
    index(items.len(), number).and_then(|i| items.get(i))
}

fn index(len: usize, number: i64) -> Option<usize> {
    let number = if number < 0 { number.checked_add(i64::try_from(len).ok()?)? } else { number };
    usize::try_from(number).ok()
}

type Find = for<'a, 'b> fn(&'a Json<'b>, &Step<'_>) -> Option<&'a Json<'b>>;

fn step(call: &Call<'_>, find: Find, show: Show) -> Result<ArrayRef> {
    let values = documents(call, 0)?;
    let number = call.type_of(1).is_integer();
    let keys = call.array_as(1, if number { &DataType::Int64 } else { &DataType::Utf8 })?;
    collect(call, |row, out| {
        if values.is_null(row) || keys.is_null(row) {
            return Ok(false);
        }
        let step = match number {
            true => Step::Number(keys.as_primitive::<Int64Type>().value(row)),
            false => Step::Name(keys.as_string::<i32>().value(row)),
        };
        Ok(find(&parse(values.value(row))?, &step).is_some_and(|found| show(found, out)))
    })
}

/// What a path leads to: names of members, and numbers of items.
fn follow<'a, 'b>(value: &'a Json<'b>, path: &[Option<String>]) -> Option<&'a Json<'b>> {
    path.iter().try_fold(value, |value, step| match value {
        Json::Object(_) => value.get(step.as_deref()?),
        Json::Array(items) => item(items, step.as_deref()?.trim().parse().ok()?),
        _ => None,
    })
}

fn walk(call: &Call<'_>, show: Show) -> Result<ArrayRef> {
    let (values, paths) = (documents(call, 0)?, paths(call, 1)?);
    collect(call, |row, out| {
        let (Some(path), true) = (&paths[row], values.is_valid(row)) else { return Ok(false) };
        Ok(follow(&parse(values.value(row))?, path).is_some_and(|found| show(found, out)))
    })
}

/// The same with a step per argument.
fn walk_args(call: &Call<'_>, show: Show) -> Result<ArrayRef> {
    if call.len() == 0 {
        return Err(refuse(SqlState::UNDEFINED_FUNCTION, "a path starts at a value"));
    }
    let values = documents(call, 0)?;
    let steps = (1..call.len()).map(|i| texts(call, i)).collect::<Result<Vec<_>>>()?;
    collect(call, |row, out| {
        if values.is_null(row) || steps.iter().any(|s| s.is_null(row)) {
            return Ok(false);
        }
        let path: Vec<_> = steps.iter().map(|s| Some(s.value(row).to_owned())).collect();
        Ok(follow(&parse(values.value(row))?, &path).is_some_and(|found| show(found, out)))
    })
}

fn compare(call: &Call<'_>, of: fn(&Json<'_>, &Json<'_>) -> bool) -> Result<ArrayRef> {
    let (a, b) = (documents(call, 0)?, documents(call, 1)?);
    let pairs = a.iter().zip(b.iter()).map(|(a, b)| match (a, b) {
        (Some(a), Some(b)) => Ok(Some(of(&parse(a)?, &parse(b)?))),
        _ => Ok(None),
    });
    Ok(Arc::new(pairs.collect::<Result<BooleanArray>>()?))
}

/// `a @> b`. An array also contains a scalar that is one of its items.
fn contains(a: &Json<'_>, b: &Json<'_>) -> bool {
    match (a, b) {
        (Json::Array(items), scalar) if !is_container(scalar) => items.iter().any(|item| equal(item, scalar)),
        _ => contains_same_kind(a, b),
    }
}

fn contains_same_kind(a: &Json<'_>, b: &Json<'_>) -> bool {
    match (a, b) {
        (Json::Object(_), Json::Object(members)) => {
            members.iter().all(|(key, wanted)| a.get(key).is_some_and(|found| contains_same_kind(found, wanted)))
        }
        (Json::Array(items), Json::Array(wanted)) => {
            wanted.iter().all(|wanted| items.iter().any(|item| contains_same_kind(item, wanted)))
        }
        _ => !is_container(a) && equal(a, b),
    }
}

fn is_container(value: &Json<'_>) -> bool {
    matches!(value, Json::Array(_) | Json::Object(_))
}

/// Equal in SQL: numbers that differ in zeros at the end are.
fn equal(a: &Json<'_>, b: &Json<'_>) -> bool {
    match (a, b) {
        (Json::Number(a), Json::Number(b)) => significant(a) == significant(b),
        _ => a == b,
    }
}

fn significant(number: &str) -> &str {
    if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number }
}

fn has(value: &Json<'_>, name: &str) -> bool {
    let is_name = |item: &Json<'_>| matches!(item, Json::String(text) if text == name);
    match value {
        Json::Object(_) => value.get(name).is_some(),
        Json::Array(items) => items.iter().any(is_name),
        scalar => is_name(scalar),
    }
}

fn exists_one(call: &Call<'_>) -> Result<ArrayRef> {
    let (values, names) = (documents(call, 0)?, texts(call, 1)?);
    let pairs = values.iter().zip(names.iter()).map(|(value, name)| match (value, name) {
        (Some(value), Some(name)) => Ok(Some(has(&parse(value)?, name))),
        _ => Ok(None),
    });
    Ok(Arc::new(pairs.collect::<Result<BooleanArray>>()?))
}

/// Whether all the names, or any of them, are there.
fn exists(call: &Call<'_>, all: bool) -> Result<ArrayRef> {
    let (values, names) = (documents(call, 0)?, paths(call, 1)?);
    let pairs = values.iter().zip(&names).map(|(value, names)| match (value, names) {
        (Some(value), Some(names)) => {
            let value = parse(value)?;
            let mut found = names.iter().flatten().map(|name| has(&value, name));
            Ok(Some(if all { found.all(|f| f) } else { found.any(|f| f) }))
        }
        _ => Ok(None),
    });
    Ok(Arc::new(pairs.collect::<Result<BooleanArray>>()?))
}

fn kind(value: &Json<'_>) -> &'static str {
    match value {
        Json::Null => "null",
        Json::Bool(_) => "boolean",
        Json::Number(_) => "number",
        Json::String(_) => "string",
        Json::Array(_) => "array",
        Json::Object(_) => "object",
    }
}

fn type_of(call: &Call<'_>) -> Result<ArrayRef> {
    let values = documents(call, 0)?;
    let kinds = values.iter().map(|v| v.map(|v| Ok(kind(&parse(v)?))).transpose());
    Ok(Arc::new(kinds.collect::<Result<StringArray>>()?))
}

fn array_length(call: &Call<'_>) -> Result<ArrayRef> {
    let length = |value: &str| match parse(value)? {
        Json::Array(items) => Ok(items.len() as i32),
        Json::Object(_) => Err(invalid("cannot get array length of a non-array")),
        _ => Err(invalid("cannot get array length of a scalar")),
    };
    let lengths = documents(call, 0)?.iter().map(|v| v.map(length).transpose()).collect::<Result<Int32Array>>()?;
    Ok(Arc::new(lengths))
}

/// What a jsonb array holds, or why it is none.
fn items(value: &str) -> Result<Vec<Json<'_>>> {
    match parse(value)? {
        Json::Array(items) => Ok(items),
        Json::Object(_) => Err(invalid("cannot extract elements from an object")),
        _ => Err(invalid("cannot extract elements from a scalar")),
    }
}

fn elements(call: &Call<'_>) -> Result<ArrayRef> {
    let values = documents(call, 0)?;
    let mut lists = ListBuilder::new(LargeStringBuilder::new());
    for value in &values {
        if let Some(value) = value {
            for item in items(value)? {
                lists.values().append_value(item.to_string());
            }
        }
        lists.append(value.is_some());
    }
    Ok(Arc::new(lists.finish()))
}

fn elements_text(call: &Call<'_>) -> Result<ArrayRef> {
    let values = documents(call, 0)?;
    let mut lists = ListBuilder::new(StringBuilder::new());
    for value in &values {
        if let Some(value) = value {
            for item in items(value)? {
                let mut out = String::new();
                let shown = as_text(&item, &mut out);
                lists.values().append_option(shown.then_some(out));
            }
        }
        lists.append(value.is_some());
    }
    Ok(Arc::new(lists.finish()))
}

fn keys(call: &Call<'_>) -> Result<ArrayRef> {
    let values = documents(call, 0)?;
    let mut lists = ListBuilder::new(StringBuilder::new());
    for value in &values {
        if let Some(value) = value {
            match parse(value)? {
                Json::Object(members) => members.iter().for_each(|(key, _)| lists.values().append_value(key)),
                Json::Array(_) => return Err(invalid("cannot call jsonb_object_keys on an array")),
                _ => return Err(invalid("cannot call jsonb_object_keys on a scalar")),
            }
        }
        lists.append(value.is_some());
    }
    Ok(Arc::new(lists.finish()))
}
