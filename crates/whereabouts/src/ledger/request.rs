//! What is asked of a network's ledgers, and what is answered.

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
    /// The pod's UID; empty where the runtime does not tell it.
    pub uid: String,
    /// The interface.
    pub ifname: String,
}

/// One address that is asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Want {
    /// Out of which pool.
    pub pool: PoolId,
    /// Which addresses of it.
    pub range: Range,
    /// If there are any, only these, in this order.
    pub pick: Vec<Address>,
    /// This one, if it is free.
    pub preferred: Option<Address>,
    /// Whether no other range of the network may have it.
    pub overlapping: bool,
}

/// A request that waits.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// Who asks.
    pub who: Who,
    /// What for.
    pub act: Act,
}

/// What is asked for.
#[derive(Clone, Debug, PartialEq)]
pub enum Act {
    /// An address of each, or none.
    Hold {
        /// In the order of the answer.
        wants: Vec<Want>,
        /// What earlier attempts of this very request have written: object and key. Taken back with a refusal.
        made: BTreeSet<(String, String)>,
    },
    /// Everything that the container's interface has.
    Release {
        /// The pools of its configuration: there also records of old versions, which name no interface.
        pools: Vec<PoolId>,
    },
    /// Everything that the container's interface has, and what is reserved for it without a record: its own request for
    /// them was given up, and nobody knows how far it came.
    Abandon,
    /// One record, if it still is what it was: nobody uses it any more.
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
    /// What is free now; nothing if there was nothing.
    Released(Vec<Address>),
    /// No.
    Refused(LedgerRefusal),
    /// Objects must be made or marked first.
    Wait,
}

/// Why no address is held.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LedgerRefusal {
    /// Nothing is free.
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
        /// Who asked.
        podref: String,
    },
    /// The range was cut into slices.
    #[error(
        "{pool} hands out nothing any more: its range is cut into slices of nodes; accepted is a configuration with \
         node_slice_size"
    )]
    Sliced {
        /// The pool's object.
        pool: String,
    },
    /// The range or one that it overlaps was cut into slices; what is left of either cannot be told apart.
    #[error(
        "{pool} hands out nothing: its range {range}, or {other} of the same network, which it overlaps (IPPool {by}), is \
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
    /// The pool cannot have a name.
    #[error("{0}")]
    Name(String),
}

impl Who {
    /// Whether a record of this interface's pod and name is of this very pod: of the same container, or of an earlier one of the
    /// pod with the same UID, which its node has ended before it began this one. A record that names a container and no UID
    /// may be of a pod that was there before under the same name and still runs.
    pub fn owns(&self, record: &Allocation) -> bool {
        let of_claims = record.id.starts_with(RECORD_PREFIX) || self.id.starts_with(RECORD_PREFIX);
        let same_pod = match record.poduid.as_deref() {
            Some(uid) => !uid.is_empty() && uid == self.uid,
            None => record.id.is_empty(),
        };
        record.podref == self.podref && (record.id == self.id || (!of_claims && same_pod))
    }

    /// The record that says that the interface has an address.
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
    /// What a network's configuration asks for, range by range. `preferred` is what the pod would like.
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
    /// A pod's interface asks for its addresses.
    pub fn hold(who: Who, wants: Vec<Want>) -> Self {
        Self { who, act: Act::Hold { wants, made: BTreeSet::new() } }
    }

    /// A container's interface is gone.
    pub fn release(who: Who, config: &Config) -> Self {
        let pools = config.ranges.iter().map(|range| PoolId::shared(&config.network, range.cidr())).collect();
        Self { who, act: Act::Release { pools } }
    }
}
