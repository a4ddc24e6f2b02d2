//! Which ranges, pools and definitions concern each other, so that a change is planned for where it matters.
//!
//! Ranges of one network overlap only if one is within the other. So all that overlap each other, directly or by way of others,
//! are within one of them: a group is found by the widest range around a change.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use tenure_api::whereabouts::NodeSlicePool;
use tenure_ipam::{Address, Cidr};
use tenure_whereabouts::ledger::{PoolId, State};
use tenure_whereabouts::slices::{
    Definition, Difference, HeldSpan, Holders, Holdings, Seen, SharedPool, Table, network_of,
};

/// Who is in a group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Member {
    /// A `NodeSlicePool`, there or asked for.
    Pool(Arc<str>),
    /// An attachment definition.
    Definition(Arc<str>),
    /// An object of a range that all nodes share.
    Shared(Arc<str>),
}

/// Members that concern each other, and the widest of their ranges.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) members: BTreeSet<Member>,
    widest: BTreeSet<(String, Cidr)>,
}

/// All that there is, by network and range.
#[derive(Debug, Default)]
pub(super) struct Groups {
    networks: HashMap<String, Ranges>,
    pools: HashMap<Arc<str>, Pool>,
    definitions: HashMap<Arc<str>, Asked>,
    ledgers: HashMap<Arc<str>, Noted>,
    /// What has changed.
    dirty: BTreeSet<Member>,
    /// Ranges of which something has.
    dirty_ranges: BTreeSet<(String, Cidr)>,
}

/// The ranges of a network.
#[derive(Debug, Default)]
struct Ranges {
    members: ByRange<Member, ()>,
    /// What nodes say of their slices, by ledger.
    of_nodes: ByRange<Arc<str>, Holding>,
}

/// Something by range and key.
#[derive(Debug)]
struct ByRange<K, V>(BTreeMap<(Address, u8), BTreeMap<K, V>>);

#[derive(Debug, Default)]
struct Pool {
    /// What is remembered of its slices, if it is there.
    table: Option<Table>,
    /// The network and the range that it says it is of.
    said: Option<(String, Cidr)>,
    /// Which pool of this name it is.
    uid: Option<String>,
    /// Definitions that ask for it, or may.
    askers: BTreeSet<Arc<str>>,
    /// Where it is a member.
    ranges: BTreeSet<(String, Cidr)>,
}

/// What a definition asks for.
#[derive(Debug, Default)]
struct Asked {
    pools: BTreeSet<String>,
    whole: Vec<PoolId>,
}

/// What a ledger says, as far as it matters here.
#[derive(Clone, Debug, PartialEq)]
enum Noted {
    Shared(SharedPool),
    /// It is of a node's slice, in which that has something or not.
    Node(PoolId, Option<Holding>),
}

/// What a node has of a slice.
#[derive(Clone, Debug, PartialEq)]
enum Holding {
    /// It hands out of it, so all of it counts.
    Owned(PoolId),
    /// These addresses.
    Held(HeldSpan),
}

impl Noted {
    /// The slice, if it is a node's.
    fn slice(&self) -> Option<&PoolId> {
        match self {
            Self::Shared(_) => None,
            Self::Node(id, _) => Some(id),
        }
    }
}

impl Groups {
    /// What is remembered of the slices of a pool that is there.
    pub(super) fn table(&self, pool: &str) -> Option<&Table> {
        self.pools.get(pool)?.table.as_ref()
    }

    /// A node lives from now on, or does not any more.
    pub(super) fn set_living(&mut self, node: &str, lives: bool) {
        self.pools
            .values_mut()
            .filter_map(|pool| pool.table.as_mut())
            .for_each(|it| it.set_living(node, lives));
    }

    /// The pool that gives a node its slice.
    pub(super) fn giver(&self, id: &PoolId) -> Option<&str> {
        let members = &self.networks.get(&id.network)?.members;
        let mut pools = members.overlapping(id.range).filter_map(|(member, ())| match member {
            Member::Pool(name) => self.pools.get_key_value(name),
            Member::Definition(_) | Member::Shared(_) => None,
        });
        let gives = |pool: &Pool| pool.table.as_ref().is_some_and(|table| table.gives(id));
        pools.find(|(_, pool)| gives(pool)).map(|(name, _)| &**name)
    }

    /// The slices of a node.
    pub(super) fn slices_of(&self, node: &str) -> Vec<PoolId> {
        let tables = self.pools.values().filter_map(|pool| pool.table.as_ref());
        tables.filter_map(|table| table.slice_of(node)).collect()
    }

    /// An object of a range that all nodes share.
    pub(super) fn shared(&self, ledger: &str) -> Option<&SharedPool> {
        match self.ledgers.get(ledger)? {
            Noted::Shared(shared) => Some(shared),
            Noted::Node(..) => None,
        }
    }

