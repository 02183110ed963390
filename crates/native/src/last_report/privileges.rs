//! Keeps the report's file reachable when the program gives up its rights.
//!
//! After setuid or chroot the process may no longer open the report's file, nor remove the ledger.
//! libpython's functions for these calls are hooked: in the process that reports, the first such
//! call begins by opening both, the file for writing (it is created if it does not exist) and the
//! ledger's folder. So only programs that make such a call have these descriptors. Their numbers
//! are 100 and more, where no program expects its own. A program that closes them loses only the
//! JSON: the device and inode of a descriptor are compared with those of the opened file.
//!
//! The hooks run in a Python thread. `kept_open` is async-signal-safe.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU64, AtomicUsize, Ordering::*};

use headway_gil::Hook;

use super::{may_report, original};

const LOWEST_NUMBER: c_int = 100;

struct Paths {
    json: Option<CString>,
    /// The ledger's folder.
    folder: Option<CString>,
}

/// Null if there is nothing to keep open. Writer: `announce` (Release), attached; readers: the
/// hooks (Acquire). A replaced value is leaked.
static PATHS: AtomicPtr<Paths> = AtomicPtr::new(ptr::null_mut());

/// A descriptor, and the device and inode of its file. Writer: `open`, which stores the number last
/// (Release); reader: `number` (Acquire).
struct Kept {
    number: AtomicI32,
    device: AtomicU64,
    inode: AtomicU64,
}

static JSON: Kept = Kept::new();
static FOLDER: Kept = Kept::new();

pub fn announce(json: Option<CString>, ledger: Option<CString>) {
    let folder = ledger.and_then(|ledger| {
        let path = ledger.into_bytes();
        let end = path.iter().rposition(|byte| *byte == b'/')?;
        CString::new(&path[..end.max(1)]).ok()
    });
    PATHS.store(Box::into_raw(Box::new(Paths { json, folder })), Release);
}

/// Returns the descriptors of the report's file and of the ledger's folder; -1 if not open.
pub fn kept_open() -> (c_int, c_int) {
    (JSON.number(), FOLDER.number())
}

impl Kept {
    const fn new() -> Self {
        Self { number: AtomicI32::new(-1), device: AtomicU64::new(0), inode: AtomicU64::new(0) }
    }

    fn open(&self, path: &CStr, flags: c_int) {
        if self.number() >= 0 {
            return;
        }
        // SAFETY: a C string, and descriptors of our own.
        unsafe {
            let fd = libc::open(path.as_ptr(), flags | libc::O_CLOEXEC | libc::O_NOCTTY, 0o666);
            if fd < 0 {
                return;
            }
            let number = libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, LOWEST_NUMBER);
            libc::close(fd);
            if let Some((device, inode)) = identity(number) {
                self.device.store(device, Relaxed);
                self.inode.store(inode, Relaxed);
                self.number.store(number, Release);
            }
        }
    }

    fn number(&self) -> c_int {
        let number = self.number.load(Acquire);
        let kept = (self.device.load(Relaxed), self.inode.load(Relaxed));
        if number >= 0 && identity(number) == Some(kept) { number } else { -1 }
    }
}

/// Returns the device and inode of an open file.
fn identity(fd: c_int) -> Option<(u64, u64)> {
    // SAFETY: zero bytes are a valid stat, which is only read if the call filled it.
    unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        (libc::fstat(fd, &mut stat) == 0).then_some((stat.st_dev, stat.st_ino))
    }
}

fn open_both() {
    // SAFETY: null, or a leaked value that never changes.
    if let Some(paths) = unsafe { PATHS.load(Acquire).as_ref() } {
        if may_report() {
            if let Some(json) = &paths.json {
                JSON.open(json, libc::O_WRONLY | libc::O_CREAT);
            }
            if let Some(folder) = &paths.folder {
                FOLDER.open(folder, libc::O_PATH | libc::O_DIRECTORY);
            }
        }
    }
}

/// Hooks of libpython's functions that call `open_both` first.
macro_rules! before {
    ($($name:ident: $cell:ident ($($argument:ident: $type:ty),*);)*) => {
        $(
            /// libpython's own function. Writer: `patch_for_good`, before the slot; reader: the
            /// hook (Acquire).
            static $cell: AtomicUsize = AtomicUsize::new(0);

            unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
                open_both();
                // SAFETY: the type of the function, in its hook; the call is the caller's own.
                unsafe {
                    let call: unsafe extern "C" fn($($type),*) -> c_int = original(&$cell);
                    call($($argument),*)
                }
            }
        )*

        pub fn hooks() -> Vec<Hook> {
            vec![$(Hook {
                symbol: stringify!($name).as_bytes(),
                replacement: $name as *const c_void,
                original: &$cell,
            }),*]
        }
    };
}

before! {
    chroot: CHROOT (path: *const c_char);
    setuid: SETUID (user: libc::uid_t);
    seteuid: SETEUID (user: libc::uid_t);
    setreuid: SETREUID (real: libc::uid_t, effective: libc::uid_t);
    setresuid: SETRESUID (real: libc::uid_t, effective: libc::uid_t, saved: libc::uid_t);
}
