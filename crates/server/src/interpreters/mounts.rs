//! Application groups: which interpreter runs which request.
//!
//! A group has one or more interpreters, each in a *place*, where it may be replaced by a newer one.
//! The longest URL path that fits decides on the group; with several interpreters a thread always
//! goes to the same, so that as many threads run beside each other as there are GILs.

use crate::http::Rejection;
use crate::interpreters::interpreter::Interpreter;
use crate::interpreters::thread_state::{Attachment, ThreadMeter};
use crate::limits::inbox::Inbox;
use crate::request::{Application, Exchange};
use crate::wsgi::path::{Target, decode_path};
use headway_python::object::PyResult;
use pyo3_ffi::*;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::*};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Weak};
use std::time::Duration;

/// How long the end of the server may go unnoticed.
const LOOK: Duration = Duration::from_millis(200);

/// An application's URL path ("" for the root), and the index of its group.
pub struct Route {
    pub path: Vec<u8>,
    pub group: usize,
}

impl Route {
    fn fits(&self, path: &[u8]) -> bool {
        path.strip_prefix(&self.path[..]).is_some_and(|rest| matches!(rest, [] | [b'/', ..]))
    }
}

pub struct GroupSettings {
    /// At least 1.
    pub interpreters: usize,
    /// After so many requests an interpreter is to be replaced; 0: never.
    pub maximum_requests: u64,
    /// For threads while they serve this group, where it shares a GIL with others.
    pub switch_interval_ns: Option<u64>,
}

pub struct ApplicationGroups {
    /// The longest path first.
    routes: Vec<Route>,
    groups: Vec<Group>,
    places: Vec<Place>,
    /// Worker threads so far.
    threads: AtomicUsize,
    /// Places that need an interpreter, or another one.
    pub wanted: Inbox<usize>,
    /// All that were admitted and are there. Locked by the keeper and by interrupters.
    admitted: Mutex<Vec<Weak<Interpreter>>>,
    /// How often worker threads were told to leave interpreters that are vacant. Written by the keeper,
    /// read by them between requests; `SeqCst`, after the interpreter says that it is.
    calls: AtomicUsize,
    has_ended: AtomicBool,
}

struct Group {
    /// The first of its places.
    first: usize,
    settings: GroupSettings,
}

#[derive(Default)]
struct Place {
    /// Changes with `tenant`, while that is locked; read by worker threads before each request.
    generation: AtomicU64,
    tenant: Mutex<Tenant>,
    changed: Condvar,
}

#[derive(Default)]
struct Tenant {
    interpreter: Option<Arc<Interpreter>>,
    /// The place is in `wanted`, or the keeper has it in hand.
    is_wanted: bool,
    /// How often no interpreter could be made.
    failures: u64,
}

impl Place {
    fn lock(&self) -> MutexGuard<'_, Tenant> {
        self.tenant.lock().expect("no panic under this lock")
    }
}

/// What one worker thread keeps.
pub struct WorkerThread {
    number: usize,
    meter: ThreadMeter,
    /// What the meter was told.
    switch_interval_ns: Option<u64>,
    /// In the interpreter that the thread comes from, if requests are run there.
    own: Option<Attachment>,
    /// By place, with the generation that it is of.
    tenants: Vec<Option<(u64, Arc<Interpreter>)>>,
    /// Those that were replaced, where the thread may have something.
    former: Vec<Arc<Interpreter>>,
    /// Of `ApplicationGroups::calls`, those that it has followed.
    calls: usize,
}

impl WorkerThread {
    /// The place has another tenant, or will have.
    fn forget(&mut self, place: usize) {
        self.former.extend(self.tenants[place].take().map(|(_, interpreter)| interpreter));
    }
}

