//! Writing Whereabouts' objects. What takes something away from somebody looks, live, whether it still is as it was planned.

use std::collections::{BTreeMap, BTreeSet};

use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tenure_api::networks::NetworkAttachmentDefinition;
use tenure_api::read::{Read, Unreadable};
use tenure_api::whereabouts::{
    IPPool, NodeSlicePool, OverlappingRangeIPReservation, label, reservation_name,
};
use tenure_ipam::ledger::Offsets;
use tenure_whereabouts::ledger::{Act, Network, Outcome as Written, PoolId, Request, Spread, State};
use tenure_whereabouts::reconcile::{LivingPod, named_address};
use tenure_whereabouts::slices::{
    identify, is_asked_for, is_cut, network_of, network_of_ledger, open_beside, see,
};

use super::{Actor, Answer, Learned, Outcome, settle};
use crate::attachment::Attachment;
use crate::pods::living;
use crate::write::{At, LedgerWrite, Rest};

/// So many reads are under way at once.
const READS: usize = 16;
/// Objects are listed so many at a time.
const PAGE: u32 = 500;

impl Actor {
    pub(super) async fn write_ledger(&self, write: &LedgerWrite) -> Answer {
        match write {
            LedgerWrite::Guard { pool } => self.guard(pool).await,
            LedgerWrite::Mark { pool, mark } => {
                if mark.state != State::Sliced && self.is_cut(&pool.name).await? {
                    return Ok((Outcome::Superseded, None));
                }
                let written = patch(&self.ledgers, &pool.name, mark.patch()).await;
                settle(&self.ledgers, pool, written, ledger, Learned::LedgerGone).await
            }
            LedgerWrite::Slices { pool, gone, left, .. } => self.write_slices(pool, gone, left).await,
            LedgerWrite::DropSlices { pool } => {
                if self.is_asked_for(&pool.name).await? {
                    return Ok((Outcome::Superseded, None));
                }
                self.drop_object(&self.slices, pool, slices, Learned::SlicesGone).await
            }
            LedgerWrite::Read { pool } => Ok(match self.ledgers.get_opt(&pool.name).await? {
                Some(there) => (Outcome::Done, Some(ledger(there))),
                None => (Outcome::Done, Some(Learned::LedgerGone(pool.clone()))),
            }),
            LedgerWrite::Forget { pool, network, records, pods, rest } => {
                self.forget(pool, network, records, pods, *rest).await
            }
            LedgerWrite::Unreserve { reservation, podref, pod } => {
                if !self.is_unused(podref, pod.as_ref()).await?
                    || pod.is_some() && self.is_recorded(&reservation.name, podref).await?
                {
                    return Ok((Outcome::Superseded, None));
                }
                let is = |object| Learned::Reservation(Box::new(object));
                self.drop_object(&self.reservations, reservation, is, Learned::ReservationGone).await
            }
            LedgerWrite::MarkLedger { pool, node, mark } => {
                self.mark_ledger(pool, node, mark.as_deref()).await
            }
            LedgerWrite::DropLedger { pool, node } => self.release_ledger(pool, node).await,
        }
    }

    /// Ledgers, read one by one.
    pub(super) fn ledgers(&self) -> Api<Read<IPPool>> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Slices of nodes, read one by one.
    fn slices(&self) -> Api<Read<NodeSlicePool>> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Reservations, read one by one.
    pub(super) fn reservations(&self) -> Api<Read<OverlappingRangeIPReservation>> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Makes a range's object. If there is one of that name, that is the answer, whatever it says.
    async fn guard(&self, pool: &IPPool) -> Answer {
        match self.ledgers.create(&PostParams::default(), pool).await {
            Ok(made) => Ok((Outcome::Done, Some(ledger(made)))),
            Err(kube::Error::Api(status)) if status.code == 409 => {
                let there = self.ledgers.get_opt(&pool.name_any()).await?;
                Ok((Outcome::Superseded, there.map(ledger)))
            }
            Err(error) => Err(error),
        }
    }

