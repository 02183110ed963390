//! What the thread that polls does: it waits for events, and queues the connections that have some.

use crate::connection::table::Token;
use crate::net::epoll::{EVENTS_PER_WAIT, Event};
use crate::pool::accept::{Acceptor, FIRST_LISTENER_DATA};
use crate::pool::dispatcher::{Dispatcher, WAKER_DATA};
use headway_measure::clock::now_ns;

/// Waits for events and queues the connections that this thread claimed. `flush` is called if no
/// event is there already. The caller has begun to poll; polling has ended on return.
pub fn poll(
    dispatcher: &Dispatcher,
    acceptor: &Acceptor,
    events: &mut Vec<Event>,
    flush: Option<impl FnOnce()>,
) {
    events.clear();
    if let Some(flush) = flush {
        dispatcher.epoll.wait(0, events);
        if events.is_empty() {
            flush();
        }
    }
    // A stop that came before polling began has kicked, so this cannot sleep through it. What became
    // ready before another thread parked is left to this one.
    if events.is_empty() && dispatcher.ready.is_empty() {
        let times_ns = [acceptor.time_away_from_listeners(), acceptor.time_until_eviction()];
        match times_ns.into_iter().flatten().min() {
            Some(time_ns) => dispatcher.epoll.wait_ns(time_ns, events),
            None => dispatcher.epoll.wait(-1, events),
        }
    }
    note_events(dispatcher, acceptor, events);
    dispatcher.end_polling();
    // Without a parked thread there is none that the monitor could wake.
    if dispatcher.idle.has_parked() {
        dispatcher.monitor.wake_if_asleep();
    }
}

/// Queues what has events already, for threads that are stuck. True if there may be more.
pub fn poll_for_stuck_threads(
    dispatcher: &Dispatcher,
    acceptor: &Acceptor,
    events: &mut Vec<Event>,
) -> bool {
    if !dispatcher.begin_polling() {
        return false;
    }
    events.clear();
    dispatcher.epoll.wait(0, events);
    let more = events.len() == EVENTS_PER_WAIT;
    // A kick is for the thread that sleeps in a poll, and stays until that wakes up.
    events.retain(|event| event.data < FIRST_LISTENER_DATA);
    note_events(dispatcher, acceptor, events);
    dispatcher.end_polling();
    // A thread may have parked because this one polled.
    dispatcher.idle.wake_one();
    more
}

/// Queues the connections that have events and no owner, accepts from the listeners that have some.
/// The caller polls.
pub fn note_events(dispatcher: &Dispatcher, acceptor: &Acceptor, events: &[Event]) {
    let now_ns = now_ns();
    let mut claimed = [const { None }; EVENTS_PER_WAIT];
    let mut count = 0;
    for event in events {
        match event.data {
            WAKER_DATA => dispatcher.waker.clear(),
            FIRST_LISTENER_DATA.. => acceptor.accept_some(event.data, now_ns),
            data => {
                let token = Token::from_data(data);
                if let Some(mut connection) = dispatcher.table.note_event(token, event.hangup) {
                    connection.noticed_ns = now_ns;
                    connection.readable = true;
                    claimed[count] = Some(connection.queue());
                    count += 1;
                }
            }
        }
    }
    if count > 0 {
        dispatcher.ready.extend(claimed.into_iter().take(count).flatten(), now_ns);
    }
}
