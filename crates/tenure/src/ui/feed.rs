//! Watches of every kind that the pages show.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::marker::PhantomData;
use std::sync::Arc;

use k8s_openapi::api::core::v1;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tenure_api::claims::IPAMClaim;
use tenure_api::cloud::{AliasPool, IPLedger, NodeAliases};
use tenure_api::coil::{AddressBlock, AddressPool, BlockRequest, Egress, EgressClients};
use tenure_api::nmstate::{NodeIPPool, NodeNetworkConfigurationEnactment, NodeNetworkConfigurationPolicy};
use tenure_api::read::Read;
use tenure_api::whereabouts::{IPPool, NodeSlicePool, OverlappingRangeIPReservation};
use tenure_claims::ClaimFacts;
use tenure_watch::{Connection, LOOK_FOR_KIND, Listener, place};

use super::pieces::{self, Piece};
use super::state::{Shared, State, Topic};
use crate::node_pools::is_generated;
use crate::snapshot::PodFacts;
use crate::watch::news::{self, News};

/// What is kept of the objects of a kind.
pub(super) trait Kept: Send + Sync + Sized + 'static {
    /// The kind.
    type Object: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static;
    /// Its name for people.
    const WHAT: &'static str;
    /// The pages that show it.
    const TOPICS: &'static [Topic];
    /// Keeps an object, if it is one that is shown.
    fn of(object: Self::Object) -> Option<Self>;
    /// Its name, with its namespace.
    fn key(&self) -> String;
    /// Where all of them are, by key.
    fn all(state: &mut State) -> &mut Vec<Self>;
    /// What it says about addresses.
    fn pieces(&self, _: &State) -> Vec<Piece> {
        Vec::new()
    }
    /// What else follows from a change of the object with this key; `None` if all may have changed.
    fn changed(_: &mut State, _key: Option<&str>) {}
    /// The events in a change of an object, for `tenure watch`.
    fn news(_old: Option<&Self>, _new: Option<&Self>, _news: &mut Vec<News>) {}
    /// The node whose agent may have news now.
    fn node(&self) -> Option<&str> {
        None
    }
}

/// A node, of which only the name matters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NodeName(String);

fn key_of(object: &impl ResourceExt) -> String {
    match object.namespace() {
        Some(namespace) => place(&namespace, &object.name_any()),
        None => object.name_any(),
    }
}

/// A kind that is kept as it is.
macro_rules! kept {
    ($kind:ty, $what:literal, [$($topic:ident),*], |$state:ident| $all:expr $(, pieces |$object:ident, $known:ident| $pieces:expr)?
     $(, if $is:expr)? $(, node $node:expr)? $(, changed $changed:expr)? $(, news $news:path)?) => {
        impl Kept for $kind {
            type Object = Self;
            const WHAT: &'static str = $what;
            const TOPICS: &'static [Topic] = &[$(Topic::$topic),*];
            fn of(object: Self) -> Option<Self> {
                Some(object)$(.filter($is))?
            }
            fn key(&self) -> String {
                key_of(self)
            }
            fn all($state: &mut State) -> &mut Vec<Self> {
                &mut $all
            }
            $(fn pieces(&self, $known: &State) -> Vec<Piece> {
                let $object = self;
                $pieces
            })?
            $(fn node(&self) -> Option<&str> {
                ($node)(self)
            })?
            $(fn changed(state: &mut State, key: Option<&str>) {
                ($changed)(state, key);
            })?
            $(fn news(old: Option<&Self>, new: Option<&Self>, news: &mut Vec<News>) {
                $news(old, new, news);
            })?
        }
    };
}

kept!(
    AddressPool,
    "AddressPools",
    [Pools],
    |state| state.snapshot.pools,
    pieces | it,
    _state | pieces::of_pool(it),
    news news::of_pool
);
kept!(AddressBlock, "AddressBlocks", [Pools, Nodes], |state| state.snapshot.blocks,
    pieces |it, state| pieces::of_block(it, &state.snapshot), node AddressBlock::node, news news::of_block);
