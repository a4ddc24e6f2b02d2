//! Who may read: the browser of whoever started the program, and nobody else on this machine or beyond.
//!
//! - The token is random, and only the fragment of the printed address has it, which browsers send to no server. The page sends it in a
//!   header. A cookie would reach every server on a loopback port, also one of another user.
//! - The `Host` must be the address that is listened on, so that no name of an attacker's leads here (DNS rebinding).
//! - A request that another site's page makes is refused by `Origin` and `Sec-Fetch-Site`, and could not carry the header anyway,
//!   because no answer allows another origin anything.

use std::net::SocketAddr;

use http::{HeaderMap, StatusCode, header};
use tenure_handles::Entropy;

/// The header with the token.
pub(super) const TOKEN: &str = "tenure-token";

/// What a request must show.
#[derive(Clone, Debug)]
pub(super) struct Gate {
    hosts: Vec<String>,
    token: String,
}

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refused(pub(super) StatusCode, pub(super) &'static str);

impl Gate {
    /// A gate with a new token, for a listener at this address.
    pub(super) fn new(address: SocketAddr, entropy: &impl Entropy) -> Self {
        let token = format!("{:032x}{:032x}", entropy.next_u128(), entropy.next_u128());
        let hosts = vec![address.to_string(), format!("localhost:{}", address.port())];
        Self { hosts, token }
    }

    /// What a person opens in a browser.
    pub(super) fn link(&self) -> String {
        format!("http://{}/#token={}", self.hosts[0], self.token)
    }

    /// Whether a request may have what is no secret: the pages without any content.
    pub(super) fn admits(&self, headers: &HeaderMap) -> Result<(), Refused> {
        let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
        let is_host = |text: &str| self.hosts.iter().any(|host| host == text);
        if !text(header::HOST).is_some_and(is_host) || headers.get_all(header::HOST).iter().count() > 1 {
            return Err(Refused(StatusCode::MISDIRECTED_REQUEST, "this is not the host that was asked for"));
        }
        let foreign = |origin: &str| !origin.strip_prefix("http://").is_some_and(is_host);
        if text(header::ORIGIN).is_some_and(foreign) {
            return Err(Refused(StatusCode::FORBIDDEN, "pages of other sites are refused"));
        }
        match text(header::HeaderName::from_static("sec-fetch-site")) {
            None | Some("same-origin" | "none") => Ok(()),
            Some(_) => Err(Refused(StatusCode::FORBIDDEN, "pages of other sites are refused")),
        }
    }

    /// Whether it may have everything.
    pub(super) fn knows(&self, headers: &HeaderMap) -> Result<(), Refused> {
        let shown = headers.get(TOKEN).map(http::HeaderValue::as_bytes).unwrap_or_default();
        if same(shown, self.token.as_bytes()) {
            return Ok(());
        }
        Err(Refused(
            StatusCode::UNAUTHORIZED,
            "open the address that `tenure ui` printed: it has a token, and this has none",
        ))
    }
}

/// Compares without telling by its duration where the first difference is.
fn same(one: &[u8], other: &[u8]) -> bool {
    let differing = one.iter().zip(other).fold(0, |differing, (one, other)| differing | (one ^ other));
    one.len() == other.len() && differing == 0
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};
    use tenure_handles::SeededEntropy;

    use super::*;

    fn headers(all: &[(&str, &str)]) -> HeaderMap {
        let header = |(name, value): &(&str, &str)| {
            (HeaderName::try_from(*name).unwrap(), HeaderValue::try_from(*value).unwrap())
        };
        let mut headers = HeaderMap::new();
        for (name, value) in all.iter().map(header) {
            headers.append(name, value);
        }
        headers
    }

    #[test]
    fn only_its_own_pages_with_the_token_get_anything() {
        let gate = Gate::new("127.0.0.1:4000".parse().unwrap(), &SeededEntropy::new(1));
        let other = Gate::new("127.0.0.1:4000".parse().unwrap(), &SeededEntropy::new(2));
        let (link, others) = (gate.link(), other.link());
        let (start, token) = link.split_once("#token=").unwrap();
        assert_eq!((start, token.len()), ("http://127.0.0.1:4000/", 64));
        let host = ("host", "127.0.0.1:4000");
        for (given, status) in [
            (vec![host], None),
            (vec![("host", "localhost:4000")], None),
            (vec![host, ("origin", "http://127.0.0.1:4000"), ("sec-fetch-site", "same-origin")], None),
            (vec![host, ("sec-fetch-site", "none")], None),
            (vec![], Some(421)),
            (vec![("host", "127.0.0.1")], Some(421)),
            (vec![("host", "127.0.0.1:4001")], Some(421)),
            (vec![("host", "evil.example:4000")], Some(421)),
            (vec![host, ("host", "evil.example")], Some(421)),
            (vec![host, ("origin", "http://127.0.0.1:4001")], Some(403)),
            (vec![host, ("origin", "https://127.0.0.1:4000")], Some(403)),
            (vec![host, ("origin", "null")], Some(403)),
            (vec![host, ("sec-fetch-site", "same-site")], Some(403)),
            (vec![host, ("sec-fetch-site", "cross-site")], Some(403)),
        ] {
            let refused = gate.admits(&headers(&given)).err().map(|it| it.0.as_u16());
            assert_eq!(refused, status, "{given:?}");
        }
        assert_eq!(gate.knows(&headers(&[(TOKEN, token)])), Ok(()));
        let wrong = others.split_once("#token=").unwrap().1;
        for wrong in [wrong, "", &token[1..], &format!("{token}0")] {
            assert_eq!(gate.knows(&headers(&[(TOKEN, wrong)])).unwrap_err().0, 401, "{wrong}");
        }
    }
}
