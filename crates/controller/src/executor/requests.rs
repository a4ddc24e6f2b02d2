//! The requests of writes. Each is a compare-and-swap, or a creation whose name is the lock.

use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use tenure_api::read::Read;
use tenure_watch::Every;

use super::{Answer, Outcome};
use crate::kind::{Kind, Observation};
use crate::write::At;

/// How many objects a page of a list has.
const PAGE: u32 = 500;

/// The outcome of a compare-and-swap. If the object had changed, its current state is observed.
pub async fn settle<K>(
    api: &Api<K>,
    at: &At,
    written: Result<K, kube::Error>,
    gone: impl Fn(At) -> Observation,
) -> Answer
where
    K: Kind + Serialize,
{
    match written {
        // This removed the last finalizer of an object in deletion; this was its last state.
        Ok(object) if object.meta().deletion_timestamp.is_some() && object.finalizers().is_empty() => {
            Ok((Outcome::Done, Some(gone(at.clone()))))
        }
        Ok(object) => Ok((Outcome::Done, Some(Observation::is(object)))),
        Err(kube::Error::Api(status)) if status.code == 404 => {
            Ok((Outcome::Superseded, Some(gone(at.clone()))))
        }
        // A patch whose test fails is invalid, and an outdated version is a conflict.
        Err(kube::Error::Api(status)) if status.code == 409 || status.code == 422 => {
            match api.get_opt(&at.name).await? {
                // It has not changed, so it was refused for another reason, and an immediate retry would not help.
                Some(object) if object.resource_version().as_ref() == Some(&at.version) => {
                    Err(kube::Error::Api(status))
                }
                Some(object) => Ok((Outcome::Superseded, Some(Observation::is(object)))),
                None => Ok((Outcome::Superseded, Some(gone(at.clone())))),
            }
        }
        Err(error) => Err(error),
    }
}

/// Creates an object. If one of that name exists, it is observed, whatever it contains.
pub async fn create<K: Kind + Serialize>(api: &Api<K>, object: &K) -> Answer {
    match api.create(&PostParams::default(), object).await {
        Ok(made) => Ok((Outcome::Done, Some(Observation::is(made)))),
        Err(kube::Error::Api(status)) if status.code == 409 => {
            let there = api.get_opt(&object.name_any()).await?;
            Ok((Outcome::Superseded, there.map(Observation::is)))
        }
        Err(error) => Err(error),
    }
}

/// Preconditions for the deletion of exactly this object at this version.
pub fn exactly(at: &At) -> DeleteParams {
    tenure_watch::exactly(Some(at.uid.clone()), Some(at.version.clone()))
}

/// Deletes exactly this object at exactly this version.
pub async fn delete<K: Kind>(api: &Api<K>, at: &At) -> Answer {
    match api.delete(&at.name, &exactly(at)).await {
        Ok(_) => Ok((Outcome::Done, Some(Observation::gone::<K>(at.clone())))),
        Err(kube::Error::Api(status)) if status.code == 404 => {
            Ok((Outcome::Done, Some(Observation::gone::<K>(at.clone()))))
        }
        Err(kube::Error::Api(status)) if status.code == 409 => superseded(api, at).await,
        Err(error) => Err(error),
    }
}

/// The object is another one by now, or gone.
async fn superseded<K: Kind>(api: &Api<K>, at: &At) -> Answer {
    let there = api.get_opt(&at.name).await?;
    let observed = there.map_or_else(|| Observation::gone::<K>(at.clone()), Observation::is);
    Ok((Outcome::Superseded, Some(observed)))
}

/// Deletes an object at exactly this version, so that no later change is lost; then leaves only these finalizers. An
/// object that is `deleting` is already in deletion.
pub(crate) async fn discard<K>(api: &Api<K>, at: &At, finalizers: &[String], deleting: bool) -> Answer
where
    K: Kind + Serialize,
{
    let mut at = at.clone();
    if !deleting {
        match api.delete(&at.name, &exactly(&at)).await {
            Ok(deleted) => match deleted.left() {
                // It still exists, because of our finalizer or another.
                Some(left) if left.meta().deletion_timestamp.is_some() && !left.finalizers().is_empty() => {
                    at.version = left.resource_version().unwrap_or_default();
                }
                _ => return Ok((Outcome::Done, Some(Observation::gone::<K>(at)))),
            },
            Err(kube::Error::Api(status)) if status.code == 404 => {
                return Ok((Outcome::Done, Some(Observation::gone::<K>(at))));
            }
            Err(kube::Error::Api(status)) if status.code == 409 => {
                return superseded(api, &at).await;
            }
            Err(error) => return Err(error),
        }
    }
    let stripped = finalize(api, &at, finalizers).await;
    settle(api, &at, stripped, Observation::gone::<K>).await
}

/// Sets an object's finalizers at the version that was read.
pub async fn finalize<K: Kind>(api: &Api<K>, at: &At, finalizers: &[String]) -> Result<K, kube::Error> {
    let patch = json!({"metadata": {"resourceVersion": at.version, "finalizers": finalizers}});
    api.patch(&at.name, &PatchParams::default(), &Patch::Merge(patch)).await
}

/// Lists all objects with these labels.
pub async fn every<K>(api: &Api<Read<K>>, labels: &str) -> Result<Every<K>, kube::Error>
where
    K: Clone + DeserializeOwned + std::fmt::Debug,
{
    tenure_watch::every(api, labels, PAGE).await
}

/// The same; fails if one of them cannot be read.
pub(crate) fn all_of<K>(every: Every<K>) -> Result<Vec<K>, kube::Error> {
    every.all()
}
