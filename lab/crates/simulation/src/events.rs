//! The queue of future events, in order of time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::task::{CoreId, TaskId};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EventKind {
    /// The end of the stage of the thread on that core, void if the core's plan has changed.
    StageOver {
        core: CoreId,
        plan: u64,
    },
    /// The end of a timed wait or a sleep, void if the thread's timer has changed.
    Timer {
        task: TaskId,
        timer: u64,
    },
    /// The arrival of a woken thread at its core.
    Arrive {
        task: TaskId,
        core: CoreId,
    },
    /// The start of a time in which the core is stolen.
    Steal {
        core: CoreId,
    },
    Tick {
        core: CoreId,
    },
}

/// Future events. Events of the same time happen in the order in which they were planned.
#[derive(Debug, Default)]
pub struct Events {
    heap: BinaryHeap<Reverse<(u64, u64, EventKind)>>,
    planned: u64,
}

impl Events {
    pub fn plan(&mut self, at_ns: u64, kind: EventKind) {
        self.planned += 1;
        self.heap.push(Reverse((at_ns, self.planned, kind)));
    }

    /// Removes and returns the next event, if it is not later than `until_ns`.
    pub fn next(&mut self, until_ns: u64) -> Option<(u64, EventKind)> {
        let &Reverse((at_ns, _, kind)) = self.heap.peek()?;
        (at_ns <= until_ns).then(|| {
            self.heap.pop();
            (at_ns, kind)
        })
    }
}
