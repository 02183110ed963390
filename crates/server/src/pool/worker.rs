//! What a worker thread does: it runs connections that are ready, polls, or parks.

use crate::connection::deferred::DeferredOfThreads;
use crate::connection::drive::Driver;
use crate::net::epoll::EVENTS_PER_WAIT;
use crate::pool::accept::Acceptor;
use crate::pool::idle::WorkerSlot;
use crate::pool::poller::poll;
use crate::pool::ready::Ready;
use crate::pool::runner::Runner;
use crate::request::Application;
use headway_measure::clock::now_ns;
use std::sync::Arc;

pub struct Worker<'p, A: Application> {
    runner: Runner<'p, A>,
    acceptor: &'p Acceptor,
    seat: Arc<WorkerSlot>,
}

impl<'p, A: Application> Worker<'p, A> {
    pub fn new(
        driver: &'p Driver<A>,
        acceptor: &'p Acceptor,
        deferred_of_threads: &'p DeferredOfThreads,
        thread: &'p mut A::Thread,
    ) -> Self {
        let runner = Runner::new(driver, acceptor, deferred_of_threads, Some(thread));
        Self { runner, acceptor, seat: driver.dispatcher.idle.join() }
    }

    /// Works until the server has stopped and its last connection is closed, or it was aborted.
    pub fn work(&mut self) {
        let dispatcher = self.runner.dispatcher;
        let mut events = Vec::with_capacity(EVENTS_PER_WAIT);
        while !dispatcher.is_over() {
            if let Some(thread) = &mut self.runner.state.thread {
                self.runner.driver.application.tidy(thread);
            }
            if self.parks_behind_another() {
                self.runner.flush_log();
                self.park(|| dispatcher.is_over() || self.has_work_nobody_sees());
            } else if let Some((ready, waiting)) = dispatcher.ready.pop() {
                self.prepare_for_turn(waiting);
                self.take_turn(ready);
                if self.runner.state.deferred.is_due(self.runner.state.now_ns) {
                    self.runner.end_batch(&self.seat);
                }
            } else if self.runner.state.deferred.is_open() {
                self.runner.end_batch(&self.seat);
            } else if dispatcher.begin_polling() {
                let has_log = !self.runner.state.log.is_empty();
                let flush = has_log.then_some(|| self.runner.flush_log());
                poll(dispatcher, self.acceptor, &mut events, flush);
            } else {
                dispatcher.idle.step_back(&self.seat);
                self.runner.flush_log();
                self.park(|| {
                    dispatcher.is_over() || !dispatcher.ready.is_empty() || !dispatcher.is_polling()
                });
            }
        }
        self.runner.send_held();
        self.runner.flush_log();
        dispatcher.idle.leave(&self.seat);
        // The others wait for the same end.
        dispatcher.wake_everyone();
    }

    /// Sleeps unless `missed` finds something to do. The thread is in the idle list already, so that
    /// what comes after `missed` wakes it.
    fn park(&self, missed: impl Fn() -> bool) {
        let dispatcher = self.runner.dispatcher;
        // If nobody polls, only the monitor will notice work that nobody takes.
        dispatcher.monitor.wake_if_asleep();
        if missed() {
            dispatcher.idle.cancel_park(&self.seat);
        } else {
            dispatcher.idle.rest(&self.seat);
        }
    }

    /// Puts this thread into the idle list if another that is awake suffices.
    fn parks_behind_another(&self) -> bool {
        let dispatcher = self.runner.dispatcher;
        !self.runner.state.deferred.is_open()
            && dispatcher.load().parks_behind_another(|| dispatcher.ready.is_empty())
            && dispatcher.idle.prepare_to_park_behind_another(&self.seat, now_ns())
    }

    /// Something is ready while a thread sleeps in epoll, which will not take it up. Asked after this
    /// thread is in the idle list; a thread that polls looks for what is ready after it began, so that
    /// one of the two sees the other.
    fn has_work_nobody_sees(&self) -> bool {
        self.runner.dispatcher.is_polling() && !self.runner.dispatcher.ready.is_empty()
    }

    /// Wakes another thread or begins a batch, `waiting` connections being ready behind this turn's.
    fn prepare_for_turn(&self, waiting: usize) {
        let (dispatcher, deferred) = (self.runner.dispatcher, &self.runner.state.deferred);
        let load = dispatcher.load();
        if load.wakes_another(waiting) {
            dispatcher.idle.wake_one();
        }
        if load.begins_batch(waiting) && !deferred.is_open() {
            deferred.open(now_ns());
            dispatcher.monitor.wake_if_asleep();
        }
    }

    fn take_turn(&mut self, ready: Ready) {
        let dispatcher = self.runner.dispatcher;
        let begun_ns = now_ns();
        let limit_ns = self.runner.driver.watch.limits.queue_ns;
        let state = &mut self.runner.state;
        state.late = limit_ns != 0 && begun_ns.saturating_sub(ready.since_ns) > limit_ns;
        self.seat.begin_turn(begun_ns);
        (state.now_ns, state.gil_wait_ns, state.gil_held_ns) = (begun_ns, 0, 0);
        self.runner.run(dispatcher.table.resume(ready.connection));
        self.seat.end_turn();
        let state = &self.runner.state;
        let turn_ns = (state.now_ns - begun_ns).saturating_sub(state.gil_wait_ns);
        dispatcher.averages.add(turn_ns, state.gil_held_ns);
    }
}
