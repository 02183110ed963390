//! Names of routes as numbers, so that a record can carry one.

use rustc_hash::FxHashMap;
use std::sync::{Arc, Mutex, MutexGuard};

/// More are hardly an application's own; these have none.
const MAX_ROUTES: usize = 1_024;

/// A route of this process's applications.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Route(pub u32);

impl Route {
    /// It is not known.
    pub const NONE: Self = Self(0);
}

/// The names of all routes. Shared by all worker threads, which lock it for a look-up.
#[derive(Debug, Default)]
pub struct Routes(Mutex<Names>);

#[derive(Debug, Default)]
struct Names {
    numbers: FxHashMap<Arc<str>, u32>,
    /// That of `Route(1)` first.
    names: Vec<Arc<str>>,
}

impl Routes {
    /// The route of that name; none once there are too many.
    pub fn of(&self, name: &str) -> Route {
        let mut names = self.lock();
        if let Some(number) = names.numbers.get(name) {
            return Route(*number);
        }
        if names.names.len() == MAX_ROUTES {
            return Route::NONE;
        }
        let name: Arc<str> = name.into();
        names.names.push(Arc::clone(&name));
        let number = names.names.len() as u32;
        names.numbers.insert(name, number);
        Route(number)
    }

    pub fn name(&self, route: Route) -> Option<Arc<str>> {
        self.lock().names.get((route.0 as usize).checked_sub(1)?).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, Names> {
        self.0.lock().expect("no panic under this lock")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_number_and_there_are_not_too_many() {
        let routes = Routes::default();
        let first = routes.of("/users/<id>");
        assert_ne!(first, Route::NONE);
        assert_eq!(routes.of("/users/<id>"), first);
        assert_eq!(routes.name(first).as_deref(), Some("/users/<id>"));
        assert_eq!(routes.name(Route::NONE), None);
        let given = (0..2 * MAX_ROUTES).map(|number| routes.of(&number.to_string()));
        assert_eq!(given.filter(|route| *route != Route::NONE).count(), MAX_ROUTES - 1);
    }
}
