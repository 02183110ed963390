//! The identity of the process: names, versions and settings. Every datagram has them, so that a
//! receiver can understand it without earlier ones.

use headway_telemetry::Value;
use headway_telemetry::datagram::{Datagram, Writer};

#[derive(Clone, Debug)]
enum Constant {
    Count(u64),
    Number(f64),
    Text(String),
}

/// The fields that never change.
#[derive(Clone, Debug, Default)]
pub struct Identity {
    fields: Vec<(u16, Constant)>,
}

impl Identity {
    /// Takes the counts, numbers and texts of a datagram.
    pub fn of(datagram: &Datagram) -> Self {
        let constant = |value| {
            Some(match value {
                Value::Count(count) => Constant::Count(count),
                Value::Seconds(ns) => Constant::Number(ns as f64 / 1e9),
                Value::Number(number) => Constant::Number(number),
                Value::Text(bytes) => Constant::Text(String::from_utf8_lossy(bytes).into_owned()),
                _ => return None,
            })
        };
        let fields = datagram.fields().filter_map(|(id, value)| Some((id, constant(value)?)));
        Self { fields: fields.collect() }
    }

    /// Replaces a count that the identity has.
    pub fn set_count(&mut self, id: u16, count: u32) {
        if let Some((_, value)) = self.fields.iter_mut().find(|(each, _)| *each == id) {
            *value = Constant::Count(count.into());
        }
    }

    pub fn write(&self, out: &mut Writer) {
        for (id, value) in &self.fields {
            match value {
                Constant::Count(count) => out.count(*id, *count),
                Constant::Number(number) => out.number(*id, *number),
                Constant::Text(text) => out.text(*id, text),
            }
        }
    }
}
