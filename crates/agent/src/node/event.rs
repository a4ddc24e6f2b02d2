//! What a node is told.

use std::collections::BTreeSet;
use std::time::Duration;

use tenure_ipam::{Address, Exclusion, Range, Subnet};

use super::{AskId, Consulted, Job, KernelError, Ticket};
use crate::journal::Image;
use crate::key::{HoldKey, Pod};

/// What a node is told.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// At a start: what the journal says.
    Journal(Image),
    /// At a start: the links that the kernel has of ours.
    Kernel(Vec<Found>),
    /// At a start: all pools and blocks that the API has were told.
    ApiRead,
    /// At a start: this node's slices were told, as far as there are any. Waited for if [`Settings::slices`](super::Settings::slices).
    SlicesRead,

    /// A pool is there, or is different.
    PoolChanged {
        /// Its name.
        name: String,
        /// What it is.
        facts: PoolFacts,
    },
    /// A pool is gone.
    PoolGone {
        /// Its name.
        name: String,
    },
    /// A block's object is there, or is different.
    BlockSeen(SeenBlock),
    /// A slice of a range is this node's: a block that nobody carves on demand.
    SliceSeen(SeenSlice),
    /// A block's object is gone, or is no longer this node's.
    BlockGone {
        /// Its name.
        name: String,
        /// Its UID.
        uid: String,
    },
    /// The controller carved a block for a wish; the block itself is told by [`Event::BlockSeen`], before or after this.
    BlockGranted {
        /// The wish.
        ask: AskId,
        /// The block's name.
        block: String,
    },
    /// There is no block for a wish. Every wish is granted or refused in the end, also one whose request vanished.
    BlockRefused {
        /// The wish.
        ask: AskId,
        /// Why.
        refusal: Refusal,
    },

    /// CNI ADD.
    Add {
        /// Who asks.
        ticket: Ticket,
        /// What is asked for.
        attach: Attach,
    },
    /// CNI DEL.
    Del {
        /// Who asks.
        ticket: Ticket,
        /// Whose hold is to end.
        key: HoldKey,
        /// Whether the interface is ours too.
        interface: bool,
    },
    /// CNI DEL of an attachment that may hold several addresses: every part of the key is to end, whichever part it names,
    /// and what was adopted for the same container's interface. Answered by [`Done::Swept`](super::Done::Swept).
    Detach {
        /// Who asks.
        ticket: Ticket,
        /// Whose holds are to end.
        key: HoldKey,
    },
    /// CNI GC: all holds of the network that are not among the ones alive are to end.
    Gc {
        /// Who asks.
        ticket: Ticket,
        /// The network's name.
        network: String,
        /// Container and interface of those alive.
        alive: BTreeSet<(String, String)>,
    },
    /// CNI CHECK.
    Check {
        /// Who asks.
        ticket: Ticket,
        /// What was asked for at the ADD.
        attach: Attach,
        /// The addresses that the result of the ADD has; empty if it is not known.
        expected: Vec<Address>,
    },

    /// The journal is committed up to a position.
    Committed {
        /// The position of the last record that is safe.
        up_to: u64,
    },
    /// The journal cannot be written at present.
    JournalFailed {
        /// Why.
        message: String,
    },

    /// An interface is in place.
    Wired {
        /// Of [`Action::Wire`](super::Action::Wire).
        job: Job,
        /// The interface.
        link: Link,
    },
    /// An interface could not be made.
    WiringFailed {
        /// Of [`Action::Wire`](super::Action::Wire).
        job: Job,
        /// Why.
        error: KernelError,
    },
    /// An interface is out of service.
    Unwired {
        /// Of [`Action::Unwire`](super::Action::Unwire).
        job: Job,
    },
    /// An interface could not be taken out of service.
    UnwiringFailed {
        /// Of [`Action::Unwire`](super::Action::Unwire).
        job: Job,
        /// Why.
        error: KernelError,
    },
    /// An interface was looked at.
    Inspected {
        /// Of [`Action::Inspect`](super::Action::Inspect).
        job: Job,
        /// What is not as it should be.
        differences: Vec<String>,
    },

    /// What the kernel has of ours at present. A look that failed is not answered.
    Looked {
        /// Of [`Action::Look`](super::Action::Look).
        job: Job,
        /// What was seen.
        look: Look,
    },

    /// What others say about who uses which addresses.
    Consulted {
        /// Of [`Action::Consult`](super::Action::Consult).
        job: Job,
        /// What they say.
        consulted: Consulted,
    },
    /// Whether pods are there.
    PodsAsked {
        /// Of those of [`Action::AskAboutPods`](super::Action::AskAboutPods), the holders whose pods could be asked about.
        asked: Vec<HoldKey>,
        /// Those of them whose pod is missing, or is another one by its UID.
        missing: BTreeSet<HoldKey>,
    },

    /// Who has a claim's addresses now, as the claim says. Told of every claim of the first list, before
    /// [`Event::ClaimsRead`], and again whenever it is different.
    ClaimSeen {
        /// The claim's UID.
        uid: String,
        /// The UID of the pod in its active slot, if there is one.
        active_pod: Option<String>,
        /// Whether another pod is in its other slot: coming in, or not gone yet.
        contested: bool,
    },
    /// A claim's object is gone. Claim users that use it stay as they are.
    ClaimGone {
        /// The claim's UID.
        uid: String,
    },
    /// At a start: all claims that the API has were told. Not waited for by anybody.
    ClaimsRead,

    /// Time has passed.
    Tick,
}

