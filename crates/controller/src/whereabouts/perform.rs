//! Writes Whereabouts' objects. A write that takes something from somebody first reads live whether it still is as
//! planned.

use std::collections::{BTreeMap, BTreeSet};

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use tenure_api::networks::NetworkAttachmentDefinition;
use tenure_api::read::Read;
use tenure_api::release::RELEASING;
use tenure_api::whereabouts::{
    IPPool, NodeSlicePool, OverlappingRangeIPReservation, label, reservation_name,
};
use tenure_ipam::ledger::Offsets;
use tenure_whereabouts::ledger::{Act, Network, Outcome as Written, PoolId, Request, Spread, State};
use tenure_whereabouts::reconcile::{LivingPod, named_address};
use tenure_whereabouts::slices::{
    Given, identify, is_asked_for, is_sliced, network_of, network_of_ledger, open_beside, retold, see,
};

use super::write::{LedgerWrite, Rest};
use crate::attachment::Attachment;
use crate::executor::{Answer, Outcome, all_of, create, delete, every, json_patch, settle};
use crate::kind::Observation;
use crate::live::{is_in_use_out_of_service, node_is_in_use};
use crate::part::Perform;
use crate::pods::living;
use crate::write::{At, Operation, of};

/// How many reads run at the same time.
const READS: usize = 16;

/// Reads and writes Whereabouts' objects through one client.
#[derive(Clone)]
pub(crate) struct LedgerApi {
    client: Client,
    namespace: String,
    pub(crate) slices: Api<NodeSlicePool>,
    pub(crate) ledgers: Api<IPPool>,
    pub(crate) reservations: Api<OverlappingRangeIPReservation>,
}

impl Perform for LedgerApi {
    fn perform<'a>(&'a self, operation: &'a dyn Operation) -> BoxFuture<'a, Answer> {
        async move {
            match of::<LedgerWrite>(operation) {
                Some(write) => self.write(write).await,
                None => Ok((Outcome::Failed(format!("this is no write of ledgers: {operation:?}")), None)),
            }
        }
        .boxed()
    }
}

impl LedgerApi {
    /// Objects of this namespace.
    pub(crate) fn new(client: Client, namespace: &str) -> Self {
        Self {
            slices: Api::namespaced(client.clone(), namespace),
            ledgers: Api::namespaced(client.clone(), namespace),
            reservations: Api::namespaced(client.clone(), namespace),
            client,
            namespace: namespace.to_owned(),
        }
    }

