//! `_native.telemetry_*`: telemetry's datagrams and records as Python objects, for
//! `headway.recorder` and for a supervisor that reports dead processes.

mod arriving;
mod reading;
pub mod reporting;
mod writing;

use headway_python::attached::Attached;
use headway_python::capsule::{self, InCapsule};
use headway_python::convert::{arguments, list, tuple};
use headway_python::exception::Exception;
use headway_python::function::{END, Methods, function};
use headway_python::object::{Object, PyResult, Raised};
use headway_telemetry::datagram::{Datagram, Header};
use headway_telemetry::fields::kind;
use headway_telemetry::lines::LineNames;
use headway_telemetry::merge::Sum;
use headway_telemetry::record::RecordWriter;
use headway_telemetry::stacks::CallIds;
use headway_telemetry::{Malformed, plausible, spread, tick};
use std::ffi::CStr;
use std::sync::{Mutex, PoisonError};

pub static FUNCTIONS: Methods<11> = Methods::new([
    function(
        c"telemetry_arrived",
        arriving::arrived,
        c"telemetry_arrived(socket: int, wake: int, timeout_ns: int)\n\
          -> ([(datagram, credentials, is_cut)], is_woken, refused)\n\
          \n\
          Waits for a datagram on the descriptor `socket`, or for something to read on `wake`,\n\
          and takes all datagrams that arrive within the timeout. credentials are the kernel's\n\
          (pid, uid) (SO_PASSCRED), or None. refused is the number of datagrams that were dropped\n\
          because a sender or a user exceeded its rate.",
    ),
    function(
        c"telemetry_parse",
        parse,
        c"telemetry_parse(datagram: bytes) -> (kind, pid, seq, stamp, fields)\n\
          \n\
          All fields by name, times in seconds, histograms as in a report, rows as lists of\n\
          dicts; fields without a name as 'id1234'. Raises ValueError with one line for anything\n\
          malformed.",
    ),
    function(
        c"telemetry_receive",
        receive,
        c"telemetry_receive(datagram: bytes) -> (kind, pid, seq, stamp, fields, record)\n\
          \n\
          Returns the parts of a datagram that a recorder uses: of a tick, the fields that\n\
          describe its sender, the long holds, and the record with the rest; of other kinds,\n\
          the numbers and texts that have a name, and None.\n\
          Raises ValueError for anything malformed, and for a tick with more than a process can\n\
          do in its interval.",
    ),
    function(
        c"telemetry_holder_names",
        holder_names,
        c"telemetry_holder_names() -> capsule\n\
          \n\
          The names of lines and calls that one process has sent, for telemetry_add_holders().",
    ),
    function(
        c"telemetry_add_holders",
        add_holders,
        c"telemetry_add_holders(names: capsule, datagram: bytes, record: bytes)\n\
          -> (record: bytes, [(id, caller, function, place, endpoint)])\n\
          \n\
          The record of a tick with the rows of its lines and stacks, and the calls that the tick\n\
          names. The caller is an identifier, or None for an outermost call. A row of a stack has\n\
          the identifier of an innermost call. Keeps the names that the tick has.",
    ),
    function(
        c"telemetry_record",
        record,
        c"telemetry_record(datagram: bytes) -> bytes\n\
          \n\
          The record of a tick; records add up. Raises ValueError for anything malformed.",
    ),
    function(
        c"telemetry_merge",
        merge,
        c"telemetry_merge(records) -> bytes\n\
          \n\
          The sum of an iterable of records, of one process over time or of several processes.",
    ),
    function(
        c"telemetry_spread",
        spread,
        c"telemetry_spread(record: bytes, end: float, origin: float, width: float)\n\
          -> [(cell: int, record: bytes)]\n\
          \n\
          The cells of `width` seconds from `origin` on in which a tick lies that ended at `end`,\n\
          the latest first. The record of a late tick, or of one longer than a cell, is divided\n\
          over the cells that it covers, as far as they begin at `origin` or later.",
    ),
    function(
        c"telemetry_read",
        read,
        c"telemetry_read(record: bytes) -> dict\n\
          \n\
          A record's fields by name, as in telemetry_parse(). A setting with several values is a\n\
          list.",
    ),
    function(
        c"telemetry_encode",
        encode,
        c"telemetry_encode(kind: int, pid: int, seq: int, stamp: float, fields: dict) -> bytes\n\
          \n\
          The datagram of a dict such as telemetry_parse() returns; a histogram is a sequence of\n\
          (seconds, count). Raises ValueError for an unknown name or value.",
    ),
    END,
]);

fn refuse(py: Attached, error: Malformed) -> Raised {
    Exception::ValueError.raise(py, &error.0)
}