    /// A definition came, went or says something else.
    pub(super) fn note_definition(
        &mut self,
        key: &Arc<str>,
        definition: Option<&Definition>,
        definitions: &HashMap<Arc<str>, Definition>,
    ) {
        let before = self.definitions.remove(key).unwrap_or_default();
        for id in &before.whole {
            self.leave(&id.network, id.range, &Member::Definition(key.clone()));
        }
        let pools = definition.map(Definition::pool_names).unwrap_or_default();
        for name in before.pools.union(&pools) {
            let name: Arc<str> = name.as_str().into();
            let pool = self.pools.entry(name.clone()).or_default();
            if pools.contains(&*name) {
                pool.askers.insert(key.clone());
            } else {
                pool.askers.remove(key);
            }
            self.place(&name, definitions);
        }
        let Some(definition) = definition else { return };
        let whole: Vec<PoolId> = definition.whole().cloned().collect();
        for id in &whole {
            self.join(&id.network, id.range, Member::Definition(key.clone()));
        }
        self.definitions.insert(key.clone(), Asked { pools, whole });
    }

    /// A pool came, went or is different. Returns whose slices are different; `living` are the nodes that live.
    pub(super) fn note_pool(
        &mut self,
        name: &Arc<str>,
        object: Option<&NodeSlicePool>,
        definitions: &HashMap<Arc<str>, Definition>,
        living: &HashSet<String>,
    ) -> Difference {
        let pool = self.pools.entry(name.clone()).or_default();
        pool.said = object.and_then(|object| Some((network_of(object), object.spec.range.parse().ok()?)));
        let uid = object.and_then(|object| object.metadata.uid.clone());
        let is_another = pool.uid != uid;
        pool.uid = uid;
        let mut difference = match (object, &mut pool.table) {
            (Some(object), Some(table)) => table.read(object, living),
            (Some(object), table) => {
                let (read, difference) = Table::of(object, living);
                *table = Some(read);
                difference
            }
            (None, table) => {
                let before = table.take();
                let left = before.iter().flat_map(Table::nodes).cloned().collect();
                let slices = before.iter().flat_map(Table::slices).collect();
                Difference { left, slices, ..Difference::default() }
            }
        };
        if is_another {
            difference.slices.extend(pool.table.iter().flat_map(Table::slices));
        }
        if let (true, Some((network, range)), Some(table)) = (difference.anew, &pool.said, &mut pool.table)
            && let Some(ranges) = self.networks.get(network)
        {
            for (ledger, holding) in ranges.of_nodes.overlapping(*range) {
                table.hold(ledger, holding.node(), holding.span());
            }
        }
        self.place(name, definitions);
        difference
    }

    /// Tells the pools that have addresses of a node's ledger what becomes of it.
    fn tell_tables(&mut self, id: &PoolId, tell: impl Fn(&mut Table)) {
        let Some(ranges) = self.networks.get(&id.network) else { return };
        let members: BTreeSet<&Member> =
            ranges.members.overlapping(id.range).map(|(member, ())| member).collect();
        for member in members {
            if let Member::Pool(name) = member
                && let Some(Pool { said: Some((network, _)), table: Some(table), .. }) =
                    self.pools.get_mut(name)
                && *network == id.network
            {
                tell(table);
            }
        }
    }

    /// Makes a pool a member of all ranges that it says, or that anybody asks for.
    fn place(&mut self, name: &Arc<str>, definitions: &HashMap<Arc<str>, Definition>) {
        self.dirty.insert(Member::Pool(name.clone()));
        let Some(pool) = self.pools.get_mut(name) else { return };
        let asked = pool.askers.iter().filter_map(|asker| definitions.get(asker));
        let asked: Vec<PoolId> = asked.flat_map(|definition| definition.ranges_of(name)).collect();
        let mut ranges: BTreeSet<(String, Cidr)> = pool.said.iter().cloned().collect();
        for PoolId { network, range, .. } in asked {
            // What was cut before is of the network, too.
            ranges.extend(pool.said.iter().map(|(_, before)| (network.clone(), *before)));
            ranges.insert((network, range));
        }
        if pool.table.is_none() && pool.askers.is_empty() {
            let pool = self.pools.remove(name).unwrap_or_default();
            for (network, range) in &pool.ranges {
                self.leave(network, *range, &Member::Pool(name.clone()));
            }
            return;
        }
        let before = std::mem::replace(&mut pool.ranges, ranges.clone());
        for (network, range) in before.difference(&ranges) {
            self.leave(network, *range, &Member::Pool(name.clone()));
        }
        for (network, range) in ranges.difference(&before) {
            self.join(network, *range, Member::Pool(name.clone()));
        }
    }

