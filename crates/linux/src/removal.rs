//! Takes everything of ours out of a node's kernel, when Tenure leaves the node.
//!
//! What is inside pods' namespaces, such as their end of a link and the programs and devices of egress, goes with the pods. What
//! belongs to Coil stays: its pods have the same table, and the same rule leads to it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::host::Host;
use crate::inventory::Inventory;
use crate::link::Link;
use crate::socket::Error;
use crate::{Changes, chain, export, pod, reaper, remote, routes, rule};

/// What was removed, and what could not be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// Host ends of pods' links.
    pub links: Vec<String>,
    /// Routes to pods, to blocks of other nodes, and for routing daemons.
    pub routes: usize,
    /// Whether the rule to the pod table was there.
    pub rule: bool,
    /// What stays on purpose.
    pub kept: Vec<String>,
    /// What could not be removed, and why.
    pub failed: Vec<String>,
}

/// The links of pods that are in service.
pub fn in_service(host: &mut Host) -> Result<Vec<String>, Error> {
    let inventory = Inventory::take(host)?;
    Ok(inventory.pods.into_iter().map(|pod| format!("{} of {}", pod.link.name, pod.owner)).collect())
}

/// Removes links of pods, routes in all tables of ours, and the rule. One failure does not keep it from the rest.
pub fn remove(host: &mut Host) -> Removed {
    let mut removed = Removed::default();
    removed.attempt("pods' links", links(host), |removed, links| removed.links = links);
    let counted = |removed: &mut Removed, changes: Changes| {
        removed.routes += changes.removed.len();
        removed.failed.extend(changes.refused.iter().map(|(_, refusal)| refusal.to_string()));
    };
    removed.attempt("routes to pods", routes::repair(host, &BTreeMap::new()), counted);
    removed.attempt("exported routes", export::sync(host, &BTreeSet::new()), counted);
    removed.attempt("routes to other nodes", remote::sync(host, &BTreeMap::new()), counted);
    match routes::has_coils(host) {
        Ok(true) => removed.kept.push("the rule to the pod table, which pods of Coil need".to_owned()),
        Ok(false) => {
            let before = rule::find(host).is_ok_and(|there| there.v4 || there.v6);
            removed.attempt("the rule to the pod table", rule::remove(host), |removed, ()| {
                removed.rule = before;
            });
        }
        Err(error) => removed.fail("the rule to the pod table", &error),
    }
    removed
}

/// Deletes the links of pods, of interrupted setups and of the trash; returns the names of those that were in service.
fn links(host: &mut Host) -> Result<Vec<String>, Error> {
    let inventory = Inventory::take(host)?;
    let served: Vec<Link> = inventory.pods.into_iter().map(|pod| pod.link).collect();
    let names = served.iter().map(|link| link.name.clone()).collect();
    for link in served.into_iter().chain(inventory.unmarked) {
        pod::discard(host, link)?;
    }
    reaper::reap(host)?;
    Ok(names)
}

impl Removed {
    fn attempt<T>(&mut self, what: &str, outcome: Result<T, Error>, note: impl FnOnce(&mut Self, T)) {
        match outcome {
            Ok(done) => note(self, done),
            Err(error) => self.fail(what, &error),
        }
    }

    fn fail(&mut self, what: &str, error: &Error) {
        self.failed.push(format!("remove {what}: {}", chain(error)));
    }
}

impl fmt::Display for Removed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rule = if self.rule { "the rule" } else { "no rule" };
        write!(formatter, "{} links, {} routes, {rule}", self.links.len(), self.routes)
    }
}
