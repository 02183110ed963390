//! The monitor: one thread of the server that supervises the others.
//!
//! While there is work, it runs twice a millisecond, or every 2 ms among many short requests. If no
//! thread polls and none makes progress, all active threads are stuck in their applications, and it
//! wakes a parked one. It sends responses that a thread defers for too long. While connections are
//! open or a limit is set, it also runs once a second: it hands connections past their deadline to
//! a worker, answers requests that have waited too long, and checks the limits. Otherwise it
//! sleeps. It never uses Python and waits for no other thread; another thread takes stacks
//! (`limits::stack_reports`).

use crate::pool::Pool;
use crate::pool::poller::PollBuffers;
use crate::pool::scheduling::{MonitorTick, Situation, after_tick, needs_poller};
use crate::pool::worker::Worker;
use crate::request::Application;
use headway_measure::clock::now_ns;
use std::time::Instant;

/// Limits the polls of one sweep while clients keep sending.
const POLLS_PER_SWEEP: usize = 64;

pub struct Monitor<'p, A: Application> {
    pool: &'p Pool<A>,
    /// Answers requests that exceeded queue-timeout, and sends responses. Runs no requests.
    worker: Worker<'p, A>,
    buffers: PollBuffers,
}

impl<'p, A: Application> Monitor<'p, A> {
    pub fn new(pool: &'p Pool<A>) -> Self {
        Self { pool, worker: Worker::new(pool, None), buffers: PollBuffers::default() }
    }

    /// Runs until the server is over.
    pub fn run(mut self) {
        let Self { pool, .. } = self;
        let (scheduler, limits) = (&*pool.scheduler, &pool.driver.limits);
        scheduler.monitor.set_current_thread();
        let period = limits.sweep_period();
        let mut next_sweep = Instant::now() + period;
        let (mut turns, mut quiet_ticks) = (0, 0);
        while !pool.is_over() {
            if Instant::now() >= next_sweep {
                self.sweep();
                next_sweep = Instant::now() + period;
            }
            let has_deferred = pool.deferred.are_used();
            if has_deferred {
                self.worker.send_overdue(now_ns());
            }
            let turns_before = std::mem::replace(&mut turns, scheduler.turns());
            let tick = MonitorTick {
                needs_poller: needs_poller(scheduler),
                has_deferred,
                turns: turns.wrapping_sub(turns_before),
            };
            let after = after_tick(tick, quiet_ticks);
            quiet_ticks = after.quiet_ticks;
            if after.wakes_one {
                scheduler.idle.wake_one();
            }
            if let Some(length) = after.next {
                std::thread::park_timeout(length);
                continue;
            }
            scheduler.monitor.announce_sleep();
            if pool.is_over() || needs_poller(scheduler) || pool.deferred.are_used() {
                scheduler.monitor.end_sleep();
                continue;
            }
            if self.needs_sweeps() {
                std::thread::park_timeout(next_sweep.saturating_duration_since(Instant::now()));
            } else {
                std::thread::park();
            }
            // If no thread woke the monitor, there is nothing to do in ticks.
            if scheduler.monitor.end_sleep() {
                quiet_ticks = 0;
            }
        }
        // A thread that aborts the server waits neither for applications nor for their responses.
        self.worker.send_overdue(u64::MAX);
        limits.check_supervisor();
        limits.finish();
        self.worker.leave();
    }

    /// Whether there may be something to do although no thread wakes the monitor.
    fn needs_sweeps(&self) -> bool {
        self.pool.open_connections() > 0
            || self.pool.acceptor.is_paused()
            || self.pool.driver.limits.has_timers()
    }

    fn sweep(&mut self) {
        #[cfg(test)]
        self.pool.panic_if_requested();
        let now_ns = now_ns();
        self.expire_connections(now_ns);
        self.answer_timed_out_requests();
        self.pool.driver.limits.check(now_ns);
        if self.pool.acceptor.is_paused() {
            self.pool.acceptor.resume();
        }
    }

    /// Queues every waiting connection whose deadline has passed.
    fn expire_connections(&self, now_ns: u64) {
        for waiting in self.pool.table.slots().filter(|slot| slot.is_past_deadline(now_ns)) {
            if let Some(mut owned) = waiting.claim() {
                // The connection may have got a later deadline just before, or its slot another
                // connection.
                owned.deadline.expired = waiting.is_past_deadline(now_ns);
                self.pool.scheduler.submit(owned);
            }
        }
    }

    /// Answers 504 to requests that exceeded queue-timeout because all workers are stuck. Polls for
    /// events itself if no worker is parked. Reads and parses the received bytes, and never calls
    /// the application. Connections in the listen queue go on waiting.
    fn answer_timed_out_requests(&mut self) {
        let pool = self.pool;
        let limit_ns = pool.driver.limits.limits.queue_ns;
        if limit_ns == 0 {
            return;
        }
        if !pool.scheduler.has_parked() {
            for _ in 0..POLLS_PER_SWEEP {
                if !pool.poller.poll_for_stuck_workers(&mut self.buffers) {
                    break;
                }
            }
        }
        self.worker.state.queue_timed_out = true;
        while let Some(ready) = pool.scheduler.queue.pop_late(limit_ns, now_ns()) {
            self.worker.state.now_ns = now_ns();
            self.worker.serve(ready.connection);
        }
        self.worker.state.requests.flush();
    }
}
