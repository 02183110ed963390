//! The time that a profile charges to lines of code, for a reporter that reads it again and again.
//!
//! Only the stacks of holders count here. The tables of a profile never shrink, so the reader
//! clears them when they are nearly full, unless the profile was asked for. What was charged before
//! is kept here until it is taken, so nothing is lost and no sum goes backwards.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::{Mutex, MutexGuard, PoisonError};

use headway_measure::clock;

use super::charges::Charges;
use super::kept_stacks::KeptStacks;
use super::recording::{self, is_asked_for, is_on};
use super::resolver::{CUT_FRAME, Frame, Resolver};
use super::store::{ChargeKind, Store};

/// Whether a reporter reads the profile. Writers: `start`, `stop_reading`, a forked child.
static IS_READ: AtomicBool = AtomicBool::new(false);
/// Locked by the reporter's thread, and by threads that begin and end profiles. A forked child only
/// tries to lock it, since a thread of the parent may have held it.
static READING: Mutex<Option<Reading>> = Mutex::new(None);

/// The waits of others while threads held a GIL, since the last call of `take`. All GILs together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Growth {
    pub frames: Vec<Frame>,
    /// Stacks, contexts and charges. A stack has the indices of its frames, the outermost call
    /// first; one that was cut begins with `CUT_FRAME`, and one without Python code is empty.
    pub stacks: Vec<(Vec<u32>, u32, u64)>,
    /// The waits between a drop and the next take.
    pub handoff_ns: u64,
    pub not_recorded_ns: u64,
}

#[derive(Default)]
struct Reading {
    /// The charges of the rows of the tables, by index.
    charged_ns: Vec<u64>,
    /// `None` for a stack that was not kept.
    stack_of_node: HashMap<u32, Option<u32>>,
    stacks: KeptStacks,
    /// Since the last `take`, by stack and context.
    grown_ns: HashMap<(u32, u32), u64>,
    /// True if the tables were cleared since the last `take`: some stacks may be out of use.
    has_cleared: bool,
    handoff: Sum,
    not_recorded: Sum,
}

/// A sum as it was last read, and how much it has grown since it was last taken.
#[derive(Default)]
struct Sum {
    read_ns: u64,
    grown_ns: u64,
}

impl Sum {
    fn read(&mut self, now_ns: u64) {
        self.grown_ns += now_ns.saturating_sub(self.read_ns);
        self.read_ns = self.read_ns.max(now_ns);
    }
}

/// Whether a reporter reads the profile.
pub fn is_read() -> bool {
    IS_READ.load(Relaxed)
}

/// Notes in a forked child that there is no reporter.
pub(super) fn forget() {
    IS_READ.store(false, Relaxed);
}

fn reading() -> MutexGuard<'static, Option<Reading>> {
    READING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Begins to read the profile that is on. What was charged before does not count. Returns false if
/// another reporter reads it.
pub(super) fn start() -> bool {
    let Ok(mut reading) = READING.try_lock() else { return false };
    if IS_READ.swap(true, Relaxed) {
        return false;
    }
    let reading = reading.insert(Reading::default());
    if let Some(store) = recording::present() {
        reading.gather(store, false);
        reading.take();
    }
    true
}

/// Ends what `control::begin_for_reporter` began. Returns whether the profile has ended; one that
/// was asked for goes on.
pub fn stop_reading() -> bool {
    if !IS_READ.swap(false, Relaxed) {
        return false;
    }
    *reading() = None;
    let ends = is_on() && !is_asked_for();
    if ends {
        recording::end(clock::now_ns());
    }
    ends
}

/// The charges since the last call; `None` if no reporter reads the profile.
pub fn take() -> Option<Growth> {
    if !is_read() {
        return None;
    }
    let mut reading = reading();
    let reading = reading.as_mut()?;
    if let Some(store) = recording::present() {
        reading.gather(store, false);
    }
    Some(reading.take())
}

