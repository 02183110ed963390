//! When a thread puts its responses into its outbox, and when they go out.

use crate::connection::deferred::Held;
use crate::connection::drive::TurnState;
use crate::pool::Pool;
use crate::pool::idle::{LONG_TURN_NS, Seat};
use crate::request::Application;
use crate::stats::clock::now_ns;

/// While turns are as short as this, a client on this machine hardly falls asleep between two
/// responses, and would only get them later.
const SHORT_TURN_NS: u64 = 20_000;
/// Fewer connections behind the one whose turn it is are not worth the monitor's attention.
const FEW: usize = 2;

impl<A: Application> Pool<A> {
    /// Called before a turn behind which `waiting` connections are ready.
    pub(crate) fn begin_burst_if_worth_it(&self, waiting: usize, state: &TurnState<A::Thread>) {
        let worth_it =
            || waiting >= FEW && (SHORT_TURN_NS..LONG_TURN_NS).contains(&self.average_turn_ns());
        if !state.outbox.is_open() && worth_it() {
            state.outbox.open(now_ns());
            self.monitor.wake_if_asleep();
        }
    }

    /// Sends the responses that this thread holds, and goes on with their connections: a next request
    /// may be at hand.
    pub(crate) fn end_burst(&self, seat: &Seat, state: &mut TurnState<A::Thread>) {
        self.send_held(state);
        let mut sent = std::mem::take(&mut state.sent);
        state.late = false;
        for connection in sent.drain(..) {
            state.now_ns = now_ns();
            seat.begin_turn(state.now_ns);
            self.drive(self.table.resume(connection), state);
            seat.end_turn();
        }
        state.sent = sent;
    }

    /// Sends the responses that this thread holds; their connections are in `state.sent` then.
    pub(crate) fn send_held(&self, state: &mut TurnState<A::Thread>) {
        state.outbox.close(&mut state.held);
        self.send_all(state);
    }

    /// For the monitor: sends the responses of a thread whose request has turned out to be long, and
    /// gives the connections to others.
    pub(crate) fn end_overdue_bursts(&self, now_ns: u64, state: &mut TurnState<A::Thread>) {
        self.outboxes.take_overdue(now_ns, &mut state.held);
        self.send_all(state);
        self.flush_log(&mut state.log);
        for connection in state.sent.drain(..) {
            self.submit(self.table.resume(connection));
        }
    }

    fn send_all(&self, state: &mut TurnState<A::Thread>) {
        let mut held = std::mem::take(&mut state.held);
        for Held { connection, mut record } in held.drain(..) {
            let mut connection = self.table.resume(connection);
            let end_ns = self.send_response(&mut connection, &mut record, now_ns());
            self.end_request(&mut connection, &record, end_ns, state);
            state.sent.push(connection.queue());
        }
        state.held = held;
    }
}
