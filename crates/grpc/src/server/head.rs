//! The headers of a call: method, content type, timeout.

use std::time::Duration;

use super::LARGEST_HEAD;
use crate::status::{Code, Status};

/// The size of a field beyond its text (RFC 9113, section 6.5.2).
const OVERHEAD: usize = 32;

/// The fields of a head read so far.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is independent")]
pub(super) struct Head {
    methods: &'static [&'static str],
    size: usize,
    malformed: bool,
    /// Whether there were fields of the request line, and others.
    pseudo: bool,
    regular: bool,
    is_post: Option<bool>,
    scheme: bool,
    path: Option<Result<&'static str, String>>,
    is_grpc: bool,
    timeout: Option<Result<Duration, Status>>,
    traceparent: Option<String>,
}

/// The method of a call, and its timeout.
#[derive(Debug, Default)]
pub(super) struct Asks {
    pub(super) path: &'static str,
    pub(super) timeout: Option<Duration>,
    pub(super) traceparent: Option<String>,
}

/// The result of reading a head.
#[derive(Debug)]
pub(super) enum Verdict {
    /// A call.
    Asks(Asks),
    /// A refusal, with an HTTP status.
    Refused(u16, Status),
    /// Not valid HTTP/2.
    Malformed,
}

impl Head {
    pub(super) fn new(methods: &'static [&'static str]) -> Self {
        Self { methods, ..Self::default() }
    }

    pub(super) fn field(&mut self, name: &[u8], value: &[u8]) {
        self.size += name.len() + value.len() + OVERHEAD;
        if name.first() == Some(&b':') {
            self.malformed |= self.regular;
            self.pseudo = true;
            match name {
                b":method" => self.malformed |= self.is_post.replace(value == b"POST").is_some(),
                b":scheme" => self.malformed |= std::mem::replace(&mut self.scheme, true),
                b":path" => {
                    let known = self.methods.iter().find(|known| known.as_bytes() == value);
                    let path = known.copied().ok_or_else(|| String::from_utf8_lossy(value).into_owned());
                    self.malformed |= self.path.replace(path).is_some();
                }
                b":authority" => {}
                _ => self.malformed = true,
            }
            return;
        }
        self.regular = true;
        match name {
            b"content-type" => self.is_grpc = is_grpc(value),
            b"te" => self.malformed |= !value.eq_ignore_ascii_case(b"trailers"),
            b"grpc-timeout" => self.timeout = Some(timeout(value)),
            b"traceparent" => self.traceparent = std::str::from_utf8(value).ok().map(str::to_owned),
            b"connection" | b"keep-alive" | b"proxy-connection" | b"transfer-encoding" | b"upgrade" => {
                self.malformed = true;
            }
            name => self.malformed |= name.is_empty() || name.iter().any(u8::is_ascii_uppercase),
        }
    }

    /// Whether it can come after a message.
    pub(super) fn is_trailer(&self) -> bool {
        !self.malformed && !self.pseudo
    }

    pub(super) fn verdict(self) -> Verdict {
        let (Some(is_post), Some(path), true, false) = (self.is_post, self.path, self.scheme, self.malformed)
        else {
            return Verdict::Malformed;
        };
        if self.size > LARGEST_HEAD {
            let message = format!("the headers have {} bytes: accepted are {LARGEST_HEAD}", self.size);
            return Verdict::Refused(431, Status::new(Code::ResourceExhausted, message));
        }
        if !is_post {
            return Verdict::Refused(405, Status::new(Code::Internal, "this is no POST: accepted is POST"));
        }
        if !self.is_grpc {
            let message =
                "content-type is none of gRPC: accepted are application/grpc and application/grpc+proto";
            return Verdict::Refused(415, Status::new(Code::Internal, message));
        }
        let path = match path {
            Ok(path) => path,
            Err(path) => {
                let message = format!("there is no method {path}");
                return Verdict::Refused(200, Status::new(Code::Unimplemented, message));
            }
        };
        match self.timeout.transpose() {
            Ok(timeout) => Verdict::Asks(Asks { path, timeout, traceparent: self.traceparent }),
            Err(status) => Verdict::Refused(200, status),
        }
    }
}

/// Whether a content type is that of gRPC with protobuf messages.
fn is_grpc(value: &[u8]) -> bool {
    let kind = value.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    kind.eq_ignore_ascii_case(b"application/grpc") || kind.eq_ignore_ascii_case(b"application/grpc+proto")
}

/// At most eight digits and a unit.
fn timeout(value: &[u8]) -> Result<Duration, Status> {
    let read = || {
        let (unit, digits) = value.split_last()?;
        let number =
            Some(digits).filter(|digits| digits.len() <= 8 && digits.iter().all(u8::is_ascii_digit))?;
        let number: u64 = std::str::from_utf8(number).ok()?.parse().ok()?;
        match unit {
            b'H' => Some(Duration::from_hours(number)),
            b'M' => Some(Duration::from_mins(number)),
            b'S' => Some(Duration::from_secs(number)),
            b'm' => Some(Duration::from_millis(number)),
            b'u' => Some(Duration::from_micros(number)),
            b'n' => Some(Duration::from_nanos(number)),
            _ => None,
        }
    };
    read().ok_or_else(|| {
        let value = String::from_utf8_lossy(value);
        let message =
            format!("grpc-timeout is {value:?}: accepted are up to eight digits and one of H, M, S, m, u, n");
        Status::new(Code::InvalidArgument, message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_have_digits_and_a_unit() {
        let read = |text: &str| timeout(text.as_bytes()).ok();
        assert_eq!(read("99999999H"), Some(Duration::from_hours(99_999_999)));
        assert_eq!(read("2M"), Some(Duration::from_mins(2)));
        assert_eq!(read("0S"), Some(Duration::ZERO));
        assert_eq!(read("1500m"), Some(Duration::from_millis(1500)));
        assert_eq!(read("7u"), Some(Duration::from_micros(7)));
        assert_eq!(read("7n"), Some(Duration::from_nanos(7)));
        for broken in ["", "S", "1", "-1S", "+1S", "123456789S", "1s", "1 S"] {
            let status = timeout(broken.as_bytes()).unwrap_err();
            assert!(status.message.contains(&format!("{broken:?}")), "{status}");
        }
    }

    #[test]
    fn content_types_of_grpc_are_told_from_others() {
        for known in ["application/grpc", "application/grpc+proto", "application/grpc; charset=utf-8"] {
            assert!(is_grpc(known.as_bytes()), "{known}");
        }
        for other in ["", "application/grpc-web", "application/grpc+json", "application/json"] {
            assert!(!is_grpc(other.as_bytes()), "{other}");
        }
    }
}
