//! The node as JSON: from the node's state, the kernel and the watches of the API server.

use std::net::IpAddr;

use ipnet::IpNet;
use tenure_handles::Timestamp;
use tenure_ipam::{Addresses, Cidr, Subnet};
use tenure_linux::inventory::Inventory;

use super::{Inspector, kernel};
use crate::key::{HoldKey, Pod};
use crate::node::view::{BlockView, CoolingView, HoldView, PoolView, WaitingView};
use crate::node::{Fence, Node};
use crate::objects::ApiHealth;

/// One read of a node's state.
struct Seen {
    ready: bool,
    problem: Option<String>,
    journal_broken: bool,
    pools: Vec<PoolView>,
    blocks: Vec<BlockView>,
    holds: Vec<HoldView>,
    cooling: Vec<CoolingView>,
    waiting: Vec<WaitingView>,
}

impl Seen {
    fn of(node: &Node) -> Self {
        Self {
            ready: node.is_ready(),
            problem: node.status().err().map(|error| tenure_cni::Failure::from(error).message),
            journal_broken: node.journal().broken,
            pools: node.pools(),
            blocks: node.blocks(),
            holds: node.holds(),
            cooling: node.what_cools(),
            waiting: node.waiting(),
        }
    }
}

impl Inspector {
    /// The complete state of the node, or why it cannot be read.
    pub async fn view(&self) -> Result<tenure_view::Node, String> {
        let inventory = match &self.inner.reader {
            Some(reader) => Some(reader.look().await),
            None => None,
        };
        let looked = self.inner.agent.clock.now();
        let seen = self.look(Seen::of).await?;
        let (kernel, inventory) = match inventory {
            None => (None, None),
            Some(Ok(inventory)) => {
                let differences = kernel::compare(&seen.holds, &inventory);
                (Some(tenure_view::Kernel { looked: looked.to_jiff(), differences }), Some(inventory))
            }
            Some(Err(problem)) => {
                let difference = tenure_view::Difference { subject: "the kernel".to_owned(), problem };
                (Some(tenure_view::Kernel { looked: looked.to_jiff(), differences: vec![difference] }), None)
            }
        };
        let broken = "it cannot be written, and nothing new is assigned until it can";
        let (calls, slowest_adds) = self.inner.agent.calls.summary(looked);
        let mut view = tenure_view::Node {
            node: self.inner.agent.name.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            time: looked.to_jiff(),
            started: Some(self.inner.started.to_jiff()),
            ready: seen.ready,
            problem: seen.problem,
            api: api(self.health()),
            journal: tenure_view::Journal { problem: seen.journal_broken.then(|| broken.to_owned()) },
            pools: seen.pools.into_iter().map(pool).collect(),
            blocks: seen.blocks.into_iter().map(block).collect(),
            holds: holds(seen.holds, inventory.as_ref()),
            cooling: seen.cooling.into_iter().map(cooling).collect(),
            waiting: seen.waiting.into_iter().map(waiting).collect(),
            egress: None,
            node_addresses: Vec::new(),
            calls,
            slowest_adds,
            kernel,
        };
        for part in &self.inner.agent.parts {
            part.show(&mut view);
        }
        Ok(view)
    }
}

fn api(health: ApiHealth) -> tenure_view::Api {
    let watches = health.watches.into_iter().map(|(watched, health)| tenure_view::Watch {
        kind: watched.to_string(),
        problem: health.failing.or_else(|| (!health.listed).then(|| "not listed yet".to_owned())),
    });
    tenure_view::Api { answered: health.last_answer.map(Timestamp::to_jiff), watches: watches.collect() }
}

fn pool(pool: PoolView) -> tenure_view::Pool {
    tenure_view::Pool {
        name: pool.name,
        blocks: small(pool.blocks),
        addresses: counts(pool.counts),
        waiting: small(pool.waiting),
        asked: small(pool.asked),
        problem: pool.trouble,
    }
}

fn block(block: BlockView) -> tenure_view::Block {
    tenure_view::Block {
        name: block.name,
        uid: block.uid,
        pool: block.pool,
        networks: networks(&block.subnet),
        addresses: counts(block.counts),
        usable: block.usable,
        fenced: block.fence.map(|fence| said(&fence)),
    }
}

fn said(fence: &Fence) -> String {
    match fence {
        Fence::Gone => "its object is gone".to_owned(),
        Fence::OtherNode(node) => format!("its object says that node \"{node}\" owns it"),
        Fence::Replaced(uid) => format!("an object of the same name has the UID {uid}"),
        Fence::Changed => "its object has other networks than before".to_owned(),
        Fence::Returned => "it was given back".to_owned(),
        Fence::Before => "it was fenced before the agent was restarted".to_owned(),
    }
}

fn holds(holds: Vec<HoldView>, inventory: Option<&Inventory>) -> Vec<tenure_view::Hold> {
    let links = inventory.map(kernel::links).unwrap_or_default();
    let hold = |hold: HoldView| {
        let link = links.get(&hold.key);
        tenure_view::Hold {
            holder: holder(&hold.key, &hold.pod),
            pool: hold.pool,
            block: hold.block,
            addresses: addresses(&hold.addresses),
            since: (hold.since != Timestamp::default()).then(|| hold.since.to_jiff()),
            host_interface: link.map(|link| link.link.name.clone()),
            traffic: link.map(|link| kernel::traffic(link)),
            claim: hold.claim.map(|claim| tenure_view::Claim {
                name: claim.name,
                uid: claim.uid,
                reached: claim.reached,
            }),
        }
    };
    holds.into_iter().map(hold).collect()
}

fn cooling(cooling: CoolingView) -> tenure_view::Cooling {
    tenure_view::Cooling {
        block: cooling.block,
        addresses: addresses(&cooling.addresses),
        until: cooling.until.to_jiff(),
        last: cooling.last.map(|(key, pod)| holder(&key, &pod)),
    }
}

fn waiting(waiting: WaitingView) -> tenure_view::Waiting {
    tenure_view::Waiting {
        holder: holder(&waiting.key, &waiting.pod),
        pool: waiting.pool,
        since: waiting.since.to_jiff(),
    }
}

pub(crate) fn holder(key: &HoldKey, pod: &Pod) -> tenure_view::Holder {
    let Pod { namespace, name, uid } = pod.clone();
    tenure_view::Holder {
        network: key.network().to_owned(),
        container: key.container().to_owned(),
        interface: key.interface().to_owned(),
        pod: (!name.is_empty()).then_some(tenure_view::Pod { namespace, name, uid }),
    }
}

fn addresses(addresses: &Addresses) -> Vec<IpAddr> {
    addresses.iter().map(tenure_ipam::Address::to_ip).collect()
}

fn networks(subnet: &Subnet) -> Vec<IpNet> {
    let net = |cidr: Cidr| IpNet::new(cidr.first().to_ip(), cidr.prefix()).ok();
    [subnet.ipv4, subnet.ipv6].into_iter().flatten().filter_map(net).collect()
}

fn counts(counts: tenure_ipam::Counts) -> tenure_view::Counts {
    let wide = |number: u128| number.try_into().unwrap_or(u64::MAX);
    tenure_view::Counts {
        capacity: wide(counts.capacity),
        held: wide(counts.held),
        cooling: wide(counts.cooling),
        reserved: wide(counts.reserved),
        free: wide(counts.free),
    }
}

fn small(number: usize) -> u64 {
    number.try_into().unwrap_or(u64::MAX)
}
