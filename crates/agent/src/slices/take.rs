//! What must be read before anything is handed out of a slice, and what comes back to it later.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::future::join_all;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use tenure_api::whereabouts::{IPPool, label};
use tenure_ipam::assign::Reservation;
use tenure_ipam::{Exclusion, Subnet};
use tenure_whereabouts::ledger::{Adopted, PoolId, adopt};

use super::known::{SeenPool, Taken};
use super::{Shared, pool_of, realm_of};
use crate::key::Pod;
use crate::node::{Event, Node, PoolFacts, Recorded, SeenBlock, SeenSlice};
use crate::objects::calls::Trouble;
use crate::objects::lock;
use crate::objects::mirror::{Heard, Identity};
use crate::objects::waits::Waits;

/// What was read of a slice.
struct Read {
    own: Option<IPPool>,
    adopted: Adopted,
    /// The names of the objects that may keep addresses back.
    around: Vec<String>,
}

impl Shared {
    /// Reads what must be known of a slice, however long it takes, and tells the node that it is its.
    pub(super) async fn take(self: Arc<Self>, name: String, uid: String, pool: SeenPool) {
        let Ok(cidr) = pool.slice else { return };
        let id = PoolId::of_node(&pool.network, &self.options.node, cidr);
        let Ok(object) = id.name() else { return };
        let mut waits = Waits::default();
        let read = loop {
            if !self.is_current(&name, &uid, &pool) {
                return;
            }
            match self.read(&id, &object).await {
                Ok(read) => break read,
                Err(trouble) => {
                    tracing::warn!(pool = name, slice = %cidr, %trouble, "the records of a slice cannot be read yet");
                    waits.pass().await;
                }
            }
        };
        let had = self.had(&object, &pool.network).await;
        self.tell_slice(&name, &uid, &pool, id, object, read, &had);
        self.changed.send_modify(|version| *version += 1);
        self.tell_if_all_read();
    }

    async fn read(&self, id: &PoolId, object: &str) -> Result<Read, Trouble> {
        let records: Api<IPPool> = self.api();
        let own = self.insist(|| records.get_opt(object)).await?;
        let others = self.read_shared(id).await?;
        let adopted = adopt(id, own.as_ref(), &others);
        for refused in &adopted.refused {
            tracing::warn!(object, refused, "a record of a slice makes no sense; it is kept");
        }
        let around = others.iter().map(ResourceExt::name_any).collect();
        Ok(Read { own, adopted, around })
    }

    /// The objects of shared ranges of the network, whatever their sizes, that may have records of addresses of the slice. All
    /// of them are sealed before a slice is given, so no such record is added after this look.
    async fn read_shared(&self, id: &PoolId) -> Result<Vec<IPPool>, Trouble> {
        let records: &Api<IPPool> = &self.api();
        let mut names = Vec::new();
        for labels in shared_of(&id.network) {
            let params = ListParams::default().labels(&labels);
            let listed = self.insist(|| records.list_metadata(&params)).await?;
            names.extend(listed.items.iter().map(ResourceExt::name_any));
        }
        names.retain(|name| PoolId::may_hold(&id.network, name, &id.range));
        self.read_all(&names).await
    }

    /// Those of the objects that exist.
    async fn read_all(&self, names: &[String]) -> Result<Vec<IPPool>, Trouble> {
        let records: &Api<IPPool> = &self.api();
        let reads = names.iter().map(|name| self.insist(move || records.get_opt(name)));
        let mut found = Vec::new();
        for read in join_all(reads).await {
            found.extend(read?);
        }
        Ok(found)
    }

    /// The UIDs under which the node has had this slice and was not told otherwise. Waits until its journal is read.
    async fn had(&self, object: &str, network: &str) -> Vec<String> {
        loop {
            let (object, realm) = (object.to_owned(), realm_of(network));
            match self.node.look(move |node| node.slices_named(&object, &realm)).await {
                Ok(Some(had)) => return had,
                Ok(None) => tokio::time::sleep(std::time::Duration::from_millis(20)).await,
                Err(_) => return Vec::new(),
            }
        }
    }

