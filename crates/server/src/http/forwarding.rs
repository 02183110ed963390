//! The fields that proxies add to a request: `Forwarded` (RFC 7239) and `X-Forwarded-*`.
//!
//! Each proxy appends the address of its client on the right. Therefore the list is read from the
//! right, as long as the address read is that of a trusted proxy; any client could have written
//! what stands further left. The caller decides which addresses are trusted. This module turns
//! bytes into an [`Origin`].

use super::head::Head;
use super::target::check_host;
use std::net::{IpAddr, SocketAddr};

/// The fields that can be configured as trusted, in lower case.
pub const FIELDS: [&str; 5] =
    ["forwarded", "x-forwarded-for", "x-forwarded-proto", "x-forwarded-host", "x-forwarded-port"];
/// The indices into `FIELDS`.
const FORWARDED: usize = 0;
const FOR: usize = 1;
const PROTO: usize = 2;
const HOST: usize = 3;
const PORT: usize = 4;

/// The members of `FIELDS` that the proxies set. A proxy passes the other fields on as its client
/// wrote them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Believed([bool; FIELDS.len()]);

impl Believed {
    /// Parses names in any case. Fails with the first unknown name.
    pub fn parse(names: &[String]) -> Result<Self, &str> {
        let mut believed = Self::default();
        for name in names {
            match FIELDS.iter().position(|field| field.eq_ignore_ascii_case(name)) {
                Some(index) => believed.0[index] = true,
                None => return Err(name),
            }
        }
        Ok(believed)
    }

    /// Returns true if `FIELDS[index]` is trusted.
    pub fn has(self, index: usize) -> bool {
        self.0[index]
    }
}

/// The origin of a request, according to trusted proxies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The client's address, or the last known address on the way to the client.
    pub ip: Option<String>,
    /// The client's port; 0: unknown.
    pub port: u16,
    pub is_https: Option<bool>,
    /// The host in the syntax of the Host field.
    pub host: Option<Vec<u8>>,
    pub host_port: Option<u16>,
}

/// Reads the trusted fields. `is_trusted` returns true for the addresses of trusted proxies; the
/// caller has already checked the address of the peer.
pub fn read_origin(
    head: &Head,
    bytes: &[u8],
    believed: Believed,
    is_trusted: impl Fn(IpAddr) -> bool,
) -> Origin {
    let mut origin = Origin::default();
    let list = |index: usize| match believed.has(index) {
        true => members(head, bytes, index),
        false => Vec::new(),
    };
    let elements = list(FORWARDED);
    if !elements.is_empty() {
        for element in elements.iter().rev() {
            let element = ForwardedElement::parse(element);
            origin.note_scheme(element.proto);
            origin.note_host(element.host);
            if !origin.note_address(element.node, &is_trusted) {
                break;
            }
        }
        return origin;
    }
    let mut hops = 0;
    for node in list(FOR).iter().rev() {
        hops += 1;
        if !origin.note_address(Some(node), &is_trusted) {
            break;
        }
    }
    // A proxy either appends to these fields too, or replaces them with one value that holds for
    // all hops.
    let at_same_hop = |index: usize| {
        let values = list(index);
        let from_right = values.len().min(hops.max(1));
        values.len().checked_sub(from_right).and_then(|at| values.get(at).cloned())
    };
    origin.note_scheme(at_same_hop(PROTO).as_deref());
    origin.note_host(at_same_hop(HOST).as_deref());
    let port = at_same_hop(PORT).and_then(|port| std::str::from_utf8(&port).ok()?.parse().ok());
    origin.host_port = port.filter(|port| *port != 0).or(origin.host_port);
    origin
}

impl Origin {
    /// Stores the address of a hop. Returns true if the address is known and trusted, so that the
    /// entry to its left counts too.
    fn note_address(&mut self, node: Option<&[u8]>, is_trusted: impl Fn(IpAddr) -> bool) -> bool {
        let Some((ip, port)) = node.and_then(parse_node) else { return false };
        self.ip = Some(ip.to_string());
        self.port = port;
        is_trusted(ip)
    }

    fn note_scheme(&mut self, scheme: Option<&[u8]>) {
        self.is_https = match scheme {
            Some(name) if name.eq_ignore_ascii_case(b"https") => Some(true),
            Some(name) if name.eq_ignore_ascii_case(b"http") => Some(false),
            _ => return,
        }
    }

    fn note_host(&mut self, host: Option<&[u8]>) {
        if let Some(host) = host.filter(|host| check_host(host).is_ok()) {
            self.host_port = split_port(host).1;
            self.host = Some(host.to_vec());
        }
    }
}

