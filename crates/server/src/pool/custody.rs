//! A connection that a thread owns (its word is BUSY): from its turns until it waits, is another's or
//! is closed.

use crate::connection::deferred::Held;
use crate::connection::drive::{Outcome, TurnState};
use crate::connection::state::Stage;
use crate::net::socket;
use crate::pool::Pool;
use crate::request::Application;
use crate::stats::clock::now_ns;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering::Relaxed;

impl<A: Application> Pool<A> {
    /// Turns with a connection that the queue or an outbox owned, until it has to wait.
    pub(crate) fn converse(&self, index: u32, state: &mut TurnState<A::Thread>) {
        let slot = self.slab.slot(index).expect("an index from the ready queue or an outbox");
        loop {
            let stops = self.end.stops();
            // SAFETY: the queue or the outbox owned the word and handed it to this thread.
            let peer = unsafe { slot.peer() }.as_mut().expect("an owned slot is not empty");
            peer.hangup = slot.word.has_hangup();
            match self.turn(peer, state) {
                Outcome::Close => {
                    peer.return_buffers(&mut state.spares);
                    self.close(index);
                    break;
                }
                Outcome::Hold(record) => {
                    if state.outbox.hold(Held { index, record }) {
                        break;
                    }
                    // The monitor has closed it meanwhile.
                    state.held.push(Held { index, record });
                    self.send_held(state);
                    state.held.drain(..).for_each(|held| self.ready.push(held.index, now_ns()));
                    break;
                }
                Outcome::Yield => {
                    self.ready.push(index, now_ns());
                    break;
                }
                Outcome::Wait => {
                    if matches!(peer.stage, Stage::Idle | Stage::Opening { .. }) {
                        peer.return_buffers(&mut state.spares);
                    }
                    slot.deadline_ns.store(self.next_deadline_ns(peer), Relaxed);
                    let since_ns = peer.without_request_since_ns();
                    slot.without_request_since_ns.store(since_ns, Relaxed);
                    if !slot.word.release() {
                        peer.readable = true;
                        continue;
                    }
                    // Whoever stops the server has perhaps looked at this connection before it
                    // was released, and left it to us.
                    if self.end.stops() != stops && slot.word.claim() {
                        // SAFETY: claimed just now.
                        let peer = unsafe { slot.peer() }.as_mut().expect("still open");
                        peer.readable = true;
                        continue;
                    }
                    break;
                }
            }
        }
    }

    /// Closes a connection that this thread owns.
    fn close(&self, index: u32) {
        self.discard(index);
        if self.is_accepting_paused() {
            self.resume_accepting();
        }
        if self.is_over() {
            self.wake_everyone();
        }
    }

    /// Frees the slot of a connection that this thread owns.
    pub(crate) fn discard(&self, index: u32) {
        // SAFETY: the caller owns the word and uses the slot no more.
        if let Some(mut peer) = unsafe { self.slab.remove(index) } {
            if peer.stage == Stage::Idle && peer.tls.is_some() {
                peer.close_sending();
            }
            self.epoll.remove(peer.socket.as_fd());
            socket::shut_down(peer.socket.as_fd());
            self.books.note_closed();
        }
    }

    /// The monitor found that a deadline has passed, and claimed the connection.
    pub(crate) fn expire(&self, index: u32) {
        let slot = self.slab.slot(index).expect("the monitor walks over existing slots");
        // SAFETY: the monitor claimed the word.
        if let Some(peer) = unsafe { slot.peer() } {
            peer.expired = true;
        }
        self.submit(index);
    }

    /// Queues an owned connection from outside the polling thread.
    pub(crate) fn submit(&self, index: u32) {
        self.ready.push(index, now_ns());
        if !self.parking.wake_one() {
            self.kick.kick();
        }
    }
}
