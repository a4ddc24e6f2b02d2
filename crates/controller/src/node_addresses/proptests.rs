//! Whatever happens to pools, policies and nodes, with two leaders of which one is behind, and leaders that crash: no
//! address is ever on two nodes, an incremental plan equals a full one, and in the end every selected node has its
//! addresses.

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams, PostParams};
use proptest::prelude::*;
use serde_json::{Value, json};
use tenure_api::nmstate::{NodeIPPool, NodeRange};

use super::pool::{Around, Member};
use super::tests::rig::{Enactment, Leader, Policy, Rig};

/// A bug that a test plants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Planted {
    /// Addresses of enactments in deletion count as free, whatever is on interfaces.
    ForgetsLeaving,
    /// Changes of nodes are overlooked.
    OverlooksNodes,
}

/// What a planner with that bug sees.
pub(super) fn sabotage<'a>(
    planted: Option<Planted>,
    mut members: Vec<Member<'a>>,
    mut around: Around<'a>,
) -> (Vec<Member<'a>>, Around<'a>) {
    if planted == Some(Planted::ForgetsLeaving) {
        members.retain(|member| !member.facts.deleting);
        around.reported.clear();
    }
    (members, around)
}

#[derive(Clone, Debug)]
enum Happening {
    Join(usize, bool),
    Leave(usize),
    Label(usize, bool),
    Policy(usize),
    PolicyGone(usize),
    PoolGone(usize),
    Pool(usize, usize),
    Grow(usize),
    Empty(usize),
    Reset(usize, usize),
    Agents,
    /// The leader plans and performs; it may have seen everything, or nothing since its last look.
    Lead(usize, bool),
    /// A leader plans, the other one works, then the first performs its plan.
    Late,
    Crash(usize),
    Wait(u64),
}

const NODES: [&str; 4] = ["a", "b", "c", "d"];
const POLICIES: [&str; 2] = ["s", "t"];
const POOLS: [&str; 2] = ["p", "q"];

fn range(pool: usize, size: usize) -> Value {
    let end = [4, 6, 90][size];
    json!({"cidr": format!("10.{pool}.0.0/24"), "start": format!("10.{pool}.0.1"), "end": format!("10.{pool}.0.{end}"), "exclude": [format!("10.{pool}.0.2")]})
}

fn happening() -> impl Strategy<Value = Happening> {
    let (node, policy, pool, leader) = (0..NODES.len(), 0..POLICIES.len(), 0..POOLS.len(), 0..2_usize);
    prop_oneof![
        4 => (node.clone(), any::<bool>()).prop_map(|(node, labelled)| Happening::Join(node, labelled)),
        1 => node.clone().prop_map(Happening::Leave),
        2 => (node, any::<bool>()).prop_map(|(node, labelled)| Happening::Label(node, labelled)),
        3 => policy.clone().prop_map(Happening::Policy),
        1 => policy.prop_map(Happening::PolicyGone),
        1 => pool.clone().prop_map(Happening::PoolGone),
        3 => (pool.clone(), 0..3_usize).prop_map(|(pool, size)| Happening::Pool(pool, size)),
        1 => pool.clone().prop_map(Happening::Grow),
        1 => pool.clone().prop_map(Happening::Empty),
        2 => (pool, 0..3_usize).prop_map(|(pool, what)| Happening::Reset(pool, what)),
        4 => Just(Happening::Agents),
        8 => (leader.clone(), any::<bool>()).prop_map(|(leader, looks)| Happening::Lead(leader, looks)),
        3 => Just(Happening::Late),
        1 => leader.prop_map(Happening::Crash),
        2 => (1..200_u64).prop_map(Happening::Wait),
    ]
}

