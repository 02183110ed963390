//! Reads the stack of a thread whose iteration is late, from outside, until the iteration ends.
//!
//! Each reading is charged the time to the next one, divided as the loop's iterations are. The time
//! before the first reading is divided among all readings of the iteration, so that a stack that
//! was read once is not charged with what came before it alone.
//!
//! The thread of the sampler reads. It is started by the first late iteration of the process.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::*};
use std::time::{Duration, Instant};

use headway_measure::add;
use headway_measure::clock::{self, now_ns};

use super::late_stacks::{self, PARTS, Part};
use super::{late_ns, runners};
use crate::counters::{
    self, LOOPS, LoopCounters, NO_GIL, ProcessCounters, ThreadCounters, free_list, state,
};
use crate::gil::Gil;
use crate::installation;
use crate::parked_waits;
use crate::profile::frames::{self, Calls, Foreign, Memory};
use crate::profile::layout::Layout;
use crate::profile::resolver::Resolver;
use crate::profile::store::{EMPTY_STACK, Store};
use crate::profile::{keep_layout, layout, wake_sampler, wake_sleeping_sampler};
use crate::registry::gils;
use crate::registry::threads::this_thread;
use crate::snapshot::holds::present_hold;

/// The time from one reading to the next.
const NEXT_NS: u64 = 10_000_000;
/// Stacks that are kept for one iteration; further ones are charged to the last of them.
const MAX_READINGS: usize = 256;

/// `PyGILState_GetThisThreadState`, which reads a variable of the thread.
pub type OwnThreadState = unsafe extern "C" fn() -> *mut std::ffi::c_void;

/// An [`OwnThreadState`], and the function that starts the sampler's thread; 0 while none is known.
/// Writer: [`prepare`]. Readers: hooks of waits for events. Relaxed: functions order nothing.
static OWN: AtomicUsize = AtomicUsize::new(0);
static START: AtomicUsize = AtomicUsize::new(0);
/// Whether loops are read. Written by the first late iteration and by the program, cleared where
/// the meter is removed and in a forked child.
static READS: AtomicBool = AtomicBool::new(false);

/// The number of looks at all loops. Writer: the sampler's thread.
static LOOKS: AtomicU64 = AtomicU64::new(0);

/// Where the thread of a loop is found: its thread state, and `threads::this_thread`. Writer: the
/// thread. Reader: this module, which has the kernel read and checks what it finds. Relaxed.
struct Place {
    state: AtomicUsize,
    thread: AtomicUsize,
}

static PLACES: [Place; LOOPS] =
    [const { Place { state: AtomicUsize::new(0), thread: AtomicUsize::new(0) } }; LOOPS];

/// Makes known how stacks are read, before the meter is installed. `start` starts the sampler's
/// thread unless it runs; it may be called by any thread, without a GIL.
pub fn prepare(layout: Layout, own: OwnThreadState, start: fn()) {
    keep_layout(layout);
    OWN.store(own as usize, Relaxed);
    START.store(start as usize, Relaxed);
}

/// Whether the sampler's thread is needed for loops.
pub fn reads() -> bool {
    READS.load(Relaxed) && installation::is_installed()
}

/// Begins to read loops that are late, without waiting for the first one.
pub fn begin() {
    if !READS.swap(true, Relaxed) {
        start();
    }
}

/// Waits until the iterations that have ended are charged, or for a moment if nobody charges them.
/// Not for hooks, nor for a thread that a fork waits for.
pub fn settle() {
    const LIMIT: Duration = Duration::from_millis(100);
    let (before, began) = (LOOKS.load(SeqCst), Instant::now());
    // The look that is in progress may have passed a loop.
    while reads() && LOOKS.load(SeqCst) < before + 2 && began.elapsed() < LIMIT {
        wake_sampler();
        std::thread::sleep(Duration::from_micros(500));
    }
}

/// Ends reading, where the meter is removed and in a forked child.
pub fn end() {
    READS.store(false, Relaxed);
}

#[inline(never)]
fn start() {
    let function = START.load(Relaxed);
    if function != 0 {
        // SAFETY: `prepare` stored a function of this type.
        unsafe { std::mem::transmute::<usize, fn()>(function)() }
    }
}

