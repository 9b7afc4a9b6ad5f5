//! Which column of a table each column of a sink goes to.
//!
//! Columns are found by name, without regard to case where that leaves no doubt. A column of the table that the sink
//! lacks stays null.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema as ArrowSchema, SchemaRef, TimeUnit};
use iceberg::arrow::schema_to_arrow_schema;
use iceberg::spec::{NestedFieldRef, PrimitiveType, Schema, SchemaRef as IcebergSchemaRef, Type};
use weir_common::SqlType;

use super::storage::unavailable;
use crate::error::{ConnectorError, Result};

/// The columns of a sink in a table.
#[derive(Clone, Debug)]
pub struct Columns {
    /// What data files hold: the columns of the sink in their order, by the names, types and ids of the table.
    pub schema: IcebergSchemaRef,
    /// The same for Arrow, with the ids in the metadata of fields.
    pub arrow: SchemaRef,
}

impl Columns {
    /// Finds the columns of a sink in a table. The error names all that differ.
    pub fn find(sink: &ArrowSchema, table: &Schema) -> Result<Columns> {
        let fields = table.as_struct().fields();
        let mut differences = Vec::new();
        let mut found = Vec::new();
        for column in sink.fields() {
            match find(fields, column.name()) {
                None => differences.push(format!("the table has no column `{}`", column.name())),
                Some(field) if fits(column.data_type(), &field.field_type) => found.push(field.clone()),
                Some(field) => differences.push(format!(
                    "column `{}` of the table has type {}, which takes no {}",
                    field.name,
                    field.field_type,
                    shown(column.data_type())
                )),
            }
        }
        for field in fields.iter().filter(|f| f.required) {
            if !sink.fields().iter().any(|c| find(fields, c.name()).is_some_and(|f| f.id == field.id)) {
                differences.push(format!("column `{}` of the table is required, and the sink has none", field.name));
            }
        }
        for (i, field) in found.iter().enumerate() {
            if found[..i].iter().any(|f| f.id == field.id) {
                differences.push(format!("two columns of the sink go to column `{}` of the table", field.name));
            }
        }
        if !differences.is_empty() {
            return Err(ConnectorError::Mismatch { reason: differences.join("; ") });
        }
        let schema = Schema::builder().with_schema_id(table.schema_id()).with_fields(found).build();
        let schema = schema.map_err(|e| unavailable("read the schema of the table", e))?;
        let arrow = schema_to_arrow_schema(&schema).map_err(|e| unavailable("read the schema of the table", e))?;
        Ok(Columns { schema: Arc::new(schema), arrow: Arc::new(arrow) })
    }

    /// The columns of a sink that a table lacks.
    pub fn missing(sink: &ArrowSchema, table: &Schema) -> Vec<Arc<Field>> {
        let fields = table.as_struct().fields();
        sink.fields().iter().filter(|c| find(fields, c.name()).is_none()).cloned().collect()
    }

    /// The ids in the table of columns of the sink, by index.
    pub fn ids(&self, columns: &[usize]) -> Vec<i32> {
        columns.iter().map(|i| self.schema.as_struct().fields()[*i].id).collect()
    }
}

/// The field with this name, or the only one that differs in case.
fn find<'a>(fields: &'a [NestedFieldRef], name: &str) -> Option<&'a NestedFieldRef> {
    if let Some(exact) = fields.iter().find(|f| f.name == name) {
        return Some(exact);
    }
    let mut alike = fields.iter().filter(|f| f.name.to_lowercase() == name.to_lowercase());
    alike.next().filter(|_| alike.next().is_none())
}

/// Whether each value of an Arrow type has its like in an Iceberg type, or can be checked to have one.
fn fits(from: &DataType, to: &Type) -> bool {
    use PrimitiveType as P;
    match (from, to) {
        (DataType::List(item), Type::List(list)) => fits(item.data_type(), &list.element_field.field_type),
        (DataType::Struct(from), Type::Struct(to)) => {
            let to = to.fields();
            from.len() == to.len()
                && from.iter().all(|f| find(to, f.name()).is_some_and(|t| fits(f.data_type(), &t.field_type)))
        }
        (from, Type::Primitive(to)) => match (from, to) {
            (DataType::Boolean, P::Boolean) => true,
            (DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::UInt8 | DataType::UInt16, to) => {
                matches!(to, P::Int | P::Long)
            }
            (DataType::Int64 | DataType::UInt32, P::Long) => true,
            (DataType::UInt64, P::Decimal { precision, scale }) => *precision >= 20 + scale,
            (DataType::Float16 | DataType::Float32, to) => matches!(to, P::Float | P::Double),
            (DataType::Float64, P::Double) => true,
            (DataType::Decimal128(p, s), P::Decimal { precision, scale }) => {
                let (p, s) = (i64::from(*p), i64::from(*s));
                i64::from(*scale) >= s && i64::from(*precision) - i64::from(*scale) >= p - s
            }
            (DataType::Decimal256(_, _), to) => matches!(to, P::Decimal { .. } | P::String),
            (DataType::Utf8 | DataType::Utf8View, to) => matches!(to, P::String | P::Uuid),
            (DataType::LargeUtf8, P::String) => true,
            (DataType::Binary | DataType::LargeBinary | DataType::BinaryView, to) => {
                matches!(to, P::Binary | P::Fixed(_))
            }
            (DataType::Date32, P::Date) => true,
            (DataType::Time64(TimeUnit::Microsecond), P::Time) => true,
            (DataType::Timestamp(TimeUnit::Microsecond, None), P::Timestamp) => true,
            (DataType::Timestamp(TimeUnit::Microsecond, Some(_)), P::Timestamptz) => true,
            _ => false,
        },
        _ => false,
    }
}

fn shown(data_type: &DataType) -> String {
    SqlType::from_arrow(data_type).map_or_else(|| data_type.to_string(), |t| t.to_string())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use iceberg::spec::NestedField;

    use super::*;

    fn sink(columns: &[(&str, SqlType)]) -> ArrowSchema {
        ArrowSchema::new(columns.iter().map(|(n, t)| Field::new(*n, t.to_arrow(), true)).collect::<Vec<_>>())
    }

    fn table(columns: &[(&str, PrimitiveType)]) -> Schema {
        let field = |(i, (n, t)): (usize, &(&str, PrimitiveType))| {
            Arc::new(NestedField::optional(i as i32 + 1, *n, Type::Primitive(t.clone())))
        };
        Schema::builder().with_fields(columns.iter().enumerate().map(field)).build().unwrap()
    }

    #[test]
    fn columns_are_found_by_name() {
        let table = table(&[("B", PrimitiveType::Long), ("a", PrimitiveType::String), ("c", PrimitiveType::Int)]);
        let columns = Columns::find(&sink(&[("a", SqlType::Jsonb), ("b", SqlType::Integer)]), &table).unwrap();
        assert_eq!(columns.ids(&[0, 1]), [2, 1]);
        assert_eq!(columns.arrow.field(1).name(), "B");
    }

    #[test]
    fn all_differences_are_named() {
        let table = table(&[("A", PrimitiveType::Int), ("a", PrimitiveType::Int), ("c", PrimitiveType::Int)]);
        let columns = sink(&[("c", SqlType::BigInt), ("d", SqlType::Integer), ("A", SqlType::Integer)]);
        let error = Columns::find(&columns, &table).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the destination does not fit: column `c` of the table has type int, which takes no bigint; \
             the table has no column `d`"
        );
    }
}
