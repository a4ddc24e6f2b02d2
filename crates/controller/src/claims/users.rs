//! Which living pods use which claim. It uses the same pure function as agents ([`tenure_claims::references`]), with
//! the networks of attachment definitions and the setting of the cluster's network.
//!
//! Kept for all claims at once, by what each pod refers to. A changed pod, claim or definition affects only the pods
//! related to it.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use tenure_claims::{CLUSTER_NETWORK, ClaimFacts, PodFacts, Reference, Wanted, references};
use tenure_ipam::Address;

use super::known::Claim;
use super::records::owners_of;
use super::sets::{Names, Sets};
use crate::attachment::Attachment;
use crate::world::World;

/// The pods that use claims.
#[derive(Debug, Default)]
pub(crate) struct Users {
    pods: HashMap<Arc<str>, User>,
    /// By `namespace/name` of existing claims: the pods that use them.
    of_claims: Sets<Arc<str>>,
    /// By `namespace/name` of claims, existing or not: the pods that name them.
    naming: Sets<Arc<str>>,
    /// By `namespace/name` of machines and replicas: their pods. The names of their claims begin with it.
    parts: Sets<Arc<str>>,
    /// By `namespace/name` of claims that pods look up, and of machines whose claims they look up: the pods.
    looking: [Sets<Arc<str>>; 2],
    /// By `namespace/name` of attachment definitions: the pods on their networks.
    attached: Sets<Arc<str>>,
    /// By `namespace/name` of machines: their claims.
    machines: Sets<Arc<str>>,
    machine_of: HashMap<Arc<str>, String>,
    /// What is needed of attachment definitions.
    attachments: HashMap<Arc<str>, Attached>,
}

/// What of a definition decides who uses what: its network as written, and whether it is refused.
type Attached = (Option<String>, Result<Option<String>, tenure_claims::opt_in::OptInError>, bool);

/// Everything that one pod relates to.
#[derive(Debug, Default)]
struct User {
    claims: Vec<Arc<str>>,
    named: Vec<String>,
    parts: Vec<String>,
    looking: [Vec<String>; 2],
    attached: Vec<String>,
}

/// What changed, and what that affects.
pub(super) struct Refresh<'a> {
    /// Changed pods that (may) refer to a claim, changed claims and changed definitions.
    pub(super) pods: &'a Names,
    pub(super) claims: &'a Names,
    pub(super) attachments: &'a Names,
    /// Names of the claims that those pods use or may use.
    pub(super) concerned: &'a mut Names,
    /// Owners whose claims they may use by name.
    pub(super) owners: &'a mut Names,
    /// Pods that may use other claims than before.
    pub(super) users: &'a mut Names,
}

impl Users {
    /// Reads what changed.
    pub(super) fn refresh(&mut self, world: &World, refresh: Refresh<'_>) {
        let Refresh { pods, claims, attachments, concerned, owners, users } = refresh;
        users.extend(pods.iter().cloned());
        for key in claims {
            self.refresh_machine(world, key, users);
            users.extend(self.looking[0].of(key).chain(self.naming.of(key)).cloned());
        }
        for key in attachments {
            let known = world.ledgers().attachments.get(key);
            let new = known.map(|it| (it.network.clone(), it.opted_in.clone(), world.is_refused(it)));
            if self.attachments.get(key) == new.as_ref() {
                continue;
            }
            match new {
                Some(new) => _ = self.attachments.insert(key.clone(), new),
                None => _ = self.attachments.remove(key),
            }
            users.extend(self.attached.of(key).cloned());
        }
        for podref in users.iter() {
            let old = self.pods.remove(podref);
            if let Some(user) = &old {
                user.link(podref, self, |sets, key, podref| sets.remove(key, &podref));
            }
            let new = world.ledgers().pods.claim_user(podref).map(|pod| self.user(world, pod));
            if let Some(user) = &new {
                user.link(podref, self, Sets::add);
            }
            for user in old.iter().chain(&new) {
                concerned.extend(user.claims.iter().cloned());
                concerned.extend(user.named.iter().map(|name| name.as_str().into()));
                owners.extend(user.parts.iter().map(|owner| owner.as_str().into()));
            }
            if let Some(user) = new {
                self.pods.insert(podref.clone(), user);
            }
        }
    }

