//! `_native.gc_watch`: reports the passes of the calling interpreter's garbage collector.
//!
//! A built-in function in `gc.callbacks`: CPython calls it with ("start" or "stop", a dict) around
//! each pass. It reads the clock and a few small ints. The reporter's thread reads them without the
//! GIL.

use crate::forks;
use headway_measure::clock::now_ns;
use headway_python::attached::Attached;
use headway_python::capsule::{self, InCapsule};
use headway_python::convert::arguments;
use headway_python::exception::clear_raised;
use headway_python::function::{END, Methods, function, method};
use headway_python::object::{Object, PyResult};
use headway_python::stored::Stored;
use headway_reporter::gc_pauses::{self, GENERATIONS, Pass, Passes};
use std::ffi::CStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

pub static FUNCTIONS: Methods<2> = Methods::new([
    function(
        c"gc_watch",
        gc_watch,
        c"gc_watch(name: str)\n\
          \n\
          Begins to report the passes of this interpreter's garbage collector, as those of\n\
          application group `name`. A second call in the same interpreter has no effect.",
    ),
    END,
]);

static CALLBACK: Methods<2> = Methods::new([
    method(
        c"headway_gc_watch",
        note_pass,
        c"Measures passes of the garbage collector for Headway's telemetry.",
    ),
    END,
]);

/// The period at which facts are read. They change with the program's settings or are one number of
/// many, so they are read less often than passes are reported.
const FACTS_NS: u64 = 200_000_000;
/// The period at which frozen objects are counted. CPython walks over all of them to count them.
const FROZEN_NS: u64 = 10_000_000_000;

/// The state of the callback, in a capsule. One pass at a time runs in an interpreter, so its
/// atomic fields have one writer and one reader, the callback; relaxed.
struct Watcher {
    passes: Arc<Passes>,
    generation: Stored,
    collected: Stored,
    uncollectable: Stored,
    gc: Stored,
    began_ns: AtomicU64,
    facts_read_ns: AtomicU64,
    frozen_read_ns: AtomicU64,
}

// SAFETY: no other type has this name.
unsafe impl InCapsule for Watcher {
    const NAME: &'static CStr = c"headway._native.gc_watch";
}

fn gc_watch<'py>(py: Attached<'py>, given: &[Object<'py>]) -> PyResult<Object<'py>> {
    let (name,): (&str,) = arguments(py, "gc_watch", given)?;
    let gc = Object::import(py, c"gc")?;
    let callbacks = gc.attribute(c"callbacks")?;
    if callbacks.items()?.iter().any(|callback| CALLBACK.is_bound_in(callback)) {
        return Ok(Object::none(py));
    }
    let key = |text| Stored::interned(py, text);
    let watcher = Watcher {
        passes: gc_pauses::watch(name),
        generation: key(c"generation")?,
        collected: key(c"collected")?,
        uncollectable: key(c"uncollectable")?,
        gc: Stored::new(gc),
        began_ns: AtomicU64::new(0),
        facts_read_ns: AtomicU64::new(0),
        frozen_read_ns: AtomicU64::new(0),
    };
    watcher.read_earlier(py)?;
    watcher.read_facts(py, now_ns())?;
    callbacks.append(&CALLBACK.bind(&capsule::new(py, watcher)?)?)?;
    Ok(Object::none(py))
}

/// The callback. It returns None whatever its arguments: CPython would print an exception on stderr
/// at each pass.
fn note_pass<'py>(this: &Object<'py>, arguments: &[Object<'py>]) -> PyResult<Object<'py>> {
    let py = this.py();
    if let [phase, info] = arguments {
        if capsule::value::<Watcher>(this).and_then(|watcher| watcher.note(phase, info)).is_err() {
            clear_raised(py);
        }
    }
    forks::retry();
    Ok(Object::none(py))
}

impl Watcher {
    fn note(&self, phase: &Object, info: &Object) -> PyResult<()> {
        let now_ns = now_ns();
        if !phase.is_text() || !info.is_dict() {
            return Ok(());
        }
        let phase = phase.as_text()?;
        if phase == "start" {
            self.began_ns.store(now_ns, Relaxed);
            return Ok(());
        }
        let began_ns = self.began_ns.load(Relaxed);
        self.began_ns.store(0, Relaxed);
        // Without a start time, the callback was added during a pass.
        if began_ns == 0 || phase != "stop" {
            return Ok(());
        }
        self.passes.note(Pass {
            began_ns,
            took_ns: now_ns.saturating_sub(began_ns),
            generation: number_in(info, &self.generation)?,
            collected: number_in(info, &self.collected)?,
            uncollectable: number_in(info, &self.uncollectable)?,
        });
        if now_ns.saturating_sub(self.facts_read_ns.load(Relaxed)) >= FACTS_NS {
            self.read_facts(info.py(), now_ns)?;
        }
        Ok(())
    }

    fn read_facts(&self, py: Attached, now_ns: u64) -> PyResult<()> {
        self.facts_read_ns.store(now_ns, Relaxed);
        let facts = self.passes.facts();
        self.read_three(py, c"get_count", &facts.counts)?;
        self.read_three(py, c"get_threshold", &facts.thresholds)?;
        let is_enabled = self.gc.get(py).call_method(c"isenabled", [])?.is_true()?;
        facts.is_enabled.store(u64::from(is_enabled), Relaxed);
        let frozen_read_ns = self.frozen_read_ns.load(Relaxed);
        if frozen_read_ns == 0 || now_ns.saturating_sub(frozen_read_ns) >= FROZEN_NS {
            self.frozen_read_ns.store(now_ns, Relaxed);
            let frozen = self.gc.get(py).call_method(c"get_freeze_count", [])?.to_i64()?;
            facts.frozen.store(frozen.max(0) as u64, Relaxed);
        }
        Ok(())
    }

    /// Reads the collector's counters from before it was watched.
    fn read_earlier(&self, py: Attached) -> PyResult<()> {
        let stats = self.gc.get(py).call_method(c"get_stats", [])?;
        let collections = Stored::interned(py, c"collections")?;
        for (generation, earlier) in self.passes.facts().earlier.iter().enumerate() {
            let counters = stats.item(generation)?;
            let keys = [&collections, &self.collected, &self.uncollectable];
            for (counter, key) in earlier.iter().zip(keys) {
                counter.store(number_in(&counters, key)?, Relaxed);
            }
        }
        Ok(())
    }

    fn read_three(
        &self,
        py: Attached,
        method: &CStr,
        numbers: &[AtomicU64; GENERATIONS],
    ) -> PyResult<()> {
        let three = self.gc.get(py).call_method(method, [])?;
        for (index, number) in numbers.iter().enumerate() {
            number.store(three.item(index)?.to_i64()?.max(0) as u64, Relaxed);
        }
        Ok(())
    }
}

/// Returns the number under a key, or 0 without the key.
fn number_in(dict: &Object, key: &Stored) -> PyResult<u64> {
    let value = dict.get_item(key.get(dict.py()))?;
    value.map_or(Ok(0), |value| Ok(value.to_i64()?.max(0) as u64))
}
