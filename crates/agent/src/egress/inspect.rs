//! What people see of egress on a node: health, metrics, and its section of the node's view.

use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tenure_watch::ApiHealth;

use super::{Egress, EgressState};
use crate::inspect::float;
use crate::part::Inspect;

type Numbers = Family<Vec<(&'static str, String)>, Gauge<f64, AtomicU64>>;

/// Shows egress.
pub(crate) struct EgressInspector {
    egress: Egress,
    pods: Numbers,
    datapath: Numbers,
}

impl EgressInspector {
    pub(crate) fn new(egress: Egress) -> Self {
        Self { egress, pods: Family::default(), datapath: Family::default() }
    }
}

impl Inspect for EgressInspector {
    fn health(&self) -> Option<ApiHealth> {
        Some(self.egress.health())
    }

    fn register(&self, registry: &mut Registry) {
        let help = "Pods with egress by state: client, gateway, or failing";
        registry.register("tenure_agent_egress_pods", help, self.pods.clone());
        let help = "The datapath of egress in use: kernel or bpf";
        registry.register("tenure_agent_egress_datapath", help, self.datapath.clone());
    }

    fn count(&self) {
        let state = self.egress.state();
        let states = [("client", state.clients), ("gateway", state.gateways), ("failing", state.failing)];
        for (name, value) in states {
            self.pods.get_or_create(&vec![("state", name.to_owned())]).set(float(value));
        }
        self.datapath.clear();
        if !state.datapath.is_empty() {
            self.datapath.get_or_create(&vec![("datapath", state.datapath)]).set(1.0);
        }
    }

    fn show(&self, node: &mut tenure_view::Node) {
        let EgressState { datapath, reason, clients, gateways, failing } = self.egress.state();
        node.egress = Some(tenure_view::Egress { datapath, reason, clients, gateways, failing });
    }
}
