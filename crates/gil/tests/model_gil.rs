//! The engine on a GIL without Python: `take` and `drop` step by step as CPython's do
//! (`Python/ceval_gil.c`, with FORCE_SWITCHING), in this test's own executable.
//!
//! Rust links executables with full RELRO, so these tests also cover slots in the executable that
//! are bound at start and write-protected. They take turns: the meter is one per process.

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use headway_gil::{GilRow, Host, Location, PolicyName, Snapshot, ThreadRow};

/// The fields of `struct _gil_runtime_state` that matter, in its order.
#[repr(C)]
struct Gil {
    interval_us: AtomicU64,
    last_holder: AtomicUsize,
    locked: AtomicBool,
    switch_number: AtomicU64,
    cond: UnsafeCell<libc::pthread_cond_t>,
    mutex: UnsafeCell<libc::pthread_mutex_t>,
    switch_cond: UnsafeCell<libc::pthread_cond_t>,
    switch_mutex: UnsafeCell<libc::pthread_mutex_t>,
    drop_request: AtomicBool,
    /// The drop requests that were made.
    drop_requests: AtomicU64,
}

// SAFETY: pthread objects are made for sharing; the rest is atomic.
unsafe impl Sync for Gil {}

impl Gil {
    const fn new() -> Self {
        Self {
            interval_us: AtomicU64::new(INTERVAL.as_micros() as u64),
            last_holder: AtomicUsize::new(0),
            locked: AtomicBool::new(false),
            switch_number: AtomicU64::new(0),
            cond: UnsafeCell::new(libc::PTHREAD_COND_INITIALIZER),
            mutex: UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER),
            switch_cond: UnsafeCell::new(libc::PTHREAD_COND_INITIALIZER),
            switch_mutex: UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER),
            drop_request: AtomicBool::new(false),
            drop_requests: AtomicU64::new(0),
        }
    }

    /// `create_gil`: initializes the condition variables in CPython's order.
    fn init(&self) {
        // SAFETY: nobody uses this GIL yet; CPython passes attributes, the default does here.
        unsafe {
            libc::pthread_cond_init(self.cond.get(), std::ptr::null());
            libc::pthread_cond_init(self.switch_cond.get(), std::ptr::null());
        }
    }

    /// `take_gil`.
    fn take(&self, interval: Duration) {
        // SAFETY: initialized pthread objects, used as CPython uses them.
        unsafe {
            libc::pthread_mutex_lock(self.mutex.get());
            while self.locked.load(SeqCst) {
                let switch_number = self.switch_number.load(SeqCst);
                let until = after(interval);
                let result =
                    libc::pthread_cond_timedwait(self.cond.get(), self.mutex.get(), &until);
                if result == libc::ETIMEDOUT
                    && self.locked.load(SeqCst)
                    && self.switch_number.load(SeqCst) == switch_number
                {
                    self.drop_request.store(true, SeqCst);
                    self.drop_requests.fetch_add(1, SeqCst);
                }
            }
            self.take_free_as(me());
            libc::pthread_mutex_unlock(self.mutex.get());
        }
    }

    /// The end of `take_gil`, with the mutex held and the GIL free.
    ///
    /// # Safety
    /// The pthread objects are initialized, and the mutex is held.
    unsafe fn take_free_as(&self, thread_state: usize) {
        // SAFETY: the caller's.
        unsafe {
            libc::pthread_mutex_lock(self.switch_mutex.get());
            self.locked.store(true, SeqCst);
            if self.last_holder.swap(thread_state, SeqCst) != thread_state {
                self.switch_number.fetch_add(1, SeqCst);
            }
            libc::pthread_cond_signal(self.switch_cond.get());
            libc::pthread_mutex_unlock(self.switch_mutex.get());
            self.drop_request.store(false, SeqCst);
        }
    }

    /// `PyThreadState_Swap`: the holder drops the GIL and takes it with another thread state before
    /// any other thread does.
    fn swap_to(&self, thread_state: usize) {
        // SAFETY: as in `take`.
        unsafe {
            libc::pthread_mutex_lock(self.mutex.get());
            self.locked.store(false, SeqCst);
            libc::pthread_cond_signal(self.cond.get());
            self.take_free_as(thread_state);
            libc::pthread_mutex_unlock(self.mutex.get());
        }
    }

    /// `drop_gil`.
    fn drop(&self) {
        // SAFETY: as in `take`.
        unsafe {
            libc::pthread_mutex_lock(self.mutex.get());
            self.locked.store(false, SeqCst);
            libc::pthread_cond_signal(self.cond.get());
            libc::pthread_mutex_unlock(self.mutex.get());
            if self.drop_request.load(SeqCst) {
                libc::pthread_mutex_lock(self.switch_mutex.get());
                if self.last_holder.load(SeqCst) == me() {
                    self.drop_request.store(false, SeqCst);
                    libc::pthread_cond_wait(self.switch_cond.get(), self.switch_mutex.get());
                }
                libc::pthread_mutex_unlock(self.switch_mutex.get());
            }
        }
    }
}

