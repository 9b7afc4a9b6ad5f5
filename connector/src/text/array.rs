//! Arrays from PostgreSQL's text, `{1,NULL,"a b",{2}}`.

use super::{MALFORMED, Reason};

/// Levels of arrays inside each other.
const DEPTH_MAX: usize = 6;

/// A piece of an array's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    Null,
    Text(String),
    Array(Vec<Item>),
}

/// Cuts an array's text into its items.
pub fn parse_array(text: &str) -> Result<Vec<Item>, Reason> {
    let mut rest = text.trim();
    let items = array(&mut rest, DEPTH_MAX)?;
    if rest.is_empty() { Ok(items) } else { Err(MALFORMED) }
}

fn array(rest: &mut &str, depth: usize) -> Result<Vec<Item>, Reason> {
    *rest = rest.strip_prefix('{').ok_or(MALFORMED)?.trim_start();
    if depth == 0 {
        return Err("too many dimensions");
    }
    let mut items = vec![];
    if let Some(after) = rest.strip_prefix('}') {
        *rest = after;
        return Ok(items);
    }
    loop {
        *rest = rest.trim_start();
        items.push(match rest.chars().next() {
            Some('{') => Item::Array(array(rest, depth - 1)?),
            Some('"') => Item::Text(quoted(rest)?),
            _ => plain(rest)?,
        });
        *rest = rest.trim_start();
        let separator = rest.chars().next().ok_or(MALFORMED)?;
        *rest = &rest[separator.len_utf8()..];
        match separator {
            ',' => {}
            '}' => return Ok(items),
            _ => return Err(MALFORMED),
        }
    }
}

fn quoted(rest: &mut &str) -> Result<String, Reason> {
    let mut out = String::new();
    let mut chars = rest.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => {
                *rest = &rest[at + 1..];
                return Ok(out);
            }
            '\\' => out.push(chars.next().ok_or(MALFORMED)?.1),
            _ => out.push(c),
        }
    }
    Err(MALFORMED)
}

fn plain(rest: &mut &str) -> Result<Item, Reason> {
    let mut out = String::new();
    let mut escaped = false;
    let mut chars = rest.char_indices();
    let end = loop {
        match chars.next().ok_or(MALFORMED)? {
            (at, ',' | '}') => break at,
            (_, '{' | '"') => return Err(MALFORMED),
            (_, '\\') => {
                escaped = true;
                out.push(chars.next().ok_or(MALFORMED)?.1);
            }
            (_, c) => out.push(c),
        }
    };
    *rest = &rest[end..];
    let text = if escaped { &out } else { out.trim_end() };
    match text {
        "" => Err(MALFORMED),
        _ if !escaped && text.eq_ignore_ascii_case("null") => Ok(Item::Null),
        _ => Ok(Item::Text(text.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items() {
        let text = |t: &str| Item::Text(t.into());
        assert_eq!(parse_array("{}"), Ok(vec![]));
        assert_eq!(parse_array(" { 1 , NULL,\"a \\\"b\"} "), Ok(vec![text("1"), Item::Null, text("a \"b")]));
        assert_eq!(parse_array("{{é},{}}"), Ok(vec![Item::Array(vec![text("é")]), Item::Array(vec![])]));
        assert_eq!(parse_array("{\"null\",\\null,a b}"), Ok(vec![text("null"), text("null"), text("a b")]));
        for bad in ["", "{", "{1", "{1,}", "{1}}", "1", "{\"a}", "{a{b}}", "{\\", "{{{{{{{1}}}}}}}"] {
            assert!(parse_array(bad).is_err(), "{bad}");
        }
    }
}
