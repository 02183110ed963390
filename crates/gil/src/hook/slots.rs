//! Writes hooks into slots of the global offset tables of the interpreter and of extension modules,
//! and removes them again.
//!
//! The value of a slot is not always the function to call. Before the first call of a lazily bound
//! symbol it is a stub inside the object itself, which makes the dynamic linker overwrite the slot
//! and so the hook. In this case the function is looked up, by the version that the object
//! requires. Any other value, libc's function or another program's hook, is called as it is.

use std::ffi::{CString, c_void};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::*};

use crate::hook::Hook;
use crate::hook::elf::{FoundSlot, Object};
use headway_threads::c_library;

/// A slot that has one of our hooks.
struct Patched {
    address: usize,
    before: usize,
    hook: usize,
    original: &'static AtomicUsize,
    read_only: bool,
}

/// Why the slots cannot be patched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SlotError {
    /// The interpreter's code is in no dynamically linked object.
    NoObject,
    /// The object has no slot for a symbol that it must call.
    NoSlot(&'static str),
    /// A real function could not be found.
    NoFunction(&'static str),
    /// The memory protection of a slot could not be changed; an errno.
    Protected(i32),
}

/// Slots that have our hooks, or that could not be restored. Locked at install and uninstall only.
static PATCHED: Mutex<Vec<Patched>> = Mutex::new(Vec::new());

/// Symbols without which nothing can be measured. The others exist in every known build, but the
/// counters are correct without them.
const REQUIRED: [&[u8]; 3] =
    [b"pthread_cond_signal", b"pthread_cond_timedwait", b"pthread_cond_wait"];

/// Writes hooks into the slots of the object that has the function `anchor`. Writes all or none.
pub fn patch(anchor: *const c_void, hooks: &[Hook]) -> Result<(), SlotError> {
    let object = Object::containing(anchor).ok_or(SlotError::NoObject)?;
    let mut patched = PATCHED.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let found = find(&object, hooks, &patched)?;
    for slot in found {
        if let Err(error) = write(&slot, slot.hook) {
            drop(patched);
            unpatch();
            return Err(error);
        }
        patched.push(slot);
    }
    Ok(())
}

/// Writes hooks into slots of a further object, which is never unloaded. Skips a slot whose
/// function is not the one that the hook calls, and those that cannot be written to.
pub fn patch_more(object: &Object, hooks: &[Hook]) {
    let mut patched = PATCHED.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    for hook in hooks {
        for slot in object.slots_of(hook.symbol) {
            let Some(slot) = unpatched(object, hook, slot, &patched) else { continue };
            let Some(original) = slot.original_now else { continue };
            let known = hook.original.load(Relaxed);
            if known != 0 && known != original {
                continue;
            }
            hook.original.store(original, Release);
            if write(&slot.slot, slot.slot.hook).is_ok() {
                patched.push(slot.slot);
            }
        }
    }
}

/// Writes hooks that [`unpatch`] leaves into the slots of the object that has the function
/// `anchor`. Skips symbols without a slot, and slots that have their hook already.
pub fn patch_for_good(anchor: *const c_void, hooks: &[Hook]) -> Result<(), SlotError> {
    let object = Object::containing(anchor).ok_or(SlotError::NoObject)?;
    // The lock keeps two threads from changing the protection of one page at the same time.
    let _patched = PATCHED.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    find(&object, hooks, &[])?.iter().try_for_each(|slot| write(slot, slot.hook))
}

/// The slots of `hooks`, without those in `patched`. Stores the originals.
fn find(object: &Object, hooks: &[Hook], patched: &[Patched]) -> Result<Vec<Patched>, SlotError> {
    let mut found = Vec::new();
    for hook in hooks {
        let name = std::str::from_utf8(hook.symbol).unwrap_or("?");
        let slots = object.slots_of(hook.symbol);
        if slots.is_empty() && REQUIRED.contains(&hook.symbol) {
            return Err(SlotError::NoSlot(name));
        }
        for slot in slots {
            let Some(slot) = unpatched(object, hook, slot, patched) else { continue };
            let original = slot.original_now.ok_or(SlotError::NoFunction(name))?;
            hook.original.store(original, Release);
            found.push(slot.slot);
        }
    }
    Ok(found)
}

/// A slot without our hook, and the function that is to be called in its place; `None` if there is
/// none.
struct Unpatched {
    slot: Patched,
    original_now: Option<usize>,
}

/// Describes a slot for `hook`; `None` if the slot has it.
fn unpatched(
    object: &Object,
    hook: &Hook,
    slot: FoundSlot,
    patched: &[Patched],
) -> Option<Unpatched> {
    // Another program hooked the slot after us, and still calls our hook.
    if patched.iter().any(|left| left.address == slot.address) {
        return None;
    }
    // SAFETY: the slot's address came from the object's relocations.
    let before = unsafe { (*(slot.address as *const AtomicUsize)).load(Acquire) };
    if before == hook.replacement as usize {
        return None;
    }
    let original_now = match before {
        0 => lookup(hook.symbol, &slot),
        stub if object.contains(stub) => lookup(hook.symbol, &slot),
        function => Some(function),
    };
    let read_only = object.read_only.as_ref().is_some_and(|range| range.contains(&slot.address));
    let (hook, original) = (hook.replacement as usize, hook.original);
    let slot = Patched { address: slot.address, before, hook, original, read_only };
    Some(Unpatched { slot, original_now })
}

/// Restores hooks that the dynamic linker has overwritten, because another thread made the first
/// call through the slot while it was patched.
pub fn patch_again() {
    let patched = PATCHED.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    for slot in patched.iter() {
        // SAFETY: a slot of the interpreter's object, which is never unloaded.
        let now = unsafe { (*(slot.address as *const AtomicUsize)).load(Acquire) };
        if now == slot.original.load(Relaxed) {
            let _ = write(slot, slot.hook);
        }
    }
}

/// Removes our hooks from the slots. A slot that another program has hooked since stays as it is:
/// that hook calls ours, which then only calls the original.
pub fn unpatch() {
    let mut patched = PATCHED.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    patched.retain(|slot| {
        // SAFETY: a slot of the interpreter's object, which is never unloaded.
        let now = unsafe { (*(slot.address as *const AtomicUsize)).load(Acquire) };
        now != slot.hook || write(slot, slot.before).is_err()
    });
}

fn write(slot: &Patched, value: usize) -> Result<(), SlotError> {
    // SAFETY: sysconf has no preconditions.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    let start = (slot.address & !(page - 1)) as *mut c_void;
    // SAFETY: the page belongs to the interpreter's global offset table and stays readable.
    unsafe {
        if slot.read_only && libc::mprotect(start, page, libc::PROT_READ | libc::PROT_WRITE) != 0 {
            return Err(SlotError::Protected(*libc::__errno_location()));
        }
        // Other threads call through this slot, so it is written by one store.
        (*(slot.address as *const AtomicUsize)).store(value, SeqCst);
        if slot.read_only {
            libc::mprotect(start, page, libc::PROT_READ);
        }
    }
    Ok(())
}

/// The function that the dynamic linker would bind the slot to, including LD_PRELOAD.
fn lookup(symbol: &[u8], slot: &FoundSlot) -> Option<usize> {
    let name = CString::new(symbol).ok()?;
    let function = c_library::function(&name, slot.version) as usize;
    (function != 0).then_some(function)
}