fn me() -> usize {
    // SAFETY: no preconditions.
    unsafe { libc::pthread_self() as usize }
}

/// The default clock of a condition variable is CLOCK_REALTIME.
fn after(interval: Duration) -> libc::timespec {
    let mut now = MaybeUninit::uninit();
    // SAFETY: a place for the time.
    let now = unsafe {
        libc::clock_gettime(libc::CLOCK_REALTIME, now.as_mut_ptr());
        now.assume_init()
    };
    let ns = now.tv_nsec as u64 + interval.as_nanos() as u64;
    libc::timespec {
        tv_sec: now.tv_sec + (ns / 1_000_000_000) as i64,
        tv_nsec: (ns % 1_000_000_000) as libc::c_long,
    }
}

static GIL: Gil = Gil::new();
static TURN: Mutex<()> = Mutex::new(());
const INTERVAL: Duration = Duration::from_millis(5);

/// The "interpreter" of a model GIL is where the GIL begins; this one was made last.
static NEWEST: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" fn newest_interpreter() -> *mut c_void {
    NEWEST.load(SeqCst) as *mut c_void
}

unsafe extern "C" fn interpreter_id(_interpreter: *mut c_void) -> i64 {
    7
}

fn contend() -> bool {
    let probe = thread::spawn(|| {
        headway_gil::this_thread_is_the_probe();
        GIL.take(INTERVAL);
        GIL.drop();
    });
    let began = Instant::now();
    while !headway_gil::probe_waits() && began.elapsed() < Duration::from_secs(10) {
        thread::sleep(Duration::from_micros(100));
    }
    GIL.drop();
    let joined = probe.join().is_ok();
    GIL.take(INTERVAL);
    joined
}

/// The turn of a test. The test holds the GIL unless it says otherwise.
struct Turn {
    _lock: MutexGuard<'static, ()>,
}

impl Turn {
    fn begin() -> Self {
        let lock = TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        GIL.take(INTERVAL);
        Self { _lock: lock }
    }

    fn metered() -> Self {
        let turn = Self::begin();
        install();
        turn
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        headway_gil::uninstall().unwrap();
        GIL.drop();
    }
}

fn install() {
    let host = Host {
        anchor: contend as fn() -> bool as *const c_void,
        gil_enabled: true,
        main_interpreter: &raw const GIL as usize,
        gil_in_interpreter: true,
        interpreters: Vec::new(),
        newest_interpreter,
        interpreter_id,
        contend,
        thread_state: me(),
        thread_states: None,
        python: "model".to_owned(),
    };
    headway_gil::install(&host, Location::Memory).expect("the model is a GIL as CPython's");
}

fn snapshot_of_all() -> Snapshot {
    let snapshot = headway_gil::snapshot().expect("installed");
    for gil in &snapshot.gils {
        let held: u64 = threads_of(&snapshot, gil).map(|row| row.held_ns).sum();
        let takes: u64 = threads_of(&snapshot, gil).map(|row| row.takes).sum();
        let drops = gil.voluntary_drops + gil.forced_drops;
        assert_eq!(gil.takes + u64::from(gil.held_at_open), drops + u64::from(gil.held_now));
        assert_eq!(gil.held_ns + gil.handoff_ns + gil.idle_ns, gil.wall_ns);
        assert_eq!((gil.held_ns, gil.takes), (held, takes));
        assert_eq!(gil.anomalies, 0);
    }
    snapshot
}

