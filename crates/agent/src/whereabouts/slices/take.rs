//! What must be read before anything is assigned from a claimed slice, and addresses that come back to it
//! later.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::future::join_all;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use tenure_api::release::mark_of;
use tenure_api::whereabouts::{IPPool, Reservation, label};
use tenure_ipam::{Cidr, Exclusion, Subnet};
use tenure_watch::CallError;
use tenure_whereabouts::ledger::{Adopted, PoolId, State as LedgerState, adopt};

use super::claim::Offer;
use super::known::{GivenSlice, Taken, Unsaid};
use super::{Shared, State, pool_of, realm_of};
use crate::key::Pod;
use crate::node::{Event, Node, PoolFacts, Recorded, SeenBlock, SeenSlice};
use crate::objects::lock;

/// What was read about a slice.
struct Read {
    adopted: Adopted,
    /// The names of the objects that may reserve addresses.
    around: Vec<String>,
}

impl Shared {
    /// Prepares a slice for assignments, however long that takes, and tells the node that the slice is its
    /// own.
    pub(super) async fn take(self: Arc<Self>, name: String, given: GivenSlice) {
        let Some(offer) = Offer::of(&self, name, given) else { return };
        let (pool, slice) = (&offer.name, offer.id.range);
        let mut backoff = self.connection.backoff();
        loop {
            if !self.is_current(&offer.name, &offer.given) {
                return self.let_go(&offer).await;
            }
            match self.try_take(&offer).await {
                Ok(true) => break,
                Ok(false) => tracing::info!(pool, %slice, "a slice was withdrawn while it was being taken"),
                Err(error) => {
                    tracing::warn!(pool, %slice, %error, "a slice cannot be taken yet");
                    self.set_aside(&offer, &error).await;
                }
            }
            backoff.wait().await;
        }
        self.changed.send_modify(|version| *version += 1);
        self.tell_if_all_read();
    }

    /// Whether the node was told; not if the slice is not its any more.
    async fn try_take(self: &Arc<Self>, offer: &Offer) -> Result<bool, CallError> {
        // Until the node has it, the writer would take the object back.
        let _unwritten = self.writing.read().await;
        let Some(claimed) = self.claim(offer).await? else { return Ok(false) };
        if !self.is_given(offer, &claimed).await? {
            return Ok(false);
        }
        let own = claimed.object;
        let read = self.read(&offer.id, &own).await?;
        let had = self.had(&offer.given.object, &offer.id.network).await;
        Ok(self.tell_slice(offer, own.metadata.uid.unwrap_or_default(), read, &had))
    }

    /// Lets the others go on without this slice. If the node has had it, it is told that it has it still, so that what is held in it stays
    /// held, and that nothing is handed out of it.
    async fn set_aside(&self, offer: &Offer, error: &CallError) {
        let had = self.had(&offer.given.object, &offer.id.network).await;
        let mut state = lock(&self.state);
        if state.given.get(&offer.name) != Some(&offer.given) {
            return;
        }
        if let Some(uid) = offer.same(&had).filter(|_| !state.told) {
            let block = self.block_of(&pool_of(&offer.name), &offer.given.object, &uid, offer.id.range);
            let block = SeenBlock { reserved: true, ..block };
            let realm = realm_of(&offer.id.network);
            self.node.tell(Event::SliceSeen(SeenSlice { block, realm, records: Vec::new() }));
        }
        state.aside.insert(offer.name.clone(), error.to_string());
        drop(state);
        self.tell_if_all_read();
    }

    /// Stops assigning from slices whose object is marked, gone or another one, because somebody thought that this node
    /// was gone: the writer first removes the mark, or recreates the object and checks whether the slice is
    /// still assigned to this node.
    pub(super) fn mind_marks(&self) {
        let mut state = lock(&self.state);
        let State { taken, records, .. } = &mut *state;
        for (name, taken) in taken {
            let marked = records.facts(&taken.object).is_none_or(|record| {
                mark_of(record).is_some()
                    || record.metadata.uid.as_ref() != Some(&taken.object_uid)
                    || LedgerState::of(record) != LedgerState::Owned
            });
            if std::mem::replace(&mut taken.marked, marked) == marked {
                continue;
            }
            let block = self.block_of(&pool_of(name), &taken.object, &taken.block, taken.id.range);
            let block = SeenBlock { releasing: marked, ..block };
            let realm = realm_of(&taken.id.network);
            self.node.tell(Event::SliceSeen(SeenSlice { block, realm, records: Vec::new() }));
        }
    }