    #[expect(clippy::too_many_arguments, reason = "all that was read of one slice")]
    fn tell_slice(
        &self,
        name: &str,
        pool_uid: &str,
        pool: &SeenPool,
        id: PoolId,
        object: String,
        read: Read,
        had: &[String],
    ) {
        let mut state = lock(&self.state);
        if state.pools.uid(name) != Some(pool_uid) || state.pools.get(name) != Some(pool) {
            return;
        }
        let (front, back) = (format!("{pool_uid}."), format!("/{}", id.range));
        let same = had.iter().find(|uid| uid.starts_with(&front) && uid.ends_with(&back)).cloned();
        let block = same.unwrap_or_else(|| {
            // Another one each time: nothing is ever handed out again of what was taken away.
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
            whole: pool.whole,
            kept_back: reserved,
            around: read.around,
            pool_uid: pool_uid.to_owned(),
            grown: false,
            id,
        };
        self.node.tell(Event::PoolChanged { name: pool_of(name), facts: facts(&taken) });
        let slice = SeenBlock {
            name: object,
            uid: block,
            node: self.options.node.clone(),
            pool: pool_of(name),
            subnet: Subnet::single(taken.id.range),
            reserved: false,
            deleting: false,
        };
        let realm = realm_of(&taken.id.network);
        self.node.tell(Event::SliceSeen(SeenSlice { block: slice, realm, records }));
        if let Some(own) = read.own {
            state.records.hear(Heard::Applied(Identity::of(&own), Some(own)));
        }
        state.taken.insert(name.to_owned(), taken);
        drop(state);
        self.dirty.notify_one();
    }

    /// What was this node's before the agent was started, and is not any more: what is on record there is held on.
    pub(super) fn tell_leftovers(&self) {
        let mut state = lock(&self.state);
        let current: BTreeSet<String> = state
            .pools
            .iter()
            .filter_map(|(_, pool)| {
                let slice = pool.slice.as_ref().ok()?;
                PoolId::of_node(&pool.network, &self.options.node, *slice).name().ok()
            })
            .collect();
        let records: Vec<(String, IPPool)> = state
            .records
            .iter()
            .filter(|(name, _)| !current.contains(*name))
            .map(|(name, record)| (name.to_owned(), record.clone()))
            .collect();
        for (name, record) in records {
            state.managed.insert(name.clone());
            let network = record.metadata.labels.as_ref().and_then(|labels| labels.get(label::NETWORK));
            let network = network.cloned().unwrap_or_default();
            let (Ok(cidr), Ok(decoded)) = (record.spec.cidr(), record.spec.reservations()) else { continue };
            let uid = format!("{}.0/{cidr}", record.metadata.uid.clone().unwrap_or_default());
            let block = SeenBlock {
                name,
                uid,
                node: String::new(),
                pool: realm_of(&network),
                subnet: Subnet::single(cidr),
                reserved: false,
                deleting: false,
            };
            let records = decoded.entries.iter().map(|(_, held)| recorded(held)).collect();
            let realm = realm_of(&network);
            self.node.tell(Event::SliceSeen(SeenSlice { block, realm, records }));
        }
    }

    /// Reads what keeps addresses of slices back, as long as something does.
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

    /// Looks at the node, when it has replayed everything.
    pub(super) async fn look<R: Send + 'static>(
        &self,
        look: impl FnOnce(&Node) -> R + Send + 'static,
    ) -> Option<R> {
        self.node.look(|node| node.is_ready().then(|| look(node))).await.ok().flatten()
    }
}

/// Selects the objects that say that they are shared and of this network, and those that say nothing.
fn shared_of(network: &str) -> Vec<String> {
    let (no_node, of) = (format!("!{}", label::NODE), label::NETWORK);
    let mut selectors = vec![format!("{no_node},!{of}")];
    if !network.is_empty() && network.len() <= 63 {
        selectors.push(format!("{no_node},{of}={network}"));
    }
    selectors
}

/// A pool as the node is told of it.
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
    let pod = Pod { namespace: namespace.to_owned(), name: name.to_owned(), uid: String::new() };
    Recorded { address: held.address, container: held.id.clone(), interface: held.ifname.clone(), pod }
}
