//! Rows that are there from the start: `VALUES`, and queries without a table.
//!
//! State     `emitted`: `id smallint`; has one row once the rows have left.
//! Invariant the rows leave in the first epoch that is committed, and never again.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int16Array, RecordBatch};
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;
use weir_common::{Chunk, TableDef, TableId, plan};
use weir_storage::StateTable;

use crate::Result;
use crate::driver::{Backfill, Reader};
use crate::error::StreamError;
use crate::expr::{from_hex, to_hex};
use crate::message::{Barrier, Output};

/// The table that remembers whether the rows were emitted.
pub fn emitted_table(id: TableId) -> TableDef {
    TableDef::ascending(id, Schema::new(vec![Field::new("id", DataType::Int16, false)]), &[0], &[])
}

/// The rows of a plan.
pub fn rows(plan: &plan::Values) -> Result<RecordBatch> {
    let bytes = from_hex(&plan.rows).map_err(|_| StreamError::Plan("the rows of VALUES are not hexadecimal"))?;
    let reader = StreamReader::try_new(bytes.as_slice(), None)?;
    let schema = reader.schema();
    let batches = reader.collect::<std::result::Result<Vec<_>, _>>()?;
    Ok(concat_batches(&schema, &batches)?)
}

/// Rows in the form in which a plan carries them.
pub fn encode_rows_hex(rows: &RecordBatch) -> std::result::Result<String, ArrowError> {
    let mut bytes = Vec::new();
    let mut writer = StreamWriter::try_new(&mut bytes, &rows.schema())?;
    writer.write(rows)?;
    writer.finish()?;
    drop(writer);
    Ok(to_hex(&bytes))
}

/// See the module.
pub struct Values {
    /// What is still to be emitted.
    rows: Option<RecordBatch>,
    emitted: StateTable,
    /// The rows have left in this epoch, which the table does not say yet.
    to_be_written: bool,
}

impl Values {
    /// Reads whether the rows were emitted. They come out with this schema.
    ///
    /// Only the owner of vnode 0 emits.
    pub async fn open(plan: &plan::Values, schema: SchemaRef, mut emitted: StateTable) -> Result<Values> {
        let found = emitted.get_many(&emitted.keys(&[marker()])?).await?;
        let rows = match found.index[0] {
            Some(_) => None,
            None => Some(RecordBatch::try_new(schema, rows(plan)?.columns().to_vec())?),
        };
        Ok(Values { rows, emitted, to_be_written: false })
    }
}

/// The key column of the only row of the table.
fn marker() -> ArrayRef {
    Arc::new(Int16Array::from(vec![0]))
}

impl Reader for Values {
    async fn next(&mut self) -> Result<Chunk> {
        match self.rows.take() {
            Some(rows) => {
                self.to_be_written = true;
                Ok(Chunk::inserts(rows))
            }
            None => std::future::pending().await,
        }
    }

    async fn finish(&mut self, _barrier: Barrier, out: &mut Output) -> Result<()> {
        if let Some(rows) = self.rows.take() {
            self.to_be_written = true;
            out.push(Chunk::inserts(rows)).await?;
        }
        if std::mem::take(&mut self.to_be_written) {
            let row = RecordBatch::try_new(self.emitted.def().schema.clone(), vec![marker()])?;
            self.emitted.write(&Chunk::inserts(row))?;
        }
        Ok(())
    }

    fn tables(&mut self) -> Vec<&mut StateTable> {
        vec![&mut self.emitted]
    }

    fn backfill(&self) -> Option<Backfill> {
        None
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::executor::check;

    #[test]
    fn rows_come_back_from_a_plan() {
        let schema = check::schema(&[("a", DataType::Int64), ("t", DataType::Utf8)]);
        let batch = check::chunk(&schema, &["+ 1 x", "+ 2 NULL"]).batch().clone();
        let plan = plan::Values { rows: encode_rows_hex(&batch).unwrap(), emitted: emitted_table(TableId(1)) };
        assert_eq!(rows(&plan).unwrap(), batch);
        let none =
            plan::Values { rows: encode_rows_hex(&batch.slice(0, 0)).unwrap(), emitted: emitted_table(TableId(1)) };
        assert_eq!(rows(&none).unwrap().num_rows(), 0);
        assert!(rows(&plan::Values { rows: "x".into(), ..none }).is_err());
    }
}
