//! What may happen.

use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Namespace, Node};
use kube::ResourceExt;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::Event;
use serde_json::{Value, json};
use tenure_api::claims::{IPAMClaim, SLICE_OWNER, annotation};
use tenure_api::coil::{AddressBlock, AddressPool};
use tenure_api::networks::NetworkAttachmentDefinition;
use tenure_api::whereabouts::{IPPool, OverlappingRangeIPReservation};
use tenure_claims::status::{self, RecordLocation};
use tenure_claims::{Slot, Slots};

use super::super::super::owners::{VirtualMachine, VirtualMachineInstance};
use super::Cluster;
use crate::kind::Kind;
use crate::pods::PodBrief;

const NAMESPACES: [&str; 2] = ["ns", "other"];
const NODES: [&str; 3] = ["n1", "n2", "n3"];
const CLAIMS: [&str; 7] = ["a", "b", "c", "vm.pod", "vm.cut", "set-0.cluster.eth0", "set-1.cluster.eth0"];
const PODS: [&str; 5] = ["p", "q", "r", "set-0", "set-1"];
const NETWORKS: [&str; 6] = ["cluster", "shared", "cut", "routed", "pair", "nowhere"];
const WISHES: [&str; 8] = [
    "10.0.0.1",
    "10.0.0.6",
    "10.9.0.2",
    "10.1.0.3",
    "10.2.0.5",
    "10.2.0.13",
    "10.2.0.5,10.3.0.6",
    "nonsense",
];

impl Cluster {
    /// Something happens.
    pub(super) fn happen(&mut self) {
        match self.below(60) {
            0..9 => self.put_claim(),
            9..13 => self.delete_claim(),
            13..15 => self.forge(),
            15..23 => self.put_pod(),
            23..28 => self.delete_pod(),
            28..31 => {
                let name = self.one_of(&NODES);
                match self.world.nodes().get(name).cloned() {
                    Some(node) if self.below(2) == 0 => Node::observe(&mut self.world, Event::Delete(node)),
                    _ => self.put::<Node>(json!({"metadata": {"name": name, "uid": name}})),
                }
            }
            31..34 => {
                let (name, variant) =
                    (self.one_of(&["shared", "cut", "routed", "pair", "thief"]), self.below(5));
                self.define(name, variant);
            }
            34 => {
                let name = self.one_of(&NAMESPACES);
                let pool = self.one_of(&["default", "second", "absent"]);
                self.namespace(name, Some(pool).filter(|_| self.below(2) == 0));
            }
            35 => self.delete_namespace(),
            36..38 => {
                let more: &[&str] =
                    if self.below(2) == 0 { &["10.0.0.0/29"] } else { &["10.0.0.0/29", "10.9.0.0/30"] };
                let deleting = self.below(8) == 0;
                self.pool(["default", "second"][self.below(2)], more, deleting);
            }
            38..40 => self.block_of_node(),
            40..42 => self.edit_block(),
            42..45 => self.edit_ledger(),
            45 => self.edit_slices(),
            46 => self.reserve(),
            47..51 => self.own(),
            51 => self.list_again(),
            _ => self.now += [5, 500, 1_000, 2_000, 3_000, 30_000, 61_000, 130_000][self.below(8)],
        }
    }

    fn put_claim(&mut self) {
        let (namespace, name) = (NAMESPACES[self.below(8) / 7], self.one_of(&CLAIMS));
        let wish = Some(self.one_of(&WISHES)).filter(|_| self.below(4) == 0);
        let vm = Some("vm").filter(|_| name.starts_with("vm") || self.below(8) == 0);
        if let Some(known) = self.world.claims().get(namespace, name).filter(|_| self.below(4) > 0) {
            let mut claim = known.object.clone();
            if self.below(3) == 0 {
                claim.metadata.deletion_timestamp = Some(crate::plan::time(self.timestamp()));
            }
            claim.spec.network = self.one_of(&NETWORKS).to_owned();
            return self.put_object(claim);
        }
        self.put::<IPAMClaim>(json!({
            "apiVersion": "k8s.cni.cncf.io/v1alpha1", "kind": "IPAMClaim",
            "metadata": {
                "name": name, "namespace": namespace, "labels": vm.map(|vm| json!({"kubevirt.io/vm": vm})),
                "annotations": wish.map(|wish| json!({annotation::IPS: wish})),
            },
            "spec": {"network": self.one_of(&NETWORKS), "interface": self.one_of(&["eth0", "net1", ""])},
        }));
    }

