//! Whatever happens to Egresses and what belongs to them: an incremental plan equals a full one, performing plans
//! comes to an end, and then every Egress has what it asks for.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod, Service, ServiceAccount};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use proptest::prelude::*;
use serde_json::{Value, json};
use tenure_api::coil::egress::clients_name;
use tenure_api::coil::{AddressPool, Egress, EgressClients};

use super::tests::rig::{NAMESPACE, Rig};

#[derive(Clone, Debug)]
enum Happening {
    Create(usize),
    Delete(usize),
    Change(usize, usize),
    DeleteChild(usize, usize),
    ChangeChild(usize, usize),
    Serve(usize, i32),
    Gateway(usize, usize, bool),
    Clients(usize, usize, Vec<usize>),
    ClientsGone(usize, usize),
    Node(usize, bool),
    Pool(usize, bool),
    Namespace(usize),
    Wait(u64),
}

const NAMES: [&str; 3] = ["a", "b", "c"];
const NODES: [&str; 2] = ["n1", "n2"];
const POOLS: [&str; 2] = ["default", "blue"];

fn changes() -> Vec<Value> {
    vec![
        json!({"replicas": 3}),
        json!({"podDisruptionBudget": {"minAvailable": 1, "maxUnavailable": null}}),
        json!({"podDisruptionBudget": {"maxUnavailable": "50%", "minAvailable": null}}),
        json!({"podDisruptionBudget": null}),
        json!({"sessionAffinity": "None"}),
        json!({"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 60}}}),
        json!({"destinations": ["9.9.9.9/32"]}),
        json!({"destinations": ["0.0.0.0/0", "fd02::/120"]}),
        json!({"template": {"metadata": {"labels": {"x": "1"}, "annotations": {"y": "2"}}}}),
        json!({"template": {"spec": {"tolerations": [{"operator": "Exists"}]}}}),
        json!({"template": {"spec": {"tolerations": "none of these"}}}),
        json!({"template": null}),
        json!({"fouSourcePortAuto": true, "strategy": {"type": "Recreate"}}),
    ]
}

fn happening() -> impl Strategy<Value = Happening> {
    let (egress, node) = (0..NAMES.len(), 0..NODES.len());
    prop_oneof![
        3 => egress.clone().prop_map(Happening::Create),
        1 => egress.clone().prop_map(Happening::Delete),
        4 => (egress.clone(), 0..changes().len()).prop_map(|(egress, change)| Happening::Change(egress, change)),
        2 => (egress.clone(), 0..4_usize).prop_map(|(egress, kind)| Happening::DeleteChild(egress, kind)),
        3 => (egress.clone(), 0..5_usize).prop_map(|(egress, kind)| Happening::ChangeChild(egress, kind)),
        2 => (egress.clone(), 0..4_i32).prop_map(|(egress, count)| Happening::Serve(egress, count)),
        2 => (egress.clone(), 0..3_usize, any::<bool>()).prop_map(|(egress, pod, runs)| Happening::Gateway(egress, pod, runs)),
        3 => (egress.clone(), node.clone(), proptest::collection::vec(0..4_usize, 0..3))
            .prop_map(|(egress, node, pods)| Happening::Clients(egress, node, pods)),
        1 => (egress, node.clone()).prop_map(|(egress, node)| Happening::ClientsGone(egress, node)),
        2 => (node, any::<bool>()).prop_map(|(node, there)| Happening::Node(node, there)),
        1 => (0..POOLS.len(), any::<bool>()).prop_map(|(pool, there)| Happening::Pool(pool, there)),
        1 => (0..3_usize).prop_map(Happening::Namespace),
        1 => (1..200_u64).prop_map(Happening::Wait),
    ]
}

/// Performs it if possible; what is impossible does not happen.
async fn happen(rig: &mut Rig, happening: &Happening) {
    let merge = |value: Value| (PatchParams::default(), Patch::Merge(value));
    match happening {
        Happening::Create(egress) => {
            if rig.get::<Egress>(NAMES[*egress]).await.is_none() {
                rig.egress(NAMES[*egress], json!({})).await;
            }
        }
        Happening::Delete(egress) => rig.delete::<Egress>(NAMES[*egress]).await,
        Happening::Change(egress, change) => {
            let (parameters, patch) = merge(json!({"spec": changes()[*change]}));
            _ = rig.api::<Egress>().patch(NAMES[*egress], &parameters, &patch).await;
        }
        Happening::DeleteChild(egress, kind) => match kind {
            0 => rig.delete::<Deployment>(NAMES[*egress]).await,
            1 => rig.delete::<Service>(NAMES[*egress]).await,
            2 => rig.delete::<PodDisruptionBudget>(NAMES[*egress]).await,
            _ => rig.delete::<ServiceAccount>(&format!("tenure-egress-{}", NAMES[*egress])).await,
        },
        Happening::ChangeChild(egress, change) => {
            let name = NAMES[*egress];
            let (parameters, patch) = merge(match change {
                0 => json!({"spec": {"replicas": 9}}),
                1 => json!({"spec": {"template": {"metadata": {"annotations": {"restartedAt": "now"}}}}}),
                2 => {
                    json!({"metadata": {"annotations": {"theirs": "x"}, "labels": {"app.kubernetes.io/component": null}}})
                }
                3 => json!({"spec": {"selector": {"x": "y"}, "sessionAffinity": "None"}}),
                _ => json!({"spec": {"minAvailable": 7, "maxUnavailable": null}}),
            });
            match change {
                0..=2 => _ = rig.api::<Deployment>().patch(name, &parameters, &patch).await,
                3 => _ = rig.api::<Service>().patch(name, &parameters, &patch).await,
                _ => _ = rig.api::<PodDisruptionBudget>().patch(name, &parameters, &patch).await,
            }
        }
        Happening::Serve(egress, count) => {
            rig.serve(NAMES[*egress], json!({"availableReplicas": count})).await;
        }
        Happening::Gateway(egress, pod, runs) => {
            let name = format!("{}-{pod}", NAMES[*egress]);
            if *runs {
                rig.pod(&name, NAMES[*egress], "Running", &[&format!("10.0.{egress}.{pod}")]).await;
            } else {
                rig.delete::<Pod>(&name).await;
            }
        }
        Happening::Clients(egress, node, pods) => {
            let Some(egress) = rig.get::<Egress>(NAMES[*egress]).await else { return };
            let uids: std::collections::BTreeSet<String> =
                pods.iter().map(|pod| format!("pod{pod}")).collect();
            let object = Rig::clients_object(&egress, NODES[*node], &uids.into_iter().collect::<Vec<_>>());
            let api = rig.api::<EgressClients>();
            if api.create(&PostParams::default(), &object).await.is_err() {
                let (parameters, patch) = merge(json!({"spec": object.spec}));
                _ = api.patch(&object.name_any(), &parameters, &patch).await;
            }
        }
        Happening::ClientsGone(egress, node) => {
            rig.delete::<EgressClients>(&clients_name(NAMES[*egress], NODES[*node]).unwrap()).await;
        }
        Happening::Node(node, there) => {
            let api: Api<Node> = Api::all(rig.client.clone());
            let node = NODES[*node];
            if *there {
                let object = serde_json::from_value(json!({"metadata": {"name": node}})).unwrap();
                _ = api.create(&PostParams::default(), &object).await;
            } else {
                _ = api.delete(node, &DeleteParams::default()).await;
            }
        }
        Happening::Pool(pool, there) => {
            let api: Api<AddressPool> = Api::all(rig.client.clone());
            let spec =
                serde_json::from_value(json!({"subnets": [{"ipv4": format!("10.{pool}.0.0/16")}]})).unwrap();
            if *there {
                _ = api.create(&PostParams::default(), &AddressPool::new(POOLS[*pool], spec)).await;
            } else {
                _ = api.delete(POOLS[*pool], &DeleteParams::default()).await;
            }
        }
        Happening::Namespace(pool) => {
            let api: Api<Namespace> = Api::all(rig.client.clone());
            let (parameters, patch) =
                merge(json!({"metadata": {"annotations": {"coil.cybozu.com/pool": POOLS.get(*pool)}}}));
            _ = api.patch(NAMESPACE, &parameters, &patch).await;
        }
        Happening::Wait(seconds) => rig.now = rig.now.plus(Duration::from_secs(*seconds)),
    }
}

/// Each Egress has what it asks for, as far as the server accepts it.
async fn check(rig: &Rig) {
    for egress in rig.api::<Egress>().list(&ListParams::default()).await.unwrap() {
        let name = egress.name_any();
        let owner = egress.uid();
        let is_owned = |owners: &[k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference]| {
            owners.iter().any(|it| Some(&it.uid) == owner.as_ref())
        };
        let budget = rig.get::<PodDisruptionBudget>(&name).await;
        assert_eq!(budget.is_some(), egress.spec.pod_disruption_budget.is_some(), "the budget of {name}");
        assert!(is_owned(rig.get::<Service>(&name).await.unwrap().owner_references()));
        let status = egress.status.clone().unwrap();
        let Some(deployment) = rig.get::<Deployment>(&name).await else {
            assert_eq!(status.condition("Ready").unwrap().reason, "TemplateRefused");
            continue;
        };
        assert!(is_owned(deployment.owner_references()));
        let available = deployment.status.unwrap_or_default().available_replicas.unwrap_or_default();
        assert_eq!(status.replicas, available, "{name}");
        if status.condition("Ready").unwrap().reason != "TemplateRefused" {
            assert_eq!(deployment.spec.unwrap().replicas, Some(egress.spec.replicas), "{name}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn every_story_ends_with_what_is_asked_for_and_each_plan_is_that_of_everything(
        story in proptest::collection::vec((happening(), 0..3_usize), 1..25)
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut rig = Rig::new().await;
            for (happening, steps) in story {
                happen(&mut rig, &happening).await;
                for _ in 0..steps {
                    rig.step().await;
                }
            }
            // What the server refuses is retried forever; it is corrected here, so that the run can end.
            for name in NAMES {
                let patch = Patch::Merge(json!({"spec": {"template": null}}));
                _ = rig.api::<Egress>().patch(name, &PatchParams::default(), &patch).await;
            }
            rig.settle().await;
            check(&rig).await;
        });
    }
}

#[tokio::test]
#[should_panic(expected = "what changed, and everything")]
async fn a_plan_that_overlooks_a_change_is_found_by_the_comparison() {
    let mut rig = Rig::new().await;
    rig.planner.overlooks_pods = true;
    rig.egress("a", json!({})).await;
    rig.settle().await;
    rig.pod("a-1", "a", "Running", &["10.0.0.1"]).await;
    rig.settle().await;
}
