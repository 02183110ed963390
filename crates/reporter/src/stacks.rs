//! The Python stack of a thread of this process, as text, without the GIL.
//!
//! faulthandler's signal handler writes the stack of the thread that gets the signal, even if that
//! thread is in C code and holds the GIL. Python registers it (`headway.meter.stacks`) with the
//! writing end of a pipe that this module makes. Headway's own handler runs first, so that only the
//! requested thread writes, once, and signals the end. If the pipe is full, the rest of the stack
//! is lost.
//!
//! This module handles signals and pipes; `Around` makes CPython find the right stack. Any thread
//! may request a stack, and one request at a time is served.

use crate::calls::labels_of;
use headway_gil::finalization;
use headway_measure::clock::now_ns;
use headway_threads::fork;
use headway_threads::lock::Lock;
use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::{
    AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering::SeqCst,
};
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

/// A longer stack is cut between two calls.
pub const MAX_STACK_BYTES: usize = 16_384;
/// The extra time for a thread that has begun to write when the request reaches its limit.
const WRITING_PATIENCE: Duration = Duration::from_millis(50);
/// The interval of checks whether another request is complete, which usually takes less than a
/// millisecond.
const BUSY_LOOK: Duration = Duration::from_millis(1);
/// How long a fork may have to wait for the thread that reads a stack.
const FORK_LOOK: Duration = Duration::from_millis(2);
/// The requested thread and the state of the request.
///
/// | value | meaning | next |
/// |---|---|---|
/// | `IDLE` | there is no request | `PREPARING`, by the requester, who owns it from then on |
/// | `PREPARING` | the pipe is being emptied | a thread ID, by the requester |
/// | a thread ID | the signal is sent, its handler has not begun | with `WRITING`, by that thread's handler; `IDLE`, by the requester after its limit |
/// | with `WRITING` | the handler writes | `DONE`, by the handler; with `ABANDONED`, by the requester |
/// | with both | the handler writes, and the requester does not wait | `IDLE`, by the handler |
/// | `DONE` | the whole stack is in the pipe | `IDLE`, by the requester, once the pipe is empty |
///
/// `SeqCst`, because no access is frequent.
static ASKED: AtomicU32 = AtomicU32::new(IDLE);
const IDLE: u32 = 0;
const PREPARING: u32 = u32::MAX;
const DONE: u32 = u32::MAX - 1;
/// A bit beyond any thread ID.
const WRITING: u32 = 1 << 31;
const ABANDONED: u32 = 1 << 30;

/// True once `end` was called. Writers: `end`, and `open` in an interpreter that follows. Readers:
/// the requester, and the handler after it has set `WRITING`, which `end` reads in the opposite
/// order.
static IS_ENDED: AtomicBool = AtomicBool::new(false);
/// The descriptors of the pipe, -1 while there is none, and its inode. Written by `open` and, after
/// a fork, by `read`.
static READ_FD: AtomicI32 = AtomicI32::new(-1);
static WRITE_FD: AtomicI32 = AtomicI32::new(-1);
static INODE: AtomicU64 = AtomicU64::new(0);
/// When the handler began to write. Writer: the handler. Reader: the requester, after `DONE`.
static TAKEN_NS: AtomicU64 = AtomicU64::new(0);
/// The process that made the pipe.
static PID: AtomicU32 = AtomicU32::new(0);
/// The signal, or 0 while there is none. Written by `open`.
static SIGNAL: AtomicI32 = AtomicI32::new(0);
/// faulthandler's handler. Written by `register` before Headway's handler replaces it.
static WRITER: AtomicUsize = AtomicUsize::new(0);

/// The thread state with which a thread runs Python; null for the one that CPython finds by itself.
/// Up to CPython 3.11 that is the thread's first thread state, whatever interpreter it runs.
pub type PresentState = AtomicPtr<c_void>;
/// The `PresentState` of the threads that joined, by kernel thread ID. Locked by `join`, `leave`
/// and the requester.
static PRESENT_STATES: Lock<Vec<(u32, Arc<PresentState>)>> = Lock::new(Vec::new());
/// The `PresentState` of the requested thread, or null. Writer: the requester. Reader: that
/// thread's handler.
static PRESENT_STATE: AtomicPtr<PresentState> = AtomicPtr::new(std::ptr::null_mut());
/// Calls `write`, which writes the stack, so that CPython finds the stack of `state`, the thread's
/// `PresentState` or null. Runs in the handler, in the thread whose stack it is.
pub type Around = fn(state: *mut c_void, write: &dyn Fn());
/// The `Around` function. Written by `register`.
static AROUND: AtomicUsize = AtomicUsize::new(0);

