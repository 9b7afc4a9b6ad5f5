//! Binary operators by the types of their operands.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::expr::Placeholder;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, Operator, ScalarUDF, cast};
use datafusion::sql::sqlparser::ast::BinaryOperator;
use weir_common::SqlType;

use super::super::FunctionSet;

/// Functions that stand behind operators.
const FUNCTIONS: [&str; 29] = [
    "pg_add",
    "pg_sub",
    "pg_mul",
    "pg_div",
    "pg_mod",
    "pg_and",
    "pg_or",
    "pg_xor",
    "pg_text",
    "pg_days",
    "pg_date",
    "pg_interval_mul",
    "pg_interval_div",
    "pg_timestamp_diff",
    "jsonb_get",
    "jsonb_get_text",
    "jsonb_get_path",
    "jsonb_get_path_text",
    "jsonb_contains",
    "jsonb_contained",
    "jsonb_exists",
    "jsonb_exists_any",
    "jsonb_exists_all",
    "jsonb_concat",
    "jsonb_delete",
    "jsonb_delete_path",
    "power",
    "date_part",
    "array_has_any",
];

/// Plans operators.
pub(super) struct Operators {
    functions: HashMap<&'static str, Arc<ScalarUDF>>,
}

impl fmt::Debug for Operators {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Operators")
    }
}

/// What an operator sees of its operand's type.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Integer,
    Decimal,
    Float,
    Text,
    Jsonb,
    Date,
    Time,
    Timestamp,
    Interval,
    Array,
    Null,
    Other,
}

impl Kind {
    fn of(data_type: &DataType) -> Kind {
        match data_type {
            t if t.is_signed_integer() => Kind::Integer,
            DataType::Decimal128(..) | DataType::Decimal256(..) => Kind::Decimal,
            DataType::Float32 | DataType::Float64 => Kind::Float,
            DataType::Utf8 | DataType::Utf8View => Kind::Text,
            DataType::LargeUtf8 => Kind::Jsonb,
            DataType::Date32 => Kind::Date,
            DataType::Time64(_) => Kind::Time,
            DataType::Timestamp(..) => Kind::Timestamp,
            DataType::Interval(_) | DataType::Duration(_) => Kind::Interval,
            DataType::List(_) => Kind::Array,
            DataType::Null => Kind::Null,
            _ => Kind::Other,
        }
    }
}

impl Operators {
    pub(super) fn new(functions: &FunctionSet) -> Operators {
        let find = |name: &'static str| functions.scalar.get(name).map(|f| (name, f.clone()));
        Operators { functions: FUNCTIONS.into_iter().filter_map(find).collect() }
    }

    /// A call, if there is such a function.
    fn call(&self, name: &str, args: Vec<Expr>) -> Option<Expr> {
        self.functions.get(name).map(|f| f.call(args))
    }

