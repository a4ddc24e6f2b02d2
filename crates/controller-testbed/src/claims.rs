//! Claims for tests of the controller: made, waited for, and what is on record for them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use tenure_api::claims::{IPAMClaim, IPAMClaimSpec};
use tenure_claims::status::is_held;
use tenure_controller::{ClaimSettings, Settings};

use crate::{blocks, settings, until};

/// The name of the cluster's own network.
pub const CLUSTER: &str = "cluster";

pub fn claims(client: &Client) -> Api<IPAMClaim> {
    Api::namespaced(client.clone(), "default")
}

/// Short times, and the cluster's network opts in.
pub fn claiming(identity: &str) -> Settings {
    Settings {
        cluster_network: Some(CLUSTER.to_owned()),
        claims: ClaimSettings { empty_after: Duration::from_millis(500), cooling: Duration::from_secs(1) },
        ..settings(identity)
    }
}

/// A claim, as somebody makes it.
pub async fn claim(client: &Client, name: &str, network: &str) -> IPAMClaim {
    claim_with(client, name, network, None).await
}

/// A claim that wishes for addresses by its annotation.
pub async fn claim_with(client: &Client, name: &str, network: &str, ips: Option<&str>) -> IPAMClaim {
    let spec = IPAMClaimSpec { network: network.to_owned(), interface: "net1".to_owned() };
    let mut claim = IPAMClaim::new(name, spec);
    claim.metadata.annotations = ips.map(|ips| BTreeMap::from([("tenure/ips".to_owned(), ips.to_owned())]));
    claims(client).create(&PostParams::default(), &claim).await.unwrap()
}

/// The status that a claim came with from elsewhere.
pub async fn import(client: &Client, name: &str, ips: &[&str]) {
    let status = json!({"status": {"ips": ips, "conditions": [{
        "type": "IPsAllocated", "status": "True", "reason": "SuccessfulAllocation", "message": "from elsewhere",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]}});
    claims(client).patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
}

pub async fn delete_claim(client: &Client, name: &str) {
    claims(client).delete(name, &DeleteParams::default()).await.unwrap();
}

/// Waits until a claim has addresses, with the proof, and says which.
pub async fn given(client: &Client, name: &str) -> Vec<String> {
    until(&format!("addresses of {name}"), async || {
        let claim = claims(client).get(name).await.ok()?;
        is_held(&claim).then(|| claim.status.unwrap().ips)
    })
    .await
}

/// Waits until a claim says that it has none: reason and message.
pub async fn refused(client: &Client, name: &str) -> (String, String) {
    until(&format!("a refusal of {name}"), async || {
        let claim = claims(client).get(name).await.ok()?;
        let condition = claim.status.as_ref()?.condition("IPsAllocated")?.clone();
        (condition.status == "False" && !is_held(&claim)).then_some((condition.reason, condition.message))
    })
    .await
}

/// What floating blocks have on record and is not freed: address to claim. That no address is there twice.
pub async fn on_record(client: &Client) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for block in blocks(client).list(&ListParams::default()).await.unwrap() {
        let subnet = block.spec.to_subnet().unwrap();
        for (offset, record) in block.spec.claims.iter().filter(|(_, record)| record.freed.is_none()) {
            assert!(block.is_floating(), "{} is a node's", block.name_any());
            for cidr in [subnet.ipv4, subnet.ipv6].into_iter().flatten() {
                let address = cidr.nth(offset.parse().unwrap()).unwrap().to_string();
                let again = found.insert(address.clone(), record.uid.clone());
                assert_eq!(again, None, "{address} is on record twice");
            }
        }
    }
    found
}

/// That every claim has what its status says, on record in floating blocks, and nobody else has it; how many have some.
pub async fn check_claims(client: &Client) -> usize {
    let on_record = on_record(client).await;
    let mut seen = BTreeSet::new();
    let claims = claims(client).list(&ListParams::default()).await.unwrap();
    for claim in claims.iter().filter(|claim| is_held(claim)) {
        for ip in &claim.status.as_ref().unwrap().ips {
            let address = ip.split_once('/').unwrap().0.to_owned();
            assert_eq!(on_record.get(&address), claim.uid().as_ref(), "{} of {}", address, claim.name_any());
            assert!(seen.insert(address), "{ip} is given twice");
        }
    }
    assert_eq!(seen.len(), on_record.len(), "nothing is on record that nobody has");
    claims.iter().filter(|claim| is_held(claim)).count()
}

/// A pod that refers to a claim on the cluster's network, and says that it has these addresses.
pub async fn use_claim(client: &Client, pod: &str, claim: &str, addresses: Option<&[&str]>) {
    let status =
        addresses.map(|ips| json!([{"name": "cluster", "interface": "eth0", "ips": ips}]).to_string());
    let mut annotations = json!({"tenure/claim": claim});
    if let Some(status) = status {
        annotations["k8s.v1.cni.cncf.io/network-status"] = json!(status);
    }
    let pod = json!({
        "metadata": {"name": pod, "annotations": annotations},
        "spec": {"nodeName": "node1", "containers": [{"name": "c", "image": "i"}]},
    });
    super::have_node(client, "node1").await;
    let pods = super::ranges::pods(client);
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
}
