//! The stacks of threads that hold a GIL for long while others wait.
//!
//! A stack that is read at a drop says where the thread drops, not where it computed. So a thread
//! of Headway reads the stack of a holder while it holds, from its own side: the holder is not
//! interrupted. Memory is read by the kernel (`process_vm_readv`), because the holder goes on, and
//! a frame may be gone before it is read. In that case the stack may mix two moments, or is left
//! out.
//!
//! The thread sleeps while no thread waits for a GIL. It also reads event loops that are late
//! (`loops::reader`).

use std::sync::atomic::{AtomicBool, Ordering::*};

use headway_measure::add;
use headway_measure::clock::now_ns;
use headway_threads::fork;
use headway_threads::process_end::ProcessEnd;

use super::charges::{Charges, Running};
use super::frames::{self, Calls, Foreign, Memory};
use super::recording::{
    holder_of_row, is_asked_for, knows_holders, layout, present, waiting_thread,
};
use super::store::{ChargeKind, Key, Store};
use super::wakeup;
use crate::counters;
use crate::gil::{Gil, life};
use crate::loops::reader::LoopReader;
use crate::registry::gils;

/// Set by `stop`, cleared by `begin`; read by the sampler.
static IS_STOPPED: AtomicBool = AtomicBool::new(false);

/// A stack that is read at a drop that was asked for says where the thread computes, so looks are
/// rare,
const LOOK_NS: u64 = 10_000_000;
/// except within this time after threads waited long for a holder that dropped the GIL by itself.
const VOLUNTARY_NS: u64 = 100_000_000;
const VOLUNTARY_LOOK_NS: u64 = 1_000_000;
/// For a profile that only a reporter reads, which goes on for the life of the process.
const REPORTED_LOOK_NS: u64 = 4_000_000;
/// Looks without a thread that waits before the sampler sleeps.
const IDLE_LOOKS: u32 = 8;
/// A wake-up may be lost, since hooks do not order it.
const SLEEP_LIMIT_NS: u64 = 1_000_000_000;

/// Makes the sampler return from `run`.
pub fn stop() {
    IS_STOPPED.store(true, SeqCst);
    wakeup::force();
}

/// Allows `run` again. To be called before the sampler's thread is started.
pub fn begin() {
    IS_STOPPED.store(false, SeqCst);
}

/// Reads stacks until `stop` is called, or only threads of Headway are left. Runs in one thread at
/// a time, which never takes a GIL.
pub fn run() {
    let mut reader = Reader { memory: Foreign::new(), calls: Calls::new(), voluntary_ns: 0 };
    let mut loops = LoopReader::new();
    let mut end = ProcessEnd::watch();
    let mut idle_looks = 0;
    while !IS_STOPPED.load(SeqCst) && !end.is_here() {
        idle_looks = if fork::work(|| reader.look()) { 0 } else { idle_looks + 1 };
        let next_loop_ns = look_at(&mut loops);
        let now_ns = now_ns();
        if idle_looks < IDLE_LOOKS {
            let look_ns = match now_ns < reader.voluntary_ns + VOLUNTARY_NS {
                true if is_asked_for() => VOLUNTARY_LOOK_NS,
                true => REPORTED_LOOK_NS,
                false => LOOK_NS,
            };
            // The interval varies, so that no pattern of holds escapes.
            let interval_ns = look_ns * 3 / 4 + now_ns % (look_ns / 2);
            let until_ns = now_ns + interval_ns;
            wakeup::pause(next_loop_ns.map_or(until_ns, |next_ns| next_ns.min(until_ns)));
            continue;
        }
        idle_looks = IDLE_LOOKS - 1;
        if let Some(next_ns) = next_loop_ns {
            wakeup::pause(next_ns.min(now_ns + SLEEP_LIMIT_NS));
            continue;
        }
        let limit_ns = SLEEP_LIMIT_NS.min(end.next_look_in().as_nanos() as u64);
        let mut must_return = || IS_STOPPED.load(SeqCst) || end.is_here();
        let mut has_work = || fork::work(|| reader.look()) || look_at(&mut loops).is_some();
        wakeup::sleep(now_ns + limit_ns, || must_return() || has_work());
    }
    wakeup::no_more_loop_looks();
}

