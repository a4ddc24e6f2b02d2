//! The cloud's network: where each host sends packets for an alias.

use std::collections::BTreeMap;
use std::net::IpAddr;

use tenure_testbed::compute::Change;
use tenure_testbed::hosts::NetworkNamespace;

/// Routes to aliases on all hosts.
pub struct Routes {
    hosts: Vec<NetworkNamespace>,
    /// The addresses of the machines.
    addresses: BTreeMap<String, IpAddr>,
}

impl Routes {
    /// On these hosts, to machines with these addresses.
    pub fn new(hosts: Vec<NetworkNamespace>, addresses: BTreeMap<String, IpAddr>) -> Self {
        Self { hosts, addresses }
    }

    /// Changes them as the data plane of a machine has changed.
    pub fn change(&self, arrivals: &[Change]) {
        for host in &self.hosts {
            let line = |verb: &str, it: &Change| {
                // A pod that is still there is nearer than what the cloud says.
                let own = self.addresses[&it.instance];
                format!("route {verb} {} via {own} metric 500 proto 99\n", it.range)
            };
            let (new, gone): (Vec<&Change>, Vec<&Change>) =
                arrivals.iter().filter(|it| it.instance != host.name()).partition(|it| it.there);
            for it in gone {
                // A host may have a newer route already.
                let _ = host.ip(&line("del", it));
            }
            let batch: String = new.iter().map(|it| line("replace", it)).collect();
            let changed = host.ip(&batch);
            assert!(changed.is_ok(), "the cloud cannot route to {new:?}: {changed:?}");
        }
    }
}
