//! Counters of ended threads and GILs, kept within bounds: those that waited and held least are
//! added up by name.
//!
//! Everything here runs without a GIL's mutex: where a thread ends, in a snapshot, and in the hook
//! of `pthread_cond_init`, where a new interpreter needs the counters of a GIL that ended.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicUsize, Ordering::*};

use super::process::{ENDED_GILS, ProcessCounters, ROWS};
use super::text::NAME_BYTES;
use super::thread::ThreadCounters;
use super::{free_list, state};
use crate::registry_lock::{self, RegistryGuard};

/// Ended rows that stay separate: those that waited and held most.
const ENDED_KEPT: usize = 256;
/// Ended rows at which some are aggregated.
const ENDED_LIMIT: usize = 512;
/// Names of aggregates per GIL, before all further threads share `(ended)`.
const AGGREGATE_NAMES: usize = 32;

/// The number of rows in state `ENDED`. Writers: as of that state, by atomic addition. Relaxed.
static ENDED: AtomicUsize = AtomicUsize::new(0);

/// Weights of ended rows.
struct EndedRows(UnsafeCell<[(u64, u32); ROWS]>);
// SAFETY: used in `aggregate` only, under the registry lock.
unsafe impl Sync for EndedRows {}

/// The thread of a row has ended, or its GIL.
pub fn end_row(counters: &ThreadCounters) {
    if counters.state.compare_exchange(state::LIVE, state::ENDED, AcqRel, Relaxed).is_ok() {
        ENDED.fetch_add(1, Relaxed);
    }
}

/// Ends the rows of a GIL that closes.
pub fn end_rows_of(process: &ProcessCounters, gil: usize) {
    free_list::used(process)
        .filter(|(_, counters)| counters.gil.load(Relaxed) == gil as u32)
        .for_each(|(_, counters)| end_row(counters));
}

/// Forgets all ended rows, in a forked child or at a new install, when no row is in use.
pub fn forget_ended() {
    ENDED.store(0, Relaxed);
}

/// Aggregates ended rows if there are many. Not for hooks.
pub fn aggregate_if_many(process: &ProcessCounters) {
    if ENDED.load(Relaxed) > ENDED_LIMIT {
        aggregate(process, &registry_lock::lock());
    }
}

/// Aggregates ended rows until at most [`ENDED_KEPT`] are left: those that waited and held most.
/// Sums up ended rows. Must not be called in a hook.
pub fn aggregate(process: &ProcessCounters, _registry: &RegistryGuard) {
    // Static, because a thread that ends may have as little as 32 KiB of stack.
    static ENDED_ROWS: EndedRows = EndedRows(UnsafeCell::new([(0, 0); ROWS]));
    // SAFETY: the registry lock, which the caller holds, makes this the only reference.
    let ended = unsafe { &mut *ENDED_ROWS.0.get() };
    let mut count = 0;
    for (row, counters) in free_list::used(process) {
        if counters.state.load(Acquire) == state::ENDED {
            ended[count] = (counters.weight_ns(), row);
            count += 1;
        }
    }
    let Some(excess) = count.checked_sub(ENDED_KEPT).filter(|excess| *excess > 0) else { return };
    let ended = &mut ended[..count];
    ended.select_nth_unstable(excess - 1);
    ended[..excess].iter().for_each(|(_, row)| aggregate_row(process, *row));
}

/// Adds one ended row to the aggregate of its name and frees the row. The first row of a name
/// becomes the aggregate itself.
fn aggregate_row(process: &ProcessCounters, row: u32) {
    let counters = process.thread(row);
    let mut buffer = [0; NAME_BYTES];
    let mut stem = [0; NAME_BYTES];
    let stem = stem_of(counters.name.get(&mut buffer), &mut stem);
    let threads = counters.aggregated.load(Relaxed).max(1);
    ENDED.fetch_sub(1, Relaxed);
    match aggregate_of(process, counters.gil.load(Relaxed), stem) {
        Ok(aggregate) => {
            aggregate.merge(counters);
            aggregate.aggregated.fetch_add(threads, Relaxed);
            free_row(row, counters);
        }
        Err(name) => {
            counters.native_id.store(0, Relaxed);
            counters.name.set(name);
            counters.aggregated.store(threads, Relaxed);
            counters.state.store(state::AGGREGATE, Release);
        }
    }
}

