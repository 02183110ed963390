//! Eviction: which connections are closed when there is no room for new ones.
//!
//! A client that sends no complete request holds a descriptor and a slot until `head-timeout`.
//! When either runs out, the connections that have waited longest for their first complete head
//! are closed, several at a time as in nginx. A connection that has sent a complete head is never
//! evicted, nor is one whose socket holds unread bytes. Each connection has `GRACE_NS` first:
//! without it, many clients at once would close every connection before its TLS handshake is over.

use crate::connection::state::Stage;
use crate::connection::table::{Table, Unowned};
use crate::net::socket::{self, Transfer};
use crate::pool::scheduler::PoolScheduler;
use crate::stderr::{OncePerMinute, log_to_stderr};
use headway_measure::clock::now_ns;
use std::fmt::Display;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Two round trips across an ocean.
const GRACE_NS: u64 = 250_000_000;
/// The share of the candidates that is evicted at once; at least one connection is.
const CANDIDATES_PER_EVICTION: usize = 8;
const MAX_EVICTIONS_AT_ONCE: usize = 32;

/// In `due_ns`: no candidate is within its grace period.
const NEVER: u64 = u64::MAX;

pub struct Eviction {
    table: Arc<Table>,
    scheduler: Arc<PoolScheduler>,
    /// Connections evicted since the last line on stderr. Written by threads that accept,
    /// relaxed: a count.
    unreported: AtomicU64,
    report: OncePerMinute,
    /// When the first connection can be evicted that was within its grace period at the last
    /// attempt. Written by threads that accept, read by the thread that polls; relaxed, because a
    /// stale value only delays the next attempt until the monitor's next sweep.
    due_ns: AtomicU64,
}

impl Eviction {
    pub fn new(table: Arc<Table>, scheduler: Arc<PoolScheduler>) -> Self {
        Self {
            table,
            scheduler,
            unreported: AtomicU64::new(0),
            report: OncePerMinute::default(),
            due_ns: AtomicU64::new(NEVER),
        }
    }

    /// Closes connections that have sent no complete request. False if there are none to close at
    /// the moment. `reason` is the reason for the lack of room.
    pub fn make_room(&self, reason: &dyn Display) -> bool {
        let mut candidates: Vec<(u64, Unowned)> = self
            .table
            .slots()
            .map(|slot| (slot.without_request_since_ns(), slot))
            .filter(|(since_ns, _)| *since_ns != 0)
            .collect();
        candidates.sort_unstable_by_key(|(since_ns, _)| *since_ns);
        let now_ns = now_ns();
        let old = candidates.partition_point(|(since_ns, _)| since_ns + GRACE_NS <= now_ns);
        let due_ns = candidates.get(old).map_or(NEVER, |(since_ns, _)| since_ns + GRACE_NS);
        self.due_ns.store(due_ns, Relaxed);
        let limit = (candidates.len() / CANDIDATES_PER_EVICTION).clamp(1, MAX_EVICTIONS_AT_ONCE);
        let evicted =
            candidates[..old].iter().filter(|(_, slot)| self.evict(*slot)).take(limit).count();
        if evicted > 0 {
            self.report(evicted, reason, now_ns);
        }
        evicted > 0
    }

    /// The time until the next connection can be evicted: 0 once when it has come, `None` if no
    /// candidate is within its grace period.
    pub fn remaining_ns(&self) -> Option<u64> {
        let due_ns = self.due_ns.load(Relaxed);
        if due_ns == NEVER {
            return None;
        }
        let remaining_ns = due_ns.saturating_sub(now_ns());
        if remaining_ns == 0 {
            self.due_ns.store(NEVER, Relaxed);
        }
        Some(remaining_ns)
    }

    /// Closes the connection unless a thread works on it or it has sent something since.
    fn evict(&self, slot: Unowned) -> bool {
        let Some(mut owned) = slot.claim() else { return false };
        let since_ns = slot.without_request_since_ns();
        // The slot may hold another connection by now.
        let is_due = since_ns != 0 && since_ns + GRACE_NS <= now_ns();
        // Bytes that arrive after the last response are dropped in any case.
        let has_unread = !matches!(owned.stage, Stage::Lingering { .. })
            && matches!(socket::peek(owned.socket.as_fd(), &mut [0]), Transfer::Moved(_));
        if !is_due || has_unread {
            owned.readable = true;
            self.scheduler.submit(owned);
            return false;
        }
        owned.close();
        true
    }

    fn report(&self, evicted: usize, reason: &dyn Display, now_ns: u64) {
        self.unreported.fetch_add(evicted as u64, Relaxed);
        if self.report.is_due(now_ns) {
            let count = self.unreported.swap(0, Relaxed);
            let connections = if count == 1 { "connection was" } else { "connections were" };
            log_to_stderr(&format!(
                "{count} {connections} closed before a complete request came, to make room for new \
                 ones (open: {}): {reason}",
                self.table.open()
            ));
        }
    }

    #[cfg(test)]
    pub fn unreported(&self) -> u64 {
        self.unreported.load(Relaxed)
    }
}