    fn some_claim(&self) -> Option<IPAMClaim> {
        let all: Vec<_> = self.world.claims().all.iter().collect();
        all.get(self.below(all.len())).map(|claim| claim.object.clone())
    }

    fn delete_claim(&mut self) {
        if let Some(claim) = self.some_claim() {
            self.remove(claim);
        }
    }

    /// Somebody overwrites a claim's status or its users.
    fn forge(&mut self) {
        let Some(mut claim) = self.some_claim() else { return };
        if self.below(2) == 0 {
            let address = self.one_of(&WISHES[..4]).parse().unwrap();
            let place = RecordLocation::Block("default-0".to_owned());
            let mut status = status::allocated(&claim, &[(address, 32)], &[place], self.timestamp());
            if self.below(2) == 0 {
                status.conditions.clear();
            }
            claim.status = Some(status);
        } else {
            let pod = self.one_of(&PODS).to_owned();
            let slot = |uid: &str| Slot {
                uid: uid.to_owned(),
                pod: pod.clone(),
                node: "n1".to_owned(),
                stamp: None,
            };
            let slots =
                Slots { active: Some(slot(self.one_of(&["p-1", "q-1", "made-up"]))), ..Slots::default() };
            claim.annotations_mut().insert(annotation::HOLDERS.to_owned(), slots.to_annotation());
        }
        self.put_object(claim);
    }

