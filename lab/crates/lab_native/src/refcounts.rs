//! `_native.refcount_*`: measures native threads that count references in one of several ways.

use headway_python::attached::Attached;
use headway_python::convert::{ToPython, arguments, tuple};
use headway_python::exception::Exception;
use headway_python::function::{END, Methods, function};
use headway_python::object::{Object, PyResult};
use headway_refcounts::{Found, Kind, MAX_THREADS};

pub static FUNCTIONS: Methods<3> = Methods::new([
    function(
        c"refcount_kinds",
        kinds,
        c"refcount_kinds() -> list[str]\n\
          \n\
          Returns the kinds that refcount_measure() accepts.",
    ),
    function(
        c"refcount_measure",
        measure,
        c"refcount_measure(kind: str, threads: int, pairs: int, shared: bool) -> tuple[int, int]\n\
          \n\
          Starts native threads, each of which increments and decrements a count `pairs` times:\n\
          of one shared object, or of an object of its own. Returns the time in ns that all took,\n\
          and by how much counts are wrong at the end. The GIL is released meanwhile.",
    ),
    END,
]);

fn kinds<'py>(py: Attached<'py>, _: &[Object<'py>]) -> PyResult<Object<'py>> {
    Kind::ALL.map(Kind::name)[..].to_python(py)
}

fn measure<'py>(py: Attached<'py>, given: &[Object<'py>]) -> PyResult<Object<'py>> {
    let (name, threads, pairs, shared): (&str, u32, u64, bool) =
        arguments(py, "refcount_measure", given)?;
    let refuse = |message: String| Exception::ValueError.raise(py, &message);
    let Some(kind) = Kind::parse(name) else {
        let known = Kind::ALL.map(Kind::name).join(", ");
        return Err(refuse(format!("kind {name:?}: there are {known}")));
    };
    let threads = threads as usize;
    if !(1..=MAX_THREADS).contains(&threads) {
        return Err(refuse(format!("threads: found {threads}; there may be 1 to {MAX_THREADS}")));
    }
    let Found { ns, wrong_by } = py.detach(|| kind.measure(threads, pairs, shared));
    tuple(py, &[&ns, &wrong_by])
}
