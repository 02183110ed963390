//! CPython's list of interpreters, read without its lock.
//!
//! CPython changes its list of interpreters under a lock that it does not export, and from 3.12 on
//! without any GIL. So the list is read through the kernel, and what was read is checked: CPython
//! adds an interpreter at the head only, and its ID is greater than all before. A chain of
//! decreasing IDs that ends with the main interpreter therefore has every interpreter that existed
//! when it was begun and still exists, and at most some more that have just ended.

use std::ffi::c_void;
use std::sync::OnceLock;

use crate::foreign_memory;

/// CPython's `PyInterpreterState_Head`.
pub type NewestInterpreter = unsafe extern "C" fn() -> *mut c_void;

/// Where CPython's list of interpreters is.
#[derive(Clone, Copy, Debug)]
pub struct InterpreterList {
    pub newest: NewestInterpreter,
    /// The address of the main `PyInterpreterState`.
    pub main: usize,
    /// The offset of `next` in a `PyInterpreterState`.
    pub next_offset: usize,
    /// The offset of `id`, of 64 bits.
    pub id_offset: usize,
}

/// Written once, before the first install. Readers: any thread, also in the hooks that run without
/// a GIL's mutex.
static LIST: OnceLock<InterpreterList> = OnceLock::new();

pub fn know(list: InterpreterList) {
    LIST.get_or_init(|| list);
}

/// Calls `visit` with the address and the ID of each interpreter, the newest first. Returns false
/// if the list changed meanwhile, or cannot be read.
fn walk(list: &InterpreterList, mut visit: impl FnMut(usize, i64)) -> bool {
    let mut interpreter = newest_in(list);
    let mut id_before = i64::MAX;
    loop {
        let id = foreign_memory::get::<i64>(interpreter.wrapping_add(list.id_offset));
        let next = foreign_memory::get::<usize>(interpreter.wrapping_add(list.next_offset));
        let (Some(id), Some(next)) = (id, next) else { return false };
        if !(0..id_before).contains(&id) {
            return false;
        }
        visit(interpreter, id);
        if next == 0 {
            return interpreter == list.main;
        }
        (interpreter, id_before) = (next, id);
    }
}

/// Not inlined, so that `scripts/check_hooks.py` finds the call of CPython's function by this name.
#[inline(never)]
fn newest_in(list: &InterpreterList) -> usize {
    // SAFETY: `PyInterpreterState_Head` reads one field of the runtime.
    unsafe { (list.newest)() as usize }
}

/// How often the list is read before it counts as unknown.
const TRIES: u32 = 8;

/// Collects the interpreters: `visit` gets what was collected, an address and an ID, the newest
/// first. `None` if the list is not known, or changes all the time. Allocates nothing itself: also
/// for the hooks that run without a GIL's mutex.
pub fn collect<T: Default>(mut visit: impl FnMut(&mut T, usize, i64)) -> Option<T> {
    let list = LIST.get()?;
    (0..TRIES).find_map(|_| {
        let mut collected = T::default();
        walk(list, |interpreter, id| visit(&mut collected, interpreter, id)).then_some(collected)
    })
}

/// The addresses and IDs of the interpreters, the newest first; `None` as for `collect`.
pub fn existing() -> Option<Vec<(usize, i64)>> {
    collect(|found: &mut Vec<_>, interpreter, id| found.push((interpreter, id)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    #[repr(C)]
    struct Interpreter {
        next: usize,
        id: i64,
    }

    static NEWEST: AtomicUsize = AtomicUsize::new(0);

    unsafe extern "C" fn newest() -> *mut c_void {
        NEWEST.load(SeqCst) as *mut c_void
    }

    /// The IDs of a list of interpreters, the newest first; `None` if it is not taken for one.
    fn ids_of(interpreters: &[Interpreter], main: &Interpreter) -> Option<Vec<i64>> {
        NEWEST.store(interpreters.as_ptr() as usize, SeqCst);
        let list = InterpreterList {
            newest,
            main: std::ptr::from_ref(main) as usize,
            next_offset: offset_of!(Interpreter, next),
            id_offset: offset_of!(Interpreter, id),
        };
        let mut ids = Vec::new();
        walk(&list, |_, id| ids.push(id)).then_some(ids)
    }

    #[test]
    fn a_list_that_changes_while_it_is_read_is_not_taken_for_the_interpreters() {
        let interpreter = |id| Interpreter { next: 0, id };
        let mut list = [9, 7, 0].map(interpreter);
        let address = |list: &[Interpreter], index| &raw const list[index] as usize;
        list[0].next = address(&list, 1);
        list[1].next = address(&list, 2);
        assert_eq!(ids_of(&list, &list[2]), Some(vec![9, 7, 0]));
        assert_eq!(ids_of(&list[2..], &list[2]), Some(vec![0]));
        // An interpreter that is being made has no successor yet.
        list[0].next = 0;
        assert_eq!(ids_of(&list, &list[2]), None);
        // The memory of an interpreter that has ended belongs to a newer one, or to nothing.
        list[0].next = address(&list, 1);
        list[1].id = 11;
        assert_eq!(ids_of(&list, &list[2]), None);
        list[0].next = 0x7fff_ffff_f000;
        assert_eq!(ids_of(&list, &list[2]), None);
    }
}
