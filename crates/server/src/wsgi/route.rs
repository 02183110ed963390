//! Which of its routes a request took, as the application's framework says it.
//!
//! | framework | where it says so |
//! |---|---|
//! | any, and middleware | `environ["headway.route"]`, a str |
//! | Flask | `environ["werkzeug.request"].url_rule.rule` |
//! | Bottle | `environ["bottle.route"].rule` |
//! | Django | the response's `_resource_closers` has `request.close`; `request.resolver_match.route` |
//!
//! Asked once the application is done with its response, and only with telemetry. Nothing is imported, and
//! whatever goes wrong means that the route is not known: no exception leaves this file. Each thread keeps its
//! own names, as for the environ.
//!
//! Flask takes its request out of the environ before it returns, so that one is seen (a `Sighting`) as the response
//! starts, and looked at later, when no code of the application's is in the middle of anything.

use crate::stats::Route;
use crate::stats::routes::Routes;
use headway_python::object::{Object, PyResult, Raised, get_item};
use pyo3_ffi::*;
use std::cell::Cell;
use std::ptr;

/// Names that a thread remembers the numbers of. Then all are forgotten.
const MAX_KNOWN: i64 = 256;
/// A longer name is cut.
const MAX_NAME_BYTES: usize = 200;
/// Django's list has one entry, and more where an application adds some.
const MAX_CLOSERS: Py_ssize_t = 4;

pub struct RouteFinder {
    headway_route: Object,
    script_name: Object,
    werkzeug_request: Object,
    url_rule: Object,
    bottle_route: Object,
    rule: Object,
    resource_closers: Object,
    bound_to: Object,
    resolver_match: Object,
    route: Object,
    /// A dict of names as they were found, to numbers.
    known: Object,
    /// The type of the last iterable that was none of Django's.
    other_iterable: Option<Object>,
}

/// What is to be looked at of one request.
pub struct Sighting {
    environ: Object,
    /// How many items it had before the application was called. Whoever says a route adds one, so that nothing
    /// is looked up where none was added.
    items: Py_ssize_t,
    key: Object,
    werkzeug_request: Cell<Option<Object>>,
}

impl Sighting {
    /// The response starts. Attached; runs nothing of the application's.
    pub fn note_start(&self) {
        if !self.has_more_items() {
            return;
        }
        match get_item(&self.environ, &self.key) {
            Ok(Some(request)) => self.werkzeug_request.set(Some(request)),
            Ok(None) => {}
            // SAFETY: attached.
            Err(Raised) => unsafe { PyErr_Clear() },
        }
    }

    fn has_more_items(&self) -> bool {
        // SAFETY: a live dict.
        unsafe { PyDict_Size(self.environ.as_ptr()) > self.items }
    }
}

impl RouteFinder {
    pub fn new() -> PyResult<Self> {
        Ok(Self {
            headway_route: Object::interned(c"headway.route")?,
            script_name: Object::interned(c"SCRIPT_NAME")?,
            werkzeug_request: Object::interned(c"werkzeug.request")?,
            url_rule: Object::interned(c"url_rule")?,
            bottle_route: Object::interned(c"bottle.route")?,
            rule: Object::interned(c"rule")?,
            resource_closers: Object::interned(c"_resource_closers")?,
            bound_to: Object::interned(c"__self__")?,
            resolver_match: Object::interned(c"resolver_match")?,
            route: Object::interned(c"route")?,
            // SAFETY: a new reference.
            known: unsafe { Object::from_new(PyDict_New())? },
            other_iterable: None,
        })
    }

    pub fn sight(&self, environ: &Object) -> Sighting {
        // SAFETY: live objects.
        unsafe {
            Sighting {
                environ: Object::from_borrowed(environ.as_ptr()),
                items: PyDict_Size(environ.as_ptr()),
                key: Object::from_borrowed(self.werkzeug_request.as_ptr()),
                werkzeug_request: Cell::new(None),
            }
        }
    }

    /// The route of a request; `iterable` is what the application returned, if it did.
    pub fn find(
        &mut self,
        sighting: &Sighting,
        iterable: Option<&Object>,
        routes: &Routes,
    ) -> Route {
        self.try_find(sighting, iterable, routes).unwrap_or_else(|Raised| {
            // SAFETY: attached. It may be the very exception that was to end the request.
            unsafe { PyErr_Clear() };
            Route::NONE
        })
    }

    fn try_find(
        &mut self,
        sighting: &Sighting,
        iterable: Option<&Object>,
        routes: &Routes,
    ) -> PyResult<Route> {
        let environ = &sighting.environ;
        if sighting.has_more_items()
            && let Some(name) = get_item(environ, &self.headway_route)?.filter(is_str)
        {
            return self.number_of(&name, name.to_text()?, routes);
        }
        let Some(name) = self.rule_of_framework(sighting, iterable)?.filter(is_str) else {
            return Ok(Route::NONE);
        };
        // Two applications below different paths may both have a route `/`.
        match get_item(environ, &self.script_name)?.filter(is_str).filter(|it| !is_empty(it)) {
            None => self.number_of(&name, below("", &name)?, routes),
            Some(script_name) => {
                // SAFETY: two strs.
                let both = unsafe {
                    Object::from_new(PyUnicode_Concat(script_name.as_ptr(), name.as_ptr()))?
                };
                let text = below(&script_name.to_text()?, &name)?;
                self.number_of(&both, text, routes)
            }
        }
    }

