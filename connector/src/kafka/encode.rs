//! From changes to messages.
//!
//! | FORMAT | insert | delete | update, key kept |
//! |---|---|---|---|
//! | PLAIN | the row | | |
//! | UPSERT | the row | no value | the new row |
//! | DEBEZIUM | `op` `c` | `op` `d`, then no value | `op` `u` |
//!
//! An update is a delete followed by an insert of the same key, also when they come in two chunks: so the last delete is
//! held back until it is seen what follows. An update that changes the key is a delete and an insert.

use weir_common::Chunk;

use crate::json::write_row;

/// FORMAT of a sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Envelope {
    Plain,
    Upsert,
    Debezium,
}

/// A message to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outgoing<'a> {
    pub key: Option<&'a str>,
    /// `None`: there is no row of this key any more.
    pub value: Option<&'a str>,
}

/// Turns changes into messages.
pub struct Encoder {
    envelope: Envelope,
    /// Columns of the key. Empty: messages have none.
    key_columns: Vec<usize>,
    /// A delete that may be the first half of an update.
    held: Option<Delete>,
    key: String,
    value: String,
}

struct Delete {
    /// One row.
    chunk: Chunk,
    key: String,
}

impl Encoder {
    pub fn new(envelope: Envelope, key_columns: Vec<usize>) -> Encoder {
        Encoder { envelope, key_columns, held: None, key: String::new(), value: String::new() }
    }

