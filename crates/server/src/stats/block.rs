//! The requests of a block: those that were noticed between its begin and its end, whenever they
//! are answered. `headway tune` compares blocks.
//!
//! Each thread counts into its own block, under the lock of its counters.

use crate::stats::{PathTables, RequestRecord};

pub struct Block {
    begin_ns: u64,
    end_ns: u64,
    pub paths: PathTables,
}

impl Block {
    pub fn begin(now_ns: u64) -> Self {
        Self { begin_ns: now_ns, end_ns: u64::MAX, paths: PathTables::default() }
    }

    /// No request that is noticed from now on belongs to the block.
    pub fn end(&mut self, now_ns: u64) {
        self.end_ns = self.end_ns.min(now_ns);
    }

    pub fn record(&mut self, target: &[u8], noticed_ns: u64, record: &RequestRecord) {
        if (self.begin_ns..self.end_ns).contains(&noticed_ns) {
            self.paths.of_interpreter(record.slot).record(target, record, false);
        }
    }
}