    fn rule_of_framework(
        &mut self,
        sighting: &Sighting,
        iterable: Option<&Object>,
    ) -> PyResult<Option<Object>> {
        if let Some(request) = sighting.werkzeug_request.take() {
            return attribute(&request, &self.url_rule)?
                .map_or(Ok(None), |rule| attribute(&rule, &self.rule));
        }
        if sighting.has_more_items()
            && let Some(route) = get_item(&sighting.environ, &self.bottle_route)?
        {
            return attribute(&route, &self.rule);
        }
        iterable.map_or(Ok(None), |iterable| self.rule_of_django(iterable))
    }

    fn rule_of_django(&mut self, response: &Object) -> PyResult<Option<Object>> {
        let class = class_of(response);
        let is_plain = [&raw mut PyList_Type, &raw mut PyTuple_Type].contains(&class.cast());
        if is_plain || self.other_iterable.as_ref().is_some_and(|other| other.as_ptr() == class) {
            return Ok(None);
        }
        let Some(closers) = attribute(response, &self.resource_closers)? else {
            // SAFETY: a live object's type.
            self.other_iterable = Some(unsafe { Object::from_borrowed(class) });
            return Ok(None);
        };
        // SAFETY: a live object; a list where its items are asked for, each a new reference, or null and
        // IndexError if there is none any more.
        unsafe {
            if PyList_CheckExact(closers.as_ptr()) == 0 {
                return Ok(None);
            }
            for index in 0..PyList_Size(closers.as_ptr()).min(MAX_CLOSERS) {
                let closer = Object::from_new(PySequence_GetItem(closers.as_ptr(), index))?;
                let Some(request) = attribute(&closer, &self.bound_to)? else { continue };
                if let Some(resolved) = attribute(&request, &self.resolver_match)? {
                    return attribute(&resolved, &self.route);
                }
            }
        }
        Ok(None)
    }

    /// The number of a route, whose name was found as `found`.
    fn number_of(&mut self, found: &Object, name: String, routes: &Routes) -> PyResult<Route> {
        if let Some(number) = get_item(&self.known, found)? {
            return Ok(Route(number.to_i64()? as u32));
        }
        let mut end = name.len().min(MAX_NAME_BYTES);
        while !name.is_char_boundary(end) {
            end -= 1;
        }
        let route = routes.of(&name[..end]);
        // SAFETY: a dict of our own, live objects.
        unsafe {
            if PyDict_Size(self.known.as_ptr()) as i64 >= MAX_KNOWN {
                PyDict_Clear(self.known.as_ptr());
            }
            let number = Object::from_new(PyLong_FromUnsignedLong(route.0.into()))?;
            match PyDict_SetItem(self.known.as_ptr(), found.as_ptr(), number.as_ptr()) {
                0 => Ok(route),
                _ => Err(Raised),
            }
        }
    }
}

/// A rule as a path: Django's begin without a slash, or are regular expressions.
fn below(script_name: &str, rule: &Object) -> PyResult<String> {
    let rule = rule.to_text()?;
    let rule = rule.strip_prefix('^').map_or(&rule[..], |rest| rest.trim_end_matches('$'));
    let slash = if rule.starts_with('/') { "" } else { "/" };
    Ok(format!("{script_name}{slash}{rule}"))
}

/// An attribute, unless there is none or it is None.
fn attribute(object: &Object, name: &Object) -> PyResult<Option<Object>> {
    // SAFETY: live objects.
    unsafe {
        match Object::from_new(PyObject_GetAttr(object.as_ptr(), name.as_ptr())) {
            Ok(value) => Ok(Some(value).filter(|value| value.as_ptr() != Py_None())),
            Err(Raised) if PyErr_ExceptionMatches(PyExc_AttributeError) != 0 => {
                PyErr_Clear();
                Ok(None)
            }
            Err(Raised) => Err(Raised),
        }
    }
}

fn is_str(object: &Object) -> bool {
    // SAFETY: a live object.
    unsafe { PyUnicode_CheckExact(object.as_ptr()) != 0 }
}

fn is_empty(text: &Object) -> bool {
    // SAFETY: a str.
    unsafe { PyUnicode_GetLength(text.as_ptr()) == 0 }
}

fn class_of(object: &Object) -> *mut PyObject {
    // SAFETY: a live object has a type.
    unsafe { ptr::from_mut(&mut *Py_TYPE(object.as_ptr())).cast() }
}
