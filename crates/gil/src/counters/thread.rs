//! The counters of one thread on one GIL.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use headway_measure::{AtomicHistogram, add};

use super::text::Name;
use crate::gil::hold_time::{self, HoldTime, kind};

/// The counters of one thread on one GIL. With [`NO_GIL`](super::NO_GIL), they are the waits of the
/// thread without a GIL, which `parked_waits` explains.
#[repr(C)]
pub struct ThreadCounters {
    /// See [`state`](super::state).
    pub state: AtomicU32,
    /// Index of the GIL's counters.
    pub gil: AtomicU32,
    /// The kernel's thread ID; 0 in a sum.
    pub native_id: AtomicU32,
    /// How many ended threads this sum stands for; 0 for a single thread.
    pub aggregated: AtomicU32,
    /// The number that the program gave the thread's present work; 0 if it gave none. Writer: the
    /// thread. Readers: the thread's events, and the sampler of the profile. Relaxed.
    pub context: AtomicU32,
    pub takes: AtomicU64,
    pub contended_takes: AtomicU64,
    pub voluntary_drops: AtomicU64,
    pub forced_drops: AtomicU64,
    pub preemptions: AtomicU64,
    /// Writer: the thread itself, after a forced wait, without the GIL's mutex.
    pub forced_waits: AtomicU64,
    /// Writer: as `forced_waits`.
    pub forced_waited_ns: AtomicU64,
    /// The hold during which the GIL's counters closed, up to that moment.
    pub held_at_close_ns: AtomicU64,
    /// The longest time from a drop request against this thread to the drop that answered it,
    /// without what the garbage collector took of it.
    pub longest_answer_ns: AtomicU64,
    /// The CPU time that this thread used in that time; 0 if it is not known. See `unanswered`.
    pub cpu_in_longest_answer_ns: AtomicU64,
    /// The most CPU time that this thread used between a drop request and the drop; 0 if it is not
    /// known.
    pub longest_answer_cpu_ns: AtomicU64,
    /// The time from that drop request to the drop.
    pub answer_with_most_cpu_ns: AtomicU64,
    /// Parts of its waits, by what they were behind: computing that a policy could have
    /// preempted in favour of this thread's short work; holders that did not answer; those that did
    /// not run; passes of the garbage collector. See `gil::hold_time`.
    pub waited_preventable_ns: AtomicU64,
    pub waited_unanswered_ns: AtomicU64,
    pub waited_off_core_ns: AtomicU64,
    pub waited_collection_ns: AtomicU64,
    /// The long passes of the garbage collector that this thread ran, and their time. Writer: the
    /// thread, with the GIL held, without its mutex.
    pub collections: AtomicU64,
    pub collected_ns: AtomicU64,
    pub longest_collection_ns: AtomicU64,
    /// The totals of the GIL when the present wait began: its `hold_time`, and that of its garbage
    /// collector.
    pub hold_time_at_wait: [AtomicU64; kind::COUNT],
    pub collected_at_wait_ns: AtomicU64,
    /// The number of the take that follows the last forced drop; 0 before the first such drop.
    pub take_after_forced_drop: AtomicU64,
    /// When the present wait began; 0 while the thread does not wait.
    pub wait_began_ns: AtomicU64,
    pub name: Name,
    /// Waits of contended takes.
    pub wait: AtomicHistogram,
    /// Holds that ended in a drop.
    pub hold: AtomicHistogram,
}

impl ThreadCounters {
    pub const fn new() -> Self {
        Self {
            state: AtomicU32::new(0),
            gil: AtomicU32::new(0),
            native_id: AtomicU32::new(0),
            aggregated: AtomicU32::new(0),
            context: AtomicU32::new(0),
            takes: AtomicU64::new(0),
            contended_takes: AtomicU64::new(0),
            voluntary_drops: AtomicU64::new(0),
            forced_drops: AtomicU64::new(0),
            preemptions: AtomicU64::new(0),
            forced_waits: AtomicU64::new(0),
            forced_waited_ns: AtomicU64::new(0),
            held_at_close_ns: AtomicU64::new(0),
            longest_answer_ns: AtomicU64::new(0),
            cpu_in_longest_answer_ns: AtomicU64::new(0),
            longest_answer_cpu_ns: AtomicU64::new(0),
            answer_with_most_cpu_ns: AtomicU64::new(0),
            waited_preventable_ns: AtomicU64::new(0),
            waited_unanswered_ns: AtomicU64::new(0),
            waited_off_core_ns: AtomicU64::new(0),
            waited_collection_ns: AtomicU64::new(0),
            collections: AtomicU64::new(0),
            collected_ns: AtomicU64::new(0),
            longest_collection_ns: AtomicU64::new(0),
            hold_time_at_wait: [const { AtomicU64::new(0) }; kind::COUNT],
            collected_at_wait_ns: AtomicU64::new(0),
            take_after_forced_drop: AtomicU64::new(0),
            wait_began_ns: AtomicU64::new(0),
            name: Name::new(),
            wait: AtomicHistogram::new(),
            hold: AtomicHistogram::new(),
        }
    }

