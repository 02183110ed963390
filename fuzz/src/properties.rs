//! Properties of `http` that must hold for any input. Each function panics on a violation.
//!
//! The callers are the fuzz targets, for which libFuzzer chooses the bytes, and `cargo test` of
//! headway-server (`http/fuzzed_tests.rs`), which mutates the seeds without coverage feedback.

use crate::http::body::{BodyDecoder, Decoded};
use crate::http::connection::{Finished, Surroundings};
use crate::http::forwarding::{Believed, read_origin};
use crate::http::{Connection, Event, Framing, Head, Limits, Rejection, Response};
use std::sync::Arc;

/// An event of a conversation, from the server's point of view.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Seen {
    Request { method: Vec<u8>, target: Vec<u8>, minor_version: u8, fields: Vec<[Vec<u8>; 2]> },
    Body(Vec<u8>),
    Refused(Rejection),
}

/// `bytes`: one byte that chooses limits, two that choose how the rest is cut into pieces, and the
/// bytes that the peer sends.
///
/// The events do not depend on the pieces. The parsed requests, written again in the plainest form,
/// parse to the same requests. An independent reader (`plain_reading`) finds the same requests.
pub fn connection(bytes: &[u8]) {
    let [choice, cut_a, cut_b, sent @ ..] = bytes else { return };
    let limits = match choice % 4 {
        0 => Limits::default(),
        1 => Limits {
            max_target_bytes: 24,
            max_head_bytes: 120,
            max_fields: 4,
            max_body_bytes: 20,
            ..Limits::default()
        },
        2 => Limits {
            max_target_bytes: 200,
            max_head_bytes: 100,
            max_fields: 3,
            max_body_bytes: 9,
            ..Limits::default()
        },
        _ => Limits { max_fields: 200, max_body_bytes: 1, ..Limits::default() },
    };
    let limits = Arc::new(limits);
    let whole = conversation(&limits, [sent]);
    assert_eq!(conversation(&limits, sent.chunks(1)), whole, "byte by byte");
    assert_eq!(conversation(&limits, cuts(sent, *cut_a, *cut_b)), whole, "cut");

    let (requests, refused) = plain_reading(sent, &limits);
    let understood: Vec<_> =
        whole.iter().filter(|seen| !matches!(seen, Seen::Refused(_))).collect();
    assert_eq!(understood, requests.iter().collect::<Vec<_>>(), "another reading");
    assert_eq!(matches!(whole.last(), Some(Seen::Refused(_))), refused, "{whole:?}");

    if choice % 4 == 0 {
        let plain = write_plainly(&requests);
        // The plain form may have one more field and a few more bytes.
        let wider = Limits { max_head_bytes: 1 << 20, max_fields: 1_000, ..*limits };
        let again = conversation(&Arc::new(wider), [&plain[..]]);
        assert_eq!(again, write_back(&requests), "written again");
    }
}

/// Pieces of 1 to 255 bytes, alternately of two sizes.
fn cuts(mut bytes: &[u8], a: u8, b: u8) -> Vec<&[u8]> {
    let mut pieces = Vec::new();
    let mut sizes = [a.max(1), b.max(1)].into_iter().cycle();
    while !bytes.is_empty() {
        let (piece, rest) = bytes.split_at(bytes.len().min(sizes.next().map_or(1, usize::from)));
        pieces.push(piece);
        bytes = rest;
    }
    pieces
}

fn feed(connection: &mut Connection, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let space = connection.space();
        let count = space.len().min(bytes.len());
        space[..count].copy_from_slice(&bytes[..count]);
        connection.filled(count);
        bytes = &bytes[count..];
    }
}

