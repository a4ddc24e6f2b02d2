//! Indexes of everything that decisions about claims depend on. They follow changes and tell which claims a change
//! affects.
//!
//! A claim is planned under its name, `namespace/name`, together with all records under that name. It is planned
//! again when the claim, its network, its records, the pods that use it or that its records name, or their nodes
//! change.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::known::Claim;
use super::plan::Networks;
use super::records::Records;
use super::sets::{Names, Sets};
use super::users::{Refresh, Users};
use crate::cache::{Cache, Known};
use crate::changes::Cursors;
use crate::world::World;

/// All indexes.
#[derive(Debug, Default)]
pub(super) struct Index {
    cursors: Cursors,
    /// Nodes that exist.
    nodes: HashSet<Arc<str>>,
    pub(super) claims: ClaimIndex,
    pub(super) users: Users,
    pub(super) records: Records,
    pub(super) networks: Networks,
}

/// What a plan has to look at.
#[derive(Debug, Default)]
pub(super) struct Look {
    /// Whether that is everything.
    pub(super) all: bool,
    /// Claims, existing or not.
    pub(super) names: Names,
    /// Pods that may use other claims than before.
    pub(super) users: Names,
    /// Objects that have changed.
    pub(super) claims: Names,
    pub(super) namespaces: Names,
    pub(super) attachments: Names,
    pub(super) pools: Names,
    pub(super) blocks: Names,
    pub(super) ledgers: Names,
    pub(super) slices: Names,
    /// Nodes that were added or removed.
    pub(super) nodes: Names,
    /// Whether a reservation has changed.
    pub(super) reservations: bool,
}

/// Claims, indexed by what they relate to.
#[derive(Debug, Default)]
pub(super) struct ClaimIndex {
    links: HashMap<Arc<str>, Links>,
    by_uid: Sets<Arc<str>>,
    by_network: Sets<Arc<str>>,
    /// By `namespace/name` of the pods in their slots.
    by_slot: Sets<Arc<str>>,
}

#[derive(Debug)]
struct Links {
    uid: String,
    network: String,
    slots: Vec<String>,
}

#[cfg(test)]
impl Look {
    /// A planted bug: this change is overlooked.
    fn overlook(&mut self, what: super::records::Overlooked) {
        use super::records::Overlooked;
        let changes = match what {
            Overlooked::Claims => &mut self.claims,
            Overlooked::Namespaces => &mut self.namespaces,
            Overlooked::Attachments => &mut self.attachments,
            Overlooked::Pods => &mut self.users,
            Overlooked::Nodes => &mut self.nodes,
            Overlooked::Blocks => &mut self.blocks,
            Overlooked::Ledgers => &mut self.ledgers,
            Overlooked::Slices => &mut self.slices,
            Overlooked::Time | Overlooked::Pending | Overlooked::Waiting => return,
        };
        changes.clear();
    }
}

impl Index {
    /// Reads what changed since the last plan; everything if `all` is set, or if the changes are not known.
    pub(super) fn look(&mut self, world: &World, all: bool) -> Look {
        let mut look = self.changed(world);
        if all || look.all {
            *self = Self { cursors: std::mem::take(&mut self.cursors), ..Self::default() };
            look = everything(world);
        }
        #[cfg(test)]
        if let Some(super::records::Planted::Overlooks(what)) = world.claims().planted.filter(|_| !look.all) {
            look.overlook(what);
        }
        let came_or_went = |name: &Arc<str>| self.nodes.contains(name) != world.nodes().get(name).is_some();
        look.nodes.retain(came_or_went);
        for name in &look.nodes {
            if !self.nodes.remove(name) {
                self.nodes.insert(name.clone());
            }
        }
        self.refresh(world, &mut look);
        look
    }

    fn changed(&mut self, world: &World) -> Look {
        let (cursors, known) = (&mut self.cursors, world.ledgers());
        let mut users = cursors.read("users", |at| known.pods.changed_claim_users(at));
        users.extend(cursors.read("pods", |at| known.pods.changed(at)));
        let look = Look {
            users,
            claims: cursors.read("claims", |at| world.claims().all.changed(at)),
            namespaces: cursors.read("namespaces", |at| world.claims().namespaces.changed(at)),
            attachments: cursors.read("attachments", |at| known.attachments.changed(at)),
            pools: cursors.read("pools", |at| world.coil().pools.changed(at)),
            blocks: cursors.read("blocks", |at| world.coil().blocks.changed(at)),
            ledgers: cursors.read("ledgers", |at| known.pools.changed(at)),
            slices: cursors.read("slices", |at| known.slices.changed(at)),
            nodes: cursors.read("nodes", |at| world.nodes().changed(at)),
            reservations: !cursors.read("reservations", |at| known.reservations.changed(at)).is_empty(),
            ..Look::default()
        };
        Look { all: cursors.take_missed(), ..look }
    }