fn threads_of<'a>(snapshot: &'a Snapshot, gil: &'a GilRow) -> impl Iterator<Item = &'a ThreadRow> {
    snapshot.threads.iter().filter(|row| row.gil == gil.id)
}

fn main_gil(snapshot: &Snapshot) -> &GilRow {
    &snapshot.gils[0]
}

#[test]
fn uncontended_takes_are_counted_without_waits() {
    let _turn = Turn::metered();
    for _ in 0..1000 {
        GIL.drop();
        GIL.take(INTERVAL);
    }
    let snapshot = snapshot_of_all();
    let gil = main_gil(&snapshot);
    assert_eq!(
        (gil.takes, gil.voluntary_drops, gil.held_at_open, gil.held_now),
        (1000, 1000, 1, 1)
    );
    assert_eq!((gil.contended_takes, gil.forced_drops, gil.handoff_ns), (0, 0, 0));
    assert_eq!(snapshot.threads[0].hold.count(), 1000);
}

/// The holder drops at the request of a thread, which takes, drops and ends.
fn drop_for_a_waiter() {
    let waiter = thread::spawn(|| {
        GIL.take(INTERVAL);
        GIL.drop();
    });
    while !GIL.drop_request.load(SeqCst) {
        thread::sleep(Duration::from_micros(100));
    }
    GIL.drop();
    waiter.join().unwrap();
}

#[test]
fn a_waiter_forces_a_drop_and_its_wait_is_one() {
    let _turn = Turn::metered();
    drop_for_a_waiter();
    GIL.take(INTERVAL);
    let snapshot = snapshot_of_all();
    let gil = main_gil(&snapshot);
    assert_eq!((gil.forced_drops, gil.voluntary_drops, gil.drop_requests), (1, 1, 1));
    assert_eq!((gil.takes, gil.contended_takes), (2, 1));
    assert!(gil.handoff_ns > 0);
    let waiter = snapshot.threads.iter().find(|row| !row.alive).expect("it has ended");
    assert_eq!(waiter.wait.count(), 1);
    assert!(waiter.wait.sum_ns >= INTERVAL.as_nanos() as u64);
    let holder = snapshot.threads.iter().find(|row| row.alive).unwrap();
    assert_eq!(holder.forced_drops, 1);
    // None if the waiter took the GIL before the holder came to wait for that.
    assert!(holder.forced_waits <= 1);
}

/// CPython requests a drop only if no other thread state took meanwhile, also of the same thread:
/// one that serves two interpreters which share the GIL.
#[test]
fn a_thread_that_changes_its_thread_state_is_not_asked_to_drop() {
    const LONG: Duration = Duration::from_millis(400);
    let _turn = Turn::metered();
    let requests_before = GIL.drop_requests.load(SeqCst);
    let waiters = [(); 2].map(|()| {
        thread::spawn(|| {
            GIL.take(LONG);
            GIL.drop();
        })
    });
    thread::sleep(LONG / 2);
    // One waiter wakes and begins to wait anew. The interval of the other one ends after this.
    GIL.swap_to(1);
    thread::sleep(LONG * 3 / 4);
    GIL.drop();
    for waiter in waiters {
        waiter.join().unwrap();
    }
    GIL.take(INTERVAL);
    let snapshot = snapshot_of_all();
    let requests = GIL.drop_requests.load(SeqCst) - requests_before;
    assert_eq!(main_gil(&snapshot).drop_requests, requests);
}

/// The end of a timed wait does not tell the switch interval: a waiter may have lost its core after
/// it computed the end.
#[test]
fn under_a_policy_a_waiter_asks_once_in_a_switch_interval_however_late_its_wait_begins() {
    let _turn = Turn::metered();
    headway_gil::set_policy(PolicyName::Deadline, false);
    let waiter = thread::spawn(|| {
        GIL.take(Duration::ZERO);
        GIL.drop();
    });
    while !GIL.drop_request.load(SeqCst) {
        thread::sleep(Duration::from_micros(100));
    }
    thread::sleep(4 * INTERVAL);
    GIL.drop();
    waiter.join().unwrap();
    GIL.take(INTERVAL);
    let snapshot = snapshot_of_all();
    let waiter = snapshot.threads.iter().find(|row| !row.alive).expect("it has ended");
    let intervals = waiter.wait.sum_ns / INTERVAL.as_nanos() as u64;
    let requests = main_gil(&snapshot).drop_requests;
    assert!(requests <= intervals + 1, "{requests} requests in {intervals} switch intervals");
}

