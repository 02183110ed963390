//! How long a connection may take for what it waits for.

use crate::connection::lingering;
use crate::connection::state::{Connection, Stage};
use crate::net::socket;
use crate::pool::phase::Phase;
use crate::request::Patience;
use headway_measure::clock::now_ns;
use std::os::fd::AsFd;

/// How long a connection may take for each [`Stage`].
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    pub keep_alive_ns: u64,
    pub head_ns: u64,
    /// Also how long an application waits for the next piece.
    pub body_ns: u64,
    /// Also how long an application waits for room to write.
    pub write_ns: u64,
}

impl Timeouts {
    /// How long an application's thread waits for its client.
    pub fn patience(&self) -> Patience {
        let to_ms = |ns: u64| i32::try_from(ns.div_ceil(1_000_000)).unwrap_or(i32::MAX);
        Patience { receive_ms: to_ms(self.body_ns), send_ms: to_ms(self.write_ns) }
    }

    fn of(&self, stage: Stage) -> u64 {
        match stage {
            Stage::Idle => self.keep_alive_ns,
            Stage::Opening { .. } | Stage::Head => self.head_ns,
            Stage::Body => self.body_ns,
            Stage::Writing(_) => self.write_ns,
            Stage::Lingering { .. } => lingering::SILENCE_NS,
        }
    }

    /// When what the connection waits for must have come. A stage's time begins when the stage does,
    /// and anew with each piece of a response that goes out or of what is dropped after it.
    pub fn next_deadline_ns(&self, connection: &mut Connection, phase: &Phase) -> u64 {
        let is_writing = matches!(connection.stage, Stage::Writing(_));
        let is_lingering = matches!(connection.stage, Stage::Lingering { .. });
        let moved = std::mem::take(&mut connection.moved) && (is_writing || is_lingering);
        if moved || connection.deadline_stage != Some(connection.stage) {
            connection.deadline_stage = Some(connection.stage);
            connection.deadline_ns = now_ns() + self.of(connection.stage);
            if is_writing {
                connection.unacknowledged_bytes =
                    socket::unacknowledged_bytes(connection.socket.as_fd());
            }
        }
        let end_ns = match connection.stage {
            Stage::Idle | Stage::Opening { silent: true } if phase.is_stopping() => {
                phase.keep_idle_until_ns()
            }
            Stage::Lingering { since_ns, expecting } => {
                lingering::end_ns(since_ns, expecting, phase.is_stopping())
            }
            _ => u64::MAX,
        };
        connection.deadline_ns.min(end_ns)
    }
}

/// Whether what the connection waits for now is another thing than before, or another piece of it. A
/// head or a body must be there as a whole.
pub fn has_gone_on(connection: &mut Connection) -> bool {
    if connection.deadline_stage != Some(connection.stage) {
        return true;
    }
    match connection.stage {
        Stage::Writing(_) => {
            // No event told of what was taken if it makes too little room.
            connection.moved |= socket::unacknowledged_bytes(connection.socket.as_fd())
                < connection.unacknowledged_bytes;
            connection.moved
        }
        Stage::Lingering { .. } => connection.moved,
        _ => false,
    }
}
