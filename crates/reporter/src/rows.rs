//! Limits the rows of a tick: the size of a datagram is limited, and a process may have any number
//! of threads or endpoints.

use headway_telemetry::datagram::{Header, Writer};

/// The name of the row that stands for all rows without room.
pub const OTHER: &str = "(other)";

/// The bytes that are reserved for the row `(other)` and for the fields of later sources.
const OTHER_BYTES: usize = 6_000;
/// The number, type and length of a row.
const ROW_HEADER_BYTES: usize = 5;

/// A row of a tick.
pub trait Row {
    /// Writes the fields of the row.
    fn write(&self, row: &mut Writer);
    /// Adds another row.
    fn fold(&mut self, other: Self);
    /// Makes this the row `(other)`.
    fn become_other(&mut self);
}

/// Limits for rows.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    pub rows: usize,
    pub bytes: usize,
}

/// Writes as many rows as the bounds and the datagram allow, and the sum of the others as one row.
/// Returns the number of others.
pub fn write<R: Row>(
    out: &mut Writer,
    scratch: &mut Writer,
    id: u16,
    bounds: Bounds,
    rows: Vec<R>,
) -> u64 {
    let budget = bounds.bytes.min(out.room().saturating_sub(OTHER_BYTES));
    let has_room_for_all = rows.len() <= bounds.rows;
    let most = if has_room_for_all { bounds.rows } else { bounds.rows.saturating_sub(1) };
    let (mut used, mut written, mut folded, mut other) = (0, 0, 0, None::<R>);
    for row in rows {
        if other.is_none() && written < most {
            let bytes = ROW_HEADER_BYTES + length_of(scratch, &row);
            if used + bytes <= budget && out.row(id, |out| row.write(out)) {
                used += bytes;
                written += 1;
                continue;
            }
        }
        folded += 1;
        match &mut other {
            Some(other) => other.fold(row),
            None => other = Some(row),
        }
    }
    if let Some(mut other) = other {
        other.become_other();
        out.row(id, |out| other.write(out));
    }
    folded
}

fn length_of(scratch: &mut Writer, row: &impl Row) -> usize {
    scratch.begin(&Header { kind: 0, pid: 0, seq: 0, stamp_s: 0.0 });
    let before = scratch.bytes().len();
    row.write(scratch);
    scratch.bytes().len() - before
}
