//! The files from which loops wait for events, some of which are loaded later than the meter.
//!
//! CPython calls `dlsym` for an extension module right after it has loaded its file. The hook of
//! `dlsym` is no hook like the others: it runs where CPython itself allocates, with the GIL and no
//! other lock, so it may allocate. A panic ends at its border.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::*};

use headway_threads::fork;

use super::Hook;
use super::elf::Object;
use super::polling;
use super::slots;
use crate::errno::preserving_errno;
use crate::installation;

static SYMBOL: AtomicUsize = AtomicUsize::new(0);
/// How many files the process had loaded, in its whole life, when they were last searched. Writers:
/// install and the hook. Relaxed: a second search finds nothing new.
static LOADED: AtomicU64 = AtomicU64::new(0);

/// The ends of paths, up to the suffix of the platform, of the extension modules that wait for the
/// events of a loop. The `select` module, which asyncio, trio, Tornado and Twisted use, may also be
/// a part of the interpreter.
const FILES: [&str; 5] = [
    "/select",
    "/uvloop/loop",
    "/gevent/libev/corecext",
    "/gevent/libev/_corecffi",
    "/gevent/libuv/_corecffi",
];

pub fn hook() -> Hook {
    Hook { symbol: b"dlsym", replacement: dlsym as *const c_void, original: &SYMBOL }
}

/// Hooks the waits of the interpreter's file, which has the function `anchor`, and of files that
/// are loaded.
pub fn search_all(anchor: *const c_void) {
    if let Some(interpreter) = Object::containing(anchor) {
        // Its `close` is that of `os.close`, and of the module only if that is a part of it.
        if !interpreter.slots_of(b"epoll_wait").is_empty() {
            slots::patch_more(&interpreter, &polling::hooks());
        }
    }
    LOADED.store(loaded(), Relaxed);
    search();
}

fn search() {
    // A file without such slots, or one that cannot be written to, stays as it is: its loops are
    // not seen.
    for object in Object::named(is_polling) {
        slots::patch_more(&object, &polling::hooks());
    }
}

fn is_polling(path: &CStr) -> bool {
    let Ok(path) = path.to_str() else { return false };
    // `select.cpython-313-x86_64-linux-gnu.so`
    let folder = path.rfind('/').map_or(0, |slash| slash + 1);
    let stem = path[folder..].find('.').map_or(path, |dot| &path[..folder + dot]);
    path.ends_with(".so") && FILES.iter().any(|file| stem.ends_with(file))
}

unsafe extern "C" fn dlsym(file: *mut c_void, symbol: *const c_char) -> *mut c_void {
    let real = original!(SYMBOL as unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void);
    if installation::is_installed() {
        preserving_errno(|| {
            let _ = catch_unwind(|| {
                let loaded = loaded();
                if LOADED.swap(loaded, Relaxed) != loaded {
                    fork::work(search);
                }
            });
        });
    }
    // SAFETY: the caller's own call. CPython passes the handle of a file, so the caller's address,
    // which differs, does not matter.
    unsafe { real(file, symbol) }
}

/// How many files the process has loaded in its whole life.
fn loaded() -> u64 {
    let mut loaded = 0_u64;
    // SAFETY: the callback gets the number that lives until the call returns.
    unsafe { libc::dl_iterate_phdr(Some(read_loaded), (&raw mut loaded).cast()) };
    loaded
}

unsafe extern "C" fn read_loaded(
    info: *mut libc::dl_phdr_info,
    _size: usize,
    loaded: *mut c_void,
) -> c_int {
    // SAFETY: `loaded()` passes a number; the linker passes a valid description.
    unsafe { *loaded.cast::<u64>() = (*info).dlpi_adds };
    1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_loops_are_known_by_their_paths() {
        for (path, is) in [
            (c"/usr/lib/python3.13/lib-dynload/select.cpython-313-x86_64-linux-gnu.so", true),
            (
                c"/venv/lib/python3.13/site-packages/uvloop/loop.cpython-313-x86_64-linux-gnu.so",
                true,
            ),
            (c"/v/gevent/libev/corecext.cpython-313-x86_64-linux-gnu.so", true),
            (c"/v/my_select.so", false),
            (c"/v/select/other.so", false),
            (c"/v.so/select", false),
            (c"linux-vdso.so.1", false),
            (c"", false),
        ] {
            assert_eq!(is_polling(path), is, "{path:?}");
        }
    }
}
