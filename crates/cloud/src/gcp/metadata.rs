//! The metadata server of a machine: who it is, a token, and the alias ranges that its host knows.
//!
//! It costs no quota, and needs no rights. Its list of alias ranges is the host's own, so a range in it has arrived there: that is
//! what readiness means.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use serde::Deserialize;
use tenure_ipam::{Cidr, Notation};

use super::http::{HttpAnswer, PlainHttp, encoded};
use super::token::Granted;
use super::wire::last_part;
use crate::error::{CloudError, ErrorKind};

const FLAVOR: &str = "Metadata-Flavor";
const WITHIN: Duration = Duration::from_secs(10);

/// A metadata server.
#[derive(Clone, Debug)]
pub struct Metadata {
    base: String,
    http: Arc<PlainHttp>,
}

/// The alias ranges of a machine's interface as its host has them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Aliases {
    /// The ranges.
    pub ranges: BTreeSet<Cidr>,
    /// The version: the next question waits for another one.
    pub etag: String,
}

#[derive(Deserialize)]
struct Interface {
    #[serde(rename = "ipAliases", default)]
    ip_aliases: Vec<String>,
}

impl Metadata {
    /// The server at this host, as `GCE_METADATA_HOST` has it; every machine's own is `metadata.google.internal`.
    pub fn at(host: &str) -> Self {
        Self { base: format!("http://{host}/computeMetadata/v1"), http: Arc::new(PlainHttp::plain()) }
    }

    /// The project that the machine is in.
    pub async fn project(&self) -> Result<String, CloudError> {
        self.text("project/project-id").await
    }

    /// The name of the machine.
    pub async fn instance(&self) -> Result<String, CloudError> {
        self.text("instance/name").await
    }

    /// The zone of the machine.
    pub async fn zone(&self) -> Result<String, CloudError> {
        Ok(last_part(&self.text("instance/zone").await?).to_owned())
    }

    /// The cluster that the machine was made for, if any.
    pub async fn cluster(&self) -> Result<Option<String>, CloudError> {
        match self.text("instance/attributes/cluster-name").await {
            Err(error) if error.kind == ErrorKind::NotFound => Ok(None),
            name => name.map(Some),
        }
    }

    /// The alias ranges of an interface. With the version that is known it answers when there is another one, or after `wait`.
    pub async fn aliases(
        &self,
        interface: usize,
        known: Option<&Aliases>,
        wait: Duration,
    ) -> Result<Aliases, CloudError> {
        let act = format!("reading the alias ranges of interface {interface} from the metadata server");
        let waiting = known.map(|known| {
            format!(
                "&wait_for_change=true&last_etag={}&timeout_sec={}",
                encoded(&known.etag),
                wait.as_secs().max(1)
            )
        });
        let path = format!(
            "instance/network-interfaces/{interface}/?recursive=true&alt=json{}",
            waiting.unwrap_or_default()
        );
        let answer = self.ask(&act, &path, wait + WITHIN).await?;
        let found: Interface = answer.read(&act)?;
        let etag =
            answer.headers.get("etag").and_then(|etag| etag.to_str().ok()).unwrap_or_default().to_owned();
        let read = |text: &String| {
            Notation::Strict
                .cidr_or_address(text)
                .map_err(|error| CloudError::new(ErrorKind::Invalid(None), format!("{act}: {error}")))
        };
        Ok(Aliases { ranges: found.ip_aliases.iter().map(read).collect::<Result<_, _>>()?, etag })
    }

    /// A token of the default account.
    pub(super) async fn token(&self) -> Result<Granted, CloudError> {
        let act = "getting a token from the metadata server";
        let answer = self.ask(act, "instance/service-accounts/default/token", WITHIN).await?;
        if answer.is_success() {
            // The parser's error would quote the answer.
            return serde_json::from_slice(&answer.body).map_err(|_| {
                CloudError::new(ErrorKind::Transient, format!("{act}: the answer has no access_token"))
            });
        }
        answer.read(act)
    }

    async fn text(&self, path: &str) -> Result<String, CloudError> {
        let act = format!("reading {path} from the metadata server");
        let answer = self.ask(&act, path, WITHIN).await?;
        if answer.is_success() {
            return Ok(String::from_utf8_lossy(&answer.body).trim().to_owned());
        }
        answer.read(&act)
    }

    async fn ask(&self, act: &str, path: &str, within: Duration) -> Result<HttpAnswer, CloudError> {
        let request = Request::get(format!("{}/{path}", self.base))
            .header(FLAVOR, "Google")
            .body(Full::new(Bytes::new()));
        let request =
            request.map_err(|error| CloudError::new(ErrorKind::Invalid(None), format!("{act}: {error}")))?;
        let answer = self.http.exchange(act, request, within).await?;
        // Without the header, somebody else answered.
        if answer.headers.get(FLAVOR).is_none_or(|flavor| flavor != "Google") {
            return Err(CloudError::new(
                ErrorKind::Denied,
                format!("{act}: the answer is not from Google's metadata server"),
            ));
        }
        Ok(answer)
    }
}