    fn put_pod(&mut self) {
        let (namespace, name) = (NAMESPACES[self.below(8) / 7], self.one_of(&PODS));
        let uid = format!("{name}-{}", self.below(3));
        let mut annotations = json!({});
        match self.below(5) {
            0 | 1 => annotations[annotation::CLAIM] = json!(self.one_of(&CLAIMS)),
            2 => {
                let of_claim = json!({
                    "name": self.one_of(&["shared", "cut", "routed", "pair", "thief"]), "namespace": "ns",
                    "interface": self.one_of(&["net1", "net2"]), "ipam-claim-reference": self.one_of(&CLAIMS),
                });
                annotations[annotation::NETWORKS] = json!(json!([of_claim]).to_string());
            }
            3 => annotations[annotation::KEEP_ADDRESSES] = json!("true"),
            _ => {}
        }
        if self.below(3) == 0 {
            let address = self.one_of(&WISHES[..6]);
            let status = json!([{"name": "x", "interface": "net1", "ips": [address]}]);
            annotations["k8s.v1.cni.cncf.io/network-status"] = json!(status.to_string());
        }
        if self.below(6) == 0 {
            annotations[annotation::ACTIVE] = json!(self.one_of(&["2026-01-01T00:00:00Z", "sometime"]));
        }
        let owner = match self.below(4) {
            0 => {
                json!([{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": "vm", "uid": "i"}])
            }
            1 => json!([{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "set", "uid": "s"}]),
            _ => Value::Null,
        };
        let node = Some(self.one_of(&NODES)).filter(|_| self.below(5) > 0);
        self.put::<PodBrief>(json!({
            "metadata": {
                "name": name, "namespace": namespace, "uid": uid, "annotations": annotations, "ownerReferences": owner,
            },
            "spec": {"nodeName": node},
        }));
    }

    fn delete_pod(&mut self) {
        let (namespace, name) = (NAMESPACES[self.below(8) / 7], self.one_of(&PODS));
        PodBrief::observe_gone(&mut self.world, namespace, name, "");
    }

    /// A definition is created, changed or deleted.
    pub(super) fn define(&mut self, name: &str, variant: usize) {
        let namespace = NAMESPACES[self.below(10) / 9];
        let key = format!("{namespace}/{name}");
        let known = self.world.ledgers().attachments.get(&key).map(|it| it.definition.uid.clone());
        if let Some(uid) = known.filter(|_| variant == 4) {
            return NetworkAttachmentDefinition::observe_gone(&mut self.world, namespace, name, &uid);
        }
        let mut config = match name {
            "shared" => json!({"ipam": {"type": "whereabouts", "range": "10.1.0.0/29"}}),
            "cut" => {
                json!({"ipam": {"type": "whereabouts", "range": "10.2.0.0/28", "node_slice_size": "/30"}})
            }
            "pair" => {
                json!({"ipam": {"type": "whereabouts", "node_slice_size": "/30", "network_name": "pair",
                "ipRanges": [{"range": "10.2.0.0/28"}, {"range": "10.3.0.0/28"}]}})
            }
            "routed" => json!({"type": "tenure", "pool": "second"}),
            _ => json!({"name": "cluster", "ipam": {"type": "whereabouts", "range": "10.1.0.0/29"}}),
        };
        config["allowPersistentIPs"] = match variant {
            1 => json!(false),
            2 => json!("maybe"),
            _ => json!(true),
        };
        if variant == 3 {
            config["ipam"]["exclude"] = json!(["10.1.0.2/32"]);
            config["role"] = json!("primary");
        }
        if config.get("type").is_none() {
            config["type"] = json!("macvlan");
        }
        if config.get("name").is_none() {
            config["name"] = json!(name);
        }
        self.put::<NetworkAttachmentDefinition>(json!({
            "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
            "metadata": {"name": name, "namespace": namespace, "uid": key},
            "spec": {"config": config.to_string()},
        }));
    }

    pub(super) fn namespace(&mut self, name: &str, pool: Option<&str>) {
        let annotations = pool.map(|pool| json!({"coil.cybozu.com/pool": pool}));
        self.put::<PartialObjectMeta<Namespace>>(json!({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": name, "uid": name, "annotations": annotations},
        }));
    }

    fn delete_namespace(&mut self) {
        let name = self.one_of(&NAMESPACES);
        // A forgotten object may come back under its UID here, so it takes another list.
        PartialObjectMeta::<Namespace>::observe(&mut self.world, Event::Init);
        for other in NAMESPACES.into_iter().filter(|other| *other != name) {
            let known = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": other, "uid": other, "resourceVersion": "1"}});
            let known = serde_json::from_value(known).unwrap();
            PartialObjectMeta::<Namespace>::observe(&mut self.world, Event::InitApply(known));
        }
        PartialObjectMeta::<Namespace>::observe(&mut self.world, Event::InitDone);
    }

    pub(super) fn pool(&mut self, name: &str, subnets: &[&str], deleting: bool) {
        let subnets: Vec<_> = subnets.iter().map(|subnet| json!({"ipv4": subnet})).collect();
        let rest = Some("1m").filter(|_| self.below(4) == 0);
        let spec = json!({"blockSizeBits": 1, "subnets": subnets, "cooling": rest});
        let mut pool = AddressPool::new(name, serde_json::from_value(spec).unwrap());
        if let Some(known) = self.world.coil().pools.get(name) {
            pool.metadata = known.metadata.clone();
        }
        if deleting {
            pool.metadata.deletion_timestamp = Some(crate::plan::time(self.timestamp()));
        }
        self.put_object(pool);
    }

    /// A node gets or returns a block.
    fn block_of_node(&mut self) {
        let of_nodes: Vec<AddressBlock> =
            self.world.coil().blocks.iter().filter(|block| block.node().is_some()).cloned().collect();
        if let Some(block) = of_nodes.get(self.below(of_nodes.len())).filter(|_| self.below(2) == 0) {
            return self.remove(block.clone());
        }
        let (name, index) = (["default", "second"][self.below(2)], self.below(5) as u128);
        let taken = self.world.coil().blocks.get(&tenure_api::coil::block_name(name, index)).is_some();
        if let Some(pool) = self.world.coil().pools.get(name).filter(|_| !taken)
            && let Ok(block) = AddressBlock::carve(pool, index, "n1", None)
        {
            self.put_object(block);
        }
    }

    /// Somebody edits a floating block, or deletes it.
    fn edit_block(&mut self) {
        let floating: Vec<AddressBlock> =
            self.world.coil().blocks.iter().filter(|block| block.is_floating()).cloned().collect();
        let Some(mut block) = floating.get(self.below(floating.len())).cloned() else { return };
        let freed = crate::plan::time(self.timestamp()).0;
        let pod = json!({"name": "p", "uid": "p-1", "node": self.one_of(&NODES)});
        match (self.below(5), block.spec.claims.values_mut().next()) {
            (0, _) => return self.remove(block),
            (1, _) => block.metadata.deletion_timestamp = Some(crate::plan::time(self.timestamp())),
            (2, Some(record)) => {
                record.freed = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime(freed));
            }
            (3, Some(record)) => record.pods.push(serde_json::from_value(pod).unwrap()),
            (_, Some(record)) => record.uid = "uid-of-nobody".to_owned(),
            _ => {}
        }
        self.put_object(block);
    }

    /// Pods get and return addresses of ledgers, ledgers come and go, and somebody edits a record.
    fn edit_ledger(&mut self) {
        let all: Vec<IPPool> = self.world.ledgers().pools.iter().map(|it| it.pool.clone()).collect();
        let Some(mut ledger) = all.get(self.below(all.len())).filter(|_| self.below(8) > 0).cloned() else {
            let (range, label) = [("10.1.0.0/29", "false"), ("10.2.0.8/30", "true")][self.below(2)];
            let name = range.replace('/', "-");
            let labels = (label == "true").then(|| json!({"tenure/floating": label}));
            return self.put::<IPPool>(json!({
                "metadata": {"name": name, "uid": name, "labels": labels},
                "spec": {"range": range, "allocations": {}},
            }));
        };
        let key = self.below(8).to_string();
        let pod = json!({"name": "p", "uid": "p-1", "node": self.one_of(&NODES)});
        match self.below(6) {
            0 => return self.remove(ledger),
            1 | 2 => {
                let record = json!({"id": "container", "podref": "ns/q", "ifname": "net1"});
                ledger.spec.allocations.entry(key).or_insert(serde_json::from_value(record).unwrap());
            }
            3 => _ = ledger.spec.allocations.pop_first(),
            4 => {
                let record = json!({"id": "claim/uid-of-nobody", "podref": format!("ns/{}", self.one_of(&CLAIMS)), "pods": [pod]});
                ledger.spec.allocations.insert(key, serde_json::from_value(record).unwrap());
            }
            _ => {
                if let Some(record) = ledger.spec.allocations.values_mut().next() {
                    record.pods.push(serde_json::from_value(pod).unwrap());
                }
            }
        }
        self.put_object(ledger);
    }

    /// Somebody takes slices, or gives them to claims.
    fn edit_slices(&mut self) {
        let all: Vec<_> = self.world.ledgers().slices.iter().cloned().collect();
        let Some(mut pool) = all.get(self.below(all.len())).cloned() else { return };
        let slices = pool.status.iter_mut().flat_map(|status| &mut status.allocations);
        let mut slices: Vec<_> = slices.collect();
        let (which, node) = (self.below(slices.len()), self.one_of(&["", "n1", SLICE_OWNER, "elsewhere"]));
        if let Some(slice) = slices.get_mut(which) {
            slice.node_name = node.to_owned();
        }
        self.put_object(pool);
    }

    fn reserve(&mut self) {
        let known: Vec<_> = self.world.ledgers().reservations.iter().cloned().collect();
        if let Some(known) = known.get(self.below(known.len())).filter(|_| self.below(2) == 0) {
            return self.remove(known.clone());
        }
        let name = format!("10.1.0.{}", self.below(8));
        self.put::<OverlappingRangeIPReservation>(json!({
            "metadata": {"name": name, "namespace": "kube-system", "uid": format!("{name}-{}", self.version)},
            "spec": {"containerid": "x", "podref": "ns/q", "ifname": "net1"},
        }));
    }

    /// Owners of claims come, change and go.
    fn own(&mut self) {
        let networks = json!([
            {"name": "pod", "pod": {}}, {"name": "cut", "multus": {"networkName": self.one_of(&["cut", "shared", "routed"])}},
        ]);
        let interfaces = json!([{"name": "cut", "state": self.one_of(&["up", "absent"])}]);
        let spec = json!({"networks": networks, "domain": {"devices": {"interfaces": interfaces}}});
        let deleted = Some("2026-01-01T00:00:00Z").filter(|_| self.below(4) == 0);
        let uid = format!("m-{}", self.below(2));
        let metadata = json!({"name": "vm", "namespace": "ns", "uid": uid, "deletionTimestamp": deleted});
        let goes = self.below(3) == 0;
        match self.below(4) {
            0 if goes => VirtualMachine::observe_gone(&mut self.world, "ns", "vm", &uid),
            0 => self.put::<VirtualMachine>(json!({
                "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": metadata, "spec": {"template": {"spec": spec}},
            })),
            1 if goes => VirtualMachineInstance::observe_gone(&mut self.world, "ns", "vm", &uid),
            1 => self.put::<VirtualMachineInstance>(json!({
                "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": metadata, "spec": spec,
            })),
            2 => {
                let policy = json!({"whenScaled": "Delete", "whenDeleted": self.one_of(&["Delete", "Retain"])});
                let keeps = self.one_of(&["true", "false"]);
                let template = json!({"metadata": {"annotations": {annotation::KEEP_ADDRESSES: keeps}}});
                self.put::<StatefulSet>(json!({
                    "metadata": {"name": "set", "namespace": "ns", "uid": "s"},
                    "spec": {
                        "replicas": self.below(3), "template": template, "persistentVolumeClaimRetentionPolicy": policy,
                        "selector": {}, "serviceName": "",
                    },
                }));
            }
            _ => {
                let name = if goes { "ipam-claims.k8s.cni.cncf.io" } else { "another" };
                let webhook = json!({
                    "name": name, "admissionReviewVersions": ["v1"], "clientConfig": {}, "sideEffects": "None",
                });
                self.put::<MutatingWebhookConfiguration>(json!({"metadata": {"name": "w", "uid": "w"}, "webhooks": [webhook]}));
            }
        }
    }

    /// A list returns all objects, or most of them.
    fn list_again(&mut self) {
        fn list<K: Kind>(cluster: &mut Cluster, all: Vec<K>) {
            let without = cluster.below(4 * all.len() + 1);
            K::observe(&mut cluster.world, Event::Init);
            for (number, object) in all.into_iter().enumerate() {
                if number != without {
                    K::observe(&mut cluster.world, Event::InitApply(object));
                }
            }
            K::observe(&mut cluster.world, Event::InitDone);
        }
        match self.below(4) {
            0 => list(self, self.world.claims().all.iter().map(|it| it.object.clone()).collect()),
            1 => list(self, self.world.coil().blocks.iter().cloned().collect()),
            2 => list(
                self,
                self.world.ledgers().pools.iter().filter(|it| it.whole).map(|it| it.pool.clone()).collect(),
            ),
            _ => {
                PodBrief::observe(&mut self.world, Event::Init);
                PodBrief::observe(&mut self.world, Event::InitDone);
            }
        }
    }
}
