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
    self, LOOPS, LateLineRow, LoopCounters, NO_GIL, ProcessCounters, ThreadCounters, free_list,
    state,
};
use crate::gil::Gil;
use crate::installation;
use crate::parked_waits;
use crate::profile::frames::{self, Calls, Foreign, Memory};
use crate::profile::layout::Layout;
use crate::profile::resolver::{Frame, Resolver};
use crate::profile::store::{EMPTY_STACK, Store};
use crate::profile::{keep_layout, layout, wake_sampler, wake_sleeping_sampler};
use crate::registry::gils;
use crate::registry::threads::this_thread;
use crate::snapshot::holds::present_hold;

/// The time from one reading to the next, at first; later a part of the iteration's duration.
const NEXT_NS: u64 = 10_000_000;
const PART_OF_ITERATION: u64 = 32;
/// Different stacks that are kept for one iteration; the time of further ones is charged to none.
const MAX_READINGS: usize = 256;
/// Readings of an iteration are charged at its end, and each time after this.
const CHARGE_NS: u64 = 500_000_000;

/// `PyGILState_GetThisThreadState`, which reads a variable of the thread.
pub type OwnThreadState = unsafe extern "C" fn() -> *mut std::ffi::c_void;

/// An [`OwnThreadState`], and the function that starts the sampler's thread; 0 while none is known.
/// Writer: [`prepare`]. Readers: hooks of waits for events. Relaxed: functions order nothing.
static OWN: AtomicUsize = AtomicUsize::new(0);
static START: AtomicUsize = AtomicUsize::new(0);
/// Whether loops are read. Written by the first late iteration and by the program, cleared where
/// no thread can be started, where the meter is removed, and in a forked child.
static READS: AtomicBool = AtomicBool::new(false);
/// Whether the sampler's thread looks at loops. Writer: that thread, and a forked child.
static IS_RUNNING: AtomicBool = AtomicBool::new(false);

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

/// Starts the sampler's thread unless it runs. Returns whether it does. Any thread may call it,
/// without a GIL.
pub type StartThread = fn() -> bool;

/// Makes known how stacks are read, before the meter is installed.
pub fn prepare(layout: Layout, own: OwnThreadState, start: StartThread) {
    keep_layout(layout);
    OWN.store(own as usize, Relaxed);
    START.store(start as usize, Relaxed);
}

/// Whether the sampler's thread is needed for loops.
pub fn reads() -> bool {
    READS.load(Relaxed) && installation::is_installed()
}

/// Begins to read loops that are late, without waiting for the first one. If no thread can be
/// started, the next late iteration tries again.
pub fn begin() {
    if !READS.swap(true, Relaxed) && !start() {
        READS.store(false, Relaxed);
    }
}

/// Waits until the iterations that have ended are charged, or for a moment if nobody charges them.
/// Not for hooks, nor for a thread that a fork waits for.
pub fn settle() {
    const LIMIT: Duration = Duration::from_millis(100);
    let (before, began) = (LOOKS.load(SeqCst), Instant::now());
    // The look that is in progress may have passed a loop.
    while IS_RUNNING.load(Relaxed)
        && reads()
        && LOOKS.load(SeqCst) < before + 2
        && began.elapsed() < LIMIT
    {
        wake_sampler();
        std::thread::sleep(Duration::from_micros(500));
    }
}

/// Ends reading, where the meter is removed and in a forked child.
pub fn end() {
    READS.store(false, Relaxed);
    IS_RUNNING.store(false, Relaxed);
}

#[inline(never)]
fn start() -> bool {
    let function = START.load(Relaxed);
    // SAFETY: `prepare` stored a function of this type.
    function != 0 && unsafe { std::mem::transmute::<usize, StartThread>(function)() }
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
    /// The place of the last reading in `readings`; `None` if it had no room.
    last_reading: Option<usize>,
    /// The parts of the time before the first reading.
    before_ns: [u64; 3],
    last: Sample,
    core_waited_ns: u64,
    /// The parts of this iteration that have been charged, and the time of the last charge.
    charged_ns: [u64; 3],
    charged_at_ns: u64,
    /// The number of the counters, and of the loop.
    which: (u32, u32),
    /// The outermost call of a stack in which the thread ran its loop, or waited for events there,
    /// if the loop is of a known kind.
    outermost: Option<Frame>,
    is_waiting_read: bool,
}

