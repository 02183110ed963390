//! Fields of datagrams and records as dicts.

use headway_measure::Histogram;
use headway_measure::scale::upper_bound_ns;
use headway_python::attached::Attached;
use headway_python::convert::{ToPython, dict, list};
use headway_python::object::{Object, PyResult};
use headway_telemetry::datagram::{self, Datagram};
use headway_telemetry::fields::{Field, Kept, field, id};
use headway_telemetry::histogram::decode;
use headway_telemetry::record::{self, Slot};
use headway_telemetry::{Malformed, Value, counts, seconds_list};

use super::refuse;

pub fn datagram<'py>(py: Attached<'py>, datagram: &Datagram) -> PyResult<Object<'py>> {
    of_entries(py, datagram.fields().map(Ok), datagram_row)
}

/// Returns the fields of a tick that describe its sender, and its holds, which records do not
/// contain.
pub fn of_sender<'py>(py: Attached<'py>, datagram: &Datagram) -> PyResult<Object<'py>> {
    let of_sender = |id: &u16| *id == id::HOLDS || field(*id).is_some_and(Field::is_of_sender);
    let entries = datagram.fields().filter(|(id, _)| of_sender(id));
    of_entries(py, entries.map(Ok), event)
}

/// Returns the known numbers and texts of an event. Lists, and fields that only a later version
/// knows, would need many times their bytes in memory.
pub fn of_event<'py>(py: Attached<'py>, datagram: &Datagram) -> PyResult<Object<'py>> {
    of_entries(py, datagram.fields().filter(is_of_event).map(Ok), nested)
}

fn event<'py>(py: Attached<'py>, row: &[u8]) -> PyResult<Object<'py>> {
    let entries = datagram::entries(row);
    of_entries(py, entries.filter(|entry| entry.as_ref().is_ok_and(is_of_event)), nested)
}

fn is_of_event((id, value): &(u16, Value)) -> bool {
    let is_scalar = matches!(
        value,
        Value::Count(_) | Value::Integer(_) | Value::Seconds(_) | Value::Number(_) | Value::Text(_)
    );
    is_scalar && field(*id).is_some()
}

fn datagram_row<'py>(py: Attached<'py>, row: &[u8]) -> PyResult<Object<'py>> {
    of_entries(py, datagram::entries(row), nested)
}

pub fn record<'py>(py: Attached<'py>, bytes: &[u8]) -> PyResult<Object<'py>> {
    let entries = record::entries(bytes).map_err(|error| refuse(py, error))?;
    of_entries(py, by_number(entries), record_row)
}

fn record_row<'py>(py: Attached<'py>, row: &[u8]) -> PyResult<Object<'py>> {
    of_entries(py, by_number(record::row_entries(row)), nested)
}

fn by_number<'a>(
    entries: impl Iterator<Item = Result<(&'static Field, Value<'a>), Malformed>>,
) -> impl Iterator<Item = Result<(u16, Value<'a>), Malformed>> {
    entries.map(|entry| entry.map(|(field, value)| (field.id, value)))
}

fn nested<'py>(py: Attached<'py>, _: &[u8]) -> PyResult<Object<'py>> {
    Err(refuse(py, Malformed("a row in a row".into())))
}

type MakeRow = for<'py> fn(Attached<'py>, &[u8]) -> PyResult<Object<'py>>;

/// Returns a dict of the fields by name. Rows are in lists, and so are the values of a setting that
/// has several.
fn of_entries<'a, 'py>(
    py: Attached<'py>,
    entries: impl Iterator<Item = Result<(u16, Value<'a>), Malformed>>,
    row: MakeRow,
) -> PyResult<Object<'py>> {
    let dict = dict(py, &[])?;
    let mut last = None;
    for entry in entries {
        let (id, value) = entry.map_err(|error| refuse(py, error))?;
        let known = field(id);
        let name = match known {
            Some(field) => field.name.to_python(py)?,
            None => format!("id{id}").to_python(py)?,
        };
        let value = match value {
            Value::Row(bytes) => {
                append(&dict, &name, row(py, bytes)?)?;
                continue;
            }
            other => object(py, other)?,
        };
        // The values of one setting of a record follow each other.
        if last == Some(id) && known.is_some_and(|field| field.kept == Kept::Distinct) {
            append(&dict, &name, value)?;
        } else {
            dict.set_item(&name, &value)?;
        }
        last = Some(id);
    }
    Ok(dict)
}

/// Appends to the list under `name`. A present value that is no list becomes its first item.
fn append(dict: &Object, name: &Object, value: Object) -> PyResult<()> {
    let list = match dict.get_item(name)? {
        Some(present) if present.is_list() => present,
        present => {
            let list = present.as_slice().to_python(dict.py())?;
            dict.set_item(name, &list)?;
            list
        }
    };
    list.append(&value)
}

fn object<'py>(py: Attached<'py>, value: Value) -> PyResult<Object<'py>> {
    let malformed = |error| refuse(py, error);
    match value {
        Value::Count(number) => number.to_python(py),
        Value::Integer(number) => number.to_python(py),
        Value::Seconds(ns) => (ns as f64 / 1e9).to_python(py),
        Value::Number(number) => number.to_python(py),
        Value::Text(bytes) => Object::from_utf8_lossy(py, bytes),
        Value::Counts(bytes) => list(py, counts(bytes), |item| i64::from(item).to_python(py)),
        Value::SecondsList(bytes) => list(py, seconds_list(bytes), |item| item.to_python(py)),
        Value::Histogram(bytes) => histogram(py, &decode(bytes).map_err(malformed)?),
        Value::Slots(bytes) => {
            list(py, record::parse_slots(bytes).map_err(malformed)?, |row| slot(py, row))
        }
        Value::Row(_) => Err(malformed(Malformed("a row where none may be".into()))),
    }
}

fn slot<'py>(py: Attached<'py>, slot: Slot) -> PyResult<Object<'py>> {
    let seconds = |us: u64| us as f64 / 1e6;
    dict(
        py,
        &[
            ("completed", &slot.completed),
            ("busy", &seconds(slot.busy_us)),
            ("cpu", &seconds(slot.cpu_us)),
            ("longest", &seconds(slot.longest_us)),
        ],
    )
}

/// Returns a distribution as in a report's HIST. The statistics of an empty one are None.
fn histogram<'py>(py: Attached<'py>, histogram: &Histogram) -> PyResult<Object<'py>> {
    let seconds = |ns: u64| ns as f64 / 1e9;
    let percentile = |share| histogram.percentile_ns(share).map(seconds);
    let filled = |ns: u64| (!histogram.is_empty()).then_some(seconds(ns));
    let buckets = list(py, &histogram.counts, |(bucket, number)| {
        // The last bucket's bound is the largest value in it.
        let bound_ns = match upper_bound_ns(usize::from(*bucket)) {
            u64::MAX => histogram.max_ns,
            bound_ns => bound_ns,
        };
        [seconds(bound_ns).to_python(py)?, number.to_python(py)?].to_python(py)
    })?;
    dict(
        py,
        &[
            ("count", &histogram.count()),
            ("sum", &seconds(histogram.sum_ns)),
            ("min", &filled(histogram.min_ns)),
            ("max", &filled(histogram.max_ns)),
            ("p50", &percentile(0.5)),
            ("p90", &percentile(0.9)),
            ("p95", &percentile(0.95)),
            ("p99", &percentile(0.99)),
            ("p999", &percentile(0.999)),
            ("buckets", &buckets),
        ],
    )
}
