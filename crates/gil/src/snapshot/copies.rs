//! Copies of the thread counters of one GIL, repeated until they are consistent.
//!
//! Each try copies only counters that changed since the last one. So even with hundreds of busy
//! threads the last try takes microseconds. Runs under the registry lock.

use std::sync::atomic::{Ordering::*, fence};

use crate::counters::{ProcessCounters, ROWS, ThreadCounters, free_list, state};

pub struct Copies {
    gil: u32,
    copies: Vec<CountersCopy>,
    /// The index in `copies` of the copy of each row.
    copy_of_row: Vec<Option<u32>>,
}

struct CountersCopy {
    row: u32,
    /// No event ran during the copying, so only a later one makes the copy stale.
    consistent: bool,
    counters: Box<ThreadCounters>,
}

impl Copies {
    pub fn of_gil(gil: u32) -> Self {
        Self { gil, copies: Vec::new(), copy_of_row: vec![None; ROWS] }
    }

    /// Copies the GIL's rows that `selected` accepts, except those whose copy is up to date.
    /// `sequence` is the GIL's: odd, or different from before, if an event ran in between.
    pub fn copy(
        &mut self,
        process: &ProcessCounters,
        sequence: impl Fn() -> u32,
        selected: impl Fn(u32, &ThreadCounters) -> bool,
    ) {
        for (row, counters) in free_list::used(process) {
            let in_use = counters.state.load(Acquire) != state::FREE;
            if !in_use || counters.gil.load(Relaxed) != self.gil || !selected(row, counters) {
                continue;
            }
            let copy = self.copy_for(row);
            if copy.consistent && copy.counters.events() == counters.events() {
                continue;
            }
            let before = sequence();
            copy.counters.copy_from(counters);
            fence(Acquire);
            copy.consistent = before % 2 == 0 && sequence() == before;
        }
    }

    /// Copies the GIL's rows that have no copy yet and that `selected` accepts.
    pub fn copy_others(
        &mut self,
        process: &ProcessCounters,
        selected: impl Fn(u32, &ThreadCounters) -> bool,
    ) {
        let copied: Vec<bool> = self.copy_of_row.iter().map(Option::is_some).collect();
        self.copy(process, || 0, |row, counters| !copied[row as usize] && selected(row, counters));
    }

    pub fn into_rows(self) -> impl Iterator<Item = (u32, Box<ThreadCounters>)> {
        self.copies.into_iter().map(|copy| (copy.row, copy.counters))
    }

    fn copy_for(&mut self, row: u32) -> &mut CountersCopy {
        let copy = *self.copy_of_row[row as usize].get_or_insert_with(|| {
            let counters = Box::new(ThreadCounters::new());
            self.copies.push(CountersCopy { row, consistent: false, counters });
            self.copies.len() as u32 - 1
        });
        &mut self.copies[copy as usize]
    }
}
