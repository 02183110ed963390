//! Checks the counts on real threads and memory.

use headway_refcounts::{Found, Kind, MAX_THREADS};

#[test]
fn counts_are_exact() {
    for kind in Kind::ALL {
        for (threads, shared) in [(1, true), (1, false), (3, false), (3, true)] {
            if kind == Kind::Plain && threads > 1 && shared {
                continue;
            }
            let Found { ns, wrong_by } = kind.measure(threads, 50_000, shared);
            assert_eq!(wrong_by, 0, "{} threads, shared: {shared}, {}", threads, kind.name());
            assert!(ns > 0);
        }
    }
}

#[test]
fn the_maximum_number_of_threads_counts_right() {
    for kind in [Kind::Biased, Kind::Buffered] {
        assert_eq!(kind.measure(MAX_THREADS, 5_000, true).wrong_by, 0, "{}", kind.name());
    }
}

#[test]
fn kinds_have_names() {
    for kind in Kind::ALL {
        assert_eq!(Kind::parse(kind.name()), Some(kind));
    }
    assert_eq!(Kind::parse("deferred"), None);
}
