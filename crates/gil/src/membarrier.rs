//! A memory barrier in all threads, by membarrier(2).

const MEMBARRIER_PRIVATE_EXPEDITED: i32 = 1 << 3;
const MEMBARRIER_REGISTER_PRIVATE_EXPEDITED: i32 = 1 << 4;

/// Prepares the barrier. The kernel does this at once while the process has one thread, and may
/// take milliseconds later.
pub fn register() {
    membarrier(MEMBARRIER_REGISTER_PRIVATE_EXPEDITED);
}

/// Makes every thread of the process pass a full memory barrier. Returns false if the kernel does
/// not support it.
pub fn in_all_threads() -> bool {
    membarrier(MEMBARRIER_PRIVATE_EXPEDITED)
}

fn membarrier(command: i32) -> bool {
    // SAFETY: the system call has no effect on memory except the barrier.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0) == 0 }
}
