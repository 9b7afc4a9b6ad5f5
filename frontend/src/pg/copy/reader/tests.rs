#![allow(clippy::unwrap_used)]
use arrow::util::display::{ArrayFormatter, FormatOptions};
use weir_common::SqlType;

use super::*;
use crate::pg::copy::CopyWriter;
use crate::pg::encode::Cells;

fn columns(types: &[SqlType]) -> Vec<OutputColumn> {
    types.iter().zip(["a", "b", "c"]).map(|(t, name)| OutputColumn::new(name, t.clone())).collect()
}

/// The rows of data that comes in pieces of every size, `|` between the values.
fn read(types: &[SqlType], options: &CopyOptions, data: &[u8]) -> Result<Vec<String>> {
    let mut results: Vec<Result<Vec<String>>> =
        (1..=data.len().max(1)).map(|size| read_pieces(types, options, data, size)).collect();
    let last = results.pop().unwrap();
    assert!(results.iter().all(|result| *result == last), "{results:?} {last:?}");
    last
}

fn read_pieces(types: &[SqlType], options: &CopyOptions, data: &[u8], size: usize) -> Result<Vec<String>> {
    let mut reader = CopyReader::new(&columns(types), options.clone(), TextFormat::default());
    data.chunks(size).try_for_each(|piece| reader.feed(piece))?;
    reader.end()?;
    let Some(batch) = reader.take_batch(true)? else { return Ok(vec![]) };
    let format = FormatOptions::new().with_null("NULL");
    let formatters: Vec<_> =
        batch.columns().iter().map(|column| ArrayFormatter::try_new(column, &format).unwrap()).collect();
    let row = |row| formatters.iter().map(|f| f.value(row).to_string()).collect::<Vec<_>>().join("|");
    Ok((0..batch.num_rows()).map(row).collect())
}

fn options(list: &[(&'static str, Option<&'static str>)]) -> CopyOptions {
    CopyOptions::new(list.to_vec()).unwrap()
}

const TWO: &[SqlType] = &[SqlType::Integer, SqlType::Varchar];

#[test]
fn text() {
    let text = options(&[]);
    let rows = read(TWO, &text, b"1\tone\r\n2\t\\N\n\\N\ta\\tb\\\\c\\x41\\101\\q\\\nd\n4\t").unwrap();
    assert_eq!(rows, ["1|one", "2|NULL", "NULL|a\tb\\cAAq\nd", "4|"]);
    assert_eq!(read(TWO, &text, b"1\ta\n\\.\nnothing more").unwrap(), ["1|a"]);
    assert_eq!(read(TWO, &text, b"").unwrap(), [""; 0]);
    assert_eq!(read(&[SqlType::Varchar], &text, b"\n").unwrap(), [""]);
    let other = options(&[("delimiter", Some(";")), ("null", Some("-")), ("header", Some("true"))]);
    assert_eq!(read(TWO, &other, b"x;y\n1;-\n").unwrap(), ["1|NULL"]);
}

#[test]
fn csv() {
    let csv = options(&[("format", Some("csv")), ("header", None)]);
    let rows = read(TWO, &csv, b"a,b\n1,one\n2,\"a,\"\"b\"\"\nc\"\n,\"\"\n4,\n").unwrap();
    assert_eq!(rows, ["1|one", "2|a,\"b\"\nc", "NULL|", "4|NULL"]);
    let escape = options(&[("format", Some("csv")), ("escape", Some("\\"))]);
    assert_eq!(read(TWO, &escape, b"1,\"a\\\"b\\\\\"\n").unwrap(), ["1|a\"b\\"]);
}

#[test]
fn what_does_not_fit_is_refused() {
    let refused = |options: &[_], data: &[u8], state: &str, detail: Option<&str>| {
        let error = read(TWO, &CopyOptions::new(options.to_vec()).unwrap(), data).unwrap_err();
        assert_eq!((error.state.0, error.detail.as_deref()), (state, detail), "{}", error.message);
    };
    refused(&[], b"1\ta\n2\n", "22P04", Some("COPY line 2"));
    refused(&[], b"1\ta\tb\n", "22P04", Some("COPY line 1"));
    refused(&[], b"x\ta\n", "22P02", Some("COPY line 1, column a"));
    refused(&[], b"1\t\xff\n", "22021", Some("COPY line 1, column b"));
    refused(&[("format", Some("csv"))], b"1,\"a\n", "22P04", None);
    refused(&[("format", Some("binary"))], b"1\ta\n", "22P04", None);
    refused(&[("format", Some("binary"))], b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0\0\x02\0\0", "22P04", None);
    refused(&[("format", Some("binary"))], b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0\0\x01", "22P04", None);
}

/// What a writer writes, a reader reads.
#[test]
fn rows_come_back() {
    let values = ["1\t2", "\\.", "\"q\"", "", "\\N", "a,b", "line\nend\r", "é"];
    for format in ["text", "csv", "binary"] {
        let options = options(&[("format", Some(format))]);
        let columns = columns(TWO);
        let numbers: ArrayRef = Arc::new(arrow::array::Int32Array::from_iter((0..9).map(|n| (n != 8).then_some(n))));
        let texts: ArrayRef =
            Arc::new(arrow::array::StringArray::from_iter(values.iter().copied().map(Some).chain([None])));
        let cells: Vec<Cells> = [numbers, texts]
            .iter()
            .zip(TWO)
            .map(|(array, t)| Cells::new(array, t, options.format.of_values(), TextFormat::default()).unwrap())
            .collect();
        let mut writer = CopyWriter::new(&columns, options.clone());
        let mut data = BytesMut::new();
        (0..9).for_each(|row| writer.write_row(&cells, row, &mut data).unwrap());
        data.extend(writer.trailer().unwrap_or_default());
        let mut expected: Vec<String> = values.iter().enumerate().map(|(i, v)| format!("{i}|{v}")).collect();
        expected.push("NULL|NULL".to_string());
        assert_eq!(read(TWO, &options, &data).unwrap(), expected, "{format}");
    }
}