kept!(BlockRequest, "BlockRequests", [], |state| state.snapshot.requests, news news::of_request);
kept!(
    IPPool,
    "IPPools",
    [Pools, Nodes],
    |state| state.snapshot.ranges.ledgers,
    pieces | it,
    state | pieces::of_ledger(it, &state.snapshot),
    news news::of_ledger
);
kept!(NodeSlicePool, "NodeSlicePools", [Pools, Nodes], |state| state.snapshot.ranges.slices,
    pieces |it, _state| pieces::of_slices(it), changed |state: &mut State, _: Option<&str>| say_all::<IPPool>(state),
    news news::of_slices);
kept!(OverlappingRangeIPReservation, "OverlappingRangeIPReservations", [], |state| state
    .snapshot
    .ranges
    .reservations);
kept!(
    NodeIPPool,
    "NodeIPPools",
    [Pools, NodeAddresses],
    |state| state.snapshot.node_pools.pools,
    pieces | it,
    state | pieces::of_node_pool(it, state.snapshot.now),
    news news::of_node_pool
);
kept!(
    NodeNetworkConfigurationEnactment,
    "NodeNetworkConfigurationEnactments",
    [NodeAddresses],
    |state| state.snapshot.node_pools.enactments,
    pieces | it,
    _state | pieces::of_enactment(it),
    news news::of_enactment
);
kept!(NodeNetworkConfigurationPolicy, "NodeNetworkConfigurationPolicies", [NodeAddresses],
    |state| state.snapshot.node_pools.generated, pieces |it, _state| pieces::of_policy(it), if is_generated);
kept!(
    AliasPool,
    "IPPools of alias addresses",
    [Pools, Aliases],
    |state| state.snapshot.aliases.pools,
    pieces | it,
    _state | pieces::of_alias_pool(it),
    news news::of_alias_pool
);
kept!(
    IPLedger,
    "IPLedgers",
    [Pools, Aliases],
    |state| state.snapshot.aliases.ledgers,
    pieces | it,
    _state | pieces::of_alias_ledger(it)
);
kept!(NodeAliases, "NodeAliases", [Aliases], |state| state.snapshot.aliases.nodes, news news::of_aliases);
kept!(Egress, "Egresses", [Egresses], |state| state.egresses, news news::of_egress);
kept!(EgressClients, "EgressClients", [Egresses], |state| state.clients);
kept!(IPAMClaim, "IPAMClaims", [Claims], |state| state.claims, changed claims_changed, news news::of_claim);

impl Kept for NodeName {
    type Object = v1::Node;
    const WHAT: &'static str = "Nodes";
    const TOPICS: &'static [Topic] = &[Topic::Nodes];
    fn of(object: v1::Node) -> Option<Self> {
        Some(Self(object.name_any()))
    }
    fn key(&self) -> String {
        self.0.clone()
    }
    fn all(state: &mut State) -> &mut Vec<Self> {
        &mut state.nodes
    }
    fn changed(state: &mut State, _: Option<&str>) {
        state.snapshot.nodes = state.nodes.iter().map(Kept::key).collect();
    }
    fn news(old: Option<&Self>, new: Option<&Self>, news: &mut Vec<News>) {
        news::of_node(old.map(|it| it.0.as_str()), new.map(|it| it.0.as_str()), news);
    }
}

impl Kept for PodFacts {
    type Object = v1::Pod;
    const WHAT: &'static str = "Pods";
    const TOPICS: &'static [Topic] = &[];
    fn of(object: v1::Pod) -> Option<Self> {
        Self::of(&object)
    }
    fn key(&self) -> String {
        self.label()
    }
    fn all(state: &mut State) -> &mut Vec<Self> {
        state.snapshot.pods.get_or_insert_default()
    }
    fn node(&self) -> Option<&str> {
        Some(&self.node)
    }
}

