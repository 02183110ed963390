//! The access log: one line per request, `common`, `combined` or `json`.
//!
//! Each worker thread collects its lines in a buffer of its own. It writes the buffer when the
//! buffer is large or when the thread is idle, so that a busy server does not need a system call
//! per line. Lines are never torn: the file is opened for appending, and each write ends with a
//! complete line.

use crate::stats::RequestRecord;
use crate::stats::date_cache::DateCache;
use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};

/// A buffer of this size is written at once.
const BUFFER_BYTES: usize = 16_384;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogForm {
    /// The common log format, then `response_time=… gil_wait_time=…` in seconds.
    Common,
    /// `Common` with the quoted fields Referer and User-Agent after the bytes, as in the `combined`
    /// format of Apache and nginx.
    Combined,
    /// One JSON object with every phase, in seconds; an unknown value is null.
    Json,
}

/// The log file and its format. All worker threads share it; it never changes.
#[derive(Debug)]
pub struct AccessLog {
    pub form: LogForm,
    pub file: OwnedFd,
}

/// The client and the request of one line.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    pub address: &'a str,
    /// `None` if the client sent no valid request or not its whole head.
    pub request: Option<Request<'a>>,
}

#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    pub method: &'a [u8],
    pub target: &'a [u8],
    pub minor_version: u8,
    /// `None` if the request has no such field; only `Combined` uses both fields.
    pub referer: Option<&'a [u8]>,
    pub user_agent: Option<&'a [u8]>,
}

/// The lines of one worker thread that are not yet written.
#[derive(Debug, Default)]
pub struct LogBuffer {
    bytes: Vec<u8>,
}

impl LogBuffer {
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub fn push(
        &mut self,
        log: &AccessLog,
        asked: Asked,
        record: &RequestRecord,
        dates: &mut DateCache,
    ) {
        match log.form {
            LogForm::Common => push_common(&mut self.bytes, asked, record, dates.log(), false),
            LogForm::Combined => push_common(&mut self.bytes, asked, record, dates.log(), true),
            LogForm::Json => push_json(&mut self.bytes, asked, record),
        }
        if self.bytes.len() >= BUFFER_BYTES {
            self.flush(log);
        }
    }

    /// Writes the collected lines. If the log cannot be written (a full disk), the lines are lost
    /// and the server continues.
    pub fn flush(&mut self, log: &AccessLog) {
        let mut rest = &self.bytes[..];
        while !rest.is_empty() {
            // SAFETY: the pointer and length are those of `rest`, and `log` keeps the descriptor
            // open.
            let count =
                unsafe { libc::write(log.file.as_raw_fd(), rest.as_ptr().cast(), rest.len()) };
            if count > 0 {
                rest = &rest[count as usize..];
            } else if std::io::Error::last_os_error().kind() != std::io::ErrorKind::Interrupted {
                break;
            }
        }
        self.bytes.clear();
    }
}

fn push_common(
    out: &mut Vec<u8>,
    asked: Asked,
    record: &RequestRecord,
    date: &str,
    combined: bool,
) {
    let address = if asked.address.is_empty() { "-" } else { asked.address };
    let _ = write!(out, "{address} - - [{date}] \"");
    match asked.request {
        Some(request) => {
            push_escaped(out, request.method, "\\x");
            out.push(b' ');
            push_escaped(out, request.target, "\\x");
            let _ = write!(out, " HTTP/1.{}", request.minor_version);
        }
        None => out.push(b'-'),
    }
    let _ = write!(out, "\" {} {}", record.status, record.output_bytes);
    if combined {
        let fields = asked.request.map(|request| [request.referer, request.user_agent]);
        for field in fields.unwrap_or_default() {
            out.extend_from_slice(b" \"");
            push_escaped(out, field.unwrap_or(b"-"), "\\x");
            out.push(b'"');
        }
    }
    let _ = write!(out, " response_time={} gil_wait_time=", Seconds(record.response_ns));
    match record.gil_wait_ns {
        Some(ns) => drop(writeln!(out, "{}", Seconds(ns))),
        None => out.extend_from_slice(b"-\n"),
    }
}

