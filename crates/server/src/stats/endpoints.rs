//! What requests are summed up under where no framework says which route they took: the beginning of the path, with
//! whatever looks like an identifier left out, so that there are few.

/// Of a path; what lies deeper is told with what it lies in.
const MAX_SEGMENTS: usize = 3;
/// A longer segment is hardly a name.
const MAX_SEGMENT_BYTES: usize = 32;
const IDENTIFIER: &str = "*";

/// `/users/17/posts` becomes `/users/*/posts`.
pub fn endpoint_of(target: &[u8]) -> String {
    let path = path_of(target);
    if !path.starts_with(b"/") {
        // OPTIONS *, or what is no path at all.
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

/// Without the query, and without the scheme and host that a proxy may be sent.
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
    // v1, v2 and v10 are versions of an interface.
    let is_version = segment.len() <= 3
        && segment.strip_prefix('v').is_some_and(|rest| rest.parse::<u8>().is_ok());
    let plain = |byte: u8| byte.is_ascii_graphic() && !byte.is_ascii_digit() && byte != b'%';
    is_version || segment.len() <= MAX_SEGMENT_BYTES && segment.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_looks_like_an_identifier_is_left_out() {
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
