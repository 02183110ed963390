//! Long holds of a GIL with the Python stack of the holder. `headway_gil::holds` shows a hold while
//! it lasts.
//!
//! A thread that runs Python code drops the GIL soon after another one requests it, however long it
//! computes. A long hold is a call in C that does not drop the GIL, or a thread that the kernel
//! does not run. The CPU time that the holder used after the drop request distinguishes the two.
//! The stack of such a hold is read once, while the hold lasts, and its length when it is over.

use super::calls::innermost_of;
use super::datagram_sender::DatagramSender;
use super::gils;
use super::source::{Source, Tick};
use super::stacks;
use headway_gil::Hold;
use headway_measure::clock::{now_ns, wall_of_ns};
use headway_telemetry::datagram::Writer;
use headway_telemetry::id;
use headway_threads::lock::Lock;
use std::time::Duration;

/// The length from which a hold is reported.
pub const THRESHOLD: Duration = Duration::from_millis(50);
/// The interval between observations. A stack is read at most this long after `THRESHOLD`.
const LOOK: Duration = Duration::from_millis(20);
/// A thread that waits for this time, and longer than a holder takes to answer a drop request,
/// waits for a holder that does not answer.
const SHORTEST_WAIT: Duration = Duration::from_millis(20);
/// A hold that has not ended is reported from this length on, with each tick until its end.
const TOLD_WHILE_PRESENT: Duration = Duration::from_secs(1);
/// The most holds in one tick. The longest ones are reported.
const HOLDS_PER_TICK: usize = 16;
/// The bytes of a tick for holds.
const BUDGET_BYTES: usize = 20_000;
/// The bytes that are reserved for rows without their stacks, and for later fields.
const ROWS_BYTES: usize = 7_000;
/// The bytes of a stack, which begins with the innermost calls. The rest is left out.
const STACK_BYTES: usize = 3_000;
/// The time limit for reading a stack. A thread handles its signal when it gets a core.
const TIMEOUT: Duration = Duration::from_millis(100);

/// Finds the endpoint that a thread serves, by its kernel thread ID; `None` for other threads.
pub type EndpointOf = Box<dyn Fn(u32) -> Option<String> + Send + Sync>;

/// The functions of the servers in this process.
static ENDPOINTS: Lock<Vec<EndpointOf>> = Lock::new(Vec::new());

/// Adds a function that finds endpoints, so that long holds are reported with them.
pub fn ask_for_endpoints(endpoint_of: EndpointOf) {
    ENDPOINTS.lock().push(endpoint_of);
}

pub struct LongHolds {
    threshold_ns: u64,
    seen: Lock<Seen>,
}

#[derive(Default)]
struct Seen {
    /// Holds that have not ended.
    present: Vec<LongHold>,
    /// Holds that ended and are not reported yet; at most `HOLDS_PER_TICK`.
    past: Vec<LongHold>,
    lost: u64,
    /// The number of holds in `past` for which the current tick has no room.
    untold: u64,
}

#[derive(Clone, Debug)]
struct LongHold {
    hold: Hold,
    /// When it began, in seconds since 1970: the same in each report of the hold.
    began_wall: f64,
    stack: Option<String>,
    endpoint: Option<String>,
    /// The time of the last observation, or after the end of the hold, the time of its end.
    until_ns: u64,
    /// After the end of the hold, the CPU time that the holder used while a drop request was
    /// pending; `None` if it is unknown.
    cpu_ns: Option<u64>,
}

impl LongHolds {
    /// Reports holds of `threshold` and longer; see `THRESHOLD`.
    pub fn new(threshold: Duration) -> Self {
        Self { threshold_ns: threshold.as_nanos() as u64, seen: Lock::default() }
    }
}

impl Source for LongHolds {
    fn look_every(&self) -> Option<Duration> {
        Some(LOOK)
    }

    fn look(&self) {
        let interval_ns = headway_gil::switch_interval_ns().unwrap_or(0);
        let waited_ns = (SHORTEST_WAIT.as_nanos() as u64).max(2 * interval_ns);
        let holds = headway_gil::holds_longer_than(self.threshold_ns, waited_ns);
        let mut seen = self.seen.lock();
        if holds.is_empty() && seen.present.is_empty() {
            return;
        }
        seen.end_those_that_are_over();
        for hold in holds {
            match seen.present.iter_mut().find(|each| each.hold.is_same(&hold)) {
                Some(known) => {
                    known.until_ns = hold.began_ns + hold.held_ns;
                    known.hold = hold;
                }
                None => {
                    let long_hold = LongHold::seen(hold);
                    seen.present.push(long_hold);
                }
            }
        }
    }

