//! Waits in epoll, on one thread at a time, and handles the events. It runs no Python.

use crate::connection::table::{Owned, Queued, Table, Token};
use crate::net::epoll::{EVENTS_PER_WAIT, Epoll, Event};
use crate::pool::accept::{Acceptor, MAX_SOURCES};
use crate::pool::scheduler::PoolScheduler;
use crate::pool::scheduling::Situation;
use crate::request::ThreadScheduling;
use crate::stats::thread_requests::ThreadRequests;
use headway_measure::clock::now_ns;
use std::sync::Arc;

/// The data of events that do not belong to a connection: beyond the index of any slot.
pub const WAKER_DATA: u64 = u64::MAX;
pub const FIRST_LISTENER_DATA: u64 = u64::MAX - MAX_SOURCES as u64;

pub struct Poller {
    epoll: Arc<Epoll>,
    table: Arc<Table>,
    scheduler: Arc<PoolScheduler>,
    acceptor: Arc<Acceptor>,
}

/// The memory of a thread that polls, empty between polls.
pub struct PollBuffers {
    events: Vec<Event>,
    claimed: Vec<Queued>,
}

impl Default for PollBuffers {
    fn default() -> Self {
        Self {
            events: Vec::with_capacity(EVENTS_PER_WAIT),
            claimed: Vec::with_capacity(EVENTS_PER_WAIT),
        }
    }
}

impl Poller {
    pub fn new(
        epoll: Arc<Epoll>,
        table: Arc<Table>,
        scheduler: Arc<PoolScheduler>,
        acceptor: Arc<Acceptor>,
    ) -> Self {
        Self { epoll, table, scheduler, acceptor }
    }

    /// Waits for events and queues the connections that this thread could claim. The caller has set
    /// the polling flag. The flag is cleared before a connection is driven.
    pub fn poll(&self, buffers: &mut PollBuffers, requests: &mut ThreadRequests) {
        let events = &mut buffers.events;
        events.clear();
        if requests.has_unwritten_lines() {
            self.epoll.wait(0, events);
            if events.is_empty() {
                requests.flush();
            }
        }
        // A stop that came before the polling flag was set has woken the poller, so this thread
        // cannot sleep through it. A thread that parked before the flag was set has left
        // connections in the queue for this thread.
        if events.is_empty() && self.scheduler.is_queue_empty() {
            match self.acceptor.remaining_ns() {
                Some(time_ns) => self.epoll.wait_ns(time_ns, events),
                None => self.epoll.wait(-1, events),
            }
        }
        self.note_events(buffers);
        self.scheduler.end_poll();
        // No thread polls now. If no thread is parked, the monitor has none to wake.
        if self.scheduler.has_parked() {
            self.scheduler.wake_monitor_if_asleep();
        }
    }

    /// Queues connections with events, for the monitor, if all workers are stuck. Accepts nothing
    /// from listeners that are shared, because another process may be free. True if there may be
    /// more.
    pub fn poll_for_stuck_workers(&self, buffers: &mut PollBuffers) -> bool {
        if !self.scheduler.begin_poll() {
            return false;
        }
        buffers.events.clear();
        self.epoll.wait(0, &mut buffers.events);
        let more = buffers.events.len() == EVENTS_PER_WAIT;
        // The waker's event is for a thread that sleeps in a poll, and stays until that thread
        // wakes up.
        let is_for_others = |data| data >= FIRST_LISTENER_DATA && !self.acceptor.is_alone_at(data);
        buffers.events.retain(|event| event.data != WAKER_DATA && !is_for_others(event.data));
        self.note_events(buffers);
        self.scheduler.end_poll();
        // A thread may have parked because the monitor polled.
        self.scheduler.idle.wake_one();
        more
    }

    /// Queues the connections that have events and no owner, and accepts from the listeners that
    /// have events. The polling flag is set.
    fn note_events(&self, buffers: &mut PollBuffers) {
        let now_ns = now_ns();
        for event in &buffers.events {
            match event.data {
                WAKER_DATA => self.scheduler.waker.clear(),
                FIRST_LISTENER_DATA.. => self.acceptor.accept_some(event.data, now_ns),
                data => {
                    let token = Token::from_data(data);
                    if let Some(mut owned) = self.table.note_event(token, event.hangup) {
                        owned.noticed_ns = now_ns;
                        owned.readable = true;
                        buffers.claimed.push(Owned::queue(owned));
                    }
                }
            }
        }
        if !buffers.claimed.is_empty() {
            self.scheduler.queue.extend(buffers.claimed.drain(..), now_ns);
        }
    }

    /// Waits for events and queues their connections, like a thread that polls.
    #[cfg(test)]
    pub fn poll_once(&self, buffers: &mut PollBuffers) {
        buffers.events.clear();
        self.epoll.wait(-1, &mut buffers.events);
        self.note_events(buffers);
    }
}
