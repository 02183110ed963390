//! The route of a request, as the application's framework names it.
//!
//! | framework | where it names the route |
//! |---|---|
//! | any, and middleware | `environ["headway.route"]`, a str |
//! | Flask | `environ["werkzeug.request"].url_rule.rule` |
//! | Bottle | `environ["bottle.route"].rule` |
//! | Django | `response._resource_closers` has `request.close`; `request.resolver_match.route` |
//!
//! With telemetry only, the route is looked up after the response and before the iterable is
//! closed. Nothing is imported. Any exception means that the route is not known: no exception
//! leaves this file. Each thread keeps names of its own, as for the environ.
//!
//! Flask takes its request out of the environ before it returns. So a `RouteProbe` takes a
//! reference when the response starts, and the request is looked at later, when no code of the
//! application is in the middle of anything.

use crate::stats::Route;
use crate::stats::routes::Routes;
use headway_python::attached::Attached;
use headway_python::convert::ToPython;
use headway_python::exception::clear_raised;
use headway_python::object::{Object, PyResult, Raised};
use headway_python::stored::Stored;
use std::cell::Cell;

/// A thread remembers the numbers of so many names, and then forgets all.
const MAX_KNOWN: usize = 256;
/// Longer names are truncated.
const MAX_NAME_BYTES: usize = 200;
/// Django's list has one entry, and more where an application adds some.
const MAX_CLOSERS: usize = 4;

pub struct RouteFinder {
    headway_route: Stored,
    script_name: Stored,
    werkzeug_request: Stored,
    url_rule: Stored,
    bottle_route: Stored,
    rule: Stored,
    resource_closers: Stored,
    bound_to: Stored,
    resolver_match: Stored,
    route: Stored,
    /// A dict of names as they were found, to numbers.
    known: Stored,
    /// The type of the last iterable that was not a response of Django.
    other_iterable: Option<Stored>,
}

/// The references that the look-up of one request needs.
pub struct RouteProbe {
    environ: Stored,
    /// The number of items before the application was called. A framework adds an item to name the
    /// route, so that nothing is looked up where none was added.
    items: usize,
    key: Stored,
    werkzeug_request: Cell<Option<Stored>>,
}

impl RouteProbe {
    /// Called when the response starts. Runs no code of the application.
    pub fn note_start(&self, py: Attached) {
        if !self.has_more_items(py) {
            return;
        }
        match self.environ.get(py).get_item(self.key.get(py)) {
            Ok(Some(request)) => self.werkzeug_request.set(Some(Stored::new(request))),
            Ok(None) => {}
            Err(Raised) => clear_raised(py),
        }
    }

    fn has_more_items(&self, py: Attached) -> bool {
        // It is a dict, which has a length.
        self.environ.get(py).dict_length().is_ok_and(|items| items > self.items)
    }
}

impl RouteFinder {
    pub fn new(py: Attached) -> PyResult<Self> {
        let key = |text| Stored::interned(py, text);
        Ok(Self {
            headway_route: key(c"headway.route")?,
            script_name: key(c"SCRIPT_NAME")?,
            werkzeug_request: key(c"werkzeug.request")?,
            url_rule: key(c"url_rule")?,
            bottle_route: key(c"bottle.route")?,
            rule: key(c"rule")?,
            resource_closers: key(c"_resource_closers")?,
            bound_to: key(c"__self__")?,
            resolver_match: key(c"resolver_match")?,
            route: key(c"route")?,
            known: Stored::new(Object::new_dict(py)?),
            other_iterable: None,
        })
    }

    /// `environ` is a dict.
    pub fn probe(&self, environ: &Object) -> RouteProbe {
        RouteProbe {
            environ: Stored::new(environ.clone()),
            items: environ.dict_length().unwrap_or(usize::MAX),
            key: Stored::new(self.werkzeug_request.get(environ.py()).clone()),
            werkzeug_request: Cell::new(None),
        }
    }

    /// The route of a request. `iterable` is what the application returned, unless it raised.
    pub fn find(
        &mut self,
        py: Attached,
        probe: &RouteProbe,
        iterable: Option<&Object>,
        routes: &Routes,
    ) -> Route {
        self.try_find(py, probe, iterable, routes).unwrap_or_else(|Raised| {
            // This may be the exception that was meant to end the request.
            clear_raised(py);
            Route::NONE
        })
    }