fn free_row(row: u32, counters: &ThreadCounters) {
    counters.state.store(state::FREE, Relaxed);
    counters.clear();
    free_list::push(row);
}

/// The aggregate for a stem, or that of all other names if there are many; else the name of a new
/// one.
fn aggregate_of<'p, 's>(
    process: &'p ProcessCounters,
    gil: u32,
    stem: &'s [u8],
) -> Result<&'p ThreadCounters, &'s [u8]> {
    let aggregates = || {
        free_list::used(process).map(|(_, counters)| counters).filter(move |counters| {
            counters.state.load(Relaxed) == state::AGGREGATE && counters.gil.load(Relaxed) == gil
        })
    };
    let named = |name: &[u8]| {
        let mut buffer = [0; NAME_BYTES];
        aggregates().find(|counters| counters.name.get(&mut buffer) == name)
    };
    if let Some(aggregate) = named(stem) {
        return Ok(aggregate);
    }
    let is_full = aggregates().count() >= AGGREGATE_NAMES;
    let name = if is_full { b"(ended)" } else { stem };
    named(name).ok_or(name)
}

/// A thread name without its number: without trailing digits, and without the number in the name
/// `Thread-12 (target)` of `threading`.
fn stem_of<'a>(name: &[u8], stem: &'a mut [u8; NAME_BYTES]) -> &'a [u8] {
    let space = name.iter().position(|byte| *byte == b' ');
    let head_length = space.filter(|_| name.starts_with(b"Thread-")).unwrap_or(name.len());
    let (head, tail) = name.split_at_checked(head_length).unwrap_or((name, &[]));
    let digits = head.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let head = head.iter().take(head.len() - digits);
    let mut length = 0;
    for (place, byte) in stem.iter_mut().zip(head.chain(tail)) {
        *place = *byte;
        length += 1;
    }
    stem.get(..length).unwrap_or_default()
}

/// Adds the counters of a closed GIL and its threads to those of the GILs that ended, so that its
/// entry can be used again. For the hook of `pthread_cond_init`.
pub fn aggregate_gil(process: &ProcessCounters, index: usize) {
    let _registry = registry_lock::lock();
    let (closed, sum) = (process.gil(index), process.gil(ENDED_GILS));
    let wall_ns = closed.closed_ns.load(Relaxed).saturating_sub(closed.opened_ns.load(Relaxed));
    closed.wall_ns.store(wall_ns, Relaxed);
    sum.merge(closed);
    sum.held_at_open.fetch_add(closed.held_at_open.load(Relaxed), Relaxed);
    sum.held_now.fetch_add(closed.held_now.load(Relaxed), Relaxed);
    sum.aggregated.fetch_add(1, Relaxed);
    sum.interpreter.store(-1, Relaxed);
    sum.state.store(state::AGGREGATE, Release);
    for (row, counters) in free_list::used(process) {
        let present = counters.state.load(Relaxed);
        if counters.gil.load(Relaxed) != index as u32 || present == state::FREE {
            continue;
        }
        if present == state::AGGREGATE && counters.takes.load(Relaxed) == 0 {
            free_row(row, counters);
            continue;
        }
        counters.gil.store(ENDED_GILS as u32, Relaxed);
        if counters.state.swap(state::ENDED, Relaxed) != state::ENDED {
            ENDED.fetch_add(1, Relaxed);
        }
        aggregate_row(process, row);
    }
    closed.state.store(state::FREE, Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stem_is_the_name_without_its_number() {
        let cases: [(&[u8], &[u8]); 6] = [
            (b"worker-17", b"worker-"),
            (b"Thread-12 (serve)", b"Thread- (serve)"),
            (b"ThreadPoolExecutor-0_3", b"ThreadPoolExecutor-0_"),
            (b"MainThread", b"MainThread"),
            (b"2024", b""),
            (b"", b""),
        ];
        for (name, stem) in cases {
            assert_eq!(stem_of(name, &mut [0; NAME_BYTES]), stem);
        }
    }
}
