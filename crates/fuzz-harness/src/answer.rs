//! What the plugin reads from the agent's socket, which might be anybody's.

use std::io::{self, Read, Write};
use std::time::Duration;

use tenure_grpc::{CallError, UnaryCall};

use crate::{Violation, hold};

pub(crate) fn run(input: &[u8]) -> Result<(), Violation> {
    let call =
        UnaryCall { path: "/p.S/M", message: b"m", traceparent: None, patience: Duration::from_secs(1) };
    match call.over(Peer(input)) {
        Ok(message) => hold(message.len() < input.len(), || {
            format!("a message of {} bytes came out of {} bytes", message.len(), input.len())
        }),
        Err(CallError::Refused { code, .. }) => hold(code != 0, || "OK is no refusal".into()),
        Err(error) => hold(!error.to_string().is_empty(), || "an error says nothing".into()),
    }
}

/// Says what it has to say, and listens to nothing.
pub(crate) struct Peer<'a>(pub(crate) &'a [u8]);

impl Read for Peer<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Write for Peer<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
