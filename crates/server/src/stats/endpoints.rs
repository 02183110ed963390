//! Endpoints: the names that group requests if no framework reports a route. An endpoint is the
//! beginning of the path, with everything that looks like an identifier replaced, so that the
//! number of endpoints stays small.

/// The segments of a path that an endpoint keeps; deeper paths belong to the same endpoint.
const MAX_SEGMENTS: usize = 3;
/// A longer segment is treated as an identifier.
const MAX_SEGMENT_BYTES: usize = 32;
const IDENTIFIER: &str = "*";

/// `/users/17/posts` becomes `/users/*/posts`.
pub fn endpoint_of(target: &[u8]) -> String {
    let path = path_of(target);
    if !path.starts_with(b"/") {
        // `OPTIONS *`, or a target that is not a path.
        return IDENTIFIER.into();
    }
    let mut name = String::new();
    for segment in
        path.split(|byte| *byte == b'/').filter(|each| !each.is_empty()).take(MAX_SEGMENTS)
    {
        name.push('/');
        match std::str::from_utf8(segment) {
            Ok(text) if is_name(text) => name.push_str(text),
            _ => name.push_str(IDENTIFIER),
        }
    }
    if name.is_empty() { "/".into() } else { name }
}

/// Returns the path of a target without its query, and without the scheme and host of the absolute
/// form, which a proxy receives.
fn path_of(target: &[u8]) -> &[u8] {
    let end = target.iter().position(|byte| *byte == b'?').unwrap_or(target.len());
    let target = &target[..end];
    let Some(scheme) = target.windows(3).position(|bytes| bytes == b"://") else { return target };
    if target.starts_with(b"/") {
        return target;
    }
    let host_and_path = &target[scheme + 3..];
    let begin = host_and_path.iter().position(|byte| *byte == b'/');
    begin.map_or(b"/", |begin| &host_and_path[begin..])
}

fn is_name(segment: &str) -> bool {
    // v1, v2 and v10 are versions of an API, not identifiers.
    let is_version = segment.len() <= 3
        && segment.strip_prefix('v').is_some_and(|rest| rest.parse::<u8>().is_ok());
    let plain = |byte: u8| byte.is_ascii_graphic() && !byte.is_ascii_digit() && byte != b'%';
    is_version || segment.len() <= MAX_SEGMENT_BYTES && segment.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_replaced() {
        for (target, endpoint) in [
            ("/", "/"),
            ("//", "/"),
            ("/?x=/a/b", "/"),
            ("/users/17/posts?page=2", "/users/*/posts"),
            ("/users/17/posts/", "/users/*/posts"),
            ("/a/b/c/d/e", "/a/b/c"),
            ("/api/v2/orders", "/api/v2/orders"),
            ("/api/v2001", "/api/*"),
            ("/static/app.js", "/static/app.js"),
            ("/3f2504e0-4f89-11d3-9a0c-0305e82c3301", "/*"),
            ("/a/%E4%BD%A0", "/a/*"),
            ("/the-title-of-a-post-that-is-much-too-long", "/*"),
            ("http://host:80/a/b?c", "/a/b"),
            ("http://host", "/"),
            ("*", "*"),
            ("", "*"),
        ] {
            assert_eq!(endpoint_of(target.as_bytes()), endpoint, "{target}");
        }
        assert_eq!(endpoint_of(b"/a/\xff\x00/b"), "/a/*/b");
    }
}
