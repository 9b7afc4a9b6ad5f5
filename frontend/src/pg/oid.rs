//! Which number PostgreSQL gives to which type.
//!
//! Drivers decide by the oid of a column how to read it, and the catalogs join on it, so both use this one table.

use weir_common::SqlType;

/// A built-in type that clients may meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BuiltinType {
    /// The name in `pg_type`.
    pub name: &'static str,
    pub oid: u32,
    /// The type of arrays of it.
    pub array_oid: u32,
    /// Bytes of a value in `pg_type`; -1 when they differ.
    pub length: i16,
    /// `typcategory`.
    pub category: char,
}

pub const BOOL: u32 = 16;
pub const BYTEA: u32 = 17;
pub const CHAR: u32 = 18;
pub const NAME: u32 = 19;
pub const INT8: u32 = 20;
pub const INT2: u32 = 21;
pub const INT4: u32 = 23;
pub const TEXT: u32 = 25;
pub const OID: u32 = 26;
pub const JSON: u32 = 114;
pub const FLOAT4: u32 = 700;
pub const FLOAT8: u32 = 701;
pub const UNKNOWN: u32 = 705;
pub const BPCHAR: u32 = 1042;
pub const VARCHAR: u32 = 1043;
pub const DATE: u32 = 1082;
pub const TIME: u32 = 1083;
pub const TIMESTAMP: u32 = 1114;
pub const TIMESTAMPTZ: u32 = 1184;
pub const INTERVAL: u32 = 1186;
pub const NUMERIC: u32 = 1700;
pub const RECORD: u32 = 2249;
pub const UUID: u32 = 2950;
pub const JSONB: u32 = 3802;

const fn builtin(name: &'static str, oid: u32, array_oid: u32, length: i16, category: char) -> BuiltinType {
    BuiltinType { name, oid, array_oid, length, category }
}

/// All types that have an oid here, array types left out.
pub const BUILTIN_TYPES: &[BuiltinType] = &[
    builtin("bool", BOOL, 1000, 1, 'B'),
    builtin("bytea", BYTEA, 1001, -1, 'U'),
    builtin("char", CHAR, 1002, 1, 'Z'),
    builtin("name", NAME, 1003, 64, 'S'),
    builtin("int8", INT8, 1016, 8, 'N'),
    builtin("int2", INT2, 1005, 2, 'N'),
    builtin("int4", INT4, 1007, 4, 'N'),
    builtin("text", TEXT, 1009, -1, 'S'),
    builtin("oid", OID, 1028, 4, 'N'),
    builtin("json", JSON, 199, -1, 'U'),
    builtin("float4", FLOAT4, 1021, 4, 'N'),
    builtin("float8", FLOAT8, 1022, 8, 'N'),
    builtin("bpchar", BPCHAR, 1014, -1, 'S'),
    builtin("varchar", VARCHAR, 1015, -1, 'S'),
    builtin("date", DATE, 1182, 4, 'D'),
    builtin("time", TIME, 1183, 8, 'D'),
    builtin("timestamp", TIMESTAMP, 1115, 8, 'D'),
    builtin("timestamptz", TIMESTAMPTZ, 1185, 8, 'D'),
    builtin("interval", INTERVAL, 1187, 16, 'T'),
    builtin("numeric", NUMERIC, 1231, -1, 'N'),
    builtin("record", RECORD, 2287, -1, 'P'),
    builtin("uuid", UUID, 2951, 16, 'U'),
    builtin("jsonb", JSONB, 3807, -1, 'U'),
];

/// The entry of a type that is no array.
pub fn builtin_type(oid: u32) -> Option<&'static BuiltinType> {
    BUILTIN_TYPES.iter().find(|t| t.oid == oid)
}

