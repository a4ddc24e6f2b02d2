//! A naive cloud: lists, versions, operations that take a while, and errors on demand.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tenure_handles::{Entropy, Timestamp};
use tenure_ipam::{Cidr, Notation};

use super::super::*;
use super::{id, options};
use crate::cloud::{Observed, Owner, Ticket, Update};

pub(super) fn cidr(text: &str) -> Cidr {
    Notation::Strict.cidr(text).unwrap()
}

/// The n-th address of the pool.
pub(super) fn ours(number: usize) -> AliasRange {
    AliasRange { cidr: cidr(&format!("10.111.0.{number}/32")), range: "live".to_owned() }
}

/// What the cloud itself put on an interface.
fn of_others(number: usize) -> AliasRange {
    AliasRange { cidr: cidr(&format!("10.8.{number}.0/24")), range: "pods".to_owned() }
}

/// A request, its body, and its operation.
type Request = (String, BTreeSet<AliasRange>, String);

#[derive(Debug, Default)]
struct Interface {
    list: BTreeSet<AliasRange>,
    version: u64,
    operation: Option<String>,
    requests: Vec<Request>,
}

#[derive(Debug)]
struct Operation {
    interface: InterfaceId,
    ends: Timestamp,
    list: BTreeSet<AliasRange>,
    result: Option<Result<(), CloudError>>,
}

#[derive(Debug)]
pub(super) struct Model {
    interfaces: BTreeMap<InterfaceId, Interface>,
    operations: BTreeMap<String, Operation>,
    occupied: Option<AliasRange>,
    limit: usize,
    /// What no writer may do.
    pub(super) broken: Option<String>,
}

impl Model {
    pub(super) fn new(count: usize, limit: usize) -> Self {
        let interface = |number| {
            (id(number), Interface { list: BTreeSet::from([of_others(number)]), ..Interface::default() })
        };
        Self {
            interfaces: (0..count).map(interface).collect(),
            operations: BTreeMap::new(),
            occupied: None,
            limit,
            broken: None,
        }
    }

    pub(super) fn occupy(&mut self, range: AliasRange) {
        self.occupied = Some(range);
    }

    pub(super) fn list(&self, interface: &InterfaceId) -> BTreeSet<AliasRange> {
        self.interfaces.get(interface).map(|interface| interface.list.clone()).unwrap_or_default()
    }

    pub(super) fn has(&self, interface: &InterfaceId, range: &AliasRange) -> bool {
        self.list(interface).contains(range)
    }

    /// Operations end.
    pub(super) fn pass(&mut self, now: Timestamp) {
        let due: Vec<String> = self
            .operations
            .iter()
            .filter(|(_, operation)| operation.ends <= now && operation.result.is_none())
            .map(|(name, _)| name.clone())
            .collect();
        for name in due {
            let (interface, list) = {
                let operation = &self.operations[&name];
                (operation.interface.clone(), operation.list.clone())
            };
            let added: BTreeSet<AliasRange> =
                list.difference(&self.interfaces[&interface].list).cloned().collect();
            let taken = added.iter().find(|range| {
                self.occupied.as_ref() == Some(range)
                    || self
                        .interfaces
                        .iter()
                        .any(|(other, state)| *other != interface && state.list.contains(range))
            });
            let result = match taken {
                Some(range) => Err(CloudError::new(
                    ErrorKind::InUse(Some(range.cidr)),
                    format!("IP '{range}' is already being used"),
                )),
                None => Ok(()),
            };
            let state = self.interfaces.get_mut(&interface).unwrap();
            state.operation = None;
            state.version += 1;
            if result.is_ok() {
                state.list = list;
            }
            self.operations.get_mut(&name).unwrap().result = Some(result);
        }
    }

