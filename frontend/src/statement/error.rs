//! Errors of the parser, in PostgreSQL's words.

use datafusion::sql::sqlparser::parser::ParserError;

use crate::error::SqlError;

/// A parser's error. `found: x at Line: 1, Column: 2` in its text becomes `syntax error at or near "x"` with that place.
pub(crate) fn parser_error(error: &ParserError) -> SqlError {
    let message = match error {
        ParserError::ParserError(message) | ParserError::TokenizerError(message) => message,
        ParserError::RecursionLimitExceeded => {
            return super::depth::too_deep();
        }
    };
    let (text, place) = split_place(message);
    let found = text.rsplit_once("found: ").map(|(_, found)| found.trim());
    let error = match found {
        Some("EOF") => SqlError::syntax("syntax error at end of input"),
        Some(found) => SqlError::syntax(format!("syntax error at or near \"{found}\"")),
        None if text.starts_with("Unterminated") => SqlError::syntax(unterminated(text)),
        None => SqlError::syntax(format!("syntax error: {}", text.trim_start_matches("sql parser error: "))),
    };
    match place {
        Some((line, column)) => error.at(line, column),
        None => error,
    }
}

fn unterminated(text: &str) -> &'static str {
    let lower = text.to_ascii_lowercase();
    if lower.contains("dollar") {
        "unterminated dollar-quoted string"
    } else if lower.contains("comment") {
        "unterminated /* comment"
    } else {
        "unterminated quoted string"
    }
}

/// Cuts ` at Line: 1, Column: 2` off.
fn split_place(message: &str) -> (&str, Option<(u64, u64)>) {
    let parse = || {
        let (text, place) = message.rsplit_once(" at Line: ")?;
        let (line, column) = place.split_once(", Column: ")?;
        Some((text, (line.trim().parse().ok()?, column.trim().parse().ok()?)))
    };
    match parse() {
        Some((text, place)) => (text, Some(place)),
        None => (message, None),
    }
}
