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

    /// Sends what this thread holds, and goes on with those connections: a turn for each, since a
    /// next request may be at hand.
    pub(crate) fn end_burst(&self, seat: &Seat, state: &mut TurnState<A::Thread>) {
        self.send_held(state);
        let mut held = std::mem::take(&mut state.held);
        state.late = false;
        for Held { index, .. } in held.drain(..) {
            state.now_ns = now_ns();
            seat.begin_turn(state.now_ns);
            self.converse(index, state);
            seat.end_turn();
        }
        state.held = held;
    }

    /// Sends what this thread holds; the connections stay in `state.held`.
    pub(crate) fn send_held(&self, state: &mut TurnState<A::Thread>) {
        state.outbox.close(&mut state.held);
        self.send_all(state);
    }

    /// For the monitor: sends what a thread holds whose request has turned out to be long, and gives
    /// the connections to others.
    pub(crate) fn end_overdue_bursts(&self, now_ns: u64, state: &mut TurnState<A::Thread>) {
        self.outboxes.take_overdue(now_ns, &mut state.held);
        self.send_all(state);
        self.flush_log(&mut state.log);
        for Held { index, .. } in state.held.drain(..) {
            self.submit(index);
        }
    }

    fn send_all(&self, state: &mut TurnState<A::Thread>) {
        for position in 0..state.held.len() {
            let Held { index, mut record } = state.held[position];
            let slot = self.slab.slot(index).expect("an index from an outbox");
            // SAFETY: the outbox owned the word and handed it to this thread.
            let peer = unsafe { slot.peer() }.as_mut().expect("an owned slot is not empty");
            let end_ns = self.send_response(peer, &mut record, now_ns());
            self.end_request(peer, &record, end_ns, state);
        }
    }
}
