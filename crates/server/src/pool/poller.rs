//! The one thread that waits in epoll, and what it makes of events. Nobody runs Python here.

use crate::connection::table::Token;
use crate::net::epoll::{EVENTS_PER_WAIT, Event};
use crate::pool::{FIRST_LISTENER_DATA, KICK_DATA, Pool};
use crate::request::Application;
use crate::stats::access_log::LogBuffer;
use crate::stats::clock::now_ns;
use std::sync::atomic::Ordering::SeqCst;

impl<A: Application> Pool<A> {
    /// Waits for events and queues what this thread could claim. Holds `polling` on entry, gives
    /// it back before anything is run.
    pub(crate) fn poll(&self, events: &mut Vec<Event>, log: &mut LogBuffer) {
        events.clear();
        if !log.is_empty() {
            self.epoll.wait(0, events);
            if events.is_empty() {
                self.flush_log(log);
            }
        }
        // A stop that came before `polling` was set has kicked, so this cannot sleep through it. Who
        // stepped back before it was set left to us what had become ready meanwhile.
        if events.is_empty() && self.ready.is_empty() {
            let times_ns = [self.time_away_from_listeners(), self.time_until_eviction()];
            match times_ns.into_iter().flatten().min() {
                Some(time_ns) => self.epoll.wait_ns(time_ns, events),
                None => self.epoll.wait(-1, events),
            }
        }
        self.note_events(events);
        self.polling.store(false, SeqCst);
        // Nobody polls now. Without a parked thread there is nobody whom the monitor could wake.
        if self.parking.has_parked() {
            self.monitor.wake_if_asleep();
        }
    }

    /// Queues the connections that have events and no owner, accepts from the listeners that have
    /// some. Holds `polling`.
    pub(crate) fn note_events(&self, events: &[Event]) {
        let now_ns = now_ns();
        let mut claimed = [const { None }; EVENTS_PER_WAIT];
        let mut count = 0;
        for event in events {
            match event.data {
                KICK_DATA => self.kick.clear(),
                FIRST_LISTENER_DATA.. => self.accept_some(event.data, now_ns),
                data => {
                    let token = Token::from_data(data);
                    if let Some(mut connection) = self.table.note_event(token, event.hangup) {
                        connection.noticed_ns = now_ns;
                        connection.readable = true;
                        claimed[count] = Some(connection.queue());
                        count += 1;
                    }
                }
            }
        }
        if count > 0 {
            self.ready.extend(claimed.into_iter().take(count).flatten(), now_ns);
        }
    }

    pub(crate) fn is_polling(&self) -> bool {
        self.polling.load(SeqCst)
    }
}
