//! A pool and the living pods → what is released, after two looks.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tenure_api::whereabouts::{
    Allocation, IPPool, IPPoolSpec, OverlappingRangeIPReservation, OverlappingRangeIPReservationSpec,
};
use tenure_handles::Timestamp;
use tenure_ipam::ledger::Offsets;
use tenure_ipam::{Address, Notation};
use tenure_whereabouts::ledger::Act;
use tenure_whereabouts::reconcile::{Inputs, LivingPod, Patience, Reconciler};

use super::{Answer, Input, refused};

/// What the questions are about when they do not say.
const RANGE: &str = "10.10.10.0/24";

pub(super) fn reconcile(input: &Input) -> Answer {
    let pods = living(input)?;
    let records = records(input.text("pool"))?;
    let pool = pool(input.text("pool"), &records)?;
    let reservations = reservations(input, &pods);
    let patience = Patience::default();
    let mut reconciler = Reconciler::new(patience);
    let mut unused = tenure_whereabouts::reconcile::Unused::default();
    for now in [Timestamp::default(), Timestamp::default().plus(patience.between)] {
        unused = reconciler.look(Inputs {
            pools: std::slice::from_ref(&pool),
            reservations: &reservations,
            pods: &pods,
            now,
        });
    }
    let offsets = Offsets::of(&pool.spec.cidr().map_err(refused)?);
    let gone: Vec<Address> = unused
        .records
        .iter()
        .filter_map(|request| match &request.act {
            Act::Forget { key, .. } => offsets.address(key.parse().ok()?).ok(),
            _ => None,
        })
        .collect();
    let (released, kept): (Vec<_>, Vec<_>) =
        records.iter().partition(|(_, address, _)| gone.contains(address));
    let texts =
        |list: &[&(String, Address, String)]| list.iter().map(|(_, a, _)| a.to_string()).collect::<Vec<_>>();
    let after: BTreeMap<&String, &String> = kept.iter().map(|(key, _, podref)| (key, podref)).collect();
    Ok(json!({
        "released": texts(&released),
        "kept": texts(&kept),
        "pool_after": after,
        "orip_left": reservations.len() - unused.reservations.len(),
        "orip_deleted": !unused.reservations.is_empty() || !released.is_empty(),
    }))
}

/// `["ns/p"]`, or `{"ns/p": [addresses]}`, or `{"ns/p": "words"}` of a pod whose status says nothing.
fn living(input: &Input) -> Result<BTreeMap<String, LivingPod>, String> {
    let mut pods = BTreeMap::new();
    match input.get("live_pods") {
        Some(Value::Array(names)) => {
            for name in names.iter().filter_map(Value::as_str) {
                pods.insert(name.to_owned(), LivingPod::default());
            }
        }
        Some(Value::Object(all)) => {
            for (name, status) in all {
                let addresses = match status {
                    Value::Array(list) => {
                        let address = |value: &Value| {
                            Notation::Strict.address(value.as_str().unwrap_or_default()).map_err(refused)
                        };
                        Some(list.iter().map(address).collect::<Result<_, _>>()?)
                    }
                    _ => None,
                };
                let words = status.as_str().unwrap_or_default();
                let ended = ["DisruptionTarget", "DeletionByTaintManager", "Succeeded", "Failed"];
                let finished = ended.iter().any(|word| words.contains(word));
                pods.insert(name.clone(), LivingPod { uid: String::new(), finished, addresses });
            }
        }
        _ => {}
    }
    Ok(pods)
}

/// `RANGE {1: ns/pod, 2: ns/pod}`: the shorthand counts from the address as it is written, here as in its answers.
fn records(text: &str) -> Result<Vec<(String, Address, String)>, String> {
    let (range, inside) = text.split_once('{').unwrap_or((text, ""));
    let range = Some(range.trim()).filter(|range| !range.is_empty()).unwrap_or(RANGE);
    let (base, _) = Notation::Strict.address_and_cidr(range).map_err(refused)?;
    let pairs = inside.trim_end_matches('}').split(',').filter(|pair| !pair.trim().is_empty());
    pairs
        .map(|pair| {
            let (key, podref) = pair.split_once(':').ok_or_else(|| format!("{pair:?} is no record"))?;
            let (key, podref) = (key.trim(), podref.trim());
            let offset = key.parse().map_err(|_| format!("{key:?} is no offset"))?;
            Ok((key.to_owned(), base.plus(offset).map_err(refused)?, podref.to_owned()))
        })
        .collect()
}

/// The pool as an object: offsets from the network address.
fn pool(text: &str, records: &[(String, Address, String)]) -> Result<IPPool, String> {
    let range = text.split('{').next().map(str::trim).filter(|range| !range.is_empty()).unwrap_or(RANGE);
    let cidr = Notation::Strict.cidr(range).map_err(refused)?;
    let held = records.iter().map(|(_, address, podref)| {
        let record = Allocation { podref: podref.clone(), ..Allocation::default() };
        (*address, record)
    });
    let allocations = Offsets::of(&cidr).encode_map(held).map_err(refused)?;
    Ok(IPPool::new("pool", IPPoolSpec { range: cidr.to_string(), allocations }))
}

/// `NAME PODREF`, or `NAME (words)` of the only pod.
fn reservations(input: &Input, pods: &BTreeMap<String, LivingPod>) -> Vec<OverlappingRangeIPReservation> {
    let one = Some(input.text("orip")).filter(|text| !text.is_empty());
    let texts = input.texts("orip").chain(one);
    texts
        .map(|text| {
            let (name, rest) = text.split_once(' ').unwrap_or((text, ""));
            let only = pods.keys().next().cloned().unwrap_or_default();
            let podref = if rest.is_empty() || rest.starts_with('(') { only } else { rest.to_owned() };
            let spec = OverlappingRangeIPReservationSpec { podref, ..Default::default() };
            OverlappingRangeIPReservation::new(name, spec)
        })
        .collect()
}
