//! Copies of one GIL's thread books, brought up to date again and again until they are of one moment.
//!
//! Each try copies only the books that changed since the last, so that even with hundreds of busy
//! threads the last try takes microseconds. Runs outside the hooks, under the registry lock.

use std::sync::atomic::{Ordering::*, fence};

use crate::counters::book::{ThreadBook, state};
use crate::counters::free_list;
use crate::counters::mapping::{BOOKS, Slot};

pub struct Copies {
    gil: u32,
    copies: Vec<Copy>,
    /// Where in `copies` the copy of a book is, by the book's index.
    places: Vec<Option<u32>>,
}

struct Copy {
    index: u32,
    /// No event fell into the copying, so only a later one makes it stale.
    whole: bool,
    book: Box<ThreadBook>,
}

impl Copies {
    pub fn of_gil(gil: u32) -> Self {
        Self { gil, copies: Vec::new(), places: vec![None; BOOKS] }
    }

    /// Copies the GIL's books that `wanted` says yes to, but for those whose copy is up to date.
    /// `sequence` is the GIL's: odd, or another than before, if an event fell in between.
    pub fn copy(
        &mut self,
        slot: &Slot,
        sequence: impl Fn() -> u32,
        wanted: impl Fn(u32, &ThreadBook) -> bool,
    ) {
        for (index, book) in free_list::used(slot) {
            let in_use = book.state.load(Acquire) != state::FREE;
            if !in_use || book.gil.load(Relaxed) != self.gil || !wanted(index, book) {
                continue;
            }
            let copy = self.place_for(index);
            if copy.whole && copy.book.events() == book.events() {
                continue;
            }
            let before = sequence();
            copy.book.copy_from(book);
            fence(Acquire);
            copy.whole = before % 2 == 0 && sequence() == before;
        }
    }

    /// Copies the GIL's books that have no copy yet and that `wanted` says yes to.
    pub fn copy_others(&mut self, slot: &Slot, wanted: impl Fn(u32, &ThreadBook) -> bool) {
        let copied: Vec<bool> = self.places.iter().map(Option::is_some).collect();
        self.copy(slot, || 0, |index, book| !copied[index as usize] && wanted(index, book));
    }

    pub fn into_books(self) -> impl Iterator<Item = (u32, Box<ThreadBook>)> {
        self.copies.into_iter().map(|copy| (copy.index, copy.book))
    }

    fn place_for(&mut self, index: u32) -> &mut Copy {
        let place = *self.places[index as usize].get_or_insert_with(|| {
            let book = Box::new(ThreadBook::new());
            self.copies.push(Copy { index, whole: false, book });
            self.copies.len() as u32 - 1
        });
        &mut self.copies[place as usize]
    }
}
