//! The newest chunks of all change logs, in memory, so that readers that keep up touch no disk.
//!
//! Invariant: for each table, the tail holds every chunk of the epochs after `complete_after`. Before the first chunk of
//! a table that is the newest frontier when the store was opened: all later commits go through here.

use std::collections::{BTreeMap, HashMap, VecDeque};

use weir_common::{Epoch, TableId};

use crate::change_log::LogChunk;

/// See the module.
#[derive(Debug)]
pub(crate) struct Tail {
    limit_bytes: usize,
    bytes: usize,
    opened_at: Epoch,
    tables: HashMap<TableId, TableTail>,
    /// Which table the epochs of all tables belong to, in order of arrival. Oldest first out.
    arrivals: BTreeMap<u64, TableId>,
    next_arrival: u64,
}

#[derive(Debug)]
struct TableTail {
    complete_after: Epoch,
    /// Oldest first.
    epochs: VecDeque<EpochTail>,
}

#[derive(Debug)]
struct EpochTail {
    epoch: Epoch,
    arrival: u64,
    chunks: Vec<LogChunk>,
    bytes: usize,
}

impl Tail {
    /// Empty; every log is complete after `opened_at`.
    pub fn new(limit_bytes: usize, opened_at: Epoch) -> Tail {
        Tail { limit_bytes, bytes: 0, opened_at, tables: HashMap::new(), arrivals: BTreeMap::new(), next_arrival: 0 }
    }

    /// Appends the chunks of one epoch to the log of a table.
    pub fn push(&mut self, table: TableId, epoch: Epoch, chunks: Vec<LogChunk>) {
        let bytes = chunks.iter().map(|c| c.chunk.memory_bytes() + c.vnodes.len()).sum();
        let arrival = self.next_arrival;
        self.next_arrival += 1;
        self.bytes += bytes;
        self.arrivals.insert(arrival, table);
        let new = TableTail { complete_after: self.opened_at, epochs: VecDeque::new() };
        let log = self.tables.entry(table).or_insert(new);
        assert!(log.epochs.back().is_none_or(|last| last.epoch < epoch), "epochs of a change log arrive in order");
        log.epochs.push_back(EpochTail { epoch, arrival, chunks, bytes });
        self.evict();
    }

    /// Takes back the epoch, which was the last one pushed for the table, because it did not become durable.
    pub fn withdraw(&mut self, table: TableId, epoch: Epoch) {
        let Some(log) = self.tables.get_mut(&table) else { return };
        if let Some(last) = log.epochs.pop_back_if(|last| last.epoch == epoch) {
            self.bytes -= last.bytes;
            self.arrivals.remove(&last.arrival);
        }
    }

    /// The chunks of the epochs in `(after, up_to]`, unless some of them may not be here.
    pub fn read(&self, table: TableId, after: Epoch, up_to: Epoch) -> Option<Vec<LogChunk>> {
        let Some(log) = self.tables.get(&table) else {
            return (after >= self.opened_at).then(Vec::new);
        };
        if after < log.complete_after {
            return None;
        }
        let first = log.epochs.partition_point(|e| e.epoch <= after);
        let epochs = log.epochs.range(first..).take_while(|e| e.epoch <= up_to);
        Some(epochs.flat_map(|e| e.chunks.iter().cloned()).collect())
    }

    /// Drops the epochs up to `up_to`, which nobody will read any more.
    pub fn truncate(&mut self, table: TableId, up_to: Epoch) {
        let Some(log) = self.tables.get_mut(&table) else { return };
        while let Some(first) = log.epochs.pop_front_if(|first| first.epoch <= up_to) {
            self.bytes -= first.bytes;
            self.arrivals.remove(&first.arrival);
        }
    }

    /// Drops all that is known of a table.
    pub fn forget(&mut self, table: TableId) {
        self.truncate(table, Epoch::MAX);
        self.tables.remove(&table);
    }

    fn evict(&mut self) {
        while self.bytes > self.limit_bytes {
            let Some((_, table)) = self.arrivals.pop_first() else { return };
            let log = self.tables.get_mut(&table).expect("a table with arrivals is known");
            // Arrivals of one table are in the order of its epochs.
            let first = log.epochs.pop_front().expect("an arrival is an epoch of its table");
            log.complete_after = log.complete_after.max(first.epoch);
            self.bytes -= first.bytes;
        }
    }
}
