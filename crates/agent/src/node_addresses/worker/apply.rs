//! Applies a policy: what it says is worked out, checked, written down as tried, done, verified and confirmed. An attempt
//! that fails is taken back.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;
use kube::Api;
use serde_json::{Value, json};
use tenure_api::nmstate::NodeNetworkConfigurationPolicy;
use tenure_linux::interface::{InterfacePlan, InterfaceState};
use tenure_node_addresses::desired::Interface;
use tenure_node_addresses::{Captures, DesiredState, Kind, Refusal, evaluate, fill};
use tokio::time::sleep;
use tracing::{info, warn};

use super::state::{addresses_of, interfaces_of, remove_nulls};
use super::{BETWEEN, PATIENCE, SETTLING, Worker, owned};
use crate::node_addresses::current::current;
use crate::node_addresses::facts::Facts;
use crate::node_addresses::kernel::{check_kinds, clearing, differences, failure, found, plans};
use crate::node_addresses::machine::{Again, Done, Failure};
use crate::node_addresses::manager::Gone;
use crate::node_addresses::record::{Before, Configured, Mode, Record, Trying, routes_of};

impl Worker {
    pub(super) async fn apply(
        &mut self,
        facts: Facts,
        record: Option<Record>,
        taken: BTreeMap<String, String>,
    ) -> Done {
        let generation = facts.generation.unwrap_or_default();
        let uid = facts.uid.clone();
        match self.try_to_apply(&facts, record, &taken).await {
            Ok((record, found)) => {
                info!(policy = facts.policy, generation, ?found, "applied a policy");
                self.logged.remove(&uid);
                Done::Applied { uid, generation, record, found }
            }
            Err(failure) => {
                if self.is_news(&uid, &failure.message) {
                    warn!(
                        policy = facts.policy,
                        generation,
                        problem = failure.message,
                        "cannot apply a policy"
                    );
                }
                let record = self.records.get(&uid).cloned();
                let all = self.kernel.look([]).await.unwrap_or_default();
                let confirmed = record.as_ref().and_then(|it| it.confirmed.as_ref());
                let found = confirmed.map(|it| found(&it.desired, &all)).unwrap_or_default();
                Done::Failed { uid, generation, record, found, failure }
            }
        }
    }

    async fn try_to_apply(
        &mut self,
        facts: &Facts,
        record: Option<Record>,
        taken: &BTreeMap<String, String>,
    ) -> Result<(Record, Vec<(String, IpNet)>), Failure> {
        let policy = self.policy(facts).await?;
        let state = self.desired_state(facts, &policy).await?;
        let names = interfaces_of(&state);
        if let Some((name, other)) = names.iter().find_map(|(name, _)| Some((name, taken.get(name)?))) {
            let message = format!(
                "interface {name:?} is configured by policy {other:?}, which had it first; accepted is one policy for an \
                 interface"
            );
            return Err(failure(message, Again::WhenFree));
        }
        let had = record.as_ref().is_some_and(Record::is_of_manager);
        let by_manager = match &self.manager {
            Some(manager) => manager.manages(&names, had).await?,
            None => false,
        };
        let before = record.unwrap_or_else(|| Record {
            uid: facts.uid.clone(),
            name: facts.name.clone(),
            policy: facts.policy.clone(),
            confirmed: None,
            trying: None,
        });
        let generation = facts.generation.unwrap_or_default();
        if by_manager {
            let desired = addresses_of(&state);
            let to = Configured { generation, mode: Mode::NetworkManager, desired, state };
            self.by_manager(before, to).await
        } else {
            let desired = DesiredState::parse(&state).map_err(|refusal| refused(&refusal))?;
            let to = Configured { generation, mode: Mode::Kernel, desired, state };
            self.in_kernel(before, to).await
        }
    }

