//! What DataFusion and Arrow say as text, in PostgreSQL's words.

use weir_common::types::SqlType;

use super::{SqlError, SqlState};

/// Functions that only windows have.
const WINDOW_FUNCTIONS: [&str; 9] =
    ["row_number", "rank", "dense_rank", "percent_rank", "cume_dist", "ntile", "lag", "lead", "nth_value"];
const CAST_HINT: &str =
    "No function matches the given name and argument types. You might need to add explicit type casts.";
const OPERATOR_HINT: &str =
    "No operator matches the given name and argument types. You might need to add explicit type casts.";

/// The first line of a message: what follows are candidates and backtraces.
pub(super) fn first_line(message: &str) -> String {
    message.lines().next().unwrap_or_default().trim_end_matches('.').trim().to_string()
}

/// A mistake found while planning.
pub(super) fn plan(message: &str) -> SqlError {
    let line = first_line(message);
    undefined(&line)
        .or_else(|| operand(&line))
        .or_else(|| no_match(&line))
        .or_else(|| grouping(&line))
        .or_else(|| value(&line))
        .or_else(|| clause(&line))
        .unwrap_or_else(|| SqlError::new(plan_state(&line), line))
}

/// A failure while running.
pub(super) fn execution(message: &str) -> SqlError {
    let line = first_line(message);
    if line.contains("ivide by zero") || line.contains("ivision by zero") {
        return SqlError::new(SqlState::DIVISION_BY_ZERO, "division by zero");
    }
    if line.contains("more than one row") {
        let message = "more than one row returned by a subquery used as an expression";
        return SqlError::new(SqlState::CARDINALITY_VIOLATION, message);
    }
    if let Some(name) = line.strip_prefix("Placeholder ").filter(|l| l.contains("was not provided")).and_then(quoted) {
        return SqlError::new(SqlState("42P02"), format!("there is no parameter {name}"));
    }
    if line.contains("regex parse error") {
        let detail = message.lines().last().unwrap_or_default();
        return SqlError::new(SqlState("2201B"), "invalid regular expression").with_detail(detail);
    }
    value(&line).or_else(|| no_match(&line)).unwrap_or_else(|| SqlError::new(SqlState::INVALID_PARAMETER_VALUE, line))
}

/// An arithmetic overflow; Arrow does not say of which type.
pub(super) fn overflow(message: &str) -> SqlError {
    value(message).unwrap_or_else(|| SqlError::new(SqlState::NUMERIC_OUT_OF_RANGE, "value out of range"))
}

/// Names that are not there.
fn undefined(line: &str) -> Option<SqlError> {
    if let Some(name) = line.strip_prefix("Invalid function ").and_then(quoted) {
        if WINDOW_FUNCTIONS.contains(&name) {
            let message = format!("window function {name} requires an OVER clause");
            return Some(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message));
        }
        let error = SqlError::new(SqlState::UNDEFINED_FUNCTION, format!("function {name} does not exist"));
        return Some(error.with_hint(CAST_HINT));
    }
    if let Some(name) = line.strip_prefix("table function ").and_then(quoted) {
        return Some(SqlError::new(SqlState::UNDEFINED_FUNCTION, format!("function {name} does not exist")));
    }
    let name = line.strip_prefix("table ").filter(|_| line.ends_with("not found")).and_then(quoted)?;
    let parts: Vec<&str> = name.split('.').collect();
    let name = match parts.as_slice() {
        [_, "public", name] => name,
        [_, rest @ ..] if rest.len() > 1 => name.split_once('.').map_or(name, |(_, rest)| rest),
        _ => name,
    };
    Some(SqlError::undefined_table(name))
}

