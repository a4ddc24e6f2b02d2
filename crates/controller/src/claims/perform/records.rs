//! Writes records and statuses of claims.

use std::collections::BTreeSet;

use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tenure_api::claims::{IPAMClaim, SLICE_OWNER};
use tenure_api::coil::AddressBlock;
use tenure_api::read::Read;
use tenure_api::whereabouts::{
    Allocation, IPPool, OverlappingRangeIPReservation, OverlappingRangeIPReservationSpec, annotation, label,
};
use tenure_claims::OnRecord;
use tenure_claims::status::RecordLocation;
use tenure_handles::Timestamp;
use tenure_whereabouts::ledger::{COOLING, Network, Plan, Request, Spread};

use super::super::write::{ClaimId, ClaimWrite, Gone};
use super::ClaimsPerformer;
use crate::executor::{Answer, Every, Outcome, delete, discard, every, json_patch, settle, unread};
use crate::kind::{Kind, Observation};
use crate::pods::living;
use crate::write::At;

/// How many reads run at the same time.
const READS: usize = 16;
/// How often objects are created or marked, and everything is read again, before other writes get their turn.
const ROUNDS: usize = 4;

impl ClaimsPerformer {
    pub(super) async fn write_claim(&self, write: &ClaimWrite) -> Answer {
        match write {
            ClaimWrite::Records { block, records, finalizers, gone, named } => {
                if let Some(there) = self.any_lives(gone).await? {
                    return Ok((Outcome::Superseded, there));
                }
                if let Some(gone) = self.any_gone(named).await? {
                    return Ok((Outcome::Superseded, Some(gone)));
                }
                let operations = json!([
                    {"op": "test", "path": "/metadata/resourceVersion", "value": block.version},
                    {"op": "add", "path": "/metadata/finalizers", "value": finalizers},
                    {"op": "add", "path": "/claims", "value": records},
                ]);
                let written = json_patch(&self.blocks, &block.name, operations).await;
                settle(&self.blocks, block, written, Observation::gone::<AddressBlock>).await
            }
            ClaimWrite::DropBlock { block, finalizers, deleting } => {
                discard(&self.blocks, block, finalizers, *deleting).await
            }
            ClaimWrite::Hold { network, requests, .. } => self.hold(network, requests).await,
            ClaimWrite::Forget { ledger, network, records, gone, rest } => {
                if let Some(there) = self.any_lives(gone).await? {
                    return Ok((Outcome::Superseded, there));
                }
                self.ranges.take_out(ledger, network, records.clone(), *rest).await
            }
            ClaimWrite::Slice { ledger: at, slices, slice, records, gone, named, cooling } => {
                if let Some(there) = self.any_lives(gone).await? {
                    return Ok((Outcome::Superseded, there));
                }
                if let Some(gone) = self.any_gone(named).await? {
                    return Ok((Outcome::Superseded, Some(gone)));
                }
                let pool = self.ranges.slices.get_opt(slices).await?;
                let all = pool
                    .iter()
                    .filter_map(|pool| pool.status.as_ref())
                    .flat_map(|status| &status.allocations);
                if !all.into_iter().any(|it| it.slice_range == *slice && it.node_name == SLICE_OWNER) {
                    return Ok((Outcome::Superseded, pool.map(Observation::is)));
                }
                let mut operations = vec![
                    json!({"op": "test", "path": "/metadata/resourceVersion", "value": at.version}),
                    json!({"op": "add", "path": "/spec/allocations", "value": records}),
                ];
                if let Some(cooling) = cooling {
                    let path = format!("/metadata/annotations/{}", COOLING.replace('/', "~1"));
                    operations.push(json!({"op": "add", "path": path, "value": cooling}));
                }
                let written = json_patch(&self.ranges.ledgers, &at.name, Value::Array(operations)).await;
                settle(&self.ranges.ledgers, at, written, Observation::gone::<IPPool>).await
            }
            ClaimWrite::Name { ledger: at, records, named } => {
                if let Some(gone) = self.any_gone(named).await? {
                    return Ok((Outcome::Superseded, Some(gone)));
                }
                let operations = records.iter().flat_map(|it| {
                    let path = format!("/spec/allocations/{}", it.key);
                    let after = Allocation { pods: it.pods.clone(), ..it.before.clone() };
                    [
                        json!({"op": "test", "path": path, "value": it.before}),
                        json!({"op": "replace", "path": path, "value": after}),
                    ]
                });
                let written = json_patch(&self.ranges.ledgers, &at.name, operations.collect()).await;
                settle(&self.ranges.ledgers, at, written, Observation::gone::<IPPool>).await
            }
            ClaimWrite::DropLedger { ledger: at } => delete(&self.ranges.ledgers, at).await,
            ClaimWrite::Status { namespace, claim, status, unless } => {
                if let Some(there) = self.any_on_record(&claim.uid, unless).await? {
                    return Ok((Outcome::Superseded, Some(there)));
                }
                let claims = self.claims(namespace);
                let mut status = serde_json::to_value(status).map_err(kube::Error::SerdeError)?;
                // A merge patch keeps what it does not mention, so a claim without users says so explicitly.
                if status.get("ownerPod").is_none() {
                    status["ownerPod"] = Value::Null;
                }
                let patch = json!({"metadata": {"resourceVersion": claim.version}, "status": status});
                let written =
                    claims.patch_status(&claim.name, &PatchParams::default(), &Patch::Merge(patch)).await;
                settle(&claims, claim, written, |at| Observation::gone_from::<IPAMClaim>(namespace, at)).await
            }
        }
    }

