//! Tests of a connection without sockets: bytes in, events out; a response in, bytes out.

use super::*;
use crate::http::{Rejection, Response};
use proptest::prelude::*;

const HOST: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
const SURROUNDINGS: Surroundings =
    Surroundings { date: b"now", server: b"me", body_bytes: None, closing: false };

fn feed(connection: &mut Connection, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let space = connection.space();
        let count = space.len().min(bytes.len());
        space[..count].copy_from_slice(&bytes[..count]);
        connection.filled(count);
        bytes = &bytes[count..];
    }
}

/// Answers each request as soon as it is complete. Returns heads and bodies as text, with the data
/// of each body joined.
fn conversation(pieces: &[&[u8]]) -> Vec<String> {
    let mut connection = Connection::new(Arc::default());
    let mut seen = Vec::new();
    let mut body = Vec::new();
    let mut pieces = pieces.iter();
    loop {
        match connection.next_event() {
            Event::NeedData => match pieces.next() {
                Some(piece) => feed(&mut connection, piece),
                None => connection.peer_closed(),
            },
            Event::Request => {
                let (head, bytes) = connection.head();
                seen.push(String::from_utf8_lossy(&bytes[head.target.clone()]).into_owned());
                body.clear();
            }
            Event::Data(range) => body.extend_from_slice(connection.bytes(range)),
            Event::EndOfMessage => {
                seen.push(format!("body {}", String::from_utf8_lossy(&body)));
                let mut response = Response::default();
                response.begin(b"200 OK").unwrap();
                let surroundings = Surroundings { body_bytes: Some(0), ..SURROUNDINGS };
                let mut out = Vec::new();
                connection.encode_head(&response, surroundings, &mut out);
                // `finish` may also close the connection, if the end of input came with the last
                // request.
                connection.finish(true, &mut out);
            }
            Event::Paused => unreachable!("each request is finished at once"),
            Event::Refused(rejection) => {
                seen.push(format!("{rejection:?}"));
                return seen;
            }
            Event::Closed => return seen,
        }
    }
}

fn answer(
    request: &[u8],
    status: &[u8],
    length: Option<u64>,
    blocks: &[&[u8]],
) -> (String, Finished) {
    let mut connection = Connection::new(Arc::default());
    feed(&mut connection, request);
    assert_eq!(connection.next_event(), Event::Request);
    let mut response = Response::default();
    response.begin(status).unwrap();
    if let Some(length) = length {
        response.push_field(b"Content-Length", length.to_string().as_bytes()).unwrap();
    }
    while !matches!(connection.next_event(), Event::NeedData | Event::Paused) {}
    let mut out = Vec::new();
    connection.encode_head(&response, SURROUNDINGS, &mut out);
    for block in blocks {
        connection.encode_data(block, &mut out);
    }
    let finished = connection.finish(true, &mut out);
    let text = String::from_utf8(out).unwrap();
    (text.replace("Server: me\r\nDate: now\r\n", ""), finished)
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let bytes = b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n\r\nPOST /b HTTP/1.1\r\nHost: a\r\n\
        Content-Length: 2\r\n\r\nxyGET /c HTTP/1.1\r\nHost: a\r\n\r\n";
    assert_eq!(conversation(&[bytes]), ["/a", "body ", "/b", "body xy", "/c", "body "]);
}

#[test]
fn a_limited_number_of_empty_lines_before_a_request_is_skipped() {
    let conversation_after = |lines| {
        let request = ["\r\n".repeat(lines).as_bytes(), HOST].concat();
        conversation(&[&[&request[..], &request].concat()])
    };
    assert_eq!(conversation_after(8), ["/", "body ", "/", "body "]);
    assert_eq!(conversation_after(9), ["RequestLine"]);
}