/// Functions and operators that are not there for these types.
fn no_match(line: &str) -> Option<SqlError> {
    if let Some((_, operation)) = line.split_once("for logical boolean operation ") {
        let (op, (left, right)) = match operation.split_once(" AND ") {
            Some(sides) => ("AND", sides),
            None => ("OR", operation.split_once(" OR ")?),
        };
        let found = sql_types(if left == "Boolean" { right } else { left });
        let message = format!("argument of {op} must be type boolean, not type {found}");
        return Some(SqlError::new(SqlState::DATATYPE_MISMATCH, message));
    }
    const OPERATIONS: [&str; 5] = [
        "for comparison operation ",
        "for regex operation ",
        "for bitwise operation ",
        "for string concat operation ",
        "for operation ",
    ];
    let operation = OPERATIONS
        .iter()
        .find_map(|o| line.split_once(o).map(|(_, rest)| rest))
        .or_else(|| line.strip_prefix("Cannot coerce arithmetic expression ")?.strip_suffix(" to valid types"));
    if let Some(operation) = operation {
        let message = format!("operator does not exist: {}", sql_types(operation));
        return Some(SqlError::new(SqlState::UNDEFINED_FUNCTION, message).with_hint(OPERATOR_HINT));
    }
    let call = if let Some((_, rest)) = line.split_once("given name and argument types ") {
        let call = quoted(rest)?;
        let (name, arguments) = call.split_once('(')?;
        format!("{name}({}", sql_types(arguments))
    } else if let Some((_, rest)) = line.split_once("to satisfy a call to ") {
        let types = rest.split_once("coercion from ").and_then(|(_, r)| r.split_once(" to the signature"));
        format!("{}({})", quoted(rest)?, sql_types(types.map_or("", |(t, _)| t)))
    } else if line.starts_with("Function '") && line.contains("failed to match any signature") {
        quoted(line.strip_prefix("Function ")?)?.to_string()
    } else if line.starts_with("Error during planning: ") {
        return Some(plan(line.strip_prefix("Error during planning: ")?));
    } else {
        return None;
    };
    let message = format!("function {call} does not exist");
    Some(SqlError::new(SqlState::UNDEFINED_FUNCTION, message).with_hint(CAST_HINT))
}

/// A WHERE, HAVING or ON that is no condition; a sign before what is no number.
fn operand(line: &str) -> Option<SqlError> {
    if line.starts_with("Negation only supports ") {
        let message = "operator does not exist: - with an operand of this type";
        return Some(SqlError::new(SqlState::UNDEFINED_FUNCTION, message).with_hint(OPERATOR_HINT));
    }
    let (_, found) =
        line.strip_prefix("Cannot create filter with non-boolean predicate ")?.rsplit_once(" returning ")?;
    let found = sql_types(found);
    let message = format!("argument of WHERE must be type boolean, not type {found}");
    Some(SqlError::new(SqlState::DATATYPE_MISMATCH, message))
}

/// Columns outside GROUP BY, aggregates where none may be.
fn grouping(line: &str) -> Option<SqlError> {
    let (_, rest) = line.split_once("column \"")?;
    let (name, _) = rest.split_once("\" must appear in the GROUP BY")?;
    let message = format!("column \"{name}\" must appear in the GROUP BY clause or be used in an aggregate function");
    Some(SqlError::new(SqlState::GROUPING_ERROR, message))
}

/// Mistakes that PostgreSQL has other words for.
fn clause(line: &str) -> Option<SqlError> {
    const ROW_COUNT: SqlState = SqlState("2201W");
    const ROW_OFFSET: SqlState = SqlState("2201X");
    const DUPLICATE_ALIAS: SqlState = SqlState("42712");
    let has = |words: &str| line.contains(words);
    let (state, message) = if line.starts_with("LIMIT must be >=") {
        (ROW_COUNT, "LIMIT must not be negative")
    } else if line.starts_with("OFFSET must be >=") {
        (ROW_OFFSET, "OFFSET must not be negative")
    } else if has("WITH query name") && has("specified more than once") {
        (DUPLICATE_ALIAS, line)
    } else if has("names given as column alias")
        || has("SELECT DISTINCT ON expressions must match")
        || has("Order by column out of bounds")
        || has("For SELECT DISTINCT, ORDER BY expressions")
    {
        (SqlState::INVALID_COLUMN_REFERENCE, line)
    } else if has("ust be boolean type") {
        (SqlState::DATATYPE_MISMATCH, "argument of JOIN/ON must be type boolean")
    } else if has("non-boolean predicate") {
        (SqlState::DATATYPE_MISMATCH, "argument of WHERE must be type boolean")
    } else if line == "Step cannot be zero" {
        (SqlState::INVALID_PARAMETER_VALUE, "step size cannot equal zero")
    } else {
        return None;
    };
    Some(SqlError::new(state, message))
}

