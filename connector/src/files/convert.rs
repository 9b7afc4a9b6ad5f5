//! Columns of a Parquet file in the types that were declared.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, StringArray};
use arrow::compute::{CastOptions, cast, cast_with_options};
use arrow::datatypes::{DataType, Field, FieldRef, TimeUnit};
use arrow::error::ArrowError;
use weir_common::types::{NUMERIC_PRECISION, NUMERIC_SCALE, SqlType};

use crate::column::Column;

/// What is done to a column of the file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Conversion {
    /// It has the type already.
    Keep,
    /// Arrow's cast; a value that becomes NULL did not fit.
    Cast,
    /// Strings are read as text of the type.
    Parse,
}

impl Conversion {
    /// From a type of a file to a declared one, if no value changes its meaning on the way.
    pub fn between(file: &DataType, declared: &DataType) -> Option<Conversion> {
        if has_jsonb(declared) {
            // Whatever it is in the file, it is not known to be in the normal form.
            return (*declared == DataType::LargeUtf8 && is_text(file)).then_some(Conversion::Parse);
        }
        if file == declared {
            return Some(Conversion::Keep);
        }
        let cast = match (file, declared) {
            (_, DataType::Utf8) if is_text(file) => true,
            _ if is_text(file) => return Column::new(declared).map(|_| Conversion::Parse),
            (DataType::Dictionary(_, value), _) => Conversion::between(value, declared).is_some(),
            (_, DataType::Int16 | DataType::Int32 | DataType::Int64) => file.is_integer(),
            (_, DataType::Float32) => matches!(file, DataType::Float16),
            (_, DataType::Float64) => file.is_integer() || file.is_floating() || is_decimal(file),
            (_, DataType::Decimal128(..) | DataType::Decimal256(..)) => file.is_integer() || is_decimal(file),
            (_, DataType::Binary) => {
                matches!(file, DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_))
            }
            (_, DataType::Date32) => matches!(file, DataType::Date64),
            (_, DataType::Time64(_)) => matches!(file, DataType::Time32(_) | DataType::Time64(_)),
            (DataType::Date32 | DataType::Date64, DataType::Timestamp(..)) => true,
            (DataType::Timestamp(_, file), DataType::Timestamp(_, declared)) => file.is_some() == declared.is_some(),
            (_, DataType::List(declared)) => return list_item(file).and_then(|item| nested(item, declared)),
            (DataType::Struct(file), DataType::Struct(declared)) => {
                let same = |(f, d): (&FieldRef, &FieldRef)| f.name() == d.name() && nested(f, d).is_some();
                file.len() == declared.len() && file.iter().zip(declared).all(same)
            }
            _ => false,
        };
        cast.then_some(Conversion::Cast)
    }

    /// The column in the type of `field`. Rows whose value does not fit are told in `bad`, unless they are bad already.
    pub fn apply(self, field: &Field, column: &ArrayRef, bad: &mut [Option<String>]) -> Result<ArrayRef, ArrowError> {
        let converted = match self {
            Conversion::Keep => column.clone(),
            Conversion::Cast => cast_with_options(column, field.data_type(), &CastOptions::default())?,
            Conversion::Parse => return parse(field, &cast(column, &DataType::Utf8)?, bad),
        };
        for (row, bad) in bad.iter_mut().enumerate().filter(|(_, b)| b.is_none()) {
            if converted.is_null(row) && column.is_valid(row) {
                *bad =
                    Some(format!("column `{}`: the value does not fit {}", field.name(), type_name(field.data_type())));
            } else if converted.is_null(row) && !field.is_nullable() {
                *bad = Some(format!("column `{}`: NULL, which the column forbids", field.name()));
            }
        }
        Ok(converted)
    }
}

/// Reads strings as text of the type.
fn parse(field: &Field, strings: &ArrayRef, bad: &mut [Option<String>]) -> Result<ArrayRef, ArrowError> {
    let unsupported = || ArrowError::CastError(format!("no text is read as {}", field.data_type()));
    let mut column = Column::new(field.data_type()).ok_or_else(unsupported)?;
    let strings: &StringArray = strings.as_string();
    for (text, bad) in strings.iter().zip(bad) {
        let outcome = match text {
            Some(text) => column.push_text(text),
            None => {
                column.push_null();
                if field.is_nullable() { Ok(()) } else { Err("NULL, which the column forbids".into()) }
            }
        };
        if let (Err(misfit), None) = (outcome, &bad) {
            *bad = Some(format!("column `{}`: {misfit}", field.name()));
        }
    }
    column.finish()
}

