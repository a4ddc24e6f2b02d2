//! One call to the API server, with its timeout and its error text.

use std::fmt::Debug;
use std::time::Duration;

use futures::{StreamExt, stream};
use http::Request;
use http::header::{ACCEPT, CONTENT_TYPE};
use kube::Api;
use kube::api::{ListParams, PartialObjectMeta};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tenure_api::whereabouts::IPPool;
use tokio::time::timeout;

use super::Shared;

/// How long one read may take. A pod waits for it; but giving up a list early only makes a busy server do it
/// again.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long one write may take. A write that is given up early may still succeed, and with a server that
/// always needs longer nothing would ever get done.
const WRITE_PATIENCE: Duration = Duration::from_secs(15);

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Trouble {
    /// The status, if there was an answer.
    pub(super) code: Option<u16>,
    /// What was tried, and the answer.
    pub(super) message: String,
}

impl Trouble {
    /// Whether there is no such object.
    pub(super) fn is_missing(&self) -> bool {
        self.code == Some(404)
    }

    /// Whether an object of this name exists, or changed. A failed test of a JSON patch is a 422.
    pub(super) fn is_conflict(&self) -> bool {
        matches!(self.code, Some(409 | 422))
    }

    /// Whether the same call would get the same answer.
    pub(super) fn is_hopeless(&self) -> bool {
        self.code.is_some_and(|code| {
            (400..500).contains(&code) && !matches!(code, 404 | 408 | 409 | 410 | 422 | 429)
        })
    }
}

impl Shared {
    /// Makes a reading call. Any answer of the API server, even a refusal, is an answer.
    pub(super) async fn call<T>(
        &self,
        act: impl FnOnce() -> String,
        call: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, Trouble> {
        self.within(PATIENCE, act, call).await
    }

    /// Makes a writing call.
    pub(super) async fn write<T>(
        &self,
        act: impl FnOnce() -> String,
        call: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, Trouble> {
        self.within(WRITE_PATIENCE, act, call).await
    }

    async fn within<T>(
        &self,
        patience: Duration,
        act: impl FnOnce() -> String,
        call: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, Trouble> {
        let (code, problem) = match timeout(patience, call).await {
            Ok(Ok(answer)) => {
                self.answered();
                return Ok(answer);
            }
            Ok(Err(kube::Error::Api(status))) => {
                (Some(status.code), format!("the API server refuses ({}): {}", status.code, status.message))
            }
            Ok(Err(error)) => (None, format!("the API server cannot be asked: {error}")),
            Err(_) => (None, format!("no answer of the API server within {} s", patience.as_secs())),
        };
        let trouble = Trouble { code, message: format!("{}: {problem}", act()) };
        // Expected answers do not count as trouble.
        if trouble.is_missing() || trouble.is_conflict() {
            self.answered();
        } else {
            self.troubled(&trouble.message);
        }
        Err(trouble)
    }

    /// Lists all objects with these labels as of one moment, in pages small enough to be fast.
    pub(super) async fn list<K>(
        &self,
        api: &Api<K>,
        labels: &str,
        at_once: u32,
        act: &str,
    ) -> Result<Vec<K>, Trouble>
    where
        K: Clone + DeserializeOwned + Debug,
    {
        let mut params = ListParams::default().labels(labels).limit(at_once);
        let mut listed = Vec::new();
        loop {
            let page = self.call(|| act.to_owned(), api.list(&params)).await?;
            listed.extend(page.items);
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params.continue_token = Some(token),
                None => return Ok(listed),
            }
        }
    }
}

/// How many calls are made at once.
const AT_ONCE: usize = 16;

/// Makes calls, several at once; returns their results in any order.
pub(super) async fn all<T, F: Future<Output = T> + Send + 'static>(calls: Vec<F>) -> Vec<T> {
    stream::iter(calls).buffer_unordered(AT_ONCE).collect().await
}

/// Accepts an answer without the object's records.
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

/// A JSON patch of one object; `accept` selects the form of the answer.
fn json_patch(
    pools: &Api<IPPool>,
    name: &str,
    patch: &Value,
    accept: &str,
) -> Result<Request<Vec<u8>>, kube::Error> {
    let uri = format!("{}/{name}", pools.resource_url());
    let request =
        Request::patch(uri).header(CONTENT_TYPE, "application/json-patch+json").header(ACCEPT, accept);
    request.body(patch.to_string().into_bytes()).map_err(kube::Error::HttpError)
}

/// Patches an object and returns all of it.
pub(super) async fn patch(pools: &Api<IPPool>, name: &str, patch: &Value) -> Result<IPPool, kube::Error> {
    let request = json_patch(pools, name, patch, "application/json")?;
    pools.clone().into_client().request(request).await
}

/// Patches an object and returns its metadata: the records may be a hundred times as large.
pub(super) async fn patch_metadata(
    pools: &Api<IPPool>,
    name: &str,
    patch: &Value,
) -> Result<PartialObjectMeta<IPPool>, kube::Error> {
    let request = json_patch(pools, name, patch, METADATA)?;
    pools.clone().into_client().request(request).await
}
