//! Routes as numbers, so that a record can contain one without an allocation.

use headway_threads::lock::Lock;
use rustc_hash::FxHashMap;
use std::sync::{Arc, MutexGuard};

/// The number of routes that are named. A framework with more of them probably reports something
/// else.
/// Further routes are `Route::NONE`.
const MAX_ROUTES: usize = 1_024;

/// The number of a route in this process's applications.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Route(pub u32);

impl Route {
    /// The route is not known.
    pub const NONE: Self = Self(0);
}

/// The names of all routes. All worker threads share it and lock it for each look-up.
#[derive(Debug, Default)]
pub struct Routes(Lock<Names>);

#[derive(Debug, Default)]
struct Names {
    numbers: FxHashMap<Arc<str>, u32>,
    /// The name of `Route(1)` is the first.
    names: Vec<Arc<str>>,
}

impl Routes {
    /// Returns the route with this name, or `Route::NONE` if there are too many routes.
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
        self.0.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_number_and_the_number_of_routes_is_bounded() {
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