/// The calling thread has begun a loop, or ended a late iteration, and waits for events next.
#[cold]
#[inline(never)]
pub(super) fn note_place(index: usize) {
    let own = OWN.load(Relaxed);
    let Some(place) = PLACES.get(index).filter(|_| own != 0) else { return };
    // SAFETY: `prepare` stored a function of this type.
    let state = unsafe { std::mem::transmute::<usize, OwnThreadState>(own)() };
    place.state.store(state as usize, Relaxed);
    place.thread.store(this_thread(), Relaxed);
}

/// An iteration of the calling thread was late. It waits for events next, without any lock.
#[cold]
#[inline(never)]
pub(super) fn note_late(index: usize) {
    note_place(index);
    begin();
}

/// An iteration begins.
#[inline]
pub(super) fn note_iteration() {
    if READS.load(Relaxed) {
        wake_sleeping_sampler();
    }
}

/// The times of a thread up to a moment.
#[derive(Clone, Copy, Default)]
struct Sample {
    at_ns: u64,
    /// With the GIL; without one, CPU time.
    computed_ns: u64,
    waited_ns: u64,
    core_waited_ns: u64,
}

impl Sample {
    /// The parts of the time from `before` to this moment, in the order of `PARTS`.
    fn parts_since(&self, before: &Self) -> [u64; 3] {
        let passed_ns = self.at_ns.saturating_sub(before.at_ns);
        let waited_ns = self.waited_ns.saturating_sub(before.waited_ns).min(passed_ns);
        let rest_ns = passed_ns - waited_ns;
        let computed_ns = self.computed_ns.saturating_sub(before.computed_ns).min(rest_ns);
        [computed_ns, waited_ns, rest_ns - computed_ns]
    }
}

/// A stack that was read, and the time that it is charged with.
#[derive(Clone, Copy)]
struct Reading {
    own: u32,
    /// The stack and the kernel's ID of the thread that held the GIL for which this one waited.
    holder: Option<(u32, u32)>,
    parts_ns: [u64; 3],
}

/// A loop that the reader watches.
#[derive(Default)]
struct Watched {
    /// The iteration that is read; 0 for none.
    number: u64,
    readings: Vec<Reading>,
    /// The parts of the time before the first reading.
    before_ns: [u64; 3],
    last: Sample,
    core_waited_ns: u64,
    /// Whether the calls in which the thread waits for events are those of a known loop; `None`
    /// while they have not been read.
    has_runner: Option<bool>,
}

/// The reader of all loops, in the sampler's thread.
pub struct LoopReader {
    memory: Foreign,
    calls: Calls,
    loops: Vec<Watched>,
    /// Whether a stack is in a known loop, by its node.
    in_loop: HashMap<u32, bool>,
}

impl LoopReader {
    pub fn new() -> Self {
        let loops = (0..LOOPS).map(|_| Watched::default()).collect();
        Self { memory: Foreign::new(), calls: Calls::new(), loops, in_loop: HashMap::new() }
    }

    /// Reads the loops whose time has come. Returns when the next one may have to be read; `None`
    /// if no loop is in an iteration.
    pub fn look(&mut self) -> Option<u64> {
        let process = counters::of_this_process().filter(|_| reads())?;
        let layout = layout()?;
        let store = late_stacks::tables(layout)?;
        let mut next_ns = None;
        for index in 0..LOOPS - 1 {
            let counters = process.event_loop(index);
            if counters.state.load(Acquire) != state::LIVE {
                if let Some(watched) = self.loops.get_mut(index) {
                    *watched = Watched::default();
                }
                continue;
            }
            if let Some(due_ns) = self.look_at(index, counters, process, store, layout) {
                next_ns = Some(next_ns.map_or(due_ns, |next_ns: u64| next_ns.min(due_ns)));
            }
        }
        LOOKS.fetch_add(1, SeqCst);
        next_ns
    }

    fn look_at(
        &mut self,
        index: usize,
        counters: &LoopCounters,
        process: &'static ProcessCounters,
        store: &'static Store,
        layout: &Layout,
    ) -> Option<u64> {
        let began_ns = counters.iteration_began_ns.load(Acquire);
        let number = counters.begun.load(Relaxed);
        let watched = self.loops.get_mut(index)?;
        if watched.number != 0 && (watched.number != number || began_ns == 0) {
            charge(watched, counters, store);
            watched.number = 0;
        }
        if began_ns == 0 {
            if watched.has_runner.is_none() {
                self.read_waiting(index, counters, store, layout);
            }
            return None;
        }
        let due_ns = match watched.number == number {
            true => watched.last.at_ns + NEXT_NS,
            false => began_ns + late_ns(process),
        };
        let now_ns = now_ns();
        if now_ns < due_ns {
            return Some(due_ns);
        }
        self.read(index, counters, number, began_ns, process, store, layout);
        Some(now_ns + NEXT_NS)
    }

