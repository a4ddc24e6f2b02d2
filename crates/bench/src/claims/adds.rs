//! ADDs of pods with a claim, without one, and on a network that does not opt in, in turns. All pods have their objects, and
//! claims say which pods have them, before the first ADD: what is measured is the ADD, and not how late others are.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use kube::api::ListParams;

use super::cluster::Cluster;
use super::node::Node;
use super::size::Size;
use super::{CLAIMED, PLAIN};
use crate::host::process;
use crate::host::sampled::{Sampled, count, nanoseconds};
use crate::host::say;

/// What was measured of one kind of pods; times in nanoseconds.
#[derive(Debug, Default)]
pub(super) struct Kind {
    pub(super) add: Sampled,
    pub(super) del: Sampled,
    /// ADDs, inside the agent.
    pub(super) inside: Vec<f64>,
    /// Calls to the API server an ADD and its DEL, in each round.
    pub(super) api_calls: Vec<f64>,
}

/// What was measured.
#[derive(Debug, Default)]
pub(super) struct Adds {
    pub(super) claimed: Kind,
    /// On the same network, without a claim.
    pub(super) unclaimed: Kind,
    /// On one that does not opt in.
    pub(super) ordinary: Kind,
    pub(super) calls: u64,
    pub(super) failed: u64,
}

impl Adds {
    pub(super) fn measure(&mut self, cluster: &Cluster, node: &mut Node, size: &Size) -> Result<()> {
        say("ADD and DEL with a claim and without");
        let names = |kind: &str| (0..size.pods).map(|number| format!("{kind}{number}")).collect::<Vec<_>>();
        let [claimed, unclaimed, ordinary] = ["claimed", "unclaimed", "ordinary"].map(names);
        cluster.make_claims(claimed.clone())?;
        let with = claimed.iter().map(|name| (name.clone(), Some(name.clone())));
        cluster.make_pods(CLAIMED, &node.name, with.collect())?;
        for pods in [&unclaimed, &ordinary] {
            cluster.make_pods(PLAIN, &node.name, pods.iter().map(|name| (name.clone(), None)).collect())?;
        }
        cluster.wait_for_holders(size.pods)?;
        for pods in [&claimed, &unclaimed, &ordinary] {
            node.make(pods)?;
        }
        let of_claims = addresses(cluster)?;
        // The first round begins the watches; it does not count.
        for round in 0..=size.pod_rounds {
            let warm = round > 0;
            self.claimed.round(node, (CLAIMED, &claimed, true), Some(&of_claims), warm)?;
            self.unclaimed.round(node, (PLAIN, &unclaimed, true), None, warm)?;
            self.ordinary.round(node, (PLAIN, &ordinary, false), None, warm)?;
            (self.calls, self.failed) = (node.calls, node.failed);
        }
        Ok(())
    }
}

impl Kind {
    fn round(
        &mut self,
        node: &mut Node,
        (namespace, pods, opted_in): (&str, &[String], bool),
        expected: Option<&BTreeSet<String>>,
        counts: bool,
    ) -> Result<()> {
        let (logged, calls) = (node.logged()?, process::api_calls(&node.machine)?);
        let (added, adding) = node.add(namespace, pods, opted_in)?;
        let calls = process::api_calls(&node.machine)? - calls;
        let got: BTreeSet<String> = adding.addresses.iter().cloned().collect();
        ensure!(got.len() + adding.failures.len() == pods.len(), "an address was given twice: {got:?}");
        if let Some(expected) = expected {
            ensure!(
                got.is_subset(expected),
                "pods with claims have other addresses than the claims: {got:?}"
            );
        }
        let deleting = node.del(&added)?;
        if counts {
            self.add.take(&adding);
            self.del.take(&deleting);
            self.inside.extend(node.inside("ADD", logged)?.iter().map(nanoseconds));
            self.api_calls.push(calls / count(pods.len()));
        }
        Ok(())
    }
}

/// The addresses of all claims.
fn addresses(cluster: &Cluster) -> Result<BTreeSet<String>> {
    let claims = cluster.runtime.block_on(cluster.claims().list(&ListParams::default()))?;
    Ok(claims.into_iter().flat_map(|claim| claim.status.unwrap_or_default().ips).collect())
}