    fn plan(&self, op: &BinaryOperator, left: &Expr, right: &Expr, schema: &DFSchema) -> Option<Expr> {
        let (left_type, right_type) = (left.get_type(schema).ok()?, right.get_type(schema).ok()?);
        let (l, r) = (Kind::of(&left_type), Kind::of(&right_type));
        let args = || vec![left.clone(), right.clone()];
        use BinaryOperator as Op;
        match (op, l, r) {
            (Op::Plus | Op::Minus | Op::Multiply | Op::Divide | Op::Modulo, Kind::Integer, Kind::Integer) => {
                self.call(arithmetic(op)?, args())
            }
            (Op::Divide | Op::Modulo, Kind::Decimal, Kind::Decimal | Kind::Integer)
            | (Op::Divide | Op::Modulo, Kind::Integer, Kind::Decimal)
            | (Op::Divide, Kind::Float, Kind::Float | Kind::Integer | Kind::Decimal)
            | (Op::Divide, Kind::Integer | Kind::Decimal, Kind::Float) => self.call(arithmetic(op)?, args()),
            (Op::Plus | Op::Minus | Op::Multiply, Kind::Decimal, Kind::Decimal | Kind::Integer)
            | (Op::Plus | Op::Minus | Op::Multiply, Kind::Integer, Kind::Decimal) => {
                // Arrow's decimals are exact and quick as long as the digits suffice.
                if fits_decimal128(op, &left_type, &right_type) {
                    return None;
                }
                self.call(arithmetic(op)?, args())
            }
            // A real beside another number is computed in double precision, as numbers beside a double are; and what is
            // too large for a float is an error.
            (Op::Plus | Op::Minus | Op::Multiply, Kind::Float, Kind::Float | Kind::Integer | Kind::Decimal)
            | (Op::Plus | Op::Minus | Op::Multiply, Kind::Integer | Kind::Decimal, Kind::Float) => {
                self.call(arithmetic(op)?, args())
            }
            (Op::BitwiseAnd | Op::BitwiseOr | Op::PGBitwiseXor, Kind::Integer, Kind::Integer) => {
                let name = match op {
                    Op::BitwiseAnd => "pg_and",
                    Op::BitwiseOr => "pg_or",
                    _ => "pg_xor",
                };
                self.call(name, args())
            }
            (Op::PGExp, _, _) => {
                let double = |e: &Expr| cast(e.clone(), DataType::Float64);
                self.call("power", vec![double(left), double(right)])
            }
            (Op::Minus, Kind::Date, Kind::Date) => {
                let days = |e: &Expr| self.call("pg_days", vec![e.clone()]);
                self.call("pg_sub", vec![days(left)?, days(right)?])
            }
            (Op::Plus | Op::Minus, Kind::Date, Kind::Integer) => {
                let (date, days) = (self.call("pg_days", vec![left.clone()])?, cast(right.clone(), DataType::Int32));
                self.call("pg_date", vec![self.call(arithmetic(op)?, vec![date, days])?])
            }
            (Op::Plus, Kind::Integer, Kind::Date) => {
                let (date, days) = (self.call("pg_days", vec![right.clone()])?, cast(left.clone(), DataType::Int32));
                self.call("pg_date", vec![self.call("pg_add", vec![date, days])?])
            }
            (Op::Plus | Op::Minus, Kind::Date, Kind::Interval) => {
                let timestamp = cast(left.clone(), SqlType::Timestamp.to_arrow());
                Some(if *op == Op::Plus { timestamp + right.clone() } else { timestamp - right.clone() })
            }
            (Op::Plus, Kind::Interval, Kind::Date) => {
                Some(cast(right.clone(), SqlType::Timestamp.to_arrow()) + left.clone())
            }
            // A time of day stays within the day.
            (Op::Plus | Op::Minus, Kind::Time, Kind::Interval) => {
                let since = cast(left.clone(), SqlType::Interval.to_arrow());
                let moved = if *op == Op::Plus { since + right.clone() } else { since - right.clone() };
                Some(cast(moved, SqlType::Time.to_arrow()))
            }
            (Op::Plus, Kind::Interval, Kind::Time) => {
                let since = cast(right.clone(), SqlType::Interval.to_arrow());
                Some(cast(since + left.clone(), SqlType::Time.to_arrow()))
            }
            (Op::Plus, Kind::Interval, Kind::Timestamp) => Some(right.clone() + left.clone()),
            (Op::Minus, Kind::Timestamp | Kind::Date, Kind::Timestamp | Kind::Date) => {
                let timestamp = |e: &Expr, t: &DataType| match t {
                    DataType::Date32 => cast(e.clone(), SqlType::Timestamp.to_arrow()),
                    _ => e.clone(),
                };
                let (a, b) = (timestamp(left, &left_type), timestamp(right, &right_type));
                let difference = self.call("pg_timestamp_diff", vec![a.clone(), b.clone()]);
                Some(difference.unwrap_or_else(|| cast(a - b, SqlType::Interval.to_arrow())))
            }
            (Op::Multiply, Kind::Interval, Kind::Integer | Kind::Decimal | Kind::Float) => {
                self.call("pg_interval_mul", vec![left.clone(), cast(right.clone(), DataType::Float64)])
            }
            (Op::Multiply, Kind::Integer | Kind::Decimal | Kind::Float, Kind::Interval) => {
                self.call("pg_interval_mul", vec![right.clone(), cast(left.clone(), DataType::Float64)])
            }
            (Op::Divide, Kind::Interval, Kind::Integer | Kind::Decimal | Kind::Float) => {
                self.call("pg_interval_div", vec![left.clone(), cast(right.clone(), DataType::Float64)])
            }
            (Op::StringConcat, Kind::Jsonb, Kind::Jsonb) => self.call("jsonb_concat", args()),
            // A literal beside jsonb or bytes is such a value, too.
            (Op::StringConcat, Kind::Jsonb, Kind::Text) if is_unknown(right) => {
                self.call("jsonb_concat", vec![left.clone(), cast(right.clone(), left_type)])
            }
            (Op::StringConcat, Kind::Text, Kind::Jsonb) if is_unknown(left) => {
                self.call("jsonb_concat", vec![cast(left.clone(), right_type), right.clone()])
            }
            (Op::StringConcat, Kind::Other, Kind::Text) if is_unknown(right) && left_type == DataType::Binary => {
                Some(concat(left.clone(), cast(right.clone(), left_type)))
            }
            (Op::StringConcat, Kind::Text, Kind::Other) if is_unknown(left) && right_type == DataType::Binary => {
                Some(concat(cast(left.clone(), right_type), right.clone()))
            }
            (Op::StringConcat, Kind::Other, Kind::Other) if left_type == DataType::Binary => None,
            (Op::StringConcat, Kind::Array, _) | (Op::StringConcat, _, Kind::Array) => None,
            (Op::StringConcat, Kind::Text, Kind::Text | Kind::Null) => None,
            (Op::StringConcat, _, Kind::Text) => Some(concat(self.call("pg_text", vec![left.clone()])?, right.clone())),
            (Op::StringConcat, Kind::Text, _) => Some(concat(left.clone(), self.call("pg_text", vec![right.clone()])?)),
            (Op::PGOverlap, Kind::Array, Kind::Array) => self.call("array_has_any", args()),
            (op, Kind::Jsonb, _) => self.jsonb(op, left, right, &right_type),
            _ => None,
        }
    }