    /// The living pods that refer to an existing claim on its network.
    pub(super) fn of_claim<'a>(
        &'a self,
        world: &'a World,
        claim: &Claim,
    ) -> impl Iterator<Item = &'a PodFacts> + use<'a> {
        self.of_claims.of(&claim.reference()).filter_map(|podref| world.ledgers().pods.claim_user(podref))
    }

    /// The living pods that may have addresses of a claim of this name, whether it still exists or not and whatever
    /// became of its network: those that name it, and those of its machine or replica.
    pub(super) fn by_name<'a>(
        &'a self,
        world: &'a World,
        claim: &str,
    ) -> impl Iterator<Item = &'a PodFacts> + use<'a> {
        let parts = owners_of(claim).flat_map(|owner| self.parts.of(owner));
        let podrefs: Names = self.naming.of(claim).chain(parts).cloned().collect();
        podrefs.into_iter().filter_map(|podref| world.ledgers().pods.claim_user(&podref))
    }

    fn refresh_machine(&mut self, world: &World, key: &Arc<str>, users: &mut Names) {
        let machine = |claim: &Claim| Some(format!("{}/{}", claim.facts.namespace, claim.facts.vm.as_ref()?));
        if let Some(old) = self.machine_of.remove(key) {
            self.machines.remove(&old, key);
            users.extend(self.looking[1].of(&old).cloned());
        }
        if let Some(new) = world.claims().all.get(key).and_then(machine) {
            self.machines.add(&new, key.clone());
            users.extend(self.looking[1].of(&new).cloned());
            self.machine_of.insert(key.clone(), new);
        }
    }

    /// What a pod relates to.
    fn user(&self, world: &World, pod: &PodFacts) -> User {
        let namespace = pod.namespace.as_str();
        let mut user = User::of(pod);
        let asked = RefCell::new(Vec::new());
        let network_of = |namespace: &str, name: &str| {
            asked.borrow_mut().push(format!("{namespace}/{name}"));
            world.network(namespace, name).map(str::to_owned)
        };
        let all = references(pod, network_of);
        user.attached = asked.into_inner();
        for (network, _, wanted) in all {
            let candidates: Vec<Arc<str>> = match &wanted.reference {
                Reference::Named(name) => {
                    let key = format!("{namespace}/{name}");
                    let found = vec![key.as_str().into()];
                    user.looking[0].push(key);
                    found
                }
                Reference::Launcher { vmi, .. } => {
                    let key = format!("{namespace}/{vmi}");
                    let found = self.machines.of(&key).cloned().collect();
                    user.looking[1].push(key);
                    found
                }
            };
            let uses = |key: &Arc<str>| {
                let claim = world.claims().all.get(key);
                claim.is_some_and(|claim| is_wanted(&wanted, &claim.facts, &network))
            };
            user.claims.extend(candidates.into_iter().filter(uses));
        }
        user
    }
}

impl User {
    /// The names under which a pod may have claims.
    fn of(pod: &PodFacts) -> Self {
        let default = pod.default_network.as_ref().map(|network| &network.selection);
        let selected =
            pod.selections.iter().chain(default).filter_map(|selection| selection.claim.as_deref());
        let named = selected.chain(pod.default_claim.as_deref());
        let machine = pod.launcher.as_ref().map(|launcher| launcher.vmi.as_str());
        let replica = pod.stateful_set.as_ref().map(|_| pod.name.as_str());
        let full = |name: &str| format!("{}/{name}", pod.namespace);
        Self {
            named: named.map(full).collect(),
            parts: machine.into_iter().chain(replica).map(full).collect(),
            ..Self::default()
        }
    }

    /// Adds a pod to every set that it belongs to, or removes it.
    fn link(
        &self,
        podref: &Arc<str>,
        users: &mut Users,
        change: impl Fn(&mut Sets<Arc<str>>, &str, Arc<str>),
    ) {
        let Users { of_claims, naming, parts, looking: [by_name, by_machine], attached, .. } = users;
        let [names, machines] = &self.looking;
        let lists = [
            (naming, &self.named),
            (parts, &self.parts),
            (by_name, names),
            (by_machine, machines),
            (attached, &self.attached),
        ];
        for (sets, keys) in lists {
            for key in keys {
                change(sets, key, podref.clone());
            }
        }
        self.claims.iter().for_each(|key| change(of_claims, key, podref.clone()));
    }
}

/// Whether an interface should and may have this claim.
fn is_wanted(wanted: &Wanted, claim: &ClaimFacts, network: &str) -> bool {
    wanted.reference.is(claim, network) && may_have(claim, &wanted.ips)
}