/// The oid of a type. PostgreSQL has one array type for every number of dimensions.
pub fn of(sql_type: &SqlType) -> u32 {
    match sql_type {
        SqlType::Boolean => BOOL,
        SqlType::SmallInt => INT2,
        SqlType::Integer => INT4,
        SqlType::BigInt => INT8,
        SqlType::Real => FLOAT4,
        SqlType::Double => FLOAT8,
        SqlType::Numeric(_) => NUMERIC,
        SqlType::Varchar => VARCHAR,
        SqlType::Bytea => BYTEA,
        SqlType::Date => DATE,
        SqlType::Time => TIME,
        SqlType::Timestamp => TIMESTAMP,
        SqlType::TimestampTz => TIMESTAMPTZ,
        SqlType::Interval => INTERVAL,
        SqlType::Jsonb => JSONB,
        SqlType::Array(_) => builtin_type(of(element(sql_type))).map_or(UNKNOWN, |t| t.array_oid),
        SqlType::Struct(_) => RECORD,
    }
}

/// What the arrays of an array type hold in the end; of any other type, the type itself.
pub fn element(sql_type: &SqlType) -> &SqlType {
    match sql_type {
        SqlType::Array(item) => element(item),
        other => other,
    }
}

/// The bytes of a value, as `typlen` and RowDescription have it.
pub fn length(sql_type: &SqlType) -> i16 {
    builtin_type(of(sql_type)).map_or(-1, |t| t.length)
}

/// The type modifier of a column: precision and scale of a numeric that was declared with them, else -1.
pub fn modifier(sql_type: &SqlType, declared_scale: Option<i8>) -> i32 {
    match (sql_type, declared_scale) {
        (SqlType::Numeric(Some((precision, _))), Some(scale)) => ((i32::from(*precision) << 16) | i32::from(scale)) + 4,
        _ => -1,
    }
}

/// The type that carries values of an oid. `None` for those that Weir does not know, and for the unknown type.
pub fn sql_type(oid: u32) -> Option<SqlType> {
    Some(match oid {
        BOOL => SqlType::Boolean,
        INT2 => SqlType::SmallInt,
        INT4 => SqlType::Integer,
        INT8 | OID => SqlType::BigInt,
        FLOAT4 => SqlType::Real,
        FLOAT8 => SqlType::Double,
        NUMERIC => SqlType::Numeric(None),
        TEXT | VARCHAR | BPCHAR | NAME | CHAR | UUID => SqlType::Varchar,
        BYTEA => SqlType::Bytea,
        DATE => SqlType::Date,
        TIME => SqlType::Time,
        TIMESTAMP => SqlType::Timestamp,
        TIMESTAMPTZ => SqlType::TimestampTz,
        INTERVAL => SqlType::Interval,
        JSON | JSONB => SqlType::Jsonb,
        _ => {
            let item = BUILTIN_TYPES.iter().find(|t| t.array_oid == oid)?;
            SqlType::Array(Box::new(sql_type(item.oid)?))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_come_back_from_their_oids() {
        let scalars = [
            SqlType::Boolean,
            SqlType::SmallInt,
            SqlType::Integer,
            SqlType::BigInt,
            SqlType::Real,
            SqlType::Double,
            SqlType::Numeric(None),
            SqlType::Varchar,
            SqlType::Bytea,
            SqlType::Date,
            SqlType::Time,
            SqlType::Timestamp,
            SqlType::TimestampTz,
            SqlType::Interval,
            SqlType::Jsonb,
        ];
        for scalar in scalars {
            let array = SqlType::Array(Box::new(scalar.clone()));
            assert_eq!(sql_type(of(&array)).as_ref(), Some(&array));
            assert_eq!(of(&SqlType::Array(Box::new(array.clone()))), of(&array));
            assert_eq!(sql_type(of(&scalar)), Some(scalar));
        }
        assert_eq!(sql_type(UNKNOWN), None);
        assert_eq!(sql_type(0), None);
    }

    #[test]
    fn numeric_columns_have_a_modifier() {
        assert_eq!(modifier(&SqlType::Numeric(Some((10, 2))), Some(2)), 655_366);
        assert_eq!(modifier(&SqlType::Numeric(Some((10, 2))), None), -1);
        assert_eq!(modifier(&SqlType::Varchar, None), -1);
    }
}