    async fn write(&self, write: &LedgerWrite) -> Answer {
        match write {
            LedgerWrite::Guard { pool } => create(&self.ledgers, pool).await,
            LedgerWrite::Mark { pool, mark } => {
                if mark.state != State::Sliced && self.is_sliced(&pool.name).await? {
                    return Ok((Outcome::Superseded, None));
                }
                let written = json_patch(&self.ledgers, &pool.name, mark.patch()).await;
                settle(&self.ledgers, pool, written, Observation::gone::<IPPool>).await
            }
            LedgerWrite::Slices { pool, gone, left, .. } => self.write_slices(pool, gone, left).await,
            LedgerWrite::ChangeSlices { pool, change, gone, left, .. } => {
                // What it gave away before was sealed before, and stays so.
                if let Some(objection) = self.objection(gone, left).await? {
                    return Ok(objection);
                }
                let written = json_patch(&self.slices, &pool.name, change.patch()).await;
                settle(&self.slices, pool, written, Observation::gone::<NodeSlicePool>).await
            }
            LedgerWrite::DropSlices { pool } => {
                if self.is_asked_for(&pool.name).await? {
                    return Ok((Outcome::Superseded, None));
                }
                delete(&self.slices, pool).await
            }
            LedgerWrite::Tell { ledger } => create(&self.ledgers, ledger).await,
            LedgerWrite::Retell { pool, id, given } => self.retell(pool, id, given.as_ref()).await,
            LedgerWrite::Untell { pool } => delete(&self.ledgers, pool).await,
            LedgerWrite::Read { pool } => Ok(match self.ledgers.get_opt(&pool.name).await? {
                Some(there) => (Outcome::Done, Some(Observation::is(there))),
                None => (Outcome::Done, Some(Observation::gone::<IPPool>(pool.clone()))),
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
                let (outcome, observed) = delete(&self.reservations, reservation).await?;
                let released = u64::from(matches!(outcome, Outcome::Done));
                Ok((outcome, observed.map(|it| it.releasing("reservation", released))))
            }
            LedgerWrite::MarkLedger { pool, node, mark } => {
                self.mark_ledger(pool, node, mark.as_deref()).await
            }
            LedgerWrite::DropLedger { pool, node } => self.release_ledger(pool, node).await,
        }
    }

    /// Ledgers, read one by one.
    pub(crate) fn read_ledgers(&self) -> Api<Read<IPPool>> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Slices of nodes, read one by one.
    fn read_slices(&self) -> Api<Read<NodeSlicePool>> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Reservations, read one by one.
    pub(crate) fn read_reservations(&self) -> Api<Read<OverlappingRangeIPReservation>> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Whether an object's range is divided, live.
    async fn is_sliced(&self, name: &str) -> Result<bool, kube::Error> {
        let Some(object) = self.ledgers.get_opt(name).await? else { return Ok(false) };
        let network = network_of_ledger(&object);
        let networks = BTreeSet::from([network.clone()]);
        let Ok(range) = object.spec.cidr() else { return Ok(true) };
        let pools = all_of(every(&self.read_slices(), "").await?)?;
        let nodes = all_of(every(&self.read_ledgers(), label::NODE).await?)?;
        let owned: Vec<PoolId> = nodes
            .iter()
            .filter(|ledger| State::of(ledger) == State::Owned)
            .filter_map(|ledger| identify(ledger, &networks, &|_| true))
            .collect();
        Ok(is_sliced(&PoolId::shared(&network, range), &pools, &owned))
    }

    /// An object through which somebody could take an address that the pool is about to give away for the first time,
    /// live.
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
        let there = all_of(every(&self.read_ledgers(), &format!("!{}", label::NODE)).await?)?;
        let (_, shared) = see(&there, &networks, |_| false);
        let open = open_beside(&PoolId::shared(&network, range), &shared).next();
        Ok(open.and_then(|open| there.into_iter().find(|object| object.name_any() == open.name)))
    }

    async fn write_slices(&self, pool: &NodeSlicePool, gone: &[String], left: &[String]) -> Answer {
        if let Some(open) = self.is_open_beside(pool).await? {
            return Ok((Outcome::Superseded, Some(Observation::is(open))));
        }
        if let Some(objection) = self.objection(gone, left).await? {
            return Ok(objection);
        }
        let name = pool.name_any();
        let mut pool = pool.clone();
        pool.metadata.managed_fields = None;
        let (Some(uid), Some(version)) = (pool.uid(), pool.resource_version()) else {
            return create(&self.slices, &pool).await;
        };
        let written = self.slices.replace(&name, &PostParams::default(), &pool).await;
        settle(&self.slices, &At { name, uid, version }, written, Observation::gone::<NodeSlicePool>).await
    }

    /// Why slices must not be taken from these nodes: one of them lives, or one of these ledgers of former owners is
    /// in use.
    async fn objection(
        &self,
        gone: &[String],
        left: &[String],
    ) -> Result<Option<(Outcome, Option<Observation>)>, kube::Error> {
        if !gone.is_empty() && self.lives_any(gone).await? {
            return Ok(Some((Outcome::Superseded, None)));
        }
        // A node that took its slice while it was taken away said so first.
        for name in left {
            if let Some(there) = self.ledgers.get_opt(name).await?
                && State::of(&there) == State::Owned
            {
                return Ok(Some((Outcome::Superseded, Some(Observation::is(there)))));
            }
        }
        Ok(None)
    }

    /// Whether any of these nodes exists after all and is in service, or has living pods.
    async fn lives_any(&self, names: &[String]) -> Result<bool, kube::Error> {
        let reads = stream::iter(names.to_vec()).map(|name| {
            let client = self.client.clone();
            async move { is_in_use_out_of_service(&client, &name, None).await }
        });
        let found: Vec<bool> = reads.buffer_unordered(READS).try_collect().await?;
        Ok(found.contains(&true))
    }

