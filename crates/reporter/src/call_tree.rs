//! The stacks of the lines that make threads wait, as nodes of a tree of calls.
//!
//! A tick has the numbers of the innermost calls of the stacks for which others waited longest
//! (`headway_telemetry::stacks`). A call is sent once with its number and that of its caller, and
//! again after a while. The endpoint is one more call at the inner end, so that endpoints share
//! their calls. A stack whose calls have no room in a tick has no row in it; its time is in the row
//! of its line.

use super::calls::{CUT, Call, NO_PYTHON};
use headway_telemetry::datagram::Writer;
use headway_telemetry::id;
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

/// The stacks of a tick.
pub const STACKS_PER_TICK: usize = 32;
/// The innermost calls of a stack that are kept.
const MAX_DEPTH: usize = 64;
/// Calls that are kept. Between two ticks, stacks with further ones are left out.
const MAX_CALLS: usize = 8_192;
/// A call in use is sent again after this time.
const AGAIN_NS: u64 = 60_000_000_000;

#[derive(Default)]
pub struct CallTree {
    /// The names of calls, each once with a number.
    names: HashMap<Name, u32>,
    last_name: u32,
    /// The number of a call by the number of its caller and its name; an outermost call has the
    /// caller 0.
    numbers: HashMap<(u32, u32), u32>,
    calls: HashMap<u32, Node>,
    last_number: u32,
    /// The waits that are not sent yet, by innermost call.
    pending_ns: HashMap<u32, u64>,
    /// The times for which event loops were late.
    late_ns: HashMap<u32, u64>,
}

#[derive(Clone, PartialEq, Eq, Hash)]
enum Name {
    Endpoint(String),
    Call(Call),
}

struct Node {
    caller: u32,
    name: Name,
    used_ns: u64,
    /// When a tick with the call was sent; 0 for never.
    sent_ns: u64,
    /// The tick that is written has the call.
    is_written: bool,
}

impl CallTree {
    /// Adds the time that others waited during a stack, whose outermost call comes first.
    pub fn add(&mut self, endpoint: &str, stack: &[&Call], is_cut: bool, ns: u64) {
        if let Some(number) = self.innermost(None, endpoint, stack, is_cut) {
            *self.pending_ns.entry(number).or_default() += ns;
        }
    }

    /// Adds the time for which an event loop was late during a stack. What the loop did becomes the
    /// outermost call.
    pub fn add_late(&mut self, part: &str, stack: &[&Call], ns: u64) {
        if let Some(number) = self.innermost(Some(part), "", stack, false) {
            *self.late_ns.entry(number).or_default() += ns;
        }
    }

    /// The number of a stack's innermost call; `None` if there is no room.
    fn innermost(
        &mut self,
        outermost: Option<&str>,
        endpoint: &str,
        stack: &[&Call],
        is_cut: bool,
    ) -> Option<u32> {
        let kept = &stack[stack.len().saturating_sub(MAX_DEPTH)..];
        let endpoint = (!endpoint.is_empty()).then(|| Name::Endpoint(endpoint.into()));
        let stand_in = match (is_cut || kept.len() < stack.len(), kept.is_empty()) {
            (true, _) => Some(CUT),
            (false, true) => Some(NO_PYTHON),
            (false, false) => None,
        };
        let stand_in = stand_in.map(|name| Name::Call(Call::named(name)));
        let calls = kept.iter().map(|call| Name::Call((*call).clone()));
        let outermost = outermost.map(|name| Name::Call(Call::named(name)));
        let names = outermost.into_iter().chain(stand_in).chain(calls).chain(endpoint);
        let mut number = 0;
        for name in names {
            number = self.number_of(number, name)?;
        }
        Some(number)
    }

    fn number_of(&mut self, caller: u32, name: Name) -> Option<u32> {
        let known = self.names.get(&name).copied();
        if let Some(number) = known.and_then(|known| self.numbers.get(&(caller, known))) {
            return Some(*number);
        }
        if self.calls.len() >= MAX_CALLS {
            return None;
        }
        let of_name = known.unwrap_or_else(|| {
            self.last_name += 1;
            self.names.insert(name.clone(), self.last_name);
            self.last_name
        });
        self.last_number += 1;
        self.numbers.insert((caller, of_name), self.last_number);
        let node = Node { caller, name, used_ns: 0, sent_ns: 0, is_written: false };
        self.calls.insert(self.last_number, node);
        Some(self.last_number)
    }

