//! Memory of this process that may not be there, read by the kernel (`process_vm_readv`), which
//! fails where no memory is. For hooks: it allocates nothing and preserves errno.

use crate::errno::error_of;

/// Room for the kernel to write to.
pub fn local(bytes: &mut [u8]) -> libc::iovec {
    libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() }
}

pub fn remote(start: usize, bytes: usize) -> libc::iovec {
    libc::iovec { iov_base: start as *mut _, iov_len: bytes }
}

/// This process, for the kernel.
#[derive(Clone, Copy)]
pub struct Pid(libc::pid_t);

impl Pid {
    pub fn of_this_process() -> Self {
        // SAFETY: the call has no preconditions.
        Self(unsafe { libc::getpid() })
    }

    /// Copies the memory of `from` to `to`, of the same sizes, up to the first byte that cannot be
    /// read. Returns the number of bytes.
    pub fn read(self, to: &[libc::iovec], from: &[libc::iovec]) -> usize {
        let (to_count, from_count) = (to.len() as libc::c_ulong, from.len() as libc::c_ulong);
        let mut count = 0;
        error_of(|| {
            // SAFETY: `to` has room, and the kernel checks the other addresses.
            count = unsafe {
                let (to, from) = (to.as_ptr(), from.as_ptr());
                libc::process_vm_readv(self.0, to, to_count, from, from_count, 0)
            };
            count as libc::c_long
        });
        usize::try_from(count).unwrap_or(0)
    }
}

/// Why the kernel reads no memory for this process, as an errno; 0 if it does. A filter of system
/// calls may forbid it.
pub fn memory_error() -> i32 {
    let (mut to, from) = ([0_u8], [0_u8]);
    let (to, from) = (local(&mut to), remote(from.as_ptr() as usize, 1));
    // SAFETY: both are a byte of this function's.
    error_of(|| unsafe {
        libc::process_vm_readv(libc::getpid(), &to, 1, &from, 1, 0) as libc::c_long
    })
}

/// The number at an address that may not be readable.
pub fn get<T: Number>(from: usize) -> Option<T> {
    let mut value = T::default();
    let bytes = size_of::<T>();
    let to = libc::iovec { iov_base: std::ptr::from_mut(&mut value).cast(), iov_len: bytes };
    let read = Pid::of_this_process().read(&[to], &[remote(from, bytes)]);
    (read == bytes).then_some(value)
}

/// A type of which any bytes are a value.
pub trait Number: Copy + Default {}

impl Number for i32 {}
impl Number for i64 {}
impl Number for usize {}