/// The reader of all loops, in the sampler's thread.
pub struct LoopReader {
    memory: Foreign,
    calls: Calls,
    loops: Vec<Watched>,
    /// For each node of a stack, whether it is in a loop.
    shown: HashMap<u32, Shown>,
    lines: Lines,
}

/// The entries of lines that have been found: by the number of the counters, the part, the charged
/// node, the loop's node, and the holder. `None` if there was no room.
type Lines = HashMap<(u32, u32, u32, u32, u32), Option<usize>>;

/// The relation of a stack to a loop.
#[derive(Clone)]
struct Shown {
    is_in_loop: bool,
    /// The outermost call; `None` if the stack was cut.
    outermost: Option<Frame>,
}

impl LoopReader {
    pub fn new() -> Self {
        let loops = (0..LOOPS).map(|_| Watched::default()).collect();
        Self {
            memory: Foreign::new(),
            calls: Calls::new(),
            loops,
            shown: HashMap::new(),
            lines: HashMap::new(),
        }
    }

    /// The thread ends.
    pub fn stop(&self) {
        IS_RUNNING.store(false, Relaxed);
    }

    /// Reads the loops whose time has come. Returns when the next one may have to be read; `None`
    /// if no loop is in an iteration.
    pub fn look(&mut self) -> Option<u64> {
        let process = counters::of_this_process().filter(|_| reads())?;
        IS_RUNNING.store(true, Relaxed);
        let layout = layout()?;
        let store = late_stacks::tables(layout)?;
        let mut next_ns = None;
        for index in 0..LOOPS - 1 {
            let counters = process.event_loop(index);
            if counters.state.load(Acquire) != state::LIVE {
                self.end_of_loop(index, counters, process, store);
                continue;
            }
            if let Some(due_ns) = self.look_at(index, counters, process, store, layout) {
                next_ns = Some(next_ns.map_or(due_ns, |next_ns: u64| next_ns.min(due_ns)));
            }
        }
        LOOKS.fetch_add(1, SeqCst);
        next_ns
    }

