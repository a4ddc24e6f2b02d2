//! What the run asks of a worker, and what a worker answers: one line of JSON each.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::counted::Flows;
use super::kind::Kind;

/// Something that a worker is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Order {
    /// Who it is.
    Begin(Begin),
    /// Starts the agents of these nodes at once. As soon as one answers, its pods get an address on each network, one after the
    /// other as a runtime does it.
    Serve(Serve),
    /// Stops agents one after the other, so many at once, and starts each again.
    Restart {
        /// The nodes.
        nodes: Vec<usize>,
        /// How many are down at once.
        at_once: usize,
    },
    /// Ends agents of nodes that are gone, and all that they have on the machine.
    Forget {
        /// The nodes.
        nodes: Vec<usize>,
    },
    /// For so long: at this rate, a pod of a node ends, and another comes.
    Churn(Churn),
    /// Runs a controller.
    Lead,
    /// Notes when lists and watches are asked for, or says when they were.
    Moments {
        /// Whether to begin.
        begin: bool,
    },
    /// What passed so far.
    Count,
}

/// Who a worker is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Begin {
    /// How to reach the API server.
    pub(super) kubeconfig: PathBuf,
    /// Where addresses come from.
    pub(super) kind: Kind,
    /// How many networks there are.
    pub(super) networks: usize,
    /// How many nodes there are in all.
    pub(super) nodes: usize,
}

/// Pods that get addresses.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Serve {
    /// The nodes.
    pub(super) nodes: Vec<usize>,
    /// The numbers of the pods on each node.
    pub(super) pods: Vec<usize>,
}

/// Pods that come and go.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Churn {
    /// The nodes.
    pub(super) nodes: Vec<usize>,
    /// How many pods each has at the start, numbered from 0.
    pub(super) pods: usize,
    /// How many pods come in a second, and how many go.
    pub(super) rate: f64,
    /// For how long.
    pub(super) seconds: u64,
}

/// What a worker says.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Said {
    /// How much of the order is done.
    Progress(usize),
    /// It is done.
    Done(Box<Answer>),
    /// It cannot be done.
    Failed(String),
}

/// What came of an order. What it does not concern stays empty.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Answer {
    /// Calls that succeeded.
    pub(super) calls: Vec<Called>,
    /// Calls that failed; they were repeated until they succeeded.
    pub(super) failed: u64,
    /// What the last of them said.
    pub(super) last_failure: Option<String>,
    /// When each node's agent answered, in milliseconds of the system's clock.
    pub(super) answering: Vec<u64>,
    /// When each node had given all its pods their addresses.
    pub(super) served: Vec<u64>,
    /// How long each agent that was started again was away, in milliseconds.
    pub(super) away: Vec<u64>,
    /// When lists and watches were asked for.
    pub(super) moments: Vec<u64>,
    /// What passed between each node's agent and the API server.
    pub(super) flows: BTreeMap<usize, Flows>,
    /// What passed between controllers and the API server.
    pub(super) controller: Flows,
}

impl Answer {
    /// Both together.
    pub(super) fn merge(&mut self, other: Self) {
        self.calls.extend(other.calls);
        self.failed += other.failed;
        self.last_failure = other.last_failure.or(self.last_failure.take());
        self.answering.extend(other.answering);
        self.served.extend(other.served);
        self.away.extend(other.away);
        self.moments.extend(other.moments);
        self.flows.extend(other.flows);
        self.controller.merge(&other.controller);
    }
}

/// An ADD.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Called {
    /// When it was answered, in milliseconds of the system's clock.
    pub(super) at: u64,
    /// How long it took, in microseconds, with all failures before it.
    pub(super) took: u64,
}
