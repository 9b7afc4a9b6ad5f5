//! Arrays and records from text.

use super::{Builder, Result, TextColumn, is_space, trim};
use crate::error::{SqlState, ValueError};

/// Cuts `{1,NULL,"a b"}` into its elements, NULL being `None`. Elements that are arrays themselves (`nested`) come as they
/// are written, others without quotes.
pub fn split_array(text: &str, nested: bool) -> Result<Vec<Option<String>>> {
    let malformed = || ValueError::new(SqlState::INVALID_TEXT, format!("malformed array literal: \"{text}\""));
    let inner = trim(text).strip_prefix('{').and_then(|t| t.strip_suffix('}')).ok_or_else(malformed)?;
    if trim(inner).is_empty() {
        return Ok(Vec::new());
    }
    split_items(inner, nested).ok_or_else(malformed)
}

/// Reads `{1,NULL,"a b"}` and appends its elements. Returns how many there are.
pub(super) fn append_items(text: &str, items: &mut TextColumn) -> Result<usize> {
    let nested = matches!(items.builder, Builder::Array { .. });
    let elements = split_array(text, nested)?;
    for element in &elements {
        match element {
            Some(text) => items.append(text)?,
            None => items.append_null(),
        }
    }
    Ok(elements.len())
}

/// The elements between the outer braces, unquoted; those that are arrays as they are.
fn split_items(text: &str, nested: bool) -> Option<Vec<Option<String>>> {
    let mut elements = Vec::new();
    let mut chars = text.chars().peekable();
    loop {
        while chars.next_if(|c| is_space(*c)).is_some() {}
        let element = match chars.peek()? {
            '{' if nested => Some(braces(&mut chars)?),
            '"' if !nested => Some(quoted(&mut chars)?),
            _ => {
                let (word, escaped) = unquoted(&mut chars)?;
                if word.is_empty() && !escaped {
                    return None;
                }
                let null = word.eq_ignore_ascii_case("null") && !escaped;
                if nested && !null {
                    return None;
                }
                (!null).then_some(word)
            }
        };
        elements.push(element);
        while chars.next_if(|c| is_space(*c)).is_some() {}
        match chars.next() {
            Some(',') => {}
            None => return Some(elements),
            Some(_) => return None,
        }
    }
}

type Chars<'a> = std::iter::Peekable<std::str::Chars<'a>>;

/// An array within an array, with its braces.
fn braces(chars: &mut Chars<'_>) -> Option<String> {
    let mut depth = 0;
    let mut in_quotes = false;
    let mut text = String::new();
    loop {
        let c = chars.next()?;
        text.push(c);
        match c {
            '\\' => text.push(chars.next()?),
            '"' => in_quotes = !in_quotes,
            '{' if !in_quotes => depth += 1,
            '}' if !in_quotes => {
                depth -= 1;
                if depth == 0 {
                    return Some(text);
                }
            }
            _ => {}
        }
    }
}

/// A word in quotes, without them.
fn quoted(chars: &mut Chars<'_>) -> Option<String> {
    let mut text = String::new();
    chars.next();
    loop {
        match chars.next()? {
            '"' => return Some(text),
            '\\' => text.push(chars.next()?),
            c => text.push(c),
        }
    }
}

/// A word without quotes and the spaces around it, and whether it has a backslash.
fn unquoted(chars: &mut Chars<'_>) -> Option<(String, bool)> {
    let mut text = String::new();
    let mut keep = 0;
    let mut escaped = false;
    while let Some(c) = chars.next_if(|c| *c != ',') {
        match c {
            '{' | '}' | '"' => return None,
            '\\' => {
                escaped = true;
                text.push(chars.next()?);
                keep = text.len();
            }
            c => {
                text.push(c);
                if !is_space(c) {
                    keep = text.len();
                }
            }
        }
    }
    text.truncate(keep);
    Some((text, escaped))
}

/// Reads `(1,"a b",)` and appends each field to its column.
pub(super) fn append_fields(text: &str, fields: &mut [(String, TextColumn)]) -> Result<()> {
    let malformed = || ValueError::new(SqlState::INVALID_TEXT, format!("malformed record literal: \"{text}\""));
    let inner = trim(text).strip_prefix('(').and_then(|t| t.strip_suffix(')')).ok_or_else(malformed)?;
    let values = split_fields(inner).ok_or_else(malformed)?;
    // A record without columns is written as one without fields.
    let none = fields.is_empty() && values == [None];
    if values.len() != fields.len() && !none {
        return Err(malformed());
    }
    for ((_, column), value) in fields.iter_mut().zip(&values) {
        match value {
            Some(text) => column.append(text)?,
            None => column.append_null(),
        }
    }
    Ok(())
}

/// The fields between the parentheses; one that is empty and without quotes is NULL.
fn split_fields(text: &str) -> Option<Vec<Option<String>>> {
    let mut fields = Vec::new();
    let mut chars = text.chars().peekable();
    loop {
        let mut field = String::new();
        let mut quotes = false;
        let mut in_quotes = false;
        loop {
            match chars.peek() {
                None if in_quotes => return None,
                None => break,
                Some(',') if !in_quotes => break,
                Some(_) => {}
            }
            match chars.next()? {
                '\\' => field.push(chars.next()?),
                '"' if in_quotes && chars.next_if_eq(&'"').is_some() => field.push('"'),
                '"' => (quotes, in_quotes) = (true, !in_quotes),
                '(' | ')' if !in_quotes => return None,
                c => field.push(c),
            }
        }
        fields.push((quotes || !field.is_empty()).then_some(field));
        if chars.next().is_none() {
            return Some(fields);
        }
    }
}
