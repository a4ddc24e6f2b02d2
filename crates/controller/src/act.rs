//! Writing: each [`Write`] as the requests that make it, and what was learned from their answers.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use kube::api::{Patch, PatchParams};
use kube::{Api, Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tenure_api::claims::IPAMClaim;
use tenure_api::coil::{AddressBlock, AddressPool, BlockRequest};
use tenure_api::whereabouts::{IPPool, NodeSlicePool, OverlappingRangeIPReservation};
use tokio::time::timeout;

use crate::claims::Claim;
use crate::world::World;
use crate::write::{At, Write};

mod claims;
mod create;
mod ledgers;
mod makers;
mod moves;
mod release;

/// What became of a write.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// It is written.
    Done,
    /// The world has moved on since it was planned, and nothing was written.
    Superseded,
    /// It failed, or nobody knows.
    Failed(String),
    /// The API server asks for this much time.
    Busy(String, Duration),
}

/// How long to wait at least when the API server has too much to do and does not say how long.
const BUSY: Duration = Duration::from_secs(1);
/// How long to wait at most.
const LONGEST_BUSY: Duration = Duration::from_mins(1);

/// What a failure is, and how long whoever refused asks to wait.
fn failed(error: &kube::Error) -> Outcome {
    match error {
        kube::Error::Api(status) if matches!(status.code, 429 | 503) => {
            let asked = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
            let wait = Duration::from_secs(asked.into()).clamp(BUSY, LONGEST_BUSY);
            Outcome::Busy(error.to_string(), wait)
        }
        _ => Outcome::Failed(error.to_string()),
    }
}

/// What an answer shows.
#[derive(Debug)]
pub(crate) enum Learned {
    Pool(AddressPool),
    PoolGone(At),
    Block(AddressBlock),
    BlockGone(At),
    Request(BlockRequest),
    RequestGone(At),
    Slices(Box<NodeSlicePool>),
    SlicesGone(At),
    /// And how many of its records were released.
    Ledger(Box<IPPool>, u64),
    LedgerGone(At),
    Reservation(Box<OverlappingRangeIPReservation>),
    ReservationGone(At),
    All(Vec<Learned>),
    Claim(Box<IPAMClaim>),
    /// With its namespace.
    ClaimGone(String, At),
    /// The server was told of this kind.
    Kind(&'static str),
}

impl Learned {
    /// Takes it into the world.
    pub(crate) fn tell(self, world: &mut World) {
        match self {
            Self::Pool(pool) => world.pools.apply(pool),
            Self::PoolGone(at) => world.pools.remove(&at.name, &at.uid),
            Self::Block(block) => world.blocks.apply(block),
            Self::BlockGone(at) => world.blocks.remove(&at.name, &at.uid),
            Self::Request(request) => world.requests.apply(request),
            Self::RequestGone(at) => world.requests.remove(&at.name, &at.uid),
            Self::Slices(pool) => {
                world.ledgers.slices.apply(*pool);
                world.ledgers.changed();
            }
            Self::SlicesGone(at) => {
                world.ledgers.slices.remove(&at.name, &at.uid);
                world.ledgers.changed();
            }
            Self::Ledger(pool, _) => world.apply_ledger(*pool),
            Self::LedgerGone(at) => {
                world.ledgers.pools.remove(&at.name, &at.uid);
                world.ledgers.changed();
            }
            Self::Reservation(reservation) => world.ledgers.reservations.apply(*reservation),
            Self::ReservationGone(at) => world.ledgers.reservations.remove(&at.name, &at.uid),
            Self::All(all) => all.into_iter().for_each(|learned| learned.tell(world)),
            Self::Claim(claim) => world.claims.all.apply(Claim::of(*claim)),
            Self::ClaimGone(namespace, at) => {
                world.claims.all.remove(&format!("{namespace}/{}", at.name), &at.uid);
            }
            Self::Kind(kind) => world.note_lack(kind, false),
        }
    }
}

type Answer = Result<(Outcome, Option<Learned>), kube::Error>;

/// Writes through one client.
#[derive(Clone)]
pub(crate) struct Actor {
    client: Client,
    namespace: String,
    pools: Api<AddressPool>,
    blocks: Api<AddressBlock>,
    requests: Api<BlockRequest>,
    slices: Api<NodeSlicePool>,
    ledgers: Api<IPPool>,
    reservations: Api<OverlappingRangeIPReservation>,
    /// All pools, as one list showed them.
    listed: Arc<Mutex<Option<Arc<Vec<AddressPool>>>>>,
}

impl Actor {
    /// One that writes Whereabouts' objects in this namespace.
    pub(crate) fn new(client: Client, namespace: &str) -> Self {
        Self {
            slices: Api::namespaced(client.clone(), namespace),
            ledgers: Api::namespaced(client.clone(), namespace),
            reservations: Api::namespaced(client.clone(), namespace),
            pools: Api::all(client.clone()),
            blocks: Api::all(client.clone()),
            requests: Api::all(client.clone()),
            listed: Arc::default(),
            client,
            namespace: namespace.to_owned(),
        }
    }

