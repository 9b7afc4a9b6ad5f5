//! Computes the columns of the output from those of the input, row by row. Keeps no state.

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::compute::cast;
use arrow::datatypes::SchemaRef;
use weir_common::Chunk;
use weir_storage::StateTable;

use crate::Result;
use crate::executor::Executor;
use crate::expr::Expression;
use crate::message::Output;

/// See the module.
pub struct Project {
    exprs: Vec<Expression>,
    schema: SchemaRef,
}

impl Project {
    /// Column `i` of the output, which has this schema, is expression `i`. The columns are nullable, as any expression
    /// may fail on a row.
    pub fn new(exprs: Vec<Expression>, schema: SchemaRef) -> Project {
        assert_eq!(exprs.len(), schema.fields().len(), "a projection has one expression per column");
        Project { exprs, schema }
    }

    fn project(&self, chunk: &Chunk) -> Result<Chunk> {
        let column = |(expr, field): (&Expression, &arrow::datatypes::FieldRef)| -> Result<ArrayRef> {
            let array = expr.eval(chunk.batch());
            let same = array.data_type() == field.data_type();
            Ok(if same { array } else { cast(&array, field.data_type())? })
        };
        let columns = self.exprs.iter().zip(self.schema.fields()).map(column).collect::<Result<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(chunk.len()));
        let batch = RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)?;
        Ok(chunk.with_batch(batch))
    }
}

impl Executor for Project {
    async fn apply(&mut self, _port: usize, chunk: Chunk, out: &mut Output) -> Result<()> {
        out.push(self.project(&chunk)?).await
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
    async fn columns_are_computed_and_signs_stay() {
        let input = schema(&[("a", DataType::Int64), ("b", DataType::Int64)]);
        let output = schema(&[("quotient", DataType::Int64), ("a", DataType::Utf8)]);
        let make = |_: &_| {
            let (a, b) = (Arc::new(Column::new("a", 0)), Arc::new(Column::new("b", 1)));
            let quotient = Arc::new(BinaryExpr::new(a.clone(), Operator::Divide, b));
            let exprs = vec![Expression::new(quotient, &input).unwrap(), Expression::new(a, &input).unwrap()];
            Project::new(exprs, output.clone())
        };
        let script = "
            + 10 5
            + 7 0
            barrier
            - 7 0
            - 10 5
            + 10 2
            barrier";
        let expected = "
            + 2 10
            + NULL 7
            barrier
            - NULL 7
            - 2 10
            + 5 10
            barrier";
        check(std::slice::from_ref(&input), make, script, expected).await;
    }
}
