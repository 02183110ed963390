//! The response to a request that does not reach an application.

use crate::http::connection::Surroundings;
use crate::http::{self, Rejection, Response};

/// The Server field, unless the application sets it.
pub const SERVER_FIELD: &[u8] = concat!("headway/", env!("CARGO_PKG_VERSION")).as_bytes();

/// Writes a whole response that explains why a request is refused; returns its status code.
pub fn encode_refusal(
    http: &mut http::Connection,
    rejection: Rejection,
    date: &[u8],
    out: &mut Vec<u8>,
) -> u16 {
    let mut response = Response::default();
    response.begin(rejection.status()).expect("a constant that is valid");
    response
        .push_field(b"Content-Type", b"text/plain; charset=utf-8")
        .expect("a constant that is valid");
    let surroundings = Surroundings { date, server: SERVER_FIELD, body_bytes: None, closing: true };
    let body = format!("{}\n", rejection.explanation(http.limits()));
    http.refuse(&response, surroundings, body.as_bytes(), out);
    response.code()
}
