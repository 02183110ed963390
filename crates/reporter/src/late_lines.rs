//! The lines of code for which event loops were late, from the stacks that were read of late
//! iterations: what was charged to them since the last tick that was sent.

use super::call_tree::CallTree;
use super::calls::{Call, NO_PYTHON, cut};
use headway_gil::{Frame, LateStack};
use headway_telemetry::lines::PARTS;
use std::collections::HashMap;

/// Lines that are kept until a tick is sent. Others are summed up.
const MAX_PENDING: usize = 1_024;

/// A line, and what the loop did while it ran: an index in `PARTS`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LateLine {
    pub call: Call,
    /// The coroutine or callback that the loop ran; "" if it is not known.
    pub callback: String,
    /// The thread that held the GIL, where the loop waited for it.
    pub holder: String,
    pub part: usize,
}

#[derive(Default)]
pub struct LateLines {
    /// The times at the last reading, which only grow.
    read_ns: HashMap<Charged, u64>,
    /// The growth that is not sent yet.
    pub pending_ns: HashMap<LateLine, u64>,
    pub other_ns: [u64; PARTS.len()],
}

/// The identity of a stack: thread, part, stack, callback, holder.
type Charged = (u32, u32, Vec<Frame>, Option<String>, u32);

impl LateLines {
    /// Reports only the growth from now on.
    pub fn from_now() -> Self {
        let mut lines = Self::default();
        lines.growth(headway_gil::late_stacks());
        lines
    }

    /// Adds what was charged since the last reading, with its stacks to `calls`.
    pub fn add(&mut self, read: Vec<LateStack>, calls: &mut CallTree) {
        for ((_, part, stack, callback, holder), ns) in self.growth(read) {
            let part = part as usize;
            if part >= PARTS.len() {
                continue;
            }
            let stack: Vec<Call> = stack.iter().map(Call::of_frame).collect();
            calls.add_late(PARTS[part], &stack.iter().collect::<Vec<_>>(), ns);
            let holder = headway_gil::name_of(holder).unwrap_or_default();
            let line = LateLine {
                call: stack.last().cloned().unwrap_or_else(|| Call::named(NO_PYTHON)),
                callback: cut(callback.as_deref().unwrap_or_default()).into(),
                holder: cut(&holder).into(),
                part,
            };
            if self.pending_ns.len() < MAX_PENDING || self.pending_ns.contains_key(&line) {
                *self.pending_ns.entry(line).or_default() += ns;
            } else {
                self.other_ns[part] += ns;
            }
        }
    }

    fn growth(&mut self, read: Vec<LateStack>) -> Vec<(Charged, u64)> {
        let mut read_ns = HashMap::with_capacity(read.len());
        for each in read {
            let charged = (each.native_id, each.part, each.stack, each.callback, each.holder);
            *read_ns.entry(charged).or_default() += each.late_ns;
        }
        let grown = read_ns.iter().filter_map(|(charged, ns): (&Charged, &u64)| {
            let before = self.read_ns.get(charged).copied().unwrap_or(0);
            // A smaller time is that of a stack that was forgotten in between.
            let since = ns.checked_sub(before).unwrap_or(*ns);
            (since > 0).then(|| (charged.clone(), since))
        });
        let grown = grown.collect();
        self.read_ns = read_ns;
        grown
    }

    pub fn sent(&mut self) {
        self.pending_ns.clear();
        self.other_ns = Default::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn late(part: u32, line: u32, late_ns: u64) -> LateStack {
        let frame =
            |function: &str, line| Frame { function: function.into(), file: "app.py".into(), line };
        LateStack {
            serial: 1,
            native_id: 7,
            part,
            stack: vec![frame("main", 1), frame("work", line)],
            callback: Some("handle".into()),
            holder: 0,
            late_ns,
            readings: 1,
        }
    }

    fn sums(lines: &LateLines) -> Vec<(usize, String, u64)> {
        let rows = lines.pending_ns.iter();
        let mut rows: Vec<_> =
            rows.map(|(line, ns)| (line.part, line.call.place.clone(), *ns)).collect();
        rows.sort();
        rows
    }

    #[test]
    fn what_was_added_is_reported_once() {
        let (mut lines, mut calls) = (LateLines::default(), CallTree::default());
        lines.add(vec![late(2, 5, 30_000_000)], &mut calls);
        // The tick was not sent.
        lines.add(vec![late(2, 5, 50_000_000), late(0, 6, 20_000_000)], &mut calls);
        let expected = [(0, "app.py:6".into(), 20_000_000), (2, "app.py:5".into(), 50_000_000)];
        assert_eq!(sums(&lines), expected);
        lines.sent();
        lines.add(vec![late(2, 5, 50_000_000), late(0, 6, 20_000_000)], &mut calls);
        assert_eq!(sums(&lines), []);
        // The stack was forgotten, and is charged anew.
        lines.add(vec![late(2, 5, 1_000_000)], &mut calls);
        assert_eq!(sums(&lines), [(2, "app.py:5".into(), 1_000_000)]);
        // An unknown part.
        lines.add(vec![late(2, 5, 1_000_000), late(9, 5, 1_000_000)], &mut calls);
        assert_eq!(sums(&lines).len(), 1);
    }

    #[test]
    fn lines_are_bounded_and_the_others_are_summed_up() {
        let (mut lines, mut calls) = (LateLines::default(), CallTree::default());
        lines.add((1..=2_000).map(|line| late(1, line, 1_000)).collect(), &mut calls);
        assert_eq!(lines.pending_ns.len(), MAX_PENDING);
        assert_eq!(lines.other_ns, [0, (2_000 - MAX_PENDING as u64) * 1_000, 0]);
        lines.sent();
        assert_eq!((lines.pending_ns.len(), lines.other_ns), (0, [0; 3]));
    }
}
