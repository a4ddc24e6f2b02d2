//! Findings about alias addresses of a cloud, with a fake of Google's.

use std::time::Duration;

use kube::Api;
use serde_json::json;
use tenure_api::cloud::{IPLedger, NodeAliases};
use tenure_testbed::compute::Settings;
use tenure_testbed::wait::until;
use tenure_tests::cloud::{Cloud, POOL, ledgers};

use super::bed::{Bed, Before, lead};
use super::case::Case;

pub const CASES: &[Case] = &[
    Case::new(
        "alias-twice",
        |bed| {
            bed.stop_controller();
            let ledger = ledgers(bed.cluster).into_iter().find(|it| !it.spec.records.is_empty()).unwrap();
            let offset = ledger.spec.records.keys().next().unwrap();
            let record = json!({"node": bed.machines[1].name, "grant": "planted"});
            bed.make(
                &bed.api::<IPLedger>(),
                json!({
                    "metadata": {"name": "other-0"}, "pool": "other", "index": 0, "cidr": ledger.spec.cidr,
                    "records": {offset: record},
                }),
            );
        },
        |bed| {
            bed.delete(&bed.api::<IPLedger>(), "other-0");
            bed.control();
        },
    ),
    Case::new(
        "alias-unrecorded",
        |bed| {
            bed.stop_controller();
            bed.ghost("reports", &["10.111.0.200".parse().unwrap()]);
        },
        lead,
    ),
    Case::new(
        "alias-status",
        |bed| {
            bed.stop_controller();
            let alias = json!({"10.111.0.250/32": {"grant": "planted", "attached": true}});
            bed.merge_status(&nodes(bed), &bed.machines[0].name, json!({"aliases": alias}));
        },
        lead,
    ),
    Case::new(
        "alias-node-missing",
        |bed| {
            bed.stop_controller();
            bed.make(&nodes(bed), json!({"metadata": {"name": "gone"}, "spec": {"pool": POOL, "wanted": 0}}));
        },
        lead,
    ),
];

pub fn prepare(before: &mut Before<'_, '_>) {
    let millis = Duration::from_millis;
    let settings =
        Settings { update: millis(50)..millis(100), arrival: millis(10)..millis(20), ..Settings::default() };
    let cloud = Cloud::start(before.cluster, settings);
    Cloud::pool(before.cluster, &json!({"warm": 1, "cooling": "1s"}));
    for machine in &mut *before.machines {
        cloud.join(machine, "europe-west4-a");
    }
    cloud.connect(before.machines);
    before.cloud = Some(cloud);
}

/// Waits until both machines have an alias.
pub fn begin(bed: &mut Bed<'_>) {
    until("aliases of both machines", || {
        let has = |name: &str| {
            let found = bed.wait(nodes(bed).get_opt(name)).unwrap()?;
            found.status.filter(|status| status.attached > 0).map(drop)
        };
        bed.machines.iter().all(|machine| has(&machine.name).is_some()).then_some(())
    });
}

fn nodes(bed: &Bed<'_>) -> Api<NodeAliases> {
    bed.api()
}
