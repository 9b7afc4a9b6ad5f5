//! SQL types as written, to the types that carry their values.

use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::Result;
use datafusion::logical_expr::planner::TypePlanner;
use datafusion::sql::sqlparser::ast::{ArrayElemTypeDef, DataType as Ast, ExactNumberInfo, TimezoneInfo};
use weir_common::{SqlState, SqlType};

use crate::error::SqlError;

/// Digits that a numeric with a scale can have.
const SCALED_PRECISION_MAX: u64 = 38;

/// The type that a type's name in SQL means.
pub fn sql_type(written: &Ast) -> Result<SqlType, SqlError> {
    Ok(match written {
        Ast::Boolean | Ast::Bool => SqlType::Boolean,
        Ast::SmallInt(_) | Ast::Int2(_) => SqlType::SmallInt,
        // `Int32` is how literals::narrow marks an integer literal.
        Ast::Int(_) | Ast::Integer(_) | Ast::Int4(_) | Ast::Int32 => SqlType::Integer,
        Ast::BigInt(_) | Ast::Int8(_) | Ast::Int64 => SqlType::BigInt,
        Ast::Real | Ast::Float4 => SqlType::Real,
        Ast::Double(_) | Ast::DoublePrecision | Ast::Float8 => SqlType::Double,
        Ast::Float(ExactNumberInfo::Precision(bits)) if *bits <= 24 => SqlType::Real,
        Ast::Float(_) => SqlType::Double,
        Ast::Numeric(info) | Ast::Decimal(info) | Ast::Dec(info) => SqlType::Numeric(numeric(info, written)?),
        Ast::Character(_)
        | Ast::Char(_)
        | Ast::CharacterVarying(_)
        | Ast::CharVarying(_)
        | Ast::Varchar(_)
        | Ast::Text
        | Ast::String(_) => SqlType::Varchar,
        Ast::Bytea => SqlType::Bytea,
        Ast::Date => SqlType::Date,
        Ast::Time(_, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => SqlType::Time,
        Ast::Timestamp(_, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => SqlType::Timestamp,
        Ast::Timestamp(_, TimezoneInfo::Tz | TimezoneInfo::WithTimeZone) => SqlType::TimestampTz,
        Ast::Interval { .. } => SqlType::Interval,
        Ast::JSON | Ast::JSONB => SqlType::Jsonb,
        Ast::Array(ArrayElemTypeDef::SquareBracket(item, _) | ArrayElemTypeDef::AngleBracket(item)) => {
            SqlType::Array(Box::new(sql_type(item)?))
        }
        Ast::Struct(fields, _) => {
            let mut members = Vec::with_capacity(fields.len());
            for (i, field) in fields.iter().enumerate() {
                let name = field.field_name.as_ref().map_or_else(|| format!("f{}", i + 1), |n| n.value.clone());
                members.push((name, sql_type(&field.field_type)?));
            }
            SqlType::Struct(members)
        }
        Ast::Custom(name, modifiers) if modifiers.is_empty() => custom(&name.to_string().to_lowercase(), written)?,
        Ast::Regclass => SqlType::Integer,
        other => return Err(unknown(other)),
    })
}

/// Types that the parser has no word for.
fn custom(name: &str, written: &Ast) -> Result<SqlType, SqlError> {
    Ok(match name.strip_prefix("pg_catalog.").unwrap_or(name) {
        "name" | "bpchar" | "\"char\"" | "cstring" | "regnamespace" | "citext" => SqlType::Varchar,
        "oid" | "regtype" | "regproc" | "regclass" | "xid" => SqlType::Integer,
        "int2" | "smallint" => SqlType::SmallInt,
        "int4" | "int" | "integer" => SqlType::Integer,
        "int8" | "bigint" => SqlType::BigInt,
        "float4" | "real" => SqlType::Real,
        "float8" => SqlType::Double,
        "bool" | "boolean" => SqlType::Boolean,
        "text" | "varchar" => SqlType::Varchar,
        "timestamptz" => SqlType::TimestampTz,
        "timestamp" => SqlType::Timestamp,
        "date" => SqlType::Date,
        "time" => SqlType::Time,
        "interval" => SqlType::Interval,
        "numeric" | "decimal" => SqlType::Numeric(None),
        "jsonb" | "json" => SqlType::Jsonb,
        "bytea" => SqlType::Bytea,
        _ => return Err(unknown(written)),
    })
}

fn unknown(written: &Ast) -> SqlError {
    let name = written.to_string().to_lowercase();
    SqlError::new(SqlState::UNDEFINED_OBJECT, format!("type \"{name}\" does not exist"))
}

fn numeric(info: &ExactNumberInfo, written: &Ast) -> Result<Option<(u8, i8)>, SqlError> {
    let (precision, scale) = match *info {
        ExactNumberInfo::None => return Ok(None),
        ExactNumberInfo::Precision(precision) => (precision, 0),
        ExactNumberInfo::PrecisionAndScale(precision, scale) => (precision, scale),
    };
    let invalid = |message: String| Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message));
    if precision == 0 || precision > 1000 {
        return invalid(format!("NUMERIC precision {precision} must be between 1 and 1000"));
    }
    if scale < 0 || scale as u64 > precision {
        return invalid(format!("NUMERIC scale {scale} must be between 0 and precision {precision}"));
    }
    if precision > SCALED_PRECISION_MAX {
        return Err(SqlError::unsupported(format!("type {}", written.to_string().to_lowercase()))
            .with_hint("Numerics with a scale have up to 38 digits. Write numeric, without precision and scale."));
    }
    Ok(Some((precision as u8, scale as i8)))
}

/// Tells DataFusion which Arrow type a SQL type is.
#[derive(Debug)]
pub(super) struct Types;

impl TypePlanner for Types {
    fn plan_type_field(&self, written: &Ast) -> Result<Option<FieldRef>> {
        Ok(Some(std::sync::Arc::new(Field::new("", sql_type(written)?.to_arrow(), true))))
    }
}

/// The declared type for an Arrow type that no column is declared with, e.g. the UInt64 of `row_number()`. `None` when the
/// type is one of ours already.
pub(super) fn normal(data_type: &DataType) -> Option<DataType> {
    let normal = SqlType::from_arrow(data_type)?.to_arrow();
    (normal != *data_type).then_some(normal)
}