    /// Whether an object's range is cut, live.
    async fn is_cut(&self, name: &str) -> Result<bool, kube::Error> {
        let Some(object) = self.ledgers.get_opt(name).await? else { return Ok(false) };
        let network = network_of_ledger(&object);
        let networks = BTreeSet::from([network.clone()]);
        let Ok(range) = object.spec.cidr() else { return Ok(true) };
        let pools = all_of(every(&self.slices(), "").await?)?;
        let nodes = all_of(every(&self.ledgers(), label::NODE).await?)?;
        let owned: Vec<PoolId> = nodes
            .iter()
            .filter(|ledger| State::of(ledger) == State::Owned)
            .filter_map(|ledger| identify(ledger, &networks, &|_| true))
            .collect();
        Ok(is_cut(&PoolId::shared(&network, range), &pools, &owned))
    }

    /// An object by which somebody can take an address of what the pool is about to give away for the first time, live.
    async fn is_open_beside(&self, pool: &NodeSlicePool) -> Result<Option<IPPool>, kube::Error> {
        let has_given = |pool: &NodeSlicePool| {
            let slices = pool.status.iter().flat_map(|status| &status.allocations);
            slices.into_iter().any(|slice| !slice.node_name.is_empty())
        };
        let Ok(range) = pool.spec.range.parse() else { return Ok(None) };
        let before = if pool.uid().is_some() { self.slices.get_opt(&pool.name_any()).await? } else { None };
        let goes_on = before.is_some_and(|before| before.spec.range == pool.spec.range && has_given(&before));
        if !has_given(pool) || goes_on {
            return Ok(None);
        }
        let network = network_of(pool);
        let networks = BTreeSet::from([network.clone()]);
        let there = all_of(every(&self.ledgers(), &format!("!{}", label::NODE)).await?)?;
        let (_, shared) = see(&there, &networks, |_| false);
        let open = open_beside(&PoolId::shared(&network, range), &shared).next();
        Ok(open.and_then(|open| there.into_iter().find(|object| object.name_any() == open.name)))
    }

    async fn write_slices(&self, pool: &NodeSlicePool, gone: &[String], left: &[String]) -> Answer {
        if let Some(open) = self.is_open_beside(pool).await? {
            return Ok((Outcome::Superseded, Some(ledger(open))));
        }
        if !gone.is_empty() && self.lives_any(gone).await? {
            return Ok((Outcome::Superseded, None));
        }
        // A node that was taking its slice while it was taken away said so first.
        for name in left {
            if let Some(there) = self.ledgers.get_opt(name).await?
                && State::of(&there) == State::Owned
            {
                return Ok((Outcome::Superseded, Some(ledger(there))));
            }
        }
        let name = pool.name_any();
        let mut pool = pool.clone();
        pool.metadata.managed_fields = None;
        let (Some(uid), Some(version)) = (pool.uid(), pool.resource_version()) else {
            return match self.slices.create(&PostParams::default(), &pool).await {
                Ok(made) => Ok((Outcome::Done, Some(slices(made)))),
                Err(kube::Error::Api(status)) if status.code == 409 => {
                    let there = self.slices.get_opt(&name).await?;
                    Ok((Outcome::Superseded, there.map(slices)))
                }
                Err(error) => Err(error),
            };
        };
        let written = self.slices.replace(&name, &PostParams::default(), &pool).await;
        settle(&self.slices, &At { name, uid, version }, written, slices, Learned::SlicesGone).await
    }

    /// Whether any of these nodes is there after all and in service, or has pods that live.
    async fn lives_any(&self, names: &[String]) -> Result<bool, kube::Error> {
        let reads = stream::iter(names.to_vec()).map(|name| {
            let actor = self.clone();
            async move { actor.is_in_use_out_of_service(&name, None).await }
        });
        let found: Vec<bool> = reads.buffer_unordered(READS).try_collect().await?;
        Ok(found.contains(&true))
    }

    /// Whether an attachment definition asks for this pool, live.
    async fn is_asked_for(&self, name: &str) -> Result<bool, kube::Error> {
        let attachments: Api<Read<NetworkAttachmentDefinition>> = Api::all(self.client.clone());
        // One that cannot be read asks for nothing.
        let all = every(&attachments, "").await?;
        let definitions: Vec<_> = all
            .objects
            .iter()
            .map(Attachment::of)
            .filter(Attachment::says_something)
            .map(|attachment| attachment.definition)
            .collect();
        let pool = self.slices.get_opt(name).await?;
        Ok(pool.is_some_and(|pool| is_asked_for(&pool, &definitions, None)))
    }

