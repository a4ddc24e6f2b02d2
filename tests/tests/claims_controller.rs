//! Claims and the controller on the real kube-apiserver with its real garbage collector, and with the rights that
//! `deploy/controller/rbac.yaml` gives: what of claims is not about pods that run. Everything on a routed pool, on a range that
//! is not sliced and on one that is, with addresses of both families. Needs etcd, kube-apiserver and kube-controller-manager.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ListParams, Patch, PatchParams, PostParams, PropagationPolicy};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tenure_api::claims::{IPAMClaim, KUBEVIRT_FINALIZER};
use tenure_api::coil::AddressPool;
use tenure_controller::{Settings, Timing};
use tenure_controller_testbed as bed;
use tenure_testbed::control_plane::{ControlPlane, ControlPlaneOptions};
use tenure_testbed::wait::PATIENCE;
use tenure_tests::definitions::{define, established};

use bed::claims::{CLUSTER, claim, claim_with, claiming, claims, delete_claim, given, import, refused};
use bed::machines::{
    active_pods, attachment, claimed, define_machines, end_instance, in_the, instance, instances, machine,
    machines, unclaimed, webhooks,
};
use bed::ranges::{attachment_crd, define_attachments, told};
use bed::{Running, node, pools, until};

const DEPLOY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy");
const ACCOUNT: &str = "system:serviceaccount:kube-system:tenure-controller";
/// The definition of claims.
const CLAIMS: &str = "ipamclaims.k8s.cni.cncf.io";
/// One of each kind, by the names of the networks.
const NETWORKS: [&str; 3] = [CLUSTER, "shared", "sliced"];
/// Two claims are of different age after this: the API server counts seconds.
const A_SECOND: Duration = Duration::from_millis(1_050);

/// A control plane with our definitions and the controller's rights, and those of KubeVirt and of attachments. Not the
/// definition of claims.
async fn plane() -> Result<(ControlPlane, Client)> {
    let plane = ControlPlane::start(ControlPlaneOptions::default()).await?;
    let client = plane.client()?;
    let ours = tenure_api::crds().into_iter().filter(|crd| crd.name_any() != CLAIMS);
    define(&client, ours).await?;
    define_attachments(&client).await;
    define_machines(&client).await;
    established(&client, &attachment_crd().name_any()).await?;
    for plural in ["virtualmachines", "virtualmachineinstances"] {
        established(&client, &format!("{plural}.kubevirt.io")).await?;
    }
    plane.kubectl(&["apply", "-f", &format!("{DEPLOY}/controller/rbac.yaml")]).await?;
    Ok((plane, client))
}

/// With a network of each kind, and the definition of claims as the controller would bring it.
async fn with_networks() -> Result<(ControlPlane, Client)> {
    let (plane, client) = plane().await?;
    define(&client, [tenure_api::claims::crd()]).await?;
    for name in ["node1", "node2"] {
        node(&client, name).await;
    }
    pool(&client, 4, "10.2.0.0/24", "fd02::/120").await?;
    range(&client, "shared", "10.3.0.0/24", "fd03::/120", None).await;
    range(&client, "sliced", "10.4.0.0/24", "fd04::/120", Some("/26")).await;
    Ok((plane, client))
}

async fn pool(client: &Client, bits: i32, ipv4: &str, ipv6: &str) -> Result<()> {
    let spec = json!({"blockSizeBits": bits, "subnets": [{"ipv4": ipv4, "ipv6": ipv6}], "cooling": "1s"});
    let pool = AddressPool::new("default", serde_json::from_value(spec)?);
    pools(client).create(&PostParams::default(), &pool).await?;
    Ok(())
}

async fn range(client: &Client, name: &str, ipv4: &str, ipv6: &str, slices: Option<&str>) {
    let mut ipam = json!({"type": "whereabouts", "range": ipv4, "ipRanges": [{"range": ipv6}]});
    if let Some(size) = slices {
        ipam["node_slice_size"] = json!(size);
    }
    let config = json!({
        "cniVersion": "1.0.0", "name": name, "type": "macvlan", "master": "eth0", "allowPersistentIPs": true, "ipam": ipam,
    });
    attachment(client, name, &config.to_string()).await;
}

