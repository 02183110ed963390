//! The time that a connection may spend in each stage.

use crate::connection::close::{SILENCE_NS, lingers_until_ns};
use crate::connection::state::{Connection, Stage};
use crate::net::socket;
use crate::shutdown::Shutdown;
use headway_measure::clock::now_ns;
use std::os::fd::AsFd;
use std::sync::Arc;

/// The longest time that a connection may spend in each stage.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    pub keep_alive_ns: u64,
    pub head_ns: u64,
    /// Also how long an application waits for the next piece.
    pub body_ns: u64,
    /// Also how long an application waits for room to write.
    pub write_ns: u64,
}

/// How long an application's thread waits for a client without any byte moving.
#[derive(Clone, Copy, Debug)]
pub struct IoTimeouts {
    pub receive_ms: i32,
    pub send_ms: i32,
}

/// The deadlines of a server's connections.
#[derive(Clone)]
pub struct Deadlines {
    timeouts: Timeouts,
    shutdown: Arc<Shutdown>,
}

impl Timeouts {
    pub fn of_application(&self) -> IoTimeouts {
        let to_ms = |ns: u64| i32::try_from(ns.div_ceil(1_000_000)).unwrap_or(i32::MAX);
        IoTimeouts { receive_ms: to_ms(self.body_ns), send_ms: to_ms(self.write_ns) }
    }

    fn of_stage_ns(&self, stage: Stage) -> u64 {
        match stage {
            Stage::Idle => self.keep_alive_ns,
            Stage::Preamble { .. } | Stage::Head => self.head_ns,
            Stage::Body => self.body_ns,
            Stage::Writing(_) => self.write_ns,
            Stage::Lingering { .. } => SILENCE_NS,
        }
    }
}

impl Deadlines {
    pub fn new(timeouts: Timeouts, shutdown: Arc<Shutdown>) -> Self {
        Self { timeouts, shutdown }
    }

    /// The time by which the event must come that the connection waits for. The time of a stage
    /// starts with the stage, and again with each piece of a response that is sent or of input that
    /// is dropped after it.
    pub fn next_ns(&self, connection: &mut Connection) -> u64 {
        let is_writing = matches!(connection.stage, Stage::Writing(_));
        let is_lingering = matches!(connection.stage, Stage::Lingering { .. });
        let moved = std::mem::take(&mut connection.deadline.moved) && (is_writing || is_lingering);
        if moved || connection.deadline.stage != Some(connection.stage) {
            connection.deadline.stage = Some(connection.stage);
            connection.deadline.at_ns = now_ns() + self.timeouts.of_stage_ns(connection.stage);
            if is_writing {
                connection.deadline.unacknowledged_bytes =
                    socket::unacknowledged_bytes(connection.socket.as_fd());
            }
        }
        let end_ns = match connection.stage {
            Stage::Idle | Stage::Preamble { silent: true } if self.shutdown.is_stopping() => {
                self.shutdown.keep_idle_until_ns()
            }
            Stage::Lingering { since_ns, expecting } => {
                lingers_until_ns(&self.shutdown, since_ns, expecting)
            }
            _ => u64::MAX,
        };
        connection.deadline.at_ns.min(end_ns)
    }
}

/// Whether the connection waits for another event than when its deadline was set, or for the next
/// piece. A head or a body must arrive as a whole.
pub fn has_progressed(connection: &mut Connection) -> bool {
    if connection.deadline.stage != Some(connection.stage) {
        return true;
    }
    match connection.stage {
        Stage::Writing(_) => {
            // epoll does not report that the client received bytes if they make too little room.
            let unacknowledged = socket::unacknowledged_bytes(connection.socket.as_fd());
            connection.deadline.moved |= unacknowledged < connection.deadline.unacknowledged_bytes;
            connection.deadline.moved
        }
        Stage::Lingering { .. } => connection.deadline.moved,
        _ => false,
    }
}
