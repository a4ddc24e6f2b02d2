//! The frames of an answer: headers, message, trailers; or, for a refusal, headers alone.

use crate::status::{Code, Status, percent_encoded};
use crate::{frame, hpack};

/// In the static table.
const STATUS_200: u8 = 8;
const STATUS: u8 = 8;
const CONTENT_TYPE: u8 = 31;

/// The headers of every answer.
pub(super) fn begin(out: &mut Vec<u8>, stream: u32) {
    let mut block = Vec::with_capacity(32);
    hpack::indexed(&mut block, STATUS_200);
    hpack::named(&mut block, CONTENT_TYPE, "application/grpc");
    frame::headers(out, stream, &block, false);
}

/// The trailers after the message.
pub(super) fn end(out: &mut Vec<u8>, stream: u32) {
    let mut block = Vec::with_capacity(32);
    hpack::literal(&mut block, "grpc-status", "0");
    frame::headers(out, stream, &block, true);
}

/// The complete answer to a refused call.
pub(super) fn refusal(out: &mut Vec<u8>, stream: u32, http_status: u16, status: &Status) {
    let mut block = Vec::with_capacity(128);
    if http_status == 200 {
        hpack::indexed(&mut block, STATUS_200);
    } else {
        hpack::named(&mut block, STATUS, &http_status.to_string());
    }
    hpack::named(&mut block, CONTENT_TYPE, "application/grpc");
    hpack::literal(&mut block, "grpc-status", &(status.code as u8).to_string());
    hpack::literal(&mut block, "grpc-message", &percent_encoded(&status.message));
    if status.code == Code::Unimplemented {
        hpack::literal(&mut block, "grpc-accept-encoding", "identity");
    }
    frame::headers(out, stream, &block, true);
}