    fn try_find(
        &mut self,
        py: Attached,
        probe: &RouteProbe,
        iterable: Option<&Object>,
        routes: &Routes,
    ) -> PyResult<Route> {
        let environ = probe.environ.get(py);
        if probe.has_more_items(py) {
            if let Some(name) =
                environ.get_item(self.headway_route.get(py))?.filter(Object::is_exact_text)
            {
                return self.number_of(&name, name.as_text()?, routes);
            }
        }
        let rule = self.rule_of_framework(py, probe, iterable)?;
        let Some(name) = rule.filter(Object::is_exact_text) else { return Ok(Route::NONE) };
        // Two applications below different paths may both have a route `/`.
        let script_name = environ.get_item(self.script_name.get(py))?.filter(Object::is_exact_text);
        match script_name.as_ref().map(Object::as_text).transpose()?.filter(|it| !it.is_empty()) {
            None => self.number_of(&name, &below("", name.as_text()?), routes),
            Some(script_name) => {
                let both = format!("{script_name}{}", name.as_text()?);
                let found = Object::from_text(py, &both)?;
                self.number_of(&found, &below(script_name, name.as_text()?), routes)
            }
        }
    }

    fn rule_of_framework<'py>(
        &mut self,
        py: Attached<'py>,
        probe: &RouteProbe,
        iterable: Option<&Object<'py>>,
    ) -> PyResult<Option<Object<'py>>> {
        if let Some(request) = probe.werkzeug_request.take() {
            return attribute(request.get(py), &self.url_rule)?
                .map_or(Ok(None), |rule| attribute(&rule, &self.rule));
        }
        if probe.has_more_items(py) {
            if let Some(route) = probe.environ.get(py).get_item(self.bottle_route.get(py))? {
                return attribute(&route, &self.rule);
            }
        }
        iterable.map_or(Ok(None), |iterable| self.rule_of_django(iterable))
    }

    fn rule_of_django<'py>(&mut self, response: &Object<'py>) -> PyResult<Option<Object<'py>>> {
        let py = response.py();
        let is_other = |other: &Stored| response.is_exactly_a(other.get(py));
        if response.is_exact_list()
            || response.is_exact_tuple()
            || self.other_iterable.as_ref().is_some_and(is_other)
        {
            return Ok(None);
        }
        let Some(closers) = attribute(response, &self.resource_closers)? else {
            self.other_iterable = Some(Stored::new(response.class()));
            return Ok(None);
        };
        if !closers.is_exact_list() {
            return Ok(None);
        }
        for index in 0..closers.list_length()?.min(MAX_CLOSERS) {
            let closer = closers.list_item(index)?;
            let Some(request) = attribute(&closer, &self.bound_to)? else { continue };
            if let Some(resolved) = attribute(&request, &self.resolver_match)? {
                return attribute(&resolved, &self.route);
            }
        }
        Ok(None)
    }

    /// The number of a route that the framework calls `found`.
    fn number_of(&mut self, found: &Object, name: &str, routes: &Routes) -> PyResult<Route> {
        let py = found.py();
        let known = self.known.get(py);
        if let Some(number) = known.get_item(found)? {
            return Ok(Route(number.to_i64()? as u32));
        }
        let mut end = name.len().min(MAX_NAME_BYTES);
        while !name.is_char_boundary(end) {
            end -= 1;
        }
        let route = routes.of(&name[..end]);
        if known.dict_length()? >= MAX_KNOWN {
            known.clear_dict();
        }
        known.set_item(found, &route.0.to_python(py)?)?;
        Ok(route)
    }
}

/// A rule as a path: Django's rules begin without a slash, or are regular expressions.
fn below(script_name: &str, rule: &str) -> String {
    let rule = rule.strip_prefix('^').map_or(rule, |rest| rest.trim_end_matches('$'));
    let slash = if rule.starts_with('/') { "" } else { "/" };
    format!("{script_name}{slash}{rule}")
}

/// An attribute; `None` if there is none or it is None.
fn attribute<'py>(object: &Object<'py>, name: &Stored) -> PyResult<Option<Object<'py>>> {
    let value = object.find_attribute(name.get(object.py()))?;
    Ok(value.filter(|value| !value.is_none()))
}