    /// Takes out records whose pods are gone, or still say what they said when they were suspected.
    async fn forget(
        &self,
        at: &At,
        network: &str,
        records: &[Request],
        known: &BTreeMap<String, LivingPod>,
        rest: Rest,
    ) -> Answer {
        let podrefs: BTreeSet<String> = records.iter().map(|request| request.who.podref.clone()).collect();
        let looks = stream::iter(podrefs).map(|podref| {
            let (actor, known) = (self.clone(), known.get(&podref).cloned());
            async move {
                let unused = actor.is_unused(&podref, known.as_ref()).await?;
                Ok::<_, kube::Error>((podref, unused))
            }
        });
        let looks: BTreeMap<String, bool> = looks.buffer_unordered(READS).try_collect().await?;
        let unused: Vec<Request> =
            records.iter().filter(|request| looks.get(&request.who.podref) == Some(&true)).cloned().collect();
        if unused.is_empty() {
            return Ok((Outcome::Superseded, None));
        }
        self.take_out(at, network, unused, rest).await
    }

    /// Takes records out of a ledger, where they still are what they were, and their reservations after them. The ledger says
    /// that their addresses rest.
    pub(super) async fn take_out(&self, at: &At, network: &str, unused: Vec<Request>, rest: Rest) -> Answer {
        let Some(pool) = self.ledgers.get_opt(&at.name).await? else {
            return Ok((Outcome::Superseded, Some(Learned::LedgerGone(at.clone()))));
        };
        let mut ledgers = Network::new(network);
        if ledgers.see_pool(&pool, |_| true).is_none() {
            return Err(kube::Error::Service(
                format!("IPPool {} does not look like one of network {network:?}", at.name).into(),
            ));
        }
        for name in reservations_of(network, &pool, &unused) {
            if let Some(reservation) = self.reservations.get_opt(&name).await? {
                ledgers.see_reservation(&reservation);
            }
        }
        let plan = ledgers.plan_with_rest(unused, rest.lasts, &Spread::of(""), rest.from);
        let Some(write) = plan.write.first() else {
            return Ok((Outcome::Superseded, Some(ledger(pool))));
        };
        let count = write.len() as u64;
        let written = patch(&self.ledgers, &at.name, write.patch()).await;
        let (outcome, learned) = settle(
            &self.ledgers,
            &At { version: pool.resource_version().unwrap_or_default(), ..at.clone() },
            written,
            |pool| Learned::Ledger(Box::new(pool), count),
            Learned::LedgerGone,
        )
        .await?;
        if !matches!(outcome, Outcome::Done) {
            return Ok((outcome, learned));
        }
        for unreserve in plan.unreserve(|_| Written::Written) {
            let exactly = Preconditions { uid: unreserve.uid.clone(), resource_version: None };
            let deleted = self
                .reservations
                .delete(&unreserve.name, &DeleteParams::default().preconditions(exactly))
                .await;
            match deleted {
                // Whoever has it now is somebody else.
                Err(kube::Error::Api(status)) if status.code == 404 || status.code == 409 => {}
                // What is left is found as a reservation that no record explains.
                Err(error) => tracing::warn!(reservation = unreserve.name, %error, "deleting failed"),
                Ok(_) => {}
            }
        }
        Ok((outcome, learned))
    }

    /// Whether the pod is gone or has ended; or else, whether it still says what it said when it was suspected.
    async fn is_unused(&self, podref: &str, known: Option<&LivingPod>) -> Result<bool, kube::Error> {
        // Nobody can ask for a pod that is named like this, so there is none.
        let Some((namespace, name)) =
            podref.split_once('/').filter(|(ns, name)| is_name(ns) && is_name(name))
        else {
            return Ok(true);
        };
        let pod = Api::<Read<Pod>>::namespaced(self.client.clone(), namespace).get_opt(name).await?;
        Ok(match pod.as_ref().map(|pod| pod.as_result().map(living)) {
            None => true,
            Some(Ok(pod)) if pod.finished => true,
            Some(Ok(pod)) => known == Some(&pod),
            Some(Err(_)) => false,
        })
    }

