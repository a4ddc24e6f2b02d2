//! Afterwards: claims, records, agents, journals, kernels and those who live say the same.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use serde_json::Value;
use tenure_api::claims::{IPAMClaim, SLICE_OWNER, annotation, label};
use tenure_api::coil::AddressBlock;
use tenure_api::whereabouts::{IPPool, NodeSlicePool};
use tenure_claims::ClaimFacts;

use crate::networks::{NAMESPACE, Network};
use crate::oracle::Living;
use crate::place::ChaosBed;
use tenure_tests::agent::Machine;
use tenure_tests::chaos::looks::{every, journal_of, unwell, view_of};
use tenure_tests::claim_records::records;

/// How long a pod may be silent.
const ANSWERS: Duration = Duration::from_secs(5);

/// What the API has, all of one moment or nearly so.
pub struct Objects {
    claims: BTreeMap<String, (IPAMClaim, ClaimFacts)>,
    pods: BTreeMap<String, Pod>,
    records: BTreeMap<IpAddr, String>,
    blocks: Vec<AddressBlock>,
    ledgers: Vec<IPPool>,
    slices: Vec<NodeSlicePool>,
}

impl Objects {
    pub fn read(place: &ChaosBed<'_>) -> Result<Self, String> {
        let (all, client) = (ListParams::default(), place.cluster.client.clone());
        place.cluster.runtime.block_on(async {
            let records = records(&client).await.map_err(|error| format!("{error:#}"))?;
            let ledgers: Api<IPPool> = Api::namespaced(client.clone(), "kube-system");
            let slices: Api<NodeSlicePool> = Api::namespaced(client, "kube-system");
            let (claims, pods, blocks) = (place.claims(), place.pods(), place.cluster.blocks());
            let read = tokio::try_join!(
                claims.list(&all),
                pods.list(&all),
                blocks.list(&all),
                ledgers.list(&all),
                slices.list(&all)
            );
            let (claims, pods, blocks, ledgers, slices) = read.map_err(|error| error.to_string())?;
            let claim = |claim: IPAMClaim| (claim.uid().unwrap(), (claim.clone(), ClaimFacts::of(&claim)));
            Ok(Self {
                claims: claims.items.into_iter().map(claim).collect(),
                pods: pods.items.into_iter().map(|pod| (pod.uid().unwrap(), pod)).collect(),
                records,
                blocks: blocks.items,
                ledgers: ledgers.items,
                slices: slices.items,
            })
        })
    }

    /// The node on which packets for a claim arrive.
    fn active(&self, uid: &str) -> Option<&str> {
        self.claims.get(uid)?.1.slots.active.as_ref().map(|slot| slot.node.as_str())
    }

    /// What of claims does not agree with the records and with those who live.
    pub fn unlike(&self, living: &[Living]) -> Vec<String> {
        let mut found = Vec::new();
        for (uid, (claim, facts)) in &self.claims {
            let who = format!("claim {} ({uid})", facts.name);
            let on_record: BTreeSet<IpAddr> =
                self.records.iter().filter(|(_, it)| it.contains(uid.as_str())).map(|(at, _)| *at).collect();
            let says: BTreeSet<IpAddr> = facts.addresses.iter().map(|(it, _)| IpAddr::from(*it)).collect();
            if facts.held && (on_record != says || says.len() != 2) {
                found.push(format!("{who} says {says:?}, on record is {on_record:?}"));
            }
            if !facts.held && !on_record.is_empty() {
                found.push(format!("{who} has no addresses, on record is {on_record:?}"));
            }
            if !facts.held && !self.is_refused_rightly(claim, facts, uid) {
                found.push(format!("{who} is refused without a reason: {:?}", claim.status));
            }
            self.of_slots(&who, claim, facts, living, &mut found);
        }
        for (address, record) in &self.records {
            let of = |it: &Living| {
                let claim = it.claim.as_ref().is_some_and(|(_, uid)| record.contains(uid.as_str()));
                let own = it.claim.is_none() && record.contains(&format!("{NAMESPACE}/{}", it.pod));
                // Of a pod that says nothing nobody knows which claim of that name it had.
                let perhaps = it.silent
                    && it
                        .claim
                        .as_ref()
                        .is_some_and(|(name, _)| record.contains(&format!("{NAMESPACE}/{name} ")));
                perhaps || it.addresses.contains(address) && (claim || own)
            };
            if !self.claims.keys().any(|uid| record.contains(uid.as_str())) && !living.iter().any(of) {
                found.push(format!("{address} is on record for nobody: {record}"));
            }
        }
        found
    }