    /// A slice in the form that the node receives.
    fn block_of(&self, pool: &str, object: &str, uid: &str, slice: Cidr) -> SeenBlock {
        SeenBlock {
            name: object.to_owned(),
            uid: uid.to_owned(),
            node: self.options.node.clone(),
            pool: pool.to_owned(),
            subnet: Subnet::single(slice),
            reserved: false,
            deleting: false,
            releasing: false,
            draining: false,
            pod: None,
        }
    }

    async fn read(&self, id: &PoolId, own: &IPPool) -> Result<Read, CallError> {
        let others = self.read_shared(id).await?;
        let adopted = adopt(id, Some(own), &others);
        for refused in &adopted.refused {
            tracing::warn!(object = own.name_any(), refused, "a record of a slice is invalid; it is kept");
        }
        let around = others.iter().map(ResourceExt::name_any).collect();
        Ok(Read { adopted, around })
    }

    /// The objects of shared ranges of the network, whatever their sizes, that may have records of addresses of the slice. All
    /// of them are sealed before a slice is given, so no such record is added after this look.
    async fn read_shared(&self, id: &PoolId) -> Result<Vec<IPPool>, CallError> {
        let records: &Api<IPPool> = &self.api();
        let mut names = Vec::new();
        for labels in shared_of(&id.network) {
            let params = ListParams::default().labels(&labels);
            let listed =
                self.insist(|| "listing IPPools".to_owned(), || records.list_metadata(&params)).await?;
            names.extend(listed.items.iter().map(ResourceExt::name_any));
        }
        names.retain(|name| PoolId::may_hold(&id.network, name, &id.range));
        self.read_all(&names).await
    }

    /// Those of the objects that exist.
    async fn read_all(&self, names: &[String]) -> Result<Vec<IPPool>, CallError> {
        let records: &Api<IPPool> = &self.api();
        let reads = names.iter().map(|name| {
            self.insist(move || format!("reading IPPool {name:?}"), move || records.get_opt(name))
        });
        let mut found = Vec::new();
        for read in join_all(reads).await {
            found.extend(read?);
        }
        Ok(found)
    }

    /// The UIDs under which the node had this slice and was not told otherwise, each with the node's pool. Waits until its journal is
    /// read.
    pub(super) async fn had(&self, object: &str, network: &str) -> Vec<(String, String)> {
        loop {
            let (object, realm) = (object.to_owned(), realm_of(network));
            match self.node.look(move |node| node.slices_named(&object, &realm)).await {
                Ok(Some(had)) => return had,
                Ok(None) => tokio::time::sleep(std::time::Duration::from_millis(20)).await,
                Err(_) => return Vec::new(),
            }
        }
    }

    fn tell_slice(&self, offer: &Offer, object_uid: String, read: Read, had: &[(String, String)]) -> bool {
        let Offer { name, given, id, .. } = offer;
        let object = &given.object;
        let mut state = lock(&self.state);
        if state.given.get(name) != Some(given) {
            return false;
        }
        let (front, back) = offer.ends();
        let block = offer.same(had).unwrap_or_else(|| {
            // A new one each time: nothing is ever assigned again from what was taken away.
            state.last_taken = self.clock.now().as_millis().max(state.last_taken + 1);
            format!("{front}{}{back}", state.last_taken)
        });
        let first_time = state.managed.insert(object.clone());
        let Adopted { held, reserved, .. } = read.adopted;
        let records = if first_time { held.iter().map(recorded).collect() } else { Vec::new() };
        tracing::info!(
            pool = name, slice = %id.range, records = records.len(), kept_back = reserved.len(), "a slice is this node's"
        );
        let taken = Taken {
            block: block.clone(),
            object: object.clone(),
            object_uid,
            whole: given.given.whole(),
            kept_back: reserved,
            around: read.around,
            pool_uid: given.given.uid.clone(),
            grown: false,
            marked: false,
            id: id.clone(),
        };
        self.node.tell(Event::PoolChanged { name: pool_of(name), facts: facts(&taken) });
        let slice = self.block_of(&pool_of(name), object, &block, id.range);
        let realm = realm_of(&taken.id.network);
        self.node.tell(Event::SliceSeen(SeenSlice { block: slice, realm, records }));
        state.taken.insert(name.clone(), taken);
        state.aside.remove(name);
        drop(state);
        self.dirty.notify_one();
        true
    }

    /// Slices that were this node's before the agent started and no longer are: their recorded holds stay
    /// held.
    pub(super) fn tell_leftovers(&self) {
        let mut state = lock(&self.state);
        let current = Self::current(&state);
        let records: Vec<(String, IPPool)> = state
            .records
            .all_facts()
            .filter(|(name, _)| !current.contains(*name))
            .map(|(name, record)| (name.to_owned(), record.clone()))
            .collect();
        for (name, record) in records {
            self.tell_leftover(&mut state, name, &record);
        }
    }