    /// Notes what a ledger says. `owned` is whether a node says by it that it hands out of its slice. Returns the slices that it is,
    /// and was, of.
    pub(super) fn note_ledger(&mut self, name: &Arc<str>, seen: Option<Seen>, owned: bool) -> Vec<PoolId> {
        let noted = match seen {
            // How many it has is nobody's concern here.
            Some(Seen::Shared(shared)) => {
                Some(Noted::Shared(SharedPool { used: shared.used.min(1), ..shared }))
            }
            Some(Seen::Node(id, _)) if owned => Some(Noted::Node(id.clone(), Some(Holding::Owned(id)))),
            Some(Seen::Node(id, Some((first, last)))) => {
                let (network, node) = (id.network.clone(), id.node.clone());
                Some(Noted::Node(id, Some(Holding::Held(HeldSpan { network, node, first, last }))))
            }
            Some(Seen::Node(id, None)) => Some(Noted::Node(id, None)),
            None => None,
        };
        let before = self.ledgers.get(name);
        let slices = before.into_iter().chain(&noted).filter_map(Noted::slice).cloned().collect();
        if before == noted.as_ref() {
            return slices;
        }
        match self.ledgers.remove(name) {
            Some(Noted::Shared(before)) => {
                self.leave(&before.id.network, before.id.range, &Member::Shared(name.clone()));
            }
            Some(Noted::Node(id, Some(holding))) => {
                self.dirty_ranges.insert((id.network.clone(), id.range));
                self.tell_tables(&id, |table| table.release(name, holding.span()));
                if let Some(ranges) = self.networks.get_mut(&id.network) {
                    ranges.of_nodes.remove(id.range, name);
                }
            }
            Some(Noted::Node(_, None)) | None => {}
        }
        match &noted {
            Some(Noted::Shared(shared)) => {
                let (network, range) = (shared.id.network.clone(), shared.id.range);
                self.join(&network, range, Member::Shared(name.clone()));
            }
            Some(Noted::Node(id, Some(holding))) => {
                self.dirty_ranges.insert((id.network.clone(), id.range));
                self.tell_tables(id, |table| table.hold(name, holding.node(), holding.span()));
                let ranges = self.networks.entry(id.network.clone()).or_default();
                ranges.of_nodes.insert(id.range, name.clone(), holding.clone());
            }
            Some(Noted::Node(_, None)) | None => {}
        }
        self.ledgers.extend(noted.map(|noted| (name.clone(), noted)));
        slices
    }

    /// Whether a ledger is known to be of this slice.
    pub(super) fn is_of(&self, ledger: &str, slice: &PoolId) -> bool {
        self.ledgers.get(ledger).and_then(Noted::slice) == Some(slice)
    }

    fn join(&mut self, network: &str, range: Cidr, member: Member) {
        self.dirty_ranges.insert((network.to_owned(), range));
        self.networks.entry(network.to_owned()).or_default().members.insert(range, member, ());
    }

    fn leave(&mut self, network: &str, range: Cidr, member: &Member) {
        self.dirty_ranges.insert((network.to_owned(), range));
        if let Some(ranges) = self.networks.get_mut(network) {
            ranges.members.remove(range, member);
            if ranges.members.0.is_empty() && ranges.of_nodes.0.is_empty() {
                self.networks.remove(network);
            }
        }
    }

    /// Something about these is to be planned.
    pub(super) fn mark(&mut self, members: impl IntoIterator<Item = Member>) {
        self.dirty.extend(members);
    }

    /// Something about all pools that anybody asks for is to be planned.
    pub(super) fn mark_asked(&mut self) {
        let asked = self.pools.iter().filter(|(_, pool)| !pool.askers.is_empty());
        self.dirty.extend(asked.map(|(name, _)| Member::Pool(name.clone())));
    }

    /// The groups in which something is to be planned, each once.
    pub(super) fn take_dirty(&mut self) -> Vec<Found> {
        let mut dirty = std::mem::take(&mut self.dirty);
        for (network, range) in std::mem::take(&mut self.dirty_ranges) {
            if let Some(ranges) = self.networks.get(&network) {
                dirty.extend(ranges.members.overlapping(range).map(|(member, ())| member.clone()));
            }
        }
        let (mut found, mut done): (Vec<Found>, BTreeSet<Member>) = (Vec::new(), BTreeSet::new());
        for member in dirty {
            if !done.contains(&member) {
                let group = self.around(member);
                done.extend(group.members.iter().cloned());
                found.push(group);
            }
        }
        found
    }