    /// The policy in the generation that is to be applied. It is asked for once.
    async fn policy(&mut self, facts: &Facts) -> Result<NodeNetworkConfigurationPolicy, Failure> {
        let known = self.policies.get(&facts.uid).filter(|it| it.metadata.generation == facts.generation);
        if let Some(known) = known {
            return Ok(known.clone());
        }
        let api: Api<NodeNetworkConfigurationPolicy> = Api::all(self.connection.client());
        let act = || format!("reading NodeNetworkConfigurationPolicy {}", facts.policy);
        let found = self.connection.once(PATIENCE, act, api.get_opt(&facts.policy)).await;
        let found = found.map_err(|error| {
            let again = if error.code().is_some() { Again::Later } else { Again::Unasked };
            failure(error.to_string(), again)
        })?;
        let policy =
            found.ok_or_else(|| failure(format!("policy {:?} is gone", facts.policy), Again::Later))?;
        if policy.metadata.generation != facts.generation {
            let message = format!(
                "policy {:?} is at generation {} already; this node waits for its turn",
                facts.policy,
                policy.metadata.generation.unwrap_or_default()
            );
            return Err(failure(message, Again::Soon));
        }
        self.policies.insert(facts.uid.clone(), policy.clone());
        Ok(policy)
    }

    /// The desired state with all references filled in.
    async fn desired_state(
        &self,
        facts: &Facts,
        policy: &NodeNetworkConfigurationPolicy,
    ) -> Result<Value, Failure> {
        let captures = Captures::parse(&policy.spec.capture).map_err(|refusal| refused(&refusal))?;
        let state = if captures.needs_state() { current(&self.kernel.whole().await?) } else { Value::Null };
        let held = evaluate(&captures, &facts.allocated, &state).map_err(|refusal| refused(&refusal))?;
        let desired = policy.spec.desired_state.clone().unwrap_or_else(|| json!({}));
        let mut filled = fill(&desired, &held).map_err(|refusal| refused(&refusal))?;
        remove_nulls(&mut filled);
        Ok(filled)
    }

    async fn in_kernel(
        &mut self,
        before: Record,
        to: Configured,
    ) -> Result<(Record, Vec<(String, IpNet)>), Failure> {
        let all = self.kernel.look([]).await?;
        check_kinds(&to.desired, &all)?;
        let recorded: Vec<(String, IpNet)> = before.addresses().map(owned).collect();
        check_elsewhere(&to.desired, &recorded, &all)?;
        let wanted = plans(&to.desired, &recorded);
        let dropped: BTreeSet<&str> =
            before.interfaces().filter(|name| !wanted.iter().any(|plan| plan.name == *name)).collect();
        let dropped = dropped.into_iter().filter(|name| all.iter().any(|it| it.name == *name));
        // An address that moves leaves the one interface before it gets to the other.
        let plans: Vec<InterfacePlan> = dropped.map(|name| clearing(name, &recorded)).chain(wanted).collect();
        let was = |it: &Interface| {
            let there = all.iter().find(|there| there.name == it.name)?;
            it.mtu.map(|_| Before { name: it.name.clone(), mtu: there.mtu })
        };
        let trying =
            Trying { before: to.desired.interfaces.iter().filter_map(was).collect(), to: to.clone() };
        self.put(Record { trying: Some(trying), ..before.clone() })?;
        let raised = match self.ask_segments(&plans).await {
            Ok(raised) => raised,
            Err((undone, failure)) => return Err(self.after(&before, undone, failure)),
        };
        let undo = match self.kernel.apply(plans.clone()).await {
            Ok(undo) => undo,
            // The kernel has put everything back.
            Err(failure) => {
                let undone = self.lower(raised).await;
                return Err(self.after(&before, undone, failure));
            }
        };
        let verified = match self.verify(&plans).await {
            Ok(all) => self.ask_api_server().await.map(|()| all),
            Err(failure) => Err(failure),
        };
        match verified {
            Ok(all) => {
                let record = Record { confirmed: Some(to.clone()), trying: None, ..before };
                self.put(record.clone())?;
                let found = found(&to.desired, &all);
                let new = found.iter().filter(|it| !recorded.contains(it)).cloned().collect();
                self.kernel.announce(new).await;
                Ok((record, found))
            }
            Err(failure) => {
                let undone = self.kernel.undo(undo).await;
                let undone = undone.and(self.lower(raised).await);
                Err(self.after(&before, undone, failure))
            }
        }
    }

