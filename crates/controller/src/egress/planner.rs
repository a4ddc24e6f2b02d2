//! Plans the part: each Egress that changed, and the clients of each node that was added or removed.

use std::collections::{BTreeMap, BTreeSet};

use tenure_api::coil::DEFAULT_POOL;
use tenure_api::coil::egress::account_name;
use tenure_handles::Timestamp;

use super::status::{Company, pool_of};
use super::write::{ChildKind, EgressWrite};
use super::{EgressPart, children, missing_nodes, status};
use crate::cache::{Cache, Known};
use crate::changes::{Changed, Cursor};
use crate::index::Index;
use crate::part::{Board, Plan};
use crate::release::Releases;
use crate::world::World;
use crate::write::Write;

/// Plans Egresses and the clients of nodes.
#[derive(Debug)]
pub(super) struct EgressPlanner {
    image: String,
    cursors: Cursors,
    /// Egresses and clients that the last plan wrote.
    unfinished: Touched,
    belongs: Belongs,
    releases: Releases,
    /// A bug that a test plants: changes of gateway pods are overlooked.
    #[cfg(test)]
    pub(super) overlooks_pods: bool,
}

/// How far the caches have been read.
#[derive(Debug, Default)]
struct Cursors {
    egresses: Cursor,
    deployments: Cursor,
    services: Cursor,
    budgets: Cursor,
    accounts: Cursor,
    roles: Cursor,
    bindings: Cursor,
    refusals: Cursor,
    pods: Cursor,
    clients: Cursor,
    namespaces: Cursor,
    pools: Cursor,
    nodes: Cursor,
}

/// Indexes that lead from a change to the affected Egresses.
#[derive(Debug, Default)]
struct Belongs {
    pods_to_egresses: Index,
    clients_to_egresses: Index,
    clients_to_uids: Index,
    clients_to_nodes: Index,
    egresses_to_namespaces: Index,
    egresses_to_pools: Index,
    clients_by_uid: BTreeMap<String, String>,
}

/// What a plan looks at.
#[derive(Debug, Default)]
struct Touched {
    egresses: BTreeSet<String>,
    clients: BTreeSet<String>,
}

impl EgressPlanner {
    pub(super) fn new(part: &EgressPart) -> Self {
        Self {
            image: part.image.clone(),
            cursors: Cursors::default(),
            unfinished: Touched::default(),
            belongs: Belongs::default(),
            releases: Releases::resting(part.missing_node_rest),
            #[cfg(test)]
            overlooks_pods: false,
        }
    }

    /// What changed, is unfinished or is due; and whether that is everything.
    fn touched(&mut self, world: &World, now: Timestamp) -> (Touched, bool) {
        let mut touched = std::mem::take(&mut self.unfinished);
        let changes = Changes::read(world, &mut self.cursors);
        #[cfg(test)]
        let changes =
            if self.overlooks_pods { Changes { pods: BTreeSet::new(), ..changes } } else { changes };
        if changes.anything {
            self.belongs = Belongs::default();
            self.releases.look_again();
            touched = Touched::default();
        }
        self.belongs.read(world, &changes, &mut touched);
        for uid in self.releases.due(now) {
            touched.clients.extend(self.belongs.clients_by_uid.get(&uid).cloned());
        }
        (touched, changes.anything)
    }
}

impl Plan for EgressPlanner {
    fn plan(&mut self, world: &World, _: &mut Board, now: Timestamp) -> Vec<Write> {
        if !is_complete(world) {
            return Vec::new();
        }
        let (touched, everything) = self.touched(world, now);
        let mut writes = Vec::new();
        for key in touched.egresses {
            let planned = self.belongs.plan(world, &key, &self.image, now);
            if !planned.is_empty() {
                self.unfinished.egresses.insert(key);
            }
            writes.extend(planned);
        }
        for key in touched.clients {
            let Some(clients) = world.egress().clients.get(&key) else { continue };
            if !everything {
                self.releases.look_again_at(&clients.facts.at.uid);
            }
            let namespace = key.split_once('/').map_or("", |(namespace, _)| namespace);
            if let Some(write) =
                missing_nodes::plan(world, &mut self.releases, namespace, &clients.facts, now)
            {
                self.unfinished.clients.insert(key);
                writes.push(write);
            }
        }
        writes.into_iter().map(Write::from).collect()
    }

