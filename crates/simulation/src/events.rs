//! What is going to happen, in order.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::task::{CoreId, TaskId};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    /// The stage of the thread on that core is over, if its plan is still this one.
    StageOver {
        core: CoreId,
        plan: u64,
    },
    /// A timed wait or a sleep is over, if the thread's timer is still this one.
    Timer {
        task: TaskId,
        timer: u64,
    },
    /// A woken thread is at its core.
    Arrive {
        task: TaskId,
        core: CoreId,
    },
    /// The core is taken away.
    Steal {
        core: CoreId,
    },
    Tick {
        core: CoreId,
    },
}

/// Those of the same time in the order in which they were planned.
#[derive(Debug, Default)]
pub struct Events {
    heap: BinaryHeap<Reverse<(u64, u64, What)>>,
    planned: u64,
}

impl Events {
    pub fn plan(&mut self, at_ns: u64, what: What) {
        self.planned += 1;
        self.heap.push(Reverse((at_ns, self.planned, what)));
    }

    /// The next, if it is not later than that.
    pub fn next(&mut self, until_ns: u64) -> Option<(u64, What)> {
        let &Reverse((at_ns, _, what)) = self.heap.peek()?;
        (at_ns <= until_ns).then(|| {
            self.heap.pop();
            (at_ns, what)
        })
    }
}
