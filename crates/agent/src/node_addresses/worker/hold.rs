//! Keeps interfaces as their confirmed policies say, also while the API server cannot be asked.

use std::collections::BTreeSet;

use ipnet::IpNet;
use tenure_linux::interface::{InterfacePlan, InterfaceState};
use tracing::{info, warn};

use super::{Worker, owned};
use crate::node_addresses::kernel::{clearing, differences, failure, found, plans};
use crate::node_addresses::machine::{Again, Done, Failure};
use crate::node_addresses::manager::Gone;
use crate::node_addresses::record::{Record, routes_of};
use crate::node_addresses::segments::taken;

impl Worker {
    /// Gives interfaces what is confirmed, and takes back what is not.
    pub(super) async fn hold(&mut self, mut record: Record) -> Done {
        let uid = record.uid.clone();
        let held = self.try_to_hold(&mut record).await;
        let (found, problem) = match held {
            Ok((found, problem)) => (found, problem),
            Err(failure) => (Vec::new(), Some(failure.message)),
        };
        if let Some(problem) = problem.as_ref().filter(|it| self.is_news(&uid, it)) {
            warn!(policy = record.policy, problem, "an interface does not have what its policy says");
        }
        Done::Held { uid, record, found, problem }
    }

    async fn try_to_hold(
        &mut self,
        record: &mut Record,
    ) -> Result<(Vec<(String, IpNet)>, Option<String>), Failure> {
        let all = self.kernel.look(record.interfaces()).await?;
        let desired = record.confirmed.as_ref().map(|it| it.desired.clone()).unwrap_or_default();
        if record.is_of_manager() {
            // Its profiles are NetworkManager's to keep, and it has taken back what was not confirmed, unless the node lost
            // power meanwhile.
            let has = found(&desired, &all);
            let missing = desired.addresses().filter(|it| !has.contains(&owned(*it))).map(|(name, address)| {
                format!("interface {name}: address {address} is missing, which NetworkManager should have put there")
            });
            let missing: Vec<String> = missing.collect();
            self.take_back_by_manager(record, &all).await;
            self.keep(record)?;
            return Ok((has, (!missing.is_empty()).then(|| missing.join(", "))));
        }
        let recorded: Vec<(String, IpNet)> = record.addresses().map(owned).collect();
        let mut wanted = plans(&desired, &recorded);
        let tried: BTreeSet<&str> = record.interfaces().collect();
        let only_tried: Vec<&str> =
            tried.into_iter().filter(|name| !wanted.iter().any(|plan| plan.name == *name)).collect();
        wanted.extend(only_tried.into_iter().map(|name| clearing(name, &recorded)));
        for before in record.trying.iter().flat_map(|it| &it.before) {
            let plan = wanted.iter_mut().find(|plan| plan.name == before.name);
            if let Some(plan) = plan {
                plan.mtu = plan.mtu.or(Some(before.mtu));
            }
        }
        let (words, _) = differences(&wanted, &all);
        let mut now = all;
        let mut failed = None;
        if !words.is_empty() {
            info!(policy = record.policy, ?words, "interfaces are given what their policy says");
            let there = |plan: &&InterfacePlan| now.iter().any(|it| it.name == plan.name);
            let mut possible: Vec<InterfacePlan> = wanted.iter().filter(there).cloned().collect();
            // What somebody else has by now stays away; all else is put back.
            while let Some(answer) = self.kernel.ask_segments(&possible, &self.clock).await?.answer {
                for plan in possible.iter_mut().filter(|plan| plan.name == answer.link) {
                    plan.addresses.retain(|it| it.addr() != answer.address);
                }
                failed = Some(failure(taken(&answer), Again::Later));
            }
            failed = self.kernel.apply(possible).await.err().or(failed);
            now = self.kernel.look(record.interfaces()).await?;
        }
        // An interface that was only tried and is gone has nothing left on it.
        let (words, settling) = differences(&wanted, &now);
        let gone =
            |plan: &InterfacePlan| plan.addresses.is_empty() && !now.iter().any(|it| it.name == plan.name);
        let only_gone = wanted.iter().all(|plan| {
            gone(plan) || plan.differences(now.iter().find(|it| it.name == plan.name)).is_empty()
        });
        let well = words.is_empty() || settling || only_gone;
        if well {
            record.trying = None;
        }
        self.keep(record)?;
        let has = found(&desired, &now);
        let problem = (!well).then(|| match failed {
            Some(failure) => failure.message,
            None => words.join(", "),
        });
        Ok((has, problem))
    }

    /// Takes what was tried and not confirmed out of NetworkManager's profiles, unless it is on an interface, where the next attempt or
    /// the removal finds it. A dump that does not show it is not enough: a profile without carrier puts it there later.
    async fn take_back_by_manager(&self, record: &mut Record, all: &[InterfaceState]) {
        let Some(trying) = &record.trying else { return };
        let confirmed = record.confirmed.as_ref();
        let known: Vec<(&str, IpNet)> = confirmed.iter().flat_map(|it| it.desired.addresses()).collect();
        let known_routes: Vec<_> = confirmed.iter().flat_map(|it| routes_of(&it.state)).collect();
        let routes = routes_of(&trying.to.state).filter(|it| !known_routes.contains(it)).cloned();
        let gone = Gone {
            addresses: trying.to.desired.addresses().filter(|it| !known.contains(it)).map(owned).collect(),
            routes: routes.collect(),
        };
        let has = |(name, address): &(String, IpNet)| {
            all.iter().any(|it| it.name == *name && it.address(*address).is_some())
        };
        if gone.addresses.iter().any(has) {
            return;
        }
        if gone.is_empty() || self.remove_by_manager(&gone).await.is_ok() {
            record.trying = None;
        }
    }

    async fn remove_by_manager(&self, gone: &Gone) -> Result<(), Failure> {
        let Some(manager) = &self.manager else {
            return Err(failure("NetworkManager cannot be asked".to_owned(), Again::Later));
        };
        manager.remove(gone, self.probe * 2).await?.commit().await
    }
}