/// CPython drops for I/O while a drop request is pending: a forced-switch wait, and then the call.
#[test]
fn a_thread_that_was_forced_to_switch_waits_only_when_it_comes_back() {
    const ROUNDS: u32 = 20;
    const AWAY: Duration = Duration::from_millis(10);
    let _turn = Turn::metered();
    headway_gil::set_policy(PolicyName::Priority, false);
    for _ in 0..ROUNDS {
        drop_for_a_waiter();
        thread::sleep(AWAY);
        GIL.take(INTERVAL);
    }
    let snapshot = snapshot_of_all();
    let away_ns = (ROUNDS * AWAY).as_nanos() as u64;
    let holder = snapshot.threads.iter().find(|row| row.alive).unwrap();
    assert!(holder.forced_waits > 0);
    assert_eq!(holder.contended_takes, 0);
    assert!(main_gil(&snapshot).idle_ns >= away_ns);
}

#[test]
fn sums_of_time_only_grow_from_one_snapshot_to_the_next() {
    let _turn = Turn::metered();
    GIL.drop();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !over.load(SeqCst) {
                    GIL.take(INTERVAL);
                    GIL.drop();
                }
            });
        }
        let sums: Vec<_> = (0..1_000)
            .map(|_| {
                let snapshot = snapshot_of_all();
                let gil = main_gil(&snapshot);
                [gil.held_ns, gil.handoff_ns, gil.idle_ns, gil.wall_ns]
            })
            .collect();
        over.store(true, SeqCst);
        for two in sums.windows(2) {
            let grown = two[0].iter().zip(&two[1]).all(|(before, after)| before <= after);
            assert!(grown, "{two:?}");
        }
    });
    GIL.take(INTERVAL);
}

/// Runs `contend` in a thread while the calling thread holds the mutex, which it gives up once that
/// thread has slept in it for a while. How long, in nanoseconds.
fn while_the_mutex_is_held(contend: impl FnOnce() + Send + 'static) -> u64 {
    let tid = std::sync::Arc::new(AtomicU64::new(0));
    let stored = tid.clone();
    // SAFETY: an initialized mutex.
    unsafe { libc::pthread_mutex_lock(GIL.mutex.get()) };
    let thread = thread::spawn(move || {
        // SAFETY: no preconditions.
        stored.store(unsafe { libc::gettid() } as u64, SeqCst);
        contend();
    });
    let sleeps = || {
        let stat = std::fs::read_to_string(format!("/proc/self/task/{}/stat", tid.load(SeqCst)));
        stat.is_ok_and(|stat| stat.contains(") S "))
    };
    while tid.load(SeqCst) == 0 || !sleeps() {
        thread::sleep(Duration::from_millis(1));
    }
    let began = Instant::now();
    thread::sleep(Duration::from_millis(10));
    let held_ns = began.elapsed().as_nanos() as u64;
    // SAFETY: locked above.
    unsafe { libc::pthread_mutex_unlock(GIL.mutex.get()) };
    thread.join().unwrap();
    held_ns
}

#[test]
fn a_thread_that_waits_for_the_mutex_to_take_the_gil_waits_for_the_gil() {
    for policy in [PolicyName::Interval, PolicyName::Priority] {
        let _turn = Turn::metered();
        headway_gil::set_policy(policy, false);
        GIL.drop();
        let held_ns = while_the_mutex_is_held(|| {
            GIL.take(INTERVAL);
            GIL.drop();
        });
        GIL.take(INTERVAL);
        let snapshot = snapshot_of_all();
        let gil = main_gil(&snapshot);
        assert_eq!((gil.takes, gil.contended_takes, gil.drop_requests), (2, 1, 0), "{policy:?}");
        let waiter = snapshot.threads.iter().find(|row| !row.alive).expect("it has ended");
        assert_eq!(waiter.wait.count(), 1);
        assert!(waiter.wait.sum_ns >= held_ns, "{policy:?}: {} < {held_ns}", waiter.wait.sum_ns);
        let holder = snapshot.threads.iter().find(|row| row.alive).unwrap();
        assert_eq!(holder.wait.count(), 0);
    }
}

