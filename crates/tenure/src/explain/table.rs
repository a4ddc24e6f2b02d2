//! Error texts that people see, with what they mean and what to do: the table that `docs/errors.md` shows.

/// A text, by the parts of it that do not vary.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    /// These parts follow each other in the text.
    pub(crate) says: &'static [&'static str],
    /// The source file that has the text.
    pub(crate) from: &'static str,
    /// What it means.
    pub(crate) means: &'static str,
    /// What to do.
    pub(crate) remedy: &'static str,
}

const fn entry(
    from: &'static str,
    says: &'static [&'static str],
    means: &'static str,
    remedy: &'static str,
) -> Entry {
    Entry { says, from, means, remedy }
}

const POOLS: &str = "crates/agent/src/coil/refusal.rs";
const CALLS: &str = "crates/agent/src/serve/failure.rs";
const CONTROLLER: &str = "crates/controller/src/coil/requests.rs";
const LEDGER: &str = "crates/whereabouts/src/ledger/request.rs";
const SLICES: &str = "crates/whereabouts/src/slices/find.rs";
const SLICE: &str = "crates/agent/src/whereabouts/refusal.rs";
const CLAIMS: &str = "crates/agent/src/claims/refusal.rs";
const PLUGIN: &str = "crates/cni/src/plugin.rs";
const EGRESS: &str = "crates/agent/src/egress/gateways.rs";