/// Splits a host into its name and its port, if it has one.
pub fn split_port(host: &[u8]) -> (&[u8], Option<u16>) {
    let colon = host.iter().rposition(|byte| *byte == b':');
    let colon = colon.filter(|at| !host[*at..].contains(&b']'));
    match colon {
        Some(at) => {
            let port = std::str::from_utf8(&host[at + 1..]).ok().and_then(|text| text.parse().ok());
            (&host[..at], port)
        }
        None => (host, None),
    }
}

/// One element of a `Forwarded` field.
#[derive(Default)]
struct ForwardedElement<'a> {
    node: Option<&'a [u8]>,
    proto: Option<&'a [u8]>,
    host: Option<&'a [u8]>,
}

impl<'a> ForwardedElement<'a> {
    /// Parses an element. Quoted values lose their quotes; a value with a quoted pair is not a
    /// valid address, scheme or host.
    fn parse(element: &'a [u8]) -> Self {
        let mut parsed = Self::default();
        for pair in split_unquoted(element, b';') {
            let Some(at) = pair.iter().position(|byte| *byte == b'=') else { continue };
            let (name, value) = (pair[..at].trim_ascii(), pair[at + 1..].trim_ascii());
            let value = match value {
                [b'"', inner @ .., b'"'] => inner,
                _ => value,
            };
            let parameter = match name.to_ascii_lowercase().as_slice() {
                b"for" => &mut parsed.node,
                b"proto" => &mut parsed.proto,
                b"host" => &mut parsed.host,
                _ => continue,
            };
            *parameter = Some(value);
        }
        parsed
    }
}

/// Returns the members of the list field `FIELDS[index]` over all its occurrences, without empty
/// ones. Only `Forwarded` has quoted strings.
///
/// A quote that is never closed comes from the client, because proxies append whole elements. It
/// must not hide the elements to its right, so such a field is split at every comma.
fn members(head: &Head, bytes: &[u8], index: usize) -> Vec<Vec<u8>> {
    let name = FIELDS[index].as_bytes();
    let mut members = Vec::new();
    for field in
        head.fields.iter().filter(|field| bytes[field.name.clone()].eq_ignore_ascii_case(name))
    {
        let value = &bytes[field.value.clone()];
        let mut add = |member: &[u8]| match member.trim_ascii() {
            [] => {}
            member => members.push(member.to_vec()),
        };
        if index == FORWARDED && are_quotes_closed(value) {
            split_unquoted(value, b',').for_each(&mut add);
        } else {
            value.split(|byte| *byte == b',').for_each(&mut add);
        }
    }
    members
}

fn are_quotes_closed(text: &[u8]) -> bool {
    let (mut quoted, mut escaped) = (false, false);
    for byte in text {
        let pair_ends = std::mem::take(&mut escaped);
        match byte {
            _ if pair_ends => {}
            b'\\' => escaped = quoted,
            b'"' => quoted = !quoted,
            _ => {}
        }
    }
    !quoted
}

/// Splits the text at each `separator` outside of quotes.
fn split_unquoted(text: &[u8], separator: u8) -> impl Iterator<Item = &[u8]> {
    let (mut quoted, mut escaped) = (false, false);
    text.split(move |byte| {
        let pair_ends = std::mem::take(&mut escaped);
        match byte {
            _ if pair_ends => false,
            b'\\' if quoted => {
                escaped = true;
                false
            }
            b'"' => {
                quoted = !quoted;
                false
            }
            _ => *byte == separator && !quoted,
        }
    })
}

