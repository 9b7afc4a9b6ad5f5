#![allow(clippy::unwrap_used)]
//! Random columns come back from rows exactly.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Decimal128Array, Int16Array, StringArray};
use arrow::datatypes::DataType;
use proptest::prelude::*;

use super::*;
use crate::codec::test_arrays::{array, data_type};

const ROWS: usize = 6;

fn columns() -> impl Strategy<Value = Vec<ArrayRef>> {
    prop::collection::vec(data_type().prop_flat_map(|t| array(&t, ROWS)), 1..12)
}

fn types(columns: &[ArrayRef]) -> Vec<DataType> {
    columns.iter().map(|c| c.data_type().clone()).collect()
}

proptest! {
    #[test]
    fn rows_come_back_exactly(columns in columns()) {
        let rows = encode_rows(&columns, ROWS).unwrap();
        prop_assert_eq!(rows.len(), ROWS);
        let decoded = decode_rows(rows.iter(), &types(&columns)).unwrap();
        prop_assert_eq!(&decoded, &columns);
        // Down to the bits of floats, which compare equal as values.
        prop_assert_eq!(encode_rows(&decoded, ROWS).unwrap(), rows);
    }

    #[test]
    fn columns_at_the_end_may_be_missing_or_left_out(columns in columns()) {
        let written = columns.len() / 2;
        let rows = encode_rows(&columns[..written], ROWS).unwrap();
        let decoded = decode_rows(rows.iter(), &types(&columns)).unwrap();
        prop_assert_eq!(&decoded[..written], &columns[..written]);
        prop_assert!(decoded[written..].iter().all(|c| c.logical_null_count() == ROWS));
        let rows = encode_rows(&columns, ROWS).unwrap();
        prop_assert_eq!(&decode_rows(rows.iter(), &types(&columns[..written])).unwrap()[..], &columns[..written]);
    }

    #[test]
    fn slices_have_the_values_of_their_rows(columns in columns()) {
        let rows = encode_rows(&columns, ROWS).unwrap();
        let slices: Vec<_> = columns.iter().map(|c| c.slice(2, 3)).collect();
        let sliced = encode_rows(&slices, 3).unwrap();
        prop_assert!(sliced.iter().eq((2..5).map(|i| rows.get(i))));
    }

    #[test]
    fn no_bytes_make_decoding_panic(bytes in prop::collection::vec(0u8..6, 0..40), t in data_type()) {
        let row = [&[ROW_VERSION, 1, 1], &bytes[..]].concat();
        let _ = decode_rows([&row[..]].into_iter(), &[t]);
        let _ = decode_rows([&bytes[..]].into_iter(), &[DataType::Int8]);
    }
}

#[test]
fn the_layout_is_stable() {
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int16Array::from(vec![Some(-2), None])),
        Arc::new(StringArray::from(vec![Some("ab"), Some("")])),
        Arc::new(Decimal128Array::from(vec![Some(128), Some(-128)]).with_precision_and_scale(10, 2).unwrap()),
    ];
    let rows = encode_rows(&columns, 2).unwrap();
    assert_eq!(rows.get(0), [1, 3, 0b111, 0xfe, 0xff, 2, b'a', b'b', 2, 128, 0]);
    assert_eq!(rows.get(1), [1, 3, 0b110, 0, 1, 128]);
    assert_eq!(encode_rows(&[], 2).unwrap().iter().collect::<Vec<_>>(), [b"", b""]);
}

#[test]
fn damaged_rows_are_errors() {
    let decode = |row: &[u8], t: DataType| decode_rows([row].into_iter(), &[t]);
    assert!(matches!(decode(&[9, 1, 1, 0], DataType::Int8), Err(CodecError::InvalidByte { byte: 9, .. })));
    assert!(matches!(decode(&[1, 1, 1, 0], DataType::Int16), Err(CodecError::Truncated { .. })));
    assert!(matches!(decode(&[1, 1, 1, 20], DataType::Decimal128(10, 2)), Err(CodecError::Truncated { .. })));
    assert!(matches!(decode(&[1, 1, 1, 1, 0xff], DataType::Utf8), Err(CodecError::Arrow(_))));
    let long = [&[1, 1, 1, 17][..], &[0; 17]].concat();
    assert!(matches!(decode(&long, DataType::Decimal128(10, 2)), Err(CodecError::InvalidByte { byte: 17, .. })));
}
