//! One HTTP request at a time, with or without TLS, a limit on time and one on size.

use std::fmt::Write;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use http::{Method, Request};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::{Connect, HttpConnector};
use hyper_util::rt::TokioExecutor;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::errors;
use super::token::Secret;
use crate::error::{CloudError, ErrorKind};

/// An answer that takes longer is lost.
const WITHIN: Duration = Duration::from_mins(1);
/// No answer that we ask for is larger.
const LARGEST: usize = 16 << 20;

/// A client. It keeps connections, so it is made once.
#[derive(Clone, Debug)]
pub(super) struct Http<C = HttpsConnector<HttpConnector>> {
    client: Client<C, Full<Bytes>>,
}

/// A client without TLS. It reads no certificates.
pub(super) type PlainHttp = Http<HttpConnector>;

/// An answer, read in full.
#[derive(Debug)]
pub(super) struct HttpAnswer {
    status: u16,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl Http {
    /// A client that trusts the authorities which browsers trust.
    pub(super) fn new() -> Result<Self, CloudError> {
        let connector = HttpsConnectorBuilder::new()
            .with_provider_and_webpki_roots(rustls::crypto::ring::default_provider())
            .map_err(|error| CloudError::new(ErrorKind::Transient, format!("setting TLS up: {error}")))?
            .https_or_http()
            .enable_http1()
            .build();
        Ok(Self { client: Client::builder(TokioExecutor::new()).build(connector) })
    }
}

impl PlainHttp {
    /// A client for servers on this machine.
    pub(super) fn plain() -> Self {
        Self { client: Client::builder(TokioExecutor::new()).build(HttpConnector::new()) }
    }
}

impl<C: Connect + Clone + Send + Sync + 'static> Http<C> {
    /// Sends a request, with a token if it needs one.
    pub(super) async fn send<B: Serialize>(
        &self,
        act: &str,
        method: Method,
        url: &str,
        token: Option<&Secret>,
        body: Option<&B>,
    ) -> Result<HttpAnswer, CloudError> {
        let invalid = |error: &dyn std::fmt::Display| {
            CloudError::new(ErrorKind::Invalid(None), format!("{act}: {error}"))
        };
        let mut request = Request::builder().method(method).uri(url);
        if let Some(token) = token {
            request = request.header(AUTHORIZATION, token.bearer().map_err(|error| invalid(&error))?);
        }
        let bytes = match body {
            Some(body) => {
                request = request.header(CONTENT_TYPE, HeaderValue::from_static("application/json"));
                serde_json::to_vec(body).map_err(|error| invalid(&error))?
            }
            None => Vec::new(),
        };
        let request = request.body(Full::new(Bytes::from(bytes))).map_err(|error| invalid(&error))?;
        self.exchange(act, request, WITHIN).await
    }

    /// Sends a request and reads the answer.
    pub(super) async fn exchange(
        &self,
        act: &str,
        request: Request<Full<Bytes>>,
        within: Duration,
    ) -> Result<HttpAnswer, CloudError> {
        let lost =
            |error: &dyn std::fmt::Display| CloudError::new(ErrorKind::Transient, format!("{act}: {error}"));
        let exchange = async {
            let answer = self.client.request(request).await.map_err(|error| lost(&causes(&error)))?;
            let (head, body) = answer.into_parts();
            let body = Limited::new(body, LARGEST).collect().await.map_err(|error| lost(&error))?;
            Ok(HttpAnswer { status: head.status.as_u16(), headers: head.headers, body: body.to_bytes() })
        };
        match tokio::time::timeout(within, exchange).await {
            Ok(answer) => answer,
            Err(_) => Err(lost(&format!("no answer within {} s", within.as_secs()))),
        }
    }
}

impl HttpAnswer {
    pub(super) fn status(&self) -> u16 {
        self.status
    }

    pub(super) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// The answer's content, or why there is none.
    pub(super) fn read<T: DeserializeOwned>(&self, act: &str) -> Result<T, CloudError> {
        if !self.is_success() {
            let retry_after =
                self.headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
            return Err(errors::of_answer(
                act,
                self.status,
                retry_after.map(Duration::from_secs),
                &self.body,
            ));
        }
        serde_json::from_slice(&self.body).map_err(|error| {
            CloudError::new(ErrorKind::Transient, format!("{act}: the answer cannot be read: {error}"))
        })
    }
}

/// An error with its causes: the outermost one only says that something failed.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        _ = write!(text, ": {cause}");
        source = cause.source();
    }
    text
}

/// Text as a part of a query.
pub(super) fn encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}