    fn look_at_all(&mut self) {
        self.cursors = Cursors::default();
    }

    fn next_look(&self) -> Option<Timestamp> {
        self.releases.next()
    }
}

/// Whether all kinds that Egresses need are completely listed.
fn is_complete(world: &World) -> bool {
    let known = world.egress();
    let has = |complete: bool, kind: &'static str| complete || world.lacks(kind);
    known.egresses.is_complete()
        && known.is_used()
        && has(known.clients.is_complete(), "EgressClients")
        && has(known.deployments.is_complete(), ChildKind::Deployment.name())
        && has(known.services.is_complete(), ChildKind::Service.name())
        && has(known.budgets.is_complete(), ChildKind::Budget.name())
        && has(known.accounts.is_complete(), ChildKind::Account.name())
        && has(known.roles.is_complete(), ChildKind::Role.name())
        && has(known.bindings.is_complete(), ChildKind::Binding.name())
        && has(known.pods.is_complete(), "Pod of an Egress")
        && has(world.claims().namespaces.is_complete(), "Namespace")
}

/// Changed keys, by what they are keys of.
#[derive(Debug, Default)]
struct Changes {
    /// Anything may have changed.
    anything: bool,
    /// Egresses, changed themselves or by a child of the same name.
    egresses: BTreeSet<String>,
    /// Egresses whose destinations may have changed.
    destinations: BTreeSet<String>,
    pods: BTreeSet<String>,
    clients: BTreeSet<String>,
    namespaces: BTreeSet<String>,
    pools: BTreeSet<String>,
    nodes: BTreeSet<String>,
}

impl Changes {
    fn read(world: &World, cursors: &mut Cursors) -> Self {
        let (known, mut changes) = (world.egress(), Self::default());
        let anything = &mut changes.anything;
        changes.destinations = keys(&known.egresses, &mut cursors.egresses, anything);
        changes.egresses = changes.destinations.clone();
        changes.egresses.extend(keys(&known.deployments, &mut cursors.deployments, anything));
        changes.egresses.extend(keys(&known.services, &mut cursors.services, anything));
        changes.egresses.extend(keys(&known.budgets, &mut cursors.budgets, anything));
        changes.egresses.extend(keys(&known.refusals, &mut cursors.refusals, anything));
        let accounts = [
            (&known.accounts, &mut cursors.accounts),
            (&known.roles, &mut cursors.roles),
            (&known.bindings, &mut cursors.bindings),
        ];
        for (cache, cursor) in accounts {
            let of_accounts = keys(cache, cursor, anything);
            changes.egresses.extend(of_accounts.iter().filter_map(|key| egress_of_account(key)));
        }
        changes.pods = keys(&known.pods, &mut cursors.pods, anything);
        changes.clients = keys(&known.clients, &mut cursors.clients, anything);
        changes.namespaces = keys(&world.claims().namespaces, &mut cursors.namespaces, anything);
        changes.pools = keys(&world.coil().pools, &mut cursors.pools, anything);
        changes.nodes = keys(world.nodes(), &mut cursors.nodes, anything);
        if changes.anything {
            changes.egresses = known.egresses.iter().map(Known::key).collect();
            changes.destinations.clone_from(&changes.egresses);
            changes.pods = known.pods.iter().map(Known::key).collect();
            changes.clients = known.clients.iter().map(Known::key).collect();
        }
        changes
    }
}

fn keys<K: Known>(cache: &Cache<K>, cursor: &mut Cursor, anything: &mut bool) -> BTreeSet<String> {
    match cache.changed(cursor) {
        Changed::All => {
            *anything = true;
            BTreeSet::new()
        }
        Changed::Keys(keys) => keys.iter().map(ToString::to_string).collect(),
    }
}

/// The key of the Egress whose gateways use this account.
fn egress_of_account(key: &str) -> Option<String> {
    let (namespace, name) = key.split_once('/')?;
    Some(format!("{namespace}/{}", name.strip_prefix(&account_name(""))?))
}