/// Answers each request when it is complete, until no more events can follow.
fn conversation<'a>(limits: &Arc<Limits>, pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<Seen> {
    let mut connection = Connection::new(Arc::clone(limits));
    let mut pieces = pieces.into_iter();
    let (mut seen, mut body, mut framing) = (Vec::new(), Vec::new(), Framing::Empty);
    loop {
        match connection.next_event() {
            Event::NeedData => match pieces.next() {
                Some(piece) => feed(&mut connection, piece),
                None => connection.peer_closed(),
            },
            Event::Request => {
                let (head, bytes) = connection.head();
                let at = |range: &std::ops::Range<usize>| bytes[range.clone()].to_vec();
                let fields = head.fields.iter().map(|field| [at(&field.name), at(&field.value)]);
                assert!(head.fields.len() <= limits.max_fields);
                assert!(bytes.len() <= limits.max_head_bytes);
                assert!(head.target.len() <= limits.max_target_bytes);
                framing = head.framing;
                seen.push(Seen::Request {
                    method: at(&head.method),
                    target: at(&head.target),
                    minor_version: head.minor_version,
                    fields: fields.collect(),
                });
                body = Vec::new();
            }
            Event::Data(range) => {
                assert!(!range.is_empty());
                body.extend_from_slice(connection.bytes(range));
                assert!(body.len() as u64 <= limits.body_bytes());
            }
            Event::EndOfMessage => {
                match framing {
                    Framing::Empty => assert!(body.is_empty()),
                    Framing::Sized(length) => assert_eq!(body.len() as u64, length),
                    Framing::Chunked => {}
                }
                seen.push(Seen::Body(std::mem::take(&mut body)));
                // The events must not depend on whether the end of input is already known.
                let mut out = Vec::new();
                if !answer(&mut connection, &mut out) {
                    return seen;
                }
                if connection.is_idle() {
                    // As between the requests of a thread: the returned buffer contains old bytes.
                    let buffer = connection.take_buffer();
                    connection.lend_buffer(buffer);
                }
            }
            Event::Refused(rejection) => {
                assert!(!rejection.explanation(limits).is_empty());
                seen.push(Seen::Refused(rejection));
                assert_eq!(connection.next_event(), Event::Closed, "nothing after a refusal");
                return seen;
            }
            Event::Paused => unreachable!("each request is finished at once"),
            Event::Closed => return seen,
        }
    }
}

/// Answers a request. Returns false if no further request may follow.
fn answer(connection: &mut Connection, out: &mut Vec<u8>) -> bool {
    let mut response = Response::default();
    response.begin(b"200 OK").expect("a valid status");
    connection.encode_head(&response, surroundings(Some(0)), out);
    connection.finish(true, out) == Finished::KeepAlive
}

fn surroundings(body_bytes: Option<u64>) -> Surroundings<'static> {
    Surroundings { date: b"now", server: b"me", body_bytes, closing: false }
}