/// Inside of arrays and structs, types may differ only where every value fits: nobody looks for lost values there.
fn nested(file: &Field, declared: &Field) -> Option<Conversion> {
    let (file, declared) = (file.data_type(), declared.data_type());
    let widens = match (file, declared) {
        (DataType::Int8, DataType::Int16 | DataType::Int32 | DataType::Int64)
        | (DataType::UInt8, DataType::Int16 | DataType::Int32 | DataType::Int64)
        | (DataType::Int16 | DataType::UInt16, DataType::Int32 | DataType::Int64)
        | (DataType::Int32 | DataType::UInt32, DataType::Int64)
        | (DataType::Float32, DataType::Float64) => true,
        (_, DataType::Utf8) => is_text(file),
        (DataType::List(_) | DataType::LargeList(_) | DataType::Struct(_), _) => {
            Conversion::between(file, declared).is_some()
        }
        (DataType::Timestamp(_, f), DataType::Timestamp(TimeUnit::Microsecond, d)) => f.is_some() == d.is_some(),
        _ => file == declared,
    };
    widens.then_some(Conversion::Cast)
}

fn list_item(data_type: &DataType) -> Option<&FieldRef> {
    match data_type {
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => Some(item),
        _ => None,
    }
}

fn is_text(data_type: &DataType) -> bool {
    match data_type {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => true,
        DataType::Dictionary(_, value) => is_text(value),
        _ => false,
    }
}

fn has_jsonb(declared: &DataType) -> bool {
    match declared {
        DataType::LargeUtf8 => true,
        DataType::List(item) => has_jsonb(item.data_type()),
        DataType::Struct(fields) => fields.iter().any(|f| has_jsonb(f.data_type())),
        _ => false,
    }
}

fn is_decimal(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Decimal32(..) | DataType::Decimal64(..) | DataType::Decimal128(..) | DataType::Decimal256(..)
    )
}

/// The name of a type in messages.
pub fn type_name(data_type: &DataType) -> String {
    SqlType::from_arrow(data_type).map_or_else(|| data_type.to_string(), |t| t.to_string())
}

/// The type to declare for a column of a file, or `None` when there is none. Strings are varchar: nothing in a file
/// says that they are JSON.
pub fn declared_type(file: &DataType) -> Option<DataType> {
    Some(match file {
        DataType::LargeUtf8 => DataType::Utf8,
        DataType::UInt64 => DataType::Decimal128(20, 0),
        DataType::Decimal256(..) => DataType::Decimal256(NUMERIC_PRECISION, NUMERIC_SCALE),
        DataType::Dictionary(_, value) => declared_type(value)?,
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            DataType::List(Arc::new(Field::new("item", declared_type(item.data_type())?, true)))
        }
        DataType::Struct(fields) => DataType::Struct(
            fields
                .iter()
                .map(|f| Some(Field::new(f.name(), declared_type(f.data_type())?, true)))
                .collect::<Option<_>>()?,
        ),
        _ => SqlType::from_arrow(file)?.to_arrow(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_keeps_its_meaning_is_converted() {
        let utc = |unit| DataType::Timestamp(unit, Some("+00:00".into()));
        let list = |t| DataType::List(Arc::new(Field::new("element", t, true)));
        let cases = [
            (DataType::Int64, DataType::Int64, Some(Conversion::Keep)),
            (DataType::Int64, DataType::Int32, Some(Conversion::Cast)),
            (DataType::UInt64, DataType::Decimal128(20, 0), Some(Conversion::Cast)),
            (DataType::Float64, DataType::Int64, None),
            (DataType::Float64, DataType::Float32, None),
            (DataType::Decimal128(10, 2), DataType::Int64, None),
            (DataType::Utf8, DataType::LargeUtf8, Some(Conversion::Parse)),
            (DataType::LargeUtf8, DataType::Utf8, Some(Conversion::Cast)),
            (DataType::Utf8View, DataType::Date32, Some(Conversion::Parse)),
            (DataType::Int64, DataType::Utf8, None),
            (utc(TimeUnit::Nanosecond), utc(TimeUnit::Microsecond), Some(Conversion::Cast)),
            (utc(TimeUnit::Microsecond), DataType::Timestamp(TimeUnit::Microsecond, None), None),
            (list(DataType::Int32), list(DataType::Int64), Some(Conversion::Cast)),
            (list(DataType::Int64), list(DataType::Int32), None),
            (DataType::LargeUtf8, DataType::LargeUtf8, Some(Conversion::Parse)),
            (list(DataType::LargeUtf8), list(DataType::LargeUtf8), None),
            (DataType::Int32, DataType::LargeUtf8, None),
        ];
        for (file, declared, conversion) in cases {
            assert_eq!(Conversion::between(&file, &declared), conversion, "{file} to {declared}");
        }
    }
}
