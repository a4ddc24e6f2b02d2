//! Somebody hostile with a namespace of their own: definitions that nobody can read, that ask for everybody's addresses or have
//! the name of the cluster's network; and claims that say that they have what others have. They stay to the end, and cost
//! nobody else anything.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::Duration;

use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tenure_api::claims::IPAMClaim;
use tenure_api::networks::NetworkAttachmentDefinition;

use crate::networks::Network;
use crate::oracle::Living;
use crate::place::ChaosBed;
use tenure_tests::chaos::objects::{Struck, ask};
use tenure_tests::claim_records::records;

/// Whose all of it is.
pub const NAMESPACE: &str = "hostile";
/// How many definitions there are.
pub const DEFINITIONS: usize = 6;
/// Long enough for a forged claim to be believed.
const BELIEVED: Duration = Duration::from_secs(2);

/// The specs of the definitions.
fn definitions() -> [(&'static str, Value); DEFINITIONS] {
    let config = |config: Value| json!({"config": config.to_string()});
    let wide = json!({"type": "whereabouts", "range": "10.0.0.0/8", "node_slice_size": "/22"});
    [
        ("without-spec", Value::Null),
        ("garbage", json!({"config": "{\"ipam\": {\"type\": [1,"})),
        ("wide", config(json!({"cniVersion": "1.0.0", "name": "wide", "type": "macvlan", "ipam": wide}))),
        (
            "clusters-name",
            config(json!({
                "cniVersion": "1.1.0", "name": Network::Routed.name(), "type": "tenure", "allowPersistentIPs": true,
            })),
        ),
        (
            "wrong-type",
            config(json!({
                "cniVersion": "1.1.0", "name": "wrong", "type": "tenure", "allowPersistentIPs": "yes",
                "ipam": {"type": "whereabouts", "range": 7},
            })),
        ),
        (
            "others-name",
            config(json!({
                "cniVersion": "1.0.0", "name": Network::Sliced.name(), "type": "macvlan", "allowPersistentIPs": [],
                "ipam": {"type": "whereabouts", "range": "10.98.0.0/16", "node_slice_size": "/31"},
            })),
        ),
    ]
}

/// Makes each definition when so many steps are done.
pub fn define(
    place: &ChaosBed<'_>,
    when: &[usize],
    (done, over): (&AtomicUsize, &AtomicBool),
    struck: &Struck,
) {
    let kind = ApiResource::erase::<NetworkAttachmentDefinition>(&());
    let api: Api<DynamicObject> = Api::namespaced_with(place.cluster.client.clone(), NAMESPACE, &kind);
    let mut all: Vec<_> = when.iter().copied().zip(definitions()).collect();
    all.sort_by_key(|(after, _)| *after);
    for (after, (name, spec)) in all {
        wait(after, done, over);
        let mut object = DynamicObject::new(name, &kind);
        if !spec.is_null() {
            object.data = json!({"spec": spec});
        }
        ask(place.cluster, &[409], async || api.create(&PostParams::default(), &object).await);
        struck.count("hostile definitions");
    }
}

/// Forges claims, each when so many steps are done; again, if the claim that was copied went before it was seen that the copy is
/// not believed.
pub fn forge(
    place: &ChaosBed<'_>,
    when: &[usize],
    (done, over): (&AtomicUsize, &AtomicBool),
    struck: &Struck,
) {
    let mut when = when.to_vec();
    when.sort_unstable();
    for (number, after) in when.into_iter().enumerate() {
        wait(after, done, over);
        for again in 0.. {
            let living = place.oracle.living();
            let with_claim: Vec<&Living> = living.iter().filter(|it| it.claim.is_some()).collect();
            let victim = with_claim.get((after + again) % with_claim.len().max(1));
            let stolen = victim.is_some_and(|it| steal(place, it, &format!("forged-{number}-{again}")));
            if stolen {
                struck.count("forged claims");
            }
            if stolen || over.load(Ordering::SeqCst) {
                break;
            }
            sleep(Duration::from_millis(100));
        }
    }
}

/// Copies a claim with all that is written on it, as if it were the copy's own; what is on record does not change. Whether the
/// claim was there to the end.
fn steal(place: &ChaosBed<'_>, victim: &Living, name: &str) -> bool {
    let Some((claim, uid)) = &victim.claim else { return false };
    let claims = place.claims();
    let found = ask(place.cluster, &[404], async || claims.get(claim).await);
    let Some(found) = found.filter(|found| found.uid().as_ref() == Some(uid)) else { return false };
    let forged: Api<IPAMClaim> = Api::namespaced(place.cluster.client.clone(), NAMESPACE);
    let object = json!({
        "apiVersion": "k8s.cni.cncf.io/v1alpha1", "kind": "IPAMClaim",
        "metadata": {"name": name, "annotations": found.annotations()}, "spec": found.spec,
    });
    let object: IPAMClaim = serde_json::from_value(object).unwrap();
    let made = ask(place.cluster, &[409], async || forged.create(&PostParams::default(), &object).await);
    // It is there already if the answer to an earlier attempt was lost.
    let made = made.or_else(|| ask(place.cluster, &[404], async || forged.get(name).await));
    let Some(made) = made else { return false };
    let own = made.uid().unwrap();
    let status = json!({"status": found.status}).to_string().replace(uid.as_str(), &own);
    let status: Value = serde_json::from_str(&status).unwrap();
    ask(place.cluster, &[404, 422], async || {
        forged.patch_status(name, &PatchParams::default(), &Patch::Merge(&status)).await
    });
    sleep(BELIEVED);
    let on_record = ask(place.cluster, &[], async || {
        records(&place.cluster.client).await.map_err(|error| kube::Error::Service(error.into()))
    });
    let still = ask(place.cluster, &[404], async || claims.get(claim).await);
    let lives = place.oracle.living().iter().any(|it| it.uid == victim.uid);
    let lasted = lives && still.is_some_and(|still| still.uid().as_ref() == Some(uid));
    if lasted {
        let stolen =
            |address| on_record.as_ref().and_then(|it| it.get(address)).filter(|it| it.contains(&own));
        for (address, record) in victim.addresses.iter().filter_map(|it| Some((it, stolen(it)?))) {
            place.oracle.blame(format!("{address} of {victim:?} is on record for a forged claim: {record}"));
        }
    }
    ask(place.cluster, &[404], async || forged.delete(name, &DeleteParams::default()).await);
    lasted
}

fn wait(after: usize, done: &AtomicUsize, over: &AtomicBool) {
    while done.load(Ordering::SeqCst) < after && !over.load(Ordering::SeqCst) {
        sleep(Duration::from_millis(10));
    }
}