/// A second, simple parser of RFC 9112 for complete input. Returns the requests, and whether the
/// server must refuse the rest.
fn plain_reading(mut rest: &[u8], limits: &Limits) -> (Vec<Seen>, bool) {
    let mut requests = Vec::new();
    loop {
        let mut empty_lines = 0;
        while let Some(after) = rest.strip_prefix(b"\r\n") {
            rest = after;
            empty_lines += 1;
        }
        if empty_lines > 8 {
            return (requests, true);
        }
        let Some(end) = head_end(rest) else { return (requests, cannot_begin(rest, limits)) };
        if end > limits.max_head_bytes || cannot_begin(&rest[..end], limits) {
            return (requests, true);
        }
        let Some(head) = PlainHead::read(&rest[..end - 4], limits) else { return (requests, true) };
        rest = &rest[end..];
        requests.push(head.seen);
        let body = match head.framing {
            Framing::Empty => Ok((Vec::new(), 0)),
            Framing::Sized(length) => match rest.get(..length as usize) {
                Some(body) => Ok((body.to_vec(), body.len())),
                None => Err(()),
            },
            Framing::Chunked => plain_chunks(rest, limits),
        };
        let Ok((body, length)) = body else { return (requests, true) };
        requests.push(Seen::Body(body));
        rest = &rest[length..];
        // The parser reads nothing after a request that ends the connection.
        if !head.keep_alive {
            return (requests, false);
        }
    }
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

fn head_end(bytes: &[u8]) -> Option<usize> {
    find(bytes, b"\r\n\r\n").map(|at| at + 4)
}

/// Whether `bytes` cannot be the beginning of a valid head.
fn cannot_begin(bytes: &[u8], limits: &Limits) -> bool {
    let bytes = &bytes[..bytes.len().min(limits.max_head_bytes)];
    let lone_line_feed =
        (0..bytes.len()).any(|at| bytes[at] == b'\n' && !bytes[..at].ends_with(b"\r"));
    let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let mut words = line.split(|byte| *byte == b' ');
    let method_too_long = bytes.iter().take(33).filter(|byte| !byte.is_ascii_whitespace()).count()
        == 33
        && !bytes[..33].iter().any(u8::is_ascii_whitespace);
    let target_too_long = words.nth(1).is_some_and(|target| target.len() > limits.max_target_bytes);
    let no_letter = !matches!(bytes, [] | [b'\r']) && !bytes[0].is_ascii_alphabetic();
    let full = bytes.len() == limits.max_head_bytes && head_end(bytes).is_none();
    no_letter || lone_line_feed || method_too_long || target_too_long || full
}

struct PlainHead {
    seen: Seen,
    framing: Framing,
    keep_alive: bool,
}

impl PlainHead {
    /// Parses a head without its empty line. `None` if the server must refuse it.
    fn read(bytes: &[u8], limits: &Limits) -> Option<Self> {
        let text = bytes.iter().map(|byte| *byte as char).collect::<String>();
        let mut lines = text.split("\r\n");
        let words: Vec<&str> = lines.next()?.split(' ').collect();
        let [method, target, version] = words[..] else { return None };
        let minor_version = match version.strip_prefix("HTTP/1.").map(str::as_bytes) {
            Some(b"0") => 0,
            Some([b'1'..=b'9']) => 1,
            _ => return None,
        };
        let is_token = |text: &str| {
            !text.is_empty()
                && text.chars().all(|c| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c))
        };
        if !is_token(method) || method == "CONNECT" || !is_target(method, target) {
            return None;
        }
        let mut fields = Vec::new();
        for line in lines {
            let (name, value) = line.split_once(':')?;
            let value_is_text = value.chars().all(|c| c == '\t' || (c >= ' ' && c != '\x7f'));
            if !is_token(name) || !value_is_text {
                return None;
            }
            fields.push([name, value.trim_matches([' ', '\t'])]);
        }
        if fields.len() > limits.max_fields {
            return None;
        }
        let all = |wanted: &str| -> Vec<&str> {
            let same = |field: &&[&str; 2]| field[0].eq_ignore_ascii_case(wanted);
            fields.iter().filter(same).map(|field| field[1]).collect()
        };
        match all("host")[..] {
            [] if minor_version == 0 => {}
            [host] if crate::http::target::check_host(&latin1(host)).is_ok() => {}
            _ => return None,
        }
        let framing = match (&all("transfer-encoding")[..], &all("content-length")[..]) {
            ([], []) => Framing::Empty,
            ([], lengths @ [first, ..]) => {
                let digits = |text: &str| {
                    !text.is_empty() && text.len() <= 18 && text.chars().all(|c| c.is_ascii_digit())
                };
                if !lengths.iter().all(|length| digits(length)) {
                    return None;
                }
                let numbers: Vec<u64> =
                    lengths.iter().map(|text| text.parse().unwrap_or(0)).collect();
                let number = first.parse().unwrap_or(0);
                if numbers.iter().any(|other| *other != number) || number > limits.body_bytes() {
                    return None;
                }
                if number == 0 { Framing::Empty } else { Framing::Sized(number) }
            }
            ([codings], []) if minor_version == 1 => {
                let codings = codings.split(',').map(|each| each.trim_matches([' ', '\t']));
                let mut codings = codings.filter(|each| !each.is_empty());
                match (codings.next(), codings.next()) {
                    (Some(only), None) if only.eq_ignore_ascii_case("chunked") => Framing::Chunked,
                    _ => return None,
                }
            }
            _ => return None,
        };
        if minor_version == 1
            && all("expect").iter().any(|e| !e.eq_ignore_ascii_case("100-continue"))
        {
            return None;
        }
        let connection = all("connection").join(",").to_ascii_lowercase();
        let has = |wanted: &str| {
            connection.split(',').any(|option| option.trim_matches([' ', '\t']) == wanted)
        };
        let keep_alive = !has("close") && (minor_version == 1 || has("keep-alive"));
        let fields = fields.iter().map(|field| field.map(latin1)).collect();
        let (method, target) = (latin1(method), latin1(target));
        let seen = Seen::Request { method, target, minor_version, fields };
        Some(Self { seen, framing, keep_alive })
    }
}

/// The bytes of a text whose characters stand for single bytes.
fn latin1(text: &str) -> Vec<u8> {
    text.chars().map(|c| c as u8).collect()
}

