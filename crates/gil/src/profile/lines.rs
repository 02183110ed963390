//! The line of an instruction, from the line table of its code object.

use super::layout::LineFormat;

/// The line of the instruction at `offset`, in bytes; `None` if the table has none for it.
pub fn line_of(format: LineFormat, table: &[u8], first_line: u32, offset: u32) -> Option<u32> {
    let mut line = i64::from(first_line);
    let mut end = 0_u64;
    let mut rest = table;
    while !rest.is_empty() {
        let (bytes, delta) = match format {
            LineFormat::Pairs => next_pair(&mut rest)?,
            LineFormat::Locations => next_location(&mut rest)?,
        };
        line += delta.unwrap_or(0);
        end += bytes;
        if u64::from(offset) < end {
            return delta.and_then(|_| u32::try_from(line).ok());
        }
    }
    None
}

/// The number of bytes of instructions that an entry covers, and the difference of its line to
/// that of the entry before; `None` for an entry without a line.
type Entry = (u64, Option<i64>);

/// An entry of CPython 3.10.
fn next_pair(rest: &mut &[u8]) -> Option<Entry> {
    let (pair, more) = rest.split_at_checked(2)?;
    *rest = more;
    let delta = pair[1] as i8;
    Some((u64::from(pair[0]), (delta != i8::MIN).then_some(i64::from(delta))))
}

/// An entry of CPython 3.11 and later.
fn next_location(rest: &mut &[u8]) -> Option<Entry> {
    const UNIT_BYTES: u64 = 2;
    let (first, more) = rest.split_first()?;
    let length = more.iter().take_while(|byte| **byte & 0x80 == 0).count();
    let (data, more) = more.split_at(length);
    *rest = more;
    let delta = match first >> 3 & 15 {
        15 => None,
        13 | 14 => Some(signed(data)?),
        code @ 10..=12 => Some(i64::from(code) - 10),
        _ => Some(0),
    };
    Some(((u64::from(first & 7) + 1) * UNIT_BYTES, delta))
}

/// A signed number: six bits a byte, the lowest first, and of these the sign is the lowest.
fn signed(data: &[u8]) -> Option<i64> {
    let mut value = 0_u64;
    for (index, byte) in data.iter().enumerate() {
        value |= u64::from(byte & 0x3F).checked_shl(6 * index as u32)?;
        if byte & 0x40 == 0 {
            let magnitude = (value >> 1) as i64;
            return Some(if value & 1 == 1 { -magnitude } else { magnitude });
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_accumulate_and_may_have_no_line() {
        // Lines 10, 12, none, 11.
        let table = [4, 0, 2, 2, 6, 0x80, 2, 0xFF];
        let line = |offset| line_of(LineFormat::Pairs, &table, 10, offset);
        assert_eq!(
            [0, 2, 4, 6, 10, 12].map(line),
            [Some(10), Some(10), Some(12), None, None, Some(11)]
        );
        assert_eq!(line(14), None);
    }

    #[test]
    fn locations_have_lengths_in_units_and_deltas_of_several_kinds() {
        let table = [
            0x80 | 13 << 3 | 1,
            0x04, // two units, +2
            0x80 | 11 << 3,
            0,
            0,              // one unit, +1
            0x80 | 15 << 3, // one unit, none
            0x80 | 3 << 3 | 2,
            0, // three units, +0
            0x80 | 14 << 3,
            0x47,
            0x02,
            0,
            0,
            0, // one unit, -(0x87 >> 1) = -67
        ];
        let line = |offset| line_of(LineFormat::Locations, &table, 100, offset);
        assert_eq!(
            [0, 3, 4, 6, 8, 13, 14].map(line),
            [Some(102), Some(102), Some(103), None, Some(103), Some(103), Some(36)]
        );
        assert_eq!(line(16), None);
    }

    #[test]
    fn damaged_tables_have_no_line() {
        for table in [&[0x80 | 14 << 3][..], &[0x80 | 14 << 3, 0x40], &[0x80 | 13 << 3, 0x7F]] {
            assert_eq!(line_of(LineFormat::Locations, table, 1, 0), None);
        }
        assert_eq!(line_of(LineFormat::Pairs, &[2], 1, 0), None);
    }
}