    /// What exists after all: one of these claims; nothing worth observing if it is one of these pods.
    async fn any_lives(&self, gone: &Gone) -> Result<Option<Option<Observation>>, kube::Error> {
        let looks = stream::iter(gone.pods.clone()).map(|id| {
            let pods: Api<Pod> = Api::namespaced(self.client.clone(), &id.namespace);
            async move {
                let there = pods.get_opt(&id.name).await?.filter(|pod| pod.uid().as_ref() == Some(&id.uid));
                Ok::<_, kube::Error>(there.is_some_and(|pod| !living(&pod).finished))
            }
        });
        let alive: Vec<bool> = looks.buffer_unordered(READS).try_collect().await?;
        if alive.contains(&true) {
            return Ok(Some(None));
        }
        let looks = stream::iter(gone.claims.clone()).map(|id| {
            let claims: Api<Read<IPAMClaim>> = Api::namespaced(self.client.clone(), &id.namespace);
            async move {
                let there = claims.get_opt(&id.name).await?;
                let there = there.filter(|claim| claim.uid().as_ref() == Some(&id.uid));
                // An object that cannot be read still exists.
                Ok::<_, kube::Error>(there.and_then(|there| match there {
                    Read::Is(claim) => Some(claim),
                    Read::Unreadable(it) => IPAMClaim::stand_in(&it),
                }))
            }
        });
        let found: Vec<Option<IPAMClaim>> = looks.buffer_unordered(READS).try_collect().await?;
        Ok(found.into_iter().flatten().next().map(|claim| Some(Observation::is(claim))))
    }

    /// The first of these objects that has a record for a claim.
    async fn any_on_record(
        &self,
        uid: &str,
        places: &[RecordLocation],
    ) -> Result<Option<Observation>, kube::Error> {
        for place in places {
            let there = match place {
                RecordLocation::Block(name) => {
                    let block = self.blocks.get_opt(name).await?;
                    let block = block.filter(|it| !OnRecord::in_block(it, uid).addresses.is_empty());
                    block.map(Observation::is)
                }
                RecordLocation::Ledger(name) => {
                    let ledger = self.ranges.ledgers.get_opt(name).await?;
                    let ledger = ledger.filter(|it| !OnRecord::in_ledger(it, uid).addresses.is_empty());
                    ledger.map(Observation::is)
                }
            };
            if there.is_some() {
                return Ok(there);
            }
        }
        Ok(None)
    }

    /// Which of these claims are gone, if any. The pod was seen first, so each of the others existed after its pod.
    async fn any_gone(&self, named: &[ClaimId]) -> Result<Option<Observation>, kube::Error> {
        let looks = stream::iter(named.to_vec()).map(|id| {
            let claims: Api<Read<IPAMClaim>> = Api::namespaced(self.client.clone(), &id.namespace);
            async move {
                let there = claims.get_metadata_opt(&id.name).await?.and_then(|claim| claim.uid());
                let at = At { name: id.name, uid: id.uid, version: String::new() };
                let gone = there.as_ref() != Some(&at.uid);
                Ok::<_, kube::Error>(gone.then(|| Observation::gone_from::<IPAMClaim>(&id.namespace, at)))
            }
        });
        let gone: Vec<Option<Observation>> = looks.buffer_unordered(READS).try_collect().await?;
        Ok(Observation::all(gone.into_iter().flatten().collect()))
    }

