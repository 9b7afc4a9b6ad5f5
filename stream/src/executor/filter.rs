//! Keeps the rows for which the predicate is true; not those for which it is false, NULL, or fails. Keeps no state.

use arrow::array::AsArray;
use weir_common::Chunk;
use weir_storage::StateTable;

use crate::Result;
use crate::error::StreamError;
use crate::executor::Executor;
use crate::expr::Expression;
use crate::message::Output;

/// See the module.
pub struct Filter {
    predicate: Expression,
}

impl Filter {
    /// Keeps rows for which this boolean expression is true.
    pub fn new(predicate: Expression) -> Filter {
        Filter { predicate }
    }
}

impl Executor for Filter {
    async fn apply(&mut self, _port: usize, chunk: Chunk, out: &mut Output) -> Result<()> {
        let mask = self.predicate.eval(chunk.batch());
        let mask = mask.as_boolean_opt().ok_or(StreamError::Plan("a predicate is not boolean"))?;
        let kept = mask.true_count();
        if kept == 0 {
            return Ok(());
        }
        out.push(if kept == chunk.len() { chunk } else { chunk.filter(mask)? }).await
    }

    async fn flush(&mut self, _out: &mut Output) -> Result<()> {
        Ok(())
    }

    fn tables(&mut self) -> Vec<&mut StateTable> {
        vec![]
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::Arc;

    use arrow::datatypes::DataType;
    use datafusion::logical_expr::Operator;
    use datafusion::physical_expr::expressions::{BinaryExpr, Column};

    use super::*;
    use crate::executor::check::{check, schema};

    #[tokio::test]
    async fn only_true_keeps_a_row() {
        let input = schema(&[("a", DataType::Int64), ("b", DataType::Int64)]);
        let make = |_: &_| {
            let (a, b) = (Arc::new(Column::new("a", 0)), Arc::new(Column::new("b", 1)));
            Filter::new(Expression::new(Arc::new(BinaryExpr::new(a, Operator::Gt, b)), &input).unwrap())
        };
        let script = "
            + 2 1
            + 1 2
            + NULL 1
            barrier
            - 1 2
            - 2 1
            barrier
            + 0 1
            barrier";
        let expected = "
            + 2 1
            barrier
            - 2 1
            barrier
            barrier";
        check(std::slice::from_ref(&input), make, script, expected).await;
    }
}
