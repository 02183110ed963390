//! The rows, and so the counters, that belong to each thread.
//!
//! `of_this_thread` runs in hooks with the GIL's mutex held, and takes no lock.

use std::sync::atomic::Ordering::*;

use super::gils;
use super::threads::{Link, Thread, current, current_or_new, this_thread};
use crate::counters::{ProcessCounters, ThreadCounters, free_list, state};
use crate::gil::Gil;
use crate::queue::waiters;

/// The row of the calling thread for `gil`, and its counters; a new row in the thread's first
/// event. If no row is free, the GIL's row for unmeasured threads. For hooks, with the GIL's mutex
/// held.
#[inline]
pub fn of_this_thread(
    gil: &'static Gil,
    process: &'static ProcessCounters,
) -> Option<(u32, &'static ThreadCounters)> {
    if let Some(thread) = current() {
        let serial = gil.serial.load(Relaxed);
        for link in &thread.links {
            if link.serial.load(Relaxed) == serial {
                return Some((link.row.load(Relaxed), link.counters()));
            }
        }
    }
    first_event(gil, process)
}

#[cold]
#[inline(never)]
fn first_event(
    gil: &'static Gil,
    process: &'static ProcessCounters,
) -> Option<(u32, &'static ThreadCounters)> {
    if let Some(found) = current().and_then(|thread| link_again(thread, gil, process)) {
        return Some(found);
    }
    // Without a free row nothing is searched: this may be every event of thousands of threads.
    let thread = if free_list::is_empty() { None } else { current_or_new() };
    let Some((thread, row)) = thread.and_then(|thread| Some((thread, free_list::pop(process)?)))
    else {
        process.unmeasured.fetch_add(1, Relaxed);
        return unmeasured(gil, process);
    };
    let counters = process.thread(row);
    counters.gil.store(gil.index as u32, Relaxed);
    counters.native_id.store(thread.native_id.load(Relaxed), Relaxed);
    counters.name.copy_from(&thread.name);
    waiters::clear(row);
    counters.state.store(state::LIVE, Release);
    link_to_write(thread).set(gil.serial.load(Relaxed), row, counters);
    Some((row, counters))
}

/// Finds the row of a GIL whose link was replaced.
fn link_again(
    thread: &'static Thread,
    gil: &'static Gil,
    process: &'static ProcessCounters,
) -> Option<(u32, &'static ThreadCounters)> {
    if !thread.has_replaced_links() {
        return None;
    }
    let native_id = thread.native_id.load(Relaxed);
    let (row, counters) = free_list::used(process).find(|(_, counters)| {
        counters.state.load(Relaxed) == state::LIVE
            && counters.native_id.load(Relaxed) == native_id
            && counters.gil.load(Relaxed) == gil.index as u32
    })?;
    link_to_write(thread).set(gil.serial.load(Relaxed), row, counters);
    Some((row, counters))
}

fn unmeasured(
    gil: &'static Gil,
    process: &'static ProcessCounters,
) -> Option<(u32, &'static ThreadCounters)> {
    let row = gil.unmeasured.load(Relaxed);
    process.threads.get(row as usize).map(|counters| (row, counters))
}

/// An unused link, one whose GIL has ended, or, in turn, one that is replaced.
fn link_to_write(thread: &'static Thread) -> &'static Link {
    let is_free = |link: &&Link| {
        let serial = link.serial.load(Relaxed);
        serial == 0 || !gils::is_current(serial)
    };
    thread.links.iter().find(is_free).unwrap_or_else(|| thread.next_link_to_replace())
}

/// The links of the calling thread to open GILs. A GIL that ends leaves its threads' links, whose
/// rows may belong to other threads.
pub fn open_links_of_this_thread() -> impl Iterator<Item = &'static Link> {
    let links = current().map_or(&[][..], |thread| &thread.links);
    links.iter().filter(|link| {
        let serial = link.serial.load(Relaxed);
        serial != 0 && gils::is_current(serial)
    })
}

/// As `open_links_of_this_thread`, without the link for waits without a GIL.
fn links_to_gils_of_this_thread() -> impl Iterator<Item = &'static Link> {
    let no_gil = gils::no_gil().serial.load(Relaxed);
    open_links_of_this_thread().filter(move |link| link.serial.load(Relaxed) != no_gil)
}

/// The counters that the calling thread has for open GILs.
pub fn counters_of_this_thread() -> impl Iterator<Item = &'static ThreadCounters> {
    links_to_gils_of_this_thread().map(Link::counters)
}

/// The counters of the calling thread's waits without a GIL; see `parked_waits`. For hooks.
pub fn waits_without_gil_of_this_thread() -> Option<&'static ThreadCounters> {
    let no_gil = gils::no_gil().serial.load(Relaxed);
    let mut links = current().map_or(&[][..], |thread| &thread.links).iter();
    links.find(|link| no_gil != 0 && link.serial.load(Relaxed) == no_gil).map(Link::counters)
}

/// The rows that the calling thread has for open GILs that it does not hold.
pub fn rows_without_gil_of_this_thread() -> impl Iterator<Item = u32> {
    let holds = |serial: u32| {
        let mut held = gils::all().iter().filter(|gil| gil.serial.load(Relaxed) == serial);
        held.any(|gil| gil.holder_thread.load(Relaxed) == this_thread())
    };
    links_to_gils_of_this_thread()
        .filter(move |link| !holds(link.serial.load(Relaxed)))
        .map(|link| link.row.load(Relaxed))
}

/// The rows that the calling thread has for open GILs.
pub fn rows_of_this_thread() -> impl Iterator<Item = u32> {
    links_to_gils_of_this_thread().map(|link| link.row.load(Relaxed))
}
