//! jsonb with something put in or taken out.

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, LargeStringArray};
use arrow::datatypes::{DataType, Int64Type};
use datafusion::error::Result;
use weir_common::json::Json;

use super::{Call, Function, JSONB, collect, documents, index, invalid, is_container, parse, paths, texts};

pub(super) fn functions() -> Vec<Function> {
    vec![
        Function::new("jsonb_concat", &[2], |_| Ok(JSONB), concat),
        Function::new("jsonb_delete", &[2], |_| Ok(JSONB), delete),
        Function::new("jsonb_delete_path", &[2], |_| Ok(JSONB), delete_path),
        Function::new("jsonb_strip_nulls", &[1], |_| Ok(JSONB), strip_nulls),
        Function::new("jsonb_set", &[3, 4], |_| Ok(JSONB), set),
    ]
}

/// Objects are merged, the right one wins; anything else is put together as arrays.
fn concat(call: &Call<'_>) -> Result<ArrayRef> {
    let (a, b) = (documents(call, 0)?, documents(call, 1)?);
    collect(call, |row, out| {
        if a.is_null(row) || b.is_null(row) {
            return Ok(false);
        }
        match (parse(a.value(row))?, parse(b.value(row))?) {
            (Json::Object(mut members), Json::Object(more)) => {
                members.extend(more);
                Json::Object(members).write_normal(out);
            }
            (a, b) => {
                let mut items = if let Json::Array(items) = a { items } else { vec![a] };
                if let Json::Array(more) = b {
                    items.extend(more)
                } else {
                    items.push(b)
                }
                Json::Array(items).write_normal(out);
            }
        }
        Ok(true)
    })
}

/// Without a member or the strings equal to a name, without several of them, or without an item.
fn delete(call: &Call<'_>) -> Result<ArrayRef> {
    let values = documents(call, 0)?;
    let key_type = call.type_of(1);
    if key_type.is_integer() {
        let numbers = call.array_as(1, &DataType::Int64)?;
        let numbers = numbers.as_primitive::<Int64Type>();
        return change(call, &values, |row, value| {
            if numbers.is_null(row) {
                return Ok(None);
            }
            match value {
                Json::Object(_) => Err(invalid("cannot delete from object using integer index")),
                Json::Array(mut items) => {
                    if let Some(i) = index(items.len(), numbers.value(row)).filter(|i| *i < items.len()) {
                        items.remove(i);
                    }
                    Ok(Some(Json::Array(items)))
                }
                _ => Err(invalid("cannot delete from scalar")),
            }
        });
    }
    let names: Vec<Option<Vec<Option<String>>>> = match key_type {
        DataType::List(_) => paths(call, 1)?,
        _ => texts(call, 1)?.iter().map(|name| name.map(|n| vec![Some(n.to_owned())])).collect(),
    };
    change(call, &values, |row, value| {
        let Some(names) = &names[row] else { return Ok(None) };
        let named = |key: &str| names.iter().flatten().any(|n| n == key);
        match value {
            Json::Object(members) => {
                Ok(Some(Json::Object(members.into_iter().filter(|(key, _)| !named(key)).collect())))
            }
            Json::Array(items) => {
                let stays = |item: &Json<'_>| !matches!(item, Json::String(text) if named(text));
                Ok(Some(Json::Array(items.into_iter().filter(stays).collect())))
            }
            _ => Err(invalid("cannot delete from scalar")),
        }
    })
}

fn delete_path(call: &Call<'_>) -> Result<ArrayRef> {
    let (values, paths) = (documents(call, 0)?, paths(call, 1)?);
    change(call, &values, |row, mut value| {
        let Some(path) = &paths[row] else { return Ok(None) };
        if !is_container(&value) {
            return Err(invalid("cannot delete path in scalar"));
        }
        delete_at(&mut value, path);
        Ok(Some(value))
    })
}

fn delete_at(value: &mut Json<'_>, path: &[Option<String>]) {
    let [Some(step), rest @ ..] = path else { return };
    match value {
        Json::Object(members) if rest.is_empty() => members.retain(|(key, _)| key != step),
        Json::Object(members) => {
            members.iter_mut().filter(|(key, _)| key == step).for_each(|(_, value)| delete_at(value, rest));
        }
        Json::Array(items) => {
            let Some(i) = step.trim().parse().ok().and_then(|n| index(items.len(), n)).filter(|i| *i < items.len())
            else {
                return;
            };
            if rest.is_empty() {
                items.remove(i);
            } else {
                delete_at(&mut items[i], rest);
            }
        }
        _ => {}
    }
}

fn strip_nulls(call: &Call<'_>) -> Result<ArrayRef> {
    fn strip(value: &mut Json<'_>) {
        match value {
            Json::Object(members) => {
                members.retain(|(_, value)| *value != Json::Null);
                members.iter_mut().for_each(|(_, value)| strip(value));
            }
            Json::Array(items) => items.iter_mut().for_each(strip),
            _ => {}
        }
    }
    let values = documents(call, 0)?;
    change(call, &values, |_, mut value| {
        strip(&mut value);
        Ok(Some(value))
    })
}

/// Each value changed; NULL stays NULL.
fn change(
    call: &Call<'_>,
    values: &LargeStringArray,
    of: impl for<'a> Fn(usize, Json<'a>) -> Result<Option<Json<'a>>>,
) -> Result<ArrayRef> {
    collect(call, |row, out| {
        if values.is_null(row) {
            return Ok(false);
        }
        let changed = of(row, parse(values.value(row))?)?;
        if let Some(changed) = &changed {
            changed.write_normal(out);
        }
        Ok(changed.is_some())
    })
}

/// A value put at a path: in the place of what is there or, unless forbidden, beside it.
fn set(call: &Call<'_>) -> Result<ArrayRef> {
    let (values, paths, new_values) = (documents(call, 0)?, paths(call, 1)?, documents(call, 2)?);
    let create = match call.len() {
        3 => BooleanArray::from(vec![true; call.rows()]),
        _ => call.array_as(3, &DataType::Boolean)?.as_boolean().clone(),
    };
    collect(call, |row, out| {
        let (Some(path), false) = (&paths[row], values.is_null(row) || new_values.is_null(row) || create.is_null(row))
        else {
            return Ok(false);
        };
        let mut value = parse(values.value(row))?;
        if !is_container(&value) {
            return Err(invalid("cannot set path in scalar"));
        }
        set_at(&mut value, path, &parse(new_values.value(row))?, create.value(row));
        value.write_normal(out);
        Ok(true)
    })
}

fn set_at<'a>(value: &mut Json<'a>, path: &[Option<String>], new: &Json<'a>, create: bool) {
    let [Some(step), rest @ ..] = path else { return };
    match value {
        Json::Object(members) => match members.iter_mut().rev().find(|(key, _)| key == step) {
            Some((_, found)) if rest.is_empty() => *found = new.clone(),
            Some((_, found)) => set_at(found, rest, new, create),
            None if rest.is_empty() && create => members.push((step.clone().into(), new.clone())),
            None => {}
        },
        Json::Array(items) => {
            let Ok(number) = step.trim().parse::<i64>() else { return };
            match index(items.len(), number).filter(|i| *i < items.len()) {
                Some(i) if rest.is_empty() => items[i] = new.clone(),
                Some(i) => set_at(&mut items[i], rest, new, create),
                None if rest.is_empty() && create && number < 0 => items.insert(0, new.clone()),
                None if rest.is_empty() && create => items.push(new.clone()),
                None => {}
            }
        }
        _ => {}
    }
}
