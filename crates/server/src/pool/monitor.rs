//! The monitor: one thread of the server that looks after the others.
//!
//! Every half millisecond, while requests are being run: where no turn has ended and no thread polls,
//! all active threads are stuck in their applications, and a parked one is woken; responses that a
//! thread holds for too long are sent. Once a second, while connections are open or a limit is set:
//! connections that have passed their deadline are queued, requests that have waited longer than
//! queue-timeout are answered, the process's own limits are checked. When there is nothing to look
//! after, the monitor sleeps. It never touches Python, and waits for no other thread: stacks are taken
//! by a thread of their own (`limits::findings`).

use crate::connection::deferred::DeferredOfThreads;
use crate::connection::drive::Driver;
use crate::connection::table::SlotView;
use crate::net::epoll::{EVENTS_PER_WAIT, Event};
use crate::pool::accept::Acceptor;
use crate::pool::poller::poll_for_stuck_threads;
use crate::pool::runner::Runner;
use crate::request::Application;
use headway_measure::clock::now_ns;
use std::time::{Duration, Instant};

const TICK: Duration = Duration::from_micros(500);
/// Ticks without anything to do until it sleeps.
const QUIET_TICKS: u32 = 20;
/// An end to looking for events, if clients keep sending.
const POLLS_PER_SWEEP: usize = 64;

pub struct Monitor<'p, A: Application> {
    runner: Runner<'p, A>,
    acceptor: &'p Acceptor,
    deferred_of_threads: &'p DeferredOfThreads,
    events: Vec<Event>,
}

impl<'p, A: Application> Monitor<'p, A> {
    pub fn new(
        driver: &'p Driver<A>,
        acceptor: &'p Acceptor,
        deferred_of_threads: &'p DeferredOfThreads,
    ) -> Self {
        let runner = Runner::new(driver, acceptor, deferred_of_threads, None);
        Self { runner, acceptor, deferred_of_threads, events: Vec::with_capacity(EVENTS_PER_WAIT) }
    }

    /// Runs until the server is over.
    pub fn work(&mut self) {
        let (dispatcher, watch) = (self.runner.dispatcher, &self.runner.driver.watch);
        dispatcher.monitor.join();
        let sweep = watch.sweep();
        let mut turns = 0;
        let mut quiet = 0;
        let mut next_sweep = Instant::now() + sweep;
        while !dispatcher.is_over() {
            if Instant::now() >= next_sweep {
                let now_ns = now_ns();
                self.queue_expired(now_ns);
                self.refuse_late();
                watch.check(now_ns);
                if self.acceptor.is_accepting_paused() {
                    self.acceptor.resume_accepting();
                }
                next_sweep = Instant::now() + sweep;
            }
            let holding = self.deferred_of_threads.are_used();
            if holding {
                self.runner.send_overdue(now_ns());
            }
            let turns_before = std::mem::replace(&mut turns, dispatcher.averages.turns());
            if dispatcher.load().needs_watching() {
                quiet = 0;
                if turns == turns_before {
                    dispatcher.idle.wake_one();
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
            dispatcher.monitor.fall_asleep();
            let misses_something = dispatcher.is_over()
                || dispatcher.load().needs_watching()
                || self.deferred_of_threads.are_used();
            if misses_something {
                dispatcher.monitor.wake_up();
                continue;
            }
            if self.needs_sweeping() {
                std::thread::park_timeout(next_sweep.saturating_duration_since(Instant::now()));
            } else {
                std::thread::park();
            }
            // Nothing changed if nobody woke it, and there is nothing to tick for.
            if dispatcher.monitor.wake_up() {
                quiet = 0;
            }
        }
        // A server that is aborted waits neither for applications nor for their threads' responses.
        self.runner.send_overdue(u64::MAX);
        watch.check_supervisor();
        watch.finish();
    }

    /// Whether time alone may bring something to do.
    fn needs_sweeping(&self) -> bool {
        self.runner.dispatcher.table.open() > 0
            || self.acceptor.is_accepting_paused()
            || self.runner.driver.watch.has_timers()
    }

    /// Queues every connection that nobody owns and whose deadline has passed.
    fn queue_expired(&self, now_ns: u64) {
        let dispatcher = self.runner.dispatcher;
        let is_late = |slot: SlotView| (1..=now_ns).contains(&slot.deadline_ns());
        for slot in dispatcher.table.slots().filter(|slot| is_late(*slot)) {
            if let Some(mut connection) = slot.claim() {
                // It may have got a later deadline, or be another connection, just before.
                connection.expired = is_late(slot);
                dispatcher.submit(connection);
            }
        }
    }

    /// queue-timeout: answers requests that have waited too long for a thread. A worker thread that
    /// takes one up refuses it as well; where all are stuck, the monitor looks for events itself. It
    /// accepts nothing: another process that shares the listener may be free to.
    fn refuse_late(&mut self) {
        let limit_ns = self.runner.driver.watch.limits.queue_ns;
        if limit_ns == 0 {
            return;
        }
        let dispatcher = self.runner.dispatcher;
        if !dispatcher.idle.has_parked() {
            for _ in 0..POLLS_PER_SWEEP {
                if !poll_for_stuck_threads(dispatcher, self.acceptor, &mut self.events) {
                    break;
                }
            }
        }
        self.runner.state.late = true;
        while let Some(ready) = dispatcher.ready.pop_late(limit_ns, now_ns()) {
            self.runner.state.now_ns = now_ns();
            self.runner.run(dispatcher.table.resume(ready.connection));
        }
        self.runner.flush_log();
    }
}