/// Registers a `PresentState` for the calling thread, until it calls `leave`.
pub fn join() -> Arc<PresentState> {
    let present = Arc::new(PresentState::default());
    // SAFETY: gettid has no preconditions.
    let native_id = unsafe { libc::gettid() } as u32;
    present_states().push((native_id, Arc::clone(&present)));
    present
}

pub fn leave(present: &Arc<PresentState>) {
    present_states().retain(|(_, each)| !Arc::ptr_eq(each, present));
}

/// The `PresentState` of a thread, if it has joined.
pub fn present_state_of(native_id: u32) -> Option<Arc<PresentState>> {
    let states = present_states();
    let (_, present) = states.iter().find(|(each, _)| *each == native_id)?;
    Some(Arc::clone(present))
}

fn present_states() -> MutexGuard<'static, Vec<(u32, Arc<PresentState>)>> {
    PRESENT_STATES.lock()
}

/// The reason why there is no stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// `register` was not called, or the program has replaced the handler or closed the pipe.
    Unregistered,
    /// Another stack is being read.
    Busy,
    /// The thread does not exist.
    Gone,
    /// The thread did not answer in time: it blocks signals, or the kernel does not let it run.
    Late,
    /// The thread runs no Python.
    Empty,
    /// The interpreter ends, and may free the thread's thread state while the thread reads it.
    Ending,
}

impl Missing {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unregistered => "no stacks in this process",
            Self::Busy => "another stack was being read",
            Self::Gone => "the thread has ended",
            Self::Late => "the thread did not answer in time",
            Self::Empty => "no Python code",
            Self::Ending => "the interpreter is ending",
        }
    }
}

/// Makes the pipe, and chooses a real-time signal without a handler. Returns the signal and the
/// writing end, for which faulthandler must be registered; both are kept for the life of the
/// process. Called by one thread, before any `read`.
pub fn open() -> io::Result<(c_int, RawFd)> {
    IS_ENDED.store(false, SeqCst);
    if SIGNAL.load(SeqCst) == 0 {
        SIGNAL.store(pick_signal()?, SeqCst);
    }
    if !has_pipe() {
        let (reading, writing) = make_pipe()?;
        READ_FD.store(reading, SeqCst);
        WRITE_FD.store(writing, SeqCst);
        note_pipe();
    }
    Ok((SIGNAL.load(SeqCst), WRITE_FD.load(SeqCst)))
}

/// Installs Headway's handler in front of faulthandler's, which must be registered already.
pub fn register(around: Around) -> Result<(), Missing> {
    let signal = SIGNAL.load(SeqCst);
    let mut action = action_of(signal).ok_or(Missing::Unregistered)?;
    let handler = action.sa_sigaction;
    if handler == write_own_stack as *const () as usize {
        return Ok(());
    }
    if handler == libc::SIG_DFL
        || handler == libc::SIG_IGN
        || action.sa_flags & libc::SA_SIGINFO != 0
    {
        return Err(Missing::Unregistered);
    }
    WRITER.store(handler, SeqCst);
    AROUND.store(around as usize, SeqCst);
    action.sa_sigaction = write_own_stack as *const () as usize;
    // SAFETY: the action is the current one except for the handler, which takes the same arguments.
    match unsafe { libc::sigaction(signal, &action, std::ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(Missing::Unregistered),
    }
}

/// Ends the reading of stacks, and returns when no thread writes one any more. To be called before
/// the interpreter finalizes, by a thread that does not hold the GIL: from then on CPython frees
/// thread states that faulthandler follows.
pub fn end() {
    IS_ENDED.store(true, SeqCst);
    // A forked child has no thread that writes, and may find the word of its parent.
    if PID.load(SeqCst) != std::process::id() {
        return;
    }
    // The handler waits for nobody.
    while matches!(ASKED.load(SeqCst), asked @ ..DONE if asked & WRITING != 0) {
        std::thread::sleep(BUSY_LOOK);
    }
}

/// A Python stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stack {
    /// Most recent call first, one line per call: FUNCTION (FILE:LINE).
    pub calls: String,
    /// The time of the stack, of CLOCK_MONOTONIC.
    pub taken_ns: u64,
}

