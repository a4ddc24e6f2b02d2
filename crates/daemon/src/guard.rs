//! Access control for pages that are not public: the API server must know and allow the caller.
//!
//! As in kubelets, a request carries a token, a `TokenReview` says whose it is, and a `SubjectAccessReview`
//! whether the owner has the right. Two things differ, because pages are served without TLS and through the
//! API server's proxy, which removes the header `Authorization`:
//!
//! - The token comes in a header of its own, [`TOKEN`].
//! - The token must be issued for this program: its audience is the guard's. A token for the API server is
//!   refused, so nobody has a reason to send one; and an intercepted one is valid only for these pages, and
//!   only for minutes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex as StdMutex, PoisonError};
use std::time::Duration;

use http::StatusCode;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::api::PostParams;
use kube::{Api, Client};
use tenure_handles::Clock;
use tokio::sync::{Mutex, Semaphore};
use tokio::time::{Interval, timeout};

use crate::turns::paced;

/// The header of the token.
pub const TOKEN: &str = "tenure-token";
/// How long an admission is cached.
const REMEMBERED: Duration = Duration::from_secs(10);
/// How many are cached.
const MOST: usize = 64;
/// How many requests may wait for the API server; more are told to try again.
const MOST_WAITING: usize = 16;
/// How long the API server may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// The right that a caller needs, in the terms of roles: `get` of this.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Right {
    /// The group.
    pub group: &'static str,
    /// The resource.
    pub resource: &'static str,
    /// The subresource.
    pub subresource: &'static str,
    /// The object's name.
    pub name: String,
}

/// Why a page is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denied {
    /// The answer's status.
    pub status: StatusCode,
    /// What was wrong, and what would be accepted.
    pub message: String,
}

/// Asks the API server who may read. Cheap to clone.
#[derive(Clone)]
pub struct Guard {
    inner: Arc<Inner>,
}

struct Inner {
    client: Client,
    clock: Arc<dyn Clock>,
    audience: String,
    right: Right,
    /// Admitted tokens, and until when they need no new review, by the program's running time.
    admitted: StdMutex<BTreeMap<String, Duration>>,
    waiting: Semaphore,
    /// Limits how often the API server is asked, whoever calls; reviews run one at a time.
    pace: Mutex<Option<Interval>>,
}

impl std::fmt::Debug for Guard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Guard").field("audience", &self.inner.audience).finish_non_exhaustive()
    }
}

impl Guard {
    /// Admits callers with a token for this audience and the right `right`.
    pub fn new(client: Client, clock: Arc<dyn Clock>, audience: String, right: Right) -> Self {
        let (admitted, waiting, pace) = (StdMutex::default(), Semaphore::new(MOST_WAITING), Mutex::default());
        Self { inner: Arc::new(Inner { client, clock, audience, right, admitted, waiting, pace }) }
    }

    /// Whether the token's owner may read.
    pub async fn admit(&self, token: Option<&str>) -> Result<(), Denied> {
        let Inner { audience, .. } = &*self.inner;
        let denied = |status, message: String| Err(Denied { status, message });
        let Some(token) = token.filter(|token| !token.is_empty()) else {
            let message =
                format!("accepted is a token with the audience \"{audience}\" in the header {TOKEN}");
            return denied(StatusCode::UNAUTHORIZED, message);
        };
        if self.remembers(token) {
            return Ok(());
        }
        let Ok(_place) = self.inner.waiting.try_acquire() else {
            return denied(
                StatusCode::TOO_MANY_REQUESTS,
                "too many requests at once; try again later".to_owned(),
            );
        };
        let mut pace = self.inner.pace.lock().await;
        pace.get_or_insert_with(paced).tick().await;
        // An earlier caller in the queue may have asked for the same token.
        if self.remembers(token) {
            return Ok(());
        }
        match timeout(PATIENCE, self.review(token)).await {
            Ok(Ok(())) => {
                self.remember(token);
                Ok(())
            }
            Ok(Err(denied)) => Err(denied),
            Err(_) => {
                let message = format!("the API server has not answered for {} s", PATIENCE.as_secs());
                denied(StatusCode::SERVICE_UNAVAILABLE, message)
            }
        }
    }

    async fn review(&self, token: &str) -> Result<(), Denied> {
        let Inner { client, audience, right, .. } = &*self.inner;
        let unknown = |act: &str, error: kube::Error| Denied {
            status: StatusCode::SERVICE_UNAVAILABLE,
            message: format!("{act}: {error}"),
        };
        let asked = TokenReview {
            spec: TokenReviewSpec { audiences: Some(vec![audience.clone()]), token: Some(token.to_owned()) },
            ..TokenReview::default()
        };
        let reviewed = Api::all(client.clone()).create(&PostParams::default(), &asked).await;
        let reviewed = reviewed.map_err(|error| unknown("asking whose the token is", error))?;
        let status = reviewed.status.unwrap_or_default();
        // A server that knows no audiences names none, and then the token may be for anybody.
        let for_us = status.audiences.iter().flatten().any(|said| said == audience);
        let user = status.user.filter(|_| status.authenticated == Some(true) && for_us);
        let Some(user) = user else {
            let message = format!("the token is not valid; accepted is one with the audience \"{audience}\"");
            return Err(Denied { status: StatusCode::UNAUTHORIZED, message });
        };
        let name = user.username.clone().unwrap_or_default();
        let asked = SubjectAccessReview { spec: may(right, user), ..SubjectAccessReview::default() };
        let reviewed = Api::all(client.clone()).create(&PostParams::default(), &asked).await;
        let reviewed = reviewed.map_err(|error| unknown("asking what the token's owner may do", error))?;
        if reviewed.status.is_some_and(|status| status.allowed) {
            return Ok(());
        }
        let Right { group, resource, subresource, name: object } = right;
        let message = format!(
            "\"{name}\" may not get {resource}/{subresource} of the group {group}, name \"{object}\"; a role can allow it"
        );
        Err(Denied { status: StatusCode::FORBIDDEN, message })
    }

    fn remembers(&self, token: &str) -> bool {
        let admitted = self.inner.admitted.lock().unwrap_or_else(PoisonError::into_inner);
        admitted.get(token).is_some_and(|until| self.inner.clock.elapsed() < *until)
    }

    fn remember(&self, token: &str) {
        let now = self.inner.clock.elapsed();
        let mut admitted = self.inner.admitted.lock().unwrap_or_else(PoisonError::into_inner);
        admitted.retain(|_, until| now < *until);
        if admitted.len() < MOST {
            admitted.insert(token.to_owned(), now + REMEMBERED);
        }
    }
}

fn may(right: &Right, user: UserInfo) -> SubjectAccessReviewSpec {
    SubjectAccessReviewSpec {
        user: user.username,
        uid: user.uid,
        groups: user.groups,
        extra: user.extra,
        resource_attributes: Some(ResourceAttributes {
            verb: Some("get".to_owned()),
            group: Some(right.group.to_owned()),
            resource: Some(right.resource.to_owned()),
            subresource: Some(right.subresource.to_owned()),
            name: Some(right.name.clone()),
            ..ResourceAttributes::default()
        }),
        ..SubjectAccessReviewSpec::default()
    }
}

#[cfg(test)]
mod tests;