#[test]
fn a_thread_that_locks_the_mutex_and_takes_nothing_does_not_wait() {
    let _turn = Turn::metered();
    GIL.drop();
    // As CPython's `signal_active_thread` does.
    while_the_mutex_is_held(|| {
        // SAFETY: an initialized mutex.
        unsafe {
            libc::pthread_mutex_lock(GIL.mutex.get());
            libc::pthread_mutex_unlock(GIL.mutex.get());
        }
        GIL.take(INTERVAL);
        GIL.drop();
    });
    GIL.take(INTERVAL);
    let snapshot = snapshot_of_all();
    assert_eq!((main_gil(&snapshot).takes, main_gil(&snapshot).contended_takes), (2, 0));
}

#[test]
fn a_holder_that_waits_for_the_mutex_to_drop_the_gil_holds_on() {
    let _turn = Turn::metered();
    GIL.drop();
    let dropping = std::sync::Arc::new(AtomicBool::new(false));
    let may_drop = dropping.clone();
    let taken = std::sync::Arc::new(AtomicBool::new(false));
    let stored = taken.clone();
    let holder = thread::spawn(move || {
        GIL.take(INTERVAL);
        stored.store(true, SeqCst);
        while !may_drop.load(SeqCst) {
            std::hint::spin_loop();
        }
        GIL.drop();
    });
    while !taken.load(SeqCst) {
        thread::yield_now();
    }
    // The waiter takes the GIL after the drop; each of the two waits for the mutex first.
    let held_ns = while_the_mutex_is_held(move || {
        dropping.store(true, SeqCst);
        GIL.take(INTERVAL);
        GIL.drop();
    });
    holder.join().unwrap();
    GIL.take(INTERVAL);
    let snapshot = snapshot_of_all();
    let gil = main_gil(&snapshot);
    assert_eq!((gil.takes, gil.contended_takes), (3, 1));
    assert!(gil.handoff_ns > 0, "a thread waited at the drop");
    let rows: Vec<_> = snapshot.threads.iter().filter(|row| row.wait.count() == 1).collect();
    assert_eq!(rows.len(), 1, "the holder did not wait");
    assert!(rows[0].wait.sum_ns >= held_ns);
}

#[test]
fn a_signal_by_a_thread_that_does_not_hold_is_no_drop() {
    let _turn = Turn::metered();
    thread::spawn(|| {
        // SAFETY: an initialized condition variable.
        unsafe { libc::pthread_cond_signal(GIL.cond.get()) };
    })
    .join()
    .unwrap();
    let snapshot = snapshot_of_all();
    assert_eq!(main_gil(&snapshot).voluntary_drops, 0);
    assert_eq!(main_gil(&snapshot).held_now, 1);
}

#[test]
fn threads_that_wait_while_the_meter_comes_and_goes_get_the_gil() {
    let _turn = Turn::begin();
    let taken = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                GIL.take(INTERVAL);
                taken.fetch_add(1, SeqCst);
                GIL.drop();
            });
        }
        for _ in 0..50 {
            thread::sleep(Duration::from_millis(1));
            install();
            thread::sleep(Duration::from_millis(1));
            headway_gil::uninstall().unwrap();
        }
        install();
        GIL.drop();
    });
    assert_eq!(taken.into_inner(), 4);
    GIL.take(INTERVAL);
    snapshot_of_all();
}

