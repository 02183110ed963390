//! Dicts as datagrams.

use headway_measure::Histogram;
use headway_measure::scale::bucket;
use headway_python::convert::FromPython;
use headway_python::exception::Exception;
use headway_python::object::{Object, PyResult};
use headway_telemetry::datagram::{Datagram, Header, Writer};
use headway_telemetry::fields::{Field, Type, field_named};
use headway_telemetry::{Malformed, nanoseconds};

use super::refuse;

/// Encodes a dict by field names as a datagram.
pub fn datagram(header: &Header, fields: &Object) -> PyResult<Vec<u8>> {
    let mut writer = Writer::default();
    writer.begin(header);
    write_dict(&mut writer, fields)?;
    // Readers make the same checks.
    Datagram::parse(writer.bytes()).map_err(|error| refuse(fields.py(), error))?;
    Ok(writer.bytes().to_vec())
}

fn write_dict(writer: &mut Writer, fields: &Object) -> PyResult<()> {
    if !fields.is_dict() {
        return Err(Exception::TypeError.raise(fields.py(), "fields are a dict"));
    }
    let malformed = |message| refuse(fields.py(), Malformed(message));
    // A list of its own: reading a value may run code of the value's class, which changes the dict.
    for item in fields.dict_items()?.items()? {
        let Some([name, value]) = item.as_tuple() else { continue };
        let name = text(name)?;
        let field =
            field_named(name).ok_or_else(|| malformed(format!("there is no field {name:?}")))?;
        write(writer, field, value)?;
    }
    Ok(())
}

/// Raises an exception if the value is not of the field's type.
fn write(writer: &mut Writer, field: &Field, value: &Object) -> PyResult<()> {
    let id = field.id;
    match field.kind {
        Type::Count => writer.count(id, count(value)?),
        Type::Integer => writer.integer(id, value.to_i64()?),
        Type::Seconds | Type::Number => writer.number(id, f64::from_python(value)?),
        Type::Text => writer.text(id, text(value)?),
        Type::Counts => {
            let items = each(value, |item| item.to_i64())?;
            let items = items.into_iter().map(|item| item.clamp(0, i32::MAX.into()) as i32);
            writer.counts(id, items.collect::<Vec<_>>().into_iter());
        }
        Type::SecondsList => {
            writer.seconds_list(id, each(value, |item| f64::from_python(item))?.into_iter());
        }
        Type::Histogram => writer.histogram(id, &histogram(value)?),
        Type::Row => {
            for row in each(value, |row| Ok(row.clone()))? {
                write_row(writer, field, &row)?;
            }
        }
        Type::Slots => {
            let message = format!("{} is in records only", field.name);
            return Err(refuse(value.py(), Malformed(message)));
        }
    }
    Ok(())
}

fn write_row(writer: &mut Writer, field: &Field, row: &Object) -> PyResult<()> {
    let malformed = |message| refuse(row.py(), Malformed(message));
    if !row.is_dict() {
        return Err(malformed(format!("a row of {} is a dict", field.name)));
    }
    let mut written = Ok(());
    let fits = writer.row(field.id, |writer| written = write_dict(writer, row));
    written?;
    if fits { Ok(()) } else { Err(malformed(format!("{} are too many", field.name))) }
}

fn histogram(value: &Object) -> PyResult<Histogram> {
    let mut histogram = Histogram::default();
    for pair in each(value, |pair| each(pair, |number| f64::from_python(number)))? {
        let [seconds, number] = pair[..] else {
            let message = "a histogram is pairs of seconds and count";
            return Err(refuse(value.py(), Malformed(message.into())));
        };
        let (ns, count) = (nanoseconds(seconds.max(0.0)) as u64, number.max(0.0) as u64);
        if count != 0 {
            histogram.merge(&Histogram {
                sum_ns: ns.saturating_mul(count),
                min_ns: ns,
                max_ns: ns,
                counts: vec![(bucket(ns) as u16, count)],
            });
        }
    }
    Ok(histogram)
}

/// The values that `read` returns for the items of an iterable.
fn each<'py, T>(
    value: &Object<'py>,
    read: impl Fn(&Object<'py>) -> PyResult<T>,
) -> PyResult<Vec<T>> {
    value.to_tuple()?.as_tuple().unwrap_or_default().iter().map(read).collect()
}

fn count(value: &Object) -> PyResult<u64> {
    match value.is_int() {
        true => u64::from_python(value),
        false => Err(refuse(value.py(), Malformed("a count is an int".into()))),
    }
}

fn text<'a>(value: &'a Object) -> PyResult<&'a str> {
    match value.is_text() {
        true => value.as_text(),
        false => Err(refuse(value.py(), Malformed("a name or text is a str".into()))),
    }
}
