//! Drives an owned connection until it waits, is queued or is closed.

use crate::connection::deferred::Held;
use crate::connection::drive::{Outcome, TurnState};
use crate::connection::state::Stage;
use crate::connection::table::Owned;
use crate::net::socket;
use crate::pool::Pool;
use crate::request::Application;
use crate::stats::clock::now_ns;
use std::os::fd::AsFd;

impl<A: Application> Pool<A> {
    pub(crate) fn drive(&self, mut connection: Owned, state: &mut TurnState<A::Thread>) {
        loop {
            let stops = self.end.stops();
            connection.hangup = connection.has_hangup();
            match self.turn(&mut connection, state) {
                Outcome::Close => {
                    connection.return_buffers(&mut state.spares);
                    return self.close(connection);
                }
                Outcome::Hold(record) => {
                    let held = Held { connection: connection.queue(), record };
                    if let Some(held) = state.outbox.hold(held) {
                        // The monitor has closed it meanwhile.
                        state.held.push(held);
                        self.send_held(state);
                        self.ready.extend(state.sent.drain(..), now_ns());
                    }
                    return;
                }
                Outcome::Yield => return self.ready.push(connection.queue(), now_ns()),
                Outcome::Wait => {
                    if matches!(connection.stage, Stage::Idle | Stage::Opening { .. }) {
                        connection.return_buffers(&mut state.spares);
                    }
                    let slot = connection.view();
                    let deadline_ns = self.next_deadline_ns(&mut connection);
                    let Some(owned) = connection.wait(deadline_ns).or_else(|| {
                        // `stop` has perhaps looked at this connection before it was given up, and
                        // left it to this thread.
                        if self.end.stops() == stops { None } else { slot.claim() }
                    }) else {
                        return;
                    };
                    connection = owned;
                    connection.readable = true;
                }
            }
        }
    }

    pub(crate) fn close(&self, connection: Owned) {
        self.discard(connection);
        if self.is_accepting_paused() {
            self.resume_accepting();
        }
        if self.is_over() {
            self.wake_everyone();
        }
    }

    /// Closes a connection, without a look at what that makes room for.
    pub(crate) fn discard(&self, connection: Owned) {
        let mut connection = connection.close();
        if connection.stage == Stage::Idle && connection.tls.is_some() {
            connection.close_sending();
        }
        self.epoll.remove(connection.socket.as_fd());
        socket::shut_down(connection.socket.as_fd());
        self.books.note_closed();
    }

    /// Queues an owned connection from outside the polling thread.
    pub(crate) fn submit(&self, connection: Owned) {
        self.ready.push(connection.queue(), now_ns());
        if !self.parking.wake_one() {
            self.kick.kick();
        }
    }
}