/// What an ADD asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attach {
    /// Whose the hold will be.
    pub key: HoldKey,
    /// The pool to assign from.
    pub pool: String,
    /// The pod that it is for.
    pub pod: Pod,
    /// The path of the pod's namespace, whoever makes the interface; empty if it is not known.
    pub netns: String,
    /// The interface to make; none if somebody else does.
    pub wiring: Option<Wiring>,
    /// Which addresses of the pool will do.
    pub wish: Wish,
    /// The claim whose addresses it is to have, instead of any of the pool.
    pub claim_use: Option<ClaimUse>,
}

/// A claim whose addresses an interface on this node is to have. They are of no block of this node; whether packets for
/// them arrive here is the claim's to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimUse {
    /// The claim's UID.
    pub claim: String,
    /// The claim, for people: `namespace/name`.
    pub claim_name: String,
    /// Its addresses with the length of their prefix. Those with that of a single host are routed; others are on a segment.
    pub addresses: Vec<(Address, u8)>,
    /// Whether the pod (by its UID) has the claim's active slot. What [`Event::ClaimSeen`] said last counts for more, because
    /// an ADD may be overtaken by it.
    pub reached: bool,
}

/// Which addresses of a pool an ADD would like. What is held already is kept, whatever it wishes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wish {
    /// Only these; else every address of the pool.
    pub within: Option<Range>,
    /// If there are any, only these, in this order.
    pub only: Vec<Address>,
    /// This one, if it is free.
    pub preferred: Option<Address>,
    /// The lowest free one; else the next after the one that was assigned last.
    pub lowest: bool,
}

/// The interface to make, as far as an address does not say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wiring {
    /// The path of the pod's namespace.
    pub netns: String,
    /// The largest packet; else as large as the uplink's.
    pub mtu: Option<u32>,
    /// The Ethernet address of the pod's end; else one that follows from the key.
    pub mac: Option<String>,
}

/// An interface that is in place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// The name of the host end.
    pub host_name: String,
    /// The Ethernet address of the host end.
    pub host_mac: String,
    /// The Ethernet address of the pod's end.
    pub pod_mac: String,
    /// The largest packet.
    pub mtu: u32,
}

/// A link of ours that was found in the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Whose it is.
    pub key: HoldKey,
    /// The pod that it is for.
    pub pod: Pod,
    /// The addresses that lead to it.
    pub addresses: Vec<Address>,
}

/// What a look at the kernel saw.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// The links of ours.
    pub links: Vec<Found>,
    /// Of the holders that were asked about, those whose interface or namespace is gone.
    pub gone: BTreeSet<HoldKey>,
    /// Routes of ours to pods that lead to no link of ours, as people write them.
    pub strays: Vec<String>,
}

/// A pool, as far as a node is concerned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolFacts {
    /// What it consists of.
    pub subnets: Vec<Subnet>,
    /// A block has two to this power addresses.
    pub block_bits: u8,
    /// How long a freed address cools; else the node's own setting.
    pub cooling: Option<Duration>,
    /// What is never assigned.
    pub exclusions: Vec<Exclusion>,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// Whether its status says that no block is free.
    pub exhausted: bool,
    /// Whether its blocks are slices of ranges: they are told by [`Event::SliceSeen`], and not asked for, given back or
    /// exported. Who cannot be served at once is refused.
    pub sliced: bool,
}

impl PoolFacts {
    /// Whether a pod could get this address of its.
    pub fn hands_out(&self, address: Address) -> bool {
        let networks = |subnet: &Subnet| [subnet.ipv4, subnet.ipv6].into_iter().flatten();
        let mut subnets = self.subnets.iter();
        let Some((subnet, offset)) = subnets.find_map(|subnet| {
            let network = networks(subnet).find(|network| network.contains(address))?;
            Some((subnet, address.distance_from(network.first()).ok()?))
        }) else {
            return false;
        };
        // An excluded address takes its partner of the other family with it.
        let mut pair = networks(subnet).filter_map(|network| network.nth(offset).ok());
        !pair
            .any(|it| self.exclusions.iter().any(|excluded| it.is_between(excluded.first(), excluded.last())))
    }
}

/// A block's object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenBlock {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// The node that owns it.
    pub node: String,
    /// The pool that it was carved from.
    pub pool: String,
    /// Its networks.
    pub subnet: Subnet,
    /// Whether nobody assigns from it.
    pub reserved: bool,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// Whether somebody takes this node for gone and means to release it.
    pub releasing: bool,
}

/// A slice of a range, as a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenSlice {
    /// The block. Its UID is another one each time that the slice is given to the node.
    pub block: SeenBlock,
    /// Among whose addresses its are unique: those of its network. Addresses of blocks of different realms have nothing to
    /// do with each other. Empty for the cluster's own.
    pub realm: String,
    /// What is on record as held in it. Held on from now on, unless the node knows better because it had a block of this
    /// name before.
    pub records: Vec<Recorded>,
}

/// A hold that is on record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// The address.
    pub address: Address,
    /// The container; empty if it is not said.
    pub container: String,
    /// The interface; empty if it is not said.
    pub interface: String,
    /// The pod.
    pub pod: Pod,
}

impl From<SeenBlock> for SeenSlice {
    fn from(block: SeenBlock) -> Self {
        Self { block, realm: String::new(), records: Vec::new() }
    }
}

/// Why there is no block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What it means for those who wait.
    pub kind: RefusalKind,
    /// What to tell them.
    pub message: String,
}

/// What a refusal means for those who wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalKind {
    /// The pool has no block left: waiting does not help.
    Exhausted,
    /// The pool cannot be carved at all (it is invalid, being deleted or gone): waiting does not help.
    Unusable,
    /// The API server or the controller could not be asked: waiting may help.
    Unreachable,
}