#[test]
fn another_gil_of_the_same_layout_gets_counters_of_its_own() {
    static SECOND: Gil = Gil::new();
    let _turn = Turn::metered();
    // A pair of condition variables that is no interpreter's is left alone.
    SECOND.init();
    SECOND.take(INTERVAL);
    SECOND.drop();
    assert_eq!(snapshot_of_all().gils.len(), 1);
    NEWEST.store(&raw const SECOND as usize, SeqCst);
    SECOND.init();
    for _ in 0..3 {
        SECOND.take(INTERVAL);
        SECOND.drop();
    }
    let snapshot = snapshot_of_all();
    let second = &snapshot.gils[1];
    assert_eq!((second.takes, second.voluntary_drops, second.held_at_open), (3, 3, 0));
    assert_eq!(second.interpreter, Some(7));
    assert_eq!(main_gil(&snapshot).takes, 0);
    // Initialized again in the same place: the counters of the first one close and stay.
    SECOND.init();
    SECOND.take(INTERVAL);
    let snapshot = snapshot_of_all();
    assert!(!snapshot.gils[1].alive && snapshot.gils[1].takes == 3);
    assert!(snapshot.gils[2].alive && snapshot.gils[2].takes == 1);
    SECOND.drop();
}

#[test]
fn snapshots_balance_at_any_moment() {
    let _turn = Turn::metered();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !stop.load(SeqCst) {
                    GIL.take(Duration::from_micros(50));
                    GIL.drop();
                }
            });
        }
        GIL.drop();
        for _ in 0..2000 {
            snapshot_of_all();
        }
        stop.store(true, SeqCst);
    });
    GIL.take(INTERVAL);
}

const POLICIES: [PolicyName; 2] = [PolicyName::Priority, PolicyName::Deadline];

/// A holder of the GIL that computes until `stop`, and drops at each request.
fn compute(stop: &AtomicBool) {
    GIL.take(INTERVAL);
    while !stop.load(SeqCst) {
        if GIL.drop_request.load(SeqCst) {
            GIL.drop();
            GIL.take(INTERVAL);
        }
    }
    GIL.drop();
}

#[test]
fn a_policy_has_a_computing_holder_asked_before_the_interval_is_over() {
    for policy in POLICIES {
        let _turn = Turn::metered();
        headway_gil::set_policy(policy, true);
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| compute(&stop));
            GIL.drop();
            for _ in 0..20 {
                // Away for longer than it takes to become CPU-bound, or to use up a slice.
                thread::sleep(2 * INTERVAL);
                GIL.take(INTERVAL);
                GIL.drop();
            }
            stop.store(true, SeqCst);
        });
        GIL.take(INTERVAL);
        let snapshot = snapshot_of_all();
        let gil = main_gil(&snapshot);
        // Under CPython's own rule there is none.
        assert!(gil.preemptions >= 10, "{policy:?}: {gil:?}");
        assert!(gil.preemptions <= gil.forced_drops);
    }
}

#[test]
fn threads_that_wait_while_the_policy_changes_get_the_gil() {
    const ROUNDS: u64 = 300;
    let _turn = Turn::metered();
    let taken = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| compute(&stop));
        let workers: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    for _ in 0..ROUNDS {
                        GIL.take(INTERVAL);
                        taken.fetch_add(1, SeqCst);
                        GIL.drop();
                        thread::yield_now();
                    }
                })
            })
            .collect();
        for policy in PolicyName::ALL.into_iter().cycle() {
            if workers.iter().all(|worker| worker.is_finished()) {
                break;
            }
            // As Python does, with the GIL held.
            headway_gil::set_policy(policy, true);
            GIL.drop();
            thread::sleep(Duration::from_millis(1));
            GIL.take(INTERVAL);
        }
        stop.store(true, SeqCst);
        GIL.drop();
    });
    assert_eq!(taken.into_inner(), 4 * ROUNDS);
    GIL.take(INTERVAL);
    snapshot_of_all();
}

#[test]
fn threads_that_a_policy_has_queued_get_the_gil_when_the_meter_goes() {
    for policy in POLICIES {
        let _turn = Turn::metered();
        headway_gil::set_policy(policy, true);
        let taken = AtomicU64::new(0);
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    GIL.take(INTERVAL);
                    taken.fetch_add(1, SeqCst);
                    GIL.drop();
                });
            }
            while main_gil(&snapshot_of_all()).drop_requests == 0 {
                thread::sleep(Duration::from_millis(1));
            }
            headway_gil::uninstall().unwrap();
            GIL.drop();
        });
        assert_eq!(taken.into_inner(), 8);
        GIL.take(INTERVAL);
    }
}