impl ApplicationGroups {
    /// `groups` is not empty; the first one gets what no path fits.
    pub fn new(mut routes: Vec<Route>, groups: Vec<GroupSettings>) -> Self {
        routes.sort_by_key(|route| std::cmp::Reverse(route.path.len()));
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
            routes,
            groups,
            places: (0..first).map(|_| Place::default()).collect(),
            threads: AtomicUsize::new(0),
            wanted: Inbox::default(),
            admitted: Mutex::default(),
            calls: AtomicUsize::new(0),
            has_ended: AtomicBool::new(false),
        }
    }

    /// Has an interpreter run the requests of a place.
    pub fn admit(&self, place: usize, interpreter: Arc<Interpreter>) {
        let Some(place) = self.places.get(place) else { return };
        let mut admitted = self.admitted.lock().expect("no panic under this lock");
        admitted.retain(|each| each.strong_count() > 0);
        admitted.push(Arc::downgrade(&interpreter));
        drop(admitted);
        let mut tenant = place.lock();
        // Its capsule holds the former one, too: it is not dropped here.
        tenant.interpreter = Some(interpreter);
        tenant.is_wanted = false;
        place.generation.fetch_add(1, Release);
        place.changed.notify_all();
    }

    /// No interpreter could be made for the place: requests that wait for one are answered with an error,
    /// the next one asks again.
    pub fn fail(&self, place: usize) {
        let Some(place) = self.places.get(place) else { return };
        let mut tenant = place.lock();
        tenant.failures += 1;
        tenant.is_wanted = false;
        place.changed.notify_all();
    }

    /// Nobody waits for an interpreter any more.
    pub fn end(&self) {
        self.has_ended.store(true, SeqCst);
        self.places.iter().for_each(|place| place.changed.notify_all());
    }

    /// The interpreter of that number, also if it was replaced and has requests left.
    pub fn interpreter(&self, number: usize) -> Option<Arc<Interpreter>> {
        let admitted = self.admitted.lock().expect("no panic under this lock");
        admitted.iter().filter_map(Weak::upgrade).find(|each| each.number == number)
    }

    /// Worker threads are to leave interpreters that are vacant. Whoever calls this wakes them.
    pub fn call_out(&self) {
        self.calls.fetch_add(1, SeqCst);
    }

    /// Called attached, by a thread that is going to work here, with its own thread state.
    pub fn join(&self, state: *mut PyThreadState) -> PyResult<WorkerThread> {
        let of_callers = self
            .places
            .iter()
            .filter_map(|place| place.lock().interpreter.clone())
            .find(|interpreter| interpreter.is_of_callers());
        let adapter = of_callers.and_then(|interpreter| interpreter.adapter());
        Ok(WorkerThread {
            number: self.threads.fetch_add(1, Relaxed),
            meter: ThreadMeter::of_this_thread(),
            switch_interval_ns: None,
            own: adapter.map(|adapter| Attachment::new(&adapter, state)).transpose()?,
            tenants: self.places.iter().map(|_| None).collect(),
            former: Vec::new(),
            calls: 0,
        })
    }

    /// The thread states that the thread got here end. Called detached, by that thread.
    pub fn leave(&self, thread: &mut WorkerThread) {
        (0..thread.tenants.len()).for_each(|place| thread.forget(place));
        thread.former.drain(..).for_each(|interpreter| interpreter.leave(thread.number));
    }

    fn group_of(&self, exchange: &Exchange) -> &Group {
        if let [only] = &self.groups[..] {
            return only;
        }
        let (head, bytes) = exchange.head();
        let mut buffer = Vec::new();
        let path = decode_path(Target::split(&bytes[head.target.clone()]).path, &mut buffer);
        let route = self.routes.iter().find(|route| route.fits(path));
        &self.groups[route.map_or(0, |route| route.group)]
    }

    /// Which application the request is for, if it may be told of.
    fn describe_path(&self, exchange: &Exchange) {
        let Some(mut underway) = exchange.activity().describe() else { return };
        let (head, bytes) = exchange.head();
        let mut buffer = Vec::new();
        let path = decode_path(Target::split(&bytes[head.target.clone()]).path, &mut buffer);
        let mount = self.routes.iter().find(|route| route.fits(path));
        let (script_name, path_info) = path.split_at(mount.map_or(0, |route| route.path.len()));
        underway.description.script_name.set_path(script_name);
        underway.description.path_info.set_path(path_info);
    }

    /// The interpreter at `place`, waited for if there is none yet.
    fn settle(&self, place: usize, thread: &mut WorkerThread) {
        let generation = self.places[place].generation.load(Acquire);
        if thread.tenants[place].as_ref().is_none_or(|(of, _)| *of != generation) {
            thread.forget(place);
            thread.tenants[place] = self.wait_for(place);
        }
    }

    fn wait_for(&self, index: usize) -> Option<(u64, Arc<Interpreter>)> {
        let place = &self.places[index];
        let mut tenant = place.lock();
        let failures = tenant.failures;
        loop {
            if let Some(interpreter) = &tenant.interpreter {
                return Some((place.generation.load(Relaxed), Arc::clone(interpreter)));
            }
            if tenant.failures != failures || self.has_ended.load(SeqCst) {
                return None;
            }
            self.ask(index, &mut tenant);
            tenant = place.changed.wait_timeout(tenant, LOOK).expect("no panic under this lock").0;
        }
    }

    /// The place needs an interpreter, or another one.
    fn ask(&self, index: usize, tenant: &mut Tenant) {
        if !std::mem::replace(&mut tenant.is_wanted, true) {
            self.wanted.push(index);
        }
    }
}

impl Application for ApplicationGroups {
    type Thread = WorkerThread;

    fn handle(&self, thread: &mut WorkerThread, exchange: &mut Exchange) {
        let Group { first, settings: group } = self.group_of(exchange);
        let place = first + thread.number % group.interpreters;
        exchange.record.place = place;
        exchange.activity().set_place(place);
        exchange.activity().set_holder(0);
        self.describe_path(exchange);
        if group.switch_interval_ns != thread.switch_interval_ns {
            thread.switch_interval_ns = group.switch_interval_ns;
            headway_gil::set_switch_interval_of_this_thread(group.switch_interval_ns);
        }
        loop {
            self.settle(place, thread);
            let Some((_, interpreter)) = &thread.tenants[place] else {
                return exchange.refuse(Rejection::ApplicationUnavailable);
            };
            exchange.activity().set_holder(interpreter.number);
            if interpreter.is_of_callers() {
                match &mut thread.own {
                    Some(attachment) => attachment.run(&mut thread.meter, exchange),
                    None => exchange.refuse(Rejection::ApplicationUnavailable),
                }
                return;
            }
            if interpreter.run(thread.number, &mut thread.meter, exchange).is_ok() {
                let limit = group.maximum_requests;
                if limit != 0 && interpreter.count_request() % limit == 0 {
                    self.ask(place, &mut self.places[place].lock());
                }
                return;
            }
            thread.forget(place);
        }
    }

    fn tidy(&self, thread: &mut WorkerThread) {
        let calls = self.calls.load(SeqCst);
        if thread.calls == calls {
            return;
        }
        thread.calls = calls;
        for place in 0..thread.tenants.len() {
            if thread.tenants[place].as_ref().is_some_and(|(_, each)| each.is_vacant()) {
                thread.forget(place);
            }
        }
        let number = thread.number;
        thread.former.retain(|each| {
            let stays = !each.is_vacant();
            if !stays {
                each.leave(number);
            }
            stays
        });
    }
}
