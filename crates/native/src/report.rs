//! Snapshots as Python dicts, in nanoseconds; `headway.gil` makes the report's seconds of them.
//!
//! Called with a thread state attached. Every function returns a new reference, or null with an
//! exception set.

use std::ffi::c_int;
use std::ptr;

use headway_gil::{GilRow, ParkRow, Parks, Snapshot, ThreadRow, Trace};
use headway_measure::Histogram;
use headway_measure::scale::upper_bound_ns;
use pyo3_ffi::*;

use crate::gil::none;

/// A new list of what `object` makes of each item; null, with an exception, if one is null.
pub fn list<T>(
    items: impl IntoIterator<Item = T>,
    object: impl Fn(T) -> *mut PyObject,
) -> *mut PyObject {
    // SAFETY: a thread state is attached; each reference has one owner.
    unsafe {
        let list = PyList_New(0);
        for item in items {
            let object = object(item);
            if list.is_null() || object.is_null() || PyList_Append(list, object) < 0 {
                Py_DecRef(object);
                Py_DecRef(list);
                return ptr::null_mut();
            }
            Py_DecRef(object);
        }
        list
    }
}

fn optional(number: Option<u64>) -> *mut PyObject {
    // SAFETY: a thread state is attached.
    number.map_or_else(none, |number| unsafe { PyLong_FromUnsignedLongLong(number) })
}

pub fn string(text: &str) -> *mut PyObject {
    // SAFETY: the pointer and length describe UTF-8 text.
    unsafe { PyUnicode_FromStringAndSize(text.as_ptr().cast(), text.len() as Py_ssize_t) }
}

fn boolean(value: bool) -> *mut PyObject {
    // SAFETY: a thread state is attached.
    unsafe { PyBool_FromLong(value.into()) }
}

// In the formats below `N` takes over a new reference (null passes an error on), `K` is a u64, `I` a u32,
// `i` an int.

pub fn process_dict(snapshot: &Snapshot) -> *mut PyObject {
    // SAFETY: formats and arguments agree, pair by pair.
    unsafe {
        Py_BuildValue(
            c"{s:i,s:N,s:N,s:N,s:N,s:N,s:N,s:N,s:K,s:K,s:N,s:N,s:N,s:K,s:N,s:I}".as_ptr(),
            c"pid".as_ptr(),
            snapshot.pid as c_int,
            c"parent_pid".as_ptr(),
            optional(snapshot.parent_pid.map(|pid| pid as u64)),
            c"forked_from".as_ptr(),
            optional(snapshot.forked_from.map(|pid| pid as u64)),
            c"command".as_ptr(),
            list(&snapshot.command, |argument| string(argument)),
            c"alive".as_ptr(),
            boolean(snapshot.alive),
            c"python".as_ptr(),
            string(&snapshot.python),
            c"gil_enabled".as_ptr(),
            boolean(snapshot.gil_enabled),
            c"policy".as_ptr(),
            string(snapshot.policy),
            c"switch_interval_us".as_ptr(),
            snapshot.switch_interval_us,
            c"wall_ns".as_ptr(),
            snapshot.wall_ns,
            c"gils".as_ptr(),
            list(&snapshot.gils, gil_dict),
            c"threads".as_ptr(),
            list(&snapshot.threads, thread_dict),
            c"parks".as_ptr(),
            snapshot.parks.as_ref().map_or_else(none, parks_dict),
            c"unmeasured_events".as_ptr(),
            snapshot.unmeasured_events,
            c"children".as_ptr(),
            list(&snapshot.children, process_dict),
            c"unlisted_children".as_ptr(),
            snapshot.unlisted_children,
        )
    }
}

/// `events` are pairs of unsigned 64-bit words, little-endian: see `headway.timeline.events`.
pub fn trace_dict(trace: &Trace) -> *mut PyObject {
    let events: Vec<u8> =
        trace.events.iter().flatten().flat_map(|number| number.to_le_bytes()).collect();
    let thread = |(native_id, name): &(u32, String)| {
        // SAFETY: formats and arguments agree, pair by pair.
        unsafe { Py_BuildValue(c"(IN)".as_ptr(), *native_id, string(name)) }
    };
    let gil = |(serial, interpreter, name): &(u32, i64, String)| {
        let interpreter = optional(u64::try_from(*interpreter).ok());
        // SAFETY: as above.
        unsafe { Py_BuildValue(c"(INN)".as_ptr(), *serial, interpreter, string(name)) }
    };
    // SAFETY: as above; the bytes are copied.
    unsafe {
        Py_BuildValue(
            c"{s:K,s:K,s:K,s:N,s:N,s:N}".as_ptr(),
            c"began_ns".as_ptr(),
            trace.began_ns,
            c"ended_ns".as_ptr(),
            trace.ended_ns,
            c"lost".as_ptr(),
            trace.lost,
            c"events".as_ptr(),
            PyBytes_FromStringAndSize(events.as_ptr().cast(), events.len() as Py_ssize_t),
            c"threads".as_ptr(),
            list(&trace.threads, thread),
            c"gils".as_ptr(),
            list(&trace.gils, gil),
        )
    }
}