#[test]
fn a_hook_put_over_ours_is_left_there_and_not_called_in_circles() {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    static BELOW: AtomicUsize = AtomicUsize::new(0);
    unsafe extern "C" fn signal_of_another(cond: *mut libc::pthread_cond_t) -> libc::c_int {
        CALLS.fetch_add(1, SeqCst);
        // SAFETY: what the slot held before, a pthread_cond_signal.
        unsafe {
            let below: unsafe extern "C" fn(*mut libc::pthread_cond_t) -> libc::c_int =
                std::mem::transmute(BELOW.load(SeqCst));
            below(cond)
        }
    }
    let _turn = Turn::metered();
    let slot = slot_that_holds(current_signal());
    BELOW.store(swap_slot(slot, signal_of_another as *const () as usize), SeqCst);
    headway_gil::uninstall().unwrap();
    GIL.drop();
    GIL.take(INTERVAL);
    assert!(CALLS.load(SeqCst) >= 2, "the other hook was taken out with ours");
    install();
    GIL.drop();
    GIL.take(INTERVAL);
    let snapshot = snapshot_of_all();
    assert_eq!(main_gil(&snapshot).takes, 1);
    swap_slot(slot, BELOW.load(SeqCst));
}

/// The function that this executable's calls of pthread_cond_signal reach: the hook, while
/// installed.
fn current_signal() -> usize {
    libc::pthread_cond_signal as unsafe extern "C" fn(*mut libc::pthread_cond_t) -> libc::c_int
        as *const () as usize
}

/// The slot of this executable's global offset table that holds `value`.
fn slot_that_holds(value: usize) -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let executable = std::env::current_exe().unwrap();
    let ranges = maps.lines().filter(|line| line.ends_with(executable.to_str().unwrap()));
    for range in ranges.filter(|line| line.split_whitespace().nth(1).unwrap().starts_with('r')) {
        let (start, end) = range.split(' ').next().unwrap().split_once('-').unwrap();
        let start = usize::from_str_radix(start, 16).unwrap();
        let end = usize::from_str_radix(end, 16).unwrap();
        // SAFETY: a readable mapping of this executable.
        let found = (start..end).step_by(8).find(|at| unsafe { *(*at as *const usize) } == value);
        if let Some(slot) = found {
            return slot;
        }
    }
    panic!("no slot holds {value:#x}");
}

fn swap_slot(slot: usize, value: usize) -> usize {
    let page = (slot & !4095) as *mut c_void;
    // SAFETY: a slot of this executable; the page is made writable first.
    unsafe {
        libc::mprotect(page, 4096, libc::PROT_READ | libc::PROT_WRITE);
        (*(slot as *const AtomicUsize)).swap(value, SeqCst)
    }
}

type ThreadStart = unsafe extern "C-unwind" fn(*mut c_void) -> *mut c_void;

/// A thread of `pthread_create`, which may be cancelled: no frame of `std` is in the way of
/// unwinding.
struct Cancellable(libc::pthread_t);

impl Cancellable {
    fn start(run: ThreadStart) -> Self {
        // SAFETY: all zero bytes are a valid value of the type.
        let mut thread = unsafe { std::mem::zeroed() };
        // SAFETY: the function has the type that pthread_create calls, except for the unwinding.
        let result = unsafe {
            let run =
                std::mem::transmute::<ThreadStart, extern "C" fn(*mut c_void) -> *mut c_void>(run);
            libc::pthread_create(&mut thread, std::ptr::null(), run, std::ptr::null_mut())
        };
        assert_eq!(result, 0);
        Self(thread)
    }

    /// Cancels the thread and waits for its end.
    fn cancel(self) {
        // SAFETY: the thread was started and is not joined yet.
        unsafe { assert_eq!(libc::pthread_cancel(self.0), 0) };
        self.join_cancelled();
    }

