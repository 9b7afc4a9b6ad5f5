//! Rows of a sink as rows of a table. A value that does not fit exactly is an error.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Decimal128Array, FixedSizeBinaryBuilder, ListArray, RecordBatch, StringArray, StructArray,
};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Decimal256Type, DecimalType, SchemaRef, i256};
use uuid::Uuid;

use crate::error::{ConnectorError, Result};

/// The columns with the types of a table.
pub fn convert(batch: &RecordBatch, to: &SchemaRef) -> Result<RecordBatch> {
    let mut columns = Vec::with_capacity(batch.num_columns());
    for (column, field) in batch.columns().iter().zip(to.fields()) {
        let refused =
            |reason| ConnectorError::Refused { what: format!("column `{}` of the table", field.name()), reason };
        let converted = convert_array(column, field.data_type()).map_err(refused)?;
        if !field.is_nullable() && converted.null_count() > 0 {
            return Err(refused("it takes no null".into()));
        }
        columns.push(converted);
    }
    Ok(RecordBatch::try_new(to.clone(), columns)?)
}

/// `Err`: which value does not fit.
fn convert_array(array: &ArrayRef, to: &DataType) -> std::result::Result<ArrayRef, String> {
    if array.data_type() == to {
        return Ok(array.clone());
    }
    let shown = |e: arrow::error::ArrowError| e.to_string();
    match (array.data_type(), to) {
        (DataType::Decimal256(_, scale), DataType::Utf8) => {
            let values = array.as_primitive::<Decimal256Type>().iter();
            Ok(Arc::new(values.map(|v| v.map(|v| decimal_text(v, *scale))).collect::<StringArray>()))
        }
        (DataType::Decimal256(_, scale), DataType::Decimal128(to_precision, to_scale)) => {
            let narrow = narrow_decimal(array, *scale, *to_precision, *to_scale)?;
            Ok(Arc::new(narrow.with_precision_and_scale(*to_precision, *to_scale).map_err(shown)?))
        }
        (DataType::Utf8 | DataType::Utf8View, DataType::FixedSizeBinary(16)) => uuids(array),
        (DataType::List(_), DataType::List(field)) => {
            let list = array.as_list::<i32>();
            let values = convert_array(list.values(), field.data_type())?;
            let list = ListArray::try_new(field.clone(), list.offsets().clone(), values, list.nulls().cloned());
            Ok(Arc::new(list.map_err(shown)?))
        }
        (DataType::Struct(_), DataType::Struct(fields)) => {
            let from = array.as_struct();
            let child = |name: &str| {
                let position = from.fields().iter().position(|f| f.name() == name);
                let alike = || from.fields().iter().position(|f| f.name().to_lowercase() == name.to_lowercase());
                position.or_else(alike).map(|i| from.column(i)).ok_or_else(|| format!("it has no field `{name}`"))
            };
            let children = fields.iter().map(|f| convert_array(child(f.name())?, f.data_type()));
            let children = children.collect::<std::result::Result<Vec<_>, String>>()?;
            let converted = StructArray::try_new(fields.clone(), children, from.nulls().cloned());
            Ok(Arc::new(converted.map_err(shown)?))
        }
        (_, to) => cast_with_options(array, to, &CastOptions { safe: false, ..Default::default() }).map_err(shown),
    }
}

