//! Versions that are too old to watch. Separate from the others: the embedded server must be configured to forget quickly.

use serde_json::json;

use super::super::objects::{lease, leases};
use super::super::{Outcome, Recorder};
use super::scenarios;

scenarios![expiry:
    a_watch_from_too_long_ago_is_expired,
];

/// The real server starts with an empty event cache, so the first version is always too old; the embedded one has forgotten it
/// after a few writes.
async fn a_watch_from_too_long_ago_is_expired(r: &mut Recorder) -> Outcome {
    let all = leases(&r.namespace().await?);
    let mut newest = r.post(&all, &lease("a", "0")).await?;
    for holder in 1..20 {
        newest =
            r.merge(&format!("{all}/a"), &json!({"spec": {"holderIdentity": holder.to_string()}})).await?;
    }
    let mut watch = r.watch(&format!("{all}?resourceVersion=1&timeoutSeconds=2")).await?;
    r.rest(&mut watch).await?;
    let mut watch =
        r.watch(&format!("{all}?resourceVersion=1&timeoutSeconds=2&allowWatchBookmarks=true")).await?;
    r.rest(&mut watch).await?;
    // What a client must do then: list again, and continue from there.
    let list = r.get(&all).await?;
    let mut watch = r.watch(&format!("{all}?resourceVersion={}", list.version()?)).await?;
    r.delete_with(&format!("{all}/a"), &json!({"preconditions": {"uid": newest.uid()?}})).await?;
    r.events(&mut watch, 1).await?;
    Ok(())
}