    /// `fault`: 0 none, 1 answer lost and performed, 2 request lost, 3 too many requests, 4 not ready, 5 somebody else changed the
    /// interface, 6 an operation that takes very long.
    pub(super) fn perform(
        &mut self,
        interface: &InterfaceId,
        action: &Action,
        now: Timestamp,
        fault: usize,
        entropy: &dyn Entropy,
    ) -> Answer {
        let lost = || CloudError::new(ErrorKind::Transient, "connection reset");
        let refused = match fault {
            2 => Some(lost()),
            3 => Some(CloudError::new(ErrorKind::Throttled(None), "rateLimitExceeded")),
            4 => Some(CloudError::new(ErrorKind::NotReady, "resourceNotReady")),
            _ => None,
        };
        if fault == 5 {
            self.interfaces.get_mut(interface).unwrap().version += 1;
        }
        let answer = match action {
            Action::Unfinished => Answer::Unfinished(
                refused.map_or_else(|| Ok(self.interfaces[interface].operation.clone().map(Ticket)), Err),
            ),
            Action::Observe => {
                let state = &self.interfaces[interface];
                let observed = Observed {
                    aliases: state.list.clone(),
                    version: state.version.to_string(),
                    limit: options().limit,
                };
                Answer::Observed(refused.map_or(Ok(observed), Err))
            }
            Action::Poll(ticket) => Answer::Polled(refused.map_or_else(|| Ok(self.progress(ticket)), Err)),
            Action::Owner(range, _) => {
                let owner = self.interfaces.iter().find(|(_, state)| state.list.contains(range));
                let stranger = self.occupied.as_ref() == Some(range);
                let owner = owner.map(|(owner, _)| owner.clone());
                let owner = owner.or_else(|| stranger.then(|| InterfaceId::first("r-c", "stranger")));
                Answer::Owner(Ok(owner.map_or(Owner::Nobody, Owner::Interface)))
            }
            Action::Apply(update) => {
                let applied = refused.map_or_else(|| self.apply(update, now, fault == 6, entropy), Err);
                Answer::Applied(applied)
            }
        };
        if fault == 1 {
            return match answer {
                Answer::Unfinished(_) => Answer::Unfinished(Err(lost())),
                Answer::Observed(_) => Answer::Observed(Err(lost())),
                Answer::Applied(_) => Answer::Applied(Err(lost())),
                Answer::Polled(_) => Answer::Polled(Err(lost())),
                Answer::Owner(_) => Answer::Owner(Err(lost())),
            };
        }
        answer
    }

    fn progress(&self, ticket: &Ticket) -> Progress {
        match self.operations.get(&ticket.0).map(|operation| &operation.result) {
            None => Progress::Failed(CloudError::new(ErrorKind::NotFound, "no such operation")),
            Some(None) => Progress::Running,
            Some(Some(Ok(()))) => Progress::Done,
            Some(Some(Err(error))) => Progress::Failed(error.clone()),
        }
    }

    fn apply(
        &mut self,
        update: &Update,
        now: Timestamp,
        slow: bool,
        entropy: &dyn Entropy,
    ) -> Result<Ticket, CloudError> {
        let number = self.operations.len();
        let limit = self.limit;
        let state = self.interfaces.get_mut(&update.interface).unwrap();
        if let Some((_, body, operation)) =
            state.requests.iter().find(|(request, ..)| *request == update.request)
        {
            if *body != update.aliases {
                self.broken = Some(format!("request {} has another body", update.request));
            }
            return Ok(Ticket(operation.clone()));
        }
        if state.operation.is_some() {
            // A request that follows a lost answer must be the same: this one is an update beside another.
            let by_same = state.requests.last().is_some_and(|(_, body, _)| *body == update.aliases);
            if by_same {
                self.broken = Some(format!(
                    "the same update of {} was sent under another request ID",
                    update.interface
                ));
            }
            return Err(CloudError::new(ErrorKind::NotReady, "the resource is not ready"));
        }
        if update.version != state.version.to_string() {
            return Err(CloudError::new(ErrorKind::Conflict, "Invalid fingerprint."));
        }
        let added = update.aliases.difference(&state.list).count();
        let removed: Vec<_> = state.list.difference(&update.aliases).collect();
        if added > 0 && !removed.is_empty() {
            self.broken = Some(format!("an update of {} adds and removes", update.interface));
        }
        if let Some(other) = removed.iter().find(|range| range.range == "pods") {
            self.broken = Some(format!("{other} of others is removed from {}", update.interface));
        }
        if update.aliases.len() > limit {
            self.broken = Some(format!("{} ranges for {}", update.aliases.len(), update.interface));
        }
        let name = format!("operation-{number}");
        let takes = if slow { 60_000 } else { 200 + entropy.next_u64() % 3_000 };
        state.operation = Some(name.clone());
        state.requests.push((update.request.clone(), update.aliases.clone(), name.clone()));
        let operation = Operation {
            interface: update.interface.clone(),
            ends: now.plus(Duration::from_millis(takes)),
            list: update.aliases.clone(),
            result: None,
        };
        self.operations.insert(name.clone(), operation);
        Ok(Ticket(name))
    }
}
