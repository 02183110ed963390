//! How long a connection may take for what it waits for, and what becomes of it after that.

use crate::connection::drive::{Outcome, TurnState};
use crate::connection::lingering::SILENCE_NS;
use crate::connection::state::{Connection, Stage};
use crate::http::Rejection;
use crate::net::socket;
use crate::pool::Pool;
use crate::request::Application;
use crate::stats::clock::now_ns;
use std::os::fd::AsFd;

impl<A: Application> Pool<A> {
    /// When what the connection waits for must have come. A stage's time begins when the stage does,
    /// and anew with each piece of a response that goes out or of what is dropped after it.
    pub(crate) fn next_deadline_ns(&self, connection: &mut Connection) -> u64 {
        let is_writing = matches!(connection.stage, Stage::Writing(_));
        let is_lingering = matches!(connection.stage, Stage::Lingering { .. });
        let moved = std::mem::take(&mut connection.moved) && (is_writing || is_lingering);
        if moved || connection.deadline_stage != Some(connection.stage) {
            connection.deadline_stage = Some(connection.stage);
            connection.deadline_ns = now_ns() + self.patience_ns(connection.stage);
            if is_writing {
                connection.untaken = socket::untaken(connection.socket.as_fd());
            }
        }
        let end_ns = match connection.stage {
            Stage::Idle | Stage::Opening { silent: true } if self.is_stopping() => {
                self.end.keep_idle_until_ns()
            }
            Stage::Lingering { since_ns, expecting } => self.lingers_until_ns(since_ns, expecting),
            _ => u64::MAX,
        };
        connection.deadline_ns.min(end_ns)
    }

    fn patience_ns(&self, stage: Stage) -> u64 {
        match stage {
            Stage::Idle => self.timeouts.keep_alive_ns,
            Stage::Opening { .. } | Stage::Head => self.timeouts.head_ns,
            Stage::Body => self.timeouts.body_ns,
            Stage::Writing(_) => self.timeouts.write_ns,
            Stage::Lingering { .. } => SILENCE_NS,
        }
    }

    /// A turn of a connection whose deadline has passed. What it waited for may be there, and no
    /// thread was free to see it.
    pub(crate) fn last_turn(
        &self,
        connection: &mut Connection,
        state: &mut TurnState<A::Thread>,
    ) -> Outcome {
        connection.readable = true;
        match self.go_on(connection, state) {
            Outcome::Wait if !has_gone_on(connection) => self.give_up(connection, state),
            outcome => outcome,
        }
    }

    fn give_up(&self, connection: &mut Connection, state: &mut TurnState<A::Thread>) -> Outcome {
        match connection.stage {
            // Its request was answered.
            Stage::Head if connection.http.is_discarding() => Outcome::Close,
            Stage::Head | Stage::Body => {
                self.refuse(connection, Rejection::RequestTimeout, state);
                self.go_on(connection, state)
            }
            Stage::Writing(_) => {
                socket::reset(connection.socket.as_fd());
                Outcome::Close
            }
            Stage::Opening { .. } | Stage::Idle | Stage::Lingering { .. } => Outcome::Close,
        }
    }
}

/// Whether what the connection waits for now is another thing than before, or another piece of it. A
/// head or a body must be there as a whole.
fn has_gone_on(connection: &mut Connection) -> bool {
    if connection.deadline_stage != Some(connection.stage) {
        return true;
    }
    match connection.stage {
        Stage::Writing(_) => {
            // No event told of what was taken if it makes too little room.
            connection.moved |= socket::untaken(connection.socket.as_fd()) < connection.untaken;
            connection.moved
        }
        Stage::Lingering { .. } => connection.moved,
        _ => false,
    }
}
