//! What may happen to a cluster: each kind of event that the controller hears of.

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use kube::runtime::watcher::Event;
use serde_json::json;
use tenure_api::coil::{AddressPool, BlockRequest};
use tenure_api::whereabouts::IPPool;
use tenure_controller::{At, Kind as _, Observation, PodBrief};

use super::cluster::{CLAIMS, Cluster, PODS, TEN, claim_of, namespace_of, node, pod_of, podref};

/// Numbers of blocks that nobody has.
const BEHIND_ALL_BLOCKS: u128 = 30_000;

/// One kind of event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Happening {
    RequestCreated,
    BlockCreated,
    BlockReturned,
    PodCreated,
    PodDeleted,
    ClaimCreated,
    ClaimsPodMoved,
    NodesLedgerWritten,
    SliceTaken,
    SharedLedgerWritten,
    Heartbeat,
    NodeJoined,
    NodeDeleted,
    NamespaceChanged,
    AttachmentChanged,
    AttachmentEdited,
    SlicesWritten,
    PoolCreated,
}

/// Takes back what would be followed by something else.
type Undo = Box<dyn FnOnce(&mut Cluster)>;

impl Happening {
    pub(super) const ALL: [Self; 18] = [
        Self::RequestCreated,
        Self::BlockCreated,
        Self::BlockReturned,
        Self::PodCreated,
        Self::PodDeleted,
        Self::ClaimCreated,
        Self::ClaimsPodMoved,
        Self::NodesLedgerWritten,
        Self::SliceTaken,
        Self::SharedLedgerWritten,
        Self::Heartbeat,
        Self::NodeJoined,
        Self::NodeDeleted,
        Self::NamespaceChanged,
        Self::AttachmentChanged,
        Self::AttachmentEdited,
        Self::SlicesWritten,
        Self::PoolCreated,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::RequestCreated => "a request is created",
            Self::BlockCreated => "a block is created",
            Self::BlockReturned => "a block is returned",
            Self::PodCreated => "a pod is created",
            Self::PodDeleted => "a pod with a shared address is deleted",
            Self::ClaimCreated => "a claim is created",
            Self::ClaimsPodMoved => "a claim's pod moves",
            Self::NodesLedgerWritten => "a node writes its ledger",
            Self::SliceTaken => "a node takes its slice",
            Self::SharedLedgerWritten => "a shared ledger is written",
            Self::Heartbeat => "a node's heartbeat",
            Self::NodeJoined => "a node joins ten networks",
            Self::NodeDeleted => "a node is deleted",
            Self::NamespaceChanged => "a namespace changes",
            Self::AttachmentChanged => "an attachment definition's MTU changes",
            Self::AttachmentEdited => "an attachment definition excludes addresses",
            Self::SlicesWritten => "a pool of slices is written",
            Self::PoolCreated => "a pool is created",
        }
    }

    /// Lets it happen, to somebody else each time; what takes it back.
    pub(super) fn happen(self, cluster: &mut Cluster) -> Result<Undo> {
        cluster.turn += 1;
        let turn = cluster.turn;
        let number = (turn * 37) % cluster.nodes;
        let (index, pool) = (BEHIND_ALL_BLOCKS + turn as u128, turn % TEN);
        let mut undo: Undo = Box::new(|_| ());
        match self {
            Self::RequestCreated => {
                let spec = json!({"nodeName": node(number), "poolName": format!("p{pool}")});
                let request = json!({"metadata": {"name": format!("request-{turn}")}, "spec": spec});
                cluster.put_json::<BlockRequest>(request)?;
            }
            Self::BlockCreated => cluster.block(pool, index, &node(number))?,
            Self::BlockReturned => {
                cluster.block(pool, index, &node(number))?;
                cluster.settle()?;
                let name = tenure_api::coil::block_name(&format!("p{pool}"), index);
                let known = cluster.world.coil().blocks.get(&name).context("there is no such block")?;
                let at = At::of(known);
                Observation::gone::<tenure_api::coil::AddressBlock>(at).tell(&mut cluster.world);
            }
            Self::PodCreated => {
                cluster.some_pod(number, &format!("new-{turn}"), None, &node(number))?;
            }
            Self::PodDeleted => {
                let pod = podref(number, &pod_of(number, CLAIMS));
                cluster.world.ledgers_mut().pods.remove(&pod);
                undo = Box::new(move |cluster| _ = cluster.pod(number, CLAIMS));
            }
            Self::ClaimCreated => cluster.claim(number, &format!("new-{turn}"))?,
            Self::ClaimsPodMoved => {
                let (pod, claim) = (turn % CLAIMS, claim_of(number, turn % CLAIMS));
                let there = node((number + 1) % cluster.nodes);
                // The pod that had it is gone already, and its successor was heard of with the same breath.
                PodBrief::observe_gone(&mut cluster.world, &namespace_of(number), &pod_of(number, pod), "");
                cluster.some_pod(number, &format!("moved-{turn}"), Some(&claim), &there)?;
                undo = Box::new(move |cluster| {
                    let moved = podref(number, &format!("moved-{turn}"));
                    _ = cluster.settle();
                    cluster.world.ledgers_mut().pods.remove(&moved);
                    _ = cluster.pod(number, pod);
                });
            }
            Self::NodesLedgerWritten => {
                let of_network = (TEN - number % TEN) % TEN;
                if let Some(slice) = cluster.slice(of_network, number) {
                    cluster.ledger(of_network, number, &slice, 3 + turn % (PODS - CLAIMS - 8))?;
                }
            }
            Self::SliceTaken => {
                // Of this network the node has had no ledger so far.
                let of_network = (TEN + TEN / 2 - number % TEN) % TEN;
                if let Some(slice) = cluster.slice(of_network, number) {
                    let ledger = cluster.ledger(of_network, number, &slice, 1)?;
                    undo = Box::new(move |cluster| {
                        let known =
                            cluster.world.ledgers().pools.get(&ledger).map(|known| At::of(&known.pool));
                        if let Some(at) = known {
                            Observation::gone::<IPPool>(at).tell(&mut cluster.world);
                        }
                    });
                }
            }
            Self::SharedLedgerWritten => {
                cluster.shared_ledger(0, 0, turn % 5)?;
            }
            Self::Heartbeat => {
                let mut known = cluster.world.nodes().get(&node(number)).context("there is no node")?.clone();
                known.labels_mut().insert("turn".to_owned(), turn.to_string());
                cluster.put(known);
            }
            Self::NodeJoined => cluster.node(&format!("x{turn:05}"))?,
            Self::NodeDeleted => {
                let known = cluster.world.nodes().get(&node(number)).context("there is no node")?.clone();
                Node::observe(&mut cluster.world, Event::Delete(known));
                undo = Box::new(move |cluster| _ = cluster.node(&node(number)));
            }
            Self::NamespaceChanged => cluster.namespace(turn % TEN, turn)?,
            Self::AttachmentChanged => cluster.attachment(turn % TEN, turn, &[])?,
            Self::AttachmentEdited => {
                let exclude = format!("11.{}.0.{}/32", turn % TEN * 4, 1 + turn / TEN % 8);
                cluster.attachment(turn % TEN, turn, &[&exclude])?;
            }
            Self::SlicesWritten => {
                let known = cluster.world.ledgers().slices.get(&format!("net{}", turn % TEN));
                if let Some(mut pool) = known.cloned() {
                    pool.labels_mut().insert("turn".to_owned(), turn.to_string());
                    cluster.put(pool);
                }
            }
            Self::PoolCreated => {
                let (name, subnet) =
                    (format!("new-{turn}"), format!("13.{}.{}.0/24", turn / 256, turn % 256));
                cluster.pool(&name, &subnet)?;
                undo = Box::new(move |cluster| {
                    let known = cluster.world.coil().pools.get(&name).map(At::of);
                    if let Some(at) = known {
                        Observation::gone::<AddressPool>(at).tell(&mut cluster.world);
                    }
                });
            }
        }
        Ok(undo)
    }
}
