//! The lines of code that make threads wait: the innermost calls of threads that hold a GIL, with
//! the time that others waited meanwhile, from the profile of this process.
//!
//! A tick has numbers instead of names (`headway_telemetry::lines`). Its rows, with those of no
//! line, are what threads waited since the last tick. What the profile has not charged to a stack
//! yet is part of a later tick. The callers of the lines are in `call_tree`. The lines for which
//! event loops were late are in `late_lines`, and share the numbers.

use super::call_tree::CallTree;
use super::calls::{Call, NO_PYTHON, cut};
use super::contexts;
use super::late_lines::{LateLine, LateLines};
use super::source::{Source, Tick};
use headway_gil::{CUT_FRAME, ProfileGrowth};
use headway_telemetry::datagram::Writer;
use headway_telemetry::id;
use headway_telemetry::lines::{FIRST, NUMBER_OF_HANDOFF, NUMBER_OF_NOT_RECORDED, NUMBER_OF_OTHER};
use headway_threads::lock::Lock;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::Duration;

/// The tables of the profile do not fill up in this time.
const LOOK: Duration = Duration::from_millis(20);
/// The lines of a tick; the sum of the others is one row.
const LINES_PER_TICK: usize = 32;
/// Lines that are kept until a tick is sent. Without a recorder, others are summed up.
const MAX_PENDING: usize = 1_024;
/// Numbers that are kept. A line that comes again later gets another one.
const MAX_NUMBERS: usize = 256;
/// A name in use is sent again after this time.
const NAME_AGAIN_NS: u64 = 60_000_000_000;
/// The bytes of a tick for names, and those that are left for the rows and for later fields.
const NAMES_BYTES: usize = 8_000;
const LATER_BYTES: usize = 7_000;

#[derive(Default)]
pub struct Lines {
    state: Lock<State>,
}

#[derive(Default)]
struct State {
    calls: CallTree,
    /// The waits that are not sent yet.
    pending_ns: HashMap<Line, u64>,
    other_ns: u64,
    handoff_ns: u64,
    not_recorded_ns: u64,
    /// The part that the tick that is written leaves for the next one.
    rest_ns: u64,
    late: LateLines,
    numbers: Numbers,
}

/// The numbers of lines.
#[derive(Default)]
struct Numbers {
    numbers: HashMap<Line, Number>,
    last_number: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Line {
    call: Call,
    /// The endpoint; the callback of a loop that was late.
    endpoint: String,
    /// The thread that held the GIL; "" but for a loop that waited for it.
    holder: String,
}

struct Number {
    number: u32,
    used_ns: u64,
    /// When a tick with the name was sent; 0 for never.
    named_ns: u64,
    /// The tick that is written has the name.
    is_named: bool,
}

impl Lines {
    /// Reports only the growth from now on.
    pub fn from_now() -> Self {
        let state = State { late: LateLines::from_now(), ..State::default() };
        Self { state: Lock::new(state) }
    }
}

impl Source for Lines {
    fn look_every(&self) -> Option<Duration> {
        Some(LOOK)
    }

    fn look(&self) {
        headway_gil::make_room_in_profile();
    }

    fn collect(&self, tick: &mut Tick) {
        let mut state = self.state.lock();
        if let Some(growth) = headway_gil::profile_growth() {
            state.add(growth);
        }
        let State { late, calls, .. } = &mut *state;
        late.add(headway_gil::late_stacks(), calls);
        state.write(tick.fields, tick.now_ns);
    }

    fn sent(&self) {
        self.state.lock().sent();
    }
}

impl State {
    fn add(&mut self, growth: ProfileGrowth) {
        self.handoff_ns += growth.handoff_ns;
        self.not_recorded_ns += growth.not_recorded_ns;
        let calls: Vec<Call> = growth.frames.iter().map(Call::of_frame).collect();
        for (stack, context, ns) in growth.stacks {
            let endpoint = contexts::name_of(context);
            let endpoint = cut(endpoint.as_deref().unwrap_or_default());
            let is_cut = stack.first() == Some(&CUT_FRAME);
            let stack = stack.iter().filter_map(|index| calls.get(*index as usize));
            let stack: Vec<&Call> = stack.collect();
            self.calls.add(endpoint, &stack, is_cut, ns);
            let call = stack.last().map_or_else(|| Call::named(NO_PYTHON), |call| (*call).clone());
            let line = Line { call, endpoint: endpoint.into(), holder: String::new() };
            if self.pending_ns.len() < MAX_PENDING || self.pending_ns.contains_key(&line) {
                *self.pending_ns.entry(line).or_default() += ns;
            } else {
                self.other_ns += ns;
            }
        }
    }

