//! The events that a node receives.

use std::collections::BTreeSet;
use std::time::Duration;

use tenure_ipam::{Address, Exclusion, Range, Subnet};

use super::{AskId, Consulted, Job, KernelError, Ticket};
use crate::journal::Image;
use crate::key::{HoldKey, Pod};

/// An event that a node receives.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// At a start: the contents of the journal.
    Journal(Image),
    /// At a start: our links in the kernel.
    Kernel(Vec<Found>),
    /// At a start: all pools and blocks of the API were reported.
    ApiRead,
    /// At a start: another source of blocks has reported what it has. The node waits for this if
    /// [`Settings::sources`](super::Settings::sources) has the source.
    SourceRead {
        /// What was read, as the settings name it.
        source: &'static str,
    },

    /// A pool appeared or changed.
    PoolChanged {
        /// Its name.
        name: String,
        /// Its facts.
        facts: PoolFacts,
    },
    /// Which pods will ask for an address of a pool soon, by UID; all of them each time.
    PodsExpected {
        /// The pool's name.
        pool: String,
        /// The UIDs.
        pods: BTreeSet<String>,
    },
    /// A pool is gone.
    PoolGone {
        /// Its name.
        name: String,
    },
    /// A block's object appeared or changed.
    BlockSeen(SeenBlock),
    /// A slice of a range belongs to this node: a block that is not carved on demand.
    SliceSeen(SeenSlice),
    /// A block's object is gone, or no longer this node's.
    BlockGone {
        /// Its name.
        name: String,
        /// Its UID.
        uid: String,
    },
    /// The controller carved a block for a request; [`Event::BlockSeen`] reports the block itself, before or
    /// after this.
    BlockGranted {
        /// The request.
        ask: AskId,
        /// The block's name.
        block: String,
    },
    /// A request for a block failed. Every request is granted or refused eventually, even if its object
    /// disappears.
    BlockRefused {
        /// The request.
        ask: AskId,
        /// The reason.
        refusal: Refusal,
    },

    /// CNI ADD.
    Add {
        /// The call.
        ticket: Ticket,
        /// What it asks for.
        attach: Attach,
    },
    /// CNI DEL.
    Del {
        /// The call.
        ticket: Ticket,
        /// The holder whose hold ends.
        key: HoldKey,
        /// Whether the interface is ours.
        interface: bool,
    },
    /// CNI DEL of an attachment that may hold several addresses: ends every part of the key, whichever part
    /// it names, and holds adopted for the same container's interface. Answered by
    /// [`Done::Swept`](super::Done::Swept).
    Detach {
        /// The call.
        ticket: Ticket,
        /// The holder whose holds end.
        key: HoldKey,
    },
    /// CNI GC: ends all holds of the network that are not in the list of live ones.
    Gc {
        /// The call.
        ticket: Ticket,
        /// The network's name.
        network: String,
        /// Container and interface of the live ones.
        alive: BTreeSet<(String, String)>,
    },
    /// CNI CHECK.
    Check {
        /// The call.
        ticket: Ticket,
        /// What the ADD asked for.
        attach: Attach,
        /// The addresses in the result of the ADD; empty if unknown.
        expected: Vec<Address>,
    },

    /// The journal is committed up to a position.
    Committed {
        /// The position of the last committed record.
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
    /// An interface could not be created.
    WiringFailed {
        /// Of [`Action::Wire`](super::Action::Wire).
        job: Job,
        /// Why.
        error: KernelError,
    },
    /// An interface was removed.
    Unwired {
        /// Of [`Action::Unwire`](super::Action::Unwire).
        job: Job,
    },
    /// An interface could not be removed.
    UnwiringFailed {
        /// Of [`Action::Unwire`](super::Action::Unwire).
        job: Job,
        /// Why.
        error: KernelError,
    },
    /// An interface was checked.
    Inspected {
        /// Of [`Action::Inspect`](super::Action::Inspect).
        job: Job,
        /// What is not as it should be.
        differences: Vec<String>,
    },

    /// What the kernel has of ours at present. A failed observation is not reported.
    Looked {
        /// Of [`Action::Look`](super::Action::Look).
        job: Job,
        /// The observation.
        look: Look,
    },

    /// What other sources say about who uses which addresses.
    Consulted {
        /// Of [`Action::Consult`](super::Action::Consult).
        job: Job,
        /// What they say.
        consulted: Consulted,
    },
    /// Whether pods exist.
    PodsAsked {
        /// Those holders of [`Action::AskAboutPods`](super::Action::AskAboutPods) whose pods could be asked
        /// about.
        asked: Vec<HoldKey>,
        /// Those of them whose pod is missing or has another UID.
        missing: BTreeSet<HoldKey>,
    },

    /// Which pod has a claim's addresses now, as the claim says. Sent for every claim of the first list,
    /// before [`Event::ClaimsRead`], and again after every change.
    ClaimSeen {
        /// The claim's UID.
        uid: String,
        /// The UID of the pod in its active slot, if there is one.
        active_pod: Option<String>,
        /// Whether another pod is in its other slot: incoming, or not gone yet.
        contested: bool,
    },
    /// A claim's object is gone. Its claim users stay as they are.
    ClaimGone {
        /// The claim's UID.
        uid: String,
    },
    /// At a start: all claims of the API were reported. Nothing waits for this.
    ClaimsRead,

    /// Time has passed.
    Tick,
}

