//! `tenure provision gcp`, the program itself, against the test bed's cloud and the embedded API: fresh, repeated, killed at every
//! request, refused, grown and removed.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says what is wrong by failing")]

mod bed;
mod gate;
mod roles;

use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tenure_api::cloud::IPLedger;
use tenure_testbed::compute::{Call, Fault, Harm};

use bed::{Bed, REGION, There, ended};
use gate::{Gate, Stop};

fn map(pairs: &[(&str, &str)]) -> std::collections::BTreeMap<String, String> {
    pairs.iter().map(|(name, range)| ((*name).to_owned(), (*range).to_owned())).collect()
}

/// What a first run makes.
fn one_range() -> There {
    There {
        reserved: map(&[("tenure-test-cluster-live", "10.1.0.0/16")]),
        ranges: map(&[("live", "10.1.0.0/16")]),
        pool: Some(json!({
            "cidr": "10.1.0.0/16", "secondaryRangeName": "live",
            "subnet": "projects/test-project/regions/europe-west4/subnetworks/nodes",
        })),
    }
}

/// What there is after growing once.
fn two_ranges() -> There {
    let mut there = one_range();
    there.reserved.insert("tenure-test-cluster-live-1".to_owned(), "10.2.0.0/16".to_owned());
    there.ranges.insert("live-1".to_owned(), "10.2.0.0/16".to_owned());
    there.pool.as_mut().unwrap()["ranges"] = json!([{"cidr": "10.2.0.0/16", "secondaryRangeName": "live-1"}]);
    there
}

