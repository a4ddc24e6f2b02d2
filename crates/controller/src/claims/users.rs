//! Which living pods use which claim, by the same pure function that agents ask ([`tenure_claims::references`]), with the
//! networks that attachment definitions and the setting for the cluster's network say.
//!
//! Made once a plan, for all claims at once: asking each pod for each claim would be claims times pods.

use std::collections::HashMap;

use tenure_claims::{CLUSTER_NETWORK, ClaimFacts, PodFacts, Reference, references};
use tenure_ipam::Address;

use super::known::Claim;
use crate::world::World;

/// The pods that use claims.
#[derive(Debug, Default)]
pub(crate) struct Users<'a> {
    /// By `namespace/name` of claims that exist.
    of_claims: HashMap<String, Vec<&'a PodFacts>>,
    /// By namespace and name of claims, whether they exist or not: those that name them.
    naming: HashMap<(&'a str, &'a str), Vec<&'a PodFacts>>,
    /// By namespace and name of machines and replicas: their pods. The names of their claims begin so.
    parts: HashMap<(&'a str, &'a str), Vec<&'a PodFacts>>,
}

impl<'a> Users<'a> {
    /// All of them. Means nothing unless [`World::knows_users`].
    pub(crate) fn of(world: &'a World) -> Self {
        let mut users = Self::default();
        let mut of_machines: HashMap<(&str, &str), Vec<&Claim>> = HashMap::new();
        for claim in world.claims.all.iter() {
            if let Some(machine) = &claim.facts.vm {
                of_machines.entry((&claim.facts.namespace, machine)).or_default().push(claim);
            }
        }
        for pod in world.ledgers.pods.claim_users() {
            users.note(pod);
            let network_of = |namespace: &str, name: &str| world.network(namespace, name).map(str::to_owned);
            for (network, _, wanted) in references(pod, network_of) {
                let named = match &wanted.reference {
                    Reference::Named(name) => world.claims.get(&pod.namespace, name),
                    Reference::Launcher { .. } => None,
                };
                let of_machine = match &wanted.reference {
                    Reference::Named(_) => None,
                    Reference::Launcher { vmi, .. } => {
                        of_machines.get(&(pod.namespace.as_str(), vmi.as_str()))
                    }
                };
                let candidates = named.into_iter().chain(of_machine.into_iter().flatten().copied());
                let is = |claim: &&Claim| {
                    wanted.reference.is(&claim.facts, &network) && may_have(&claim.facts, &wanted.ips)
                };
                for claim in candidates.filter(is) {
                    users.of_claims.entry(claim.reference()).or_default().push(pod);
                }
            }
        }
        users
    }

    /// The living pods that refer to a claim that exists, on its network.
    pub(crate) fn of_claim(&self, claim: &Claim) -> &[&'a PodFacts] {
        self.of_claims.get(&claim.reference()).map(Vec::as_slice).unwrap_or_default()
    }

    /// The living pods that may have the addresses of a claim of this name, whether it still exists or not and whatever has
    /// become of its network since: those that name it, and those of its machine or of its replica.
    pub(crate) fn by_name(&self, namespace: &str, claim: &str) -> impl Iterator<Item = &'a PodFacts> {
        let naming = self.naming.get(&(namespace, claim));
        // Names have dots of their own: the owner's ends at any of them.
        let owners = claim.match_indices('.').filter_map(|(dot, _)| claim.get(..dot));
        let parts = owners.filter_map(|owner| self.parts.get(&(namespace, owner)));
        let mut found: Vec<&PodFacts> = naming.into_iter().chain(parts).flatten().copied().collect();
        found.sort_by_key(|pod| &pod.uid);
        found.dedup_by_key(|pod| &pod.uid);
        found.into_iter()
    }

    /// Remembers by which names a pod may have claims.
    fn note(&mut self, pod: &'a PodFacts) {
        let default = pod.default_network.as_ref().map(|network| &network.selection);
        let selected =
            pod.selections.iter().chain(default).filter_map(|selection| selection.claim.as_deref());
        for claim in selected.chain(pod.default_claim.as_deref()) {
            self.naming.entry((&pod.namespace, claim)).or_default().push(pod);
        }
        let machine = pod.launcher.as_ref().map(|launcher| launcher.vmi.as_str());
        let replica = pod.stateful_set.as_ref().map(|_| pod.name.as_str());
        for owner in machine.into_iter().chain(replica) {
            self.parts.entry((&pod.namespace, owner)).or_default().push(pod);
        }
    }
}

/// Whether a pod that asks for these addresses may have the claim. If not, agents refuse the pod for good, and it must not take
/// the place of one that comes. Of a claim without addresses they are a wish.
fn may_have(claim: &ClaimFacts, ips: &[Address]) -> bool {
    let has = |ip: &Address| claim.addresses.iter().any(|(address, _)| address == ip);
    !claim.held || claim.addresses.is_empty() || ips.iter().all(has)
}

impl World {
    /// The name of the network of an attachment definition, if it opts in; or that of the cluster's own network.
    pub(crate) fn network(&self, namespace: &str, attachment: &str) -> Option<&str> {
        if (namespace, attachment) == CLUSTER_NETWORK {
            return self.cluster_network.as_deref();
        }
        let known = self.ledgers.attachments.get(&format!("{namespace}/{attachment}"))?;
        known.opted_in.as_ref().ok()?.as_deref().filter(|_| !self.is_refused(known))
    }

    /// Whether a definition has the name of the cluster's own network and says something else of it. It has no say in that
    /// network, whoever made it, and its own users have no claims.
    pub(crate) fn is_refused(&self, attachment: &crate::Attachment) -> bool {
        self.cluster_network.is_some()
            && attachment.network == self.cluster_network
            && !super::speaks_for_cluster(attachment)
    }