    /// The names of the objects of this node's slices, whether it was told or not, and of those of which that is being asked.
    pub(super) fn current(state: &State) -> BTreeSet<String> {
        let asked = state.unsaid.iter().filter(|(_, answer)| matches!(answer, Unsaid::Asked));
        let asked = asked.map(|(name, _)| name.clone());
        state.given.values().map(|given| given.object.clone()).chain(asked).collect()
    }

    pub(super) fn tell_leftover(&self, state: &mut State, name: String, record: &IPPool) {
        state.managed.insert(name.clone());
        let network = record.metadata.labels.as_ref().and_then(|labels| labels.get(label::NETWORK));
        let network = network.cloned().unwrap_or_default();
        let (Ok(cidr), Ok(decoded)) = (record.spec.cidr(), record.spec.reservations()) else { return };
        let uid = format!("{}.0/{cidr}", record.metadata.uid.clone().unwrap_or_default());
        let block = SeenBlock {
            name,
            uid,
            node: String::new(),
            pool: realm_of(&network),
            subnet: Subnet::single(cidr),
            reserved: false,
            deleting: false,
            releasing: false,
            draining: false,
            pod: None,
        };
        let records = decoded.entries.iter().map(|(_, held)| recorded(held)).collect();
        let realm = realm_of(&network);
        self.node.tell(Event::SliceSeen(SeenSlice { block, realm, records }));
    }

    /// Reads what reserves addresses of slices, as long as something does.
    pub(super) async fn look_again(self: Arc<Self>) {
        loop {
            tokio::time::sleep(self.options.look_again).await;
            let waiting: Vec<(String, Taken)> = lock(&self.state)
                .taken
                .iter()
                .filter(|(_, taken)| taken.grown || !taken.kept_back.is_empty())
                .map(|(name, taken)| (name.clone(), taken.clone()))
                .collect();
            for (name, taken) in waiting {
                let others = if taken.grown {
                    self.read_shared(&taken.id).await
                } else {
                    self.read_all(&taken.around).await
                };
                let Ok(others) = others else { continue };
                let kept_back = adopt(&taken.id, None, &others).reserved;
                let mut state = lock(&self.state);
                let Some(known) = state.taken.get_mut(&name).filter(|known| known.block == taken.block)
                else {
                    continue;
                };
                if known.whole == taken.whole {
                    known.grown = false;
                }
                known.around = others.iter().map(ResourceExt::name_any).collect();
                if known.kept_back != kept_back {
                    tracing::info!(
                        pool = name,
                        kept_back = kept_back.len(),
                        "addresses came back to a slice"
                    );
                    known.kept_back = kept_back;
                    self.node.tell(Event::PoolChanged { name: pool_of(&name), facts: facts(known) });
                }
            }
        }
    }

    /// Reads the node's state once it has replayed everything.
    pub(super) async fn look<R: Send + 'static>(
        &self,
        look: impl FnOnce(&Node) -> R + Send + 'static,
    ) -> Option<R> {
        self.node.look(|node| node.is_ready().then(|| look(node))).await.ok().flatten()
    }
}

/// Selects objects labelled as shared and of this network, and those without labels.
fn shared_of(network: &str) -> Vec<String> {
    let (no_node, of) = (format!("!{}", label::NODE), label::NETWORK);
    let mut selectors = vec![format!("{no_node},!{of}")];
    if !network.is_empty() && network.len() <= 63 {
        selectors.push(format!("{no_node},{of}={network}"));
    }
    selectors
}

/// A pool in the form that the node receives.
fn facts(taken: &Taken) -> PoolFacts {
    PoolFacts {
        subnets: vec![Subnet::single(taken.id.range)],
        block_bits: taken.id.range.host_bits(),
        exclusions: taken.kept_back.iter().copied().map(Exclusion::from).collect(),
        sliced: true,
        ..PoolFacts::default()
    }
}

fn recorded(held: &Reservation) -> Recorded {
    let (namespace, name) = held.podref.split_once('/').unwrap_or(("", &held.podref));
    let pod = Pod { namespace: namespace.to_owned(), name: name.to_owned(), uid: held.uid.clone() };
    Recorded { address: held.address, container: held.id.clone(), interface: held.ifname.clone(), pod }
}

/// Whether a block's UID was made here: from the slice's number and its range. No object's UID has a slash.
pub(super) fn is_uid_of_slice(uid: &str) -> bool {
    uid.contains('/')
}