fn settings(identity: &str) -> Settings {
    let timing = Timing {
        duration: Duration::from_secs(8),
        renew_deadline: Duration::from_secs(6),
        retry: Duration::from_millis(300),
    };
    Settings { timing, tick: Duration::from_secs(1), ..claiming(identity) }
}

/// Starts a controller with the rights of its service account.
fn start(plane: &ControlPlane, identity: &str) -> Result<Running> {
    let groups = ["system:serviceaccounts", "system:serviceaccounts:kube-system"];
    Ok(bed::start_with(plane.client_as(ACCOUNT, &groups)?, settings(identity)))
}

/// Ends it; no right was missing, and no write was wrong. One that failed because the server was late was done later.
async fn stop(controller: Running) -> Result<()> {
    let text = controller.metrics.text()?;
    let failed =
        text.lines().filter_map(|line| line.split_once("outcome=\"failed\"")).map(|(write, _)| write);
    for write in failed {
        let done = text.contains(&format!("{write}outcome=\"done\""));
        ensure!(done, "a right is missing, or a write is wrong: {write}\n{text}");
    }
    controller.stop().await;
    Ok(())
}

/// The addresses that a claim is given, without their lengths.
async fn addresses(client: &Client, name: &str) -> Result<BTreeSet<IpAddr>> {
    let ips = given(client, name).await;
    let parse = |ip: &String| ip.split_once('/').context("a length")?.0.parse().context("an address");
    ips.iter().map(parse).collect()
}

/// One of each family.
fn one_of_each(addresses: &BTreeSet<IpAddr>) -> Result<(IpAddr, IpAddr)> {
    let [four, six] = addresses.iter().copied().collect::<Vec<_>>()[..] else {
        anyhow::bail!("{addresses:?}")
    };
    ensure!(four.is_ipv4() && six.is_ipv6(), "{addresses:?}");
    Ok((four, six))
}

