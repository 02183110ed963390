//! The syntax of the request target and the host (RFC 9112 section 3.2; RFC 9110 section 7.2).

use super::octets;
use super::rejection::Rejection;

/// Checks the form of a target, whose length was checked before.
pub fn check_target(method: &[u8], target: &[u8]) -> Result<(), Rejection> {
    if method == b"CONNECT" {
        return Err(Rejection::UnknownMethod);
    }
    // A fragment is only for the client; some recipients remove it and others do not.
    if target.contains(&b'#') {
        return Err(Rejection::Target);
    }
    match target {
        [b'/', ..] => Ok(()),
        b"*" if method == b"OPTIONS" => Ok(()),
        _ if split_absolute(target).is_some() => Ok(()),
        _ => Err(Rejection::Target),
    }
}

/// Splits the absolute form, `http://host/path?query`, into the host and the rest (RFC 9112 section
/// 3.2.2).
pub fn split_absolute(target: &[u8]) -> Option<(&[u8], &[u8])> {
    let scheme_end = target.windows(3).position(|window| window == b"://")?;
    let scheme = &target[..scheme_end];
    if !scheme.eq_ignore_ascii_case(b"http") && !scheme.eq_ignore_ascii_case(b"https") {
        return None;
    }
    let rest = &target[scheme_end + 3..];
    let host_end = rest.iter().position(|byte| matches!(byte, b'/' | b'?')).unwrap_or(rest.len());
    let (host, path) = rest.split_at(host_end);
    check_host(host).is_ok().then_some((host, path))
}

/// Checks `uri-host [":" port]`: user information, a path, a space or a list are invalid. The host
/// must not be empty: the `http` scheme has no target without a host (RFC 9110 section 4.2.1).
pub fn check_host(value: &[u8]) -> Result<(), Rejection> {
    let name_end = match value {
        [b'[', ..] => value.iter().position(|byte| *byte == b']').map_or(0, |at| at + 1),
        _ => value.iter().position(|byte| *byte == b':').unwrap_or(value.len()),
    };
    let (name, port) = value.split_at(name_end);
    let name_is_valid = match name {
        [] => false,
        [b'[', address @ .., b']'] => is_ip_literal(address),
        _ => is_registered_name(name),
    };
    let port_is_valid = match port {
        [] => true,
        [b':', digits @ ..] => digits.len() <= 5 && digits.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    if name_is_valid && port_is_valid { Ok(()) } else { Err(Rejection::HostSyntax) }
}

/// Returns true for the content of brackets: an IPv6 address. The grammar's future versions
/// (`IPvFuture`) do not exist.
fn is_ip_literal(address: &[u8]) -> bool {
    std::str::from_utf8(address).is_ok_and(|text| text.parse::<std::net::Ipv6Addr>().is_ok())
}

fn is_registered_name(name: &[u8]) -> bool {
    let mut rest = name;
    loop {
        rest = match rest {
            [] => return true,
            [b'%', high, low, rest @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                rest
            }
            [byte, rest @ ..] if octets::is_registered_name(*byte) => rest,
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_absolute_form_needs_a_host() {
        assert_eq!(split_absolute(b"http://a:1/b?c"), Some((&b"a:1"[..], &b"/b?c"[..])));
        assert_eq!(split_absolute(b"http://a?c"), Some((&b"a"[..], &b"?c"[..])));
        assert_eq!(split_absolute(b"HTTPS://[::1]:1/"), Some((&b"[::1]:1"[..], &b"/"[..])));
        for other in [&b"http://u@a/"[..], b"http:///a", b"http://:80/", b"ftp://a/", b"a://b"] {
            assert_eq!(split_absolute(other), None, "{other:?}");
        }
        assert_eq!(split_absolute(b"/x?u=http://a/"), None);
    }

    #[test]
    fn hosts_are_validated_with_and_without_ports() {
        let valid = |host: &[u8]| check_host(host).is_ok();
        for host in ["a", "a.b-c:80", "a:", "127.0.0.1:8000", "[::1]", "[fe80::1]:1", "a%20b"] {
            assert!(valid(host.as_bytes()), "{host:?}");
        }
        for host in [
            "", ":80", "a b", "a/b", "a@b", "a,b", "a:b", "a:1:2", "a:-1", "a:123456", "::1",
            "[::1", "[::1]a", "[a]", "[]", "a%2", "a%zz", "a\\b", "a?b", "a#b", "\u{e9}",
        ] {
            assert!(!valid(host.as_bytes()), "{host:?}");
        }
    }

    #[test]
    fn the_form_of_a_target_is_validated() {
        let check = |method: &str, target: &str| check_target(method.as_bytes(), target.as_bytes());
        assert_eq!(check("GET", "/"), Ok(()));
        assert_eq!(check("GET", "//a"), Ok(()));
        assert_eq!(check("OPTIONS", "*"), Ok(()));
        assert_eq!(check("OPTIONS", "http://a"), Ok(()));
        assert_eq!(check("CONNECT", "a:443"), Err(Rejection::UnknownMethod));
        for (method, target) in
            [("GET", "*"), ("GET", "a"), ("GET", "a:443"), ("GET", "/a#b"), ("GET", "http://a/#b")]
        {
            assert_eq!(check(method, target), Err(Rejection::Target), "{method} {target}");
        }
    }
}
