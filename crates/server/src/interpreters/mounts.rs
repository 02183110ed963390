//! Application groups: which interpreter runs which request.
//!
//! A group has one or more interpreter slots. Each slot has a current interpreter, which a newer
//! one may replace. The longest URL path that matches selects the group. Within a group a thread
//! always goes to the same slot, so that as many threads run in parallel as there are GILs.

use crate::http::Rejection;
use crate::http::path::{Target, decode_path, is_at_or_below};
use crate::http::response::HopByHopFields;
use crate::interpreters::interpreter::Interpreter;
use crate::interpreters::thread_state::{ThreadMeter, WorkerThreadState};
use crate::limits::inbox::Inbox;
use crate::request::{Application, RequestContext};
use crate::stderr::log_to_stderr;
use headway_python::attached::Attached;
use headway_python::object::PyResult;
use headway_threads::lock::Lock;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering::*};
use std::sync::{Arc, Condvar, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// The longest time until a waiting thread notices the end of the server.
const LOOK: Duration = Duration::from_millis(200);

/// An application's URL path ("" for the root), and the index of its group.
pub struct Mount {
    pub path: Vec<u8>,
    pub group: usize,
    /// The hop-by-hop fields of its responses that the log has named, as `HopByHopFields`. Written
    /// and read by worker threads after a request; relaxed: the exchange lets one of two write the
    /// line.
    named: AtomicU8,
}

impl Mount {
    pub fn new(path: Vec<u8>, group: usize) -> Self {
        Self { path, group, named: AtomicU8::new(0) }
    }

    /// Logs each field once, because an application sends it with each response.
    fn name_fields(&self, left_out: HopByHopFields) {
        let named = self.named.fetch_or(left_out.0, Relaxed);
        let path = String::from_utf8_lossy(&self.path).escape_debug().to_string();
        for name in HopByHopFields(left_out.0 & !named).names() {
            log_to_stderr(&format!(
                "the application at {}: the response's field {name} is left out, because hop-by-hop \
                 fields belong to the server (PEP 3333); later ones are left out without a message",
                if path.is_empty() { "/" } else { &path },
            ));
        }
    }

    fn matches(&self, path: &[u8]) -> bool {
        is_at_or_below(path, &self.path)
    }
}

pub struct GroupSettings {
    /// At least 1.
    pub interpreters: usize,
    /// An interpreter is replaced after this many requests; 0 means never.
    pub maximum_requests: u64,
    /// The switch interval of threads while they serve this group, if it shares a GIL with others.
    pub switch_interval_ns: Option<u64>,
}

pub struct ApplicationGroups {
    /// The longest path first.
    mounts: Vec<Mount>,
    groups: Vec<Group>,
    slots: Vec<InterpreterSlot>,
    /// The number of worker threads so far. Written by each as it joins; relaxed.
    threads: AtomicUsize,
    /// Slots that need an interpreter, or a newer one.
    pub wanted: Inbox<usize>,
    /// Interpreters that were admitted and still exist. Locked by the interpreter manager and by
    /// the thread that interrupts requests.
    admitted: Lock<Vec<Weak<Interpreter>>>,
    /// How often worker threads were asked to leave draining interpreters. Written by the
    /// interpreter manager after an interpreter's `is_draining`, read by worker threads between
    /// requests; `SeqCst`.
    drains: AtomicUsize,
    /// Written by `end`, read by waiting threads; `SeqCst`.
    has_ended: AtomicBool,
}

struct Group {
    /// The index of its first slot.
    first: usize,
    settings: GroupSettings,
}

#[derive(Default)]
struct InterpreterSlot {
    /// The number of the current interpreter. Written by the interpreter manager while it has
    /// `current` locked (Release), read by worker threads before each request (Acquire).
    generation: AtomicU64,
    current: Lock<Current>,
    changed: Condvar,
}

#[derive(Default)]
struct Current {
    interpreter: Option<Arc<Interpreter>>,
    /// The slot is in `wanted`, or the interpreter manager is working on it.
    is_wanted: bool,
    /// The number of attempts to make an interpreter that failed.
    failures: u64,
}

impl InterpreterSlot {
    fn lock(&self) -> MutexGuard<'_, Current> {
        self.current.lock()
    }
}

/// The state of one worker thread.
pub struct WorkerThread {
    number: usize,
    meter: ThreadMeter,
    /// The switch interval that the meter has for the thread.
    switch_interval_ns: Option<u64>,
    /// The thread's state in the main interpreter, if requests run there.
    main: Option<WorkerThreadState>,
    /// The current interpreter of each slot when the thread last used it, with its generation.
    current: Vec<Option<(u64, Arc<Interpreter>)>>,
    /// Interpreters that were replaced, in which the thread may have a thread state.
    former: Vec<Arc<Interpreter>>,
    /// The value of `ApplicationGroups::drains` that the thread has obeyed.
    drains: usize,
}