/// Clears the tables if they are nearly full and a reporter reads them.
pub fn make_room() {
    if is_read() && !is_asked_for() {
        if let Some(store) = recording::present().filter(|store| store.is_nearly_full()) {
            if let Some(reading) = reading().as_mut() {
                reading.gather(store, false);
            }
        }
    }
}

/// Keeps what was charged, for the reader if there is one. No event is charged any more, and the
/// caller clears the store.
pub(super) fn keep_rest(store: &Store) {
    if is_read() {
        if let Some(reading) = reading().as_mut() {
            reading.gather(store, true);
            reading.forget_tables();
            (reading.handoff.read_ns, reading.not_recorded.read_ns) = (0, 0);
        }
    }
}

impl Reading {
    /// Reads the growth. `at_end` counts what is not charged as not recorded.
    fn gather(&mut self, store: &Store, at_end: bool) {
        let tables = store.lock();
        let mut resolver = Resolver::new(store);
        let held = |kind: u32| kind != ChargeKind::Waited as u32;
        for (index, key, charged_ns, _) in store.rows_by_index().filter(|row| held(row.1.kind)) {
            if self.charged_ns.len() <= index {
                self.charged_ns.resize(index + 1, 0);
            }
            let Some(known_ns) = self.charged_ns.get_mut(index) else { continue };
            let grown_ns = charged_ns.saturating_sub(*known_ns);
            if grown_ns != 0 {
                *known_ns = charged_ns;
                let stack = *self.stack_of_node.entry(key.node).or_insert_with(|| {
                    let stack = resolver.stack_of(key.node);
                    self.stacks.number_of(stack, &resolver.frames)
                });
                *match stack {
                    Some(stack) => self.grown_ns.entry((stack, key.context)).or_default(),
                    None => &mut self.not_recorded.grown_ns,
                } += grown_ns;
            }
        }
        // The ended GILs first: one whose sums move there meanwhile is missed once, not counted
        // twice.
        let ended = [sums_of(&store.ended, true)];
        let open = store.gils.iter().map(|charges| sums_of(charges, at_end));
        let (handoff_ns, not_recorded_ns) = ended
            .into_iter()
            .chain(open)
            .fold((0, 0), |sums, each| (sums.0 + each.0, sums.1 + each.1));
        self.handoff.read(handoff_ns);
        self.not_recorded.read(not_recorded_ns);
        if !is_asked_for() && store.is_nearly_full() {
            tables.clear();
            self.forget_tables();
        }
    }

    fn forget_tables(&mut self) {
        self.charged_ns.clear();
        self.stack_of_node.clear();
        self.has_cleared = true;
    }

    fn take(&mut self) -> Growth {
        let mut growth = Growth {
            handoff_ns: std::mem::take(&mut self.handoff.grown_ns),
            not_recorded_ns: std::mem::take(&mut self.not_recorded.grown_ns),
            ..Growth::default()
        };
        let mut places = HashMap::new();
        for ((stack, context), grown_ns) in self.grown_ns.drain() {
            let place_of = |number: &u32| match self.stacks.frame(*number) {
                None => CUT_FRAME,
                Some(frame) => *places.entry(*number).or_insert_with(|| {
                    growth.frames.push(frame.clone());
                    growth.frames.len() as u32 - 1
                }),
            };
            let frames = self.stacks.stack(stack).iter().map(place_of).collect();
            growth.stacks.push((frames, context, grown_ns));
        }
        if std::mem::take(&mut self.has_cleared) {
            self.stacks = KeptStacks::default();
            self.stack_of_node.clear();
        }
        growth
    }
}

/// The handoffs of a GIL, and what is not recorded of its holds. Of a GIL that goes on, what is not
/// charged yet is charged later.
fn sums_of(charges: &Charges, has_ended: bool) -> (u64, u64) {
    let charged_ns = charges.charged_held_ns.load(Relaxed);
    let open_ns = charges.held_ns.load(Relaxed).saturating_sub(charged_ns);
    let not_recorded_ns = charges.lost_held_ns.load(Relaxed) + if has_ended { open_ns } else { 0 };
    (charges.handoff_ns.load(Relaxed), not_recorded_ns)
}
