//! Addresses that stay, on a real cluster: three nodes with our image and manifests, a stand-in for KubeVirt's controllers that
//! makes launcher pods as KubeVirt does, and one for Multus that calls our plugin as a delegate. Some scenarios play at
//! once, each in a namespace of its own. Needs root; builds the image.

mod defects;
mod kubevirt;
mod looks;
mod machines;
mod multus;
mod people;
mod place;
mod sets;
mod stage;

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, ScopedJoinHandle};

use anyhow::{Result, anyhow, ensure};
use tenure_handles::{Clock as _, SystemClock};
use tenure_testbed::cluster::Cluster;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use kubevirt::KubeVirt;
use multus::Multus;
use place::ScenarioNamespace;
use stage::Family::{Both, Four, Six};
use stage::{Family, Stage};
use tenure_tests::installed::three_nodes;
use tenure_tests::steps::Steps;

/// How many scenarios play at once: most of the time each waits for the cluster.
const AT_ONCE: usize = 10;

/// What happens in a scenario.
type Play<'p> = Pin<Box<dyn Future<Output = Result<()>> + 'p>>;

/// A scenario: what it is called, where it plays, and what happens.
struct Scenario {
    name: &'static str,
    family: Family,
    play: for<'p> fn(&'p ScenarioNamespace<'p>) -> Play<'p>,
}

/// Each scenario with the families that it plays for.
macro_rules! scenarios {
    ($($module:ident::$name:ident: $($family:ident),+;)+) => {
        vec![$($(Scenario {
            name: stringify!($name),
            family: $family,
            play: |place| Box::pin($module::$name(place)),
        },)+)+]
    };
}

fn scenarios() -> Vec<Scenario> {
    scenarios! {
        machines::a_live_migrated_machine_keeps_its_addresses_and_one_pod_at_a_time_is_reached: Four, Six, Both;
        machines::a_bare_instance_keeps_its_addresses_over_a_live_migration_and_frees_them_at_its_end: Four;
        machines::an_aborted_migration_leaves_everything_with_the_source: Both;
        people::any_other_mover_says_by_an_annotation_which_of_two_pods_is_reached: Four;
        machines::a_restarted_machine_keeps_its_addresses_and_its_claims_name_the_new_pod: Four, Six, Both;
        machines::a_stopped_machine_keeps_its_addresses_and_starts_with_them_on_another_node: Four, Six, Both;
        machines::a_machines_claims_are_named_owned_labelled_and_finalized_as_kubevirt_expects: Both;
        machines::a_running_machine_deleted_in_the_background_frees_its_addresses: Four;
        machines::a_running_machine_deleted_in_the_foreground_frees_its_addresses: Six;
        machines::a_stopped_machine_deleted_in_the_background_frees_its_addresses: Both;
        machines::a_stopped_machine_deleted_in_the_foreground_frees_its_addresses: Four;
        machines::a_foreground_deletion_keeps_the_claims_until_an_instance_with_another_finalizer_is_gone: Both;
        defects::a_definition_that_cannot_be_read_never_lets_a_machine_start_without_its_claim: Four;
        defects::a_definition_that_comes_late_never_lets_a_machine_start_without_its_claim: Four;
        defects::two_interfaces_on_one_network_are_two_claims: Both;
        defects::hot_unplug_deletes_the_claim_and_hot_plug_makes_one: Four;
        defects::a_pod_that_comes_before_its_claim_waits_for_it: Six;
        people::a_claim_that_nobody_owns_stays_and_serves_one_pod_after_the_other_on_any_node: Both;
        people::a_pod_that_has_completed_keeps_nothing_and_the_next_one_gets_the_claims: Four;
        people::a_claim_deleted_while_a_pod_uses_it_keeps_the_addresses_until_the_pod_is_gone: Six;
        people::a_pod_never_gets_a_claim_of_another_namespace: Four;
        people::addresses_that_are_not_the_claims_are_refused_to_the_pod_and_those_that_are_are_not: Four;
        people::on_a_network_that_does_not_opt_in_a_pod_that_refers_to_a_claim_is_refused_and_the_claim_says_why: Four;
        sets::a_stateful_sets_pod_keeps_its_addresses_on_whichever_node_it_runs_next: Both;
        sets::a_stateful_set_that_shrinks_keeps_or_frees_addresses_as_its_retention_policy_says: Four;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn machines_stateful_sets_and_people_keep_their_addresses_on_every_kind_of_network() -> Result<()> {
    let steps = Steps(SystemClock.now());
    let cluster = three_nodes(&steps).await?;
    let outcome = live(&cluster, &steps).await;
    outcome.inspect_err(|_| cluster.keep_logs())
}

async fn live(cluster: &Cluster, steps: &Steps) -> Result<()> {
    let multus = Multus::new(cluster)?;
    let stage = Stage::set(cluster, &multus).await?;
    steps.done("the product is there, and networks that claims are for");
    let (runtime, over) = (Handle::current(), CancellationToken::new());
    let scenarios = chosen();
    let failed = tokio::task::block_in_place(|| {
        thread::scope(|scope| -> Result<Vec<String>> {
            let kubevirt = KubeVirt::new(cluster)?;
            scope.spawn(|| runtime.block_on(over.run_until_cancelled(kubevirt.run())));
            scope.spawn(|| runtime.block_on(over.run_until_cancelled(multus.run(scope))));
            let _over = over.clone().drop_guard();
            let play = |number: usize, scenario: &Scenario| {
                let outcome = runtime.block_on(async {
                    let place =
                        ScenarioNamespace::make(&stage, format!("scene-{number}"), scenario.family).await?;
                    (scenario.play)(&place).await
                });
                let name = format!("{} ({:?}, in scene-{number})", scenario.name, scenario.family);
                steps.done(&format!("{} {name}", if outcome.is_ok() { "ok  " } else { "FAIL" }));
                outcome.map_err(|error| anyhow!("{name}: {error:#}"))
            };
            let next = AtomicUsize::new(0);
            let next = || {
                let number = next.fetch_add(1, Ordering::Relaxed);
                Some((number, scenarios.get(number)?))
            };
            let player = || {
                let mut failed = Vec::new();
                while let Some((number, scenario)) = next() {
                    failed.extend(play(number, scenario).err().map(|error| error.to_string()));
                }
                failed
            };
            Ok(thread::scope(|scope| {
                let players: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(player)).collect();
                let ended = players.into_iter().map(ScopedJoinHandle::join);
                ended.flat_map(|it| it.unwrap_or_else(|_| vec!["a scenario panicked".to_owned()])).collect()
            }))
        })
    })?;
    let (all, wrong) = (scenarios.len(), failed.len());
    ensure!(failed.is_empty(), "{wrong} of {all} scenarios failed:\n- {}", failed.join("\n- "));
    Ok(())
}

/// All scenarios, or those whose name has `TENURE_SCENARIO` in it: for whoever looks for a mistake.
fn chosen() -> Vec<Scenario> {
    let part = std::env::var("TENURE_SCENARIO").unwrap_or_default();
    scenarios().into_iter().filter(|it| it.name.contains(&part)).collect()
}