    /// Writes the rows, and names in up to `room` bytes.
    pub fn write(&mut self, out: &mut Writer, room: usize, now_ns: u64) {
        self.calls.values_mut().for_each(|node| node.is_written = false);
        let end = out.bytes().len() + room;
        let of_waits = (longest(&self.pending_ns), id::STACK_NUMBERS, id::STACK_TIMES);
        let late = (longest(&self.late_ns), id::LATE_STACK_NUMBERS, id::LATE_STACK_TIMES);
        for (mut stacks, numbers, times) in [of_waits, late] {
            stacks
                .retain(|(number, ns)| self.name_calls(*number, out, end, now_ns) && *ns >= 1_000);
            if !stacks.is_empty() {
                out.counts(numbers, stacks.iter().map(|(number, _)| *number as i32));
                let us = |ns: u64| i32::try_from(ns / 1_000).unwrap_or(i32::MAX);
                out.counts(times, stacks.iter().map(|(_, ns)| us(*ns)));
            }
        }
    }

    /// Writes the calls of a stack that the recorder does not know, the outermost first, and those
    /// that are due again. Returns false if the recorder does not know all after this tick.
    fn name_calls(&mut self, innermost: u32, out: &mut Writer, end: usize, now_ns: u64) -> bool {
        let mut path = Vec::new();
        let mut number = innermost;
        while let Some(node) = self.calls.get_mut(&number) {
            node.used_ns = now_ns;
            path.push(number);
            number = node.caller;
        }
        path.iter().rev().all(|number| {
            let Some(node) = self.calls.get_mut(number) else { return false };
            let is_known = node.sent_ns != 0;
            let is_due = !is_known || now_ns.saturating_sub(node.sent_ns) >= AGAIN_NS;
            if is_due && !node.is_written {
                node.is_written = out.bytes().len() + node.bytes() <= end
                    && out.row(id::CALLS, |row| node.write(*number, row));
            }
            is_known || node.is_written
        })
    }

    /// The tick that was written last was sent.
    pub fn sent(&mut self) {
        self.pending_ns.clear();
        self.late_ns.clear();
        for node in self.calls.values_mut().filter(|node| node.is_written) {
            (node.sent_ns, node.is_written) = (node.used_ns, false);
        }
        if self.calls.len() > MAX_CALLS / 2 {
            self.forget_unused();
        }
    }

    /// Keeps the calls of the latest rows. A call that comes again gets another number.
    fn forget_unused(&mut self) {
        let latest_ns = self.calls.values().map(|node| node.used_ns).max().unwrap_or(0);
        self.calls.retain(|_, node| node.used_ns == latest_ns);
        self.numbers.retain(|_, number| self.calls.contains_key(number));
        let used: HashSet<u32> = self.numbers.keys().map(|(_, of_name)| *of_name).collect();
        self.names.retain(|_, of_name| used.contains(of_name));
    }
}

/// The stacks with the longest times, those first.
fn longest(ns: &HashMap<u32, u64>) -> Vec<(u32, u64)> {
    let mut stacks: Vec<_> = ns.iter().map(|(number, ns)| (*number, *ns)).collect();
    stacks.sort_unstable_by_key(|(number, ns)| (Reverse(*ns), *number));
    stacks.truncate(STACKS_PER_TICK);
    stacks
}

impl Node {
    /// More than the row takes.
    fn bytes(&self) -> usize {
        40 + match &self.name {
            Name::Endpoint(endpoint) => endpoint.len(),
            Name::Call(call) => call.function.len() + call.place.len(),
        }
    }

