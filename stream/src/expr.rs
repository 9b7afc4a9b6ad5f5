//! Expressions of plans, evaluated over chunks.
//!
//! A plan carries a DataFusion physical expression as its protobuf bytes. Functions in it are found by name, among
//! DataFusion's and Weir's own ([`crate::functions`]).
//!
//! A row for which an expression fails (a division by zero, a text that is no number) is data, not an error: its cell is
//! NULL and is counted. The result for a row never depends on the rows around it, so the delete of a row computes what
//! its insert did.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use arrow::array::{Array, ArrayRef, RecordBatch, new_empty_array, new_null_array};
use arrow::compute::concat;
use arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::exec_datafusion_err;
use datafusion::error::DataFusionError;
use datafusion::execution::TaskContext;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr_common::physical_expr::fmt_sql;
use datafusion::prelude::SessionContext;
use datafusion_proto::physical_plan::DefaultPhysicalExtensionCodec;
use datafusion_proto::physical_plan::from_proto::parse_physical_expr;
use datafusion_proto::physical_plan::to_proto::serialize_physical_expr;
use datafusion_proto::protobuf::PhysicalExprNode;
use prost::Message;
use weir_common::plan;

use crate::error::{Result, StreamError};
use crate::functions::scalar_functions;

/// For how many rows expressions failed, and why the last one did. Shared by the expressions of a job.
#[derive(Debug, Default)]
pub struct ErrorCounter {
    rows: AtomicU64,
    last: Mutex<Option<String>>,
}

impl ErrorCounter {
    /// Counts a row.
    pub fn add(&self, message: String) {
        self.rows.fetch_add(1, Ordering::Relaxed);
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(message);
    }

    /// The rows counted so far.
    pub fn count(&self) -> u64 {
        self.rows.load(Ordering::Relaxed)
    }

    /// The message of the row counted last.
    pub fn last(&self) -> Option<String> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// An expression over the columns of an input.
#[derive(Clone)]
pub struct Expression {
    physical: Arc<dyn PhysicalExpr>,
    data_type: DataType,
    errors: Arc<ErrorCounter>,
}

impl fmt::Debug for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.physical)
    }
}

impl Expression {
    /// An expression that the planner made, for an input with these columns.
    pub fn new(physical: Arc<dyn PhysicalExpr>, input: &SchemaRef) -> Result<Expression> {
        let data_type = physical.data_type(input).map_err(|e| failed(physical.to_string(), e))?;
        Ok(Expression { physical, data_type, errors: Arc::default() })
    }

    /// The expression of a plan, for an input with these columns.
    pub fn decode(expr: &plan::Expr, input: &SchemaRef) -> Result<Expression> {
        let decode = || {
            let node = decode_node(&from_hex(&expr.proto)?)?;
            parse_physical_expr(&node, &REGISTRY, input, &DefaultPhysicalExtensionCodec {})
        };
        Expression::new(decode().map_err(|e| failed(expr.text.clone(), e))?, input)
    }

    /// The expression in the form in which plans carry it.
    pub fn encode(expr: &Arc<dyn PhysicalExpr>) -> Result<plan::Expr> {
        let text = fmt_sql(expr.as_ref()).to_string();
        let encode = || {
            let bytes = serialize_physical_expr(expr, &DefaultPhysicalExtensionCodec {})?.encode_to_vec();
            // What is nested too deeply can be written but not read.
            decode_node(&bytes)?;
            Ok(to_hex(&bytes))
        };
        match encode() {
            Ok(proto) => Ok(plan::Expr { text, proto }),
            Err(e) => Err(failed(text, e)),
        }
    }

    /// Counts failing rows there.
    pub fn counting(self, errors: Arc<ErrorCounter>) -> Expression {
        Expression { errors, ..self }
    }

    /// Where failing rows are counted.
    pub fn errors(&self) -> &ErrorCounter {
        &self.errors
    }

    /// The type of the results.
    pub fn data_type(&self) -> &DataType {
        &self.data_type
    }

    /// The results, one per row. A row that fails has NULL and is counted.
    pub fn eval(&self, batch: &RecordBatch) -> ArrayRef {
        match self.try_eval(batch) {
            Ok(array) => array,
            Err(e) => self.eval_rows(batch, e),
        }
    }

    /// The results for all rows, or the error of one of them.
    fn try_eval(&self, batch: &RecordBatch) -> datafusion::error::Result<ArrayRef> {
        if batch.num_rows() == 0 {
            return Ok(new_empty_array(&self.data_type));
        }
        // A function that panics on a value must not stop the job at that row for ever.
        let evaluated = catch_unwind(AssertUnwindSafe(|| self.physical.evaluate(batch)?.into_array(batch.num_rows())));
        let array = evaluated.unwrap_or_else(|_| Err(exec_datafusion_err!("a function panicked")))?;
        assert_eq!(array.len(), batch.num_rows(), "an expression has one result per row");
        Ok(array)
    }

