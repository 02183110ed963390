//! queue-timeout: what becomes of requests that have waited for a thread for too long.
//!
//! Whoever takes one up answers 504 and leaves the application alone. Where all threads are stuck
//! nobody would: then the monitor looks for events itself, and answers. It reads and parses what is
//! there already, and never calls the application. It accepts nothing: another process that shares
//! the listener may be free to. So connections that nobody has accepted wait on.

use crate::connection::drive::TurnState;
use crate::net::epoll::{EVENTS_PER_WAIT, Event};
use crate::pool::{FIRST_LISTENER_DATA, Pool};
use crate::request::Application;
use crate::stats::clock::now_ns;
use std::sync::atomic::Ordering::SeqCst;

/// An end to looking for events, if clients keep sending.
const POLLS_PER_SWEEP: usize = 64;

impl<A: Application> Pool<A> {
    /// Called by the monitor, with a state that has no thread.
    pub(crate) fn answer_late(
        &self,
        events: &mut Vec<Event>,
        state: &mut TurnState<'_, A::Thread>,
    ) {
        let limit_ns = self.watch.limits.queue_ns;
        if limit_ns == 0 {
            return;
        }
        if !self.parking.has_parked() {
            for _ in 0..POLLS_PER_SWEEP {
                if !self.note_events_for_stuck_threads(events) {
                    break;
                }
            }
        }
        state.late = true;
        while let Some(ready) = self.ready.pop_late(limit_ns, now_ns()) {
            state.now_ns = now_ns();
            self.drive(self.table.resume(ready.connection), state);
        }
        self.flush_log(&mut state.log);
    }

    /// True if there may be more.
    fn note_events_for_stuck_threads(&self, events: &mut Vec<Event>) -> bool {
        if self.polling.swap(true, SeqCst) {
            return false;
        }
        events.clear();
        self.epoll.wait(0, events);
        let more = events.len() == EVENTS_PER_WAIT;
        // A kick is for whoever sleeps in a poll, and stays until that wakes up.
        events.retain(|event| event.data < FIRST_LISTENER_DATA);
        self.note_events(events);
        self.polling.store(false, SeqCst);
        // A thread may have parked because the monitor polled.
        self.parking.wake_one();
        more
    }
}