/// All of them. The first that matches counts.
pub(crate) const TABLE: &[Entry] = &[
    entry(
        POOLS,
        &["there is no AddressPool to assign addresses from"],
        "The cluster has no `AddressPool` at all, so the node reports that it is not ready.",
        "Create an `AddressPool` named `default`.",
    ),
    entry(
        POOLS,
        &["there is no AddressPool "],
        "The pod's namespace names a pool that does not exist, or names none and there is no pool `default`.",
        "Create the pool, or correct the namespace's annotation `coil.cybozu.com/pool`. The pod is tried again by itself.",
    ),
    entry(
        POOLS,
        &["AddressPool ", " is being deleted and gives no new addresses"],
        "Somebody deletes the pool. It goes when its last pod has ended; new pods get nothing from it.",
        "Name another pool in the namespace's annotation `coil.cybozu.com/pool`.",
    ),
    entry(
        POOLS,
        &["AddressPool ", " is gone"],
        "The pool was deleted while the pod waited for an address.",
        "Create the pool, or name another in the namespace's annotation `coil.cybozu.com/pool`.",
    ),
    entry(
        POOLS,
        &["AddressPool ", " has no address left for this node"],
        "All addresses of the node's blocks are held, and the controller has no further block for this node.",
        "Append a subnet to the pool, delete pods that use it, or name another pool. `tenure pools` and `tenure blocks` show who has the \
         blocks; `tenure drain` takes a half-empty one back.",
    ),
    entry(
        POOLS,
        &["AddressPool ", " cannot be carved into blocks"],
        "The stored pool is not valid, overlaps an older pool, or is being deleted.",
        "`kubectl describe addresspool` says which; replace the pool.",
    ),
    entry(
        POOLS,
        &["no block of AddressPool ", " came for this node within "],
        "The node asked for a block, and the controller did not answer in time.",
        "See whether `tenure-controller` runs and leads (`kubectl -n kube-system get lease coil-ipam-leader`), and whether this node \
         reaches the API server. Pods on blocks that the node has are not affected.",
    ),
    entry(
        POOLS,
        &["no pool has an address left ("],
        "Every pool is used up on this node, so the node reports that it is not ready.",
        "Append a subnet to a pool, or delete pods.",
    ),
    entry(
        CALLS,
        &["tenured has just started and has not yet read "],
        "The agent started a moment ago. It assigns nothing before it knows every existing hold.",
        "Nothing: the runtime tries again. If it stays for minutes, see whether the node reaches the API server.",
    ),
    entry(
        CALLS,
        &["tenured is ending"],
        "The agent is being stopped or replaced.",
        "Nothing: the runtime tries again with the next agent.",
    ),
    entry(
        CALLS,
        &["block ", " was taken away from this node while the pod was getting an address from it"],
        "The block's object was deleted or given to another node at that moment. Nothing was assigned.",
        "Nothing: the next attempt gets an address of another block. If it comes again, run `tenure check`.",
    ),
    entry(
        CALLS,
        &["the attachment was deleted while it was being set up"],
        "The runtime asked to delete the pod's interface before it was there.",
        "Nothing: the pod is gone, or is tried again.",
    ),
    entry(
        CALLS,
        &["tenured cannot write its journal and assigns nothing until it can"],
        "The agent could not record a hold, and never assigns what it could forget.",
        "Free space in `/run` of the node.",
    ),
    entry(
        CALLS,
        &["the keys ", " have the same 128-bit ID"],
        "Two containers have the same identity within the agent, which happens by chance once in 10^30 pods.",
        "Delete the pod; another container ID avoids it.",
    ),
    entry(
        CALLS,
        &["nothing is held for "],
        "CHECK, or another call, is about an interface that has no address: it was never added, or is deleted already.",
        "If the pod runs, delete it, so that it gets an address that is held.",
    ),
    entry(
        CALLS,
        &[" holds ", ", and not ", " as its result says"],
        "The runtime's cache names another address than the agent holds for the interface.",
        "Delete the pod, so that it is set up again.",
    ),
    entry(
        CALLS,
        &["the interface is not as it was set up: "],
        "Somebody changed the pod's interface, routes or addresses.",
        "The agent puts its own side right within minutes; delete the pod if the pod's side was changed.",
    ),
    entry(
        CALLS,
        &[" holds ended, ", " could not: "],
        "A deletion was done in part; the text says what could not be.",
        "Nothing: the runtime tries again. If it stays, see the log of the node's agent.",
    ),
    entry(
        CONTROLLER,
        &[" blocks of pool ", ", and no node gets more for the pods that it may run"],
        "The node has as many blocks as its `maxPods` can need.",
        "Raise the kubelet's `maxPods` if the node needs more; if not, see who uses the node's token.",
    ),
    entry(
        CONTROLLER,
        &[" has no free block; append a subnet to spec.subnets"],
        "Every block of the pool belongs to a node or to claims.",
        "Append a subnet, or free addresses so that nodes return blocks (`tenure blocks`, `tenure drain`).",
    ),
    entry(
        CONTROLLER,
        &[" is being deleted and gives no more blocks"],
        "The pool is in deletion, and blocks are only returned to it.",
        "Name another pool in the namespace's annotation `coil.cybozu.com/pool`.",
    ),
    entry(
        LEDGER,
        &["could not allocate IP in range: none of the ", " is free for "],
        "Every address of a Whereabouts range that all nodes share is recorded.",
        "Make the range larger. `tenure check` shows records whose pods are gone, and `tenure release` releases one.",
    ),
    entry(
        LEDGER,
        &[" assigns nothing any more: its range is cut into slices of nodes"],
        "The range is divided into slices, and this configuration wants to share it.",
        "Use the configuration with `node_slice_size` for every network of this range.",
    ),
    entry(
        LEDGER,
        &[" assigns nothing: its range ", "cut into slices of nodes"],
        "The range overlaps one of the same network that is divided into slices.",
        "Use the configuration with `node_slice_size`, a range that overlaps no divided one, or another `network_name`.",
    ),
    entry(
        SLICES,
        &["there is no NodeSlicePool "],
        "The controller has not divided the range of the network yet.",
        "See whether `tenure-controller` runs, and whether the NetworkAttachmentDefinition is in the cluster.",
    ),
    entry(
        SLICES,
        &[" has no slice of NodeSlicePool ", ", which gives none: "],
        "The range is not divided now; the text says why.",
        "`kubectl describe nodeslicepool` says what to correct in the NetworkAttachmentDefinition.",
    ),
    entry(
        SLICES,
        &[" has no slice of NodeSlicePool ", " without a node): make the"],
        "There are more nodes than slices, or the controller has not seen this node yet.",
        "Make the range larger or `node_slice_size` smaller.",
    ),
    entry(
        SLICES,
        &["the slice ", " is no network: accepted is 10.0.16.0/20"],
        "The status of the NodeSlicePool has a slice that cannot be read.",
        "See who else writes the NodeSlicePool; delete the entry, and the controller writes it again.",
    ),
    entry(
        SLICE,
        &["addresses of slice ", " may be in use by containers that no journal knows of"],
        "The node's journal was lost without a reboot. The agent asks namespaces, pods and the runtime who uses its addresses.",
        "Nothing: it takes about a minute.",
    ),
    entry(
        SLICE,
        &["could not allocate IP in range: this node has no slice of NodeSlicePool "],
        "The node lost its slice.",
        "`kubectl describe nodeslicepool` says why.",
    ),
    entry(
        SLICE,
        &["could not allocate IP in range: this node's slice of NodeSlicePool "],
        "Every address of the node's slice is held.",
        "Make `node_slice_size` or the range larger, exclude fewer addresses, or delete pods of this node that use the network.",
    ),
    entry(
        CLAIMS,
        &["this node has not read IPAMClaims yet, and "],
        "The pod refers to a claim, and the agent does not know the claims.",
        "See whether the API server is there, and whether the agent may list `ipamclaims.k8s.cni.cncf.io`.",
    ),
    entry(
        CLAIMS,
        &[", and the configuration that the caller passed does not let addresses outlive pods"],
        "The pod refers to a claim, and its network does not allow claims. It gets no other address instead.",
        "Put `\"allowPersistentIPs\": true` into the network's configuration, or remove the reference. Multus keeps a copy: restart it.",
    ),
    entry(
        CLAIMS,
        &["cannot read pod ", ", which may refer to an IPAMClaim on network "],
        "The API server does not answer, and an address that is not the claim's would be wrong.",
        "Nothing: the runtime tries again. See whether the node reaches the API server.",
    ),
    entry(
        CLAIMS,
        &[" is in use by pod ", " and moves to pod "],
        "A claim has one pod, and a second one while it moves. This would be the third.",
        "Wait until one of the two is gone; `tenure claims` shows them.",
    ),
    entry(
        CLAIMS,
        &[" has not been let use "],
        "The controller says who may use a claim, and has not said it of this pod yet.",
        "See whether `tenure-controller` runs, and whether another pod has the claim (`tenure claims`).",
    ),
    entry(
        CLAIMS,
        &[" cannot be used on this node: "],
        "Another holder on the node has an address of the claim.",
        "`tenure who ADDRESS` says who; an address of a claim is nobody else's.",
    ),
    entry(
        PLUGIN,
        &["cannot ask tenured for "],
        "The plugin does not reach the node's agent.",
        "See whether the agent's pod runs on this node. A DEL succeeds all the same, and the agent performs it later.",
    ),
    entry(
        PLUGIN,
        &["the agent's answer cannot be read: "],
        "Plugin and agent are of versions that do not understand each other.",
        "Install both from one release.",
    ),
    entry(
        PLUGIN,
        &["the agent is down and a tombstone cannot be left in "],
        "A DEL could neither be done nor left for later.",
        "Start the agent, or make the directory writable.",
    ),
    entry(
        PLUGIN,
        &["field socket of the network configuration is "],
        "The configuration names another socket than the node's agent has, and a tenant must not choose one.",
        "Remove the field.",
    ),
    entry(
        EGRESS,
        &["there is no Egress "],
        "The pod's annotation names an `Egress` that does not exist.",
        "Create it in the namespace that the annotation names, or correct the annotation.",
    ),
    entry(
        EGRESS,
        &["Egress ", " has no Service of its name with a ClusterIP yet"],
        "The gateway's Service is not there, so packets could not reach it.",
        "The controller makes it: see whether it runs with egress enabled, and `kubectl describe egress`.",
    ),
];
