//! Metrics of Egresses.

use std::collections::BTreeMap;

use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use tenure_handles::Timestamp;

use crate::metrics::{Numbers, metric};
use crate::part::Count;
use crate::world::World;

/// Counts of Egresses.
#[derive(Debug)]
pub(super) struct EgressMetrics {
    gateways: Numbers,
    clients: Numbers,
}

impl EgressMetrics {
    pub(super) fn registered(registry: &mut Registry) -> Self {
        Self {
            gateways: metric(
                registry,
                "tenure_egress_gateways",
                "Gateways of an Egress that are wanted, and that serve",
            ),
            clients: metric(registry, "tenure_egress_clients", "Pods that use an Egress, as nodes report"),
        }
    }
}

impl Count for EgressMetrics {
    fn count(&self, world: &World, leads: bool, _: usize, _: Timestamp) {
        [&self.gateways, &self.clients].into_iter().for_each(Family::clear);
        if !leads {
            return;
        }
        let mut clients: BTreeMap<String, usize> = BTreeMap::new();
        for it in world.egress().clients.iter() {
            let egress = it.facts.egress.as_ref().map(ToString::to_string).unwrap_or_default();
            *clients.entry(egress).or_default() += it.facts.uids.len();
        }
        for it in world.egress().egresses.iter() {
            let (id, spec) = (it.facts.object.id(), &it.facts.object.spec);
            let of = |state: Option<&str>| {
                let labels = vec![("namespace", id.namespace.clone()), ("egress", id.name.clone())];
                labels.into_iter().chain(state.map(|state| ("state", state.to_owned()))).collect::<Vec<_>>()
            };
            let serving = it.facts.object.status.as_ref().map_or(0, |status| status.replicas);
            self.gateways.get_or_create(&of(Some("wanted"))).set(spec.replicas.into());
            self.gateways.get_or_create(&of(Some("serving"))).set(serving.into());
            let count = clients.get(&id.to_string()).copied().unwrap_or_default();
            self.clients.get_or_create(&of(None)).set(u32::try_from(count).unwrap_or(u32::MAX).into());
        }
    }
}
