//! JSON lines: one object per line.

use std::str;

use weir_common::json::Json;

use super::records::RecordFormat;
use super::rows::{Cell, Rows};
use crate::column::member;

/// JSON lines. Members are found by name.
pub struct JsonLines;

impl RecordFormat for JsonLines {
    fn record_end(&self, _bytes: &[u8], line: usize) -> Option<usize> {
        Some(line)
    }

    fn push(&mut self, record: &[u8], rows: &mut Rows) -> Result<(), String> {
        let text = str::from_utf8(record).map_err(|_| "not UTF-8")?;
        let json = Json::parse(text).map_err(|e| format!("not JSON: {e}"))?;
        if !matches!(json, Json::Object(_)) {
            return Err("not a JSON object".into());
        }
        let schema = rows.schema().clone();
        rows.push(|column| match member(&json, schema.field(column).name()) {
            Some(value) => Cell::Json(value),
            None => Cell::Null,
        })
    }
}
