//! The end of a job that hands rows to the outside. So far there is one destination, `blackhole`, which forgets them.
//!
//! State     none.

use weir_common::Chunk;
use weir_storage::StateTable;

use crate::Result;
use crate::executor::Executor;
use crate::message::Output;
use crate::rate_limit::{Allowance, RateLimit};

/// Forgets every row.
pub struct Blackhole {
    allowance: Allowance,
}

impl Blackhole {
    /// `limit`: rows per second.
    pub fn new(limit: RateLimit) -> Blackhole {
        Blackhole { allowance: Allowance::new(limit) }
    }
}

impl Executor for Blackhole {
    async fn apply(&mut self, _port: usize, chunk: Chunk, out: &mut Output) -> Result<()> {
        fail::fail_point!("stream::sink::apply", |_| Err(crate::error::StreamError::Panicked("at a failpoint".into())));
        self.allowance.wait(1).await;
        self.allowance.spend(chunk.len());
        // Pushed to nowhere, so that the rows are counted like those of every other executor.
        out.push(chunk).await
    }

    async fn flush(&mut self, _out: &mut Output) -> Result<()> {
        Ok(())
    }

    fn tables(&mut self) -> Vec<&mut StateTable> {
        Vec::new()
    }
}