    /// Writes, and gives up after a while.
    pub(crate) async fn act(&self, write: &Write, patience: Duration) -> (Outcome, Option<Learned>) {
        match timeout(patience, self.write(write)).await {
            Ok(Ok(done)) => done,
            Ok(Err(error)) => (failed(&error), None),
            Err(_) => (Outcome::Failed(format!("no answer within {patience:?}")), None),
        }
    }

    async fn write(&self, write: &Write) -> Answer {
        match write {
            Write::Reserve { request, block } => {
                let status = json!({"addressBlockName": block});
                self.request_status(request, status).await
            }
            Write::Create { block } => self.create(block).await,
            Write::Answer { request, status, unless_exists } => {
                if let Some(block) = unless_exists
                    && let Some(block) = self.blocks.get_opt(block).await?
                    && block.request_uid() == Some(&request.uid)
                {
                    return Ok((Outcome::Superseded, Some(Learned::Block(block))));
                }
                let mut status = serde_json::to_value(status).map_err(kube::Error::SerdeError)?;
                // A merge leaves what it does not mention, and a refusal takes a promise back.
                if status.get("addressBlockName").is_none() {
                    status["addressBlockName"] = Value::Null;
                }
                self.request_status(request, status).await
            }
            Write::PoolStatus { pool, status } => {
                let patch = json!({"metadata": {"resourceVersion": pool.version}, "status": status});
                let written =
                    self.pools.patch_status(&pool.name, &PatchParams::default(), &Patch::Merge(patch)).await;
                self.pool(pool, written).await
            }
            Write::PoolFinalizers { pool, finalizers } => {
                self.pool(pool, finalize(&self.pools, pool, finalizers).await).await
            }
            Write::Unlock { block, pools } => self.unlock(block, pools).await,
            Write::MarkBlock { block, node, mark } => self.mark_block(block, node, mark).await,
            Write::UnmarkBlock { block } => self.unmark_block(block).await,
            Write::ReleaseBlock { block, finalizers, node, because } => {
                self.release_block(block, finalizers, node, because).await
            }
            Write::Ledger(write) => self.write_ledger(write).await,
            Write::Claim(write) => self.write_claim(write).await,
            Write::Move(write) => self.write_move(write).await,
            Write::Make(write) => self.write_maker(write).await,
        }
    }

    async fn request_status(&self, at: &At, status: Value) -> Answer {
        let patch = json!({"metadata": {"resourceVersion": at.version}, "status": status});
        let written =
            self.requests.patch_status(&at.name, &PatchParams::default(), &Patch::Merge(patch)).await;
        settle(&self.requests, at, written, Learned::Request, Learned::RequestGone).await
    }

    async fn pool(&self, at: &At, written: Result<AddressPool, kube::Error>) -> Answer {
        settle(&self.pools, at, written, Learned::Pool, Learned::PoolGone).await
    }
}

async fn finalize<K>(api: &Api<K>, at: &At, finalizers: &[String]) -> Result<K, kube::Error>
where
    K: Resource + Clone + DeserializeOwned + std::fmt::Debug,
{
    let patch = json!({"metadata": {"resourceVersion": at.version, "finalizers": finalizers}});
    api.patch(&at.name, &PatchParams::default(), &Patch::Merge(patch)).await
}

/// What a compare-and-swap came to. If the object had changed, the answer is what it is now.
async fn settle<K>(
    api: &Api<K>,
    at: &At,
    written: Result<K, kube::Error>,
    is: impl Fn(K) -> Learned,
    gone: impl Fn(At) -> Learned,
) -> Answer
where
    K: Resource + Clone + DeserializeOwned + Serialize + std::fmt::Debug,
{
    match written {
        // The last finalizer of an object that was being deleted: this is how it looked in the end.
        Ok(object) if object.meta().deletion_timestamp.is_some() && object.finalizers().is_empty() => {
            Ok((Outcome::Done, Some(gone(at.clone()))))
        }
        Ok(object) => Ok((Outcome::Done, Some(is(object)))),
        Err(kube::Error::Api(status)) if status.code == 404 => {
            Ok((Outcome::Superseded, Some(gone(at.clone()))))
        }
        // A patch whose test fails is invalid, and a version that is not the newest a conflict.
        Err(kube::Error::Api(status)) if status.code == 409 || status.code == 422 => {
            match api.get_opt(&at.name).await? {
                // It has not changed: someone refuses for another reason, and trying at once would not help.
                Some(object) if object.resource_version().as_ref() == Some(&at.version) => {
                    Err(kube::Error::Api(status))
                }
                Some(object) => Ok((Outcome::Superseded, Some(is(object)))),
                None => Ok((Outcome::Superseded, Some(gone(at.clone())))),
            }
        }
        Err(error) => Err(error),
    }
}
