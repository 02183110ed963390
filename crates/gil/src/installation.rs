//! The installation of the meter that is in force.

use std::sync::atomic::{AtomicU32, Ordering::*};

/// The number of the installation in force; 0 for none. Grows with each installation. Writers:
/// install and uninstall, sequentially consistent, and a forked child. Readers: every hook, first,
/// with acquire.
static EPOCH: AtomicU32 = AtomicU32::new(0);
/// The number of the next installation. Writer: the holder of [`Change`].
static NEXT_EPOCH: AtomicU32 = AtomicU32::new(1);
/// 1 while a thread installs or removes the meter. Set by swap, with acquire; cleared by that
/// thread, with release, or by a forked child, which has only another thread.
static CHANGING: AtomicU32 = AtomicU32::new(0);

/// The installation in force; 0 for none.
#[inline(always)]
pub fn epoch() -> u32 {
    EPOCH.load(Acquire)
}

/// Returns whether the installation `epoch` is in force. Relaxed: for an event, which has read the
/// epoch before.
#[inline(always)]
pub fn is_in_force(epoch: u32) -> bool {
    EPOCH.load(Relaxed) == epoch
}

pub fn is_installed() -> bool {
    epoch() != 0
}

/// Puts a new installation in force.
pub fn begin() {
    EPOCH.store(NEXT_EPOCH.fetch_add(1, Relaxed), SeqCst);
}

/// Ends the installation in force.
pub fn end() {
    EPOCH.store(0, SeqCst);
}

/// Held by the thread that installs or removes the meter.
pub struct Change(());

impl Change {
    /// `None` while another thread installs or removes the meter.
    pub fn begin() -> Option<Self> {
        (CHANGING.swap(1, Acquire) == 0).then_some(Self(()))
    }
}

impl Drop for Change {
    fn drop(&mut self) {
        CHANGING.store(0, Release);
    }
}

/// Clears the lock in a forked child, in which the thread that installs or removes the meter does
/// not exist.
pub fn forget_change() {
    CHANGING.store(0, Relaxed);
}
