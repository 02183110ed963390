//! The work that threads do, as numbers that a thread can note where it may not allocate
//! (`headway_gil::set_context_of_this_thread`). Servers note endpoints.

use headway_threads::lock::Lock;
use std::collections::HashMap;
use std::sync::Arc;

/// Further names have no number.
const MAX_NAMES: usize = 1_024;

static NAMES: Lock<Option<Names>> = Lock::new(None);

#[derive(Default)]
struct Names {
    numbers: HashMap<Arc<str>, u32>,
    /// The name of context 1 is the first.
    names: Vec<Arc<str>>,
}

/// The number of a name in this process; 0 if there are too many.
pub fn number_of(name: &str) -> u32 {
    let mut names = NAMES.lock();
    let names = names.get_or_insert_default();
    if let Some(number) = names.numbers.get(name) {
        return *number;
    }
    if names.names.len() == MAX_NAMES {
        return 0;
    }
    let name: Arc<str> = name.into();
    names.names.push(Arc::clone(&name));
    let number = names.names.len() as u32;
    names.numbers.insert(name, number);
    number
}

/// The name of a number that `number_of` returned.
pub fn name_of(number: u32) -> Option<Arc<str>> {
    let index = (number as usize).checked_sub(1)?;
    NAMES.lock().as_ref()?.names.get(index).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_number_and_the_number_of_names_is_bounded() {
        let first = number_of("/users/*");
        assert_eq!((number_of("/users/*"), name_of(first).as_deref()), (first, Some("/users/*")));
        assert!(first != 0 && name_of(0).is_none());
        let numbers = (0..2 * MAX_NAMES).map(|each| number_of(&each.to_string()));
        assert!(numbers.filter(|number| *number != 0).count() < MAX_NAMES);
        assert_eq!(number_of("/users/*"), first);
    }
}
