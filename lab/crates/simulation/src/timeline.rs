//! A record of the threads' events in a window, for drawing.

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
    /// The thread runs on a core; the thread stops running.
    Run,
    Stop,
    Begin,
    End,
}

impl Moment {
    fn begins(self) -> bool {
        matches!(self, Self::Wait | Self::Take | Self::ForcedWait | Self::Run | Self::Begin)
    }

    fn ends(self, begun: Self) -> bool {
        matches!(
            (begun, self),
            (Self::Wait, Self::Take)
                | (Self::Take, Self::Drop | Self::ForcedDrop)
                | (Self::ForcedWait, Self::ForcedWaitOver)
                | (Self::Run, Self::Stop)
                | (Self::Begin, Self::End)
        )
    }
}

/// The first `capacity` moments of the window, preceded by the intervals that are in progress when
/// the window opens, as if they began then.
#[derive(Debug)]
pub struct Timeline {
    capacity: usize,
    begin_ns: u64,
    /// The intervals in progress, until the window opens.
    in_progress: Vec<(usize, Moment)>,
    moments: Vec<(u64, usize, Moment)>,
    lost: u64,
}

impl Timeline {
    pub fn new(capacity: usize, begin_ns: u64) -> Self {
        Self { capacity, begin_ns, in_progress: Vec::new(), moments: Vec::new(), lost: 0 }
    }

    /// Records a moment. Moments come in order of time, and none comes after the window.
    pub fn note(&mut self, at_ns: u64, thread: usize, moment: Moment) {
        if at_ns >= self.begin_ns {
            self.open();
            self.keep(at_ns, thread, moment);
        } else if self.capacity > 0 {
            // A script may begin a request that it never ends.
            self.in_progress.retain(|&(other, begun)| {
                other != thread || begun != moment && !moment.ends(begun)
            });
            if moment.begins() {
                self.in_progress.push((thread, moment));
            }
        }
    }

    /// Returns the recorded moments, and the number of those that exceeded the capacity.
    pub fn close(mut self) -> (Vec<(u64, usize, Moment)>, u64) {
        self.open();
        (self.moments, self.lost)
    }

    fn open(&mut self) {
        for (thread, moment) in std::mem::take(&mut self.in_progress) {
            self.keep(self.begin_ns, thread, moment);
        }
    }

    fn keep(&mut self, at_ns: u64, thread: usize, moment: Moment) {
        if self.moments.len() < self.capacity {
            self.moments.push((at_ns, thread, moment));
        } else {
            self.lost += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::*;

    fn noted(
        capacity: usize,
        moments: &[(u64, usize, Moment)],
    ) -> (Vec<(u64, usize, Moment)>, u64) {
        let mut timeline = Timeline::new(capacity, 100);
        for &(at_ns, thread, moment) in moments {
            timeline.note(at_ns, thread, moment);
        }
        timeline.close()
    }

    #[test]
    fn intervals_in_progress_when_the_window_opens_begin_then() {
        use Moment::{Begin, Drop, End, Run, Stop, Take, Wait};
        let before = [(10, 0, Run), (11, 0, Take), (20, 1, Begin), (30, 1, Wait), (40, 0, Drop)];
        let later = [(41, 0, Stop), (50, 0, Take), (120, 0, Drop), (130, 1, Take), (140, 1, End)];
        let open = [(100, 1, Begin), (100, 1, Wait), (100, 0, Take)];
        assert_eq!(noted(9, &[before, later].concat()).0, [&open[..], &later[2..]].concat());
        assert_eq!(noted(9, &[&before[..], &later[..1]].concat()).0, open[..2]);
    }

    #[test]
    fn moments_beyond_the_capacity_are_counted() {
        let runs = [(90, 0, Moment::Run), (110, 1, Moment::Run), (120, 1, Moment::Stop)];
        assert_eq!(noted(2, &runs), (vec![(100, 0, Moment::Run), runs[1]], 1));
        assert_eq!(noted(0, &runs), (vec![], 2));
        assert_eq!(noted(9, &[(10, 0, Moment::Begin); 3]).0, [(100, 0, Moment::Begin)]);
    }
}