async fn happen(rig: &mut Rig, happening: &Happening) {
    let merge = |value: Value| Patch::Merge(value);
    let parameters = PatchParams::default();
    match happening {
        Happening::Join(node, labelled) => {
            let labels = if *labelled { json!({"role": "storage"}) } else { json!({}) };
            let object = json!({"metadata": {"name": NODES[*node], "labels": labels}});
            _ = rig
                .api::<Node>()
                .create(&PostParams::default(), &serde_json::from_value(object).unwrap())
                .await;
        }
        Happening::Leave(node) => {
            // It is switched off permanently.
            rig.delete::<Node>(NODES[*node]).await;
        }
        Happening::Label(node, labelled) => {
            let value = if *labelled { json!("storage") } else { Value::Null };
            let patch = merge(json!({"metadata": {"labels": {"role": value}}}));
            _ = rig.api::<Node>().patch(NODES[*node], &parameters, &patch).await;
        }
        Happening::Policy(policy) => {
            if rig.get::<Policy>(POLICIES[*policy]).await.is_none() {
                let pools: &[&str] = if *policy == 0 { &["p"] } else { &["p", "q"] };
                let selector = if *policy == 0 { json!({"role": "storage"}) } else { json!({}) };
                rig.policy(POLICIES[*policy], pools, json!({"nodeSelector": selector, "maxUnavailable": 2}))
                    .await;
            }
        }
        Happening::PolicyGone(policy) => rig.delete::<Policy>(POLICIES[*policy]).await,
        Happening::PoolGone(pool) => rig.delete::<NodeIPPool>(POOLS[*pool]).await,
        Happening::Pool(pool, size) => {
            if rig.get::<NodeIPPool>(POOLS[*pool]).await.is_none() {
                rig.pool(POOLS[*pool], range(*pool, *size)).await;
            }
        }
        Happening::Grow(pool) => {
            let patch = merge(json!({"spec": {"range": {"end": format!("10.{pool}.0.90")}}}));
            _ = rig.api::<NodeIPPool>().patch(POOLS[*pool], &parameters, &patch).await;
        }
        Happening::Empty(pool) => {
            let patch = merge(json!({"status": {"allocated-offsets": []}}));
            _ = rig.api::<NodeIPPool>().patch_status(POOLS[*pool], &parameters, &patch).await;
        }
        Happening::Reset(pool, what) => {
            let patch =
                merge(json!({"metadata": {"annotations": {"nmstate.io/reset-ippool": POOLS[*pool]}}}));
            match what {
                0 => _ = rig.api::<NodeIPPool>().patch(POOLS[*pool], &parameters, &patch).await,
                1 => _ = rig.api::<Policy>().patch("t", &parameters, &patch).await,
                _ => _ = rig.api::<Enactment>().patch("a.t", &parameters, &patch).await,
            }
        }
        Happening::Agents => _ = rig.agents().await,
        Happening::Lead(leader, looks) => {
            if *looks {
                rig.observe(*leader).await;
            }
            rig.perform_plan(*leader).await;
        }
        Happening::Late => {
            rig.observe(1).await;
            let late = rig.plan(1);
            rig.observe(0).await;
            rig.perform_plan(0).await;
            rig.agents().await;
            rig.observe(0).await;
            rig.perform_plan(0).await;
            rig.perform(1, &late).await;
        }
        Happening::Crash(leader) => {
            let mode = rig.leaders[*leader].world.node_addresses().mode();
            rig.leaders[*leader] = Leader::new();
            if let Some(mode) = mode {
                rig.leaders[*leader].world.node_addresses_mut().note_mode(mode);
            }
            rig.observe(*leader).await;
        }
        Happening::Wait(seconds) => rig.wait(*seconds),
    }
    // A node that is gone has no interfaces, and its agent does nothing.
    for node in NODES {
        if rig.get::<Node>(node).await.is_none() {
            rig.interfaces.remove(node);
            rig.dead.insert(node.to_owned());
        } else {
            rig.dead.remove(node);
        }
    }
}