/// Reads the stack of a thread. Waits up to `timeout` until no other stack is being read, and then
/// up to `timeout` until the thread begins to write. The signal affects system calls of a thread in
/// C code: restartable calls are restarted (SA_RESTART); sleeps and polls end early, and those of
/// CPython itself are continued.
///
/// A thread that joined (`join`) must keep its `PresentState` until it leaves, and leave before it
/// ends.
pub fn read(native_id: u32, timeout: Duration) -> Result<Stack, Missing> {
    let signal = SIGNAL.load(SeqCst);
    // Without a handler, the signal would end the process, which is its default action.
    let ours = write_own_stack as *const () as usize;
    if signal == 0 || action_of(signal).is_none_or(|action| action.sa_sigaction != ours) {
        return Err(Missing::Unregistered);
    }
    if PID.load(SeqCst) != std::process::id() {
        begin_in_forked_child()?;
    }
    if !has_pipe() {
        return Err(Missing::Unregistered);
    }
    let mut deadline = Instant::now() + timeout;
    while ASKED.compare_exchange(IDLE, PREPARING, SeqCst, SeqCst).is_err() {
        if Instant::now() >= deadline || fork::waits() {
            return Err(Missing::Busy);
        }
        std::thread::sleep(BUSY_LOOK);
    }
    if IS_ENDED.load(SeqCst) || !finalization::phase().allows_stack_requests() {
        ASKED.store(IDLE, SeqCst);
        return Err(Missing::Ending);
    }
    let mut text = Vec::new();
    drain(&mut text);
    text.clear();
    let present = present_state_of(native_id);
    let place = present.as_deref().map_or(std::ptr::null(), std::ptr::from_ref);
    PRESENT_STATE.store(place.cast_mut(), SeqCst);
    ASKED.store(native_id, SeqCst);
    // SAFETY: no pointers; a thread that does not exist gets nothing.
    if unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), native_id, signal) } != 0 {
        ASKED.store(IDLE, SeqCst);
        return Err(Missing::Gone);
    }
    deadline = Instant::now() + timeout;
    let mut is_extended = false;
    while ASKED.load(SeqCst) != DONE {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || fork::waits() {
            if ASKED.compare_exchange(native_id, IDLE, SeqCst, SeqCst).is_ok() {
                return Err(Missing::Late);
            }
            let writing = native_id | WRITING;
            if is_extended
                && ASKED.compare_exchange(writing, writing | ABANDONED, SeqCst, SeqCst).is_ok()
            {
                return Err(Missing::Late);
            }
            (deadline, is_extended) = (Instant::now() + WRITING_PATIENCE, true);
            continue;
        }
        wait_for_text(left.min(FORK_LOOK));
        drain(&mut text);
    }
    drain(&mut text);
    let taken_ns = TAKEN_NS.load(SeqCst);
    ASKED.store(IDLE, SeqCst);
    let calls = labels_of(&String::from_utf8_lossy(&text), MAX_STACK_BYTES);
    calls.map(|calls| Stack { calls, taken_ns }).ok_or(Missing::Empty)
}

/// Runs in the thread that got the signal. Async-signal-safe, like faulthandler's own handler.
extern "C" fn write_own_stack(signal: c_int) {
    // SAFETY: errno is the thread's own; the rest has no preconditions.
    let (errno, native_id) = unsafe { (*libc::__errno_location(), libc::gettid() as u32) };
    let writing = native_id | WRITING;
    if ASKED.compare_exchange(native_id, writing, SeqCst, SeqCst).is_ok() {
        TAKEN_NS.store(now_ns(), SeqCst);
        // SAFETY: `register` stored faulthandler's handler before this one could be called.
        let write: extern "C" fn(c_int) = unsafe { std::mem::transmute(WRITER.load(SeqCst)) };
        // SAFETY: the `PresentState` belongs to this thread, which has not left.
        let present = unsafe { PRESENT_STATE.load(SeqCst).as_ref() };
        let state = present.map_or(std::ptr::null_mut(), |present| present.load(SeqCst));
        // SAFETY: `register` stored it as a function of this type.
        let around: Around = unsafe { std::mem::transmute(AROUND.load(SeqCst)) };
        if !IS_ENDED.load(SeqCst) {
            around(state, &|| write(signal));
        }
        if ASKED.compare_exchange(writing, DONE, SeqCst, SeqCst).is_err() {
            ASKED.store(IDLE, SeqCst);
        }
        // If the pipe is full, the write fails, but the requester is awake already.
        // SAFETY: writes one byte.
        unsafe { libc::write(WRITE_FD.load(SeqCst), c"\n".as_ptr().cast(), 1) };
    }
    // SAFETY: errno is the thread's own.
    unsafe { *libc::__errno_location() = errno };
}