    /// Whether any ledger has a record of the pod for the address of this reservation, live.
    async fn is_recorded(&self, reservation: &str, podref: &str) -> Result<bool, kube::Error> {
        let Some(address) = named_address(reservation) else { return Ok(true) };
        let ledgers = all_of(every(&self.ledgers(), "").await?)?;
        Ok(ledgers.iter().any(|pool| {
            let key = pool.spec.cidr().ok().and_then(|cidr| Offsets::of(&cidr).offset(address).ok());
            let record = key.and_then(|key| pool.spec.allocations.get(&key.to_string()));
            record.is_some_and(|record| record.podref == podref)
        }))
    }

    /// Deletes exactly this object, at exactly this version.
    pub(super) async fn drop_object<K>(
        &self,
        api: &Api<K>,
        at: &At,
        is: impl Fn(K) -> Learned,
        gone: impl Fn(At) -> Learned,
    ) -> Answer
    where
        K: Resource + Clone + DeserializeOwned + std::fmt::Debug,
    {
        let exactly = Preconditions { uid: Some(at.uid.clone()), resource_version: Some(at.version.clone()) };
        match api.delete(&at.name, &DeleteParams::default().preconditions(exactly)).await {
            Ok(_) => Ok((Outcome::Done, Some(gone(at.clone())))),
            Err(kube::Error::Api(status)) if status.code == 404 => {
                Ok((Outcome::Done, Some(gone(at.clone()))))
            }
            Err(kube::Error::Api(status)) if status.code == 409 => {
                Ok((Outcome::Superseded, api.get_opt(&at.name).await?.map(is)))
            }
            Err(error) => Err(error),
        }
    }
}

pub(super) fn ledger(pool: IPPool) -> Learned {
    Learned::Ledger(Box::new(pool), 0)
}

fn slices(pool: NodeSlicePool) -> Learned {
    Learned::Slices(Box::new(pool))
}

pub(super) async fn patch<K>(api: &Api<K>, name: &str, operations: Value) -> Result<K, kube::Error>
where
    K: Resource + Clone + DeserializeOwned + std::fmt::Debug,
{
    let patch = serde_json::from_value(operations).map_err(kube::Error::SerdeError)?;
    api.patch(name, &PatchParams::default(), &Patch::Json::<()>(patch)).await
}

/// The names of the reservations that these records may have.
fn reservations_of(network: &str, pool: &IPPool, records: &[Request]) -> Vec<String> {
    let Ok(offsets) = pool.spec.cidr().map(|cidr| Offsets::of(&cidr)) else { return Vec::new() };
    let names = records.iter().filter_map(|request| {
        let Act::Forget { key, .. } = &request.act else { return None };
        let address = offsets.address(key.parse().ok()?).ok()?;
        reservation_name(network, address.to_ip()).ok()
    });
    names.collect()
}

fn is_name(text: &str) -> bool {
    tenure_api::names::is_object_name(text)
}

/// Objects as they are now.
pub(super) struct Every<K> {
    pub(super) objects: Vec<K>,
    /// Those that are there and cannot be read.
    pub(super) unreadable: Vec<Unreadable>,
}

/// All objects with these labels, as they are now.
pub(super) async fn every<K>(api: &Api<Read<K>>, labels: &str) -> Result<Every<K>, kube::Error>
where
    K: Resource + Clone + DeserializeOwned + std::fmt::Debug,
{
    let mut params = ListParams::default().limit(PAGE).labels(labels);
    let mut found = Every { objects: Vec::new(), unreadable: Vec::new() };
    loop {
        let page = api.list(&params).await?;
        let next = page.metadata.continue_.clone().filter(|token| !token.is_empty());
        for read in page.items {
            match read {
                Read::Is(object) => found.objects.push(object),
                Read::Unreadable(it) => found.unreadable.push(*it),
            }
        }
        match next {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(found),
        }
    }
}

/// All of them, where a decision needs to know what each says.
fn all_of<K>(every: Every<K>) -> Result<Vec<K>, kube::Error> {
    match every.unreadable.first() {
        Some(it) => Err(unread(it)),
        None => Ok(every.objects),
    }
}

/// Why a decision waits for an object that cannot be read.
pub(super) fn unread(it: &Unreadable) -> kube::Error {
    kube::Error::Service(format!("{it}; nothing that depends on it is decided until it is corrected").into())
}
