//! All rows of all inputs, as they come. Keeps no state.

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::SchemaRef;
use weir_common::Chunk;
use weir_storage::StateTable;

use crate::Result;
use crate::executor::Executor;
use crate::message::Output;

/// See the module.
pub struct Union {
    schema: SchemaRef,
}

impl Union {
    /// The inputs have the types of this schema, and may have other names.
    pub fn new(schema: SchemaRef) -> Union {
        Union { schema }
    }
}

impl Executor for Union {
    async fn apply(&mut self, _port: usize, chunk: Chunk, out: &mut Output) -> Result<()> {
        let options = RecordBatchOptions::new().with_row_count(Some(chunk.len()));
        let columns = chunk.batch().columns().to_vec();
        let batch = RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)?;
        out.push(chunk.with_batch(batch)).await
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
    use arrow::datatypes::DataType;

    use super::*;
    use crate::executor::check::{check, schema};

    #[tokio::test]
    async fn rows_of_all_inputs_come_out() {
        let (left, right) = (schema(&[("a", DataType::Int64)]), schema(&[("b", DataType::Int64)]));
        let make = |_: &_| Union::new(schema(&[("c", DataType::Int64)]));
        let script = "
            0 + 1
            1 + 1
            1 + 2
            barrier
            0 - 1
            barrier";
        let expected = "
            + 1
            + 1
            + 2
            barrier
            - 1
            barrier";
        check(&[left, right], make, script, expected).await;
    }
}