    fn jsonb(&self, op: &BinaryOperator, left: &Expr, right: &Expr, right_type: &DataType) -> Option<Expr> {
        use BinaryOperator as Op;
        let args = |right: Expr| vec![left.clone(), right];
        // A literal on the right of these is a document or an array of names.
        let document = || cast(right.clone(), SqlType::Jsonb.to_arrow());
        let path = || match right_type {
            DataType::Utf8 => cast(right.clone(), SqlType::Array(Box::new(SqlType::Varchar)).to_arrow()),
            _ => right.clone(),
        };
        match op {
            Op::Arrow => self.call("jsonb_get", args(right.clone())),
            Op::LongArrow => self.call("jsonb_get_text", args(right.clone())),
            Op::HashArrow => self.call("jsonb_get_path", args(path())),
            Op::HashLongArrow => self.call("jsonb_get_path_text", args(path())),
            Op::AtArrow => self.call("jsonb_contains", args(document())),
            Op::ArrowAt => self.call("jsonb_contained", args(document())),
            Op::Question => self.call("jsonb_exists", args(right.clone())),
            Op::QuestionPipe => self.call("jsonb_exists_any", args(path())),
            Op::QuestionAnd => self.call("jsonb_exists_all", args(path())),
            Op::Minus => self.call("jsonb_delete", args(right.clone())),
            Op::HashMinus => self.call("jsonb_delete_path", args(path())),
            _ => None,
        }
    }
}

fn concat(left: Expr, right: Expr) -> Expr {
    Expr::BinaryExpr(BinaryExpr::new(Box::new(left), Operator::StringConcat, Box::new(right)))
}

fn arithmetic(op: &BinaryOperator) -> Option<&'static str> {
    Some(match op {
        BinaryOperator::Plus => "pg_add",
        BinaryOperator::Minus => "pg_sub",
        BinaryOperator::Multiply => "pg_mul",
        BinaryOperator::Divide => "pg_div",
        BinaryOperator::Modulo => "pg_mod",
        _ => return None,
    })
}