    fn of_slots(
        &self,
        who: &str,
        claim: &IPAMClaim,
        facts: &ClaimFacts,
        living: &[Living],
        found: &mut Vec<String>,
    ) {
        let slots = &facts.slots;
        for slot in slots.both() {
            let node = self.pods.get(&slot.uid).and_then(|pod| pod.spec.as_ref()?.node_name.as_ref());
            if node != Some(&slot.node) {
                found.push(format!("{who} has {slot:?} in a slot, whose pod is on {node:?}"));
            }
        }
        // A claim that is made later under the same name does not let in whoever has addresses of the one before.
        let refers = |it: &&Living| it.claim.as_ref().is_some_and(|(_, uid)| *uid == facts.uid);
        for pod in living.iter().filter(refers).filter(|pod| facts.held && !slots.has(&pod.uid)) {
            found.push(format!("{who} has not let {} in: {slots:?}", pod.pod));
        }
        if slots.active.is_none() && slots.incoming.is_some() {
            found.push(format!("{who} has nobody active: {slots:?}"));
        }
        let owner = claim.status.as_ref().map(|status| serde_json::json!(status)["ownerPod"]["name"].clone());
        let owner = owner.as_ref().and_then(Value::as_str);
        if facts.held && owner != slots.active.as_ref().map(|slot| slot.pod.as_str()) {
            found.push(format!("{who} says that {owner:?} has it: {slots:?}"));
        }
    }

    /// Whether somebody else has what a claim wishes for.
    fn is_refused_rightly(&self, claim: &IPAMClaim, facts: &ClaimFacts, uid: &str) -> bool {
        let condition = claim.status.as_ref().and_then(|status| status.condition("IPsAllocated"));
        if condition.is_none_or(|it| it.status != "False" || it.reason != "IPAddressConflict") {
            return false;
        }
        let annotated = claim.annotations().get(annotation::IPS);
        let wishes = annotated.into_iter().filter_map(|text| text.parse().ok());
        let mut wishes = wishes.chain(facts.addresses.iter().map(|(it, _)| IpAddr::from(*it)));
        let of_node = |address: IpAddr| {
            let blocks = self.blocks.iter().filter(|block| !block.is_floating());
            let blocks = blocks.flat_map(|block| [&block.spec.ipv4, &block.spec.ipv6]).flatten().cloned();
            let slices =
                self.slices.iter().flat_map(|pool| pool.status.iter().flat_map(|it| &it.allocations));
            let slices = slices.filter(|it| !it.node_name.is_empty() && it.node_name != SLICE_OWNER);
            let mut owned = blocks.chain(slices.map(|it| it.slice_range.clone()));
            owned.any(|network| network.parse::<IpNet>().is_ok_and(|network| network.contains(&address)))
        };
        wishes.any(|wish| self.records.get(&wish).is_some_and(|it| !it.contains(uid)) || of_node(wish))
    }

    /// All claims, records and pods, a line each: for whoever has to understand a failure.
    pub fn told(&self) -> String {
        let claims = self.claims.iter().map(|(uid, (claim, facts))| {
            let made = &claim.metadata.creation_timestamp;
            format!("claim {} {uid}, made {made:?}: {:?}, {:?}", facts.name, facts.slots, claim.status)
        });
        let records = self.records.iter().map(|(address, record)| format!("{address}: {record}"));
        let pods = self.pods.iter().map(|(uid, pod)| {
            let made = &pod.metadata.creation_timestamp;
            format!("pod {} {uid}, made {made:?}: {:?}", pod.name_any(), pod.annotations())
        });
        claims.chain(records).chain(pods).collect::<Vec<_>>().join("\n")
    }

    /// What is left although there is no claim and no pod any more.
    pub fn left_over(&self) -> Vec<String> {
        let records = self.records.iter().map(|(address, record)| format!("{address}: {record}"));
        let blocks = self
            .blocks
            .iter()
            .filter(|block| block.is_floating())
            .map(|block| format!("floating block {} with {:?}", block.name_any(), block.spec.claims));
        let floating = |ledger: &&IPPool| ledger.labels().contains_key(label::FLOATING);
        let ledgers = self.ledgers.iter().filter(floating).map(|it| format!("ledger {}", it.name_any()));
        let ours = |pool: &&NodeSlicePool| {
            pool.status.iter().flat_map(|it| &it.allocations).any(|it| it.node_name == SLICE_OWNER)
        };
        let slices = self.slices.iter().filter(ours).map(|it| format!("a slice of {}", it.name_any()));
        records.chain(blocks).chain(ledgers).chain(slices).collect()
    }
}