fn is_target(method: &str, target: &str) -> bool {
    // UTF-8 is allowed, as in most servers; control characters and invalid UTF-8 are not.
    let bytes = latin1(target);
    let visible = !bytes.iter().any(|byte| *byte <= b' ' || *byte == 0x7f || *byte == b'#');
    let form = target.starts_with('/')
        || (target == "*" && method == "OPTIONS")
        || crate::http::target::split_absolute(&bytes).is_some();
    visible && form && std::str::from_utf8(&bytes).is_ok()
}

/// The data of a chunked body, and the number of bytes of its encoding. An error if the body is
/// malformed, too large or incomplete.
fn plain_chunks(bytes: &[u8], limits: &Limits) -> Result<(Vec<u8>, usize), ()> {
    let (mut body, mut at, mut extras) = (Vec::new(), 0, 0_u64);
    loop {
        let length = find(&bytes[at..], b"\r\n").ok_or(())?;
        let line = &bytes[at..at + length];
        at += length + 2;
        let size_end = line.iter().position(|byte| b"; \t".contains(byte)).unwrap_or(line.len());
        let (size, rest) = line.split_at(size_end);
        let is_size = (1..=15).contains(&size.len()) && size.iter().all(u8::is_ascii_hexdigit);
        if !is_size || !are_extensions(rest) {
            return Err(());
        }
        extras += rest.len() as u64;
        let size = std::str::from_utf8(size).ok().and_then(|hex| u64::from_str_radix(hex, 16).ok());
        let size = size.ok_or(())?;
        if extras > 8_192 || body.len() as u64 + size > limits.body_bytes() {
            return Err(());
        }
        if size == 0 {
            break;
        }
        let data = bytes[at..].get(..size as usize).ok_or(())?;
        body.extend_from_slice(data);
        extras = extras.saturating_sub(size);
        at += data.len();
        if !bytes[at..].starts_with(b"\r\n") {
            return Err(());
        }
        at += 2;
    }
    loop {
        let length = find(&bytes[at..], b"\r\n").ok_or(())?;
        let line = &bytes[at..at + length];
        at += length + 2;
        if line.is_empty() {
            return Ok((body, at));
        }
        let colon = line.iter().position(|byte| *byte == b':').ok_or(())?;
        let (name, value) = line.split_at(colon);
        let is_token =
            |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
        extras += line.len() as u64 - 1;
        if name.is_empty() || !name.iter().all(is_token) || !is_text(value) || extras > 8_192 {
            return Err(());
        }
    }
}

/// Whether `rest` is a sequence of `; name`, `; name=token` and `; name="text"`.
fn are_extensions(mut rest: &[u8]) -> bool {
    let is_token = |byte: &&u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    while !rest.is_empty() {
        let Some(after) = skip_space(rest).strip_prefix(b";") else { return false };
        let after = skip_space(after);
        let name = after.iter().take_while(is_token).count();
        rest = &after[name..];
        if name == 0 {
            return false;
        }
        let Some(value) = skip_space(rest).strip_prefix(b"=") else { continue };
        let value = skip_space(value);
        let length = match value.strip_prefix(b"\"") {
            Some(quoted) => {
                let mut at = 0;
                while quoted.get(at).is_some_and(|byte| *byte != b'"') {
                    at += if quoted[at] == b'\\' { 2 } else { 1 };
                }
                if at >= quoted.len() || !is_text(&quoted[..at]) {
                    return false;
                }
                at + 2
            }
            None => value.iter().take_while(is_token).count(),
        };
        if length == 0 {
            return false;
        }
        rest = &value[length..];
    }
    true
}

fn skip_space(bytes: &[u8]) -> &[u8] {
    let count = bytes.iter().take_while(|byte| b" \t".contains(byte)).count();
    &bytes[count..]
}

fn is_text(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == b'\t' || (*byte >= b' ' && *byte != 0x7f))
}

/// Writes requests as a strict client does: with Content-Length and one space after each colon.
fn write_plainly(requests: &[Seen]) -> Vec<u8> {
    let mut out = Vec::new();
    for pair in requests.chunks(2) {
        let [Seen::Request { method, target, minor_version, fields }, Seen::Body(body)] = pair
        else {
            break;
        };
        out.extend(
            [&method[..], b" ", target, b" HTTP/1.", &[b'0' + minor_version], b"\r\n"].concat(),
        );
        for [name, value] in fields.iter().filter(|[name, _]| !is_framing(name)) {
            out.extend([&name[..], b": ", value, b"\r\n"].concat());
        }
        out.extend(format!("Content-Length: {}\r\n\r\n", body.len()).bytes());
        out.extend(body);
    }
    out
}