    /// Reads the calls in which a thread waits for events.
    fn read_waiting(
        &mut self,
        index: usize,
        counters: &LoopCounters,
        store: &'static Store,
        layout: &Layout,
    ) {
        let begun = counters.begun.load(Relaxed);
        let node = self.node_of_loop(index, store, layout);
        let waits = counters.iteration_began_ns.load(Acquire) == 0;
        if let Some(node) = node.filter(|_| waits && counters.begun.load(Relaxed) == begun) {
            let is_in_loop = self.is_in_loop(node, store);
            if let Some(watched) = self.loops.get_mut(index) {
                watched.has_runner = Some(is_in_loop);
            }
        }
    }

    #[allow(clippy::too_many_arguments)] // They are what `look_at` has found.
    fn read(
        &mut self,
        index: usize,
        counters: &LoopCounters,
        number: u64,
        began_ns: u64,
        process: &'static ProcessCounters,
        store: &'static Store,
        layout: &Layout,
    ) {
        let native_id = counters.native_id.load(Relaxed);
        let Some((sample, waits_for)) = sample(process, native_id) else { return };
        let own = self.node_of_loop(index, store, layout).unwrap_or(EMPTY_STACK);
        let holder = waits_for.and_then(|gil| self.node_of_holder(gil, process, store, layout));
        let is_same = || {
            counters.begun.load(Relaxed) == number
                && counters.iteration_began_ns.load(Acquire) == began_ns
        };
        if !is_same() {
            return;
        }
        let is_in_loop = own == EMPTY_STACK || self.is_in_loop(own, store);
        let collects = own_gil_collects(process, native_id);
        let own = match collects {
            true => store.lock().collector_in(own).unwrap_or(own),
            false => own,
        };
        let Some(watched) = self.loops.get_mut(index) else { return };
        if !is_in_loop && watched.has_runner == Some(true) {
            // The program runs its loop now and then, and does something else in between.
            counters.left.store(number, Relaxed);
            return;
        }
        if is_in_loop && own != EMPTY_STACK {
            watched.has_runner = Some(true);
        }
        if watched.number == number {
            let passed = sample.parts_since(&watched.last);
            let core_ns = sample.core_waited_ns.saturating_sub(watched.last.core_waited_ns);
            watched.core_waited_ns += core_ns.min(passed[Part::Blocked as usize]);
            if let Some(reading) = watched.readings.last_mut() {
                add_parts(&mut reading.parts_ns, passed);
            }
        } else {
            watched.readings.clear();
            watched.number = number;
            watched.core_waited_ns = 0;
            watched.before_ns = sample.parts_since(&at_begin(process, counters, began_ns));
        }
        watched.last = sample;
        if watched.readings.len() < MAX_READINGS {
            watched.readings.push(Reading { own, holder, parts_ns: [0; 3] });
        }
    }

    fn is_in_loop(&mut self, node: u32, store: &'static Store) -> bool {
        *self.in_loop.entry(node).or_insert_with(|| {
            let frames = late_stacks::frames_of(&mut Resolver::new(store), node);
            // Of a stack that was cut, the runner may be missing.
            let is_cut = frames.first().is_some_and(|frame| frame.file.is_empty());
            is_cut || runners::is_in_loop(&frames)
        })
    }

    /// The node of the stack of a loop's thread; `None` if it cannot be read.
    fn node_of_loop(&mut self, index: usize, store: &Store, layout: &Layout) -> Option<u32> {
        let place = PLACES.get(index)?;
        self.node_of(place.state.load(Relaxed), place.thread.load(Relaxed), store, layout)
    }

