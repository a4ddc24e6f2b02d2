//! Who performs a node's jobs on interfaces: the kernel's thread, or a stand-in that answers each at once.
//!
//! The stand-in is for measurements of everything but the kernel: thousands of agents on one machine would otherwise share one
//! kernel's network.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use tenure_ipam::Cidr;

use super::Wirer;
use crate::drive::Handle;
use crate::node::{Action, Event};

type Answer = dyn Fn(&Action) -> Option<Event> + Send + Sync;

/// Answers jobs in place of the kernel: the event that follows a job, or none.
#[derive(Clone)]
pub struct StandIn(Arc<Answer>);

impl StandIn {
    /// Answers jobs with this.
    pub fn new(answer: impl Fn(&Action) -> Option<Event> + Send + Sync + 'static) -> Self {
        Self(Arc::new(answer))
    }
}

impl std::fmt::Debug for StandIn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StandIn").finish_non_exhaustive()
    }
}

/// Who performs jobs on interfaces.
#[derive(Debug)]
pub(crate) enum Interfaces {
    /// The kernel's thread.
    Kernel(Wirer),
    /// A stand-in, and the node that it answers.
    StandIn(StandIn, Handle),
}

impl Interfaces {
    /// Performs a job immediately if that is possible; otherwise returns it.
    #[expect(
        clippy::result_large_err,
        reason = "returning the action is no failure, and it is not worth a heap allocation"
    )]
    pub(crate) fn at_once(&self, job: Action) -> Result<Event, Action> {
        match self {
            Self::Kernel(wirer) => wirer.at_once(job),
            Self::StandIn(StandIn(answer), _) => answer(&job).ok_or(job),
        }
    }

    /// Performs a job; the answer follows as an event.
    pub(crate) fn carry_out(&self, job: Action) {
        match self {
            Self::Kernel(wirer) => wirer.carry_out(job),
            Self::StandIn(StandIn(answer), node) => {
                if let Some(event) = answer(&job) {
                    node.tell(event);
                }
            }
        }
    }

    /// Routes other nodes' blocks.
    pub(crate) fn remote(&self, blocks: BTreeMap<IpAddr, BTreeSet<Cidr>>) {
        if let Self::Kernel(wirer) = self {
            wirer.remote(blocks);
        }
    }
}