    /// The results when `error` is that of at least one row: halves are evaluated until the failing rows are alone.
    fn eval_rows(&self, batch: &RecordBatch, error: DataFusionError) -> ArrayRef {
        let rows = batch.num_rows();
        if rows == 1 {
            self.errors.add(error.strip_backtrace());
            return new_null_array(&self.data_type, 1);
        }
        let half = rows / 2;
        let left = self.eval(&batch.slice(0, half));
        let right = self.eval(&batch.slice(half, rows - half));
        match concat(&[&left, &right]) {
            Ok(array) => array,
            // Only when a function gives another type than it declares.
            Err(e) => {
                self.errors.add(e.to_string());
                new_null_array(&self.data_type, rows)
            }
        }
    }
}

/// Every function that an expression may name.
static REGISTRY: LazyLock<Arc<TaskContext>> = LazyLock::new(|| {
    let session = SessionContext::new();
    for function in scalar_functions() {
        session.register_udf(function.as_ref().clone());
    }
    session.task_ctx()
});

fn decode_node(bytes: &[u8]) -> datafusion::error::Result<PhysicalExprNode> {
    PhysicalExprNode::decode(bytes).map_err(|e| exec_datafusion_err!("decode an expression: {e}"))
}

fn failed(expression: String, source: DataFusionError) -> StreamError {
    StreamError::Expression { expression, source: Box::new(source) }
}

/// Bytes as lower-case hex.
pub(crate) fn to_hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from_digit(nibble.into(), 16).expect("four bits are one digit");
    bytes.iter().flat_map(|b| [digit(b >> 4), digit(b & 15)]).collect()
}

/// The bytes of [`to_hex`].
pub(crate) fn from_hex(hex: &str) -> datafusion::error::Result<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let byte = |pair: &[u8]| match *pair {
        [high, low] => Some((digit(high)? << 4 | digit(low)?) as u8),
        _ => None,
    };
    hex.as_bytes().chunks(2).map(byte).collect::<Option<_>>().ok_or_else(|| exec_datafusion_err!("not hexadecimal"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use arrow::array::{AsArray, Int64Array, StringArray};
    use arrow::datatypes::{Field, Int64Type, Schema};
    use datafusion::common::DFSchema;
    use datafusion::logical_expr::{Expr, cast, col, lit, when};
    use datafusion::physical_expr::create_physical_expr;
    use datafusion::physical_expr::execution_props::ExecutionProps;

    use super::*;

    fn batch() -> RecordBatch {
        let schema = Schema::new(vec![
            Field::new("a", DataType::Int64, true),
            Field::new("b", DataType::Int64, true),
            Field::new("t", DataType::Utf8, true),
        ]);
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from(vec![Some(10), Some(20), None, Some(40)])),
            Arc::new(Int64Array::from(vec![Some(0), Some(5), Some(0), Some(4)])),
            Arc::new(StringArray::from(vec![Some("1"), Some("x"), Some("3"), None])),
        ];
        RecordBatch::try_new(Arc::new(schema), columns).unwrap()
    }

    /// What the expression gives after a round trip through the plan, and how many rows failed.
    fn eval(expr: Expr) -> (Vec<Option<i64>>, u64) {
        let batch = batch();
        let schema = DFSchema::try_from(batch.schema().as_ref().clone()).unwrap();
        let physical = create_physical_expr(&expr, &schema, &ExecutionProps::new()).unwrap();
        let plan = Expression::encode(&physical).unwrap();
        let expression = Expression::decode(&plan, &batch.schema()).unwrap();
        let array = expression.eval(&batch);
        (array.as_primitive::<Int64Type>().iter().collect(), expression.errors().count())
    }

    #[test]
    fn failing_rows_are_null_and_counted() {
        assert_eq!(eval(col("a") / col("b")), (vec![None, Some(4), None, Some(10)], 1));
        assert_eq!(eval(cast(col("t"), DataType::Int64)), (vec![Some(1), None, Some(3), None], 1));
    }

    #[test]
    fn a_branch_that_is_not_taken_does_not_fail() {
        let guarded = when(col("b").eq(lit(0i64)), lit(-1i64)).otherwise(col("a") / col("b")).unwrap();
        assert_eq!(eval(guarded), (vec![Some(-1), Some(4), Some(-1), Some(10)], 0));
    }

    #[test]
    fn constants_are_expanded() {
        assert_eq!(eval(lit(7i64)), (vec![Some(7); 4], 0));
    }

    #[test]
    fn hex_comes_back() {
        assert_eq!(to_hex(&[0, 171, 255]), "00abff");
        assert_eq!(from_hex("00abff").unwrap(), vec![0, 171, 255]);
        assert!(from_hex("0").is_err() && from_hex("zz").is_err());
    }
}