/// Parses `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`, `[2001:db8::1]` or `[2001:db8::1]:80`; the
/// port may be obfuscated (`_name`). Returns `None` for `unknown`, for obfuscated nodes and for
/// anything else.
fn parse_node(node: &[u8]) -> Option<(IpAddr, u16)> {
    let text = std::str::from_utf8(node).ok()?;
    let text = text.split_once(":_").map_or(text, |(address, _)| address);
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Some((address.ip().to_canonical(), address.port()));
    }
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    bare.parse::<IpAddr>().ok().map(|ip| (ip.to_canonical(), 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::Limits;

    /// Reads the origin; addresses in 10.0.0.0/8 are trusted.
    fn read(believed: &[&str], fields: &str) -> Origin {
        let text = format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n");
        let mut head = Head::default();
        head.parse(text.as_bytes(), &Limits::default()).unwrap();
        let names: Vec<_> = believed.iter().map(|name| String::from(*name)).collect();
        let believed = Believed::parse(&names).unwrap();
        read_origin(&head, text.as_bytes(), believed, |ip| ip.to_string().starts_with("10."))
    }

    fn client(fields: &str) -> Option<String> {
        read(&["Forwarded", "X-Forwarded-For"], fields).ip
    }

    #[test]
    fn the_right_most_untrusted_address_is_the_client() {
        for (fields, expected) in [
            ("X-Forwarded-For: 192.0.2.1", "192.0.2.1"),
            ("X-Forwarded-For: 6.6.6.6, 192.0.2.1", "192.0.2.1"),
            ("X-Forwarded-For: 6.6.6.6, 192.0.2.1, 10.0.0.2,,10.0.0.1", "192.0.2.1"),
            ("X-Forwarded-For: 6.6.6.6, 192.0.2.1\r\nX-Forwarded-For: 10.0.0.2", "192.0.2.1"),
            ("X-Forwarded-For: 10.0.0.3, 10.0.0.2", "10.0.0.3"),
            ("X-Forwarded-For: 6.6.6.6, unknown, 10.0.0.2", "10.0.0.2"),
            ("X-Forwarded-For: 192.0.2.1:4711", "192.0.2.1"),
            ("X-Forwarded-For: ::ffff:192.0.2.1", "192.0.2.1"),
            ("X-Forwarded-For: 2001:db8::1", "2001:db8::1"),
            ("Forwarded: for=6.6.6.6, For=\"[2001:db8::1]:80\", for=10.1.1.1;by=x", "2001:db8::1"),
            ("Forwarded: for=6.6.6.6;host=\"a,for=7.7.7.7\", for=10.1.1.1", "6.6.6.6"),
            ("Forwarded: for=\"192.0.2.1:_x\"", "192.0.2.1"),
            ("Forwarded: for=192.0.2.1\r\nX-Forwarded-For: 6.6.6.6", "192.0.2.1"),
            // A quote that the client left open hides no element.
            ("X-Forwarded-For: \", 192.0.2.1", "192.0.2.1"),
            ("Forwarded: for=\", for=192.0.2.1", "192.0.2.1"),
            ("Forwarded: for=\"\\, for=\"[2001:db8::1]:80\"", "2001:db8::1"),
        ] {
            assert_eq!(client(fields).as_deref(), Some(expected), "{fields}");
        }
        for fields in
            ["X-Forwarded-For: unknown", "X-Forwarded-For: 6.6.6.6, <script>", "Forwarded: for=_x"]
        {
            assert_eq!(client(fields), None, "{fields}");
        }
    }

    #[test]
    fn untrusted_fields_are_ignored() {
        let fields = "Forwarded: for=6.6.6.6;proto=https;host=x\r\nX-Forwarded-For: 6.6.6.6";
        assert_eq!(read(&["X-Forwarded-Proto"], fields), Origin::default());
    }

    #[test]
    fn scheme_and_host_come_from_the_same_hop() {
        let all = ["X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host", "X-Forwarded-Port"];
        let origin = read(
            &all,
            "X-Forwarded-For: 6.6.6.6, 192.0.2.1, 10.0.0.1\r\nX-Forwarded-Proto: http, https, http\
             \r\nX-Forwarded-Host: shop.example:8443\r\nX-Forwarded-Port: 443",
        );
        assert_eq!((origin.is_https, origin.host_port), (Some(true), Some(443)));
        assert_eq!(origin.host.as_deref(), Some(&b"shop.example:8443"[..]));
        let origin = read(
            &["Forwarded"],
            "Forwarded: for=192.0.2.1;proto=https;host=\"[2001:db8::2]:81\", for=10.0.0.1;proto=http",
        );
        assert_eq!((origin.is_https, origin.host_port), (Some(true), Some(81)));
        assert_eq!(read(&all, "X-Forwarded-Host: a b\r\nX-Forwarded-Proto: gopher").host, None);
    }

    proptest::proptest! {
        /// A value that a client writes to the left of the trusted proxy's entry has no effect.
        #[test]
        fn a_client_cannot_forge_its_address(written in "([ -~]|for=6\\.6\\.6\\.6|[,;\"]){0,20}") {
            let plain = client(&format!("X-Forwarded-For: {written}, 192.0.2.1"));
            proptest::prop_assert_eq!(plain.as_deref(), Some("192.0.2.1"));
            for own in ["for=192.0.2.1", "for=\"192.0.2.1:80\"", "host=\"a\";for=\"192.0.2.1\""] {
                let forwarded = client(&format!("Forwarded: {written}, {own}"));
                proptest::prop_assert_eq!(forwarded.as_deref(), Some("192.0.2.1"));
            }
        }
    }

    #[test]
    fn a_host_is_split_from_its_port() {
        for (host, name, port) in
            [("a", "a", None), ("a:81", "a", Some(81)), ("[::1]", "[::1]", None), ("a:", "a", None)]
        {
            assert_eq!(split_port(host.as_bytes()), (name.as_bytes(), port), "{host}");
        }
    }
}