    /// Whether an attachment definition asks for this pool, live.
    async fn is_asked_for(&self, name: &str) -> Result<bool, kube::Error> {
        let attachments: Api<Read<NetworkAttachmentDefinition>> = Api::all(self.client.clone());
        // A definition that cannot be read asks for nothing.
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

    /// Removes records whose pods are gone, or are unchanged since they were suspected.
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
            let (api, known) = (self.clone(), known.get(&podref).cloned());
            async move {
                let unused = api.is_unused(&podref, known.as_ref()).await?;
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

    /// Removes records from a ledger where they are unchanged, then their reservations. The ledger lists their
    /// addresses as cooling.
    pub(crate) async fn take_out(&self, at: &At, network: &str, unused: Vec<Request>, rest: Rest) -> Answer {
        let Some(pool) = self.ledgers.get_opt(&at.name).await? else {
            return Ok((Outcome::Superseded, Some(Observation::gone::<IPPool>(at.clone()))));
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
            return Ok((Outcome::Superseded, Some(Observation::is(pool))));
        };
        let count = write.len() as u64;
        let written = json_patch(&self.ledgers, &at.name, write.patch()).await;
        let now = At { version: pool.resource_version().unwrap_or_default(), ..at.clone() };
        let (outcome, observed) = settle(&self.ledgers, &now, written, Observation::gone::<IPPool>).await?;
        if !matches!(outcome, Outcome::Done) {
            return Ok((outcome, observed));
        }
        let observed = observed.map(|it| it.releasing("record", count));
        for unreserve in plan.unreserve(|_| Written::Written) {
            let exactly = Preconditions { uid: unreserve.uid.clone(), resource_version: None };
            let deleted = self
                .reservations
                .delete(&unreserve.name, &DeleteParams::default().preconditions(exactly))
                .await;
            match deleted {
                // Somebody else holds it now.
                Err(kube::Error::Api(status)) if status.code == 404 || status.code == 409 => {}
                // What is left is found as a reservation without a record.
                Err(error) => tracing::warn!(reservation = unreserve.name, %error, "deleting failed"),
                Ok(_) => {}
            }
        }
        Ok((outcome, observed))
    }

    /// Whether the pod is gone or has ended; otherwise, whether it is unchanged since it was suspected.
    async fn is_unused(&self, podref: &str, known: Option<&LivingPod>) -> Result<bool, kube::Error> {
        // No pod can have such a name, so there is none.
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

    /// Tells a node in a ledger that it has the slice, or that it has it no more.
    async fn retell(&self, pool: &At, id: &PoolId, given: Option<&Given>) -> Answer {
        let mut metadata = retold(id, given).map_err(|error| kube::Error::Service(Box::new(error)))?;
        metadata["resourceVersion"] = json!(pool.version);
        let patch = Patch::Merge(json!({"metadata": metadata}));
        let written = self.ledgers.patch(&pool.name, &PatchParams::default(), &patch).await;
        settle(&self.ledgers, pool, written, Observation::gone::<IPPool>).await
    }

    /// Marks the ledger of a missing node, or removes the mark.
    async fn mark_ledger(&self, pool: &At, node: &str, mark: Option<&str>) -> Answer {
        if mark.is_some() && node_is_in_use(&self.client, node).await? {
            return Ok((Outcome::Superseded, None));
        }
        let metadata = json!({"resourceVersion": pool.version, "annotations": {RELEASING: mark}});
        let patch = Patch::Merge(json!({"metadata": metadata}));
        let written = self.ledgers.patch(&pool.name, &PatchParams::default(), &patch).await;
        settle(&self.ledgers, pool, written, Observation::gone::<IPPool>).await
    }

    /// Releases the ledger of a node that is missing or out of service, or removes its mark if somebody can use it
    /// after all.
    async fn release_ledger(&self, pool: &At, node: &str) -> Answer {
        if is_in_use_out_of_service(&self.client, node, None).await? {
            let (_, observed) = self.mark_ledger(pool, node, None).await?;
            return Ok((Outcome::Superseded, observed));
        }
        delete(&self.ledgers, pool).await
    }

    /// Whether any ledger has a record of the pod for the address of this reservation, live.
    async fn is_recorded(&self, reservation: &str, podref: &str) -> Result<bool, kube::Error> {
        let Some(address) = named_address(reservation) else { return Ok(true) };
        let ledgers = all_of(every(&self.read_ledgers(), "").await?)?;
        Ok(ledgers.iter().any(|pool| {
            let key = pool.spec.cidr().ok().and_then(|cidr| Offsets::of(&cidr).offset(address).ok());
            let record = key.and_then(|key| pool.spec.allocations.get(&key.to_string()));
            record.is_some_and(|record| record.podref == podref)
        }))
    }
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