    fn write(&mut self, out: &mut Writer, now_ns: u64) {
        let mut lines: Vec<_> = self.pending_ns.iter().collect();
        lines.sort_unstable_by_key(|(line, ns)| (Reverse(**ns), *line));
        let room = NAMES_BYTES.min(out.room().saturating_sub(LATER_BYTES));
        let names_end = out.bytes().len() + room;
        let (mut rows, mut other_ns) = (Vec::new(), self.other_ns);
        self.numbers.begin();
        for (index, (line, ns)) in lines.into_iter().enumerate() {
            if index >= LINES_PER_TICK {
                other_ns += ns;
                continue;
            }
            match self.numbers.number_of(line, out, names_end, now_ns) {
                Some(number) => rows.push((number, *ns)),
                None => other_ns += ns,
            }
        }
        rows.push((NUMBER_OF_OTHER, other_ns));
        rows.push((NUMBER_OF_HANDOFF, self.handoff_ns));
        rows.push((NUMBER_OF_NOT_RECORDED, self.not_recorded_ns));
        let sum_ns: u64 = rows.iter().map(|(_, ns)| ns).sum();
        let rows: Vec<(u32, i32)> = rows
            .into_iter()
            .map(|(number, ns)| (number, i32::try_from(ns / 1_000).unwrap_or(i32::MAX)))
            .filter(|(_, us)| *us != 0)
            .collect();
        self.rest_ns = sum_ns - rows.iter().map(|(_, us)| *us as u64 * 1_000).sum::<u64>();
        if !rows.is_empty() {
            out.counts(id::LINE_NUMBERS, rows.iter().map(|(number, _)| *number as i32));
            out.counts(id::LINE_TIMES, rows.iter().map(|(_, us)| *us));
        }
        self.write_late(out, now_ns);
        self.numbers.forget_unused(now_ns);
        self.calls.write(out, NAMES_BYTES.min(out.room().saturating_sub(LATER_BYTES)), now_ns);
    }

    /// The lines for which event loops were late; nothing if none was.
    fn write_late(&mut self, out: &mut Writer, now_ns: u64) {
        let mut lines: Vec<_> = self.late.pending_ns.iter().collect();
        lines.sort_unstable_by_key(|(line, ns)| (Reverse(**ns), *line));
        let room = NAMES_BYTES.min(out.room().saturating_sub(LATER_BYTES));
        let names_end = out.bytes().len() + room;
        let (mut rows, mut other_ns) = (Vec::new(), self.late.other_ns);
        for (index, (late, ns)) in lines.into_iter().enumerate() {
            let number = match index < LINES_PER_TICK {
                true => self.numbers.number_of(&Line::of_late(late), out, names_end, now_ns),
                false => None,
            };
            match number {
                Some(number) => rows.push((number, late.part, *ns)),
                None => other_ns[late.part] += ns,
            }
        }
        rows.extend(other_ns.into_iter().enumerate().map(|(part, ns)| (NUMBER_OF_OTHER, part, ns)));
        rows.retain(|(_, _, ns)| *ns >= 1_000);
        if !rows.is_empty() {
            let us = |ns: u64| i32::try_from(ns / 1_000).unwrap_or(i32::MAX);
            out.counts(id::LATE_NUMBERS, rows.iter().map(|(number, _, _)| *number as i32));
            out.counts(id::LATE_PARTS, rows.iter().map(|(_, part, _)| *part as i32));
            out.counts(id::LATE_TIMES, rows.iter().map(|(_, _, ns)| us(*ns)));
        }
    }

    fn sent(&mut self) {
        self.calls.sent();
        self.late.sent();
        self.pending_ns.clear();
        self.other_ns = std::mem::take(&mut self.rest_ns);
        (self.handoff_ns, self.not_recorded_ns) = (0, 0);
        self.numbers.sent();
    }
}

impl Numbers {
    /// Begins a tick.
    fn begin(&mut self) {
        self.numbers.values_mut().for_each(|number| number.is_named = false);
    }

