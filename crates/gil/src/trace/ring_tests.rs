//! The contents of a ring, what it loses, and readings while other threads write to it.

use super::*;
use crate::counters::NAME_BYTES;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::sync::atomic::AtomicBool;

const KIND: u64 = 1 << THREAD_BITS;

/// Memory of its own, given back at the end.
struct Made(*mut Head, Layout);

// SAFETY: all that threads share of a ring is atomic.
unsafe impl Sync for Made {}

impl Made {
    fn new(entries: u64) -> Self {
        let layout = Layout::from_size_align(ring_bytes(entries), 4096).expect("a layout");
        // SAFETY: the layout is not empty; fresh zero bytes, for this test alone.
        unsafe {
            let memory = alloc_zeroed(layout).cast();
            Ring::begin(memory, entries, 5);
            Self(memory, layout)
        }
    }

    fn ring(&self) -> Ring {
        // SAFETY: begun in `new`, and there until drop.
        unsafe { Ring::at(self.0) }
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.0.cast(), self.1) };
    }
}

#[test]
fn the_last_events_are_kept_in_order_and_the_others_counted() {
    let made = Made::new(8);
    let ring = made.ring();
    for time_ns in 0..3 {
        ring.keep(time_ns, KIND | time_ns);
    }
    assert_eq!(ring.copy(90).events, [0, 1, 2].map(|at| [at, KIND | at]));
    assert_eq!(ring.copy(90).lost, 0);
    // Enough laps that their count begins again.
    for time_ns in 3..8 * 70 + 3 {
        ring.keep(time_ns, KIND | time_ns);
    }
    let copy = ring.copy(90);
    let kept: Vec<_> = (8 * 69 + 3..8 * 70 + 3).map(|at| [at, KIND | at]).collect();
    assert_eq!(copy.events, kept);
    assert_eq!((copy.lost, copy.began_ns, copy.ended_ns), (8 * 69 + 3, 5, 90));
}

#[test]
fn a_claim_that_was_not_written_yet_is_lost() {
    let made = Made::new(4);
    let ring = made.ring();
    for time_ns in 0..4 {
        ring.keep(time_ns, KIND);
    }
    ring.head().next.fetch_add(1, Relaxed);
    ring.keep(5, KIND);
    let copy = ring.copy(9);
    assert_eq!(copy.events, [[2, KIND], [3, KIND], [5, KIND]]);
    assert_eq!(copy.lost, 3);
}

#[test]
fn who_copies_while_others_write_sees_whole_events() {
    let made = Made::new(64);
    let (ring, over) = (made.ring(), AtomicBool::new(false));
    let made = &made;
    let over = &over;
    std::thread::scope(|scope| {
        for thread in 1..=3_u64 {
            scope.spawn(move || {
                for number in 1..=40_000 {
                    // The time contains the thread and its number, which the serial contains too.
                    made.ring().keep(number << 8 | thread, number << 32 | KIND | thread);
                }
            });
        }
        scope.spawn(move || {
            while !over.load(Relaxed) {
                for [time_ns, word] in made.ring().copy(0).events {
                    assert_eq!(time_ns & 0xFF, word & 0x3F_FFFF);
                    assert_eq!(time_ns >> 8, word >> 32);
                }
            }
        });
        while ring.head().next.load(Relaxed) < 120_000 {
            std::thread::yield_now();
        }
        over.store(true, Relaxed);
    });
    let copy = ring.copy(0);
    assert_eq!((copy.events.len(), copy.lost), (64, 120_000 - 64));
}

#[test]
fn names_of_the_newest_stay() {
    let made = Made::new(2);
    let ring = made.ring();
    for native_id in 1..=THREADS as u32 + 2 {
        ring.name_thread(native_id, format!("thread {native_id}").as_bytes());
    }
    let threads = ring.copy(0).threads;
    assert_eq!(threads.len(), THREADS);
    assert_eq!(threads[0], (3, "thread 3".to_owned()));
    assert_eq!(threads[THREADS - 1], (4098, "thread 4098".to_owned()));
    let name = Name::new();
    ring.name_gil(7, 0, &name);
    name.set(b"shop");
    ring.name_gil(8, 3, &name);
    assert_eq!(ring.copy(0).gils, [(7, 0, String::new()), (8, 3, "shop".to_owned())]);
}

#[test]
fn who_copies_while_names_are_written_sees_whole_ones() {
    let made = Made::new(2);
    let (made, over) = (&made, &AtomicBool::new(false));
    let name_of = |number: u32| [b'a' + (number % 26) as u8; NAME_BYTES];
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let text = |number| String::from_utf8_lossy(&name_of(number)).into_owned();
            while !over.load(Relaxed) {
                let copy = made.ring().copy(0);
                for (number, name) in copy.threads {
                    assert_eq!(name, text(number));
                }
                for (serial, interpreter, name) in copy.gils {
                    let number = serial / GILS as u32;
                    assert_eq!((interpreter, name), (i64::from(number), text(number)));
                }
            }
        });
        for number in 1..=40_000 {
            let name = Name::new();
            name.set(&name_of(number));
            made.ring().name_thread(number, &name_of(number));
            // All in one row.
            made.ring().name_gil(number * GILS as u32, i64::from(number), &name);
        }
        over.store(true, Relaxed);
    });
}

#[test]
fn what_is_no_ring_is_not_taken_for_one() {
    let made = Made::new(8);
    let found = |bytes| {
        // SAFETY: not longer than it is.
        unsafe { Ring::find(made.0, bytes) }
    };
    assert!(found(ring_bytes(8)).is_some());
    assert!(found(ring_bytes(8) - 1).is_none());
    assert!(found(100).is_none());
    made.ring().head().entries.store(7, Relaxed);
    assert!(found(ring_bytes(8)).is_none());
}