/// Whether claims move matters to blocks and ledgers that have records of them.
fn claims_changed(state: &mut State, key: Option<&str>) {
    let facts = |claim: &IPAMClaim| ClaimFacts::of(claim).slots;
    let moved = match key {
        None => {
            state.snapshot.claims = state.claims.iter().map(|claim| (claim.key(), facts(claim))).collect();
            true
        }
        Some(key) => {
            let moves = |state: &State| state.snapshot.claims.get(key).map(|slots| slots.incoming.is_some());
            let before = moves(state);
            match position(&state.claims, key) {
                Ok(at) => _ = state.snapshot.claims.insert(key.to_owned(), facts(&state.claims[at])),
                Err(_) => _ = state.snapshot.claims.remove(key),
            }
            before.unwrap_or_default() != moves(state).unwrap_or_default()
        }
    };
    if !moved {
        return;
    }
    let names_it = |record: String| key.is_none_or(|key| record == key);
    let blocks = state.snapshot.blocks.iter().filter(|block| {
        let mut records = block.spec.claims.values();
        records.any(|record| names_it(place(&record.namespace, &record.name)))
    });
    for block in blocks.cloned().collect::<Vec<_>>() {
        say(state, &block);
    }
    let ledgers = state.snapshot.ranges.ledgers.iter();
    let ledgers = ledgers.filter(|it| it.spec.allocations.values().any(|it| names_it(it.podref.clone())));
    for ledger in ledgers.cloned().collect::<Vec<_>>() {
        say(state, &ledger);
    }
}

fn position<T: Kept>(all: &[T], key: &str) -> Result<usize, usize> {
    all.binary_search_by(|it| it.key().as_str().cmp(key))
}

/// What an object says about addresses goes into the map.
fn say<T: Kept>(state: &mut State, object: &T) {
    let pieces = object.pieces(state);
    state.index.say((T::WHAT, object.key()), pieces);
}

/// The same for all objects of a kind, and nothing else of that kind stays there.
fn say_all<T: Kept + Clone>(state: &mut State) {
    for object in T::all(state).clone() {
        say(state, &object);
    }
}

/// Keeps what a watch says.
struct Listening<T> {
    shared: Arc<Shared>,
    /// What a list has said so far.
    listed: Option<Vec<T>>,
    /// Whether there was a list before, so that what differs from it is news.
    known: bool,
    kept: PhantomData<T>,
}

impl<T: Kept> Listener<T::Object> for Listening<T> {
    fn hear(&mut self, event: Event<Read<T::Object>>) -> bool {
        match event {
            Event::Init => self.listed = Some(Vec::new()),
            Event::InitApply(object) => {
                let kept = object.is().and_then(T::of);
                self.listed.get_or_insert_default().extend(kept);
            }
            Event::InitDone => {
                let mut listed = self.listed.take().unwrap_or_default();
                listed.sort_by_cached_key(T::key);
                let news = self.shared.change(|state| replace(state, listed));
                if std::mem::replace(&mut self.known, true) {
                    self.shared.tell(news);
                }
            }
            Event::Apply(object) => {
                let Some(object) = object.is() else { return true };
                let key = key_of(&object);
                let kept = T::of(object);
                self.hurry(kept.as_ref());
                let (_, news) = self.shared.change(|state| put(state, &key, kept));
                self.shared.tell(news);
            }
            Event::Delete(object) => {
                let key = key_of(&object);
                let (gone, news) = self.shared.change(|state| put::<T>(state, &key, None));
                self.shared.tell(news);
                self.hurry(gone.as_ref());
            }
        }
        true
    }

    fn lacks_kind(&mut self, lacks: bool) {
        if lacks {
            let news = self.shared.change(|state| replace::<T>(state, Vec::new()));
            self.shared.tell(news);
        }
    }
}