    /// Whether any network lets addresses outlive pods.
    pub(crate) fn has_persistent_networks(&self) -> bool {
        let opted_in = |attachment: &crate::Attachment| matches!(attachment.opted_in, Ok(Some(_)));
        self.cluster_network.is_some() || self.ledgers.attachments.iter().any(opted_in)
    }

    /// Whether pods matter.
    pub(crate) fn needs_pods(&self) -> bool {
        let floating = || self.blocks.iter().any(tenure_api::coil::AddressBlock::is_floating);
        self.ledgers.needs_pods() || self.needs_owners() || floating()
    }

    /// Whether owners of claims matter.
    pub(crate) fn needs_owners(&self) -> bool {
        !self.claims.all.is_empty() || self.has_persistent_networks()
    }

    /// Whether it is known which networks opt in.
    pub(crate) fn knows_networks(&self) -> bool {
        self.ledgers.attachments.is_complete() || self.lacks("NetworkAttachmentDefinition")
    }

    /// Whether it is known which pods use which claims. Before, that nobody uses one means nothing.
    pub(crate) fn knows_users(&self) -> bool {
        self.knows_networks() && self.claims.all.is_complete() && self.ledgers.pods.is_complete()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::attachment::Attachment;
    use crate::pods::PodSeen;

    const NETWORKS: &str = "k8s.v1.cni.cncf.io/networks";

    fn world(claims: &[(&str, &str, &str, Option<&str>)]) -> World {
        let mut world = World::of_cluster_network(Some("tenure".to_owned()));
        let nad = json!({
            "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
            "metadata": {"name": "nad", "namespace": "ns"},
            "spec": {"config": json!({"name": "blue", "allowPersistentIPs": true}).to_string()},
        });
        world.ledgers.attachments.apply(Attachment::of(&serde_json::from_value(nad).unwrap()));
        for (name, network, interface, machine) in claims {
            let labels = machine.map(|machine| json!({"kubevirt.io/vm": machine}));
            let claim = json!({
                "apiVersion": "k8s.cni.cncf.io/v1alpha1", "kind": "IPAMClaim",
                "metadata": {"name": name, "namespace": "ns", "uid": name, "labels": labels},
                "spec": {"network": network, "interface": interface},
            });
            let mut claim: tenure_api::claims::IPAMClaim = serde_json::from_value(claim).unwrap();
            claim.metadata.resource_version = Some("1".to_owned());
            world.claims.all.apply(Claim::of(claim));
        }
        world
    }

    fn pod(world: &mut World, namespace: &str, name: &str, annotations: &Value, vmi: Option<&str>) {
        let owner = vmi.map(|vmi| json!([{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": vmi, "uid": vmi}]));
        let pod = json!({
            "metadata": {
                "name": name, "namespace": namespace, "uid": name, "annotations": annotations, "ownerReferences": owner,
            },
            "spec": {"nodeName": "node1"},
        });
        world.ledgers.pods.apply(PodSeen::of(&serde_json::from_value(pod).unwrap()));
    }

    fn users(world: &World, claim: &str) -> Vec<String> {
        let users = Users::of(world);
        users.of_claim(world.claims.get("ns", claim).unwrap()).iter().map(|pod| pod.name.clone()).collect()
    }

    #[test]
    fn a_claim_is_used_by_the_pods_of_its_namespace_that_name_it_on_its_network() {
        let mut world = world(&[("c", "blue", "net1", None), ("d", "tenure", "eth0", None)]);
        let named = |nad: &str, claim: &str| json!({NETWORKS: json!([{"name": nad, "namespace": "ns", "ipam-claim-reference": claim}]).to_string()});
        pod(&mut world, "ns", "a", &named("nad", "c"), None);
        pod(&mut world, "other", "thief", &named("nad", "c"), None);
        pod(&mut world, "ns", "elsewhere", &named("unknown", "c"), None);
        pod(&mut world, "ns", "wrong-network", &named("nad", "d"), None);
        pod(&mut world, "ns", "by-default", &json!({"tenure/claim": "d"}), None);
        pod(&mut world, "ns", "plain", &json!({NETWORKS: "nad"}), None);
        assert_eq!(users(&world, "c"), ["a"]);
        assert_eq!(users(&world, "d"), ["by-default"]);
        let users = Users::of(&world);
        let may: Vec<&str> = users.by_name("ns", "c").map(|pod| pod.name.as_str()).collect();
        assert_eq!(may, ["a", "elsewhere"], "whatever has become of the network");
    }

    #[test]
    fn a_machines_claim_is_used_by_its_launcher_pods_each_interface_by_its_own() {
        let interface = tenure_claims::names::machine_interface;
        let (one, two) = (interface("one"), interface("two"));
        let mut world = world(&[
            ("vm.one", "blue", &one, Some("vm")),
            ("vm.two", "blue", &two, Some("vm")),
            ("vm2.one", "blue", &one, Some("vm2")),
        ]);
        let on =
            |interface: &str| json!({NETWORKS: json!([{"name": "nad", "interface": interface}]).to_string()});
        pod(&mut world, "ns", "a", &on(&one), Some("vm"));
        pod(&mut world, "ns", "b", &on(&two), Some("vm"));
        assert_eq!(
            [users(&world, "vm.one"), users(&world, "vm.two"), users(&world, "vm2.one")],
            [vec!["a".to_owned()], vec!["b".to_owned()], vec![]]
        );
        let users = Users::of(&world);
        assert_eq!(
            users.by_name("ns", "vm.gone").count(),
            2,
            "a claim that is gone says no more of which interface it was"
        );
        assert_eq!(users.by_name("ns", "vm2.one").count(), 0);
    }
}
