//! The time limit of a statement, also of the rows that it is still sending.

use std::time::Duration;

use datafusion::common::DataFusionError;
use datafusion::physical_plan::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::StreamExt;
use tokio::time::{Instant, timeout_at};
use weir_common::types::SqlType;

use super::reply::{OutputColumn, Reply};
use crate::error::{Result, SqlError, SqlState};

/// A result that may go on after the statement's future is done.
pub(super) trait Limited: Sized {
    fn until(self, deadline: Instant) -> Self;
}

impl Limited for Reply {
    fn until(self, deadline: Instant) -> Reply {
        match self {
            Reply::Rows { columns, batches, tag, notices } => {
                Reply::Rows { columns, batches: limited(batches, deadline), tag, notices }
            }
            Reply::CopyOut { columns, batches, options } => {
                Reply::CopyOut { columns, batches: limited(batches, deadline), options }
            }
            other => other,
        }
    }
}

fn limited(batches: SendableRecordBatchStream, deadline: Instant) -> SendableRecordBatchStream {
    let schema = batches.schema();
    let limited = futures::stream::unfold(Some(batches), move |batches| async move {
        let mut batches = batches?;
        match timeout_at(deadline, batches.next()).await {
            Ok(batch) => Some((batch?, Some(batches))),
            Err(_) => Some((Err(DataFusionError::from(expired())), None)),
        }
    });
    Box::pin(RecordBatchStreamAdapter::new(schema, limited))
}

impl Limited for (Vec<SqlType>, Option<Vec<OutputColumn>>) {
    fn until(self, _deadline: Instant) -> Self {
        self
    }
}

/// Runs work within the limit, if there is one.
pub(super) async fn limit<T: Limited>(limit: Option<Duration>, work: impl Future<Output = Result<T>>) -> Result<T> {
    let Some(limit) = limit else { return work.await };
    let deadline = Instant::now() + limit;
    match timeout_at(deadline, work).await {
        Ok(result) => Ok(result?.until(deadline)),
        Err(_) => Err(expired()),
    }
}

fn expired() -> SqlError {
    SqlError::new(SqlState::QUERY_CANCELED, "canceling statement due to statement timeout")
}
