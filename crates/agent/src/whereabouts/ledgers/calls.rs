//! A call to the API server, with its patience.

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
use tenure_watch::{CallError, ErrorKind};

use super::Shared;

/// How long one read may take. A pod waits for it; but giving up a list early only makes a busy server do it
/// again.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long one write may take. A write that is given up early may still succeed, and with a server that
/// always needs longer nothing would ever get done.
const WRITE_PATIENCE: Duration = Duration::from_secs(15);

/// Whether whoever plans anew would meet the same answer.
pub(super) fn is_hopeless(error: &CallError) -> bool {
    error.kind() == ErrorKind::Final && !error.is_missing() && !error.is_conflict()
}

impl Shared {
    /// Makes a reading call. Any answer of the API server, even a refusal, is an answer.
    pub(super) async fn call<T>(
        &self,
        act: impl FnOnce() -> String,
        call: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, CallError> {
        self.within(PATIENCE, act, call).await
    }

    /// Makes a writing call.
    pub(super) async fn write<T>(
        &self,
        act: impl FnOnce() -> String,
        call: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, CallError> {
        self.within(WRITE_PATIENCE, act, call).await
    }

    async fn within<T>(
        &self,
        patience: Duration,
        act: impl FnOnce() -> String,
        call: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, CallError> {
        let answer = self.connection.once(patience, act, call).await;
        match &answer {
            // What is to be expected is no trouble.
            Err(error) if !error.is_missing() && !error.is_conflict() => self.troubled(error),
            _ => self.answered(),
        }
        answer
    }

    /// Lists all objects with these labels as of one moment, in pages small enough to be fast.
    pub(super) async fn list<K>(
        &self,
        api: &Api<K>,
        labels: &str,
        at_once: u32,
        act: &str,
    ) -> Result<Vec<K>, CallError>
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
