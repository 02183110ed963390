//! The endpoint of the request that a thread runs, as a number for the profile of the GIL.

use crate::stats::endpoints::endpoint_of;
use headway_reporter::contexts;
use rustc_hash::FxHashMap;

/// A thread remembers the numbers of so many paths, and then forgets all.
const MAX_KNOWN: usize = 256;
/// Longer paths are not remembered.
const MAX_PATH_BYTES: usize = 200;

/// The paths whose numbers a thread knows.
#[derive(Default)]
pub struct Contexts {
    known: FxHashMap<Box<[u8]>, u32>,
}

impl Contexts {
    /// The calling thread runs a request from now on.
    pub fn begin(&mut self, target: &[u8]) {
        if headway_gil::profile_is_on() {
            headway_gil::set_context_of_this_thread(self.number_of(target));
        }
    }

    pub fn end(&self) {
        headway_gil::set_context_of_this_thread(0);
    }

    fn number_of(&mut self, target: &[u8]) -> u32 {
        let end = target.iter().position(|byte| *byte == b'?').unwrap_or(target.len());
        let path = &target[..end];
        if let Some(number) = self.known.get(path) {
            return *number;
        }
        let number = contexts::number_of(&endpoint_of(target));
        if self.known.len() >= MAX_KNOWN {
            self.known.clear();
        }
        if path.len() <= MAX_PATH_BYTES {
            self.known.insert(path.into(), number);
        }
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_one_endpoint_have_one_number_and_few_are_remembered() {
        let mut contexts = Contexts::default();
        let first = contexts.number_of(b"/orders/17?x=1");
        assert_eq!(headway_reporter::contexts::name_of(first).as_deref(), Some("/orders/*"));
        for number in 0..10_000 {
            assert_eq!(contexts.number_of(format!("/orders/{number}").as_bytes()), first);
            assert!(contexts.known.len() <= MAX_KNOWN);
        }
    }
}