impl<T: Kept> Listening<T> {
    /// The agent of its node has news.
    fn hurry(&self, object: Option<&T>) {
        if let Some(node) = object.and_then(Kept::node) {
            self.shared.hurry(node);
        }
    }
}

/// Replaces everything of a kind, and returns the events in that.
fn replace<T: Kept>(state: &mut State, objects: Vec<T>) -> Vec<News> {
    let keys: BTreeSet<String> = objects.iter().map(T::key).collect();
    let said: Vec<_> = objects.iter().map(|it| it.pieces(state)).collect();
    for (key, pieces) in keys.iter().zip(said) {
        state.index.say((T::WHAT, key.clone()), pieces);
    }
    state.index.keep_only(T::WHAT, &keys);
    let old = std::mem::replace(T::all(state), objects);
    let (mut news, all) = (Vec::new(), T::all(state));
    let find = |all: &[T], key: &str| position(all, key).ok();
    for it in &old {
        T::news(Some(it), find(all, &it.key()).map(|at| &all[at]), &mut news);
    }
    for it in all.iter().filter(|it| find(&old, &it.key()).is_none()) {
        T::news(None, Some(it), &mut news);
    }
    T::changed(state, None);
    state.touch(T::TOPICS);
    news
}

/// Replaces one object, and returns the old one and the events in that.
fn put<T: Kept>(state: &mut State, key: &str, object: Option<T>) -> (Option<T>, Vec<News>) {
    let pieces = object.as_ref().map(|it| it.pieces(state)).unwrap_or_default();
    state.index.say((T::WHAT, key.to_owned()), pieces);
    let all = T::all(state);
    let old = match (position(all, key), object) {
        (Ok(at), Some(object)) => Some(std::mem::replace(&mut all[at], object)),
        (Ok(at), None) => Some(all.remove(at)),
        (Err(at), Some(object)) => {
            all.insert(at, object);
            None
        }
        (Err(_), None) => None,
    };
    let mut news = Vec::new();
    T::news(old.as_ref(), position(all, key).ok().map(|at| &all[at]), &mut news);
    T::changed(state, Some(key));
    state.touch(T::TOPICS);
    (old, news)
}

/// Watches everything until the future is dropped.
pub(crate) async fn watch(shared: Arc<Shared>, connection: Connection, cluster: bool) {
    let one = Watching { shared, connection };
    let pods = async {
        if cluster {
            one.kind::<PodFacts>(false).await;
        }
    };
    tokio::join!(
        one.kind::<AddressPool>(false),
        one.kind::<AddressBlock>(false),
        one.kind::<BlockRequest>(false),
        one.kind::<NodeName>(false),
        one.kind::<NodeSlicePool>(true),
        one.kind::<IPPool>(true),
        one.kind::<OverlappingRangeIPReservation>(true),
        one.kind::<NodeIPPool>(true),
        one.kind::<NodeNetworkConfigurationEnactment>(true),
        one.kind::<NodeNetworkConfigurationPolicy>(true),
        one.kind::<AliasPool>(true),
        one.kind::<IPLedger>(true),
        one.kind::<NodeAliases>(true),
        one.kind::<Egress>(true),
        one.kind::<EgressClients>(true),
        one.kind::<IPAMClaim>(true),
        pods,
    );
}

/// How every kind is watched.
struct Watching {
    shared: Arc<Shared>,
    connection: Connection,
}

impl Watching {
    async fn kind<T: Kept>(&self, may_be_missing: bool) {
        let api: Api<Read<T::Object>> = Api::all(self.connection.client());
        let listening = Listening::<T> {
            shared: Arc::clone(&self.shared),
            listed: None,
            known: false,
            kept: PhantomData,
        };
        let missing = may_be_missing.then_some(LOOK_FOR_KIND);
        self.connection.health().expect(T::WHAT);
        self.connection.watch(T::WHAT, api, watcher::Config::default(), missing, listening).await;
    }
}
