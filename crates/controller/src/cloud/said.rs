//! Events that belong to no write: pods that do not get the address that they name, and failed moves.

use std::collections::{BTreeMap, BTreeSet};

use kube::Resource;

use super::context::Context;
use super::index::{cidr_of, records};
use super::ledger::{Look, offset_of};
use super::{events, moves};
use crate::events::Note;

/// Events about pods that name an address, and about failed moves. Without a note, it begins to look at the key.
pub(super) fn say(
    context: Context<'_>,
    pods: &BTreeSet<String>,
    looks: &BTreeMap<(String, u128), Look>,
) -> Vec<(String, Option<Note>)> {
    let mut said = Vec::new();
    let mut podrefs = pods.clone();
    for key in looks.keys() {
        let Some(pool) = context.index.pools.get(&key.0) else { continue };
        let Some((cidr, _)) = pool.ranges.as_ref().ok().and_then(|ranges| ranges.ledger(key.1)) else {
            continue;
        };
        podrefs.extend(context.index.naming_within(cidr).map(|(_, podref)| podref.to_owned()));
        let name = format!("{}-{}", key.0, key.1);
        said.push((name.clone(), None));
        let ledger = context.index.ledger(&key.0, key.1).and_then(|name| context.known.ledgers.get(name));
        for (offset, record) in ledger.into_iter().flat_map(records) {
            if moves::is_over(record, pool, context.now)
                && let Some(range) = cidr_of(cidr, offset, record)
                && let Some(pool) = context.known.pools.get(&pool.name)
            {
                said.push((name.clone(), Some(events::abandoned(pool.object_ref(&()), range.first()))));
            }
        }
    }
    for podref in podrefs {
        said.push((podref.clone(), None));
        let Some(pod) = context.pods.claim_user(&podref) else { continue };
        if let Some(problem) = pod.problems.get(tenure_api::cloud::annotation::ADDRESS) {
            said.push((podref.clone(), Some(events::unreadable(pod, problem))));
        }
        let Some(address) = pod.alias.filter(|_| pod.node.is_some()) else { continue };
        let record = context.index.pool_of(address).and_then(|(pool, number)| {
            let (cidr, _) = pool.ranges.as_ref().ok()?.ledger(number)?;
            let offset = offset_of(cidr, address)?;
            match looks.get(&(pool.name.clone(), number)) {
                Some(look) => look.records.get(&offset),
                None => Some(context.record(context.index.ledger(&pool.name, number)?, offset)?.1),
            }
        });
        if let Some(problem) = moves::problem_of(context, pod, address, record) {
            said.push((podref, Some(events::refused(pod, address, &problem))));
        }
    }
    said
}