fn writes(bed: &Bed) -> usize {
    [Call::CreateInternalRange, Call::PatchSubnet, Call::DeleteInternalRange]
        .map(|call| bed.cloud.accepted(call))
        .iter()
        .sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fresh_run_makes_everything_and_a_repeated_one_changes_nothing() {
    let bed = Bed::new().await;
    let first = bed.succeed(&[]).await;
    assert_eq!(
        first.text,
        "\
STATE   STEP      OBJECT                                    ADDRESSES
done    reserve   internal range tenure-test-cluster-live   10.1.0.0/16
done    add       secondary range live                      10.1.0.0/16
done    create    IPPool ippool-nodes                       10.1.0.0/16
"
    );
    for said in ["subnet nodes", "reserve internal range", "add secondary range", "create IPPool"] {
        assert!(first.notes.contains(said), "{}", first.notes);
    }
    assert_eq!(bed.there().await, one_range());
    let (before, version) = (writes(&bed), bed.pool().await.resource_version());
    let again = bed.succeed(&["-o", "json"]).await;
    let said: Value = serde_json::from_str(&again.text).unwrap();
    assert_eq!((&said["region"], &said["cluster"]), (&json!(REGION), &json!("test-cluster")));
    assert!(said["steps"].as_array().unwrap().iter().all(|step| step["done"] == true), "{said}");
    assert_eq!((writes(&bed), bed.pool().await.resource_version()), (before, version));
    assert_eq!(bed.there().await, one_range());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dry_run_prints_the_plan_and_changes_nothing() {
    let bed = Bed::new().await;
    let dry = bed.succeed(&["--dry-run"]).await;
    assert_eq!(
        dry.text,
        "\
STATE   STEP      OBJECT                                    ADDRESSES
to do   reserve   internal range tenure-test-cluster-live   a /16 of 10.0.0.0/8
to do   add       secondary range live                      a /16 of 10.0.0.0/8
to do   create    IPPool ippool-nodes                       (as above)
"
    );
    for arguments in [
        vec!["--dry-run", "-o", "json"],
        vec!["--dry-run", "--ranges", "3"],
        vec!["--dry-run", "--remove"],
        vec!["--dry-run", "--static", "--cidr", "10.0.0.128/25"],
    ] {
        bed.succeed(&arguments).await;
    }
    assert_eq!(bed.there().await, There::default());
    assert_eq!(writes(&bed), 0);
    bed.succeed(&[]).await;
    bed.succeed(&["--dry-run", "--remove"]).await;
    bed.succeed(&["--dry-run", "--grow"]).await;
    assert_eq!(bed.there().await, one_range());
}

/// Runs the command and kills it when a request was performed and before its answer is there, for each request that there is. The same
/// command then finishes. (Killed before a request, the cloud is as it was after the one before.)
async fn killed_at_every_request(setup: Option<&[&str]>, arguments: &[&str], expected: &There) {
    for number in 1.. {
        let bed = Bed::new().await;
        if let Some(setup) = setup {
            bed.succeed(setup).await;
        }
        let mut gate = Gate::new(Stop::After(number));
        let mut child = bed.start(Some(&mut gate), arguments).await;
        let killed = tokio::select! {
            () = gate.stopped() => {
                child.kill().await.unwrap();
                true
            }
            status = child.wait() => {
                assert!(status.unwrap().success(), "{:?}", ended(child).await);
                false
            }
        };
        bed.succeed(arguments).await;
        assert_eq!(bed.there().await, *expected, "killed at the last of {:?}", gate.requests());
        if !killed {
            assert!(number > 15, "it was killed {number} times only");
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_at_any_request_the_next_run_makes_the_same() {
    killed_at_every_request(None, &[], &one_range()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_at_any_request_growing_adds_one_range_and_not_two() {
    killed_at_every_request(Some(&[]), &["--ranges", "2"], &two_ranges()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_at_any_request_removing_leaves_nothing() {
    killed_at_every_request(Some(&["--ranges", "2"]), &["--remove"], &There::default()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_at_once_make_one_pool() {
    let bed = Bed::new().await;
    let (one, other) = tokio::join!(bed.run(&[]), bed.run(&[]));
    assert_eq!((one.code, other.code), (0, 0), "{one:?} {other:?}");
    assert_eq!(bed.there().await, one_range());
}

/// Defect 10 of the prototype: it ignores that the reservation failed, and patches the subnet with an empty range.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reservation_that_fails_leaves_the_subnet_alone() {
    for (harm, part) in [
        (
            Fault::refused(
                Call::CreateInternalRange,
                403,
                "quotaExceeded",
                "Quota 'INTERNAL_RANGES' exceeded.",
            ),
            "page \"Quotas\"",
        ),
        (
            Fault::refused(Call::CreateInternalRange, 403, "forbidden", "Permission denied"),
            "networkconnectivity.internalRanges.create",
        ),
        (
            Fault::refused(
                Call::CreateInternalRange,
                403,
                "accessNotConfigured",
                "Network Connectivity API has not been used in project 1 before or it is disabled.",
            ),
            "gcloud services enable networkconnectivity.googleapis.com",
        ),
        (
            Fault::once(
                Call::CreateInternalRange,
                Harm::FailedOperation { code: "9".to_owned(), message: "no space left".to_owned() },
            ),
            "no space left",
        ),
    ] {
        let bed = Bed::new().await;
        bed.cloud.harm(harm);
        let failed = bed.run(&[]).await;
        assert_eq!(failed.code, 2, "{failed:?}");
        assert!(failed.notes.contains(part), "{}", failed.notes);
        assert_eq!(bed.there().await, There::default());
        assert_eq!(bed.cloud.accepted(Call::PatchSubnet), 0);
        bed.succeed(&[]).await;
        assert_eq!(bed.there().await, one_range());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subnet_that_somebody_else_changes_meanwhile_is_read_again() {
    let bed = std::sync::Arc::new(Bed::new().await);
    let mut gate = Gate::new(Stop::Never);
    let (other, mut once) = (bed.clone(), false);
    gate.before_each(move |method, path| {
        if method == "PATCH" && path.contains("/subnetworks/") && !once {
            once = true;
            other.cloud.add_secondary_range(REGION, "nodes", "theirs", "10.99.0.0/16").unwrap();
        }
    });
    let done = ended(bed.start(Some(&mut gate), &[]).await).await;
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.notes.contains("412 Invalid fingerprint"), "{}", done.notes);
    let mut expected = one_range();
    expected.ranges.insert("theirs".to_owned(), "10.99.0.0/16".to_owned());
    assert_eq!(bed.there().await, expected, "neither range is lost");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trouble_that_passes_is_waited_for() {
    let bed = Bed::new().await;
    for fault in [
        Fault::refused(Call::GetSubnet, 503, "backendError", "try again"),
        Fault::once(Call::GetInternalRange, Harm::LostRequest),
        Fault::once(Call::CreateInternalRange, Harm::LostAnswer),
        Fault::refused(Call::GetReservation, 500, "backendError", "try again"),
        Fault::refused(Call::PatchSubnet, 400, "resourceNotReady", "The resource is not ready"),
        Fault::refused(Call::PatchSubnet, 403, "rateLimitExceeded", "Rate Limit Exceeded"),
        Fault::once(Call::PatchSubnet, Harm::LostAnswer),
        Fault::refused(Call::GetOperation, 503, "backendError", "try again"),
    ] {
        bed.cloud.harm(fault);
    }
    bed.succeed(&[]).await;
    assert_eq!(bed.there().await, one_range());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn growing_appends_a_range_each_time_and_ranges_only_what_is_missing() {
    let bed = Bed::new().await;
    bed.succeed(&[]).await;
    bed.succeed(&["--grow"]).await;
    assert_eq!(bed.there().await, two_ranges());
    bed.succeed(&["--ranges", "2"]).await;
    bed.succeed(&["--ranges", "1"]).await;
    bed.succeed(&[]).await;
    assert_eq!(bed.there().await, two_ranges(), "nothing is removed unless asked for");
    bed.succeed(&["--grow", "--cidr", "10.77.0.0/20"]).await;
    let pool = bed.pool().await;
    assert_eq!(pool.spec.ranges.len(), 2);
    assert_eq!(pool.spec.ranges[1].cidr, "10.77.0.0/20");
    assert_eq!(bed.cloud.internal_ranges()["tenure-test-cluster-live-2"], "10.77.0.0/20");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_static_pool_is_a_part_of_the_primary_range_and_needs_no_provisioning() {
    let bed = Bed::new().await;
    bed.succeed(&["--static", "--cidr", "10.0.0.128/25"]).await;
    bed.succeed(&["--static", "--cidr", "10.0.0.128/25"]).await;
    let subnet = "projects/test-project/regions/europe-west4/subnetworks/nodes";
    let pool = json!({"cidr": "10.0.0.128/25", "secondaryRangeName": "", "subnet": subnet});
    assert_eq!(bed.there().await, There { pool: Some(pool), ..There::default() });
    assert_eq!(writes(&bed), 0);
    for (arguments, part) in [
        (vec!["--static", "--cidr", "10.0.1.0/25"], "accepted is a part of 10.0.0.0/24"),
        (vec!["--static", "--cidr", "10.0.0.0/26"], "give --grow to append it"),
        (vec!["--static", "--cidr", "10.0.0.1/26"], "--cidr is \"10.0.0.1/26\""),
    ] {
        let refused = bed.run(&arguments).await;
        assert!(refused.code == 2 && refused.notes.contains(part), "{refused:?}");
    }
    bed.succeed(&["--static", "--cidr", "10.0.0.0/26", "--grow"]).await;
    assert_eq!(bed.pool().await.spec.ranges[0].cidr, "10.0.0.0/26");
    bed.succeed(&["--remove"]).await;
    assert_eq!(bed.there().await, There::default());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_with_addresses_in_use_is_not_removed() {
    let bed = Bed::new().await;
    bed.succeed(&[]).await;
    let ledger: IPLedger = serde_json::from_value(json!({
        "apiVersion": "ipam.gcp-cni.cast.ai/v1alpha1", "kind": "IPLedger", "metadata": {"name": "ippool-nodes-0"},
        "pool": "ippool-nodes", "index": 0, "cidr": "10.1.0.0/24",
        "records": {"5": {"node": "node1", "grant": "g"}},
    }))
    .unwrap();
    let ledgers: Api<IPLedger> = Api::all(bed.client.clone());
    ledgers.create(&PostParams::default(), &ledger).await.unwrap();
    let refused = bed.run(&["--remove"]).await;
    assert!(refused.code == 2 && refused.notes.contains("has 1 addresses in use"), "{refused:?}");
    ledgers.delete("ippool-nodes-0", &DeleteParams::default()).await.unwrap();
    let status = json!({"status": {"capacity": 65534, "allocated": 7, "available": 65527}});
    bed.pools().patch_status("ippool-nodes", &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    let refused = bed.run(&["--remove"]).await;
    assert!(refused.code == 2 && refused.notes.contains("has 7 addresses in use"), "{refused:?}");
    assert_eq!(bed.there().await, one_range());
    let free = json!({"status": {"allocated": 0}});
    bed.pools().patch_status("ippool-nodes", &PatchParams::default(), &Patch::Merge(&free)).await.unwrap();
    // The cloud has the last word: a machine still has an alias of the range.
    bed.cloud.set_aliases(bed::ZONE, "gke-a", &[("10.1.0.5/32", "live")]).unwrap();
    let refused = bed.run(&["--remove"]).await;
    assert!(refused.code == 2 && refused.notes.contains("machines still have aliases"), "{refused:?}");
    bed.cloud.set_aliases(bed::ZONE, "gke-a", &[]).unwrap();
    bed.succeed(&["--remove"]).await;
    assert_eq!(bed.there().await, There::default());
    assert_eq!(bed.succeed(&["--remove"]).await.text, "There is nothing to do.\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_range_made_by_hand_is_used_and_never_removed() {
    let bed = Bed::new().await;
    bed.cloud.add_secondary_range(REGION, "nodes", "live", "10.111.0.0/16").unwrap();
    bed.succeed(&[]).await;
    assert_eq!(bed.pool().await.spec.cidr, "10.111.0.0/16");
    assert_eq!(writes(&bed), 0);
    bed.succeed(&["--remove"]).await;
    assert_eq!(bed.there().await, There { ranges: map(&[("live", "10.111.0.0/16")]), ..There::default() });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_range_of_the_cluster_s_own_pods_makes_no_pool() {
    let bed = Bed::new().await;
    let node = json!({"metadata": {"name": "gke-a"}, "spec": {"podCIDR": "10.8.3.0/24", "podCIDRs": ["10.8.3.0/24"]}});
    let node = serde_json::from_value(node).unwrap();
    Api::<Node>::all(bed.client.clone()).create(&PostParams::default(), &node).await.unwrap();
    let refused = bed.run(&["--range-name", "pods"]).await;
    assert!(refused.code == 2 && refused.notes.contains("is the cluster's own"), "{refused:?}");
    assert_eq!(bed.there().await, There::default());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_clusters_in_one_subnet_never_share_a_range() {
    let bed = Bed::new().await;
    bed.succeed(&[]).await;
    bed.pools().delete("ippool-nodes", &DeleteParams::default()).await.unwrap();
    let refused = bed.run(&["--cluster", "another"]).await;
    assert!(refused.code == 2 && refused.notes.contains("it may be another cluster's"), "{refused:?}");
    bed.succeed(&["--cluster", "another", "--range-name", "live-of-another"]).await;
    assert_eq!(bed.pool().await.spec.cidr, "10.2.0.0/16");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flags_say_where_without_a_machine_and_errors_say_what_to_do() {
    let bed = Bed::new().await;
    let path = "projects/test-project/regions/europe-west4/subnetworks/nodes";
    bed.succeed(&["--subnet", path, "--cluster", "c", "--pool", "other"]).await;
    assert_eq!(bed.pools().get("other").await.unwrap().spec.subnet, path);
    assert_eq!(bed.cloud.accepted(Call::GetInstance), 0);
    let refused = bed.run(&["--subnet", "none"]).await;
    assert!(
        refused.code == 2 && refused.notes.contains("check --project, --region and --subnet"),
        "{refused:?}"
    );
    let refused = bed.run(&["--zone", "europe-west4-a", "--instance", "none"]).await;
    assert!(refused.code == 2 && refused.notes.contains("'projects/test-project/zones/"), "{refused:?}");
    bed.cloud.harm(Fault::refused(Call::GetInstance, 403, "forbidden", "no"));
    let refused = bed.run(&[]).await;
    assert!(refused.code == 2 && refused.notes.contains("compute.instances.get"), "{refused:?}");
    assert!(!refused.notes.contains("ya29"), "{refused:?}");
}

/// The manifests of `deploy/optional`.
fn manifests(text: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(text).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_job_of_deploy_makes_the_pool_with_no_more_than_its_rights() {
    let documents = manifests(include_str!("../../../../deploy/optional/gcp-provision.yaml"));
    let of = |kind: &str| documents.iter().find(|it| it["kind"] == kind).unwrap();
    let arguments = &of("Job")["spec"]["template"]["spec"]["containers"][0]["args"];
    let arguments: Vec<String> = arguments
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it.as_str().unwrap().replace("$(NODE_NAME)", "gke-a"))
        .collect();
    assert_eq!(arguments[..2], ["provision", "gcp"]);
    let arguments: Vec<&str> = arguments[2..].iter().map(String::as_str).collect();
    let bed = Bed::new().await;
    let mut gate = Gate::new(Stop::Never);
    let done = ended(bed.start(Some(&mut gate), &arguments).await).await;
    assert_eq!((done.code, bed.there().await), (0, one_range()), "{done:?}");
    let rule = &of("ClusterRole")["rules"][0];
    assert_eq!(
        (&rule["apiGroups"], &rule["resources"]),
        (&json!(["ipam.gcp-cni.cast.ai"]), &json!(["ippools"]))
    );
    let verbs: Vec<&str> = rule["verbs"].as_array().unwrap().iter().map(|it| it.as_str().unwrap()).collect();
    let grown = ended(bed.start(Some(&mut gate), &["--grow"]).await).await;
    assert_eq!(grown.code, 0, "{grown:?}");
    let mut used = std::collections::BTreeSet::new();
    for request in gate.requests().iter().filter(|it| it.contains("/apis/")) {
        assert!(request.contains("/apis/ipam.gcp-cni.cast.ai/v1alpha1/ippools"), "{request}");
        used.insert(match request.split(' ').next().unwrap() {
            "GET" => "get",
            "POST" => "create",
            "PATCH" => "patch",
            other => panic!("{other}"),
        });
    }
    assert_eq!(used, verbs.into_iter().collect());
}