fn gil_dict(row: &GilRow) -> *mut PyObject {
    // SAFETY: formats and arguments agree, pair by pair.
    unsafe {
        Py_BuildValue(
            c"{s:I,s:N,s:N,s:N,s:I,s:I,s:I,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K}"
                .as_ptr(),
            c"id".as_ptr(),
            row.id,
            c"name".as_ptr(),
            string(&row.name),
            c"interpreter".as_ptr(),
            optional(row.interpreter.map(|id| id as u64)),
            c"alive".as_ptr(),
            boolean(row.alive),
            c"folded".as_ptr(),
            row.folded,
            c"held_at_open".as_ptr(),
            row.held_at_open,
            c"held_now".as_ptr(),
            row.held_now,
            c"wall_ns".as_ptr(),
            row.wall_ns,
            c"held_ns".as_ptr(),
            row.held_ns,
            c"handoff_ns".as_ptr(),
            row.handoff_ns,
            c"idle_ns".as_ptr(),
            row.idle_ns,
            c"takes".as_ptr(),
            row.takes,
            c"contended_takes".as_ptr(),
            row.contended_takes,
            c"voluntary_drops".as_ptr(),
            row.voluntary_drops,
            c"forced_drops".as_ptr(),
            row.forced_drops,
            c"drop_requests".as_ptr(),
            row.drop_requests,
            c"preemptions".as_ptr(),
            row.preemptions,
            c"longest_io_bound_wait_ns".as_ptr(),
            row.longest_io_bound_wait_ns,
            c"longest_cpu_bound_wait_ns".as_ptr(),
            row.longest_cpu_bound_wait_ns,
            c"anomalies".as_ptr(),
            row.anomalies,
        )
    }
}

fn thread_dict(row: &ThreadRow) -> *mut PyObject {
    // SAFETY: formats and arguments agree, pair by pair.
    unsafe {
        Py_BuildValue(
            c"{s:I,s:N,s:N,s:N,s:I,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:N,s:N}".as_ptr(),
            c"gil".as_ptr(),
            row.gil,
            c"native_id".as_ptr(),
            optional(row.native_id.map(u64::from)),
            c"name".as_ptr(),
            string(&row.name),
            c"alive".as_ptr(),
            boolean(row.alive),
            c"folded".as_ptr(),
            row.folded,
            c"held_ns".as_ptr(),
            row.held_ns,
            c"takes".as_ptr(),
            row.takes,
            c"contended_takes".as_ptr(),
            row.contended_takes,
            c"voluntary_drops".as_ptr(),
            row.voluntary_drops,
            c"forced_drops".as_ptr(),
            row.forced_drops,
            c"preemptions".as_ptr(),
            row.preemptions,
            c"forced_waits".as_ptr(),
            row.forced_waits,
            c"forced_waited_ns".as_ptr(),
            row.forced_waited_ns,
            c"longest_answer_ns".as_ptr(),
            row.longest_answer_ns,
            c"longest_answer_cpu_ns".as_ptr(),
            row.longest_answer_cpu_ns,
            c"wait".as_ptr(),
            histogram_dict(&row.wait),
            c"hold".as_ptr(),
            histogram_dict(&row.hold),
        )
    }
}

fn parks_dict(parks: &Parks) -> *mut PyObject {
    // SAFETY: formats and arguments agree, pair by pair.
    unsafe {
        Py_BuildValue(
            c"{s:N,s:N}".as_ptr(),
            c"cpu_ns".as_ptr(),
            optional(parks.cpu_ns),
            c"threads".as_ptr(),
            list(&parks.threads, park_dict),
        )
    }
}

fn park_dict(row: &ParkRow) -> *mut PyObject {
    // SAFETY: formats and arguments agree, pair by pair.
    unsafe {
        Py_BuildValue(
            c"{s:N,s:N,s:N,s:I,s:K,s:K,s:N,s:N}".as_ptr(),
            c"native_id".as_ptr(),
            optional(row.native_id.map(u64::from)),
            c"name".as_ptr(),
            string(&row.name),
            c"alive".as_ptr(),
            boolean(row.alive),
            c"folded".as_ptr(),
            row.folded,
            c"stopping".as_ptr(),
            row.stopping,
            c"stopping_ns".as_ptr(),
            row.stopping_ns,
            c"parked".as_ptr(),
            histogram_dict(&row.parked),
            c"suspended".as_ptr(),
            histogram_dict(&row.suspended),
        )
    }
}

fn histogram_dict(histogram: &Histogram) -> *mut PyObject {
    let recorded = |ns: u64| (!histogram.is_empty()).then_some(ns);
    // SAFETY: formats and arguments agree, pair by pair.
    unsafe {
        let bucket = |(bucket, count): &(u16, u64)| {
            Py_BuildValue(c"(KK)".as_ptr(), upper_bound_ns(usize::from(*bucket)), *count)
        };
        Py_BuildValue(
            c"{s:K,s:K,s:N,s:N,s:N}".as_ptr(),
            c"count".as_ptr(),
            histogram.count(),
            c"sum_ns".as_ptr(),
            histogram.sum_ns,
            c"min_ns".as_ptr(),
            optional(recorded(histogram.min_ns)),
            c"max_ns".as_ptr(),
            optional(recorded(histogram.max_ns)),
            c"buckets".as_ptr(),
            list(&histogram.counts, bucket),
        )
    }
}