/// Whether a pod that asks for these addresses may use the claim. If not, agents always refuse the pod, and it must
/// not block one that may. For a claim without addresses they are a wish.
fn may_have(claim: &ClaimFacts, ips: &[Address]) -> bool {
    let has = |ip: &Address| claim.addresses.iter().any(|(address, _)| address == ip);
    !claim.held || claim.addresses.is_empty() || ips.iter().all(has)
}

impl World {
    /// The name of an attachment definition's network if it opts in, or of the cluster's own network.
    pub(crate) fn network(&self, namespace: &str, attachment: &str) -> Option<&str> {
        if (namespace, attachment) == CLUSTER_NETWORK {
            return self.claims().cluster_network.as_deref();
        }
        let known = self.ledgers().attachments.get(&format!("{namespace}/{attachment}"))?;
        known.opted_in.as_ref().ok()?.as_deref().filter(|_| !self.is_refused(known))
    }

    /// Whether a definition has the name of the cluster's own network and contradicts the setting. It does not speak
    /// for that network, and its own users have no claims.
    pub(crate) fn is_refused(&self, attachment: &Attachment) -> bool {
        self.claims().cluster_network.is_some()
            && attachment.network == self.claims().cluster_network
            && !super::speaks_for_cluster(attachment)
    }

    /// Whether any network lets addresses outlive pods.
    pub(crate) fn has_persistent_networks(&self) -> bool {
        self.claims().cluster_network.is_some() || self.claims().persistence.look(self).has_networks()
    }

    /// Whether pods have to be watched.
    pub(crate) fn needs_pods(&self) -> bool {
        self.ledgers().needs_pods()
            || self.needs_owners()
            || self.aliases().is_used()
            || self.claims().persistence.look(self).has_blocks()
    }

    /// Whether owners of claims have to be watched.
    pub(crate) fn needs_owners(&self) -> bool {
        !self.claims().all.is_empty() || self.has_persistent_networks()
    }

    /// Whether it is known which networks opt in.
    pub(crate) fn knows_networks(&self) -> bool {
        self.ledgers().attachments.is_complete() || self.lacks("NetworkAttachmentDefinition")
    }

    /// Whether it is known which pods use which claims. Before, "no user" means nothing.
    pub(crate) fn knows_users(&self) -> bool {
        self.knows_networks() && self.claims().all.is_complete() && self.ledgers().pods.is_complete()
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
        world.ledgers_mut().attachments.apply(Attachment::of(&serde_json::from_value(nad).unwrap()));
        for (name, network, interface, machine) in claims {
            let labels = machine.map(|machine| json!({"kubevirt.io/vm": machine}));
            let claim = json!({
                "apiVersion": "k8s.cni.cncf.io/v1alpha1", "kind": "IPAMClaim",
                "metadata": {"name": name, "namespace": "ns", "uid": name, "labels": labels},
                "spec": {"network": network, "interface": interface},
            });
            let mut claim: tenure_api::claims::IPAMClaim = serde_json::from_value(claim).unwrap();
            claim.metadata.resource_version = Some("1".to_owned());
            world.claims_mut().all.apply(Claim::of(claim));
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
        world.ledgers_mut().pods.apply(PodSeen::of(&serde_json::from_value(pod).unwrap()));
    }

    fn all(world: &World) -> Users {
        let mut users = Users::default();
        let claims = world.claims().all.iter().map(|claim| claim.reference().into()).collect();
        let pods = world.ledgers().pods.claim_users();
        let pods = pods.map(|pod| format!("{}/{}", pod.namespace, pod.name).into()).collect();
        let [mut concerned, mut owners, mut found] = [Names::new(), Names::new(), Names::new()];
        let refresh = Refresh {
            pods: &pods,
            claims: &claims,
            attachments: &Names::new(),
            concerned: &mut concerned,
            owners: &mut owners,
            users: &mut found,
        };
        users.refresh(world, refresh);
        users
    }

    fn users(world: &World, claim: &str) -> Vec<String> {
        let users = all(world);
        let claim = world.claims().get("ns", claim).unwrap();
        users.of_claim(world, claim).map(|pod| pod.name.clone()).collect()
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
        let users = all(&world);
        let may: Vec<&str> = users.by_name(&world, "ns/c").map(|pod| pod.name.as_str()).collect();
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
        let users = all(&world);
        assert_eq!(
            users.by_name(&world, "ns/vm.gone").count(),
            2,
            "a claim that is gone says no more of which interface it was"
        );
        assert_eq!(users.by_name(&world, "ns/vm2.one").count(), 0);
    }
}