    /// Holds addresses of shared ranges. Creates and marks objects first, and reads everything again after either.
    async fn hold(&self, network: &str, requests: &[Request]) -> Answer {
        for _ in 0..ROUNDS {
            let (known, objects) = self.look_at(network).await?;
            let plan = known.plan(requests.to_vec(), &Spread::of(""), Timestamp::default());
            if !plan.create.is_empty() || !plan.mark.is_empty() {
                self.prepare(&plan).await?;
                continue;
            }
            return self.carry_out(plan, &objects).await;
        }
        Ok((Outcome::Superseded, None))
    }

    /// Reads live everything that tells who holds addresses of a network's ranges. Nodes' own ledgers are not needed:
    /// for a divided range, the object of the whole range tells.
    async fn look_at(&self, network: &str) -> Result<(Network, Vec<IPPool>), kube::Error> {
        let Every { objects, unreadable } =
            every(&self.ranges.read_ledgers(), &format!("!{}", label::NODE)).await?;
        let mut known = Network::new(network);
        // What it holds is not known, so claims wait whose addresses it may hold.
        if let Some(it) = unreadable.iter().find(|it| it.name().starts_with(network)) {
            return Err(unread(it));
        }
        for object in &objects {
            known.see_pool(object, |_| false);
        }
        let reservations = every(&self.ranges.read_reservations(), "").await?;
        for reservation in &reservations.objects {
            known.see_reservation(reservation);
        }
        for it in reservations.unreadable {
            // Its name is the address, so somebody holds it.
            let mut somebody =
                OverlappingRangeIPReservation::new("", OverlappingRangeIPReservationSpec::default());
            somebody.metadata = it.metadata;
            known.see_reservation(&somebody);
        }
        Ok((known, objects))
    }

    async fn prepare(&self, plan: &Plan) -> Result<(), kube::Error> {
        for object in &plan.create {
            match self.ranges.ledgers.create(&PostParams::default(), object).await {
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                Err(error) => return Err(error),
                Ok(_) => {}
            }
        }
        for mark in &plan.mark {
            match json_patch(&self.ranges.ledgers, &mark.name, mark.patch()).await {
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409 | 422) => {}
                Err(error) => return Err(error),
                Ok(_) => {}
            }
        }
        Ok(())
    }

    async fn carry_out(&self, mut plan: Plan, objects: &[IPPool]) -> Answer {
        let mut taken = BTreeSet::new();
        for reserve in &plan.reserve {
            let mut object = reserve.object.clone();
            let owner = (annotation::NODE.to_owned(), annotation::CONTROLLER.to_owned());
            object.metadata.annotations.get_or_insert_default().extend([owner]);
            let there = match self.ranges.reservations.create(&PostParams::default(), &object).await {
                Ok(_) => continue,
                Err(kube::Error::Api(status)) if status.code == 409 => {
                    self.ranges.reservations.get_opt(&reserve.name).await?
                }
                Err(error) => return Err(error),
            };
            if !there.is_some_and(|there| reserve.is(&there)) {
                taken.insert(reserve.name.clone());
            }
        }
        plan.leave_out(&taken);
        let mut observed = Vec::new();
        let mut outcome = Outcome::Superseded;
        for write in &plan.write {
            let written = json_patch(&self.ranges.ledgers, &write.name, write.patch()).await;
            let object = objects.iter().find(|object| object.name_any() == write.name);
            let at = At {
                name: write.name.clone(),
                uid: object.and_then(ResourceExt::uid).unwrap_or_default(),
                version: write.version.clone().unwrap_or_default(),
            };
            let (this, seen) =
                settle(&self.ranges.ledgers, &at, written, Observation::gone::<IPPool>).await?;
            if matches!(this, Outcome::Done) {
                outcome = Outcome::Done;
            }
            observed.extend(seen);
        }
        // A record that exists and was not known is an observation as well.
        if plan.write.is_empty() {
            observed.extend(objects.iter().cloned().map(Observation::is));
        }
        Ok((outcome, Observation::all(observed)))
    }
}
