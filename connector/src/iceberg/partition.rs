//! How a table is partitioned: `partition_by` as text, and as Iceberg's partition spec.

use std::fmt;

use iceberg::spec::{PartitionSpec, Schema, Transform, UnboundPartitionSpec};

use crate::error::{ConnectorError, Result};

/// A column, and what is made of its values.
#[derive(Clone, Debug, PartialEq)]
pub struct PartitionColumn {
    pub column: String,
    pub transform: Transform,
}

impl fmt::Display for PartitionColumn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.transform {
            Transform::Identity => f.write_str(&self.column),
            Transform::Bucket(n) => write!(f, "bucket({n}, {})", self.column),
            Transform::Truncate(n) => write!(f, "truncate({n}, {})", self.column),
            transform => write!(f, "{transform}({})", self.column),
        }
    }
}

/// Reads `a, bucket(16, b), day(c)`. `None`: it is not that.
pub fn parse_partition_by(text: &str) -> Option<Vec<PartitionColumn>> {
    let mut columns = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let end = rest.find([',', '(']).unwrap_or(rest.len());
        let name = rest[..end].trim();
        let (column, after) = match rest[end..].strip_prefix('(') {
            Some(arguments) => {
                let close = arguments.find(')')?;
                (parse_transform(name, &arguments[..close])?, arguments[close + 1..].trim_start())
            }
            None => (PartitionColumn { column: name.to_owned(), transform: Transform::Identity }, &rest[end..]),
        };
        if column.column.is_empty() {
            return None;
        }
        columns.push(column);
        rest = match after.strip_prefix(',') {
            // A comma has a column behind it.
            Some(more) if !more.trim().is_empty() => more.trim_start(),
            None if after.is_empty() => after,
            _ => return None,
        };
    }
    (!columns.is_empty()).then_some(columns)
}

fn parse_transform(name: &str, arguments: &str) -> Option<PartitionColumn> {
    let (number, column) = match arguments.split_once(',') {
        Some((number, column)) => (Some(number.trim().parse::<u32>().ok().filter(|n| *n > 0)?), column),
        None => (None, arguments),
    };
    let transform = match (name.to_ascii_lowercase().as_str(), number) {
        ("identity", None) => Transform::Identity,
        ("bucket", Some(n)) => Transform::Bucket(n),
        ("truncate", Some(n)) => Transform::Truncate(n),
        ("year" | "years", None) => Transform::Year,
        ("month" | "months", None) => Transform::Month,
        ("day" | "days" | "date", None) => Transform::Day,
        ("hour" | "hours", None) => Transform::Hour,
        ("void", None) => Transform::Void,
        _ => return None,
    };
    Some(PartitionColumn { column: column.trim().to_owned(), transform })
}

/// The partition spec of a new table with this schema.
pub fn partition_spec(columns: &[PartitionColumn], schema: &Schema) -> Result<UnboundPartitionSpec> {
    let mut spec = UnboundPartitionSpec::builder();
    for column in columns {
        let field = schema.field_by_name(&column.column).or_else(|| {
            let matching = schema.as_struct().fields().iter().filter(|f| f.name.eq_ignore_ascii_case(&column.column));
            let matching: Vec<_> = matching.collect();
            if let [one] = matching.as_slice() { Some(*one) } else { None }
        });
        let field = field.ok_or_else(|| ConnectorError::UnknownColumn {
            what: "partition_by".into(),
            column: column.column.clone(),
            known: crate::error::listed(schema.as_struct().fields().iter().map(|f| f.name.as_str())),
        })?;
        if column.transform.result_type(&field.field_type).is_err() {
            let reason = format!("partition_by: {column} cannot be made of type {}", field.field_type);
            return Err(ConnectorError::Mismatch { reason });
        }
        let suffix = match column.transform {
            Transform::Identity => String::new(),
            Transform::Bucket(_) => "_bucket".into(),
            Transform::Truncate(_) => "_trunc".into(),
            Transform::Void => "_null".into(),
            transform => format!("_{transform}"),
        };
        spec = spec
            .add_partition_field(field.id, format!("{}{suffix}", field.name), column.transform)
            .map_err(|e| ConnectorError::Mismatch { reason: format!("partition_by: {e}") })?;
    }
    Ok(spec.build())
}

/// How an existing table is partitioned, in the words of `partition_by`.
pub fn partition_columns(spec: &PartitionSpec, schema: &Schema) -> Vec<PartitionColumn> {
    let column = |id| schema.name_by_field_id(id).unwrap_or("?").to_owned();
    let fields = spec.fields().iter();
    fields.map(|f| PartitionColumn { column: column(f.source_id), transform: f.transform }).collect()
}

/// Text with `%` and two digits for bytes that are no letter, digit or one of `others`.
pub fn escaped(text: &str, others: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || (byte.is_ascii() && others.contains(char::from(byte))) {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn partition_by_is_read_and_shown() {
        let text = "a, bucket(16, b),day(c) ,truncate(4,d), void(e)";
        let columns = parse_partition_by(text).unwrap();
        let shown: Vec<String> = columns.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["a", "bucket(16, b)", "day(c)", "truncate(4, d)", "void(e)"]);
        for wrong in ["", "a,", ",a", "bucket(b)", "bucket(0, b)", "day(1, c)", "week(c)", "day(c", "day(c) x", "day()"]
        {
            assert_eq!(parse_partition_by(wrong), None, "{wrong}");
        }
    }
}