/// Without zeros at the end.
fn decimal_text(value: i256, scale: i8) -> String {
    let text = Decimal256Type::format_decimal(value, Decimal256Type::MAX_PRECISION, scale);
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

fn narrow_decimal(
    array: &ArrayRef,
    scale: i8,
    to_precision: u8,
    to_scale: i8,
) -> std::result::Result<Decimal128Array, String> {
    let power = |exponent: i8| i256::from_i128(10).checked_pow(u32::from(exponent.unsigned_abs()));
    let factor = power(scale.saturating_sub(to_scale)).ok_or("the scale is out of range")?;
    let limit = power(to_precision.cast_signed()).ok_or("the precision is out of range")?;
    let narrow = |value: i256| {
        let exact = if scale >= to_scale {
            (value.wrapping_rem(factor) == i256::ZERO).then(|| value.wrapping_div(factor))
        } else {
            value.checked_mul(factor)
        };
        exact
            .filter(|v| *v < limit && *v > limit.wrapping_neg())
            .and_then(i256::to_i128)
            .ok_or_else(|| format!("{} does not fit decimal({to_precision}, {to_scale})", decimal_text(value, scale)))
    };
    array.as_primitive::<Decimal256Type>().iter().map(|v| v.map(narrow).transpose()).collect()
}

fn uuids(array: &ArrayRef) -> std::result::Result<ArrayRef, String> {
    let texts = arrow::compute::cast(array, &DataType::Utf8).map_err(|e| e.to_string())?;
    let mut uuids = FixedSizeBinaryBuilder::with_capacity(texts.len(), 16);
    for text in texts.as_string::<i32>() {
        match text {
            None => uuids.append_null(),
            Some(text) => {
                let uuid = Uuid::parse_str(text).map_err(|_| format!("'{text}' is no uuid"))?;
                uuids.append_value(uuid.as_bytes()).map_err(|e| e.to_string())?;
            }
        }
    }
    Ok(Arc::new(uuids.finish()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use arrow::array::Decimal256Array;
    use arrow::datatypes::Field;

    use super::*;

    fn decimals(values: &[i128]) -> ArrayRef {
        let values = values.iter().map(|v| Some(i256::from_i128(*v)));
        Arc::new(values.collect::<Decimal256Array>().with_precision_and_scale(76, 28).unwrap())
    }

    #[test]
    fn numeric_is_exact_or_refused() {
        let one = 10i128.pow(28);
        let text = convert_array(&decimals(&[one * 3 / 2, -one]), &DataType::Utf8).unwrap();
        assert_eq!(text.as_string::<i32>().iter().flatten().collect::<Vec<_>>(), ["1.5", "-1"]);
        let to = DataType::Decimal128(3, 1);
        let narrow = convert_array(&decimals(&[one * 3 / 2, -one * 99]), &to).unwrap();
        assert_eq!(narrow.as_primitive::<arrow::datatypes::Decimal128Type>().values().as_ref(), [15, -990]);
        assert_eq!(convert_array(&decimals(&[one / 4]), &to).unwrap_err(), "0.25 does not fit decimal(3, 1)");
        assert_eq!(convert_array(&decimals(&[one * 100]), &to).unwrap_err(), "100 does not fit decimal(3, 1)");
    }

    #[test]
    fn lists_of_structs_and_uuids() {
        let strings: ArrayRef = Arc::new(StringArray::from(vec![Some("0b7f7a4e-3f0e-4f39-8d3a-7d4f4a3d2e11"), None]));
        assert_eq!(convert_array(&strings, &DataType::FixedSizeBinary(16)).unwrap().null_count(), 1);
        let wrong: ArrayRef = Arc::new(StringArray::from(vec!["x"]));
        assert_eq!(convert_array(&wrong, &DataType::FixedSizeBinary(16)).unwrap_err(), "'x' is no uuid");

        let field = |name: &str, t: DataType| Arc::new(Field::new(name, t, true));
        let item: ArrayRef = Arc::new(StructArray::from(vec![
            (field("X", DataType::Decimal256(76, 28)), decimals(&[1, 2])),
            (field("y", DataType::Utf8), strings),
        ]));
        let from = field("item", item.data_type().clone());
        let list: ArrayRef =
            Arc::new(ListArray::new(from, arrow::buffer::OffsetBuffer::from_lengths([2, 0]), item, None));
        let to = DataType::Struct(vec![field("y", DataType::Utf8), field("x", DataType::Utf8)].into());
        let converted = convert_array(&list, &DataType::List(field("element", to.clone()))).unwrap();
        assert_eq!(converted.as_list::<i32>().values().data_type(), &to);
    }
}
