//! Eviction: which connections are closed when there is no room for new ones.
//!
//! A client that sends no complete request holds a descriptor and a slot until `head-timeout`. When
//! either runs out, the connections that have waited longest for their first complete head are closed,
//! several at a time as in nginx. A connection that has sent a complete head is never evicted, nor is one
//! whose socket holds unread bytes. Each connection has `GRACE_NS` first: without it a burst of clients
//! would close every connection before its TLS handshake is over.

use crate::connection::state::Stage;
use crate::connection::table::SlotView;
use crate::limits::log_to_stderr;
use crate::net::socket::{self, Transfer};
use crate::pool::dispatcher::Dispatcher;
use headway_measure::clock::now_ns;
use std::fmt::Display;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A connection is younger than this for as long as two round trips across an ocean take.
const GRACE_NS: u64 = 250_000_000;
/// At most one of so many candidates is evicted at once, and at least one connection.
const CANDIDATES_PER_EVICTION: usize = 8;
const MAX_EVICTIONS_AT_ONCE: usize = 32;
/// The time between two lines on stderr.
const REPORT_PERIOD_NS: u64 = 60_000_000_000;

/// `NEVER` in `due_ns`.
const NEVER: u64 = u64::MAX;

pub struct Eviction {
    /// Connections evicted since the last line on stderr. Written by threads that accept, relaxed:
    /// a count.
    pub unreported: AtomicU64,
    /// When the last line was written; 0 before the first. Whoever accepts writes it, relaxed: the
    /// exchange lets one of two threads write the line.
    reported_ns: AtomicU64,
    /// When the next connection can be evicted whose grace was not over at the last attempt.
    /// Written by threads that accept, read by the thread that polls, relaxed: a stale value moves
    /// the next attempt to the monitor's next look.
    due_ns: AtomicU64,
}

impl Default for Eviction {
    fn default() -> Self {
        Self {
            unreported: AtomicU64::new(0),
            reported_ns: AtomicU64::new(0),
            due_ns: AtomicU64::new(NEVER),
        }
    }
}

impl Eviction {
    /// Closes connections that have sent no complete request. False if there are none to close now.
    /// `reason` is why there is no room.
    pub fn make_room(&self, dispatcher: &Dispatcher, reason: &dyn Display) -> bool {
        let mut candidates: Vec<(u64, SlotView)> = dispatcher
            .table
            .slots()
            .map(|slot| (slot.without_request_since_ns(), slot))
            .filter(|(since_ns, _)| *since_ns != 0)
            .collect();
        candidates.sort_unstable_by_key(|(since_ns, slot)| (*since_ns, slot.index()));
        let now_ns = now_ns();
        let old = candidates.partition_point(|(since_ns, _)| since_ns + GRACE_NS <= now_ns);
        let due_ns = candidates.get(old).map_or(NEVER, |(since_ns, _)| since_ns + GRACE_NS);
        self.due_ns.store(due_ns, Relaxed);
        let limit = (candidates.len() / CANDIDATES_PER_EVICTION).clamp(1, MAX_EVICTIONS_AT_ONCE);
        let evicted = candidates[..old]
            .iter()
            .filter(|(_, slot)| evict(dispatcher, *slot))
            .take(limit)
            .count();
        if evicted > 0 {
            self.report(evicted, dispatcher.table.open(), reason, now_ns);
        }
        evicted > 0
    }

    /// How long until the next eviction can make room: 0, once, when that time has come; `None` if
    /// nothing is to be evicted.
    pub fn remaining_ns(&self, now_ns: u64) -> Option<u64> {
        let due_ns = self.due_ns.load(Relaxed);
        if due_ns == NEVER {
            return None;
        }
        let remaining_ns = due_ns.saturating_sub(now_ns);
        if remaining_ns == 0 {
            self.due_ns.store(NEVER, Relaxed);
        }
        Some(remaining_ns)
    }

    fn report(&self, evicted: usize, open: usize, reason: &dyn Display, now_ns: u64) {
        self.unreported.fetch_add(evicted as u64, Relaxed);
        let reported_ns = self.reported_ns.load(Relaxed);
        let is_due = reported_ns == 0 || now_ns.saturating_sub(reported_ns) >= REPORT_PERIOD_NS;
        let exchange =
            |to| self.reported_ns.compare_exchange(reported_ns, to, Relaxed, Relaxed).is_ok();
        if is_due && exchange(now_ns) {
            let count = self.unreported.swap(0, Relaxed);
            let connections = if count == 1 { "connection was" } else { "connections were" };
            log_to_stderr(&format!(
                "{count} {connections} closed before a complete request came, to make room for new \
                 ones (open: {open}): {reason}"
            ));
        }
    }
}

/// Closes the connection unless a thread works on it or it has sent something since.
fn evict(dispatcher: &Dispatcher, slot: SlotView) -> bool {
    let Some(mut connection) = slot.claim() else { return false };
    let since_ns = slot.without_request_since_ns();
    // The slot may hold another connection by now.
    let is_due = since_ns != 0 && since_ns + GRACE_NS <= now_ns();
    // What comes after the last response is dropped in any case.
    let has_unread = !matches!(connection.stage, Stage::Lingering { .. })
        && matches!(socket::peek(connection.socket.as_fd(), &mut [0]), Transfer::Moved(_));
    if !is_due || has_unread {
        connection.readable = true;
        dispatcher.submit(connection);
        return false;
    }
    dispatcher.close(connection);
    true
}