fn look_at(loops: &mut LoopReader) -> Option<u64> {
    wakeup::loop_look(|| fork::work(|| loops.look()))
}

struct Reader {
    memory: Foreign,
    calls: Calls,
    /// The last voluntary drop of a GIL that threads waited long for.
    voluntary_ns: u64,
}

impl Reader {
    /// Reads the stacks of the holders whose time has come. Returns whether any thread waits.
    fn look(&mut self) -> bool {
        let Some(store) = present() else { return false };
        let mut any_waits = false;
        for gil in gils::all().iter().filter(|gil| gil.life.load(Acquire) == life::OPEN) {
            let Some(charges) = store.gils.get(gil.index) else { continue };
            let serial = gil.serial.load(Relaxed);
            if charges.serial.load(Acquire) != serial || charges.waiters.load(Relaxed) == 0 {
                continue;
            }
            any_waits = true;
            self.voluntary_ns = self.voluntary_ns.max(charges.voluntary_ns.load(Relaxed));
            if let Some(running) = running(gil, charges).filter(Running::is_due) {
                self.read_holder(store, gil, charges, serial, running.hold);
            }
        }
        any_waits
    }

    fn read_holder(
        &mut self,
        store: &'static Store,
        gil: &'static Gil,
        charges: &'static Charges,
        serial: u32,
        hold: u64,
    ) -> Option<()> {
        let layout = layout().filter(|_| knows_holders())?;
        let began_ns = store.began_ns.load(Relaxed);
        let process = counters::of_this_process()?;
        let holder = gil.counters().holder.load(Relaxed);
        let holder = process.threads.get(holder as usize)?;
        let (thread, context) = (holder_of_row(holder), holder.context.load(Relaxed));
        self.memory.refresh();
        // SAFETY: `Foreign` asks the kernel to read.
        let state = unsafe { self.memory.get::<usize>(gil.addresses().last_holder())? };
        let is_read = frames::read_foreign(&mut self.memory, layout, state, &mut self.calls);
        let collects = gil.collected.is_running(gil);
        // The thread has held the GIL all the time, so these are its calls.
        let running = running(gil, charges).filter(|running| running.hold == hold)?;
        if !is_read || charges.serial.load(Relaxed) != serial {
            return None;
        }
        let tables = store.lock();
        // The profile may have ended, and another one begun with empty sums.
        if store.began_ns.load(Relaxed) != began_ns || store.ended_ns.load(Relaxed) != 0 {
            return None;
        }
        // A drop since then has charged everything. One that comes now waits for the lock, or
        // leaves its charge to a later event.
        if charges.holds.load(Relaxed) != hold || charges.held.load(Relaxed) == 0 {
            return None;
        }
        let open_ns = running.held_ns.saturating_sub(charges.charged_held_ns.load(Relaxed));
        // SAFETY: `Foreign` asks the kernel to read.
        let node = unsafe { tables.node_of(&mut self.memory, layout, &self.calls) };
        let node = if collects { node.and_then(|node| tables.collector_in(node)) } else { node };
        let waiter = waiting_thread(gil, charges);
        let charged = node.is_some_and(|node| {
            charges.note_reading(hold, running.held_ns, node, waiter);
            let key =
                Key { kind: ChargeKind::Running as u32, serial, node, thread, waiter, context };
            tables.charge(key, open_ns)
        });
        if !charged {
            add(&charges.lost_held_ns, open_ns);
        }
        add(&charges.charged_held_ns, open_ns);
        Some(())
    }
}

fn running(gil: &Gil, charges: &Charges) -> Option<Running> {
    gil.read(|| Running::copy(charges, now_ns()))
}