    /// The node and the kernel's ID of the thread that holds a GIL.
    fn node_of_holder(
        &mut self,
        gil: &'static Gil,
        process: &ProcessCounters,
        store: &Store,
        layout: &Layout,
    ) -> Option<(u32, u32)> {
        let hold = present_hold(gil)?;
        let thread = gil.holder_thread.load(Relaxed);
        // SAFETY: `Foreign` asks the kernel to read.
        let state = unsafe { self.memory.get::<usize>(gil.addresses().last_holder())? };
        let node = self.node_of(state, thread, store, layout)?;
        let is_same = present_hold(gil) == Some(hold);
        let holder = process.threads.get(hold.1 as usize)?;
        is_same.then(|| (node, holder.native_id.load(Relaxed)))
    }

    fn node_of(
        &mut self,
        state: usize,
        thread: usize,
        store: &Store,
        layout: &Layout,
    ) -> Option<u32> {
        if state == 0 {
            return None;
        }
        self.memory.refresh();
        // SAFETY: `Foreign` asks the kernel to read.
        let found = unsafe { self.memory.get::<usize>(state.checked_add(layout.state_thread)?)? };
        if found != thread
            || !frames::read_foreign(&mut self.memory, layout, state, &mut self.calls)
        {
            return None;
        }
        // SAFETY: `Foreign` asks the kernel to read.
        unsafe { store.lock().node_of(&mut self.memory, layout, &self.calls) }
    }
}

fn add_parts(parts_ns: &mut [u64; 3], more_ns: [u64; 3]) {
    parts_ns.iter_mut().zip(more_ns).for_each(|(sum, ns)| *sum += ns);
}

/// Charges the readings of an iteration that has ended.
fn charge(watched: &mut Watched, counters: &LoopCounters, store: &Store) {
    if counters.left.load(Relaxed) == watched.number {
        return;
    }
    if let Some(totals_ns) = counters.late_parts(watched.number) {
        complete(&mut watched.readings, totals_ns, watched.before_ns);
        let core_ns = watched.core_waited_ns.min(totals_ns[Part::Blocked as usize]);
        add(&counters.core_waited_ns, core_ns);
    }
    let native_id = counters.native_id.load(Relaxed);
    let tables = store.lock();
    for reading in &watched.readings {
        for (part, ns) in PARTS.into_iter().zip(reading.parts_ns) {
            let (node, holder) = match reading.holder {
                Some(holder) if part == Part::Waited => holder,
                _ => (reading.own, 0),
            };
            if ns != 0 {
                // Without room, the time stays in the difference to the loop's sums.
                tables.charge(late_stacks::key(native_id, part, node, reading.own, holder), ns);
            }
        }
    }
}

/// Adds the time after the last reading to it, and divides `before_ns` among all, so that they add
/// up to `totals_ns`.
fn complete(readings: &mut [Reading], totals_ns: [u64; 3], before_ns: [u64; 3]) {
    let count = readings.len().max(1) as u64;
    for (part, (total_ns, before_ns)) in totals_ns.into_iter().zip(before_ns).enumerate() {
        let read_ns: u64 = readings.iter().map(|reading| reading.parts_ns[part]).sum();
        let after_ns = total_ns.saturating_sub(before_ns).saturating_sub(read_ns);
        if let Some(last) = readings.last_mut() {
            last.parts_ns[part] += after_ns;
        }
        let read_ns = read_ns + after_ns;
        for reading in readings.iter_mut() {
            let ns = &mut reading.parts_ns[part];
            *ns = match read_ns {
                0 => total_ns / count,
                _ => (u128::from(*ns) * u128::from(total_ns) / u128::from(read_ns)) as u64,
            };
        }
    }
}

/// The times of a loop's thread when its iteration began.
fn at_begin(process: &ProcessCounters, counters: &LoopCounters, began_ns: u64) -> Sample {
    let cpu_ns = || counters.cpu_noted_ns.load(Relaxed) + counters.awake_since_ns.load(Relaxed);
    let has_gil = process.gil_enabled.load(Relaxed) != 0;
    Sample {
        at_ns: began_ns,
        computed_ns: if has_gil { counters.held_before_ns.load(Relaxed) } else { cpu_ns() },
        waited_ns: counters.waited_before_ns.load(Relaxed),
        core_waited_ns: 0,
    }
}

