//! A cloud that obeys, one update at a time per machine, and now and then loses a request or an answer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use futures::FutureExt;
use futures::future::BoxFuture;
use tenure_cloud::{
    AliasRange, Cloud, CloudError, ErrorKind, InterfaceId, Observed, Owner, Progress, Ticket, Update,
};
use tenure_handles::{Entropy, SeededEntropy};

use super::super::driver::Clouds;

/// A machine of the naive cloud.
#[derive(Clone, Debug, Default)]
pub(super) struct Naive {
    pub(super) aliases: BTreeSet<AliasRange>,
    /// How many ranges it takes; 150 by default.
    pub(super) limit: Option<usize>,
    version: u64,
    /// The update in progress, and how many polls until it ends.
    running: Option<(u64, BTreeSet<AliasRange>, u32)>,
    failed: BTreeMap<u64, CloudError>,
}

/// A cloud that obeys, and now and then does not.
#[derive(Debug)]
pub(super) struct NaiveCloud {
    pub(super) machines: Mutex<BTreeMap<String, Naive>>,
    pub(super) entropy: SeededEntropy,
    /// One request in this many fails; none if zero.
    pub(super) trouble: Mutex<u64>,
    pub(super) updates: Mutex<usize>,
    /// The error of refused updates.
    pub(super) refuses: Mutex<Option<CloudError>>,
    /// The error of refused reads.
    pub(super) refuses_reads: Mutex<Option<CloudError>>,
}

impl NaiveCloud {
    fn troubled(&self) -> Option<bool> {
        let one_in = *self.trouble.lock().unwrap();
        (one_in > 0 && self.entropy.next_u64().is_multiple_of(one_in))
            .then(|| self.entropy.next_u64() & 1 == 0)
    }

    fn with<T>(
        &self,
        interface: &InterfaceId,
        act: impl FnOnce(&mut Naive, &mut BTreeMap<String, Naive>) -> Result<T, CloudError>,
    ) -> Result<T, CloudError> {
        let trouble = self.troubled();
        let lost = || CloudError::new(ErrorKind::Transient, "lost");
        if trouble == Some(true) {
            return Err(lost());
        }
        let mut machines = self.machines.lock().unwrap();
        let Some(mut machine) = machines.remove(&interface.instance) else {
            return Err(CloudError::new(ErrorKind::NotFound, "there is no such machine"));
        };
        let result = act(&mut machine, &mut machines);
        machines.insert(interface.instance.clone(), machine);
        if trouble.is_some() { Err(lost()) } else { result }
    }
}

impl Cloud for NaiveCloud {
    fn observe<'a>(&'a self, interface: &'a InterfaceId) -> BoxFuture<'a, Result<Observed, CloudError>> {
        let refused = self.refuses_reads.lock().unwrap().clone();
        let read = self.with(interface, |machine, _| {
            if let Some(error) = refused {
                return Err(error);
            }
            let version = machine.version.to_string();
            Ok(Observed { aliases: machine.aliases.clone(), version, limit: machine.limit.unwrap_or(150) })
        });
        futures::future::ready(read).boxed()
    }

    fn apply<'a>(&'a self, update: &'a Update) -> BoxFuture<'a, Result<Ticket, CloudError>> {
        let polls = u32::try_from(self.entropy.next_u64() % 3).unwrap();
        let applied = self.with(&update.interface, |machine, _| {
            assert!(update.added.is_empty() || update.removed.is_empty(), "it adds and removes");
            if let Some(error) = self.refuses.lock().unwrap().clone() {
                return Err(error);
            }
            if let Some((ticket, ..)) = &machine.running {
                // The same request is performed only once.
                return if update.version == machine.version.to_string() {
                    Ok(Ticket(ticket.to_string()))
                } else {
                    Err(CloudError::new(ErrorKind::NotReady, "something is under way"))
                };
            }
            if update.version != machine.version.to_string() {
                return Err(CloudError::new(ErrorKind::Conflict, "another version"));
            }
            assert!(update.aliases.len() <= 150, "too many ranges");
            *self.updates.lock().unwrap() += 1;
            let ticket = self.entropy.next_u64();
            machine.running = Some((ticket, update.aliases.clone(), polls));
            Ok(Ticket(ticket.to_string()))
        });
        futures::future::ready(applied).boxed()
    }

    fn poll<'a>(
        &'a self,
        interface: &'a InterfaceId,
        ticket: &'a Ticket,
    ) -> BoxFuture<'a, Result<Progress, CloudError>> {
        let polled = self.with(interface, |machine, others| {
            let number: u64 = ticket.0.parse().unwrap();
            match &mut machine.running {
                Some((running, _, polls)) if *running == number && *polls > 0 => {
                    *polls -= 1;
                    Ok(Progress::Running)
                }
                Some((running, aliases, _)) if *running == number => {
                    let aliases = aliases.clone();
                    machine.running = None;
                    let taken =
                        |range: &&AliasRange| others.values().any(|other| other.aliases.contains(*range));
                    if let Some(range) = aliases.iter().find(taken) {
                        let error = CloudError::new(ErrorKind::InUse(Some(range.cidr)), "in use");
                        machine.failed.insert(number, error.clone());
                        return Ok(Progress::Failed(error));
                    }
                    machine.aliases = aliases;
                    machine.version += 1;
                    Ok(Progress::Done)
                }
                _ => Ok(machine.failed.get(&number).cloned().map_or(Progress::Done, Progress::Failed)),
            }
        });
        futures::future::ready(polled).boxed()
    }

    fn unfinished<'a>(
        &'a self,
        interface: &'a InterfaceId,
    ) -> BoxFuture<'a, Result<Option<Ticket>, CloudError>> {
        let found = self.with(interface, |machine, _| {
            Ok(machine.running.as_ref().map(|(ticket, ..)| Ticket(ticket.to_string())))
        });
        futures::future::ready(found).boxed()
    }

    fn owner<'a>(
        &'a self,
        _: &'a str,
        range: &'a AliasRange,
        _: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Owner, CloudError>> {
        let machines = self.machines.lock().unwrap();
        let owner = machines.iter().find(|(_, machine)| machine.aliases.contains(range));
        let owner = owner.map(|(name, _)| InterfaceId::first("z-a", name));
        futures::future::ready(Ok(owner.map_or(Owner::Nobody, Owner::Interface))).boxed()
    }
}

pub(super) struct One(pub(super) Arc<NaiveCloud>);

impl Clouds for One {
    fn cloud(&self, _: &str) -> Result<Arc<dyn Cloud>, CloudError> {
        Ok(self.0.clone())
    }
}