/// Exactly these are on record, each for the claim that has it.
async fn on_record(client: &Client, names: &[String]) -> Result<()> {
    let mut expected = BTreeSet::new();
    for name in names {
        let uid = claims(client).get(name).await?.uid().context("a UID")?;
        expected.extend(addresses(client, name).await?.into_iter().map(|address| (address, uid.clone())));
    }
    let wrong = async || {
        let now = match tenure_tests::claim_records::records(client).await {
            Ok(now) => now,
            Err(error) => return Some(format!("{error:#}")),
        };
        let right = now.len() == expected.len()
            && expected
                .iter()
                .all(|(address, uid)| now.get(address).is_some_and(|it| it.contains(uid.as_str())));
        (!right).then(|| format!("{now:#?}\nand not {expected:#?}"))
    };
    let start = std::cell::RefCell::new(String::new());
    let found = tokio::time::timeout(PATIENCE, async {
        while let Some(words) = wrong().await {
            *start.borrow_mut() = words;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    found.await.map_err(|_| anyhow::anyhow!("on record: {}", start.borrow()))
}

#[tokio::test]
async fn a_claim_has_its_addresses_before_any_pod_asks_and_gives_them_back_after_it_is_gone() -> Result<()> {
    let (plane, client) = with_networks().await?;
    let controller = start(&plane, "a")?;
    let mut names = Vec::new();
    for (network, lengths) in NETWORKS.into_iter().zip([["/32", "/128"], ["/24", "/120"], ["/24", "/120"]]) {
        for number in 0..3 {
            let name = format!("{network}-{number}");
            claim(&client, &name, network).await;
            names.push(name.clone());
            let ips = given(&client, &name).await;
            ensure!(
                ips.len() == 2 && ips.iter().zip(lengths).all(|(ip, length)| ip.ends_with(length)),
                "{ips:?}"
            );
            one_of_each(&addresses(&client, &name).await?)?;
        }
    }
    on_record(&client, &names).await?;
    for name in std::mem::take(&mut names) {
        let finalizers = claims(&client).get(&name).await?.finalizers().to_vec();
        ensure!(finalizers.is_empty(), "{finalizers:?} would keep {name} when we are uninstalled");
        delete_claim(&client, &name).await;
    }
    on_record(&client, &[]).await?;
    stop(controller).await
}

/// OVN-Kubernetes takes both for good at its start, without a word.
#[tokio::test]
async fn of_two_claims_with_one_address_the_older_has_it_and_the_younger_says_so() -> Result<()> {
    let (plane, client) = with_networks().await?;
    let wishes =
        [["10.2.0.9/32", "fd02::9/128"], ["10.3.0.9/24", "fd03::9/120"], ["10.4.0.200/24", "fd04::c8/120"]];
    // Both came with a status: imported, or restored from a backup.
    for name in ["older", "younger"] {
        for (network, ips) in NETWORKS.into_iter().zip(wishes) {
            let name = format!("{name}-{network}");
            claim(&client, &name, network).await;
            import(&client, &name, &ips).await;
        }
        tokio::time::sleep(A_SECOND).await;
    }
    let controller = start(&plane, "a")?;
    for (network, wished) in NETWORKS.into_iter().zip(wishes) {
        let ips = given(&client, &format!("older-{network}")).await;
        ensure!(ips == wished, "{network}: {ips:?}");
        let younger = format!("younger-{network}");
        let (reason, message) = refused(&client, &younger).await;
        ensure!(
            reason == "IPAddressConflict" && message.contains(&format!("older-{network}")),
            "{reason}: {message}"
        );
        told(&client, "default", "IPAddressConflict", &younger).await;
    }
    on_record(&client, &NETWORKS.map(|network| format!("older-{network}"))).await?;
    for (network, wished) in NETWORKS.into_iter().zip(wishes) {
        delete_claim(&client, &format!("older-{network}")).await;
        let ips = given(&client, &format!("younger-{network}")).await;
        ensure!(ips == wished, "{network}: {ips:?}, as soon as they were free");
    }
    stop(controller).await
}

/// OVN-Kubernetes leaves the second one unreserved if the first one is taken.
#[tokio::test]
async fn a_claim_gets_addresses_of_both_families_or_none() -> Result<()> {
    let (plane, client) = with_networks().await?;
    let controller = start(&plane, "a")?;
    let mut names = Vec::new();
    for network in NETWORKS {
        let first = format!("first-{network}");
        claim(&client, &first, network).await;
        let (four, six) = one_of_each(&addresses(&client, &first).await?)?;
        let IpAddr::V6(six) = six else { anyhow::bail!("{six}") };
        // Routed addresses are pairs; of ranges any two go together.
        let free = IpAddr::from(std::net::Ipv6Addr::from_bits(six.to_bits() + 1));
        let both = format!("both-{network}");
        claim_with(&client, &both, network, Some(&format!("{four},{free}"))).await;
        let (reason, message) = refused(&client, &both).await;
        ensure!(["IPAddressConflict", "Invalid"].contains(&reason.as_str()), "{reason}: {message}");
        ensure!(message.contains(&four.to_string()), "{message}");
        ensure!(claims(&client).get(&both).await?.status.is_some_and(|status| status.ips.is_empty()));
        names.push(first);
    }
    on_record(&client, &names).await?;
    stop(controller).await
}

#[tokio::test]
async fn a_wished_address_is_refused_when_it_is_taken_or_not_of_the_network_and_never_replaced() -> Result<()>
{
    let (plane, client) = with_networks().await?;
    let controller = start(&plane, "a")?;
    let wishes = [["10.2.0.77", "fd02::4d"], ["10.3.0.77", "fd03::4d"], ["10.4.0.200", "fd04::c8"]];
    for (network, [four, six]) in NETWORKS.into_iter().zip(wishes) {
        claim_with(&client, &format!("has-{network}"), network, Some(&format!("{four},{six}"))).await;
        let has = addresses(&client, &format!("has-{network}")).await?;
        ensure!(has == BTreeSet::from([four.parse()?, six.parse()?]), "{network}: {has:?}");
        let late = format!("late-{network}");
        claim_with(&client, &late, network, Some(four)).await;
        let (reason, message) = refused(&client, &late).await;
        ensure!(reason == "IPAddressConflict" && message.contains(four), "{reason}: {message}");
        told(&client, "default", "IPAddressConflict", &late).await;
        let outside = format!("outside-{network}");
        claim_with(&client, &outside, network, Some("192.0.2.1")).await;
        let (reason, message) = refused(&client, &outside).await;
        ensure!(reason == "Invalid" && message.contains("192.0.2.1"), "{reason}: {message}");
    }
    on_record(&client, &NETWORKS.map(|network| format!("has-{network}"))).await?;
    stop(controller).await
}

/// A restore makes claims of the same names and addresses, with other UIDs.
#[tokio::test]
async fn claims_that_were_restored_from_a_backup_have_the_addresses_that_they_had() -> Result<()> {
    let (plane, client) = with_networks().await?;
    let controller = start(&plane, "a")?;
    for network in NETWORKS {
        for number in 0..3 {
            claim(&client, &format!("{network}-{number}"), network).await;
            given(&client, &format!("{network}-{number}")).await;
        }
    }
    let backup = claims(&client).list(&ListParams::default()).await?.items;
    for kept in &backup {
        delete_claim(&client, &kept.name_any()).await;
    }
    on_record(&client, &[]).await?;
    controller.stop().await;
    for kept in &backup {
        let name = kept.name_any();
        claim(&client, &name, &kept.spec.network).await;
        // With everything that was in it, our proof for the UID of before included.
        let status = Patch::Merge(json!({"status": kept.status}));
        claims(&client).patch_status(&name, &PatchParams::default(), &status).await?;
    }
    let controller = start(&plane, "b")?;
    for kept in &backup {
        let ips = given(&client, &kept.name_any()).await;
        let had = kept.status.as_ref().map(|status| status.ips.clone()).unwrap_or_default();
        ensure!(ips == had, "{}: {ips:?} and not {had:?}", kept.name_any());
    }
    on_record(&client, &backup.iter().map(ResourceExt::name_any).collect::<Vec<_>>()).await?;
    stop(controller).await
}

/// OVN-Kubernetes has its pool in memory, and so nothing to miss; what is on record could leak.
#[tokio::test]
async fn a_deletion_that_nobody_saw_is_found_at_the_next_start() -> Result<()> {
    let (plane, client) = with_networks().await?;
    let controller = start(&plane, "a")?;
    for network in NETWORKS {
        for name in ["stays", "goes", "comes-again"] {
            claim(&client, &format!("{name}-{network}"), network).await;
            given(&client, &format!("{name}-{network}")).await;
        }
    }
    controller.kill().await;
    let mut names = Vec::new();
    for network in NETWORKS {
        delete_claim(&client, &format!("goes-{network}")).await;
        // One of the same name is another one.
        let again = format!("comes-again-{network}");
        delete_claim(&client, &again).await;
        claim(&client, &again, network).await;
        claim(&client, &format!("new-{network}"), network).await;
        names.extend(["stays", "comes-again", "new"].map(|name| format!("{name}-{network}")));
    }
    let controller = start(&plane, "b")?;
    on_record(&client, &names).await?;
    stop(controller).await
}

#[tokio::test]
async fn a_network_without_a_free_address_says_so_and_serves_a_claim_as_soon_as_one_is_freed() -> Result<()> {
    let (plane, client) = plane().await?;
    let controller = start(&plane, "a")?;
    established(&client, CLAIMS).await?;
    node(&client, "node1").await;
    pool(&client, 0, "10.2.0.0/31", "fd02::/127").await?;
    range(&client, "shared", "10.3.0.0/30", "fd03::/126", None).await;
    // A slice for the node, and one for claims.
    range(&client, "sliced", "10.4.0.0/29", "fd04::/125", Some("/30")).await;
    for network in NETWORKS {
        let mut full = 0;
        let reason = loop {
            let name = format!("{network}-{full}");
            claim(&client, &name, network).await;
            let outcome = until(&format!("word of {name}"), async || {
                let status = claims(&client).get(&name).await.ok()?.status?;
                let told = status.condition("IPsAllocated")?.clone();
                Some((told.status == "True", told.reason))
            })
            .await;
            match outcome {
                (true, _) => full += 1,
                (false, reason) => break reason,
            }
            ensure!(full <= 4, "{network} never ends");
        };
        ensure!(full > 0, "{network} has no address at all: {reason}");
        ensure!(reason == "SubnetExhausted", "{network}: {reason}");
        told(&client, "default", "SubnetExhausted", &format!("{network}-{full}")).await;
        let had = addresses(&client, &format!("{network}-0")).await?;
        delete_claim(&client, &format!("{network}-0")).await;
        let now = addresses(&client, &format!("{network}-{full}")).await?;
        ensure!(now == had, "{network}: {now:?}, where only {had:?} were free");
    }
    stop(controller).await
}

/// KubeVirt's ipam-extensions is told apart by its webhook: its claims have no interface, and none are made beside them.
#[tokio::test]
async fn where_ipam_extensions_is_at_work_its_claims_get_addresses_and_none_are_made() -> Result<()> {
    let (plane, client) = with_networks().await?;
    let name = "kubevirt-ipam-controller-mutating-webhook-configuration";
    let service = json!({"service": {"name": "kubevirt-ipam-controller-webhook-service", "namespace": "kubevirt-ipam"}});
    // Without rules: nobody is there to answer it.
    let webhook = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration", "metadata": {"name": name},
        "webhooks": [{
            "name": "ipam-claims.k8s.cni.cncf.io", "failurePolicy": "Fail", "sideEffects": "None",
            "admissionReviewVersions": ["v1"], "clientConfig": service,
        }],
    });
    webhooks(&client).create(&PostParams::default(), &serde_json::from_value(webhook)?).await?;
    let controller = start(&plane, "a")?;
    let of: Vec<(&str, &str)> = vec![("red", "shared"), ("green", "sliced")];
    let vm = machine(&client, "vm", &of).await;
    let uid = vm.uid().context("a UID")?;
    for (network, definition) in &of {
        let theirs = json!({
            "apiVersion": "k8s.cni.cncf.io/v1alpha1", "kind": "IPAMClaim",
            "metadata": {
                "name": format!("vm.{network}"), "labels": {"kubevirt.io/vm": "vm"}, "finalizers": [KUBEVIRT_FINALIZER],
                "ownerReferences": [{
                    "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": "vm", "uid": uid,
                    "controller": true, "blockOwnerDeletion": true,
                }],
            },
            "spec": {"network": definition, "interface": ""},
        });
        claims(&client).create(&PostParams::default(), &serde_json::from_value(theirs)?).await?;
        one_of_each(&addresses(&client, &format!("vm.{network}")).await?)?;
    }
    machine(&client, "other", &of).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let all: Vec<String> =
        claims(&client).list(&ListParams::default()).await?.iter().map(ResourceExt::name_any).collect();
    ensure!(all == ["vm.green", "vm.red"], "{all:?}");
    // It is uninstalled: from now on ours are made.
    webhooks(&client).delete(name, &kube::api::DeleteParams::default()).await?;
    for (network, _) in &of {
        one_of_each(&addresses(&client, &format!("other.{network}")).await?)?;
    }
    stop(controller).await
}

/// The four ways in which a machine is deleted, with the real garbage collector: what it deletes before the machine in the
/// foreground, and after it in the background.
#[tokio::test]
async fn a_machines_claims_go_with_it_and_not_before_its_instance_in_the_foreground_and_in_the_background()
-> Result<()> {
    let (plane, client) = with_networks().await?;
    let controller = start(&plane, "a")?;
    let of = [("default", "pod"), ("red", "shared"), ("green", "sliced")];
    let ways = [
        ("runs-foreground", PropagationPolicy::Foreground, true),
        ("runs-background", PropagationPolicy::Background, true),
        ("stopped-foreground", PropagationPolicy::Foreground, false),
        ("stopped-background", PropagationPolicy::Background, false),
    ];
    for (name, _, runs) in &ways {
        let vm = machine(&client, name, &of).await;
        if *runs {
            instance(&client, name, Some(&vm), &of).await;
            active_pods(&client, name, &json!({"some-uid": "node1"})).await;
        }
        for (network, _) in of {
            one_of_each(&addresses(&client, &format!("{name}.{network}")).await?)?;
        }
    }
    for (name, policy, _) in &ways {
        machines(&client).delete(name, &in_the(policy.clone())).await?;
    }
    // The garbage collector has had its turn.
    tokio::time::sleep(Duration::from_secs(4)).await;
    for (name, _, runs) in &ways {
        for (network, _) in of {
            let claim = format!("{name}.{network}");
            if *runs {
                ensure!(claimed(&client, &claim).await.finalizers() == [KUBEVIRT_FINALIZER], "{claim}");
            } else {
                unclaimed(&client, &claim).await;
            }
        }
    }
    for (name, _, _) in ways.iter().filter(|(_, _, runs)| *runs) {
        active_pods(&client, name, &Value::Null).await;
        end_instance(&client, name).await;
    }
    for (name, _, _) in &ways {
        for (network, _) in of {
            unclaimed(&client, &format!("{name}.{network}")).await;
        }
        until(&format!("{name} to go"), async || {
            machines(&client).get_opt(name).await.ok()?.is_none().then_some(())
        })
        .await;
        ensure!(instances(&client).get_opt(name).await?.is_none());
    }
    on_record(&client, &[]).await?;
    stop(controller).await
}

/// OVN-Kubernetes, CNAO and others install the same definition; ours comes only where there is none.
#[tokio::test]
async fn the_definition_of_claims_is_brought_where_it_is_missing_and_else_left_as_it_is() -> Result<()> {
    let (plane, client) = plane().await?;
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let name = CLAIMS;
    ensure!(definitions.get_opt(name).await?.is_none());
    let controller = start(&plane, "a")?;
    until("the definition", async || definitions.get(name).await.ok()).await;
    controller.stop().await;
    // Somebody else's, with less in it.
    definitions.delete(name, &kube::api::DeleteParams::default()).await?;
    until("it to go", async || definitions.get_opt(name).await.ok()?.is_none().then_some(())).await;
    let mut theirs = tenure_api::claims::crd();
    theirs.metadata.annotations = Some([("example.com/of".to_owned(), "others".to_owned())].into());
    theirs.spec.versions[0].additional_printer_columns = None;
    definitions.create(&PostParams::default(), &theirs).await?;
    established(&client, name).await?;
    let before = definitions.get(name).await?;
    let controller = start(&plane, "b")?;
    pool(&client, 4, "10.2.0.0/24", "fd02::/120").await?;
    claim(&client, "one", CLUSTER).await;
    one_of_each(&addresses(&client, "one").await?)?;
    let after = definitions.get(name).await?;
    ensure!(
        after.spec == before.spec && after.metadata.annotations == before.metadata.annotations,
        "{after:?}"
    );
    stop(controller).await
}

/// The wish of somebody who writes to `ownerPod`, or to `status`, is not the truth.
#[tokio::test]
async fn what_others_write_into_a_claims_status_is_put_right() -> Result<()> {
    let (plane, client) = with_networks().await?;
    let controller = start(&plane, "a")?;
    for network in NETWORKS {
        let name = format!("one-{network}");
        let made: IPAMClaim = claim(&client, &name, network).await;
        let has = addresses(&client, &name).await?;
        let wrong = json!({"status": {"ips": ["192.0.2.7/32"], "ownerPod": {"name": "nobody"}}});
        claims(&client).patch_status(&name, &PatchParams::default(), &Patch::Merge(wrong)).await?;
        until(&format!("the truth about {name}"), async || {
            let status = claims(&client).get(&name).await.ok()?.status?;
            (!status.ips.iter().any(|ip| ip.starts_with("192.0.2.7"))).then_some(())
        })
        .await;
        ensure!(
            addresses(&client, &name).await? == has && claims(&client).get(&name).await?.uid() == made.uid()
        );
    }
    stop(controller).await
}
