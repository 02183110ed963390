//! The count of Gilectomy's second version: threads write logs instead of counting, and one thread
//! counts for all.
//!
//! A log is two lists of objects, one entry for each increment and one for each decrement. A thread
//! hands a full log to the `Merger`, and hands over the rest when it ends. The merger counts
//! increments as they arrive. Decrements wait until every other thread has handed over once more.
//! By then, each increment that preceded them has arrived, because it is in the log that its thread
//! had open at that time, or in an earlier one. So a count is never below the number of references,
//! and a count of 0 means that there are no references and never will be.

use std::collections::VecDeque;
use std::mem;

use crate::sync::atomic::{AtomicI64, Ordering::Relaxed};
use crate::sync::mpsc::{Receiver, SyncSender, sync_channel};
use crate::sync::{Arc, Mutex};
use crate::{Count, Deaths, lock};

/// The capacity of either list of a log.
const ENTRIES: usize = if cfg!(test) { 2 } else { 4_096 };
/// The number of logs that may wait for the merger. A thread that hands over one more waits.
const WAITING_LOGS: usize = 8;

/// | `count` | the object |
/// |---|---|
/// | above 0 | may have references |
/// | 0 | is dead |
pub struct Buffered {
    /// Writer and reader: the merger, and then the threads that have joined it. Relaxed.
    count: AtomicI64,
    deaths: Deaths,
}

type List<'a> = Vec<&'a Buffered>;
/// Empty lists for reuse in later logs. Writers and readers: all threads and the merger.
type Spare<'a> = Arc<Mutex<Vec<List<'a>>>>;

struct Batch<'a> {
    thread: usize,
    increments: List<'a>,
    decrements: List<'a>,
    is_last: bool,
}

/// The log of a thread. Dropping it hands over its entries.
pub struct Log<'a> {
    batch: Batch<'a>,
    merger: SyncSender<Batch<'a>>,
    spare: Spare<'a>,
}

impl<'a> Log<'a> {
    fn of(thread: usize, merger: &SyncSender<Batch<'a>>, spare: &Spare<'a>) -> Self {
        let [increments, decrements] = [List::with_capacity(ENTRIES), List::with_capacity(ENTRIES)];
        let batch = Batch { thread, increments, decrements, is_last: false };
        Self { batch, merger: merger.clone(), spare: Arc::clone(spare) }
    }

    #[cold]
    #[inline(never)]
    fn hand_over(&mut self) {
        let mut spare = lock(&self.spare);
        let mut list = || spare.pop().unwrap_or_else(|| List::with_capacity(ENTRIES));
        let (increments, decrements) = (list(), list());
        drop(spare);
        let next = Batch { increments, decrements, ..self.batch };
        // `send` fails only if the merger has panicked.
        let _ = self.merger.send(mem::replace(&mut self.batch, next));
    }
}

impl Drop for Log<'_> {
    fn drop(&mut self) {
        self.batch.is_last = true;
        self.hand_over();
    }
}

/// The thread that counts.
pub struct Merger<'a> {
    logs: Receiver<Batch<'a>>,
    /// A bit for each thread that has not ended.
    live: u64,
    /// Lists of decrements, each with a bit for each thread that has yet to hand over. A thread
    /// that is missing for one list is missing for all later lists, except for its own, so the
    /// first list is complete first.
    waiting: VecDeque<(u64, List<'a>)>,
    spare: Spare<'a>,
}

impl<'a> Merger<'a> {
    /// Counts until all threads have ended.
    pub fn run(mut self) {
        while let Ok(batch) = self.logs.recv() {
            self.merge(batch);
        }
    }

    fn merge(&mut self, mut batch: Batch<'a>) {
        let thread = 1 << batch.thread;
        for object in batch.increments.drain(..) {
            object.add(1);
        }
        for (missed, _) in &mut self.waiting {
            *missed &= !thread;
        }
        if batch.is_last {
            self.live &= !thread;
        }
        self.waiting.push_back((self.live & !thread, batch.decrements));
        let mut spare = vec![batch.increments];
        while let Some((0, _)) = self.waiting.front() {
            let (_, mut decrements) = self.waiting.pop_front().expect("it was seen");
            for object in decrements.drain(..) {
                if object.add(-1) == 0 {
                    object.deaths.note();
                }
            }
            spare.push(decrements);
        }
        lock(&self.spare).append(&mut spare);
    }
}

impl Buffered {
    fn add(&self, change: i64) -> i64 {
        let count = self.count.load(Relaxed) + change;
        self.count.store(count, Relaxed);
        count
    }
}

impl Count for Buffered {
    type Thread<'a> = Log<'a>;

    fn new(_: usize) -> Self {
        Self { count: AtomicI64::new(1), deaths: Deaths::none() }
    }

    fn team<'a>(threads: usize) -> (Vec<Log<'a>>, Option<Merger<'a>>) {
        let (merger, logs) = sync_channel(WAITING_LOGS);
        let spare = Spare::default();
        let team = (0..threads).map(|thread| Log::of(thread, &merger, &spare)).collect();
        let live = u64::MAX >> (u64::BITS as usize - threads);
        (team, Some(Merger { logs, live, waiting: VecDeque::new(), spare }))
    }

    #[inline(always)]
    fn incref<'a>(&'a self, log: &mut Log<'a>) {
        log.batch.increments.push(self);
        if log.batch.increments.len() == ENTRIES {
            log.hand_over();
        }
    }

    #[inline(always)]
    fn decref<'a>(&'a self, log: &mut Log<'a>) {
        log.batch.decrements.push(self);
        if log.batch.decrements.len() == ENTRIES {
            log.hand_over();
        }
    }

    fn references(&self) -> i64 {
        self.count.load(Relaxed)
    }

    fn deaths(&self) -> &Deaths {
        &self.deaths
    }
}