    /// The thread of a loop has ended, or there was none.
    fn end_of_loop(
        &mut self,
        index: usize,
        counters: &LoopCounters,
        process: &ProcessCounters,
        store: &Store,
    ) {
        let Some(watched) = self.loops.get_mut(index) else { return };
        if watched.number != 0 && watched.which.0 == counters.serial.load(Relaxed) {
            charge(watched, counters, store, process, &mut self.lines);
        }
        *watched = Watched::default();
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
            charge(watched, counters, store, process, &mut self.lines);
            watched.number = 0;
        }
        let which = (counters.serial.load(Relaxed), counters.loops.load(Relaxed));
        if watched.which != which {
            *watched = Watched { which, ..Watched::default() };
        }
        if began_ns == 0 {
            if !watched.is_waiting_read {
                self.read_waiting(index, counters, store, layout);
            }
            return None;
        }
        if counters.left.load(Relaxed) == number {
            return None;
        }
        let now_ns = now_ns();
        let next_ns = NEXT_NS.max(now_ns.saturating_sub(began_ns) / PART_OF_ITERATION);
        let due_ns = match watched.number == number {
            true => watched.last.at_ns + next_ns,
            false => began_ns + late_ns(process),
        };
        if now_ns < due_ns {
            return Some(due_ns);
        }
        self.read(index, counters, number, began_ns, process, store, layout);
        Some(now_ns + next_ns)
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
            let shown = self.shown_by(node, store);
            if let Some(watched) = self.loops.get_mut(index) {
                watched.is_waiting_read = true;
                watched.outermost = shown.outermost.filter(|_| shown.is_in_loop);
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
        let shown = (own != EMPTY_STACK).then(|| self.shown_by(own, store));
        let collects = own_gil_collects(process, native_id);
        let own = match collects {
            true => store.lock().collector_in(own).unwrap_or(own),
            false => own,
        };
        let Some(watched) = self.loops.get_mut(index) else { return };
        if let Some(shown) = shown {
            // The program runs its loop now and then, and does something else in between. The stack
            // of a greenlet begins with another call, and is no sign of that.
            let has_left = !shown.is_in_loop
                && shown.outermost.is_some()
                && shown.outermost == watched.outermost;
            if has_left {
                counters.left.store(number, Relaxed);
                return;
            }
            if shown.is_in_loop {
                watched.outermost = shown.outermost;
            }
        }
        counters.seen.store(number, Relaxed);
        if watched.number == number {
            let passed = sample.parts_since(&watched.last);
            let core_ns = sample.core_waited_ns.saturating_sub(watched.last.core_waited_ns);
            watched.core_waited_ns += core_ns.min(passed[Part::Blocked as usize]);
            if let Some(reading) = watched.last_reading.and_then(|at| watched.readings.get_mut(at))
            {
                add_parts(&mut reading.parts_ns, passed);
            }
        } else {
            watched.readings.clear();
            watched.number = number;
            watched.core_waited_ns = 0;
            watched.charged_ns = [0; 3];
            watched.charged_at_ns = sample.at_ns;
            watched.before_ns = sample.parts_since(&at_begin(process, counters, began_ns));
        }
        watched.last = sample;
        if sample.at_ns.saturating_sub(watched.charged_at_ns) >= CHARGE_NS {
            charge_readings(watched, counters, store, process, &mut self.lines);
            watched.charged_at_ns = sample.at_ns;
        }
        let same = |reading: &Reading| (reading.own, reading.holder) == (own, holder);
        watched.last_reading = watched.readings.iter().position(same);
        if watched.last_reading.is_none() && watched.readings.len() < MAX_READINGS {
            watched.last_reading = Some(watched.readings.len());
            watched.readings.push(Reading { own, holder, parts_ns: [0; 3] });
        }
    }

