//! The properties of the fuzz targets, checked on their seeds and on all inputs one byte away from
//! a seed. `scripts/fuzz` explores randomly, guided by coverage; these tests are the same in every
//! run.

#[path = "../../../../fuzz/src/properties.rs"]
mod properties;

/// Checks `property` near each seed. `replacements`: bytes that are significant to the parser, and
/// some that are not.
fn near_each_seed(seeds: &str, replacements: &[u8], property: fn(&[u8])) {
    for line in seeds.lines() {
        let seed = unescape(line);
        property(&seed);
        for at in 0..=seed.len() {
            let (before, after) = seed.split_at(at);
            property(before);
            if let [_, after @ ..] = after {
                property(&[before, after].concat());
            }
            for byte in replacements {
                property(&[before, &[*byte], after].concat());
                if let [_, after @ ..] = after {
                    property(&[before, &[*byte], after].concat());
                }
            }
        }
    }
}

/// Decodes the escapes of `printf %b`: `\r`, `\n`, `\t`, `\\`, and `\0` with up to three octal
/// digits.
fn unescape(line: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = line.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        if *first != b'\\' {
            bytes.push(*first);
            continue;
        }
        let [escaped, after @ ..] = rest else { panic!("{line:?} ends with a backslash") };
        rest = after;
        bytes.push(match escaped {
            b'r' => b'\r',
            b'n' => b'\n',
            b't' => b'\t',
            b'\\' => b'\\',
            b'0' => {
                let digits = rest.iter().take(3).take_while(|digit| (b'0'..=b'7').contains(digit));
                let (count, code) = digits
                    .fold((0, 0), |(count, code), digit| (count + 1, code * 8 + (digit - b'0')));
                rest = &rest[count..];
                code
            }
            _ => panic!("{line:?} has an escape that not every printf %b supports"),
        });
    }
    bytes
}

#[test]
fn connections_near_the_seeds() {
    let seeds = include_str!("../../../../fuzz/seeds/connection.txt");
    near_each_seed(seeds, b"\r\n\0 :0a\xff", properties::connection);
}

#[test]
fn bodies_near_the_seeds() {
    let seeds = include_str!("../../../../fuzz/seeds/body.txt");
    near_each_seed(seeds, b"\r\n\0 ;0a\"\\", properties::body);
}

#[test]
fn forged_origins_near_the_seeds() {
    let seeds = include_str!("../../../../fuzz/seeds/forwarding.txt");
    near_each_seed(seeds, b"\n ,;=\"\\:a", properties::forwarding);
}

#[test]
fn responses_near_the_seeds() {
    let seeds = include_str!("../../../../fuzz/seeds/response.txt");
    near_each_seed(seeds, b"\r\n\0 :0a\xff", properties::response);
}
