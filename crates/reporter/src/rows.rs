//! Rows within bounds: a datagram has room for so much, and a process may have any number of threads or endpoints.

use headway_telemetry::datagram::{Header, Writer};

/// What rows that have no room are called together.
pub const OTHER: &str = "(other)";

/// Kept free for the row of those that have no room, and for what sources behind this one write in any case.
const OTHER_BYTES: usize = 6_000;
/// A row's number, type and length.
const ROW_HEADER_BYTES: usize = 5;

/// A row of a tick.
pub trait Row {
    /// Writes the fields of the row.
    fn write(&self, row: &mut Writer);
    /// Adds another.
    fn fold(&mut self, other: Self);
    /// It stands for rows that have no room, and no longer for one thing.
    fn become_other(&mut self);
}

/// How much room rows may take.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    pub rows: usize,
    pub bytes: usize,
}

/// Writes as many of the rows as the bounds and the datagram have room for, the others as one; returns how many
/// others there are.
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
