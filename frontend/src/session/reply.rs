//! What a statement answers.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, StringArray};
use arrow::datatypes::{DataType, Field, Schema};
use datafusion::physical_plan::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use weir_common::types::SqlType;

use crate::error::{Result, SqlError};
use crate::pg::{CopyOptions, CopyTarget};

/// A column of a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputColumn {
    pub name: String,
    pub sql_type: SqlType,
    /// Oid of the relation and number of the column (from 1) that it comes from unchanged.
    pub table: Option<(u32, i16)>,
    /// Of a stored column of type numeric(p, s): exactly s digits are shown after the point.
    pub declared_scale: Option<i8>,
}

impl OutputColumn {
    /// A column that comes from no table.
    pub fn new(name: impl Into<String>, sql_type: SqlType) -> OutputColumn {
        OutputColumn { name: name.into(), sql_type, table: None, declared_scale: None }
    }
}

/// The answer to a statement.
pub enum Reply {
    Rows {
        columns: Vec<OutputColumn>,
        /// Column `i` of every batch is `columns[i]`.
        batches: SendableRecordBatchStream,
        /// The number of rows is appended: `SELECT`, `INSERT 0`, `SHOW` …
        tag: &'static str,
        notices: Vec<SqlError>,
    },
    Command {
        tag: String,
        notices: Vec<SqlError>,
    },
    /// `COPY … TO STDOUT`: the rows go out as data.
    CopyOut {
        columns: Vec<OutputColumn>,
        batches: SendableRecordBatchStream,
        options: CopyOptions,
    },
    /// `COPY … FROM STDIN`: the client will send rows of these columns.
    CopyIn {
        columns: Vec<OutputColumn>,
        options: CopyOptions,
        target: Box<dyn CopyTarget>,
    },
    /// Nothing was asked.
    Empty,
}

impl Reply {
    /// A command that is done.
    pub fn command(tag: impl Into<String>) -> Reply {
        Reply::Command { tag: tag.into(), notices: vec![] }
    }

    /// A command that is done, with something to say.
    pub fn noticed(tag: impl Into<String>, notices: Vec<SqlError>) -> Reply {
        Reply::Command { tag: tag.into(), notices }
    }

    /// Rows that are all there already.
    pub fn batches(columns: Vec<OutputColumn>, batches: Vec<RecordBatch>, tag: &'static str) -> Reply {
        let schema = match batches.first() {
            Some(batch) => batch.schema(),
            None => {
                let fields: Vec<_> = columns.iter().map(|c| Field::new(&c.name, c.sql_type.to_arrow(), true)).collect();
                Arc::new(Schema::new(fields))
            }
        };
        let stream = futures::stream::iter(batches.into_iter().map(Ok));
        Reply::Rows { columns, batches: Box::pin(RecordBatchStreamAdapter::new(schema, stream)), tag, notices: vec![] }
    }

    /// Rows of text, as SHOW gives them.
    pub fn text(names: &[&str], rows: Vec<Vec<Option<String>>>, tag: &'static str) -> Result<Reply> {
        let columns: Vec<_> = names.iter().map(|name| OutputColumn::new(*name, SqlType::Varchar)).collect();
        let fields: Vec<_> = names.iter().map(|name| Field::new(*name, DataType::Utf8, true)).collect();
        let arrays = (0..names.len())
            .map(|i| {
                Arc::new(rows.iter().map(|row| row.get(i).cloned().flatten()).collect::<StringArray>()) as ArrayRef
            })
            .collect();
        let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
        let batch = RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), arrays, &options)?;
        Ok(Reply::batches(columns, vec![batch], tag))
    }
}