fn push_json(out: &mut Vec<u8>, asked: Asked, record: &RequestRecord) {
    let wall = Seconds(headway_measure::clock::wall_coarse_ns());
    let _ = write!(out, "{{\"time\": {wall}, \"address\": \"{}\", \"method\": ", asked.address);
    match asked.request {
        Some(request) => {
            out.push(b'"');
            push_escaped(out, request.method, "\\u00");
            out.extend_from_slice(b"\", \"target\": \"");
            push_escaped(out, request.target, "\\u00");
            let _ = write!(out, "\", \"protocol\": \"HTTP/1.{}\"", request.minor_version);
        }
        None => out.extend_from_slice(b"null, \"target\": null, \"protocol\": null"),
    }
    let _ = write!(
        out,
        ", \"status\": {}, \"input_bytes\": {}, \"output_bytes\": {}",
        record.status, record.input_bytes, record.output_bytes
    );
    for (name, ns) in [
        ("response_time", Some(record.response_ns)),
        ("queue_time", Some(record.queue_ns)),
        ("server_time", Some(record.server_ns)),
        ("application_time", Some(record.application_ns)),
        ("gil_wait_time", record.gil_wait_ns),
        ("input_read_time", Some(record.input_read_ns)),
        ("output_write_time", Some(record.output_write_ns)),
        ("cpu_time", Some(record.cpu_ns)),
    ] {
        let _ = match ns {
            Some(ns) => write!(out, ", \"{name}\": {}", Seconds(ns)),
            None => write!(out, ", \"{name}\": null"),
        };
    }
    out.extend_from_slice(b"}\n");
}

/// Appends `bytes`. A byte that would end the string, the line or the encoding becomes `prefix` and
/// two hexadecimal digits.
fn push_escaped(out: &mut Vec<u8>, bytes: &[u8], prefix: &str) {
    for byte in bytes {
        match byte {
            b'"' | b'\\' | 0..=0x1f | 0x7f.. => drop(write!(out, "{prefix}{byte:02x}")),
            _ => out.push(*byte),
        }
    }
}

/// Nanoseconds, formatted as seconds with nine digits after the point.
struct Seconds(u64);

impl std::fmt::Display for Seconds {
    fn fmt(&self, formatter: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(formatter, "{}.{:09}", self.0 / 1_000_000_000, self.0 % 1_000_000_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASKED: Asked = Asked {
        address: "::1",
        request: Some(Request {
            method: b"GET",
            target: b"/\"\n\xff",
            minor_version: 1,
            referer: None,
            user_agent: Some(b"a \"b\""),
        }),
    };

    #[test]
    fn a_common_line_carries_the_gil_wait() {
        let mut out = Vec::new();
        let record = RequestRecord {
            status: 200,
            output_bytes: 5,
            response_ns: 1_500_000,
            gil_wait_ns: Some(42),
            ..Default::default()
        };
        push_common(&mut out, ASKED, &record, "now", false);
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "::1 - - [now] \"GET /\\x22\\x0a\\xff HTTP/1.1\" 200 5 \
             response_time=0.001500000 gil_wait_time=0.000000042\n"
        );
    }

    #[test]
    fn a_combined_line_has_referer_and_user_agent_in_apaches_order() {
        let mut out = Vec::new();
        push_common(&mut out, ASKED, &RequestRecord::default(), "now", true);
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "::1 - - [now] \"GET /\\x22\\x0a\\xff HTTP/1.1\" 0 0 \"-\" \"a \\x22b\\x22\" \
             response_time=0.000000000 gil_wait_time=-\n"
        );
    }

    #[test]
    fn an_unknown_value_is_null_in_json_and_a_dash_in_common() {
        let mut out = Vec::new();
        push_json(&mut out, ASKED, &RequestRecord::default());
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains("\"target\": \"/\\u0022\\u000a\\u00ff\""), "{text}");
        assert!(text.contains("\"gil_wait_time\": null"), "{text}");
        let mut out = Vec::new();
        push_common(&mut out, ASKED, &RequestRecord::default(), "now", false);
        assert!(out.ends_with(b"gil_wait_time=-\n"));
    }

    #[test]
    fn an_invalid_request_has_a_line_too() {
        let refused = Asked { request: None, ..ASKED };
        let record = RequestRecord { status: 400, ..RequestRecord::default() };
        let mut out = Vec::new();
        push_common(&mut out, refused, &record, "now", true);
        let times = "response_time=0.000000000 gil_wait_time=-";
        assert_eq!(
            String::from_utf8(out).unwrap(),
            format!("::1 - - [now] \"-\" 400 0 \"-\" \"-\" {times}\n")
        );
        let mut out = Vec::new();
        push_json(&mut out, refused, &record);
        let text = String::from_utf8(out).unwrap();
        let nulls = "\"method\": null, \"target\": null, \"protocol\": null, \"status\": 400";
        assert!(text.contains(nulls), "{text}");
    }
}
