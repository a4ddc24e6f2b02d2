//! What `check` can find, and what `repair` does about each: the table that `docs/repair.md` shows.

/// What `repair` does about a kind of finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Does {
    /// It writes something, if that is safe.
    Writes(&'static str),
    /// Nothing: an agent or the controller repairs it within minutes. `repair` waits for that.
    Heals(&'static str),
    /// Nothing: the text says why nobody but a person can decide.
    Explains(&'static str),
}

/// A kind of finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    /// Its stable name.
    pub(crate) name: &'static str,
    /// What it means.
    pub(crate) meaning: &'static str,
    pub(crate) does: Does,
}

use Does::{Explains, Heals, Writes};

const fn kind(name: &'static str, meaning: &'static str, does: Does) -> Kind {
    Kind { name, meaning, does }
}

/// A controller that does not lead cannot do it.
const CONTROLLER: &str = "the controller repairs it within minutes, if one leads";

/// All kinds, in the order of the documentation.
pub(crate) const KINDS: &[Kind] = &[
    kind(
        "pool-invalid",
        "a pool is not valid, so nothing is assigned from it",
        Explains("only its author knows which addresses were meant, and subnets cannot be changed"),
    ),
    kind(
        "pools-overlap",
        "a younger pool shares addresses with an older one",
        Explains(
            "the addresses are assigned from the older pool alone, and which pool should go is not for a program to decide",
        ),
    ),
    kind(
        "pool-unprotected",
        "a pool has blocks and no finalizer",
        Writes("adds the finalizer: it only delays a deletion"),
    ),
    kind(
        "pool-status",
        "the counts in a pool's status are wrong; nothing is assigned by them",
        Heals(CONTROLLER),
    ),
    kind(
        "block-without-pool",
        "a block names no pool, or one that does not exist",
        Writes("adds the label, if the block's name and networks say which pool it is of"),
    ),
    kind(
        "block-without-node",
        "a block names no node, or one that does not exist",
        Writes(
            "labels it with the node whose agent knows the block; if no agent does and nothing shows that an address of it is in use, \
             deletes it. Blocks of nodes that are gone are left to the controller",
        ),
    ),
    kind(
        "block-outside-pool",
        "a block's networks are not those that its number in the pool stands for",
        Writes("drains it: its agent assigns nothing more from it, and returns it when it is empty"),
    ),
    kind(
        "blocks-overlap",
        "two blocks share addresses",
        Writes(
            "drains the younger block: its agent assigns nothing more from it, and returns it when it is empty",
        ),
    ),
    kind(
        "leftover-finalizer",
        "a pool or block has been in deletion for more than a minute",
        Writes(
            "removes our finalizer from a block that no node has and nobody uses; others are left to agent and controller",
        ),
    ),
    kind(
        "request-without-node",
        "a block request is of a node that does not exist",
        Writes("deletes the request; a node that comes back asks again"),
    ),
    kind("request-unanswered", "a block request has had no answer for a minute", Heals(CONTROLLER)),
    kind(
        "request-failed",
        "there is no block for a request",
        Explains("the pool has no block left that this node may have; the agent asks again by itself"),
    ),
    kind(
        "request-left-over",
        "a request was answered or has its block, and its node has not deleted it",
        Writes(
            "deletes the request, if its block exists: the node learns of the block from the block itself",
        ),
    ),
    kind(
        "agent",
        "an agent cannot assign addresses, write its journal or watch",
        Explains("the cause is on the node, or in its rights"),
    ),
    kind(
        "waiting",
        "a pod has waited for an address for more than 30 s",
        Explains("it gets one as soon as its pool has one; another finding says why there is none"),
    ),
    kind(
        "block-unknown-to-agent",
        "a block names a node whose agent does not know it",
        Writes("restarts the node's agent, which then reads all blocks again"),
    ),
    kind(
        "block-unknown-to-api",
        "an agent assigns from a block without an object",
        Writes(
            "restarts the node's agent, which then reads all blocks again and stops assigning from this one",
        ),
    ),
    kind(
        "block-of-two-nodes",
        "an agent assigns from a block whose object names another node",
        Writes(
            "restarts the agent of the node that the object does not name, which then stops assigning from it",
        ),
    ),
    kind(
        "held-in-lost-block",
        "addresses are held in a block that the node has lost",
        Writes(
            "creates the block again for this node, if nobody else has its addresses: the agent takes its holds over into it",
        ),
    ),
    kind(
        "hold-outside-blocks",
        "a hold is in no block of its node",
        Writes(
            "creates the block again for this node, if nobody else has its addresses: the agent takes the hold over into it",
        ),
    ),
    kind(
        "held-twice",
        "an address has two holders",
        Explains("both use the address, and only a person can say which pod is to be deleted"),
    ),
    kind(
        "hold-without-pod",
        "a hold's pod is gone",
        Explains(
            "its container may run without its pod, and uses the address as long as it does; once it is gone, the agent releases the \
                  address within minutes",
        ),
    ),
    kind(
        "pod-without-hold",
        "a pod has an address of a pool, and its node's agent does not hold it for this pod",
        Explains(
            "an agent holds only what it assigned: a hold that somebody else writes could have a second holder already",
        ),
    ),
    kind(
        "pods-share-address",
        "two pods report one address",
        Explains("only a person can say which pod is to be deleted"),
    ),
    kind(
        "ledger-invalid",
        "the range of an `IPPool` is unreadable",
        Writes("deletes it, if it has no record of a pod that exists"),
    ),
    kind(
        "record-senseless",
        "records of an `IPPool` match no address of its range",
        Writes("removes these records from a range that all nodes share; they keep no address from anybody"),
    ),
    kind(
        "ledger-without-slice",
        "an `IPPool` says that a node assigns from a slice that no `NodeSlicePool` gives it",
        Explains("the node alone writes this object, and nobody else gets the slice while records are in it"),
    ),
    kind(
        "recorded-twice",
        "two `IPPool`s of a network have an address",
        Explains(
            "both pods may use it, and only a person can say which one is to be deleted; the record of a pod that is gone is released \
                  within minutes",
        ),
    ),
    kind(
        "record-without-pod",
        "a record's pod is gone",
        Heals("the node's agent or the controller releases it after two observations, within minutes"),
    ),
    kind(
        "pod-without-record",
        "a pod's network status has an address of a range without a record",
        Explains(
            "whoever can write a pod writes its network status: a record made from it would give a tenant any address",
        ),
    ),
    kind(
        "record-without-reservation",
        "ranges overlap, and a record has no `OverlappingRangeIPReservation`",
        Writes("creates the reservation for the record's holder, unless another pod has one"),
    ),
    kind("reservation-without-record", "a reservation has no record", Heals(CONTROLLER)),
    kind(
        "slice-of-two-nodes",
        "a `NodeSlicePool` gives a slice to two nodes",
        Explains("both may have assigned addresses of it, and both lose it if the wrong one does"),
    ),
    kind(
        "node-with-two-slices",
        "a `NodeSlicePool` gives two slices to a node",
        Explains("the node may have assigned addresses of both"),
    ),
    kind("slice-without-node", "a slice's node does not exist", Heals(CONTROLLER)),
    kind(
        "slice-unknown-to-api",
        "an agent assigns from a slice that is not its own",
        Writes(
            "restarts the node's agent, which then reads all slices again and stops assigning from this one; while the node's `IPPool` still tells it that the slice is its own, the controller comes first",
        ),
    ),
    kind(
        "slices",
        "a condition of a `NodeSlicePool`",
        Explains("it follows from the configuration of the network"),
    ),
    kind(
        "alias-twice",
        "two `IPLedger`s have an alias address",
        Explains("nodes of both may use it, and only a person can say whose pods are to end"),
    ),
    kind("alias-unrecorded", "a pod reports an alias address that no `IPLedger` has", Heals(CONTROLLER)),
    kind("alias-status", "a node was told of an alias address that it does not have", Heals(CONTROLLER)),
    kind("alias-node-missing", "`NodeAliases` of a node that is gone", Heals(CONTROLLER)),
    kind(
        "node-address-twice",
        "two nodes have an address of a `NodeIPPool`",
        Explains("one of the nodes has to get another address, and only a person can say which"),
    ),
    kind(
        "node-address-stale",
        "an offset of a `NodeIPPool` is taken and no enactment has it",
        Heals(CONTROLLER),
    ),
    kind(
        "node-address-unrecorded",
        "an enactment has an address that is not taken in its `NodeIPPool`",
        Heals(CONTROLLER),
    ),
    kind(
        "node-address-problem",
        "an agent cannot apply a policy",
        Explains("the cause is on the node, or in the policy"),
    ),
    kind(
        "node-address-unreported",
        "an agent sees an address on an interface that no enactment reports",
        Heals("the node's agent reports it or takes it off within minutes"),
    ),
    kind(
        "node-address-not-there",
        "an enactment reports an address that the agent does not see",
        Heals("the node's agent puts it back or says why not, within minutes"),
    ),
    kind(
        "node-pool-record",
        "the record of a `NodeIPPool` cannot be read",
        Writes(
            "asks the controller, by the annotation `nmstate.io/reset-ippool`, to rebuild it from what the enactments have",
        ),
    ),
    kind(
        "node-pool-missing",
        "the pool of an enactment does not exist",
        Explains("only its author knows its addresses; the node keeps the one that it has"),
    ),
    kind(
        "node-address-not-applied",
        "a node reports success and has not found an address on its interfaces",
        Explains("the policy's desired state does not use the address, or the node cannot"),
    ),
    kind(
        "kernel",
        "an agent's kernel does not match its holds",
        Heals("the node's agent repairs what it sees twice, within 5 minutes"),
    ),
];

/// The kind of this name.
pub(crate) fn of(name: &str) -> Option<&'static Kind> {
    KINDS.iter().find(|kind| kind.name == name)
}

/// Each with the word for what is done about it.
pub(crate) fn all() -> impl Iterator<Item = (&'static str, &'static str)> {
    let does = |does: Does| match does {
        Does::Writes(_) => "repairs",
        Does::Heals(_) => "waits",
        Does::Explains(_) => "explains",
    };
    KINDS.iter().map(move |kind| (kind.name, does(kind.does)))
}

/// The names, for the command line.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    KINDS.iter().map(|kind| kind.name)
}
