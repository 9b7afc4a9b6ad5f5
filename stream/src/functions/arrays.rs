//! Functions of arrays and bytes.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int32Array, StringArray};
use arrow::datatypes::{DataType, Int64Type};
use datafusion::error::Result;
use weir_common::SqlState;

use super::function::{Arguments, Call, Function, argument, no_such_function, refuse};

/// Characters of base64 in a line.
const LINE: usize = 76;

pub(super) fn functions() -> Vec<Function> {
    vec![
        Function::new("array_length", &[2], length_type, length),
        Function::new("octet_length", &[1], octets_type, octets),
        Function::new("encode", &[2], encode_type, encode),
    ]
}

fn length_type(args: &Arguments<'_>) -> Result<DataType> {
    match argument(args, 0) {
        DataType::List(_) | DataType::Null => Ok(DataType::Int32),
        _ => Err(no_such_function("array_length", args)),
    }
}

/// The number of items in a dimension; NULL when there are none. Arrays have one dimension.
fn length(call: &Call<'_>) -> Result<ArrayRef> {
    let (arrays, dimensions) = (call.array(0)?, call.array_as(1, &DataType::Int64)?);
    let Some(arrays) = arrays.as_list_opt::<i32>() else {
        return Ok(Arc::new(Int32Array::new_null(call.rows())));
    };
    let lengths = (0..call.rows()).zip(dimensions.as_primitive::<Int64Type>()).map(|(row, dimension)| {
        let length = arrays.is_valid(row).then(|| arrays.value_length(row)).filter(|n| *n > 0);
        length.filter(|_| dimension == Some(1))
    });
    Ok(Arc::new(lengths.collect::<Int32Array>()))
}

fn octets_type(args: &Arguments<'_>) -> Result<DataType> {
    match argument(args, 0) {
        DataType::Utf8 | DataType::Binary | DataType::Null => Ok(DataType::Int32),
        _ => Err(no_such_function("octet_length", args)),
    }
}

fn octets(call: &Call<'_>) -> Result<ArrayRef> {
    let bytes = call.array_as(0, &DataType::Binary)?;
    let length = |b: &[u8]| i32::try_from(b.len()).unwrap_or(i32::MAX);
    Ok(Arc::new(bytes.as_binary::<i32>().iter().map(|b| b.map(length)).collect::<Int32Array>()))
}

fn encode_type(args: &Arguments<'_>) -> Result<DataType> {
    match argument(args, 0) {
        DataType::Utf8 | DataType::Binary | DataType::Null => Ok(DataType::Utf8),
        _ => Err(no_such_function("encode", args)),
    }
}

/// Bytes as text: `hex`, `base64` or `escape`.
fn encode(call: &Call<'_>) -> Result<ArrayRef> {
    let (bytes, formats) = (call.array_as(0, &DataType::Binary)?, call.array_as(1, &DataType::Utf8)?);
    let encoded = bytes.as_binary::<i32>().iter().zip(formats.as_string::<i32>()).map(|pair| match pair {
        (Some(bytes), Some(format)) => encoded(bytes, format).map(Some),
        _ => Ok(None),
    });
    Ok(Arc::new(encoded.collect::<Result<StringArray>>()?))
}

fn encoded(bytes: &[u8], format: &str) -> Result<String> {
    match format.to_ascii_lowercase().as_str() {
        "hex" => Ok(bytes.iter().map(|b| format!("{b:02x}")).collect()),
        "base64" => Ok(base64(bytes)),
        "escape" => Ok(bytes.iter().map(|b| escaped(*b)).collect()),
        _ => {
            let message = format!("unrecognized encoding: \"{format}\"");
            Err(refuse(SqlState::INVALID_PARAMETER_VALUE, message))
        }
    }
}

fn escaped(byte: u8) -> String {
    match byte {
        b'\\' => "\\\\".to_owned(),
        0 | 0x80.. => format!("\\{byte:03o}"),
        other => char::from(other).to_string(),
    }
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len() / 3 * 4 + 4);
    let mut in_line = 0;
    for three in bytes.chunks(3) {
        if in_line == LINE {
            out.push('\n');
            in_line = 0;
        }
        let byte = |i: usize| u32::from(three.get(i).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for i in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * i) & 63) as usize];
            out.push(if i <= three.len() { char::from(digit) } else { '=' });
        }
        in_line += 4;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_written_in_base64() {
        assert_eq!(base64(b""), "");
        assert_eq!(base64(b"h"), "aA==");
        assert_eq!(base64(b"hi"), "aGk=");
        assert_eq!(base64(b"hello!"), "aGVsbG8h");
        assert_eq!(base64(&[0; 60]).lines().map(str::len).collect::<Vec<_>>(), [76, 4]);
    }
}
