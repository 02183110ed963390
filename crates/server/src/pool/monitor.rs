//! The monitor: one thread of the server that looks after the others.
//!
//! Twice a millisecond, while work is under way: if nothing progressed and nobody polls, all
//! active threads are stuck in their applications, and a parked one is woken; responses that a thread
//! holds for too long are sent. Once a second, while
//! connections are open or a limit is set: whatever has passed its deadline is handed to a worker,
//! requests that have waited too long are answered, the limits of `watch` are looked at. When there
//! is nothing to look after it sleeps. It never touches Python, and waits for no other thread:
//! stacks are taken by a thread of their own (`watch::findings`).

use crate::connection::table::SlotView;
use crate::net::epoll::EVENTS_PER_WAIT;
use crate::pool::Pool;
use crate::request::Application;
use crate::stats::clock::now_ns;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed, Ordering::SeqCst};
use std::thread::Thread;
use std::time::{Duration, Instant};

const TICK: Duration = Duration::from_micros(500);
/// Ticks without anything to do until it sleeps.
const QUIET_TICKS: u32 = 20;
#[derive(Default)]
pub struct Monitor {
    thread: OnceLock<Thread>,
    /// Set by the monitor before it sleeps for long, cleared by who wakes it. Against lost
    /// wake-ups the monitor looks once more after setting it, and the others change what it looks
    /// at before they test it: `SeqCst` on both sides.
    asleep: AtomicBool,
}

impl Monitor {
    /// Costs a load unless it sleeps.
    pub fn wake_if_asleep(&self) {
        if self.asleep.load(SeqCst) && self.asleep.swap(false, SeqCst) {
            self.wake();
        }
    }

    pub fn wake(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }
}

impl<A: Application> Pool<A> {
    /// Runs until the server is over. One thread calls this.
    pub fn monitor(&self) {
        let _ = self.monitor.thread.set(std::thread::current());
        let sweep = self.watch.sweep();
        let mut state = self.turn_state(None);
        let mut events = Vec::with_capacity(EVENTS_PER_WAIT);
        let mut turns = 0;
        let mut quiet = 0;
        let mut next_sweep = Instant::now() + sweep;
        while !self.is_over() {
            if Instant::now() >= next_sweep {
                let now_ns = now_ns();
                self.end_what_is_overdue(now_ns);
                self.answer_late(&mut events, &mut state);
                self.watch.check(now_ns);
                if self.is_accepting_paused() {
                    self.resume_accepting();
                }
                next_sweep = Instant::now() + sweep;
            }
            let holding = self.outboxes.are_used();
            if holding {
                self.end_overdue_bursts(now_ns(), &mut state);
            }
            let turns_before = std::mem::replace(&mut turns, self.turns.load(Relaxed));
            if self.needs_looking_after() {
                quiet = 0;
                if turns == turns_before {
                    self.parking.wake_one();
                }
            } else if holding {
                quiet = 0;
            } else {
                quiet += 1;
            }
            if quiet < QUIET_TICKS {
                std::thread::park_timeout(TICK);
                continue;
            }
            self.monitor.asleep.store(true, SeqCst);
            if self.is_over() || self.needs_looking_after() || self.outboxes.are_used() {
                self.monitor.asleep.store(false, SeqCst);
                continue;
            }
            if self.needs_sweeping() {
                std::thread::park_timeout(next_sweep.saturating_duration_since(Instant::now()));
            } else {
                std::thread::park();
            }
            // Still set: nobody woke us, so there is nothing to tick for.
            if !self.monitor.asleep.swap(false, SeqCst) {
                quiet = 0;
            }
        }
        // Whoever aborts the server does not wait for applications, and for their threads' responses.
        self.end_overdue_bursts(u64::MAX, &mut state);
        self.watch.check_supervisor();
        self.watch.finish();
        self.leave(&state);
    }

    /// Whether time alone may bring something to do.
    fn needs_sweeping(&self) -> bool {
        self.open_connections() > 0 || self.is_accepting_paused() || self.watch.has_timers()
    }

    /// Nobody listens for events, and there is somebody who could.
    fn needs_looking_after(&self) -> bool {
        !self.is_polling() && self.parking.has_parked()
    }

    /// Claims every idle connection whose deadline has passed and queues it for a worker.
    fn end_what_is_overdue(&self, now_ns: u64) {
        let is_late = |slot: SlotView| (1..=now_ns).contains(&slot.deadline_ns());
        for slot in self.table.slots().filter(|slot| is_late(*slot)) {
            if let Some(mut connection) = slot.claim() {
                // It may have got a later deadline, or be another connection, just before.
                connection.expired = is_late(slot);
                self.submit(connection);
            }
        }
    }
}
