//! Which partition of a table each row belongs to.

use std::collections::HashMap;

use arrow::array::{AsArray, RecordBatch, UInt32Array};
use arrow::compute::take_record_batch;
use arrow::row::{RowConverter, SortField};
use iceberg::arrow::{PartitionValueCalculator, arrow_struct_to_literal};
use iceberg::spec::{Literal, PartitionSpecRef, PrimitiveLiteral, PrimitiveType, SchemaRef, Struct, Transform};
use uuid::Uuid;
use weir_common::text::{write_date, write_decimal, write_time, write_timestamp};

use super::partition::escaped;
use super::storage::unavailable;
use crate::error::Result;

/// Bytes of a partition value in a path; what is longer is cut, as the path only has to be readable.
const PATH_VALUE_MAX: usize = 64;

/// A partition that has had rows.
#[derive(Debug)]
pub struct Partition {
    pub value: Struct,
    /// `a=1/b=2/`, or nothing for the one partition of a table that is not partitioned.
    pub path: String,
}

/// Sorts rows into partitions, which are numbered as they are met.
pub struct Routes {
    spec: PartitionSpecRef,
    schema: SchemaRef,
    /// Of a partitioned table.
    values: Option<(PartitionValueCalculator, RowConverter)>,
    known: HashMap<Box<[u8]>, u32>,
    partitions: Vec<Partition>,
}

impl Routes {
    /// For rows with the columns of `schema`.
    pub fn new(spec: PartitionSpecRef, schema: SchemaRef) -> Result<Routes> {
        let mut routes = Routes { spec, schema, values: None, known: HashMap::new(), partitions: Vec::new() };
        if routes.spec.is_unpartitioned() {
            routes.partitions.push(Partition { value: Struct::empty(), path: String::new() });
            return Ok(routes);
        }
        let calculator = PartitionValueCalculator::try_new(&routes.spec, &routes.schema);
        let calculator = calculator.map_err(|e| unavailable("partition rows", e))?;
        let arrow::datatypes::DataType::Struct(fields) = calculator.partition_arrow_type() else {
            unreachable!("partition values are a struct");
        };
        let fields = fields.iter().map(|f| SortField::new(f.data_type().clone())).collect();
        routes.values = Some((calculator, RowConverter::new(fields)?));
        Ok(routes)
    }

    /// A partition by its number.
    pub fn partition(&self, number: u32) -> &Partition {
        &self.partitions[number as usize]
    }

    /// Numbers begin anew.
    pub fn forget(&mut self) {
        if self.values.is_some() {
            self.known.clear();
            self.partitions.clear();
        }
    }

    /// The partition of each row.
    pub fn route(&mut self, batch: &RecordBatch) -> Result<Vec<u32>> {
        let Some((calculator, converter)) = &self.values else {
            return Ok(vec![0; batch.num_rows()]);
        };
        let failed = |e| unavailable("partition rows", e);
        let values = calculator.calculate(batch).map_err(failed)?;
        let rows = converter.convert_columns(values.as_struct().columns())?;
        let mut routes = Vec::with_capacity(batch.num_rows());
        for (i, row) in rows.iter().enumerate() {
            if let Some(number) = self.known.get(row.data()) {
                routes.push(*number);
                continue;
            }
            let literal = arrow_struct_to_literal(&values.slice(i, 1), calculator.partition_type()).map_err(failed)?;
            let value = match literal.into_iter().next().flatten() {
                Some(Literal::Struct(value)) => value,
                _ => Struct::from_iter(self.spec.fields().iter().map(|_| None)),
            };
            let number = self.partitions.len() as u32;
            let path = partition_path(&self.spec, &self.schema, &value).map_err(failed)?;
            self.partitions.push(Partition { value, path });
            self.known.insert(row.data().into(), number);
            routes.push(number);
        }
        Ok(routes)
    }
}