    /// All that concerns a member.
    fn around(&self, member: Member) -> Found {
        let mut found = Found::default();
        let mut queue = vec![member];
        while let Some(member) = queue.pop() {
            if !found.members.insert(member.clone()) {
                continue;
            }
            let ranges: Vec<(&str, Cidr)> = match &member {
                Member::Pool(name) => {
                    let pool = self.pools.get(name);
                    let askers = pool.into_iter().flat_map(|pool| &pool.askers).cloned();
                    queue.extend(askers.map(Member::Definition));
                    let ranges = pool.into_iter().flat_map(|pool| &pool.ranges);
                    ranges.map(|(network, range)| (network.as_str(), *range)).collect()
                }
                Member::Definition(key) => {
                    let asked = self.definitions.get(key);
                    let pools = asked.into_iter().flat_map(|asked| &asked.pools);
                    queue.extend(pools.map(|name| Member::Pool(name.as_str().into())));
                    let whole = asked.into_iter().flat_map(|asked| &asked.whole);
                    whole.map(|id| (id.network.as_str(), id.range)).collect()
                }
                Member::Shared(name) => {
                    let id = self.shared(name).map(|shared| &shared.id);
                    id.map(|id| (id.network.as_str(), id.range)).into_iter().collect()
                }
            };
            for (network, range) in ranges {
                let Some(members) = self.networks.get(network).map(|ranges| &ranges.members) else {
                    continue;
                };
                let widest = members.widest(range);
                if found.widest.insert((network.to_owned(), widest)) {
                    queue.extend(members.within(widest).map(|(member, ())| member.clone()));
                }
            }
        }
        found
    }

    /// Who holds something in the ranges of a group.
    pub(super) fn holders<'a>(&'a self, found: &'a Found) -> GroupHolders<'a> {
        GroupHolders { groups: self, found }
    }
}

/// Who holds something in the ranges of a group.
#[derive(Debug)]
pub(super) struct GroupHolders<'a> {
    groups: &'a Groups,
    found: &'a Found,
}

impl Holders for GroupHolders<'_> {
    fn holdings(&self) -> Holdings<'_> {
        let Self { groups, found } = self;
        let (mut held, mut owned) = (Vec::new(), Vec::new());
        for (network, range) in &found.widest {
            let Some(ranges) = groups.networks.get(network) else { continue };
            for (_, holding) in ranges.of_nodes.overlapping(*range) {
                match holding {
                    Holding::Held(span) => held.push(span),
                    Holding::Owned(id) => owned.push(id),
                }
            }
        }
        // One that says so of a range that all nodes share has said nothing that makes sense; nothing is opened beside it.
        let shared = found.members.iter().filter_map(|member| match member {
            Member::Shared(name) => groups.shared(name),
            Member::Pool(_) | Member::Definition(_) => None,
        });
        owned.extend(shared.filter(|shared| shared.state == State::Owned).map(|shared| &shared.id));
        Holdings { held, owned }
    }
}

impl Holding {
    fn node(&self) -> &str {
        match self {
            Self::Owned(id) => &id.node,
            Self::Held(span) => &span.node,
        }
    }

    /// The first and the last address.
    fn span(&self) -> (Address, Address) {
        match self {
            Self::Owned(id) => (id.range.first(), id.range.last()),
            Self::Held(span) => (span.first, span.last),
        }
    }
}

impl<K, V> Default for ByRange<K, V> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord, V> ByRange<K, V> {
    fn insert(&mut self, range: Cidr, key: K, value: V) {
        self.0.entry((range.first(), range.prefix())).or_default().insert(key, value);
    }

    fn remove(&mut self, range: Cidr, key: &K) {
        let place = (range.first(), range.prefix());
        if let Some(all) = self.0.get_mut(&place) {
            all.remove(key);
            if all.is_empty() {
                self.0.remove(&place);
            }
        }
    }

    /// The ranges around one, the widest first; itself, if it is there, is the last.
    fn around(&self, range: Cidr) -> impl Iterator<Item = (Cidr, &BTreeMap<K, V>)> {
        let around = (0..=range.prefix()).filter_map(move |prefix| Cidr::new(range.first(), prefix));
        around.filter_map(|cidr| Some((cidr, self.0.get(&(cidr.first(), cidr.prefix()))?)))
    }

    /// The widest range around one, or itself.
    fn widest(&self, range: Cidr) -> Cidr {
        self.around(range).next().map_or(range, |(widest, _)| widest)
    }

    /// What is of ranges within one, itself included.
    fn within(&self, range: Cidr) -> impl Iterator<Item = (&K, &V)> {
        let (first, last) = ((range.first(), range.prefix()), (range.last(), u8::MAX));
        self.0.range(first..=last).flat_map(|(_, all)| all)
    }

    /// What is of ranges that overlap one.
    fn overlapping(&self, range: Cidr) -> impl Iterator<Item = (&K, &V)> {
        let wider = self.around(range).filter(move |(wider, _)| *wider != range);
        wider.flat_map(|(_, all)| all).chain(self.within(range))
    }
}