    /// What interfaces have once they have what was planned.
    async fn verify(&self, plans: &[InterfacePlan]) -> Result<Vec<InterfaceState>, Failure> {
        let end = self.clock.now().plus(SETTLING);
        loop {
            let all = self.kernel.look(plans.iter().map(|it| it.name.as_str())).await?;
            let (words, settling) = differences(plans, &all);
            if words.is_empty() {
                return Ok(all);
            }
            if !settling || self.clock.now() >= end {
                let message = format!("{}; the interfaces have what they had before", words.join(", "));
                return Err(failure(message, Again::Later));
            }
            sleep(BETWEEN).await;
        }
    }

    async fn by_manager(
        &mut self,
        before: Record,
        to: Configured,
    ) -> Result<(Record, Vec<(String, IpNet)>), Failure> {
        let Some(manager) = self.manager.clone() else {
            return Err(failure("NetworkManager cannot be asked".to_owned(), Again::Later));
        };
        let all = self.kernel.look([]).await?;
        let recorded: Vec<(String, IpNet)> = before.addresses().map(owned).collect();
        check_elsewhere(&to.desired, &recorded, &all)?;
        // Whether links are up is NetworkManager's: nobody is asked on one that is down.
        let up = |plan: &InterfacePlan| all.iter().any(|it| it.name == plan.name && it.up);
        let asked: Vec<InterfacePlan> = plans(&to.desired, &recorded).into_iter().filter(up).collect();
        self.ask_segments(&asked).await.map_err(|(_, failure)| failure)?;
        self.put(Record { trying: Some(Trying { to: to.clone(), before: Vec::new() }), ..before.clone() })?;
        // What the state does not mention would stay.
        let stay: Vec<(&str, IpNet)> = to.desired.addresses().collect();
        let gone = Gone {
            addresses: before.addresses().filter(|it| !stay.contains(it)).map(owned).collect(),
            routes: before
                .routes()
                .filter(|it| !routes_of(&to.state).any(|kept| kept == *it))
                .cloned()
                .collect(),
        };
        let applying = match manager.apply(&to.state, &gone, self.probe * 2).await {
            Ok(applying) => applying,
            // NetworkManager has put everything back.
            Err(failure) => return Err(self.after(&before, Ok(()), failure)),
        };
        if let Err(failure) = self.ask_api_server().await {
            let undone = applying.roll_back().await;
            return Err(self.after(&before, undone, failure));
        }
        // If only the answer was lost, the change lasts: the record still says that it may be there.
        applying.commit().await?;
        let record = Record { confirmed: Some(to.clone()), trying: None, ..before };
        self.put(record.clone())?;
        let all = self.kernel.look([]).await?;
        Ok((record, found(&to.desired, &all)))
    }
}

fn refused(refusal: &Refusal) -> Failure {
    let again = match refusal.kind {
        Kind::Invalid => Again::Never,
        Kind::NotFound => Again::Soon,
    };
    failure(refusal.to_string(), again)
}

/// An address may not be on another interface of the node, unless it is there from the same policy and moves.
fn check_elsewhere(
    desired: &DesiredState,
    recorded: &[(String, IpNet)],
    all: &[InterfaceState],
) -> Result<(), Failure> {
    for (name, address) in desired.addresses() {
        let moves = |it: &InterfaceState| {
            recorded.iter().any(|(on, known)| *on == it.name && known.addr() == address.addr())
        };
        let elsewhere = all.iter().find(|it| it.name != name && it.has_ip(address.addr()) && !moves(it));
        if let Some(elsewhere) = elsewhere {
            let message = format!(
                "address {} is on interface {:?} of this node already; accepted is a node without it",
                address.addr(),
                elsewhere.name
            );
            return Err(failure(message, Again::Later));
        }
    }
    Ok(())
}