    /// Takes row `row` of a chunk. Calls `send` for each message that it leads to.
    pub fn push<E>(
        &mut self,
        chunk: &Chunk,
        row: usize,
        send: &mut impl FnMut(Outgoing<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.key.clear();
        write_row(chunk.batch(), self.key_columns.iter().copied(), row, &mut self.key);
        let held = self.held.take();
        if chunk.sign(row) < 0 {
            self.held = Some(Delete { chunk: chunk.slice(row, 1), key: self.key.clone() });
            return held.map_or(Ok(()), |delete| self.delete(&delete, send));
        }
        let before = match held {
            Some(delete) if delete.key == self.key => Some(delete),
            Some(delete) => {
                self.delete(&delete, send)?;
                None
            }
            None => None,
        };
        self.value.clear();
        match self.envelope {
            Envelope::Plain | Envelope::Upsert => write_all(chunk, row, &mut self.value),
            Envelope::Debezium => {
                write_change(before.as_ref().map(|d| (&d.chunk, 0)), Some((chunk, row)), &mut self.value)
            }
        }
        let key = (!self.key_columns.is_empty()).then_some(self.key.as_str());
        send(Outgoing { key, value: Some(&self.value) })
    }

    /// Nothing follows in this commit.
    pub fn finish<E>(&mut self, send: &mut impl FnMut(Outgoing<'_>) -> Result<(), E>) -> Result<(), E> {
        self.held.take().map_or(Ok(()), |delete| self.delete(&delete, send))
    }

    /// Bytes that are held.
    pub fn memory_bytes(&self) -> usize {
        let held = self.held.as_ref().map_or(0, |d| d.chunk.memory_bytes() + d.key.capacity());
        held + self.key.capacity() + self.value.capacity()
    }

    fn delete<E>(&mut self, delete: &Delete, send: &mut impl FnMut(Outgoing<'_>) -> Result<(), E>) -> Result<(), E> {
        let key = Some(delete.key.as_str());
        if self.envelope == Envelope::Debezium {
            self.value.clear();
            write_change(Some((&delete.chunk, 0)), None, &mut self.value);
            send(Outgoing { key, value: Some(&self.value) })?;
        }
        send(Outgoing { key, value: None })
    }
}

fn write_all(chunk: &Chunk, row: usize, out: &mut String) {
    write_row(chunk.batch(), 0..chunk.batch().num_columns(), row, out);
}

fn write_change(before: Option<(&Chunk, usize)>, after: Option<(&Chunk, usize)>, out: &mut String) {
    let op = match (&before, &after) {
        (None, _) => "c",
        (Some(_), None) => "d",
        (Some(_), Some(_)) => "u",
    };
    for (name, row) in [("{\"before\":", before), (",\"after\":", after)] {
        out.push_str(name);
        match row {
            Some((chunk, row)) => write_all(chunk, row, out),
            None => out.push_str("null"),
        }
    }
    out.push_str(",\"op\":\"");
    out.push_str(op);
    out.push_str("\"}");
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::convert::Infallible;
    use std::sync::Arc;

    use arrow::array::{Int32Array, RecordBatch};
    use arrow::datatypes::{DataType, Field, Schema};

    use super::*;

    /// Changes as `+k v` and `-k v`, chunks divided by `|`; messages as `key => value`.
    fn check(envelope: Envelope, key: &[usize], changes: &str, expected: &[&str]) {
        let mut encoder = Encoder::new(envelope, key.to_vec());
        let mut messages = vec![];
        let mut send = |m: Outgoing<'_>| {
            messages.push(format!("{} => {}", m.key.unwrap_or("-"), m.value.unwrap_or("-")));
            Ok::<(), Infallible>(())
        };
        for part in changes.split('|') {
            let numbers: Vec<i32> =
                part.split_whitespace().map(|n| n.trim_start_matches(['+', '-']).parse().unwrap()).collect();
            let signs: Vec<i8> =
                part.split_whitespace().step_by(2).map(|n| if n.starts_with('-') { -1 } else { 1 }).collect();
            let schema = ["k", "v"].map(|name| Field::new(name, DataType::Int32, true));
            let column =
                |at: usize| Arc::new(Int32Array::from_iter_values(numbers.iter().skip(at).step_by(2).copied())) as _;
            let batch =
                RecordBatch::try_new(Arc::new(Schema::new(schema.to_vec())), vec![column(0), column(1)]).unwrap();
            let chunk = Chunk::new(batch, signs);
            for row in 0..chunk.len() {
                encoder.push(&chunk, row, &mut send).unwrap();
            }
        }
        encoder.finish(&mut send).unwrap();
        assert_eq!(messages, expected, "{changes}");
    }

    #[test]
    fn plain_is_the_row() {
        check(Envelope::Plain, &[], "+1 2 +3 4", &["- => {\"k\":1,\"v\":2}", "- => {\"k\":3,\"v\":4}"]);
        check(Envelope::Plain, &[0], "+1 2", &["{\"k\":1} => {\"k\":1,\"v\":2}"]);
    }

    #[test]
    fn an_update_that_keeps_its_key_is_one_message() {
        let new = "{\"k\":1} => {\"k\":1,\"v\":3}";
        check(Envelope::Upsert, &[0], "-1 2 +1 3", &[new]);
        check(Envelope::Upsert, &[0], "-1 2 | +1 3", &[new]);
        check(Envelope::Upsert, &[0], "-1 2 -4 4 +1 3", &["{\"k\":1} => -", "{\"k\":4} => -", new]);
        check(Envelope::Upsert, &[0], "+1 3 -1 3", &[new, "{\"k\":1} => -"]);
        let change = "{\"k\":1} => {\"before\":{\"k\":1,\"v\":2},\"after\":{\"k\":1,\"v\":3},\"op\":\"u\"}";
        check(Envelope::Debezium, &[0], "-1 2 | +1 3", &[change]);
    }

    #[test]
    fn an_update_of_the_key_is_a_delete_and_an_insert() {
        check(Envelope::Upsert, &[0], "-1 2 +2 2", &["{\"k\":1} => -", "{\"k\":2} => {\"k\":2,\"v\":2}"]);
        let expected = [
            "{\"k\":1} => {\"before\":{\"k\":1,\"v\":2},\"after\":null,\"op\":\"d\"}",
            "{\"k\":1} => -",
            "{\"k\":2} => {\"before\":null,\"after\":{\"k\":2,\"v\":2},\"op\":\"c\"}",
        ];
        check(Envelope::Debezium, &[0], "-1 2 +2 2", &expected);
    }
}
