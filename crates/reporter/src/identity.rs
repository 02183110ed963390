//! What a process says of itself in every datagram, so that each stands alone: names, versions, settings.

use headway_telemetry::Field;
use headway_telemetry::datagram::Writer;
use headway_telemetry::fields::Type;

/// A field that never changes.
#[derive(Clone, Debug, PartialEq)]
pub enum Constant {
    Count(u64),
    Number(f64),
    Text(String),
}

#[derive(Clone, Debug, Default)]
pub struct Identity {
    fields: Vec<(u16, Constant)>,
}

impl Identity {
    /// Adds a field. False if its values are of another type.
    pub fn push(&mut self, field: &Field, value: Constant) -> bool {
        let fits = match value {
            Constant::Count(_) => field.kind == Type::Count,
            Constant::Number(_) => matches!(field.kind, Type::Seconds | Type::Number),
            Constant::Text(_) => field.kind == Type::Text,
        };
        if fits {
            self.fields.push((field.id, value));
        }
        fits
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