/// Whether the result of an operation of Arrow's decimals has room for every value.
fn fits_decimal128(op: &BinaryOperator, left: &DataType, right: &DataType) -> bool {
    let digits = |t: &DataType| match t {
        DataType::Int16 => Some((5, 0)),
        DataType::Int32 => Some((10, 0)),
        DataType::Int64 => Some((20, 0)),
        DataType::Decimal128(precision, scale) => Some((i32::from(*precision), i32::from(*scale))),
        _ => None,
    };
    let (Some((lp, ls)), Some((rp, rs))) = (digits(left), digits(right)) else { return false };
    let needed = match op {
        BinaryOperator::Multiply => lp + rp + 1,
        _ => ls.max(rs) + (lp - ls).max(rp - rs) + 1,
    };
    needed <= 38
}

/// An operand of which only the other side can tell the type: a quoted literal or a parameter takes that.
fn typed(expr: Expr, other: &DataType) -> Expr {
    match expr {
        Expr::Placeholder(Placeholder { id, field: None }) => {
            let field = arrow::datatypes::Field::new("", other.clone(), true);
            Expr::Placeholder(Placeholder { id, field: Some(Arc::new(field)) })
        }
        Expr::Literal(ScalarValue::Utf8(text), metadata) => {
            cast(Expr::Literal(ScalarValue::Utf8(text), metadata), other.clone())
        }
        other => other,
    }
}

fn is_unknown(expr: &Expr) -> bool {
    matches!(expr, Expr::Placeholder(Placeholder { field: None, .. }) | Expr::Literal(ScalarValue::Utf8(Some(_)), _))
}

impl ExprPlanner for Operators {
    fn plan_binary_op(&self, expr: RawBinaryExpr, schema: &DFSchema) -> Result<PlannerResult<RawBinaryExpr>> {
        let RawBinaryExpr { op, mut left, mut right } = expr;
        if takes_type(&op) {
            let known =
                |e: &Expr| e.get_type(schema).ok().filter(|t| Kind::of(t) != Kind::Text && Kind::of(t) != Kind::Null);
            match (is_unknown(&left), is_unknown(&right)) {
                (true, false) => {
                    if let Some(other) = known(&right) {
                        left = typed(left, &operand(&op, other));
                    }
                }
                (false, true) => {
                    if let Some(other) = known(&left) {
                        right = typed(right, &operand(&op, other));
                    }
                }
                _ => {}
            }
        }
        Ok(match self.plan(&op, &left, &right, schema) {
            Some(planned) => PlannerResult::Planned(planned),
            None => PlannerResult::Original(RawBinaryExpr { op, left, right }),
        })
    }

    /// `extract(hour from x)`.
    fn plan_extract(&self, args: Vec<Expr>) -> Result<PlannerResult<Vec<Expr>>> {
        let lower = |field: Expr| match field {
            Expr::Literal(ScalarValue::Utf8(Some(name)), metadata) => {
                Expr::Literal(ScalarValue::Utf8(Some(name.to_lowercase())), metadata)
            }
            other => other,
        };
        let mut args = args;
        if let Some(field) = args.first_mut() {
            *field = lower(field.clone());
        }
        Ok(match self.functions.get("date_part") {
            Some(function) => PlannerResult::Planned(function.call(args)),
            None => PlannerResult::Original(args),
        })
    }
}

/// Whether an operand without a type takes that of the other.
fn takes_type(op: &BinaryOperator) -> bool {
    use BinaryOperator as Op;
    matches!(
        op,
        Op::Plus
            | Op::Minus
            | Op::Multiply
            | Op::Divide
            | Op::Modulo
            | Op::Eq
            | Op::NotEq
            | Op::Lt
            | Op::LtEq
            | Op::Gt
            | Op::GtEq
    )
}

/// The type that an operand takes beside one of type `other`: beside a timestamp stands an interval in a sum.
fn operand(op: &BinaryOperator, other: DataType) -> DataType {
    match (op, Kind::of(&other)) {
        (BinaryOperator::Plus, Kind::Timestamp | Kind::Date | Kind::Time) => SqlType::Interval.to_arrow(),
        (BinaryOperator::Minus, Kind::Jsonb) => DataType::Utf8,
        _ => other,
    }
}