/// What one interface has, as agent and journal know it: addresses, the claim's UID, and whether packets arrive there.
type ClaimUses = BTreeMap<String, (BTreeSet<IpAddr>, String, bool)>;

/// Everything that differs on a node from those who live there.
pub fn of_node(place: &ChaosBed<'_>, objects: &Objects, living: &[Living], node: usize) -> Vec<String> {
    let (machine, mut found) = (&place.machines[node], Vec::new());
    let here: Vec<&Living> = living.iter().filter(|it| it.node == node).collect();
    match (view_of(machine), journal_of(machine)) {
        (Ok(view), Ok(image)) => {
            found.extend(unwell(&view));
            let (agent, journal) = (claim_users_of_view(&view), claim_users_of_journal(&image));
            if agent != journal {
                found.push(format!("the agent has claim uses {agent:?}, the journal {journal:?}"));
            }
            of_claim_users(&agent, &here, (place, objects), &mut found);
            of_tables(place, machine, (&agent, &here), &mut found);
        }
        (view, image) => found.extend([view.err(), image.err()].into_iter().flatten()),
    }
    of_remote_routes(machine, objects, living, node, &mut found);
    let links = machine.links().iter().filter(|name| name.starts_with("tnr")).count();
    let routed = here.iter().filter(|it| it.network == Network::Routed).count();
    if links != routed {
        found.push(format!("{links} links for {routed} pods"));
    }
    if machine.tombstones() != 0 {
        found.push(format!("{} tombstones", machine.tombstones()));
    }
    found.into_iter().map(|problem| format!("{}: {problem}", machine.name)).collect()
}

fn claim_users_of_view(view: &Value) -> ClaimUses {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let claim_uses = every(&view["holds"]).into_iter().filter(|hold| !hold["claim"].is_null());
    let claim_use = |hold: Value| {
        let addresses = every(&hold["addresses"]).iter().flat_map(|it| text(it).parse()).collect();
        let claim = &hold["claim"];
        (text(&hold["container"]), (addresses, text(&claim["uid"]), claim["reached"] == true))
    };
    claim_uses.map(claim_use).collect()
}

fn claim_users_of_journal(image: &tenure_agent::journal::Image) -> ClaimUses {
    let claim_use = |it: &tenure_agent::journal::ClaimUseRecord| {
        let addresses = it.addresses.iter().map(|(address, _)| IpAddr::from(*address)).collect();
        (it.key.container().to_owned(), (addresses, it.claim.clone(), it.reached))
    };
    // One without addresses is an interface that was found, and of which nothing else is known.
    image.claim_uses().filter(|it| !it.addresses.is_empty()).map(claim_use).collect()
}