    fn join_cancelled(self) {
        let mut result = std::ptr::null_mut();
        // SAFETY: the thread is not joined yet.
        unsafe { assert_eq!(libc::pthread_join(self.0, &mut result), 0) };
        assert_eq!(result as isize, -1, "PTHREAD_CANCELED");
    }
}

unsafe extern "C" {
    // A cancellation unwinds out of it.
    fn pthread_testcancel();
}

/// A cancelled wait has locked its mutex again, and its thread has ended: as in CPython, no thread
/// would unlock it.
fn unlock(mutex: &UnsafeCell<libc::pthread_mutex_t>) {
    // SAFETY: glibc's default mutex may be unlocked by another thread.
    unsafe { libc::pthread_mutex_unlock(mutex.get()) };
}

unsafe extern "C-unwind" fn take_and_drop(_: *mut c_void) -> *mut c_void {
    GIL.take(INTERVAL);
    GIL.drop();
    std::ptr::null_mut()
}

#[test]
fn a_cancellation_unwinds_through_the_hook_of_a_timed_wait() {
    let _turn = Turn::metered();
    let waiter = Cancellable::start(take_and_drop);
    while !GIL.drop_request.load(SeqCst) {
        thread::sleep(Duration::from_millis(1));
    }
    waiter.cancel();
    unlock(&GIL.mutex);
    GIL.drop_request.store(false, SeqCst);
    GIL.drop();
    GIL.take(INTERVAL);
    let snapshot = snapshot_of_all();
    let gil = main_gil(&snapshot);
    assert_eq!((gil.takes, gil.anomalies), (1, 0));
    assert_eq!(threads_of(&snapshot, gil).filter(|row| row.alive).count(), 1);
}

static REQUESTED: AtomicBool = AtomicBool::new(false);

/// Takes, and drops when a drop is requested by a thread that has ended, so that none takes.
unsafe extern "C-unwind" fn drop_for_a_thread_that_ended(_: *mut c_void) -> *mut c_void {
    GIL.take(INTERVAL);
    GIL.drop_request.store(true, SeqCst);
    REQUESTED.store(true, SeqCst);
    GIL.drop();
    std::ptr::null_mut()
}

#[test]
fn a_cancellation_unwinds_through_the_hook_of_a_forced_wait() {
    let _turn = Turn::metered();
    GIL.drop();
    REQUESTED.store(false, SeqCst);
    let waiter = Cancellable::start(drop_for_a_thread_that_ended);
    // It drops, clears the request, and waits for a take.
    while !REQUESTED.load(SeqCst) || GIL.drop_request.load(SeqCst) {
        thread::sleep(Duration::from_millis(1));
    }
    waiter.cancel();
    unlock(&GIL.switch_mutex);
    GIL.take(INTERVAL);
    let snapshot = snapshot_of_all();
    assert_eq!((main_gil(&snapshot).takes, main_gil(&snapshot).anomalies), (2, 0));
}

static QUEUED: AtomicBool = AtomicBool::new(false);

unsafe extern "C-unwind" fn take_drop_and_end_if_cancelled(_: *mut c_void) -> *mut c_void {
    QUEUED.store(true, SeqCst);
    GIL.take(INTERVAL);
    GIL.drop();
    // SAFETY: no frame here has anything to drop.
    unsafe { pthread_testcancel() };
    std::ptr::null_mut()
}

#[test]
fn a_cancellation_waits_until_a_thread_has_left_the_queue_of_a_policy() {
    let _turn = Turn::metered();
    headway_gil::set_policy(PolicyName::Priority, false);
    QUEUED.store(false, SeqCst);
    let waiter = Cancellable::start(take_drop_and_end_if_cancelled);
    while !QUEUED.load(SeqCst) {
        thread::sleep(Duration::from_millis(1));
    }
    thread::sleep(Duration::from_millis(20));
    // SAFETY: the thread was started and is not joined yet.
    unsafe { assert_eq!(libc::pthread_cancel(waiter.0), 0) };
    GIL.drop();
    waiter.join_cancelled();
    GIL.take(INTERVAL);
    headway_gil::set_policy(PolicyName::Interval, false);
    let snapshot = snapshot_of_all();
    assert_eq!((main_gil(&snapshot).takes, main_gil(&snapshot).anomalies), (2, 0));
}
