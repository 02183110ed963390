//! A worker: the loop of one thread, which drives connections and acts on the outcome of each turn.

use crate::connection::deferred::Deferred;
use crate::connection::table::{Owned, Queued};
use crate::pool::Pool;
use crate::pool::drive::{Outcome, WorkerState};
use crate::pool::idle::WorkerSlot;
use crate::pool::poller::PollBuffers;
use crate::pool::ready::Ready;
use crate::pool::scheduling::{begins_batch, has_missed_work, has_work};
use crate::request::{Application, ThreadScheduling};
use headway_measure::clock::now_ns;
use headway_threads::internal_thread;
use std::sync::Arc;

/// A thread that drives connections: a worker, or the monitor, which runs no requests.
pub struct Worker<'p, A: Application> {
    pool: &'p Pool<A>,
    pub state: WorkerState<'p, A::Thread>,
    /// Responses taken from `state.deferred` while they are sent; empty between turns.
    unsent: Vec<Deferred>,
}

impl<'p, A: Application> Worker<'p, A> {
    pub fn new(pool: &'p Pool<A>, thread: Option<&'p mut A::Thread>) -> Self {
        Self { pool, state: pool.worker_state(thread), unsent: Vec::new() }
    }

    /// Works until the server is over.
    pub fn run(mut self) {
        let pool = self.pool;
        let scheduler = &*pool.scheduler;
        let slot = scheduler.idle.join();
        let mut buffers = PollBuffers::default();
        while !pool.is_over() {
            if let Some(thread) = &mut self.state.thread {
                pool.driver.application.quiesce(thread);
            }
            if scheduler.retire_if_superfluous(&slot, || self.state.deferred.is_open()) {
                self.state.requests.flush();
                scheduler.park(&slot, || pool.is_over() || has_missed_work(scheduler));
            } else if let Some((ready, waiting)) = scheduler.take() {
                self.begin_batch_if_worth_it(waiting);
                self.take_turn(ready, &slot);
                if self.state.deferred.is_due(self.state.now_ns) {
                    self.end_batch(&slot);
                }
            } else if self.state.deferred.is_open() {
                self.end_batch(&slot);
            } else if scheduler.begin_poll() {
                pool.poller.poll(&mut buffers, &mut self.state.requests);
            } else {
                scheduler.idle.add(&slot);
                self.state.requests.flush();
                scheduler.park(&slot, || pool.is_over() || has_work(scheduler));
            }
        }
        self.send_deferred();
        self.state.requests.flush();
        scheduler.idle.leave(&slot);
        self.leave();
        // The other threads wait for the same end.
        scheduler.wake_everyone();
    }

    /// Removes the thread from the workers.
    pub fn leave(self) {
        self.pool.driver.limits.leave(&self.state.status);
        self.pool.deferred.leave(&self.state.deferred);
    }

    fn take_turn(&mut self, ready: Ready, slot: &WorkerSlot) {
        let begun_ns = now_ns();
        let limit_ns = self.pool.driver.limits.limits.queue_ns;
        self.state.queue_timed_out =
            limit_ns != 0 && begun_ns.saturating_sub(ready.since_ns) > limit_ns;
        slot.begin_turn(begun_ns);
        (self.state.now_ns, self.state.gil_wait_ns, self.state.gil_held_ns) = (begun_ns, 0, 0);
        self.serve(ready.connection);
        slot.end_turn();
        let WorkerState { now_ns, gil_wait_ns, gil_held_ns, .. } = self.state;
        self.pool.scheduler.note_turn(now_ns - begun_ns, gil_wait_ns, gil_held_ns);
    }

    /// Drives a connection until it waits, is queued, or is closed. A panic closes it.
    pub fn serve(&mut self, connection: Queued) {
        internal_thread::survive("a connection", || self.drive(connection));
    }

    fn drive(&mut self, connection: Queued) {
        let pool = self.pool;
        let mut owned = pool.table.take(connection);
        loop {
            let stops = pool.shutdown.stops();
            owned.update_hangup();
            match pool.driver.drive(&mut owned, &mut self.state) {
                Outcome::Close => return self.close(owned),
                Outcome::Defer(record) => {
                    return self.defer(Deferred { connection: owned.queue(), record });
                }
                Outcome::Yield => return pool.scheduler.queue.push(owned.queue(), now_ns()),
                Outcome::Wait => {
                    let deadline_ns = pool.driver.deadlines.next_ns(&mut owned);
                    owned = match owned.wait(deadline_ns) {
                        Err(owned) => owned,
                        Ok(_) if pool.shutdown.stops() == stops => return,
                        // The thread that stops the server may have looked at this connection
                        // before it was released, and left it to this thread.
                        Ok(waiting) => {
                            let Some(mut owned) = waiting.claim() else { return };
                            owned.readable = true;
                            owned
                        }
                    };
                }
            }
        }
    }

    /// Closes a connection. This may make room for another one, or end the server.
    fn close(&self, owned: Owned) {
        owned.close();
        if self.pool.acceptor.is_paused() {
            self.pool.acceptor.resume();
        }
        if self.pool.is_over() {
            self.pool.scheduler.wake_everyone();
        }
    }

    /// Begins a batch of responses before a turn, if `waiting` connections in the queue are worth
    /// it.
    fn begin_batch_if_worth_it(&self, waiting: usize) {
        let (deferred, scheduler) = (&self.state.deferred, &*self.pool.scheduler);
        if !deferred.is_open() && begins_batch(scheduler, waiting) {
            deferred.open(now_ns());
            scheduler.wake_monitor_if_asleep();
        }
    }

    fn defer(&mut self, response: Deferred) {
        if let Some(response) = self.state.deferred.defer(response) {
            // The monitor has closed the batch meanwhile.
            self.unsent.push(response);
            self.send_deferred();
            for Deferred { connection, .. } in self.unsent.drain(..) {
                self.pool.scheduler.queue.push(connection, now_ns());
            }
        }
    }

    /// Sends the deferred responses and gives each of their connections a turn, because the next
    /// request may have arrived.
    pub fn end_batch(&mut self, slot: &Arc<WorkerSlot>) {
        self.send_deferred();
        self.state.queue_timed_out = false;
        let mut sent = std::mem::take(&mut self.unsent);
        for Deferred { connection, .. } in sent.drain(..) {
            self.state.now_ns = now_ns();
            slot.begin_turn(self.state.now_ns);
            self.serve(connection);
            slot.end_turn();
        }
        self.unsent = sent;
    }

    /// Sends this thread's deferred responses. Their connections stay in `unsent`.
    fn send_deferred(&mut self) {
        self.state.deferred.close(&mut self.unsent);
        self.send_unsent();
    }

    /// For the monitor: sends the responses that a thread deferred before a request that turned
    /// out to be long, and gives their connections to other threads.
    pub fn send_overdue(&mut self, now_ns: u64) {
        self.pool.deferred.take_overdue(now_ns, &mut self.unsent);
        self.send_unsent();
        self.state.requests.flush();
        for Deferred { connection, .. } in self.unsent.drain(..) {
            self.pool.scheduler.submit_queued(connection);
        }
    }

    fn send_unsent(&mut self) {
        for Deferred { connection, record } in &mut self.unsent {
            let connection = self.pool.table.connection(connection);
            let driver = &self.pool.driver;
            let end_ns = driver.send_response(connection, record, now_ns());
            driver.end_request(connection, record, end_ns, &mut self.state.requests);
        }
    }
}