/// In the end every pool's record has what enactments name, and every selected node has its addresses or its pool
/// says why not.
async fn check(rig: &Rig) {
    for pool in ["p", "q"] {
        let Some(object) = rig.get::<NodeIPPool>(pool).await else { continue };
        let range = NodeRange::of(&object.spec.range).unwrap();
        let status = object.status.unwrap();
        let taken = range.decode(&status).offsets;
        let held = rig.enactments().await;
        let held = held.iter().filter_map(|it| it.status.as_ref()?.ippool.get(pool).cloned());
        let held: std::collections::BTreeSet<u128> = held
            .flat_map(|it| it.allocated)
            .filter_map(|it| range.offset(it.parse().unwrap()).ok())
            .collect();
        let open: std::collections::BTreeSet<u128> =
            status.promised.iter().map(|it| u128::try_from(it.offset).unwrap()).collect();
        let kept: std::collections::BTreeSet<u128> =
            status.kept.iter().map(|it| u128::try_from(it.offset).unwrap()).collect();
        let known = held.union(&open).copied().collect::<std::collections::BTreeSet<u128>>();
        assert_eq!(taken, known.union(&kept).copied().collect(), "the record of {pool}");
    }
    for enactment in rig.enactments().await {
        let pools: &[&str] = if enactment.policy() == Some("s") { &["p"] } else { &["p", "q"] };
        let has = enactment.status.as_ref().is_some_and(|it| !it.ippool.is_empty());
        let mut why = false;
        for pool in pools {
            let object = rig.get::<NodeIPPool>(pool).await;
            why |= object.is_none_or(|it| {
                it.status.unwrap().condition("Available").is_none_or(|it| it.status != "True")
            });
        }
        assert!(has || why, "{} has nothing, and nobody says why", enactment.name_any());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn every_story_ends_with_an_address_for_each_node_and_none_has_two_holders(
        story in proptest::collection::vec(happening(), 1..40)
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut rig = Rig::new().await;
            let mode = rig.leaders[0].world.node_addresses().mode().unwrap();
            rig.leaders.push(Leader::new());
            rig.leaders[1].world.node_addresses_mut().note_mode(mode);
            rig.observe(0).await;
            rig.observe(1).await;
            for happening in &story {
                happen(&mut rig, happening).await;
                rig.check().await;
            }
            // Time passes until missing nodes are given up, and freed addresses have cooled.
            for _ in 0..5 {
                rig.settle().await;
                rig.wait(130);
            }
            rig.settle().await;
            check(&rig).await;
        });
    }
}

#[tokio::test]
#[should_panic(expected = "and another node")]
async fn a_planner_that_frees_addresses_too_early_is_found() {
    let mut rig = Rig::new().await;
    rig.leaders[0].planner.planted = Some(Planted::ForgetsLeaving);
    rig.leaders[0].plant_full(Planted::ForgetsLeaving);
    rig.pool("p", json!({"cidr": "10.0.0.0/24", "start": "10.0.0.1", "end": "10.0.0.1"})).await;
    rig.policy("s", &["p"], json!({"nodeSelector": {"role": "storage"}})).await;
    rig.node("a", json!({"role": "storage"})).await;
    rig.settle().await;
    rig.dead.insert("a".to_owned());
    rig.patch::<Node>("a", json!({"metadata": {"labels": {"role": null}}})).await;
    rig.node("b", json!({"role": "storage"})).await;
    for _ in 0..6 {
        rig.settle().await;
        rig.wait(60);
    }
}

#[tokio::test]
#[should_panic(expected = "what changed, and everything")]
async fn a_planner_that_overlooks_a_change_is_found_by_the_comparison() {
    let mut rig = Rig::new().await;
    rig.leaders[0].planner.planted = Some(Planted::OverlooksNodes);
    rig.pool("p", json!({"cidr": "10.0.0.0/24"})).await;
    rig.policy("s", &["p"], json!({})).await;
    rig.settle().await;
    rig.node("a", json!({})).await;
    rig.settle().await;
}
