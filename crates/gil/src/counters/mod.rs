//! Where the books are kept: [`book`] what one looks like, [`mapping`] the memory that holds them,
//! [`free_list`] which thread books are free.

pub mod book;
pub mod free_list;
pub mod mapping;

use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use mapping::Slot;

/// The slot of this process. Written at install and by a forked child, while no other thread runs
/// a hook; never freed.
static SLOT: AtomicPtr<Slot> = AtomicPtr::new(std::ptr::null_mut());

pub fn set_slot(slot: &'static Slot) {
    SLOT.store(std::ptr::from_ref(slot).cast_mut(), Relaxed);
}

/// In a forked child, whose parent's slot is not its own.
pub fn forget_slot() {
    SLOT.store(std::ptr::null_mut(), Relaxed);
}

/// The slot of this process, or `None` before the first install.
#[inline]
pub fn slot() -> Option<&'static Slot> {
    // SAFETY: null, or a slot that is never unmapped.
    unsafe { SLOT.load(Relaxed).as_ref() }
}