/// Claim users are those who live, and packets arrive at the active ones.
fn of_claim_users(
    claim_uses: &ClaimUses,
    here: &[&Living],
    (place, objects): (&ChaosBed<'_>, &Objects),
    found: &mut Vec<String>,
) {
    let mut left: BTreeSet<&String> = claim_uses.keys().collect();
    for it in here {
        let Some((_, uid)) = &it.claim else { continue };
        left.remove(&it.container);
        let Some((addresses, claim, reached)) = claim_uses.get(&it.container) else {
            if !place.is_forgotten(it) {
                found.push(format!("no claim user for {it:?}"));
            }
            continue;
        };
        if (addresses, claim) != (&it.addresses, uid) {
            found.push(format!("the claim user has {addresses:?} of {claim} for {it:?}"));
        }
        if let Some((_, facts)) = objects.claims.get(uid)
            && facts.slots.is_active(&it.uid) != *reached
        {
            found.push(format!("reached is {reached} for {it:?}, and the claim has {:?}", facts.slots));
        }
    }
    found
        .extend(left.into_iter().map(|it| format!("a claim user without a pod: {it}: {:?}", claim_uses[it])));
}

/// Exactly those routes are there that lead to pods at which packets are to arrive.
fn of_tables(
    place: &ChaosBed<'_>,
    machine: &Machine<'_>,
    (claim_uses, here): (&ClaimUses, &[&Living]),
    found: &mut Vec<String>,
) {
    let reached = |it: &Living| {
        it.claim.is_none() || claim_uses.get(&it.container).is_some_and(|claim_use| claim_use.2)
    };
    let routed: Vec<&&Living> =
        here.iter().filter(|it| it.network == Network::Routed && reached(it)).collect();
    let texts = |of: &dyn Fn(&Living) -> bool| {
        let all = routed.iter().filter(|it| of(it)).flat_map(|it| &it.addresses).map(ToString::to_string);
        let mut all: Vec<String> = all.collect();
        all.sort();
        all
    };
    // What an agent has forgotten it leaves as it is, and does not export.
    let unknown = |it: &&&Living| {
        it.claim.is_some() && place.is_forgotten(it) && !claim_uses.contains_key(&it.container)
    };
    let unknown = here.iter().filter(unknown).flat_map(|it| &it.addresses).map(ToString::to_string);
    let unknown: BTreeSet<String> = unknown.collect();
    let known = |mut table: Vec<String>| {
        table.retain(|address| !unknown.contains(address));
        table
    };
    let (table, expected) = (known(machine.table(116)), known(texts(&|_| true)));
    if table != expected {
        found.push(format!("table 116 is {table:?}, and not {expected:?}"));
    }
    let mut expected = [machine.networks(), texts(&|it| it.claim.is_some())].concat();
    expected.sort();
    let (table, expected) = (known(machine.table(119)), known(expected));
    if table != expected {
        found.push(format!("table 119 is {table:?}, and not {expected:?}"));
    }
}

/// Other nodes' pods with claims are reached through their nodes, and nobody else is.
fn of_remote_routes(
    machine: &Machine<'_>,
    objects: &Objects,
    living: &[Living],
    node: usize,
    found: &mut Vec<String>,
) {
    let mut expected: BTreeMap<IpAddr, &str> = BTreeMap::new();
    for (uid, (_, facts)) in
        objects.claims.iter().filter(|(_, (_, facts))| facts.network == Network::Routed.name())
    {
        let Some(at) = objects.active(uid).filter(|at| *at != machine.name && facts.held) else { continue };
        expected.extend(facts.addresses.iter().map(|(address, _)| (IpAddr::from(*address), at)));
    }
    // Of a claim that is gone its pod keeps the addresses; others may reach it, and do unless they were started since.
    let gone = |it: &&Living| {
        it.node != node && it.claim.as_ref().is_some_and(|(_, uid)| !objects.claims.contains_key(uid))
    };
    let mut tolerated: BTreeSet<IpAddr> =
        living.iter().filter(gone).flat_map(|it| it.addresses.clone()).collect();
    // So they may what is on record for one that is gone, because a pod perhaps has it.
    let is_gone = |record: &String| !objects.claims.keys().any(|uid| record.contains(uid.as_str()));
    tolerated.extend(objects.records.iter().filter(|(_, it)| is_gone(it)).map(|(address, _)| *address));
    let mut routes = BTreeSet::new();
    for family in ["-4", "-6"] {
        let shown = machine.host.namespace().ip_json(&[family, "route", "show", "table", "all"]);
        for route in shown.ok().as_ref().and_then(Value::as_array).into_iter().flatten() {
            let ours = ["116", "119", "local"].iter().any(|table| route["table"] == *table);
            let to = route["dst"].as_str().and_then(|to| to.parse::<IpAddr>().ok());
            if let Some(to) = to.filter(|_| !ours && route["gateway"].is_string()) {
                routes.insert(to);
            }
        }
    }
    for address in routes.iter().filter(|it| !expected.contains_key(it) && !tolerated.contains(it)) {
        found.push(format!("a route to {address}, which is nobody's"));
    }
    for (address, at) in expected.iter().filter(|(address, _)| !routes.contains(address)) {
        found.push(format!("no route to {address}, which is on {at}"));
    }
}

/// Pods with claims at which packets are to arrive and that do not answer another host.
pub fn unreached(place: &ChaosBed<'_>, objects: &Objects) -> Vec<String> {
    let mut found = Vec::new();
    for it in place.oracle.living() {
        let active = it.claim.as_ref().and_then(|(_, uid)| objects.claims.get(uid));
        let routed = it.network == Network::Routed;
        if active.is_none_or(|(_, facts)| !facts.slots.is_active(&it.uid))
            || routed && place.is_out_of_reach(&it)
        {
            continue;
        }
        let from = (it.node + 1) % place.machines.len();
        for address in &it.addresses {
            if let Err(error) = place.machines[from].host.ping(*address, ANSWERS) {
                found.push(format!("{address} of {it:?} from node {from}: {error}"));
            }
        }
    }
    found
}