    /// The number of a line, whose name is written if it is due and ends before `names_end`. `None`
    /// if the recorder does not know the name after this tick.
    fn number_of(
        &mut self,
        line: &Line,
        out: &mut Writer,
        names_end: usize,
        now_ns: u64,
    ) -> Option<u32> {
        let number = self.numbers.entry(line.clone()).or_insert_with(|| {
            self.last_number = self.last_number.max(FIRST - 1) + 1;
            Number { number: self.last_number, used_ns: 0, named_ns: 0, is_named: false }
        });
        number.used_ns = now_ns;
        let is_known = number.named_ns != 0;
        let is_due = !is_known || now_ns.saturating_sub(number.named_ns) >= NAME_AGAIN_NS;
        if is_due && !number.is_named {
            number.is_named = out.bytes().len() + line.bytes() <= names_end
                && out.row(id::LINE_NAMES, |row| line.write(number.number, row));
        }
        (is_known || number.is_named).then_some(number.number)
    }

    fn forget_unused(&mut self, now_ns: u64) {
        if self.numbers.len() > MAX_NUMBERS {
            self.numbers.retain(|_, number| number.used_ns == now_ns);
        }
    }

    fn sent(&mut self) {
        for number in self.numbers.values_mut().filter(|number| number.is_named) {
            (number.named_ns, number.is_named) = (number.used_ns, false);
        }
    }
}

impl Line {
    fn of_late(late: &LateLine) -> Self {
        let LateLine { call, callback, holder, .. } = late.clone();
        Self { call, endpoint: callback, holder }
    }

    /// More than the row takes.
    fn bytes(&self) -> usize {
        self.call.function.len()
            + self.call.place.len()
            + self.endpoint.len()
            + self.holder.len()
            + 50
    }