fn parse<'py>(py: Attached<'py>, given: &[Object<'py>]) -> PyResult<Object<'py>> {
    let (bytes,): (&[u8],) = arguments(py, "telemetry_parse", given)?;
    let datagram = Datagram::parse(bytes).map_err(|error| refuse(py, error))?;
    let Header { kind, pid, seq, stamp_s } = datagram.header;
    let fields = reading::datagram(py, &datagram)?;
    tuple(py, &[&u32::from(kind), &pid, &seq, &stamp_s, &fields])
}

fn receive<'py>(py: Attached<'py>, given: &[Object<'py>]) -> PyResult<Object<'py>> {
    let (bytes,): (&[u8],) = arguments(py, "telemetry_receive", given)?;
    let datagram = Datagram::parse(bytes).map_err(|error| refuse(py, error))?;
    let Header { kind, pid, seq, stamp_s } = datagram.header;
    let (fields, record) = if kind == kind::REQUEST_METRICS {
        let record = tick::record(&datagram);
        plausible::check(&record).map_err(|error| refuse(py, error))?;
        (reading::of_sender(py, &datagram)?, Object::from_bytes(py, &record)?)
    } else {
        (reading::of_event(py, &datagram)?, Object::none(py))
    };
    tuple(py, &[&u32::from(kind), &pid, &seq, &stamp_s, &fields, &record])
}

#[derive(Default)]
struct HolderNames {
    lines: LineNames,
    calls: CallIds,
}

struct HolderNamesCapsule(Mutex<HolderNames>);

// SAFETY: no other type has this name.
unsafe impl InCapsule for HolderNamesCapsule {
    const NAME: &'static CStr = c"headway._native.holder_names";
}

fn holder_names<'py>(py: Attached<'py>, _: &[Object<'py>]) -> PyResult<Object<'py>> {
    capsule::new(py, HolderNamesCapsule(Mutex::default()))
}

fn add_holders<'py>(py: Attached<'py>, given: &[Object<'py>]) -> PyResult<Object<'py>> {
    let (names, bytes, record): (&Object, &[u8], &[u8]) =
        arguments(py, "telemetry_add_holders", given)?;
    let HolderNamesCapsule(names) = capsule::value(names)?;
    let datagram = Datagram::parse(bytes).map_err(|error| refuse(py, error))?;
    let mut names = names.lock().unwrap_or_else(PoisonError::into_inner);
    let HolderNames { lines, calls } = &mut *names;
    let mut record = RecordWriter::after(record.to_vec()).map_err(|error| refuse(py, error))?;
    lines.add_lines(&datagram, &mut record);
    let named = calls.add_stacks(&datagram, &mut record);
    lines.add_late_lines(&datagram, &mut record);
    calls.add_late_stacks(&datagram, &mut record);
    let calls = list(py, &named, |call| {
        let text = |bytes: &[u8]| Object::from_utf8_lossy(py, bytes);
        let caller = call.caller.as_ref().map(|caller| text(caller)).transpose()?;
        let [function, place, endpoint] = &call.texts;
        tuple(py, &[&text(&call.id)?, &caller, &text(function)?, &text(place)?, &text(endpoint)?])
    })?;
    tuple(py, &[&Object::from_bytes(py, record.bytes())?, &calls])
}

fn record<'py>(py: Attached<'py>, given: &[Object<'py>]) -> PyResult<Object<'py>> {
    let (bytes,): (&[u8],) = arguments(py, "telemetry_record", given)?;
    let datagram = Datagram::parse(bytes).map_err(|error| refuse(py, error))?;
    Object::from_bytes(py, &tick::record(&datagram))
}

fn read<'py>(py: Attached<'py>, given: &[Object<'py>]) -> PyResult<Object<'py>> {
    let (bytes,): (&[u8],) = arguments(py, "telemetry_read", given)?;
    reading::record(py, bytes)
}

fn merge<'py>(py: Attached<'py>, given: &[Object<'py>]) -> PyResult<Object<'py>> {
    let (records,): (&Object,) = arguments(py, "telemetry_merge", given)?;
    let records = records.to_tuple()?;
    let mut sum = Sum::default();
    for record in records.as_tuple().unwrap_or_default() {
        let bytes =
            record.as_bytes().ok_or_else(|| Exception::TypeError.raise(py, "a record is bytes"))?;
        sum.add(bytes).map_err(|error| refuse(py, error))?;
    }
    Object::from_bytes(py, &sum.into_record())
}

fn spread<'py>(py: Attached<'py>, given: &[Object<'py>]) -> PyResult<Object<'py>> {
    let (record, end_s, origin_s, width_s): (&[u8], f64, f64, f64) =
        arguments(py, "telemetry_spread", given)?;
    if !(end_s.is_finite() && origin_s.is_finite() && width_s.is_finite() && width_s > 0.0) {
        return Err(Exception::ValueError.raise(py, "times are finite, and a width is positive"));
    }
    let cells = spread::spread(record, end_s, origin_s, width_s);
    let cells = cells.map_err(|error| refuse(py, error))?;
    list(py, &cells, |(cell, part)| tuple(py, &[cell, &Object::from_bytes(py, part)?]))
}

fn encode<'py>(py: Attached<'py>, given: &[Object<'py>]) -> PyResult<Object<'py>> {
    let (kind, pid, seq, stamp_s, fields): (u32, u32, u32, f64, &Object) =
        arguments(py, "telemetry_encode", given)?;
    let Ok(kind) = u8::try_from(kind) else {
        return Err(Exception::ValueError.raise(py, "a kind is below 256"));
    };
    Object::from_bytes(py, &writing::datagram(&Header { kind, pid, seq, stamp_s }, fields)?)
}