/// The times of a thread, and the GIL that it waits for; `None` if it has no counters.
fn sample(
    process: &'static ProcessCounters,
    native_id: u32,
) -> Option<(Sample, Option<&'static Gil>)> {
    let has_gil = process.gil_enabled.load(Relaxed) != 0;
    let mut waits_for = None;
    let mut sample = Sample { at_ns: now_ns(), ..Sample::default() };
    for (row, counters) in rows_of(process, native_id) {
        let index = counters.gil.load(Relaxed) as usize;
        if index == NO_GIL {
            sample.waited_ns += parked_waits::parked(counters).sum_ns.load(Relaxed)
                + parked_waits::suspended(counters).sum_ns.load(Relaxed)
                + parked_waits::stopping(counters).1;
            continue;
        }
        let gil = gils::all().get(index);
        sample.computed_ns += counters.hold.sum_ns.load(Relaxed);
        sample.waited_ns += counters.wait.sum_ns.load(Relaxed);
        if let Some((since_ns, _)) = gil.and_then(present_hold).filter(|hold| hold.1 == row) {
            sample.computed_ns += sample.at_ns.saturating_sub(since_ns);
        }
        match counters.wait_began_ns.load(Relaxed) {
            0 => {}
            began_ns => {
                sample.waited_ns += sample.at_ns.saturating_sub(began_ns);
                waits_for = gil;
            }
        }
    }
    if !has_gil {
        sample.computed_ns = clock::cpu_ns_of_thread(native_id)?;
    }
    sample.core_waited_ns = core_waited_ns(native_id).unwrap_or(0);
    Some((sample, waits_for))
}

fn rows_of(
    process: &'static ProcessCounters,
    native_id: u32,
) -> impl Iterator<Item = (u32, &'static ThreadCounters)> {
    free_list::used(process).filter(move |(_, counters)| {
        counters.state.load(Acquire) == state::LIVE && counters.native_id.load(Relaxed) == native_id
    })
}

/// Whether a thread collects garbage now.
fn own_gil_collects(process: &'static ProcessCounters, native_id: u32) -> bool {
    rows_of(process, native_id).any(|(row, counters)| {
        let gil = gils::all().get(counters.gil.load(Relaxed) as usize);
        gil.is_some_and(|gil| {
            gil.collected.is_running(gil) && present_hold(gil).is_some_and(|hold| hold.1 == row)
        })
    })
}

/// The time that a thread has waited for a core, from the kernel's `schedstat`.
fn core_waited_ns(native_id: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/self/task/{native_id}/schedstat")).ok()?;
    text.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readings(parts_ns: &[[u64; 3]]) -> Vec<Reading> {
        let reading = |parts_ns: &[u64; 3]| Reading { own: 0, holder: None, parts_ns: *parts_ns };
        parts_ns.iter().map(reading).collect()
    }

    fn parts_of(readings: &[Reading]) -> Vec<[u64; 3]> {
        readings.iter().map(|reading| reading.parts_ns).collect()
    }

    #[test]
    fn readings_add_up_to_the_iteration() {
        // A single reading has all of it.
        let mut one = readings(&[[0; 3]]);
        complete(&mut one, [25, 3, 2], [20, 0, 0]);
        assert_eq!(parts_of(&one), [[25, 3, 2]]);
        // The last reading has the time after it, and all have a share of that before the first.
        let mut three = readings(&[[10, 0, 0], [10, 0, 0], [0; 3]]);
        complete(&mut three, [60, 0, 0], [20, 0, 0]);
        assert_eq!(parts_of(&three), [[15, 0, 0], [15, 0, 0], [30, 0, 0]]);
        // A part that was over before the first reading.
        let mut two = readings(&[[0, 0, 10], [0, 0, 0]]);
        complete(&mut two, [8, 0, 30], [8, 0, 10]);
        assert_eq!(parts_of(&two), [[4, 0, 15], [4, 0, 15]]);
    }

    #[test]
    fn the_parts_between_two_samples_add_up_to_the_time() {
        let sample = |at_ns, computed_ns, waited_ns| Sample {
            at_ns,
            computed_ns,
            waited_ns,
            core_waited_ns: 0,
        };
        assert_eq!(sample(30, 9, 5).parts_since(&sample(10, 2, 1)), [7, 4, 9]);
        assert_eq!(sample(30, 99, 5).parts_since(&sample(10, 2, 1)), [16, 4, 0]);
        assert_eq!(sample(30, 9, 99).parts_since(&sample(10, 2, 1)), [0, 20, 0]);
    }
}
