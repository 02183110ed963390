//! Puts the hooks into the interpreter's slots, and takes them out again.
//!
//! What a slot held before is not always what may be called: before the first call of a lazily bound
//! symbol it is a stub inside the object itself, which makes the dynamic linker overwrite the slot, and with
//! it the hook. Then the function is looked up, by the version that the object asks for.
//! Anything else that a slot holds, libc's function or somebody else's hook, is called as it was.

use std::ffi::{CStr, CString, c_void};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::*};

use crate::hook::Hook;
use crate::hook::elf::{FoundSlot, Object};

/// A slot that holds one of our hooks.
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

/// Slots that hold our hooks now, or that could not be given back. Locked at install and uninstall only.
static PATCHED: Mutex<Vec<Patched>> = Mutex::new(Vec::new());

/// Symbols without which nothing can be measured; the others are there in every known build, but
/// the books are right without them.
const REQUIRED: [&[u8]; 3] =
    [b"pthread_cond_signal", b"pthread_cond_timedwait", b"pthread_cond_wait"];

/// Puts hooks into the slots of the object that `anchor`, a function of it, lies in. Either all
/// or none.
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

/// Puts hooks into the slots of the object that `anchor` lies in, where [`unpatch`] leaves them. A
/// symbol without a slot is left out. Does nothing for a slot that holds its hook already.
pub fn patch_for_good(anchor: *const c_void, hooks: &[Hook]) -> Result<(), SlotError> {
    let object = Object::containing(anchor).ok_or(SlotError::NoObject)?;
    // Two threads must not change the protection of one page at a time.
    let _patched = PATCHED.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    find(&object, hooks, &[])?.iter().try_for_each(|slot| write(slot, slot.hook))
}

/// The slots that `hooks` belong into, without those in `patched`. Stores the originals.
fn find(object: &Object, hooks: &[Hook], patched: &[Patched]) -> Result<Vec<Patched>, SlotError> {
    let mut found = Vec::new();
    for hook in hooks {
        let name = std::str::from_utf8(hook.symbol).unwrap_or("?");
        let slots = object.slots_of(hook.symbol);
        if slots.is_empty() && REQUIRED.contains(&hook.symbol) {
            return Err(SlotError::NoSlot(name));
        }
        for slot in slots {
            // Somebody hooked it over ours, and calls ours still.
            if patched.iter().any(|left| left.address == slot.address) {
                continue;
            }
            // SAFETY: the slot's address came from the object's relocations.
            let before = unsafe { (*(slot.address as *const AtomicUsize)).load(Acquire) };
            if before == hook.replacement as usize {
                continue;
            }
            let original = match before {
                0 => lookup(hook.symbol, &slot),
                stub if object.contains(stub) => lookup(hook.symbol, &slot),
                function => Some(function),
            };
            hook.original.store(original.ok_or(SlotError::NoFunction(name))?, Release);
            let read_only =
                object.read_only.as_ref().is_some_and(|range| range.contains(&slot.address));
            let (hook, original) = (hook.replacement as usize, hook.original);
            found.push(Patched { address: slot.address, before, hook, original, read_only });
        }
    }
    Ok(found)
}

/// Puts back hooks that the dynamic linker, at work on a slot's first call in another thread while it
/// was patched, has overwritten since.
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

/// Takes our hooks out of the slots. A slot that somebody else has hooked since is left as it is: they
/// call ours, which then only passes on.
pub fn unpatch() {
    let mut patched = PATCHED.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    patched.retain(|slot| {
        // SAFETY: a slot of the interpreter's object, which is never unloaded.
        let now = unsafe { (*(slot.address as *const AtomicUsize)).load(Acquire) };
        now != slot.hook || write(slot, slot.before).is_err()
    });
}

fn write(slot: &Patched, value: usize) -> Result<(), SlotError> {
    // SAFETY: no preconditions.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    let start = (slot.address & !(page - 1)) as *mut c_void;
    // SAFETY: the page belongs to the interpreter's global offset table; it stays readable all the while.
    unsafe {
        if slot.read_only && libc::mprotect(start, page, libc::PROT_READ | libc::PROT_WRITE) != 0 {
            return Err(SlotError::Protected(*libc::__errno_location()));
        }
        // Other threads call through this slot: one store, never torn.
        (*(slot.address as *const AtomicUsize)).store(value, SeqCst);
        if slot.read_only {
            libc::mprotect(start, page, libc::PROT_READ);
        }
    }
    Ok(())
}

/// The function that the dynamic linker would bind the slot to, LD_PRELOAD included.
fn lookup(symbol: &[u8], slot: &FoundSlot) -> Option<usize> {
    let name = CString::new(symbol).ok()?;
    let found = |name: &CStr| {
        // SAFETY: C strings.
        unsafe {
            match slot.version {
                Some(version) => libc::dlvsym(libc::RTLD_DEFAULT, name.as_ptr(), version.as_ptr()),
                None => libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()),
            }
        }
    };
    let function = found(&name) as usize;
    (function != 0).then_some(function)
}