impl WorkerThread {
    /// Forgets the current interpreter of a slot, because the slot has another one or will have
    /// one.
    fn forget(&mut self, slot: usize) {
        self.former.extend(self.current[slot].take().map(|(_, interpreter)| interpreter));
    }
}

impl ApplicationGroups {
    /// `groups` is not empty; the first group gets requests that no path matches.
    pub fn new(mut mounts: Vec<Mount>, groups: Vec<GroupSettings>) -> Self {
        mounts.sort_by_key(|mount| std::cmp::Reverse(mount.path.len()));
        let mut first = 0;
        let groups: Vec<_> = groups
            .into_iter()
            .map(|settings| {
                let group = Group { first, settings };
                first += group.settings.interpreters;
                group
            })
            .collect();
        Self {
            mounts,
            groups,
            slots: (0..first).map(|_| InterpreterSlot::default()).collect(),
            threads: AtomicUsize::new(0),
            wanted: Inbox::default(),
            admitted: Lock::default(),
            drains: AtomicUsize::new(0),
            has_ended: AtomicBool::new(false),
        }
    }

    /// Makes an interpreter the current one of a slot.
    pub fn admit(&self, slot: usize, interpreter: Arc<Interpreter>) {
        let Some(slot) = self.slots.get(slot) else { return };
        let mut admitted = self.admitted.lock();
        admitted.retain(|each| each.strong_count() > 0);
        admitted.push(Arc::downgrade(&interpreter));
        drop(admitted);
        let mut current = slot.lock();
        // The capsule of the former interpreter holds it too, so that it is not dropped here.
        current.interpreter = Some(interpreter);
        current.is_wanted = false;
        slot.generation.fetch_add(1, Release);
        slot.changed.notify_all();
    }

    /// Notes that no interpreter could be made for the slot. Requests that wait for one are
    /// answered with an error, and the next request asks again.
    pub fn fail(&self, slot: usize) {
        let Some(slot) = self.slots.get(slot) else { return };
        let mut current = slot.lock();
        current.failures += 1;
        current.is_wanted = false;
        slot.changed.notify_all();
    }

    /// Makes all threads stop waiting for interpreters.
    pub fn end(&self) {
        self.has_ended.store(true, SeqCst);
        self.slots.iter().for_each(|slot| slot.changed.notify_all());
    }

    /// The interpreter with this number, even if it was replaced and still runs requests.
    pub fn interpreter(&self, number: usize) -> Option<Arc<Interpreter>> {
        let admitted = self.admitted.lock();
        admitted.iter().filter_map(Weak::upgrade).find(|each| each.number == number)
    }

    /// Asks worker threads to leave draining interpreters. The caller wakes them.
    pub fn drain(&self) {
        self.drains.fetch_add(1, SeqCst);
    }

    /// Called by a new worker thread, attached to the main interpreter.
    pub fn join(&self, py: Attached) -> PyResult<WorkerThread> {
        let main = self
            .slots
            .iter()
            .filter_map(|slot| slot.lock().interpreter.clone())
            .find(|interpreter| interpreter.is_main());
        let adapter = main.and_then(|interpreter| interpreter.adapter());
        Ok(WorkerThread {
            number: self.threads.fetch_add(1, Relaxed),
            meter: ThreadMeter::of_this_thread(),
            switch_interval_ns: None,
            main: adapter.map(|adapter| WorkerThreadState::current(py, &adapter)).transpose()?,
            current: self.slots.iter().map(|_| None).collect(),
            former: Vec::new(),
            drains: 0,
        })
    }

    /// Deletes the thread states that the thread has in sub-interpreters. Called detached, by that
    /// thread.
    pub fn leave(&self, thread: &mut WorkerThread) {
        (0..thread.current.len()).for_each(|slot| thread.forget(slot));
        thread.former.drain(..).for_each(|interpreter| interpreter.leave(thread.number));
    }

    fn group_of(&self, context: &RequestContext) -> &Group {
        if let [only] = &self.groups[..] {
            return only;
        }
        &self.groups[self.mount_of(context).map_or(0, |mount| mount.group)]
    }

    fn mount_of(&self, context: &RequestContext) -> Option<&Mount> {
        let mut buffer = Vec::new();
        let path = decoded_path(context, &mut buffer);
        self.mounts.iter().find(|mount| mount.matches(path))
    }