    fn write(&self, number: u32, row: &mut Writer) {
        row.count(id::CALL_NUMBER, u64::from(number));
        if self.caller != 0 {
            row.count(id::CALL_PARENT, u64::from(self.caller));
        }
        match &self.name {
            Name::Endpoint(endpoint) => row.text(id::LINE_ENDPOINT, endpoint),
            Name::Call(call) => {
                row.text(id::LINE_FUNCTION, &call.function);
                if !call.place.is_empty() {
                    row.text(id::LINE_PLACE, &call.place);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headway_telemetry::datagram::{Datagram, Header};
    use headway_telemetry::{Value, counts};

    const S: u64 = 1_000_000_000;

    fn call(name: &str) -> Call {
        Call { function: name.into(), place: "app.py:1".into() }
    }

    fn add(tree: &mut CallTree, endpoint: &str, stack: &str, ns: u64) {
        let calls: Vec<Call> = stack.split(' ').map(call).collect();
        tree.add(endpoint, &calls.iter().collect::<Vec<_>>(), false, ns);
    }

    /// The number of calls, and the rows, of the next tick.
    fn tick(tree: &mut CallTree, room: usize, now_ns: u64) -> (usize, Vec<(i32, i32)>) {
        let mut writer = Writer::default();
        writer.begin(&Header { kind: 2, pid: 1, seq: 1, stamp_s: 0.0 });
        tree.write(&mut writer, room, now_ns);
        let datagram = Datagram::parse(writer.bytes()).unwrap();
        let list = |id| match datagram.get(id) {
            Some(Value::Counts(bytes)) => counts(bytes).collect(),
            _ => Vec::new(),
        };
        let rows = list(id::STACK_NUMBERS).into_iter().zip(list(id::STACK_TIMES)).collect();
        (datagram.fields().filter(|(id, _)| *id == id::CALLS).count(), rows)
    }

    #[test]
    fn calls_are_shared_and_sent_once_and_again_after_a_minute() {
        let mut tree = CallTree::default();
        add(&mut tree, "/a", "main work", 9_000);
        add(&mut tree, "/b", "main work", 4_000);
        // Two calls and two endpoints.
        assert_eq!(tick(&mut tree, 8_000, S), (4, vec![(3, 9), (4, 4)]));
        // The tick was not sent.
        add(&mut tree, "/b", "main work", 8_000);
        assert_eq!(tick(&mut tree, 8_000, 2 * S), (4, vec![(4, 12), (3, 9)]));
        tree.sent();
        add(&mut tree, "", "main work", 2_000);
        add(&mut tree, "", "main rest", 1_000);
        assert_eq!(tick(&mut tree, 8_000, 3 * S), (1, vec![(2, 2), (5, 1)]));
        tree.sent();
        add(&mut tree, "/a", "main work", 5_000);
        assert_eq!(tick(&mut tree, 8_000, 63 * S), (3, vec![(3, 5)]));
    }

    #[test]
    fn late_stacks_begin_with_what_the_loop_did_and_have_rows_of_their_own() {
        let mut tree = CallTree::default();
        let (main, work) = (call("main"), call("work"));
        tree.add_late("(blocked)", &[&main, &work], 9_000);
        tree.add_late("(computed)", &[&main], 7_000);
        add(&mut tree, "", "main work", 5_000);
        let mut writer = Writer::default();
        writer.begin(&Header { kind: 2, pid: 1, seq: 1, stamp_s: 0.0 });
        tree.write(&mut writer, 8_000, S);
        let datagram = Datagram::parse(writer.bytes()).unwrap();
        let list = |id| match datagram.get(id) {
            Some(Value::Counts(bytes)) => counts(bytes).collect::<Vec<_>>(),
            _ => Vec::new(),
        };
        let late = [id::LATE_STACK_NUMBERS, id::LATE_STACK_TIMES].map(list);
        assert_eq!(late, [vec![3, 5], vec![9, 7]]);
        assert_eq!([id::STACK_NUMBERS, id::STACK_TIMES].map(list), [vec![7], vec![5]]);
        assert!(tree.calls[&1].name == Name::Call(Call::named("(blocked)")));
        tree.sent();
        assert_eq!(tick(&mut tree, 8_000, 2 * S), (0, vec![]));
    }

    #[test]
    fn a_stack_whose_calls_have_no_room_waits_for_a_later_tick() {
        let mut tree = CallTree::default();
        add(&mut tree, "", "one two three", 9_000);
        let two_calls = 2 * (40 + "three".len() + "app.py:1".len());
        assert_eq!(tick(&mut tree, two_calls, S), (2, vec![]));
        tree.sent();
        add(&mut tree, "", "one two three", 7_000);
        assert_eq!(tick(&mut tree, two_calls, 2 * S), (1, vec![(3, 7)]));
    }

    #[test]
    fn deep_stacks_are_cut_and_those_without_calls_have_a_name() {
        let mut tree = CallTree::default();
        let deep: Vec<Call> = (0..100).map(|number| call(&number.to_string())).collect();
        tree.add("", &deep.iter().collect::<Vec<_>>(), false, 1_000);
        assert_eq!(tree.calls.len(), MAX_DEPTH + 1);
        assert!(tree.calls[&1].name == Name::Call(Call::named(CUT)));
        tree.add("", &[], false, 1_000);
        assert!(tree.calls[&(MAX_DEPTH as u32 + 2)].name == Name::Call(Call::named(NO_PYTHON)));
    }

    #[test]
    fn calls_are_bounded_and_the_latest_rows_stay() {
        let mut tree = CallTree::default();
        for second in 1..200 {
            add(&mut tree, "", "main hot", 1_000_000);
            for number in 0..100 {
                add(&mut tree, "", &format!("main f{second} g{number}"), 1_000);
            }
            let (_, rows) = tick(&mut tree, 60_000, second * S);
            assert_eq!((rows.len(), rows[0]), (STACKS_PER_TICK, (2, 1_000)));
            tree.sent();
            assert!(tree.calls.len() <= MAX_CALLS && tree.names.len() <= MAX_CALLS);
            assert!(tree.numbers.len() == tree.calls.len());
        }
    }
}
