//! The Python stack of a thread of this process, as text, without the GIL.
//!
//! faulthandler's handler for a signal writes the stack of the thread that gets it, also where that
//! thread is in C code and holds the GIL. Python registers it (`headway.meter.stacks`) with the writing
//! end of a pipe that is made here. A handler of our own runs before it, so that only the requested
//! thread writes, once, and signals the end. A full pipe drops what does not fit.
//!
//! The module knows signals and pipes; `Around` does what CPython needs to find the right stack.
//! Any thread may request a stack; one request at a time is served.

use crate::lock::Lock;
use headway_measure::clock::now_ns;
use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::{
    AtomicI32, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering::SeqCst,
};
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

/// A longer stack is cut at the end of a line.
pub const MAX_STACK_BYTES: usize = 16_384;
/// How long a thread that has begun to write may take beyond the limit of the request.
const WRITING_PATIENCE: Duration = Duration::from_millis(50);
/// The interval of checks whether another stack is complete, which takes less than a millisecond.
const BUSY_LOOK: Duration = Duration::from_millis(1);
/// The first line that faulthandler writes.
const TITLE: &str = "Stack (most recent call first):\n";

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

/// The pipe, and the number by which the kernel knows it; -1 while there is none. Written by `open`
/// and, after a fork, by `read`.
static READ_FD: AtomicI32 = AtomicI32::new(-1);
static WRITE_FD: AtomicI32 = AtomicI32::new(-1);
static INODE: AtomicU64 = AtomicU64::new(0);
/// When the handler began to write. Writer: the handler. Reader: the requester, after `DONE`.
static TAKEN_NS: AtomicU64 = AtomicU64::new(0);
/// The process that made the pipe.
static PID: AtomicU32 = AtomicU32::new(0);
/// The signal, 0 while there is none. Written by `open`.
static SIGNAL: AtomicI32 = AtomicI32::new(0);
/// faulthandler's handler. Written by `register` before ours is in its place.
static WRITER: AtomicUsize = AtomicUsize::new(0);

/// A place where a thread says which thread state it runs Python with; null: the one that CPython
/// finds by itself. Up to CPython 3.11 that is a thread's first one, whatever interpreter it is in.
pub type PresentState = AtomicPtr<c_void>;
/// Of the threads that say so, by the kernel's id. Locked when one comes or ends, and by who asks.
static PRESENT_STATES: Lock<Vec<(u32, Arc<PresentState>)>> = Lock::new(Vec::new());
/// The place of the requested thread, or null. Writer: the requester. Reader: that thread's
/// handler.
static PRESENT_STATE: AtomicPtr<PresentState> = AtomicPtr::new(std::ptr::null_mut());
/// Calls what writes the stack, so that CPython finds the right one: the thread says which thread
/// state it has, or null. Runs in the handler, in the thread whose stack it is. Written by
/// `register`.
pub type Around = fn(state: *mut c_void, write: &dyn Fn());
static AROUND: AtomicUsize = AtomicUsize::new(0);

/// The calling thread announces its thread state, until it calls `leave`.
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

/// The place where a thread announces its thread state, if it does.
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
    /// `register` was not called, or the program has taken the signal or the pipe since.
    Unregistered,
    /// Another stack is being taken.
    Busy,
    /// The thread does not exist.
    Gone,
    /// The thread did not answer in time: it blocks signals, or the kernel does not let it run.
    Late,
    /// The thread runs no Python.
    Empty,
}

impl Missing {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unregistered => "no stacks in this process",
            Self::Busy => "another stack was being taken",
            Self::Gone => "the thread has ended",
            Self::Late => "the thread did not answer in time",
            Self::Empty => "the thread runs no Python",
        }
    }
}

/// Makes the pipe, and picks a real-time signal that nobody handles. Returns what faulthandler is
/// to be registered for: the signal, and the end to write to, both kept for the life of the
/// process. Called by one thread, before any `read`.
pub fn open() -> io::Result<(c_int, RawFd)> {
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

/// Puts our handler in front of the one that faulthandler has registered by now.
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
    // SAFETY: the action is the one in force but for the handler, which takes the same arguments.
    match unsafe { libc::sigaction(signal, &action, std::ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(Missing::Unregistered),
    }
}

/// A Python stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stack {
    /// Most recent call first, one line per call.
    pub calls: String,
    /// When the thread ran it, by CLOCK_MONOTONIC.
    pub taken_ns: u64,
}