/// What an ADD asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attach {
    /// The holder.
    pub key: HoldKey,
    /// The pool to assign from.
    pub pool: String,
    /// Its pod.
    pub pod: Pod,
    /// The path of the pod's namespace, whoever creates the interface; empty if unknown.
    pub netns: String,
    /// The interface to create; `None` if another plugin does.
    pub wiring: Option<Wiring>,
    /// Which addresses of the pool it accepts or prefers.
    pub wish: Wish,
    /// The claim whose addresses it gets instead of the pool's.
    pub claim_use: Option<ClaimUse>,
}

/// A claim whose addresses an interface on this node gets. They are in no block of this node; the claim says
/// whether packets for them arrive here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimUse {
    /// The claim's UID.
    pub claim: String,
    /// The claim for people: `namespace/name`.
    pub claim_name: String,
    /// Its addresses with their prefix lengths. Those with the prefix of a single host are routed; others are
    /// on a segment.
    pub addresses: Vec<(Address, u8)>,
    /// Whether the pod (by its UID) has the claim's active slot. The last [`Event::ClaimSeen`] takes
    /// precedence, because it may overtake an ADD.
    pub reached: bool,
}

/// Which addresses of a pool an ADD accepts or prefers. An existing hold is kept in any case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wish {
    /// Only addresses in this range; otherwise every address of the pool.
    pub within: Option<Range>,
    /// If not empty, only these, in this order.
    pub only: Vec<Address>,
    /// This one, if it is free.
    pub preferred: Option<Address>,
    /// The lowest free one; otherwise the next after the last assigned one.
    pub lowest: bool,
    /// Only from a block that is kept for its pod ([`SeenBlock::pod`]). No block is requested for it.
    pub kept_for_pod: bool,
}

/// The interface to create, apart from its addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wiring {
    /// The path of the pod's namespace.
    pub netns: String,
    /// The MTU; otherwise the uplink's.
    pub mtu: Option<u32>,
    /// The MAC address of the pod's end; otherwise one computed from the key.
    pub mac: Option<String>,
}

/// An interface that is in place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// The name of the host end.
    pub host_name: String,
    /// The MAC address of the host end.
    pub host_mac: String,
    /// The MAC address of the pod's end.
    pub pod_mac: String,
    /// The MTU.
    pub mtu: u32,
}

/// A link of ours in the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The holder.
    pub key: HoldKey,
    /// Its pod.
    pub pod: Pod,
    /// The addresses whose routes lead to it.
    pub addresses: Vec<Address>,
}

/// One observation of the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// Our links.
    pub links: Vec<Found>,
    /// Those holders asked about whose interface or namespace is gone.
    pub gone: BTreeSet<HoldKey>,
    /// Our routes to pods that lead to no link of ours, as text.
    pub strays: Vec<String>,
}

/// The facts about a pool that a node needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct PoolFacts {
    /// Its subnets.
    pub subnets: Vec<Subnet>,
    /// A block has two to this power addresses.
    pub block_bits: u8,
    /// How long a freed address cools; otherwise the node's own setting.
    pub cooling: Option<Duration>,
    /// What is never assigned.
    pub exclusions: Vec<Exclusion>,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// Whether its status says that no block is free.
    pub exhausted: bool,
    /// Whether its blocks are slices of ranges: [`Event::SliceSeen`] reports them, and they are not
    /// requested, returned or exported. Calls that cannot be served at once are refused.
    pub sliced: bool,
    /// How many free addresses to keep ready, also before the first pod; otherwise a part of a block. All that is missing is requested
    /// at once.
    pub warm: Option<u32>,
    /// Whether packets for its blocks arrive here without an export.
    pub unexported: bool,
}

impl PoolFacts {
    /// Whether a pod could get this address of the pool.
    pub fn assigns(&self, address: Address) -> bool {
        let networks = |subnet: &Subnet| [subnet.ipv4, subnet.ipv6].into_iter().flatten();
        let mut subnets = self.subnets.iter();
        let Some((subnet, offset)) = subnets.find_map(|subnet| {
            let network = networks(subnet).find(|network| network.contains(address))?;
            Some((subnet, address.distance_from(network.first()).ok()?))
        }) else {
            return false;
        };
        // If an address is excluded, so is its partner of the other family.
        let mut pair = networks(subnet).filter_map(|network| network.nth(offset).ok());
        !pair
            .any(|it| self.exclusions.iter().any(|excluded| it.is_between(excluded.first(), excluded.last())))
    }
}

/// A block's object.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own, which objects tell in any combination"
)]
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
    /// Whether it has a release mark, because this node seems to be gone.
    pub releasing: bool,
    /// Whether an operator drains it: nothing new is assigned from it, and it is returned once it is empty.
    pub draining: bool,
    /// The UID of the only pod that gets an address of it; `None` if any pod does.
    pub pod: Option<String>,
}

/// A slice of a range, as a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenSlice {
    /// The block. It has a new UID each time the node gets the slice.
    pub block: SeenBlock,
    /// The realm within which its addresses are unique: that of its network. Addresses of blocks of different
    /// realms are unrelated. Empty for the cluster's own.
    pub realm: String,
    /// The holds in its records. They are held from now on, unless the node had a block of this name before
    /// and knows better.
    pub records: Vec<Recorded>,
}

/// A hold in a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// The address.
    pub address: Address,
    /// The container; empty if unknown.
    pub container: String,
    /// The interface; empty if unknown.
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
    /// What it means for waiting calls.
    pub kind: RefusalKind,
    /// The text for them.
    pub message: String,
}

/// What a refusal means for waiting calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalKind {
    /// The pool has no block left: waiting does not help.
    Exhausted,
    /// The pool cannot be carved at all (it is invalid, being deleted or gone): waiting does not help.
    Unusable,
    /// The API server or the controller could not be asked: waiting may help.
    Unreachable,
}