    /// A wait begins, at `began_ns`, with the GIL's totals of the moment.
    #[inline]
    pub fn begin_wait(&self, began_ns: u64, hold_time: &HoldTime, collected_ns: u64) {
        self.wait_began_ns.store(began_ns, Relaxed);
        self.collected_at_wait_ns.store(collected_ns, Relaxed);
        for (mine, total_ns) in self.hold_time_at_wait.iter().zip(hold_time) {
            mine.store(*total_ns, Relaxed);
        }
    }

    /// A wait of `wait_ns` that `begin_wait` saw has ended in a take, which has been counted; the
    /// others are the GIL's totals now. Returns the part that was behind computing, if the thread
    /// had dropped the GIL by itself before.
    #[inline]
    pub fn divide_wait(&self, wait_ns: u64, hold_time: &HoldTime, collected_ns: u64) -> u64 {
        let before_ns = self.collected_at_wait_ns.load(Relaxed);
        let collected_ns = collected_ns.saturating_sub(before_ns).min(wait_ns);
        let mut before = [0; kind::COUNT];
        for (ns, noted) in before.iter_mut().zip(&self.hold_time_at_wait) {
            *ns = noted.load(Relaxed);
        }
        let parts = hold_time::parts_of_wait(before, *hold_time, wait_ns - collected_ns);
        for (sum, part_ns) in [
            (&self.waited_unanswered_ns, parts[kind::UNANSWERED]),
            (&self.waited_off_core_ns, parts[kind::OFF_CORE]),
            (&self.waited_collection_ns, collected_ns),
        ] {
            if part_ns != 0 {
                add(sum, part_ns);
            }
        }
        let follows_forced_drop =
            self.take_after_forced_drop.load(Relaxed) == self.takes.load(Relaxed);
        if follows_forced_drop { 0 } else { parts[kind::PREEMPTIBLE] }
    }

    /// The thread has run a long pass of the garbage collector. Only for the thread itself.
    pub fn count_collection(&self, took_ns: u64) {
        add(&self.collections, 1);
        add(&self.collected_ns, took_ns);
        raise(&self.longest_collection_ns, took_ns);
    }

    /// A wait that began at `began_ns` ended in a take.
    #[inline]
    pub fn count_wait(&self, began_ns: u64, now_ns: u64) {
        self.wait_began_ns.store(0, Relaxed);
        self.wait.record(now_ns.saturating_sub(began_ns));
        add(&self.contended_takes, 1);
    }

    /// A hold ended.
    #[inline]
    pub fn count_drop(&self, hold_ns: u64, forced: bool) {
        self.hold.record(hold_ns);
        add(if forced { &self.forced_drops } else { &self.voluntary_drops }, 1);
        if forced {
            self.take_after_forced_drop.store(self.takes.load(Relaxed) + 1, Relaxed);
        }
    }

    /// A drop answered a drop request.
    #[inline]
    pub fn count_answer(&self, answer_ns: u64, cpu_ns: Option<u64>) {
        let cpu_ns = cpu_ns.unwrap_or(0);
        if raise(&self.longest_answer_ns, answer_ns) {
            self.cpu_in_longest_answer_ns.store(cpu_ns, Relaxed);
        }
        if raise(&self.longest_answer_cpu_ns, cpu_ns) {
            self.answer_with_most_cpu_ns.store(answer_ns, Relaxed);
        }
    }

    /// The thread waited until another one had taken the GIL. Only for the thread itself.
    #[inline]
    pub fn count_forced_wait(&self, wait_ns: u64) {
        add(&self.forced_waits, 1);
        add(&self.forced_waited_ns, wait_ns);
    }

    /// Makes these counters a copy of `other`.
    pub fn copy_from(&self, other: &ThreadCounters) {
        for (mine, theirs) in [
            (&self.state, &other.state),
            (&self.gil, &other.gil),
            (&self.native_id, &other.native_id),
            (&self.aggregated, &other.aggregated),
        ] {
            mine.store(theirs.load(Relaxed), Relaxed);
        }
        for (mine, theirs) in self.counters().into_iter().zip(other.counters()) {
            mine.store(theirs.load(Relaxed), Relaxed);
        }
        for (mine, theirs) in
            self.longest().as_flattened().iter().zip(other.longest().as_flattened())
        {
            mine.store(theirs.load(Relaxed), Relaxed);
        }
        self.longest_collection_ns.store(other.longest_collection_ns.load(Relaxed), Relaxed);
        self.wait_began_ns.store(other.wait_began_ns.load(Relaxed), Relaxed);
        self.name.copy_from(&other.name);
        self.wait.copy_from(&other.wait);
        self.hold.copy_from(&other.hold);
    }