/// The stack of a thread. Waits for `timeout` until the thread begins to write, and before that
/// for as long until no other stack is being taken. What a signal does to a thread in C code: a
/// call that can be is begun afresh (SA_RESTART); sleeps and polls end early, and CPython's own go
/// on by themselves.
///
/// A thread that joined (`join`) has left before it ends, and keeps what it joined with until then.
pub fn read(native_id: u32, timeout: Duration) -> Result<Stack, Missing> {
    let signal = SIGNAL.load(SeqCst);
    // The default action of a signal without a handler is to end the process.
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
        if Instant::now() >= deadline {
            return Err(Missing::Busy);
        }
        std::thread::sleep(BUSY_LOOK);
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
        if left.is_zero() {
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
        wait_for_text(left);
        drain(&mut text);
    }
    drain(&mut text);
    let taken_ns = TAKEN_NS.load(SeqCst);
    ASKED.store(IDLE, SeqCst);
    to_calls(&text).map(|calls| Stack { calls, taken_ns }).ok_or(Missing::Empty)
}

/// Runs in the thread that got the signal. Async-signal-safe, as faulthandler's own handler is.
extern "C" fn write_own_stack(signal: c_int) {
    // SAFETY: errno is the thread's own; the rest has no preconditions.
    let (errno, native_id) = unsafe { (*libc::__errno_location(), libc::gettid() as u32) };
    let writing = native_id | WRITING;
    if ASKED.compare_exchange(native_id, writing, SeqCst, SeqCst).is_ok() {
        TAKEN_NS.store(now_ns(), SeqCst);
        // SAFETY: `register` stored faulthandler's handler before this one could be called.
        let write: extern "C" fn(c_int) = unsafe { std::mem::transmute(WRITER.load(SeqCst)) };
        // SAFETY: the place is this very thread's, and it has not left.
        let present = unsafe { PRESENT_STATE.load(SeqCst).as_ref() };
        let state = present.map_or(std::ptr::null_mut(), |present| present.load(SeqCst));
        // SAFETY: `register` stored it as a function of this type.
        let around: Around = unsafe { std::mem::transmute(AROUND.load(SeqCst)) };
        around(state, &|| write(signal));
        if ASKED.compare_exchange(writing, DONE, SeqCst, SeqCst).is_err() {
            ASKED.store(IDLE, SeqCst);
        }
        // A full pipe wakes the requester too.
        // SAFETY: writes one byte.
        unsafe { libc::write(WRITE_FD.load(SeqCst), c"\n".as_ptr().cast(), 1) };
    }
    // SAFETY: errno is the thread's own.
    unsafe { *libc::__errno_location() = errno };
}

/// The stack as faulthandler wrote it, without its title; `None` if there is no line of it.
fn to_calls(text: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(text);
    let calls = text.trim_start_matches(TITLE).trim_matches('\n');
    let end = match calls.len() > MAX_STACK_BYTES {
        // ASCII: faulthandler escapes the rest.
        true => calls.get(..MAX_STACK_BYTES)?.rfind('\n')?,
        false => calls.len(),
    };
    Some(calls[..end].to_owned()).filter(|calls| calls.contains("File "))
}

fn pick_signal() -> io::Result<c_int> {
    // Valgrind and others take the last ones, the C library the first.
    for signal in (libc::SIGRTMIN() + 2..=libc::SIGRTMAX() - 5).rev() {
        if let Some(mut action) = action_of(signal).filter(|it| it.sa_sigaction == libc::SIG_DFL) {
            // faulthandler restores this action when the interpreter ends: a signal that was sent
            // just before must not end the process.
            action.sa_sigaction = libc::SIG_IGN;
            // SAFETY: a valid action for a signal that nobody handles.
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

/// Whether both descriptors are still the pipe's: a program may close whatever is open, and its
/// next file gets the number.
fn has_pipe() -> bool {
    let inode = INODE.load(SeqCst);
    let is_ours = |fd: &AtomicI32| inode != 0 && inode_of(fd.load(SeqCst)) == Some(inode);
    is_ours(&READ_FD) && is_ours(&WRITE_FD)
}

/// The pipe is the parent's, and nobody in this process asks: a new pipe goes under the same
/// numbers, which faulthandler has.
fn begin_in_forked_child() -> Result<(), Missing> {
    if !has_pipe() {
        return Err(Missing::Unregistered);
    }
    let (reading, writing) = make_pipe().map_err(|_| Missing::Unregistered)?;
    // SAFETY: descriptors of our own, two of them new.
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

/// Adds what is in the pipe to `text`, as far as a stack may be long.
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
