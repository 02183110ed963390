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

/// The first of the window, after what is under way when it opens, as if that began then.
#[derive(Debug)]
pub struct Timeline {
    room: usize,
    begin_ns: u64,
    /// Until the window is open.
    under_way: Vec<(usize, Moment)>,
    moments: Vec<(u64, usize, Moment)>,
    lost: u64,
}

impl Timeline {
    pub fn new(room: usize, begin_ns: u64) -> Self {
        Self { room, begin_ns, under_way: Vec::new(), moments: Vec::new(), lost: 0 }
    }

    /// In order of time, and not after the window.
    pub fn note(&mut self, at_ns: u64, thread: usize, moment: Moment) {
        if at_ns >= self.begin_ns {
            self.open();
            self.keep(at_ns, thread, moment);
        } else if self.room > 0 {
            // A script may begin what it never ends.
            self.under_way
                .retain(|&(who, begun)| who != thread || begun != moment && !moment.ends(begun));
            if moment.begins() {
                self.under_way.push((thread, moment));
            }
        }
    }

    /// All that were kept, and how many were not.
    pub fn close(mut self) -> (Vec<(u64, usize, Moment)>, u64) {
        self.open();
        (self.moments, self.lost)
    }

    fn open(&mut self) {
        for (thread, moment) in std::mem::take(&mut self.under_way) {
            self.keep(self.begin_ns, thread, moment);
        }
    }

    fn keep(&mut self, at_ns: u64, thread: usize, moment: Moment) {
        if self.moments.len() < self.room {
            self.moments.push((at_ns, thread, moment));
        } else {
            self.lost += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::*;

    fn noted(room: usize, moments: &[(u64, usize, Moment)]) -> (Vec<(u64, usize, Moment)>, u64) {
        let mut timeline = Timeline::new(room, 100);
        for &(at_ns, thread, moment) in moments {
            timeline.note(at_ns, thread, moment);
        }
        timeline.close()
    }

    #[test]
    fn what_is_under_way_when_the_window_opens_begins_then() {
        use Moment::{Begin, Drop, End, Run, Stop, Take, Wait};
        let before = [(10, 0, Run), (11, 0, Take), (20, 1, Begin), (30, 1, Wait), (40, 0, Drop)];
        let later = [(41, 0, Stop), (50, 0, Take), (120, 0, Drop), (130, 1, Take), (140, 1, End)];
        let open = [(100, 1, Begin), (100, 1, Wait), (100, 0, Take)];
        assert_eq!(noted(9, &[before, later].concat()).0, [&open[..], &later[2..]].concat());
        assert_eq!(noted(9, &[&before[..], &later[..1]].concat()).0, open[..2]);
    }

    #[test]
    fn what_has_no_room_is_counted() {
        let runs = [(90, 0, Moment::Run), (110, 1, Moment::Run), (120, 1, Moment::Stop)];
        assert_eq!(noted(2, &runs), (vec![(100, 0, Moment::Run), runs[1]], 1));
        assert_eq!(noted(0, &runs), (vec![], 2));
        assert_eq!(noted(9, &[(10, 0, Moment::Begin); 3]).0, [(100, 0, Moment::Begin)]);
    }
}