    /// Reads what changed, and adds the names of all affected claims.
    fn refresh(&mut self, world: &World, look: &mut Look) {
        let Self { claims, users, records, networks, .. } = self;
        let (mut names, mut uids, mut changed_networks) = (Names::new(), Names::new(), Names::new());
        networks.refresh(world, &look.attachments, &mut changed_networks);
        records.refresh(world, (&look.blocks, &look.ledgers), &mut names, &mut uids);
        for key in &look.claims {
            claims.refresh(key, world.claims().all.get(key), &mut uids);
            names.insert(key.clone());
        }
        for network in &changed_networks {
            names.extend(claims.by_network.of(network).cloned());
        }
        // A changed network status alone does not change who uses a claim.
        let pods = std::mem::take(&mut look.users);
        let mut owners = Names::new();
        let refresh = Refresh {
            pods: &pods,
            claims: &look.claims,
            attachments: &look.attachments,
            concerned: &mut names,
            owners: &mut owners,
            users: &mut look.users,
        };
        users.refresh(world, refresh);
        for owner in &owners {
            names.extend(records.of_owner(owner).map(Into::into));
        }
        for pod in &pods {
            names.extend(records.naming_pod(pod).map(Into::into));
            names.extend(claims.by_slot.of(pod).cloned());
        }
        for node in &look.nodes {
            names.extend(records.naming_node(node).map(Into::into));
        }
        for uid in &uids {
            names.extend(claims.by_uid.of(uid).cloned());
            names.extend(records.of_uid(uid).filter_map(|place| Some(records.get(place)?.name().into())));
        }
        if look.all {
            names.extend(records.names().cloned());
        }
        look.names.append(&mut names);
    }

    /// Adds the names under which something is recorded for these claims, and the claims of records under these
    /// names. Usually they are the same.
    pub(super) fn complete(&self, names: &mut Names) {
        let mut more = Names::new();
        for name in names.iter() {
            for place in self.records.of_name(name) {
                let uid = self.records.get(place).map(super::records::Record::uid).unwrap_or_default();
                more.extend(self.claims.by_uid.of(uid).cloned());
            }
            let links = self.claims.links.get(name);
            for place in links.into_iter().flat_map(|links| self.records.of_uid(&links.uid)) {
                more.extend(self.records.get(place).map(|record| Arc::from(record.name())));
            }
        }
        names.append(&mut more);
    }
}

impl ClaimIndex {
    /// The name of the claim of this UID.
    pub(super) fn of_uid(&self, uid: &str) -> Option<&Arc<str>> {
        self.by_uid.of(uid).next_back()
    }

    fn refresh(&mut self, key: &Arc<str>, claim: Option<&Claim>, uids: &mut Names) {
        if let Some(old) = self.links.remove(key) {
            self.by_uid.remove(&old.uid, key);
            self.by_network.remove(&old.network, key);
            old.slots.iter().for_each(|pod| self.by_slot.remove(pod, key));
            uids.insert(old.uid.into());
        }
        if let Some(Claim { facts, .. }) = claim {
            let slots = facts.slots.both().map(|slot| format!("{}/{}", facts.namespace, slot.pod)).collect();
            let new = Links { uid: facts.uid.clone(), network: facts.network.clone(), slots };
            self.by_uid.add(&new.uid, key.clone());
            self.by_network.add(&new.network, key.clone());
            new.slots.iter().for_each(|pod| self.by_slot.add(pod, key.clone()));
            uids.insert(new.uid.as_str().into());
            self.links.insert(key.clone(), new);
        }
    }
}

/// Treats everything as changed.
fn everything(world: &World) -> Look {
    fn keys<K: Known>(cache: &Cache<K>) -> Names {
        cache.iter().map(|it| it.key().into()).collect()
    }
    let users = world.ledgers().pods.claim_users();
    Look {
        all: true,
        users: users.map(|pod| format!("{}/{}", pod.namespace, pod.name).into()).collect(),
        claims: keys(&world.claims().all),
        namespaces: keys(&world.claims().namespaces),
        attachments: keys(&world.ledgers().attachments),
        pools: keys(&world.coil().pools),
        blocks: keys(&world.coil().blocks),
        ledgers: keys(&world.ledgers().pools),
        slices: keys(&world.ledgers().slices),
        nodes: keys(world.nodes()),
        reservations: true,
        ..Look::default()
    }
}
