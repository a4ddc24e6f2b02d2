//! Cloud alias addresses: which machine has which range of an `IPPool`, and telling the cloud so.
//!
//! ```text
//!  NodeAliases: wanted, returned, leaving ──▶ planner ──▶ IPLedger: records ──▶ NodeAliases: status
//!  pods that move ──────────────────────────▶   │                                   ▲
//!                                               └──▶ driver ──▶ cloud ──▶ views ────┘
//! ```
//!
//! The ledger is the lock: one compare-and-swap of the ledger that has an address grants, frees or moves its range.
//! The driver is told what each machine should have, and reports what it has. A record is removed only after its
//! range has left the machine.

mod claimed;
mod context;
mod driver;
mod events;
mod gathering;
mod google;
mod grants;
mod index;
mod known;
mod ledger;
mod metrics;
mod moves;
mod overlaps;
mod perform;
mod planner;
mod refusals;
mod reports;
mod said;
mod status;
#[cfg(test)]
mod tests;
mod write;

use std::sync::Arc;
use std::time::Duration;

use kube::{Api, Client};
use prometheus_client::registry::Registry;
use tenure_api::cloud::{AliasPool, IPLedger, NodeAliases};

use crate::cache::Cache;
use crate::kind::{Cached, cached_kind};
use crate::part::{Count, Part, Perform, Plan};
use crate::watch::{Watch, Watches};
use crate::world::World;

pub use driver::{CloudSettings, Clouds};
use driver::{Driver, DriverChannel};
pub use known::{Aliases, Machine, MachineError, MachineView};
use metrics::CloudNumbers;
pub use write::{CloudWrite, Wanted};

/// Cloud alias addresses, as a part of the controller.
#[derive(Debug)]
pub struct CloudPart {
    settings: CloudSettings,
    missing_node_rest: Duration,
    channel: DriverChannel,
    numbers: Arc<CloudNumbers>,
}

impl CloudPart {
    /// The part, and the channel to its driver.
    pub fn new(settings: CloudSettings, missing_node_rest: Duration) -> Self {
        Self { settings, missing_node_rest, channel: DriverChannel::default(), numbers: Arc::default() }
    }
}

impl Part for CloudPart {
    fn watch(&self, watches: &mut Watches<'_>) {
        let client = watches.client();
        let optional = || Watch { may_be_missing: true, ..Watch::default() };
        watches.add::<AliasPool>(Api::all(client.clone()), optional());
        watches.add::<IPLedger>(Api::all(client.clone()), optional());
        watches.add::<NodeAliases>(Api::all(client), optional());
        let (settings, wants, numbers) = (self.settings.clone(), self.channel.open(), self.numbers.clone());
        watches.run(move |lead| Driver::new(settings, lead, numbers).run(wants));
    }

    fn planner(&self) -> Box<dyn Plan> {
        Box::new(planner::CloudPlanner::new(self.missing_node_rest, self.settings.options.limit))
    }

    fn performer(&self, client: &Client) -> (&'static str, Arc<dyn Perform>) {
        (write::PART, Arc::new(perform::CloudPerformer::new(client.clone(), self.channel.clone())))
    }

    fn metrics(&self, registry: &mut Registry) -> Box<dyn Count> {
        Box::new(metrics::CloudMetrics::registered(registry, &self.numbers))
    }
}

/// Keeps a kind in a cache of [`Aliases`].
macro_rules! kept {
    ($kind:ty, $name:literal, $field:ident) => {
        impl Cached for $kind {
            type Kept = Self;

            fn cache(world: &mut World) -> &mut Cache<Self> {
                &mut world.aliases_mut().$field
            }

            fn kept(self) -> Self {
                self
            }
        }

        cached_kind!(
            $kind,
            $name,
            fn trim(&mut self) {
                self.metadata.managed_fields = None;
            },
            fn observe_lack(world: &mut World) {
                Self::forget(world);
            }
        );
    };
}

// Whereabouts has a kind of the same name.
kept!(AliasPool, "IPPool.ipam.gcp-cni.cast.ai", pools);
kept!(IPLedger, "IPLedger", ledgers);
kept!(NodeAliases, "NodeAliases", nodes);
