//! Moments of threads, for who draws them.

use serde::Serialize;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Moment {
    Wait,
    Take,
    Drop,
    ForcedDrop,
    Ask,
    ForcedWait,
    ForcedWaitOver,
    /// On a core, and off it.
    Run,
    Stop,
    Begin,
    End,
}

/// The first of the window.
#[derive(Debug)]
pub struct Timeline {
    room: usize,
    pub moments: Vec<(u64, usize, Moment)>,
    pub lost: u64,
}

impl Timeline {
    pub fn new(room: usize) -> Self {
        Self { room, moments: Vec::new(), lost: 0 }
    }

    pub fn note(&mut self, at_ns: u64, thread: usize, moment: Moment) {
        if self.moments.len() < self.room {
            self.moments.push((at_ns, thread, moment));
        } else {
            self.lost += 1;
        }
    }
}