    fn collect(&self, tick: &mut Tick) {
        let mut seen = self.seen.lock();
        seen.end_those_that_are_over();
        let mut left = BUDGET_BYTES.min(tick.fields.room().saturating_sub(ROWS_BYTES));
        let Seen { present, past, untold, .. } = &mut *seen;
        *untold = 0;
        let told_from_ns = TOLD_WHILE_PRESENT.as_nanos() as u64;
        let present = present.iter().filter(|hold| hold.took_ns() >= told_from_ns);
        let holds = past.iter().map(|hold| (hold, false));
        for (hold, is_present) in present.map(|hold| (hold, true)).take(HOLDS_PER_TICK).chain(holds)
        {
            let before = tick.fields.bytes().len();
            // A hold whose stack has no room is reported without it; such a row always has room.
            let stack = hold.stack.as_deref().filter(|stack| stack.len() <= left);
            let has_room = tick.fields.row(id::HOLDS, |row| {
                hold.write(row, stack);
                if is_present {
                    row.count(id::HOLD_PRESENT, 1);
                }
            });
            // One that has not ended is reported again.
            *untold += u64::from(!has_room && !is_present);
            left = left.saturating_sub(tick.fields.bytes().len() - before);
        }
    }

    fn sent(&self) {
        let mut seen = self.seen.lock();
        seen.past.clear();
        seen.lost += std::mem::take(&mut seen.untold);
    }

    fn send_events(&self, sender: &mut DatagramSender) {
        sender.lose(std::mem::take(&mut self.seen.lock().lost));
    }
}

impl Seen {
    fn end_those_that_are_over(&mut self) {
        let now_ns = now_ns();
        let mut index = 0;
        while index < self.present.len() {
            if headway_gil::is_held(&self.present[index].hold) {
                index += 1;
                continue;
            }
            let mut over = self.present.swap_remove(index);
            let ended_ns = headway_gil::end_of_hold_ns(&over.hold).unwrap_or(now_ns);
            // The thread that waited longest waited until the end of the hold.
            over.hold.waited_ns += ended_ns.saturating_sub(over.until_ns);
            over.until_ns = ended_ns.max(over.until_ns);
            over.cpu_ns = headway_gil::cpu_of_unanswered_ns(&over.hold);
            self.keep(over);
        }
    }

    /// Inserts a hold into `past`, which is sorted from the longest to the shortest.
    fn keep(&mut self, over: LongHold) {
        let at = self.past.partition_point(|each| each.took_ns() >= over.took_ns());
        self.past.insert(at, over);
        if self.past.len() > HOLDS_PER_TICK {
            self.past.pop();
            self.lost += 1;
        }
    }
}

impl LongHold {
    /// Makes a `LongHold`, with the holder's stack if it can be read during the hold.
    fn seen(hold: Hold) -> Self {
        let endpoint = hold.native_id.and_then(|native_id| {
            ENDPOINTS.lock().iter().find_map(|endpoint_of| endpoint_of(native_id))
        });
        let stack = hold.native_id.and_then(|native_id| {
            let stack = stacks::read(native_id, TIMEOUT).ok()?;
            // The hold may have ended before the thread handled its signal.
            let ended_ns = headway_gil::end_of_hold_ns(&hold).unwrap_or(0);
            let is_of_hold = headway_gil::is_held(&hold) || stack.taken_ns <= ended_ns;
            is_of_hold.then(|| innermost_of(stack.calls, STACK_BYTES))
        });
        let (began_wall, until_ns) = (wall_of_ns(hold.began_ns), hold.began_ns + hold.held_ns);
        Self { until_ns, hold, began_wall, stack, endpoint, cpu_ns: None }
    }

    fn took_ns(&self) -> u64 {
        self.until_ns.saturating_sub(self.hold.began_ns)
    }

    fn write(&self, row: &mut Writer, stack: Option<&str>) {
        row.number(id::HOLD_STAMP, self.began_wall);
        row.seconds_of_ns(id::HOLD_DURATION, self.took_ns());
        row.text(id::HOLD_THREAD, &self.hold.name);
        row.count(id::HOLD_NATIVE_ID, u64::from(self.hold.native_id.unwrap_or(0)));
        let hold = &self.hold;
        row.text(id::HOLD_GIL, &gils::called(&hold.gil_name, hold.interpreter, hold.gil as u32));
        row.seconds_of_ns(id::HOLD_WAITED, self.hold.waited_ns);
        if let Some(cpu_ns) = self.cpu_ns {
            row.seconds_of_ns(id::HOLD_CPU, cpu_ns);
        }
        if let Some(stack) = stack {
            row.text(id::HOLD_STACK, stack);
        }
        if let Some(endpoint) = &self.endpoint {
            row.text(id::HOLD_ENDPOINT, endpoint);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hold_of(took_ns: u64) -> LongHold {
        let hold = Hold {
            gil: 0,
            gil_name: "main".into(),
            interpreter: None,
            native_id: Some(1),
            name: "one".into(),
            began_ns: 5,
            held_ns: took_ns,
            waited_ns: 0,
        };
        let (stack, endpoint, cpu_ns) = (None, None, None);
        LongHold { hold, began_wall: 0.0, stack, endpoint, until_ns: 5 + took_ns, cpu_ns }
    }

    #[test]
    fn the_longest_are_kept_and_the_others_counted() {
        let mut seen = Seen::default();
        (1..=20).for_each(|took_ns| seen.keep(hold_of(took_ns)));
        let kept: Vec<_> = seen.past.iter().map(LongHold::took_ns).collect();
        assert_eq!(kept, (5..=20).rev().collect::<Vec<_>>());
        assert_eq!(seen.lost, 4);
    }
}