impl Belongs {
    /// Reads what changed, and notes what that affects.
    fn read(&mut self, world: &World, changes: &Changes, touched: &mut Touched) {
        let known = world.egress();
        touched.egresses.extend(changes.egresses.iter().cloned());
        for key in &changes.egresses {
            let namespace = key.split_once('/').map(|(namespace, _)| namespace.to_owned());
            let there = known.egresses.get(key).is_some();
            self.egresses_to_namespaces.set(key, namespace.filter(|_| there));
        }
        for key in &changes.pods {
            touched.egresses.extend(self.pods_to_egresses.owners(key).cloned());
            let egress = known.pods.get(key).and_then(|pod| pod.facts.egress.as_ref());
            self.pods_to_egresses.set(key, egress.map(ToString::to_string));
            touched.egresses.extend(self.pods_to_egresses.owners(key).cloned());
        }
        for key in &changes.clients {
            self.read_clients(world, key, touched);
        }
        for key in &changes.destinations {
            let clients: Vec<String> = self.clients_to_egresses.members(key).cloned().collect();
            for clients in &clients {
                self.touch_neighbours(clients, touched);
            }
        }
        for namespace in &changes.namespaces {
            touched.egresses.extend(self.egresses_to_namespaces.members(namespace).cloned());
        }
        // Whether the default pool is missed depends on whether any pool exists.
        let usual = DEFAULT_POOL.to_owned();
        let usual = (!changes.pools.is_empty()).then_some(&usual);
        for pool in changes.pools.iter().chain(usual) {
            touched.egresses.extend(self.egresses_to_pools.members(pool).cloned());
        }
        for node in &changes.nodes {
            touched.clients.extend(self.clients_to_nodes.members(node).cloned());
        }
    }

    fn read_clients(&mut self, world: &World, key: &str, touched: &mut Touched) {
        self.touch_neighbours(key, touched);
        let facts = world.egress().clients.get(key).map(|clients| &clients.facts);
        let egress = facts.and_then(|facts| facts.egress.as_ref());
        self.clients_to_egresses.set(key, egress.map(ToString::to_string));
        self.clients_to_uids.set(key, facts.into_iter().flat_map(|facts| facts.uids.iter().cloned()));
        self.clients_to_nodes.set(key, facts.map(|facts| facts.node.clone()));
        self.clients_by_uid.extend(facts.map(|facts| (facts.at.uid.clone(), key.to_owned())));
        if facts.is_none() {
            self.clients_by_uid.retain(|_, known| known != key);
        }
        self.touch_neighbours(key, touched);
        touched.clients.insert(key.to_owned());
    }

    /// The statuses of the Egresses of these clients, and of those that share a client with them, may change.
    fn touch_neighbours(&self, clients: &str, touched: &mut Touched) {
        touched.egresses.extend(self.clients_to_egresses.owners(clients).cloned());
        for neighbour in self.clients_to_uids.neighbours(clients) {
            touched.egresses.extend(self.clients_to_egresses.owners(&neighbour).cloned());
        }
    }

    /// The writes for one Egress.
    fn plan(&mut self, world: &World, key: &str, image: &str, now: Timestamp) -> Vec<EgressWrite> {
        let facts = world.egress().egresses.get(key).map(|egress| &egress.facts);
        let namespace = key.split_once('/').map_or("", |(namespace, _)| namespace);
        self.egresses_to_pools.set(key, facts.map(|_| pool_of(world, namespace)));
        // An Egress in deletion takes its children with it.
        let Some(facts) = facts.filter(|facts| facts.object.metadata.deletion_timestamp.is_none()) else {
            return Vec::new();
        };
        let mut planned = children::plan(world, &facts.object, image);
        let clients = self.clients_to_egresses.members(key);
        let neighbours = clients.flat_map(|clients| self.clients_to_uids.neighbours(clients));
        let mut others: BTreeSet<String> = neighbours
            .flat_map(|neighbour| self.clients_to_egresses.owners(&neighbour).cloned().collect::<Vec<_>>())
            .collect();
        others.remove(key);
        let company = Company { pods: self.pods_to_egresses.members(key).collect(), others };
        planned.writes.extend(status::plan(world, facts, &planned, &company, now));
        planned.writes
    }
}
