//! Runs owned connections on the calling thread, until they wait, are queued or are closed.

use crate::connection::deferred::{Deferred, DeferredOfThreads};
use crate::connection::drive::{Driver, Outcome, WorkerState};
use crate::connection::state::Stage;
use crate::connection::table::Owned;
use crate::pool::accept::Acceptor;
use crate::pool::dispatcher::Dispatcher;
use crate::pool::idle::WorkerSlot;
use crate::request::Application;
use headway_measure::clock::now_ns;

pub struct Runner<'p, A: Application> {
    pub driver: &'p Driver<A>,
    pub dispatcher: &'p Dispatcher,
    acceptor: &'p Acceptor,
    deferred_of_threads: &'p DeferredOfThreads,
    pub state: WorkerState<'p, A::Thread>,
}

impl<'p, A: Application> Runner<'p, A> {
    /// Without a `thread` of the application's it runs no requests.
    pub fn new(
        driver: &'p Driver<A>,
        acceptor: &'p Acceptor,
        deferred_of_threads: &'p DeferredOfThreads,
        thread: Option<&'p mut A::Thread>,
    ) -> Self {
        let dispatcher = &*driver.dispatcher;
        let (activity, deferred) = (driver.watch.join(), deferred_of_threads.join());
        let state = WorkerState::new(thread, activity, deferred, &dispatcher.counters);
        Self { driver, dispatcher, acceptor, deferred_of_threads, state }
    }

    pub fn run(&mut self, mut connection: Owned) {
        let (dispatcher, state) = (self.dispatcher, &mut self.state);
        loop {
            let stops = dispatcher.phase.stops();
            connection.hangup = connection.has_hangup();
            match self.driver.turn(&mut connection, state) {
                Outcome::Close => {
                    connection.return_buffers(&mut state.buffers);
                    return self.close(connection);
                }
                Outcome::Hold(record) => {
                    let held = Deferred { connection: connection.queue(), record };
                    if let Some(held) = state.deferred.hold(held) {
                        // The monitor has closed it meanwhile.
                        state.held.push(held);
                        self.send_held();
                        dispatcher.ready.extend(self.state.sent.drain(..), now_ns());
                    }
                    return;
                }
                Outcome::Yield => return dispatcher.ready.push(connection.queue(), now_ns()),
                Outcome::Wait => {
                    if matches!(connection.stage, Stage::Idle | Stage::Opening { .. }) {
                        connection.return_buffers(&mut state.buffers);
                    }
                    let slot = connection.view();
                    let deadline_ns =
                        self.driver.timeouts.next_deadline_ns(&mut connection, &dispatcher.phase);
                    let Some(owned) = connection.wait(deadline_ns).or_else(|| {
                        // The thread that stops the server has perhaps looked at this connection
                        // before it was given up, and left it to this thread.
                        if dispatcher.phase.stops() == stops { None } else { slot.claim() }
                    }) else {
                        return;
                    };
                    connection = owned;
                    connection.readable = true;
                }
            }
        }
    }

    fn close(&self, connection: Owned) {
        self.dispatcher.close(connection);
        if self.acceptor.is_accepting_paused() {
            self.acceptor.resume_accepting();
        }
        if self.dispatcher.is_over() {
            self.dispatcher.wake_everyone();
        }
    }

    /// Sends the responses that this thread holds; their connections are in `state.sent` then.
    pub fn send_held(&mut self) {
        self.state.deferred.close(&mut self.state.held);
        self.send_all();
    }

    /// Sends the responses that this thread holds, and goes on with their connections: a next request
    /// may be at hand.
    pub fn end_batch(&mut self, seat: &WorkerSlot) {
        self.send_held();
        let mut sent = std::mem::take(&mut self.state.sent);
        self.state.late = false;
        for connection in sent.drain(..) {
            self.state.now_ns = now_ns();
            seat.begin_turn(self.state.now_ns);
            self.run(self.dispatcher.table.resume(connection));
            seat.end_turn();
        }
        self.state.sent = sent;
    }

    /// Sends the responses of threads whose requests turned out to be long, and queues their connections.
    pub fn send_overdue(&mut self, now_ns: u64) {
        self.deferred_of_threads.take_overdue(now_ns, &mut self.state.held);
        self.send_all();
        self.flush_log();
        for connection in self.state.sent.drain(..) {
            self.dispatcher.submit(self.dispatcher.table.resume(connection));
        }
    }

    fn send_all(&mut self) {
        let state = &mut self.state;
        let mut held = std::mem::take(&mut state.held);
        for Deferred { connection, mut record } in held.drain(..) {
            let mut connection = self.dispatcher.table.resume(connection);
            let end_ns = self.driver.send_response(&mut connection, &mut record, now_ns());
            self.driver.end_request(&mut connection, &record, end_ns, state);
            state.sent.push(connection.queue());
        }
        state.held = held;
    }

    pub fn flush_log(&mut self) {
        if let Some(file) = &self.driver.access_log {
            self.state.log.flush(file);
        }
    }
}

impl<A: Application> Drop for Runner<'_, A> {
    fn drop(&mut self) {
        self.driver.watch.leave(&self.state.activity);
        self.deferred_of_threads.leave(&self.state.deferred);
    }
}
