//! The roles of `deploy/optional/gcp`: exactly the permissions of the calls that the programs make.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;
use tenure_cloud::gcp::{Endpoints, Gcp, Metadata, TokenSource, Tokens};
use tenure_cloud::{Action, AliasRange, Cloud, InterfaceId, Update};
use tenure_handles::SystemClock;
use tenure_testbed::compute::{Call, Logged, PROJECT};

use super::bed::{Bed, REGION, ZONE};

fn permissions(role: &str) -> BTreeSet<String> {
    let role: Value = serde_saphyr::from_str(role).unwrap();
    let all = role["includedPermissions"].as_array().unwrap().iter();
    all.map(|it| it.as_str().unwrap().to_owned()).collect()
}

/// What Google's documentation says that a call needs.
fn needs(logged: &Logged) -> Vec<String> {
    let operations = if logged.path.contains("/zones/") { "zoneOperations" } else { "regionOperations" };
    let all: &[&str] = match logged.call {
        Call::GetInstance => &["compute.instances.get"],
        Call::ListInstances => &["compute.instances.list"],
        Call::UpdateInterface => &["compute.instances.updateNetworkInterface", "compute.subnetworks.use"],
        Call::GetOperation => return vec![format!("compute.{operations}.get")],
        Call::ListOperations => return vec![format!("compute.{operations}.list")],
        Call::GetSubnet => &["compute.subnetworks.get"],
        Call::PatchSubnet => &["compute.subnetworks.update"],
        Call::GetInternalRange => &["networkconnectivity.internalRanges.get"],
        Call::CreateInternalRange => &["networkconnectivity.internalRanges.create"],
        Call::GetReservation => &["networkconnectivity.operations.get"],
        Call::Metadata => &[],
        other => panic!("{other:?} is in no role"),
    };
    all.iter().map(|it| (*it).to_owned()).collect()
}

fn used(bed: &Bed) -> BTreeSet<String> {
    bed.cloud.log().iter().flat_map(needs).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_provisioner_s_role_has_what_it_uses_and_no_more() {
    let bed = Bed::new().await;
    bed.succeed(&[]).await;
    bed.succeed(&["--grow"]).await;
    let role = include_str!("../../../../deploy/optional/gcp/provisioner-role.yaml");
    assert_eq!(permissions(role), used(&bed));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_controller_s_role_has_what_it_uses_and_no_more() {
    let bed = Bed::new().await;
    bed.cloud.add_secondary_range(REGION, "nodes", "live", "10.111.0.0/16").unwrap();
    let endpoints = Endpoints { compute: bed.cloud.compute(), connectivity: bed.cloud.connectivity() };
    let tokens = Tokens::new(TokenSource::Metadata(Metadata::at(&bed.metadata)), Arc::new(SystemClock));
    let gcp = Gcp::new(PROJECT, endpoints, tokens).unwrap();
    let interface = InterfaceId::first(ZONE, "gke-a");
    let range = AliasRange { cidr: "10.111.0.1/32".parse().unwrap(), range: "live".to_owned() };
    let observed = gcp.observe(&interface).await.unwrap();
    let update = Update {
        interface: interface.clone(),
        aliases: BTreeSet::from([range.clone()]),
        added: BTreeSet::from([range.clone()]),
        removed: BTreeSet::new(),
        version: observed.version,
        request: "8f1a1c56-6b0c-4a30-9a4f-3d3c7a3f0b51".to_owned(),
    };
    let ticket = gcp.apply(&update).await.unwrap();
    // Every request that an actor can ask for; another kind would not compile.
    for action in [
        Action::Unfinished,
        Action::Observe,
        Action::Apply(update.clone()),
        Action::Poll(ticket.clone()),
        Action::Owner(range, None),
    ] {
        match action {
            Action::Unfinished => _ = gcp.unfinished(&interface).await.unwrap(),
            Action::Observe => _ = gcp.observe(&interface).await.unwrap(),
            Action::Apply(update) => assert_eq!(gcp.apply(&update).await.unwrap(), ticket),
            Action::Poll(ticket) => _ = gcp.poll(&interface, &ticket).await.unwrap(),
            Action::Owner(range, page) => _ = gcp.owner(REGION, &range, page.as_deref()).await.unwrap(),
        }
    }
    let role = include_str!("../../../../deploy/optional/gcp/controller-role.yaml");
    assert_eq!(permissions(role), used(&bed));
}
