//! The schema of a table that a sink makes or extends.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema as ArrowSchema, TimeUnit};
use iceberg::spec::{ListType, NestedField, NestedFieldRef, PrimitiveType, Schema, StructType, Type};
use weir_common::SqlType;

use super::storage::unavailable;
use crate::error::{ConnectorError, Result};

/// A schema with these columns, all optional.
pub fn table_schema(columns: &ArrowSchema) -> Result<Schema> {
    let mut ids = Ids(0);
    let schema = Schema::builder().with_fields(new_fields(columns.fields(), &mut ids)?).build();
    schema.map_err(|e| ConnectorError::Mismatch { reason: format!("no table has these columns: {e}") })
}

/// The schema with more columns behind those it has. `last_id` is the highest id that any column has ever had.
pub fn extended_schema(schema: &Schema, columns: &[Arc<Field>], last_id: i32) -> Result<Schema> {
    let mut ids = Ids(last_id);
    let mut fields = schema.as_struct().fields().to_vec();
    fields.extend(new_fields(columns, &mut ids)?);
    let identifiers = schema.identifier_field_ids();
    let extended = Schema::builder().with_fields(fields).with_identifier_field_ids(identifiers).build();
    extended.map_err(|e| unavailable("add columns", e))
}

/// Ids of columns, which are unique within a table for ever.
struct Ids(i32);

impl Ids {
    fn next(&mut self) -> i32 {
        self.0 += 1;
        self.0
    }
}

fn new_fields(columns: &[Arc<Field>], ids: &mut Ids) -> Result<Vec<NestedFieldRef>> {
    // A level has its ids one after the other, as other writers do it.
    let own: Vec<i32> = columns.iter().map(|_| ids.next()).collect();
    let field = |(column, id): (&Arc<Field>, i32)| {
        let field_type = new_type(column.data_type(), column.name(), ids)?;
        Ok(Arc::new(NestedField::optional(id, column.name(), field_type)))
    };
    columns.iter().zip(own).map(field).collect()
}

fn new_type(data_type: &DataType, column: &str, ids: &mut Ids) -> Result<Type> {
    let primitive = match data_type {
        DataType::Boolean => PrimitiveType::Boolean,
        DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::UInt8 | DataType::UInt16 => PrimitiveType::Int,
        DataType::Int64 | DataType::UInt32 => PrimitiveType::Long,
        DataType::UInt64 => PrimitiveType::Decimal { precision: 20, scale: 0 },
        DataType::Float16 | DataType::Float32 => PrimitiveType::Float,
        DataType::Float64 => PrimitiveType::Double,
        DataType::Decimal128(precision, scale) if *scale >= 0 && i16::from(*precision) >= i16::from(*scale) => {
            PrimitiveType::Decimal { precision: u32::from(*precision), scale: scale.unsigned_abs().into() }
        }
        DataType::Decimal256(_, _) | DataType::Utf8 | DataType::Utf8View | DataType::LargeUtf8 => PrimitiveType::String,
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => PrimitiveType::Binary,
        DataType::Date32 => PrimitiveType::Date,
        DataType::Time64(TimeUnit::Microsecond) => PrimitiveType::Time,
        DataType::Timestamp(TimeUnit::Microsecond, None) => PrimitiveType::Timestamp,
        DataType::Timestamp(TimeUnit::Microsecond, Some(_)) => PrimitiveType::Timestamptz,
        DataType::List(item) => {
            let id = ids.next();
            let element = NestedField::list_element(id, new_type(item.data_type(), column, ids)?, false);
            return Ok(Type::List(ListType::new(Arc::new(element))));
        }
        DataType::Struct(fields) => return Ok(Type::Struct(StructType::new(new_fields(fields, ids)?))),
        other => {
            let data_type = SqlType::from_arrow(other).map_or_else(|| other.to_string(), |t| t.to_string());
            let column = column.to_owned();
            return Err(ConnectorError::UnsupportedType { what: "an Iceberg table", column, data_type });
        }
    };
    Ok(Type::Primitive(primitive))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn column(name: &str, sql_type: SqlType) -> Field {
        Field::new(name, sql_type.to_arrow(), true)
    }

    #[test]
    fn types_of_a_new_table() {
        let nested = SqlType::Struct(vec![("x".into(), SqlType::Numeric(Some((10, 2)))), ("y".into(), SqlType::Jsonb)]);
        let schema = table_schema(&ArrowSchema::new(vec![
            column("a", SqlType::SmallInt),
            column("b", SqlType::Array(Box::new(nested))),
            column("c", SqlType::Numeric(None)),
        ]))
        .unwrap();
        let types: Vec<String> = schema.as_struct().fields().iter().map(|f| f.field_type.to_string()).collect();
        assert_eq!(types[0], "int");
        assert_eq!(types[2], "string");
        let ids: Vec<i32> = ["a", "b", "c", "b.element", "b.element.x", "b.element.y"]
            .map(|name| schema.field_id_by_name(name).unwrap())
            .to_vec();
        assert_eq!(ids, [1, 2, 3, 4, 5, 6]);

        let refused = table_schema(&ArrowSchema::new(vec![column("i", SqlType::Interval)])).unwrap_err();
        assert_eq!(refused.to_string(), "column `i` has type interval, which an Iceberg table cannot fill");
    }
}