fn pick_signal() -> io::Result<c_int> {
    // Valgrind and other tools use the last signals, the C library the first.
    for signal in (libc::SIGRTMIN() + 2..=libc::SIGRTMAX() - 5).rev() {
        if let Some(mut action) = action_of(signal).filter(|it| it.sa_sigaction == libc::SIG_DFL) {
            // faulthandler restores this action when the interpreter ends. A signal that was sent
            // just before must not end the process.
            action.sa_sigaction = libc::SIG_IGN;
            // SAFETY: a valid action for a signal without a handler.
            if unsafe { libc::sigaction(signal, &action, std::ptr::null_mut()) } == 0 {
                return Ok(signal);
            }
        }
    }
    Err(io::Error::other("every real-time signal has a handler"))
}

fn action_of(signal: c_int) -> Option<libc::sigaction> {
    // SAFETY: all zero bytes are a valid `sigaction`, which the call only writes to.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        (libc::sigaction(signal, std::ptr::null(), &mut action) == 0).then_some(action)
    }
}

fn make_pipe() -> io::Result<(RawFd, RawFd)> {
    let mut ends = [-1; 2];
    // SAFETY: room for two descriptors.
    match unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) } {
        0 => Ok((ends[0], ends[1])),
        _ => Err(io::Error::last_os_error()),
    }
}

fn note_pipe() {
    INODE.store(inode_of(READ_FD.load(SeqCst)).unwrap_or(0), SeqCst);
    PID.store(std::process::id(), SeqCst);
}

fn inode_of(fd: RawFd) -> Option<u64> {
    // SAFETY: all zero bytes are a valid `stat`, which the call only writes to.
    unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        (libc::fstat(fd, &mut stat) == 0).then_some(stat.st_ino)
    }
}

/// Whether both descriptors still belong to the pipe. A program may close any descriptor and reuse
/// its number.
fn has_pipe() -> bool {
    let inode = INODE.load(SeqCst);
    let is_ours = |fd: &AtomicI32| inode != 0 && inode_of(fd.load(SeqCst)) == Some(inode);
    is_ours(&READ_FD) && is_ours(&WRITE_FD)
}

/// Replaces the parent's pipe by a new one under the same descriptors, which faulthandler uses, and
/// resets the request, because the child has no requester.
fn begin_in_forked_child() -> Result<(), Missing> {
    if !has_pipe() {
        return Err(Missing::Unregistered);
    }
    let (reading, writing) = make_pipe().map_err(|_| Missing::Unregistered)?;
    // SAFETY: all descriptors belong to this module; two of them are new.
    unsafe {
        libc::dup3(reading, READ_FD.load(SeqCst), libc::O_CLOEXEC);
        libc::dup3(writing, WRITE_FD.load(SeqCst), libc::O_CLOEXEC);
        libc::close(reading);
        libc::close(writing);
    }
    ASKED.store(IDLE, SeqCst);
    note_pipe();
    Ok(())
}

fn wait_for_text(timeout: Duration) {
    let mut pipe = libc::pollfd { fd: READ_FD.load(SeqCst), events: libc::POLLIN, revents: 0 };
    let wait_ms = timeout.as_millis().clamp(1, 1_000) as c_int;
    // SAFETY: one live pollfd.
    unsafe { libc::poll(&mut pipe, 1, wait_ms) };
}

/// Empties the pipe and appends its contents to `text`, up to a limit.
fn drain(text: &mut Vec<u8>) {
    let mut bytes = [0_u8; 4_096];
    loop {
        // SAFETY: the pointer and the length are those of `bytes`; the pipe does not block.
        let count =
            unsafe { libc::read(READ_FD.load(SeqCst), bytes.as_mut_ptr().cast(), bytes.len()) };
        if count <= 0 {
            return;
        }
        let room = (2 * MAX_STACK_BYTES).saturating_sub(text.len());
        text.extend_from_slice(&bytes[..room.min(count as usize)]);
    }
}