/// The rows of each partition, in order.
pub fn split(batch: &RecordBatch, routes: &[u32]) -> Result<Vec<(u32, RecordBatch)>> {
    let Some(first) = routes.first() else {
        return Ok(Vec::new());
    };
    if routes.iter().all(|r| r == first) {
        return Ok(vec![(*first, batch.clone())]);
    }
    let mut order: Vec<u32> = (0..routes.len() as u32).collect();
    order.sort_by_key(|row| routes[*row as usize]);
    let sorted = take_record_batch(batch, &UInt32Array::from(order.clone()))?;
    let mut parts = Vec::new();
    let mut start = 0;
    while start < order.len() {
        let route = routes[order[start] as usize];
        let rows = order[start..].iter().take_while(|row| routes[**row as usize] == route).count();
        parts.push((route, sorted.slice(start, rows)));
        start += rows;
    }
    Ok(parts)
}

fn partition_path(spec: &PartitionSpecRef, schema: &SchemaRef, value: &Struct) -> iceberg::Result<String> {
    let partition_type = spec.partition_type(schema)?;
    let mut path = String::new();
    for ((field, field_type), value) in spec.fields().iter().zip(partition_type.fields()).zip(value.iter()) {
        let text = match (value.and_then(Literal::as_primitive_literal), field_type.field_type.as_primitive_type()) {
            (Some(value), Some(value_type)) => value_text(field.transform, &value, value_type),
            _ => "null".to_owned(),
        };
        let end = text.char_indices().map(|(at, c)| at + c.len_utf8()).take_while(|end| *end <= PATH_VALUE_MAX).last();
        path.push_str(&format!("{}={}/", escaped(&field.name, "-_"), escaped(&text[..end.unwrap_or(0)], "-_")));
    }
    Ok(path)
}

fn value_text(transform: Transform, value: &PrimitiveLiteral, value_type: &PrimitiveType) -> String {
    let mut text = String::new();
    match (transform, value_type, value) {
        (Transform::Year, _, PrimitiveLiteral::Int(years)) => text = (1970 + i64::from(*years)).to_string(),
        (Transform::Month, _, PrimitiveLiteral::Int(months)) => {
            text = format!("{}-{:02}", 1970 + months.div_euclid(12), months.rem_euclid(12) + 1);
        }
        (Transform::Hour, _, PrimitiveLiteral::Int(hours)) => {
            write_date(hours.div_euclid(24), &mut text);
            text.push_str(&format!("-{:02}", hours.rem_euclid(24)));
        }
        (_, PrimitiveType::Date, PrimitiveLiteral::Int(days)) => write_date(*days, &mut text),
        (_, PrimitiveType::Time, PrimitiveLiteral::Long(micros)) => write_time(*micros, &mut text),
        (_, PrimitiveType::Timestamp | PrimitiveType::Timestamptz, PrimitiveLiteral::Long(micros)) => {
            write_timestamp(*micros, &mut text);
        }
        (_, PrimitiveType::Decimal { scale, .. }, PrimitiveLiteral::Int128(unscaled)) => {
            write_decimal(*unscaled, i8::try_from(*scale).unwrap_or_default(), None, &mut text);
        }
        (_, PrimitiveType::Uuid, PrimitiveLiteral::UInt128(uuid)) => text = Uuid::from_u128(*uuid).to_string(),
        (_, _, PrimitiveLiteral::Boolean(value)) => text = value.to_string(),
        (_, _, PrimitiveLiteral::Int(value)) => text = value.to_string(),
        (_, _, PrimitiveLiteral::Long(value)) => text = value.to_string(),
        (_, _, PrimitiveLiteral::Float(value)) => text = value.to_string(),
        (_, _, PrimitiveLiteral::Double(value)) => text = value.to_string(),
        (_, _, PrimitiveLiteral::String(value)) => text.clone_from(value),
        (_, _, PrimitiveLiteral::Binary(bytes)) => {
            text.extend(bytes.iter().take(PATH_VALUE_MAX / 2).map(|b| format!("{b:02x}")));
        }
        (_, _, PrimitiveLiteral::Int128(value)) => text = value.to_string(),
        (_, _, PrimitiveLiteral::UInt128(value)) => text = value.to_string(),
        (_, _, PrimitiveLiteral::AboveMax | PrimitiveLiteral::BelowMin) => text.push_str("null"),
    }
    text
}