    /// Describes the request's application, if slow requests are reported.
    fn describe_path(&self, context: &RequestContext) {
        let Some(mut in_flight) = context.worker_status().describe() else { return };
        let mut buffer = Vec::new();
        let path = decoded_path(context, &mut buffer);
        let mount = self.mounts.iter().find(|mount| mount.matches(path));
        let (script_name, path_info) = path.split_at(mount.map_or(0, |mount| mount.path.len()));
        in_flight.description.script_name.set_path(script_name);
        in_flight.description.path_info.set_path(path_info);
    }

    /// Resolves the current interpreter of a slot, and waits for one if there is none yet.
    fn resolve(&self, slot: usize, thread: &mut WorkerThread) {
        let generation = self.slots[slot].generation.load(Acquire);
        if thread.current[slot].as_ref().is_none_or(|(of, _)| *of != generation) {
            thread.forget(slot);
            thread.current[slot] = self.wait_for(slot);
        }
    }

    fn wait_for(&self, index: usize) -> Option<(u64, Arc<Interpreter>)> {
        let slot = &self.slots[index];
        let mut current = slot.lock();
        let failures = current.failures;
        loop {
            if let Some(interpreter) = &current.interpreter {
                return Some((slot.generation.load(Relaxed), Arc::clone(interpreter)));
            }
            if current.failures != failures || self.has_ended.load(SeqCst) {
                return None;
            }
            self.request_interpreter(index, &mut current);
            current =
                slot.changed.wait_timeout(current, LOOK).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Asks the interpreter manager for an interpreter, or for a newer one.
    fn request_interpreter(&self, slot: usize, current: &mut Current) {
        if !std::mem::replace(&mut current.is_wanted, true) {
            self.wanted.push(slot);
        }
    }

    /// Runs a request in the interpreter of its application group that this thread uses.
    fn run(&self, thread: &mut WorkerThread, context: &mut RequestContext) {
        let Group { first, settings: group } = self.group_of(context);
        let slot = first + thread.number % group.interpreters;
        context.note_slot(slot);
        context.worker_status().set_slot(slot);
        context.worker_status().set_interpreter_number(0);
        self.describe_path(context);
        if group.switch_interval_ns != thread.switch_interval_ns {
            thread.switch_interval_ns = group.switch_interval_ns;
            headway_gil::set_switch_interval_of_this_thread(group.switch_interval_ns);
        }
        loop {
            self.resolve(slot, thread);
            let Some((_, interpreter)) = &thread.current[slot] else {
                return context.refuse(Rejection::ApplicationUnavailable);
            };
            context.worker_status().set_interpreter_number(interpreter.number);
            if interpreter.is_main() {
                match &mut thread.main {
                    // SAFETY: called detached, by the thread that `join` made the state for. The
                    // main interpreter is alive while its threads work.
                    Some(state) => unsafe { state.run(&mut thread.meter, context) },
                    None => context.refuse(Rejection::ApplicationUnavailable),
                }
                return;
            }
            if interpreter.run(thread.number, &mut thread.meter, context).is_ok() {
                let limit = group.maximum_requests;
                if limit != 0 && interpreter.count_request() % limit == 0 {
                    self.request_interpreter(slot, &mut self.slots[slot].lock());
                }
                return;
            }
            thread.forget(slot);
        }
    }
}

/// The path of a request, as its environ has it: SCRIPT_NAME and PATH_INFO.
fn decoded_path<'a>(context: &'a RequestContext, buffer: &'a mut Vec<u8>) -> &'a [u8] {
    let (head, bytes) = context.head();
    let path = Target::split(&bytes[head.target.clone()]).path;
    decode_path(path, context.limits().normalizes_path, buffer)
}

impl Application for ApplicationGroups {
    type Thread = WorkerThread;

    fn handle(&self, thread: &mut WorkerThread, context: &mut RequestContext) {
        self.run(thread, context);
        if !context.left_out().is_empty() {
            if let Some(mount) = self.mount_of(context) {
                mount.name_fields(context.left_out());
            }
        }
    }

    fn quiesce(&self, thread: &mut WorkerThread) {
        let drains = self.drains.load(SeqCst);
        if thread.drains == drains {
            return;
        }
        thread.drains = drains;
        for slot in 0..thread.current.len() {
            if thread.current[slot].as_ref().is_some_and(|(_, each)| each.is_draining()) {
                thread.forget(slot);
            }
        }
        let number = thread.number;
        thread.former.retain(|each| {
            let stays = !each.is_draining();
            if !stays {
                each.leave(number);
            }
            stays
        });
    }
}
