//! The executors, a file each. The contract between an executor and the engine is [`Executor`].

use std::future::Future;

use weir_common::Chunk;
use weir_storage::StateTable;

use crate::Result;
use crate::message::Output;

pub mod aggregate;
pub mod dml;
pub mod filter;
pub mod join;
pub mod log;
pub mod materialize;
pub mod project;
pub mod scan;
pub mod sink;
pub mod source;
pub mod top_n;
pub mod union;
pub mod unnest;
pub mod values;

#[cfg(test)]
pub(crate) mod check;

/// What turns changes of its inputs into changes of its output.
///
/// Written contract with [`crate::driver`]: `apply` is called for every chunk of every port in the order of its input;
/// at the end of an epoch comes `flush`, after which the results of the epoch have left through `out` and the state is
/// written to the tables; then the driver seals [`Executor::tables`]. Whatever an executor remembers between two epochs
/// beside its tables is a cache: dropped at any barrier, it changes no result.
pub trait Executor: Send + 'static {
    /// Takes the changes of a chunk of input `port`.
    fn apply(&mut self, port: usize, chunk: Chunk, out: &mut Output) -> impl Future<Output = Result<()>> + Send;

    /// Ends the epoch: emits what is still held back and writes the state.
    fn flush(&mut self, out: &mut Output) -> impl Future<Output = Result<()>> + Send;

    /// The state tables, to be sealed after [`Executor::flush`].
    fn tables(&mut self) -> Vec<&mut StateTable>;
}