    fn write(&self, number: u32, row: &mut Writer) {
        row.count(id::LINE_NUMBER, u64::from(number));
        row.text(id::LINE_FUNCTION, &self.call.function);
        for (id, text) in [
            (id::LINE_PLACE, &self.call.place),
            (id::LINE_ENDPOINT, &self.endpoint),
            (id::LINE_HOLDER, &self.holder),
        ] {
            if !text.is_empty() {
                row.text(id, text);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headway_gil::{Frame, LateStack};
    use headway_telemetry::datagram::{Datagram, Header};
    use headway_telemetry::{Value, counts};

    const S: u64 = 1_000_000_000;

    fn growth(lines: &[(u32, u64)]) -> ProfileGrowth {
        let frame = |&(line, _): &(u32, u64)| Frame {
            function: "f".into(),
            file: "/site/app.py".into(),
            line,
        };
        let stack = |(index, &(_, ns)): (usize, &(u32, u64))| (vec![index as u32], 0, ns);
        ProfileGrowth {
            frames: lines.iter().map(frame).collect(),
            stacks: lines.iter().enumerate().map(stack).collect(),
            handoff_ns: 3_500,
            not_recorded_ns: 0,
        }
    }

    /// The names, and the rows, of the next tick.
    fn tick(state: &mut State, now_ns: u64) -> (usize, Vec<(i32, i32)>) {
        let mut writer = Writer::default();
        writer.begin(&Header { kind: 2, pid: 1, seq: 1, stamp_s: 0.0 });
        state.write(&mut writer, now_ns);
        let datagram = Datagram::parse(writer.bytes()).unwrap();
        let list = |id| match datagram.get(id) {
            Some(Value::Counts(bytes)) => counts(bytes).collect(),
            _ => Vec::new(),
        };
        let rows = list(id::LINE_NUMBERS).into_iter().zip(list(id::LINE_TIMES)).collect();
        (datagram.fields().filter(|(id, _)| *id == id::LINE_NAMES).count(), rows)
    }

    fn sum_us(rows: &[(i32, i32)]) -> i32 {
        rows.iter().map(|(_, us)| us).sum()
    }

    #[test]
    fn names_are_sent_once_and_again_after_a_minute() {
        let mut state = State::default();
        state.add(growth(&[(1, 9_000), (2, 4_000)]));
        assert_eq!(tick(&mut state, S), (2, vec![(16, 9), (17, 4), (1, 3)]));
        // The tick was not sent.
        state.add(growth(&[(1, 1_000)]));
        assert_eq!(tick(&mut state, 2 * S), (2, vec![(16, 10), (17, 4), (1, 7)]));
        state.sent();
        assert_eq!(tick(&mut state, 3 * S), (0, vec![]));
        state.sent();
        state.add(growth(&[(2, 2_000)]));
        assert_eq!(tick(&mut state, 4 * S), (0, vec![(17, 2), (1, 3)]));
        state.sent();
        state.add(growth(&[(2, 2_000)]));
        assert_eq!(tick(&mut state, 62 * S).0, 1);
    }

    #[test]
    fn rows_are_bounded_and_add_up() {
        let mut state = State::default();
        let mut added_ns = 0;
        let mut sent_us = 0;
        for second in 1..=20 {
            let lines: Vec<_> = (0..300).map(|line| (second * 1_000 + line, 1_999)).collect();
            added_ns += 300 * 1_999 + 3_500;
            state.add(growth(&lines));
            let (_, rows) = tick(&mut state, u64::from(second) * S);
            assert!(rows.len() <= LINES_PER_TICK + 3);
            assert!(state.numbers.numbers.len() <= MAX_NUMBERS);
            if second % 2 == 0 {
                sent_us += sum_us(&rows) as u64;
                state.sent();
            }
        }
        assert_eq!(1_000 * sent_us + state.other_ns, added_ns);
    }

    /// The numbers, parts and times of the late lines of the next tick.
    fn late_rows(state: &mut State, now_ns: u64) -> (usize, Vec<[i32; 3]>) {
        let mut writer = Writer::default();
        writer.begin(&Header { kind: 2, pid: 1, seq: 1, stamp_s: 0.0 });
        state.write(&mut writer, now_ns);
        let datagram = Datagram::parse(writer.bytes()).unwrap();
        let list = |id| match datagram.get(id) {
            Some(Value::Counts(bytes)) => counts(bytes).collect(),
            _ => Vec::new(),
        };
        let [numbers, parts, times] = [id::LATE_NUMBERS, id::LATE_PARTS, id::LATE_TIMES].map(list);
        let rows =
            numbers.iter().zip(parts).zip(times).map(|((number, part), us)| [*number, part, us]);
        (datagram.fields().filter(|(id, _)| *id == id::LINE_NAMES).count(), rows.collect())
    }

    #[test]
    fn late_lines_have_numbers_and_are_sent_once() {
        let mut state = State::default();
        assert_eq!(late_rows(&mut state, S), (0, vec![]));
        let late = |line: u32, part: u32, late_ns: u64| LateStack {
            serial: 1,
            native_id: 1,
            part,
            stack: vec![Frame { function: "f".into(), file: "/site/app.py".into(), line }],
            callback: None,
            holder: 0,
            late_ns,
            readings: 1,
        };
        let State { late: lines, calls, .. } = &mut state;
        lines.add(vec![late(1, 2, 9_000), late(1, 0, 5_000), late(2, 1, 7_000)], calls);
        // A line that computed and blocked has one name.
        let expected = vec![[16, 2, 9], [17, 1, 7], [16, 0, 5]];
        assert_eq!(late_rows(&mut state, S), (2, expected.clone()));
        assert_eq!(late_rows(&mut state, 2 * S), (2, expected));
        state.sent();
        assert_eq!(late_rows(&mut state, 3 * S), (0, vec![]));
        let State { late: lines, calls, .. } = &mut state;
        let many = (10..100).map(|line| late(line, 2, 4_000)).collect();
        lines.add(many, calls);
        let (_, rows) = late_rows(&mut state, 4 * S);
        assert_eq!((rows.len(), rows[LINES_PER_TICK]), (LINES_PER_TICK + 1, [0, 2, 58 * 4]));
    }

    #[test]
    fn a_line_whose_name_has_no_room_is_part_of_the_others() {
        let mut state = State::default();
        state.add(growth(&[(1, 9_000)]));
        let mut writer = Writer::default();
        writer.begin(&Header { kind: 2, pid: 1, seq: 1, stamp_s: 0.0 });
        writer.hold_back(55_000);
        state.write(&mut writer, S);
        let datagram = Datagram::parse(writer.bytes()).unwrap();
        let Some(Value::Counts(numbers)) = datagram.get(id::LINE_NUMBERS) else { panic!() };
        assert_eq!(counts(numbers).collect::<Vec<_>>(), [0, 1]);
    }
}