/// Values that a type cannot hold.
fn value(line: &str) -> Option<SqlError> {
    if let Some((_, rest)) = line.split_once("Cannot cast string ") {
        return not_a_value(rest);
    }
    if let Some((_, rest)) = line.split_once("Cannot cast value ") {
        return not_a_value(rest);
    }
    if let Some((_, rest)) = line.split_once("Can't cast value ") {
        let (_, to) = rest.rsplit_once(" to type ")?;
        return Some(match arrow_type(to) {
            Some(to) => SqlError::out_of_range(&to),
            None => SqlError::new(SqlState::NUMERIC_OUT_OF_RANGE, "value out of range"),
        });
    }
    if let Some((_, rest)) = line.split_once("Error parsing timestamp from ") {
        return Some(SqlError::invalid_text(&SqlType::Timestamp, quoted(rest)?));
    }
    if line.contains("too large to store in a Decimal") {
        let error = SqlError::new(SqlState::NUMERIC_OUT_OF_RANGE, "numeric field overflow");
        return Some(error.with_detail(line));
    }
    if line.contains("Invalid timezone") || line.contains("invalid timezone") {
        return Some(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, line));
    }
    let lower = line.to_ascii_lowercase();
    (lower.contains("overflow") || lower.contains("out of range"))
        .then(|| SqlError::new(SqlState::NUMERIC_OUT_OF_RANGE, "value out of range"))
}

/// `'abc' to value of Int32 type`.
fn not_a_value(rest: &str) -> Option<SqlError> {
    let (text, to) = rest.rsplit_once(" to value of ")?;
    let text = text.trim_matches('\'');
    let to = arrow_type(to.strip_suffix(" type")?)?;
    let is_integer = matches!(to, SqlType::SmallInt | SqlType::Integer | SqlType::BigInt);
    let digits = text.trim_start_matches(['-', '+']);
    if is_integer && !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) {
        let message = format!("value \"{text}\" is out of range for type {to}");
        return Some(SqlError::new(SqlState::NUMERIC_OUT_OF_RANGE, message));
    }
    Some(SqlError::invalid_text(&to, text))
}

/// The code for what has no message of PostgreSQL's.
fn plan_state(line: &str) -> SqlState {
    let lower = line.to_ascii_lowercase();
    let has = |word: &str| lower.contains(word);
    if has("not supported") || has("unsupported") || has("not implemented") {
        SqlState::FEATURE_NOT_SUPPORTED
    } else if has("aggregate") && (has("where") || has("nested")) {
        SqlState::GROUPING_ERROR
    } else if has("ambiguous") {
        SqlState::AMBIGUOUS_COLUMN
    } else if has("cannot find column with position") {
        SqlState::INVALID_COLUMN_REFERENCE
    } else if has("coerce") || has("type mismatch") || has("incompatible") || has("cannot cast") {
        SqlState::DATATYPE_MISMATCH
    } else {
        SqlState::SYNTAX_ERROR
    }
}

/// The text between the first two single quotes.
fn quoted(text: &str) -> Option<&str> {
    text.split('\'').nth(1)
}

/// Replaces the Arrow types in a list of operands or arguments.
fn sql_types(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut depth = 0usize;
    let mut word = String::new();
    let flush = |word: &mut String, out: &mut String| {
        if !word.is_empty() {
            out.push_str(&arrow_type(word).map_or_else(|| word.clone(), |t| t.to_string()));
            word.clear();
        }
    };
    for c in text.chars() {
        match c {
            '(' if !word.is_empty() => depth += 1,
            ')' if depth > 0 => depth -= 1,
            ' ' | ',' | ')' if depth == 0 => {
                flush(&mut word, &mut out);
                out.push(c);
                continue;
            }
            _ => {}
        }
        word.push(c);
    }
    flush(&mut word, &mut out);
    out
}

/// The SQL type of an Arrow type's name.
fn arrow_type(name: &str) -> Option<SqlType> {
    let data_type: arrow::datatypes::DataType = name.trim().replace("(µs)", "(Microsecond)").parse().ok()?;
    SqlType::from_arrow(&data_type)
}