#[test]
fn the_framing_of_a_response_depends_on_length_and_version() {
    let (text, finished) = answer(HOST, b"200 OK", Some(5), &[b"hello"]);
    assert_eq!(text, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello");
    assert_eq!(finished, Finished::KeepAlive);

    let (text, finished) = answer(HOST, b"200 OK", None, &[b"hello", b"", b"!"]);
    let chunks = "5\r\nhello\r\n1\r\n!\r\n0\r\n\r\n";
    assert_eq!(text, format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}"));
    assert_eq!(finished, Finished::KeepAlive);

    let (text, finished) = answer(b"GET / HTTP/1.0\r\n\r\n", b"200 OK", None, &[b"hello"]);
    assert_eq!(text, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhello");
    assert_eq!(finished, Finished::Close);

    let kept = b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n";
    let (text, finished) = answer(kept, b"200 OK", Some(1), &[b"x"]);
    assert_eq!(text, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: keep-alive\r\n\r\nx");
    assert_eq!(finished, Finished::KeepAlive);
}

#[test]
fn some_responses_have_no_body() {
    let (text, finished) = answer(HOST, b"204 No Content", Some(5), &[b"hello"]);
    assert_eq!(text, "HTTP/1.1 204 No Content\r\n\r\n");
    assert_eq!(finished, Finished::KeepAlive);
    let (text, _) = answer(HOST, b"304 Not Modified", Some(5), &[b"hello"]);
    assert_eq!(text, "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n");
    let (text, finished) = answer(HOST, b"205 Reset Content", None, &[b"hello"]);
    assert_eq!(text, "HTTP/1.1 205 Reset Content\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(finished, Finished::KeepAlive);
    let head = b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n";
    let (text, finished) = answer(head, b"200 OK", Some(5), &[b"hello"]);
    assert_eq!(text, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n");
    assert_eq!(finished, Finished::KeepAlive);
}

#[test]
fn a_short_body_is_an_error_and_a_long_body_is_cut() {
    let (_, finished) = answer(HOST, b"200 OK", Some(20), &[b"ten bytes."]);
    assert_eq!(finished, Finished::Truncated { reset: false });
    let (text, finished) = answer(HOST, b"200 OK", Some(3), &[b"hello"]);
    assert!(text.ends_with("\r\n\r\nhel"));
    assert_eq!(finished, Finished::KeepAlive);
}

#[test]
fn a_small_unread_body_is_discarded_and_a_large_one_closes_the_connection() {
    let mut small = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n12345".to_vec();
    let mut connection = Connection::new(Arc::default());
    feed(&mut connection, &small);
    assert_eq!(connection.next_event(), Event::Request);
    let mut response = Response::default();
    response.begin(b"200 OK").unwrap();
    let mut out = Vec::new();
    connection.encode_head(&response, SURROUNDINGS, &mut out);
    assert_eq!(connection.finish(true, &mut out), Finished::KeepAlive);
    assert_eq!(connection.next_event(), Event::NeedData);
    feed(&mut connection, b"67890");
    feed(&mut connection, HOST);
    assert_eq!(connection.next_event(), Event::Request);

    small = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n12345".to_vec();
    let (text, finished) = answer(&small, b"200 OK", Some(0), &[]);
    assert!(text.contains("Connection: close\r\n"));
    assert_eq!(finished, Finished::Close);
}

#[test]
fn a_connection_is_idle_after_the_last_byte_of_a_body() {
    let post = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello";
    let mut connection = Connection::new(Arc::default());
    feed(&mut connection, post);
    assert_eq!(connection.next_event(), Event::Request);
    assert!(matches!(connection.next_event(), Event::Data(_)));
    let mut response = Response::default();
    response.begin(b"204 No Content").unwrap();
    let mut out = Vec::new();
    connection.encode_head(&response, SURROUNDINGS, &mut out);
    assert_eq!(connection.finish(true, &mut out), Finished::KeepAlive);
    assert!(connection.is_idle());
}

#[test]
fn an_unread_body_without_a_known_end_closes_the_connection() {
    let mut chunked =
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n".to_vec();
    let (text, finished) = answer(&chunked, b"200 OK", Some(0), &[]);
    assert!(text.contains("Connection: close\r\n"));
    assert_eq!(finished, Finished::Close);
    chunked.extend_from_slice(b"0\r\n\r\n");
    let (_, finished) = answer(&chunked, b"200 OK", Some(0), &[]);
    assert_eq!(finished, Finished::KeepAlive);
}

/// Returns the first event, other than `Request` and `Data`, of one request under a body limit.
fn event_under_limit(max_body_bytes: u64, request: &[u8]) -> Event {
    let limits = Limits { max_body_bytes, ..Limits::default() };
    let mut connection = Connection::new(Arc::new(limits));
    feed(&mut connection, request);
    loop {
        match connection.next_event() {
            Event::Request | Event::Data(_) => {}
            other => return other,
        }
    }
}

#[test]
fn the_body_limit_is_exact() {
    let too_large = Event::Refused(Rejection::BodyTooLarge);
    let sized = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n";
    assert_eq!(event_under_limit(4, sized), too_large);
    assert_eq!(event_under_limit(5, sized), Event::NeedData);
    assert_eq!(event_under_limit(0, sized), Event::NeedData);
    let chunked = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
        3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
    assert_eq!(event_under_limit(4, chunked), too_large);
    assert_eq!(event_under_limit(5, chunked), Event::EndOfMessage);
    assert_eq!(event_under_limit(0, chunked), Event::EndOfMessage);
}

#[test]
fn a_refusal_has_a_body_unless_the_method_is_head() {
    let refuse = |method: &str| {
        let head = format!("{method} / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n");
        let limits = Limits { max_body_bytes: 1, ..Limits::default() };
        let mut connection = Connection::new(Arc::new(limits));
        feed(&mut connection, head.as_bytes());
        assert_eq!(connection.next_event(), Event::Refused(Rejection::BodyTooLarge));
        assert!(!connection.is_drained(), "the body may still come");
        let mut response = Response::default();
        response.begin(b"413 Content Too Large").unwrap();
        let mut out = Vec::new();
        connection.refuse(&response, SURROUNDINGS, b"why", &mut out);
        String::from_utf8(out).unwrap()
    };
    assert!(refuse("POST").ends_with("Content-Length: 3\r\nConnection: close\r\n\r\nwhy"));
    assert!(refuse("HEAD").ends_with("Content-Length: 3\r\nConnection: close\r\n\r\n"));
}

#[test]
fn an_idle_connection_keeps_little_memory() {
    let mut connection = Connection::new(Arc::default());
    let fields = "X: y\r\n".repeat(90);
    let request = format!("GET /{} HTTP/1.1\r\nHost: a\r\n{fields}\r\n", "a".repeat(9_000));
    feed(&mut connection, request.as_bytes());
    assert_eq!(connection.next_event(), Event::Request);
    assert_eq!(connection.next_event(), Event::EndOfMessage);
    let mut response = Response::default();
    response.begin(b"204 No Content").unwrap();
    let mut out = Vec::new();
    connection.encode_head(&response, SURROUNDINGS, &mut out);
    assert_eq!(connection.finish(true, &mut out), Finished::KeepAlive);
    assert!(connection.is_idle());
    assert!(connection.take_buffer().capacity() > 9_000);
    assert_eq!(connection.take_buffer().capacity(), 0);
    assert!(connection.head.fields.capacity() <= KEPT_FIELDS);
    feed(&mut connection, HOST);
    assert_eq!(connection.next_event(), Event::Request);
}

#[test]
fn an_unanswered_expectation_closes_the_connection() {
    let request =
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n";
    let mut connection = Connection::new(Arc::default());
    feed(&mut connection, request);
    assert_eq!(connection.next_event(), Event::Request);
    assert!(connection.awaits_continue());
    let (_, finished) = answer(request, b"200 OK", Some(0), &[]);
    assert_eq!(finished, Finished::Close);
}

#[test]
fn the_head_is_kept_while_a_large_body_is_received() {
    let mut connection = Connection::new(Arc::default());
    feed(&mut connection, b"POST /here HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n");
    assert_eq!(connection.next_event(), Event::Request);
    let mut received = 0;
    while received < 1_000_000 {
        match connection.next_event() {
            Event::NeedData => feed(&mut connection, &[b'x'; 50_000]),
            Event::Data(range) => received += range.len(),
            other => panic!("{other:?}"),
        }
    }
    let (head, bytes) = connection.head();
    assert_eq!(&bytes[head.target.clone()], b"/here");
    assert!(connection.take_buffer().len() < 4 * receiving::BODY_STEP_BYTES);
}

#[test]
fn there_is_space_behind_a_head_that_fills_the_buffer() {
    let mut connection = Connection::new(Arc::default());
    let buffer_bytes = connection.space().len();
    let fields = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nX: ";
    let padding = vec![b'x'; buffer_bytes - fields.len() - 4];
    feed(&mut connection, &[&fields[..], &padding, b"\r\n\r\n"].concat());
    assert_eq!(connection.next_event(), Event::Request);
    assert_eq!(connection.next_event(), Event::NeedData);
    assert!(!connection.space().is_empty());
}

#[test]
fn a_body_may_be_received_elsewhere() {
    let mut connection = Connection::new(Arc::default());
    feed(&mut connection, b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 12\r\n\r\nab");
    let mut place = [0; 8];
    assert!(connection.space_in(&mut place).is_empty(), "there is no body yet");
    assert_eq!(connection.next_event(), Event::Request);
    assert!(connection.space_in(&mut place).is_empty(), "two bytes are unread");
    assert!(matches!(connection.next_event(), Event::Data(range) if range.len() == 2));
    assert_eq!(connection.space_in(&mut place).len(), 8);
    connection.filled_in(b"cdefghij");
    assert_eq!(connection.sized_left(), Some(2));
    assert_eq!(connection.space_in(&mut place).len(), 2, "the next request is no body");
    connection.filled_in(b"kl");
    assert!(connection.is_body_complete());
    assert!(connection.space_in(&mut place).is_empty());
    feed(&mut connection, HOST);
    let mut response = Response::default();
    response.begin(b"200 OK").unwrap();
    let mut out = Vec::new();
    let surroundings = Surroundings { body_bytes: Some(0), ..SURROUNDINGS };
    connection.encode_head(&response, surroundings, &mut out);
    assert_eq!(connection.finish(true, &mut out), Finished::KeepAlive);
    assert_eq!(connection.next_event(), Event::Request);
    assert!(connection.space_in(&mut place).is_empty(), "it has no body");
}

/// Parts of requests, some of them invalid, so that random sequences reach every state.
fn fragment() -> impl Strategy<Value = Vec<u8>> {
    let fixed: [&[u8]; 16] = [
        b"GET /g HTTP/1.1\r\nHost: a\r\n\r\n",
        b"POST /s HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
        b"POST /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"3\r\nabc\r\n",
        b"4;x=y\r\nabcd\r\n",
        b"0\r\n\r\n",
        b"0\r\nT: x\r\n\r\n",
        b"GET /n HTTP/1.1\r\n\r\n",
        b"GET /z HTTP/1.0\r\n\r\n",
        b"GET /l HTTP/1.1\nHost: a\r\n\r\n",
        b"\r\n",
        b"\n",
        b"X : y\r\n",
        b"GET /e HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nab",
        b"\0\x16\x03",
        b"P",
    ];
    prop_oneof![
        8 => (0..fixed.len()).prop_map(move |index| fixed[index].to_vec()),
        1 => proptest::collection::vec(any::<u8>(), 0..40),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]

    #[test]
    fn any_split_of_the_bytes_gives_the_same_events(
        fragments in proptest::collection::vec(fragment(), 1..8),
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let bytes = fragments.concat();
        let whole = conversation(&[&bytes]);
        let mut offsets: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        offsets.extend([0, bytes.len()]);
        offsets.sort_unstable();
        let pieces: Vec<&[u8]> = offsets.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
        prop_assert_eq!(&conversation(&pieces), &whole);
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        prop_assert_eq!(&conversation(&single), &whole);
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        conversation(&[&bytes]);
    }
}
