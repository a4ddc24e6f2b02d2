//! The headers of a call, and the relevant headers and trailers of the answer.

use crate::hpack;
use crate::status::percent_decoded;

/// `:method POST`, `:scheme http`, `:path`, `:authority localhost`.
pub(super) fn request_line(path: &str) -> Vec<u8> {
    const METHOD_POST: u8 = 3;
    const SCHEME_HTTP: u8 = 6;
    const PATH: u8 = 4;
    const AUTHORITY: u8 = 1;
    let mut block = Vec::with_capacity(256);
    hpack::indexed(&mut block, METHOD_POST);
    hpack::indexed(&mut block, SCHEME_HTTP);
    hpack::named(&mut block, PATH, path);
    hpack::named(&mut block, AUTHORITY, "localhost");
    block
}

/// The relevant headers and trailers of an answer.
#[derive(Debug, Default)]
pub(super) struct Head {
    pub(super) http_status: Option<u16>,
    pub(super) grpc_status: Option<u32>,
    pub(super) grpc_message: String,
}

impl Head {
    pub(super) fn field(&mut self, name: &[u8], value: &[u8]) {
        match name {
            b":status" => self.http_status = number(value),
            b"grpc-status" => self.grpc_status = number(value),
            b"grpc-message" => self.grpc_message = percent_decoded(value),
            _ => {}
        }
    }
}

fn number<N: std::str::FromStr>(value: &[u8]) -> Option<N> {
    std::str::from_utf8(value).ok()?.parse().ok()
}
