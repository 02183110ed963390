//! The policy of docs/design/new_policy.md, the worked example for a new one, under test.

mod driven_gil;

use driven_gil::{Gil, MS};

mod first_come {
    use headway_sched::{Policy, Queue, ThreadId, Threads};

    /// First come, first served: the thread that has waited longest is next, and asks the holder to
    /// drop the GIL once it has had it for a millisecond.
    #[derive(Debug)]
    pub struct FirstCome {
        waiters: Queue,
    }

    const TURN_NS: u64 = 1_000_000;

    impl FirstCome {
        pub const fn new() -> Self {
            Self { waiters: Queue::new(1) }
        }
    }

    impl Policy for FirstCome {
        fn wait<T: Threads>(&mut self, threads: &mut T, waiter: ThreadId, _now_ns: u64) {
            self.waiters.insert(threads, waiter, |threads, id| threads[id].waiting_since_ns);
        }

        fn leave<T: Threads>(&mut self, threads: &mut T, waiter: ThreadId) {
            self.waiters.remove(threads, waiter);
        }

        fn next<T: Threads>(&self, _threads: &T, _now_ns: u64) -> Option<ThreadId> {
            self.waiters.first()
        }

        fn ask_ns<T: Threads>(&self, threads: &T, _: ThreadId, holder: ThreadId, _: u64) -> u64 {
            threads[holder].taken_ns + TURN_NS
        }
    }
}

use first_come::FirstCome;

#[test]
fn the_thread_that_has_waited_longest_is_next() {
    let mut gil = Gil::under(FirstCome::new());
    gil.take(0).pass(MS).wait(2).pass(MS).wait(1).pass(MS).wait(3);
    assert_eq!(gil.order(), [2, 1, 3]);
}

#[test]
fn a_holder_is_asked_after_a_millisecond() {
    let mut gil = Gil::under(FirstCome::new());
    gil.take(0).pass(MS / 4).wait(1);
    assert_eq!(gil.asks_in_ns(1, 0), 3 * MS / 4);
}

#[test]
fn the_page_shows_this_policy() {
    let (_, from) = include_str!("new_policy.rs").split_once("mod first_come {\n").unwrap();
    let (policy, _) = from.split_once("\n}\n").unwrap();
    let page = include_str!("../../../docs/design/new_policy.md");
    let lines = policy.lines().map(|line| line.strip_prefix("    ").unwrap_or(line));
    let shown: String = lines.flat_map(|line| [line, "\n"]).collect();
    let used = "use headway_sched::{Policy, Queue, ThreadId, Threads};\n";
    assert!(page.contains(shown.strip_prefix(used).unwrap().trim()), "{shown}");
}
