//! Merges the inputs of an executor into one ordered sequence, aligned at barriers.
//!
//! Invariants: a barrier comes out once every input has delivered it; after it, nothing of the epoch it ended comes out;
//! epochs grow. An input that has delivered the barrier is held back until the others have.

use std::future::poll_fn;
use std::task::Poll;

use tokio::sync::mpsc;
use weir_common::Chunk;

use crate::Result;
use crate::error::StreamError;
use crate::message::{Barrier, Message};

/// What comes out of [`Align`].
pub enum Aligned {
    /// Changes of input `port`.
    Chunk { port: usize, chunk: Chunk },
    /// Every input has delivered this barrier.
    Barrier(Barrier),
}

/// The inputs of an executor.
pub struct Align {
    inputs: Vec<Input>,
    /// Inputs that have delivered the barrier which the others have not.
    waiting: usize,
    barrier: Option<Barrier>,
    last: Option<Barrier>,
    /// Where polling starts, so that no input starves another.
    turn: usize,
}

struct Input {
    port: usize,
    receiver: mpsc::Receiver<Message>,
    held_back: bool,
}

impl Align {
    /// `ports[p]` are the edges of port `p`: one from an executor of the same actor, several from an exchange.
    pub fn new(ports: Vec<Vec<mpsc::Receiver<Message>>>) -> Align {
        let inputs: Vec<_> = ports
            .into_iter()
            .enumerate()
            .flat_map(|(port, edges)| edges.into_iter().map(move |receiver| Input { port, receiver, held_back: false }))
            .collect();
        assert!(!inputs.is_empty(), "an executor behind an edge has an input");
        Align { inputs, waiting: 0, barrier: None, last: None, turn: 0 }
    }

    /// The next element of the sequence. Cancel-safe.
    pub async fn next(&mut self) -> Result<Aligned> {
        poll_fn(|cx| {
            let count = self.inputs.len();
            for step in 0..count {
                let at = (self.turn + step) % count;
                let input = &mut self.inputs[at];
                if input.held_back {
                    continue;
                }
                match input.receiver.poll_recv(cx) {
                    Poll::Pending => {}
                    Poll::Ready(None) => return Poll::Ready(Err(StreamError::UpstreamGone)),
                    Poll::Ready(Some(Message::Chunk(chunk))) => {
                        self.turn = (at + 1) % count;
                        return Poll::Ready(Ok(Aligned::Chunk { port: input.port, chunk }));
                    }
                    Poll::Ready(Some(Message::Barrier(barrier))) => {
                        input.held_back = true;
                        if let Err(e) = self.arrived(barrier) {
                            return Poll::Ready(Err(e));
                        }
                        if self.waiting == count {
                            return Poll::Ready(Ok(Aligned::Barrier(self.release(barrier))));
                        }
                    }
                }
            }
            Poll::Pending
        })
        .await
    }

    fn arrived(&mut self, barrier: Barrier) -> Result<()> {
        let expected = *self.barrier.get_or_insert(barrier);
        if expected != barrier || self.last.is_some_and(|last| last.epoch >= barrier.epoch) {
            return Err(StreamError::Misaligned { expected: expected.epoch, got: barrier.epoch });
        }
        self.waiting += 1;
        Ok(())
    }

    fn release(&mut self, barrier: Barrier) -> Barrier {
        self.waiting = 0;
        self.barrier = None;
        self.last = Some(barrier);
        for input in &mut self.inputs {
            input.held_back = false;
        }
        barrier
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;

    use arrow::array::{Int64Array, RecordBatch};
    use weir_common::Epoch;

    use super::*;

    fn chunk(value: i64) -> Message {
        let array = Arc::new(Int64Array::from(vec![value])) as _;
        Message::Chunk(Chunk::inserts(RecordBatch::try_from_iter([("v", array)]).unwrap()))
    }

    fn barrier(epoch: u64) -> Message {
        Message::Barrier(Barrier { epoch: Epoch(epoch), aligned: true })
    }

    #[tokio::test]
    async fn an_input_waits_at_its_barrier_for_the_others() {
        let (fast, fast_rx) = mpsc::channel(8);
        let (slow, slow_rx) = mpsc::channel(8);
        let mut align = Align::new(vec![vec![fast_rx], vec![slow_rx]]);
        fast.send(barrier(1)).await.unwrap();
        fast.send(chunk(7)).await.unwrap();
        slow.send(chunk(3)).await.unwrap();
        assert!(matches!(align.next().await.unwrap(), Aligned::Chunk { port: 1, .. }));
        slow.send(barrier(1)).await.unwrap();
        assert!(matches!(align.next().await.unwrap(), Aligned::Barrier(b) if b.epoch == Epoch(1)));
        assert!(matches!(align.next().await.unwrap(), Aligned::Chunk { port: 0, .. }));
    }

    #[tokio::test]
    async fn epochs_that_do_not_grow_or_differ_are_errors() {
        let (a, a_rx) = mpsc::channel(8);
        let mut align = Align::new(vec![vec![a_rx]]);
        a.send(barrier(2)).await.unwrap();
        align.next().await.unwrap();
        a.send(barrier(2)).await.unwrap();
        assert!(align.next().await.is_err());
        drop(a);

        let (a, a_rx) = mpsc::channel(8);
        let (b, b_rx) = mpsc::channel(8);
        let mut align = Align::new(vec![vec![a_rx, b_rx]]);
        a.send(barrier(2)).await.unwrap();
        b.send(barrier(3)).await.unwrap();
        assert!(align.next().await.is_err());
    }
}