/// The events that the output of `write_plainly` must parse to, without an incomplete last request.
fn write_back(requests: &[Seen]) -> Vec<Seen> {
    let mut back = Vec::new();
    for pair in requests.chunks_exact(2) {
        let [Seen::Request { method, target, minor_version, fields }, Seen::Body(body)] = pair
        else {
            break;
        };
        let mut fields: Vec<_> =
            fields.iter().filter(|[name, _]| !is_framing(name)).cloned().collect();
        fields.push([b"Content-Length".to_vec(), body.len().to_string().into_bytes()]);
        let (method, target, minor_version) = (method.clone(), target.clone(), *minor_version);
        back.push(Seen::Request { method, target, minor_version, fields });
        back.push(Seen::Body(body.clone()));
    }
    back
}

fn is_framing(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"content-length") || name.eq_ignore_ascii_case(b"transfer-encoding")
}

/// `bytes`: a limit, a size of pieces, a chunked body. The decoder's result does not depend on the
/// pieces, ends where the body ends, and agrees with `plain_chunks`.
pub fn body(bytes: &[u8]) {
    let [limit, size, sent @ ..] = bytes else { return };
    let limits = Limits { max_body_bytes: u64::from(*limit), ..Limits::default() };
    let whole = decode(sent, sent.len().max(1), &limits);
    assert_eq!(decode(sent, 1, &limits), whole);
    assert_eq!(decode(sent, usize::from(*size).max(1), &limits), whole);
    match (whole, plain_chunks(sent, &limits)) {
        (Ok(Some(decoded)), Ok(plain)) => assert_eq!(decoded, plain),
        (Ok(None) | Err(_), Err(())) => {}
        (whole, plain) => panic!("{whole:?}, and by another reading {plain:?}"),
    }
}

/// The body, and the number of bytes of its encoding; `None` if it is incomplete.
fn decode(
    bytes: &[u8],
    step: usize,
    limits: &Limits,
) -> Result<Option<(Vec<u8>, usize)>, Rejection> {
    let mut decoder = BodyDecoder::new(Framing::Chunked, limits.body_bytes());
    let (mut body, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let end = (at + step).min(bytes.len());
        match decoder.decode(&bytes[at..end], usize::MAX)? {
            Decoded::NeedData => at = end,
            Decoded::Data { framing, data } => {
                assert!(data > 0);
                body.extend_from_slice(&bytes[at + framing..at + framing + data]);
                at += framing + data;
            }
            Decoded::End { framing } => {
                assert!(decoder.is_complete());
                return Ok(Some((body, at + framing)));
            }
        }
        if decoder.is_complete() {
            return Ok(Some((body, at)));
        }
    }
    Ok(None)
}

