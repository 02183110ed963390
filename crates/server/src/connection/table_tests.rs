//! The guard of a connection: who gets it, and what its end does.

use super::*;
use crate::net::socket::PeerAddress;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::sync::atomic::AtomicBool;

pub fn table() -> Table {
    Table::new(Arc::new(Epoll::new().unwrap()), Arc::new(ServerStats::new(false)))
}

/// A connection of the table, and its client.
pub fn connect(table: &Table) -> (Owned<'_>, UnixStream) {
    let (one, client) = UnixStream::pair().unwrap();
    let connection = Connection::new(one.into(), PeerAddress::default(), Default::default());
    (table.insert(Box::new(connection)).unwrap(), client)
}

fn token(owned: &Owned) -> Token {
    Token { index: owned.index, generation: owned.slot.ownership.generation() }
}

fn release(owned: Owned) -> Unowned {
    owned.wait(0).unwrap_or_else(|_| panic!("no event came"))
}

fn is_closed(mut client: &UnixStream) -> bool {
    client.set_nonblocking(true).unwrap();
    matches!(client.read(&mut [0]), Ok(0))
}

#[test]
fn a_slot_is_used_again_under_another_generation() {
    let table = table();
    let (owned, client) = connect(&table);
    let first = token(&owned);
    assert_eq!(Token::from_data(first.to_data()), first);
    owned.close();
    assert!(is_closed(&client));
    let (owned, _client) = connect(&table);
    let second = token(&owned);
    assert_eq!(second.index, first.index);
    release(owned);
    assert!(table.note_event(first, false).is_none(), "an event of the connection before");
    assert!(table.note_event(second, false).is_some());
}

#[test]
fn a_waiting_connection_has_one_owner_at_a_time() {
    let table = table();
    let (owned, _client) = connect(&table);
    let token = token(&owned);
    let waiting = release(owned);
    let claimed = waiting.claim().unwrap();
    assert!(waiting.claim().is_none());
    assert!(table.note_event(token, true).is_none(), "its owner looks again");
    let Err(mut claimed) = claimed.wait(0) else { panic!("an event came meanwhile") };
    assert!(claimed.readable);
    claimed.update_hangup();
    assert!(claimed.hangup);
    let queued = claimed.queue();
    assert!(waiting.claim().is_none(), "the queue owns it");
    release(table.take(queued));
    assert!(table.note_event(token, false).is_some());
}

#[test]
fn a_queued_connection_can_be_used_in_its_place() {
    let table = table();
    let (owned, _client) = connect(&table);
    let mut queued = owned.queue();
    table.connection(&mut queued).deadline.expired = true;
    assert!(table.take(queued).deadline.expired);
}

#[test]
#[should_panic(expected = "a connection of another table")]
fn a_queued_connection_belongs_to_its_table() {
    let (one, other) = (table(), table());
    let (owned, _client) = connect(&one);
    let (_owned, _other_client) = connect(&other);
    let _ = other.take(owned.queue());
}

#[test]
fn a_panic_closes_the_connection() {
    let table = table();
    let (owned, client) = connect(&table);
    assert_eq!(table.open(), 1);
    let thread = std::thread::scope(|scope| {
        let panicking = scope.spawn(move || {
            let _owned = owned;
            panic!("on purpose");
        });
        panicking.join()
    });
    assert!(thread.is_err() && is_closed(&client));
    assert_eq!(table.open(), 0);
}

#[test]
fn deadlines_and_first_requests_are_known_without_owning_the_connection() {
    let table = table();
    let (mut owned, _client) = connect(&table);
    owned.accepted_ns = 7;
    let waiting = owned.wait(100).unwrap_or_else(|_| panic!("no event came"));
    assert!(waiting.is_past_deadline(100) && !waiting.is_past_deadline(99));
    assert_eq!(waiting.without_request_since_ns(), 7);
    waiting.claim().unwrap().close();
    assert!(!waiting.is_past_deadline(u64::MAX));
    assert_eq!(waiting.without_request_since_ns(), 0);
}

#[test]
fn of_many_claimers_one_owns_the_connection_and_no_event_is_lost() {
    let table = table();
    let (owned, _client) = connect(&table);
    let (token, accepted_ns) = (token(&owned), owned.accepted_ns);
    let waiting = release(owned);
    let (is_owned, seen) = (AtomicBool::new(false), AtomicU64::new(0));
    let work = |mut owned: Owned| {
        loop {
            assert!(!is_owned.swap(true, SeqCst), "two owners");
            owned.accepted_ns += 1;
            seen.fetch_add(1, SeqCst);
            is_owned.store(false, SeqCst);
            match owned.wait(0) {
                Ok(_) => break,
                Err(again) => owned = again,
            }
        }
    };
    std::thread::scope(|scope| {
        for number in 0..4 {
            scope.spawn(move || {
                for _ in 0..20_000 {
                    let owned = match number {
                        0 => waiting.claim(),
                        _ => waiting.table.note_event(token, false),
                    };
                    owned.into_iter().for_each(work);
                }
            });
        }
    });
    let owned = waiting.claim().expect("nobody owns it");
    assert!(seen.load(SeqCst) > 0);
    assert_eq!(owned.accepted_ns - accepted_ns, seen.load(SeqCst));
}
