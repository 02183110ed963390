//! The end of a measured thread.

use std::ffi::c_void;
use std::panic::catch_unwind;
use std::sync::atomic::Ordering::*;

use headway_threads::process_end;

use super::gils;
use super::threads::Thread;
use crate::counters::{self, NAME_BYTES, aggregation, free_list};
use crate::{loops, profile, registry_lock, trace};

/// The destructor of the key of `threads`. Runs in each measured thread as it ends, usually after
/// its last event. If a later destructor uses Python, the thread gets a new entry.
///
/// # Safety
/// `thread` is an entry of the table of threads, that of the calling thread.
pub unsafe extern "C" fn end_of_thread(thread: *mut c_void) {
    // SAFETY: the pointer is that of an entry, as the caller promises, and entries are static.
    let thread = unsafe { &*thread.cast::<Thread>() };
    // A panic would abort the process. It leaves the thread's rows as they are.
    let _ = catch_unwind(|| end(thread));
}

fn end(thread: &Thread) {
    if process_end::note_end_of_thread() {
        profile::wake_sampler();
    }
    let Some(process) = counters::of_this_process() else { return };
    let registry = registry_lock::lock();
    let native_id = thread.native_id.load(Relaxed);
    let mut buffer = [0; NAME_BYTES];
    let name = Some(thread.name.get(&mut buffer)).filter(|name| !name.is_empty());
    // A named thread needs no system call, which a seccomp filter may forbid.
    let mut kernel_name = [0_u8; 16];
    if name.is_none() {
        // SAFETY: PR_GET_NAME writes at most 16 bytes.
        unsafe { libc::prctl(libc::PR_GET_NAME, kernel_name.as_mut_ptr()) };
    }
    let kernel_name = kernel_name.split(|byte| *byte == 0).next().unwrap_or_default();
    let name = name.unwrap_or(kernel_name);
    trace::name_thread(native_id, name);
    profile::name_thread(native_id, name);
    for link in &thread.links {
        let serial = link.serial.swap(0, Relaxed);
        if serial != 0 && gils::is_current(serial) {
            let counters = link.counters();
            if counters.name.is_empty() {
                counters.name.set(name);
            }
            aggregation::end_row(counters);
        }
    }
    loops::thread_ended(thread, process, name, &registry);
    if thread.has_replaced_links() {
        thread.forget_replaced_links();
        free_list::used(process)
            .filter(|(_, counters)| counters.native_id.load(Relaxed) == native_id)
            .for_each(|(_, counters)| aggregation::end_row(counters));
    }
    thread.free();
    drop(registry);
    aggregation::aggregate_if_many(process);
    free_list::prepare(process);
}