/// `bytes`: a choice of request, lines of `name:value` that an application sends (the first is the
/// status), an empty line, and the body in blocks that end with a newline.
///
/// The output contains the accepted fields unchanged and the server's own fields, and nothing else:
/// no other line, no body where none is allowed, and framing that a client can decode.
pub fn response(bytes: &[u8]) {
    let [choice, rest @ ..] = bytes else { return };
    let requests: [&[u8]; 4] = [
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET / HTTP/1.0\r\n\r\n",
        b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    ];
    let is_head = choice % 4 == 1;
    let mut connection = Connection::new(Arc::default());
    feed(&mut connection, requests[usize::from(choice % 4)]);
    assert_eq!(connection.next_event(), Event::Request);
    assert_eq!(connection.next_event(), Event::EndOfMessage);

    let (head, body) = match find(rest, b"\n\n") {
        Some(at) => (&rest[..at], &rest[at + 2..]),
        None => (rest, &b""[..]),
    };
    let mut lines = head.split(|byte| *byte == b'\n');
    let status = lines.next().unwrap_or_default();
    let mut response = Response::default();
    if response.begin(status).is_err() {
        return;
    }
    let mut accepted = Vec::new();
    for line in lines {
        let at = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
        let (name, value) = (&line[..at], line.get(at + 1..).unwrap_or_default());
        if response.push_field(name, value).is_ok() {
            accepted.push((name.to_ascii_lowercase(), value.trim_ascii().to_vec()));
        }
    }

    let mut out = Vec::new();
    connection.encode_head(&response, surroundings(None), &mut out);
    let mut taken = Vec::new();
    for block in body.split_inclusive(|byte| *byte == b'\n') {
        let count = connection.encode_data(block, &mut out);
        taken.extend_from_slice(&block[..count]);
        if count < block.len() {
            break;
        }
    }
    let finished = connection.finish(true, &mut out);

    let mut storage = vec![httparse::EMPTY_HEADER; accepted.len() + 8];
    let mut parsed = httparse::Response::new(&mut storage);
    let length = match httparse::ParserConfig::default().parse_response(&mut parsed, &out) {
        Ok(httparse::Status::Complete(length)) => length,
        other => panic!("no response: {other:?}"),
    };
    assert_eq!(parsed.code, Some(response.code()));
    let field = |wanted: &str| {
        let same = |field: &&httparse::Header| field.name.eq_ignore_ascii_case(wanted);
        parsed.headers.iter().find(same).map(|field| field.value)
    };
    for header in parsed.headers.iter() {
        let name = header.name.to_ascii_lowercase();
        let ours = ["server", "date", "content-length", "transfer-encoding", "connection"];
        let asked =
            accepted.contains(&(name.clone().into_bytes(), header.value.trim_ascii().to_vec()));
        assert!(asked || ours.contains(&name.as_str()), "{name} was not asked for");
    }
    let payload = &out[length..];
    let code = response.code();
    if is_head || matches!(code, 204 | 205 | 304) {
        assert!(payload.is_empty());
    } else if field("transfer-encoding").is_some() {
        assert!(field("content-length").is_none() && choice % 4 == 0);
        assert_eq!(plain_chunks(payload, &Limits::default()), Ok((taken, payload.len())));
    } else {
        assert_eq!(payload, taken);
        if let Some(length) = field("content-length") {
            let length = String::from_utf8_lossy(length).parse::<usize>().expect("digits");
            assert!(taken.len() <= length);
            assert_eq!(taken.len() < length, matches!(finished, Finished::Truncated { .. }));
        } else {
            assert_eq!(finished, Finished::Close);
        }
    }
    if code == 204 {
        assert!(field("content-length").is_none());
    }
    assert!(finished != Finished::KeepAlive || field("connection") != Some(b"close"));
}

/// `bytes`: a choice, then lines that a client wrote into a field that proxies append to.
///
/// For any such lines, the client's address is the one that the first trusted proxy saw.
pub fn forwarding(bytes: &[u8]) {
    let [choice, forged @ ..] = bytes else { return };
    let (name, seen, trusted) = match choice % 4 {
        0 => ("X-Forwarded-For", "192.0.2.1", "10.0.0.1"),
        1 => ("Forwarded", "for=192.0.2.1;proto=https", "for=10.0.0.1"),
        2 => ("Forwarded", "for=\"192.0.2.1:80\";host=a", "for=\"10.0.0.1\";proto=http"),
        _ => ("X-Forwarded-For", "192.0.2.1:80", "::ffff:10.0.0.1"),
    };
    let mut text = b"GET / HTTP/1.1\r\nHost: a\r\n".to_vec();
    for line in forged.split(|byte| *byte == b'\n').take(8) {
        text.extend([name.as_bytes(), b": ", line].concat());
        text.extend(b"\r\n");
    }
    // The proxy appends to the last line.
    text.truncate(text.len() - 2);
    text.extend(format!(", {seen}").bytes());
    if choice / 4 % 2 == 1 {
        text.extend(format!("\r\n{name}: {trusted}").bytes());
    }
    text.extend(b"\r\n\r\n");
    let limits = Limits { max_head_bytes: 1 << 20, ..Limits::default() };
    let mut head = Head::default();
    if head.parse(&text, &limits).is_err() {
        return;
    }
    let believed = Believed::parse(&[name.to_owned()]).expect("a field that is known");
    let is_trusted = |ip: std::net::IpAddr| ip.to_string().starts_with("10.");
    let origin = read_origin(&head, &text, believed, is_trusted);
    assert_eq!(origin.ip.as_deref(), Some("192.0.2.1"));
    if choice % 4 == 1 {
        assert_eq!(origin.is_https, Some(true));
    }
}