    /// Adds the counters of `other`, which no thread writes any more, and keeps the longer times.
    pub fn merge(&self, other: &ThreadCounters) {
        for (mine, theirs) in self.counters().into_iter().zip(other.counters()) {
            add(mine, theirs.load(Relaxed));
        }
        for ([longest, with_it], theirs) in self.longest().into_iter().zip(other.longest()) {
            let [time_ns, its_ns] = theirs.map(|time| time.load(Relaxed));
            if raise(longest, time_ns) {
                with_it.store(its_ns, Relaxed);
            }
        }
        raise(&self.longest_collection_ns, other.longest_collection_ns.load(Relaxed));
        self.wait.merge(&other.wait);
        self.hold.merge(&other.hold);
    }

    /// The number of takes and drops, which are all events that change these counters.
    pub fn events(&self) -> u64 {
        [&self.takes, &self.voluntary_drops, &self.forced_drops]
            .map(|n| n.load(Relaxed))
            .iter()
            .sum()
    }

    pub fn clear(&self) {
        for counter in self.counters() {
            counter.store(0, Relaxed);
        }
        self.longest().as_flattened().iter().for_each(|time| time.store(0, Relaxed));
        self.longest_collection_ns.store(0, Relaxed);
        self.take_after_forced_drop.store(0, Relaxed);
        self.wait_began_ns.store(0, Relaxed);
        self.aggregated.store(0, Relaxed);
        self.native_id.store(0, Relaxed);
        self.context.store(0, Relaxed);
        self.name.set(b"");
        self.wait.clear();
        self.hold.clear();
    }

    /// The counters that are sums.
    fn counters(&self) -> [&AtomicU64; 14] {
        [
            &self.takes,
            &self.contended_takes,
            &self.voluntary_drops,
            &self.forced_drops,
            &self.preemptions,
            &self.forced_waits,
            &self.forced_waited_ns,
            &self.held_at_close_ns,
            &self.waited_preventable_ns,
            &self.waited_unanswered_ns,
            &self.waited_off_core_ns,
            &self.waited_collection_ns,
            &self.collections,
            &self.collected_ns,
        ]
    }

    /// The counters that are maxima, each with the other time of the same answer.
    fn longest(&self) -> [[&AtomicU64; 2]; 2] {
        [
            [&self.longest_answer_ns, &self.cpu_in_longest_answer_ns],
            [&self.longest_answer_cpu_ns, &self.answer_with_most_cpu_ns],
        ]
    }

    /// The threads with the greatest weight stay separate after their end.
    pub fn weight_ns(&self) -> u64 {
        self.wait.sum_ns.load(Relaxed) + self.hold.sum_ns.load(Relaxed)
    }
}

/// Raises a maximum that has one writer at a time. Returns whether the value was higher.
#[inline]
pub(super) fn raise(maximum: &AtomicU64, value: u64) -> bool {
    let is_higher = value > maximum.load(Relaxed);
    if is_higher {
        maximum.store(value, Relaxed);
    }
    is_higher
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers(counters: &ThreadCounters) -> [[u64; 2]; 2] {
        counters.longest().map(|pair| pair.map(|time| time.load(Relaxed)))
    }

    #[test]
    fn a_sum_of_threads_adds_counters_and_keeps_the_longest() {
        let [sum, first, second] = [const { ThreadCounters::new() }; 3];
        for (counters, preemptions, answer_ns, cpu_ns) in [(&first, 3, 70, 5), (&second, 4, 20, 19)]
        {
            counters.preemptions.store(preemptions, Relaxed);
            counters.count_answer(answer_ns, Some(cpu_ns));
        }
        sum.merge(&first);
        sum.merge(&second);
        assert_eq!(sum.preemptions.load(Relaxed), 7);
        assert_eq!(answers(&sum), [[70, 5], [19, 20]]);
        let copy = ThreadCounters::new();
        copy.copy_from(&sum);
        assert_eq!(answers(&copy), [[70, 5], [19, 20]]);
        sum.clear();
        assert_eq!(answers(&sum), [[0, 0], [0, 0]]);
    }

    #[test]
    fn the_times_of_an_answer_stay_together() {
        let counters = ThreadCounters::new();
        for (answer_ns, cpu_ns) in [(75, Some(2)), (40, Some(39)), (80, None), (30, Some(30))] {
            counters.count_answer(answer_ns, cpu_ns);
        }
        assert_eq!(answers(&counters), [[80, 0], [39, 40]]);
    }
}