    fn shown_by(&mut self, node: u32, store: &'static Store) -> Shown {
        let shown = self.shown.entry(node).or_insert_with(|| {
            let frames = late_stacks::frames_of(&mut Resolver::new(store), node);
            // Of a stack that was cut, the runner may be missing.
            let is_cut = frames.first().is_some_and(|frame| frame.file.is_empty());
            let outermost = frames.first().filter(|_| !is_cut);
            // A function is the same, whatever line it executes.
            let outermost = outermost.map(|frame| Frame { line: 0, ..frame.clone() });
            Shown { is_in_loop: is_cut || runners::is_in_loop(&frames), outermost }
        });
        shown.clone()
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
fn charge(
    watched: &mut Watched,
    counters: &LoopCounters,
    store: &Store,
    process: &ProcessCounters,
    lines: &mut Lines,
) {
    if counters.left.load(Relaxed) == watched.number {
        return;
    }
    if let Some(totals_ns) = counters.late_parts(watched.number) {
        let core_ns = watched.core_waited_ns.min(totals_ns[Part::Blocked as usize]);
        add(&counters.core_waited_ns, core_ns);
        let mut rest_ns = totals_ns;
        rest_ns.iter_mut().zip(watched.charged_ns).for_each(|(ns, charged_ns)| {
            *ns = ns.saturating_sub(charged_ns);
        });
        complete(&mut watched.readings, watched.last_reading, rest_ns, watched.before_ns);
        watched.before_ns = [0; 3];
    }
    charge_readings(watched, counters, store, process, lines);
}

/// Charges what has been read of an iteration.
fn charge_readings(
    watched: &mut Watched,
    counters: &LoopCounters,
    store: &Store,
    process: &ProcessCounters,
    lines: &mut Lines,
) {
    let mut read_ns = watched.before_ns;
    for reading in &watched.readings {
        add_parts(&mut read_ns, reading.parts_ns);
    }
    complete(&mut watched.readings, watched.last_reading, read_ns, watched.before_ns);
    watched.before_ns = [0; 3];
    add_parts(&mut watched.charged_ns, read_ns);
    let of_loop = [watched.which.0, counters.native_id.load(Relaxed)];
    let mut charged = Vec::new();
    let tables = store.lock();
    for reading in watched.readings.drain(..) {
        for (part, ns) in PARTS.into_iter().zip(reading.parts_ns) {
            let (node, holder) = match reading.holder {
                Some(holder) if part == Part::Waited => holder,
                _ => (reading.own, 0),
            };
            if ns != 0 {
                // Without room, the time stays in the difference to the loop's sums.
                tables.charge(late_stacks::key(of_loop, part, node, reading.own, holder), ns);
                charged.push(((of_loop[0], part as u32, node, reading.own, holder), ns));
            }
        }
    }
    drop(tables);
    watched.last_reading = None;
    for (key, ns) in charged {
        let line = *lines.entry(key).or_insert_with(|| line_of(key, store, process));
        if let Some(line) = line.and_then(|index| process.late_lines.get(index)) {
            line.charge(ns);
        }
    }
}

/// The entry of a line, which gets one if there is room.
fn line_of(
    (serial, part, node, own, holder): (u32, u32, u32, u32, u32),
    store: &Store,
    process: &ProcessCounters,
) -> Option<usize> {
    let mut resolver = Resolver::new(store);
    let innermost = late_stacks::frames_of(&mut resolver, node).pop();
    let innermost =
        innermost.unwrap_or_else(|| Frame { function: "".into(), file: "".into(), line: 0 });
    let own = late_stacks::frames_of(&mut resolver, own);
    let callback = runners::callback(&own).unwrap_or_default().to_owned();
    let Frame { function, file, line } = innermost;
    let row = LateLineRow {
        serial,
        part,
        function,
        file,
        line,
        callback,
        holder,
        ..LateLineRow::default()
    };
    for (index, entry) in process.late_lines.iter().enumerate() {
        match entry.row() {
            None => {
                entry.begin(&row);
                return Some(index);
            }
            // Two stacks may have one line. The texts of an entry may be cut.
            Some(kept) => {
                let is_same = (kept.serial, kept.part, kept.line, kept.holder)
                    == (row.serial, row.part, row.line, row.holder)
                    && row.function.starts_with(&kept.function)
                    && row.file.ends_with(&kept.file)
                    && row.callback.starts_with(&kept.callback);
                if is_same {
                    return Some(index);
                }
            }
        }
    }
    None
}

/// Adds the time after the last reading to it, and divides `before_ns` among all, so that they add
/// up to `totals_ns`.
fn complete(
    readings: &mut [Reading],
    last: Option<usize>,
    totals_ns: [u64; 3],
    before_ns: [u64; 3],
) {
    let count = readings.len().max(1) as u64;
    for (part, (total_ns, before_ns)) in totals_ns.into_iter().zip(before_ns).enumerate() {
        let read_ns: u64 = readings.iter().map(|reading| reading.parts_ns[part]).sum();
        let after_ns = total_ns.saturating_sub(before_ns).saturating_sub(read_ns);
        let mut read_ns = read_ns;
        if let Some(last) = last.and_then(|at| readings.get_mut(at)) {
            last.parts_ns[part] += after_ns;
            read_ns += after_ns;
        }
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
            sample.waited_ns += parked_waits::waited_ns(counters);
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
        complete(&mut one, Some(0), [25, 3, 2], [20, 0, 0]);
        assert_eq!(parts_of(&one), [[25, 3, 2]]);
        // The last reading has the time after it, and all have a share of that before the first.
        let mut three = readings(&[[10, 0, 0], [10, 0, 0], [0; 3]]);
        complete(&mut three, Some(2), [60, 0, 0], [20, 0, 0]);
        assert_eq!(parts_of(&three), [[15, 0, 0], [15, 0, 0], [30, 0, 0]]);
        // A part that was over before the first reading.
        let mut two = readings(&[[0, 0, 10], [0, 0, 0]]);
        complete(&mut two, Some(1), [8, 0, 30], [8, 0, 10]);
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
