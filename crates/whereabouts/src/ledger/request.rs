//! Requests to a network's ledgers, and their answers.

use std::collections::BTreeSet;

use tenure_api::claims::RECORD_PREFIX;
use tenure_api::whereabouts::Allocation;
use tenure_ipam::{Address, Cidr, Range};

use super::PoolId;
use crate::config::Config;

/// A pod's interface.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Who {
    /// The container.
    pub id: String,
    /// The pod, as `namespace/name`.
    pub podref: String,
    /// The pod's UID; empty if the runtime does not pass it.
    pub uid: String,
    /// The interface.
    pub ifname: String,
}

/// A request for one address.
#[derive(Clone, Debug, PartialEq)]
pub struct Want {
    /// The pool.
    pub pool: PoolId,
    /// The accepted addresses.
    pub range: Range,
    /// If not empty, only these, in this order.
    pub pick: Vec<Address>,
    /// This one, if it is free.
    pub preferred: Option<Address>,
    /// Whether no other range of the network may have it.
    pub overlapping: bool,
}

/// A waiting request.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// The caller.
    pub who: Who,
    /// The action.
    pub act: Act,
}

/// The action of a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Act {
    /// Hold an address from each, or none.
    Hold {
        /// In the order of the answer.
        wants: Vec<Want>,
        /// What earlier attempts of this very request wrote: object and key. A refusal removes it.
        made: BTreeSet<(String, String)>,
    },
    /// Release everything of the container's interface.
    Release {
        /// The pools of its configuration: in these, also records of old versions, which name no interface.
        pools: Vec<PoolId>,
    },
    /// Release everything of the container's interface, and its reservations without a record: its own
    /// request for them was given up, and nobody knows how far it got.
    Abandon,
    /// Release one record, if it is unchanged: nobody uses it any more.
    Forget {
        /// The object.
        object: String,
        /// The key in it.
        key: String,
        /// The record.
        record: Allocation,
    },
}

/// The answer to a request, once the writes that it [needs](super::Plan::settle) have succeeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// An address for each want, in their order.
    Held(Vec<Address>),
    /// The freed addresses; empty if there were none.
    Released(Vec<Address>),
    /// The request is refused.
    Refused(LedgerRefusal),
    /// Objects must be created or marked first.
    Wait,
}

/// Why no address is held.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LedgerRefusal {
    /// No address is free.
    #[error(
        "could not allocate IP in range: none of the {capacity} addresses {first} to {last} of {pool} is free for {podref}"
    )]
    Exhausted {
        /// The pool's object.
        pool: String,
        /// The lowest address.
        first: Address,
        /// The highest address.
        last: Address,
        /// How many there are.
        capacity: u128,
        /// The pod that asked.
        podref: String,
    },
    /// The range was divided into slices.
    #[error(
        "{pool} assigns nothing any more: its range is cut into slices of nodes; accepted is a configuration with \
         node_slice_size"
    )]
    Sliced {
        /// The pool's object.
        pool: String,
    },
    /// The range or one that it overlaps was divided into slices; the rest of either cannot be told apart.
    #[error(
        "{pool} assigns nothing: its range {range}, or {other} of the same network, which it overlaps (IPPool {by}), is \
         cut into slices of nodes; accepted is the configuration with node_slice_size, a range that overlaps nothing that \
         is cut, or another network_name"
    )]
    Overlaps {
        /// The pool's object.
        pool: String,
        /// Its range.
        range: Cidr,
        /// The other range, or a node's slice.
        other: Cidr,
        /// The object of that.
        by: String,
    },
    /// The pool's name is invalid.
    #[error("{0}")]
    Name(String),
}

impl Who {
    /// Whether a record with this interface's pod name belongs to this very pod: to the same container, or to
    /// an earlier one of the pod with the same UID, which its node ended before it started this one. A record
    /// with a container and no UID may belong to an earlier pod of the same name that still runs.
    pub fn owns(&self, record: &Allocation) -> bool {
        let of_claims = record.id.starts_with(RECORD_PREFIX) || self.id.starts_with(RECORD_PREFIX);
        let same_pod = match record.poduid.as_deref() {
            Some(uid) => !uid.is_empty() && uid == self.uid,
            None => record.id.is_empty(),
        };
        record.podref == self.podref && (record.id == self.id || (!of_claims && same_pod))
    }

    /// The record of the interface's address.
    pub(super) fn record(&self) -> Allocation {
        Allocation {
            id: self.id.clone(),
            podref: self.podref.clone(),
            ifname: Some(self.ifname.clone()),
            poduid: Some(self.uid.clone()).filter(|uid| !uid.is_empty()),
            ..Allocation::default()
        }
    }
}

impl Want {
    /// The wants of a network's configuration, range by range. `preferred` is what the pod prefers.
    pub fn of(config: &Config, preferred: &[Option<Address>]) -> Vec<Self> {
        let want = |(place, range): (usize, &crate::config::RangeConfig)| Self {
            pool: PoolId::shared(&config.network, range.cidr()),
            range: range.range.clone(),
            pick: range.pick.clone(),
            preferred: preferred.get(place).copied().flatten(),
            overlapping: config.overlapping,
        };
        config.ranges.iter().enumerate().map(want).collect()
    }
}

impl Request {
    /// A request for a pod's interface.
    pub fn hold(who: Who, wants: Vec<Want>) -> Self {
        Self { who, act: Act::Hold { wants, made: BTreeSet::new() } }
    }

    /// A release for a container's interface that is gone.
    pub fn release(who: Who, config: &Config) -> Self {
        let pools = config.ranges.iter().map(|range| PoolId::shared(&config.network, range.cidr())).collect();
        Self { who, act: Act::Release { pools } }
    }
}
