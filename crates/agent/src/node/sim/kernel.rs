//! The kernel: links with addresses, added and removed in any order; some requests fail, some are half done.

use std::collections::{BTreeMap, BTreeSet};

use tenure_ipam::{Address, Addresses};

use super::dice::Dice;
use crate::key::{HoldKey, Pod};
use crate::node::{Action, Event, Found, KernelError, KernelErrorKind, Link, Look, WireJob};

use super::claim::is_claim_user;

#[derive(Debug, Default)]
pub(super) struct Kernel {
    pub(super) links: BTreeMap<HoldKey, Vec<Address>>,
    /// Paths of namespaces that are gone.
    pub(super) gone: BTreeSet<String>,
    pub(super) jobs: Vec<Action>,
    pub(super) obedient: bool,
    /// Links that the last list missed although they existed: lists are taken one after the other while things change.
    overlooked: Option<HoldKey>,
}

impl Kernel {
    /// Performs one job, or fails. Returns the result.
    pub(super) fn work(&mut self, dice: &Dice) -> Option<Event> {
        let job = self.next_job(dice)?;
        let fails = !self.obedient && dice.percent(12);
        let error = || KernelError::new(KernelErrorKind::Other, "the kernel refused");
        Some(match job {
            Action::Wire(job) if fails => {
                match dice.below(3) {
                    0 => drop(self.links.entry(job.key).or_default()),
                    1 => self.wire(&job),
                    _ => {}
                }
                Event::WiringFailed { job: job.job, error: error() }
            }
            Action::Wire(job) => {
                self.wire(&job);
                Event::Wired { job: job.job, link: Link::default() }
            }
            Action::Unwire { job, .. } if fails => Event::UnwiringFailed { job, error: error() },
            Action::Unwire { job, key, .. } => {
                self.links.remove(&key);
                Event::Unwired { job }
            }
            Action::Inspect(job) => {
                let routes = job.addresses.iter().filter(|_| job.reached).collect();
                let there = self.links.get(&job.key) == Some(&routes);
                let differences = if there { Vec::new() } else { vec!["no link".to_owned()] };
                Event::Inspected { job: job.job, differences }
            }
            Action::Reach { .. } | Action::Look { .. } if fails => return None,
            Action::Reach { key, addresses, reached, .. } => {
                if self.links.contains_key(&key) {
                    let was: Vec<Address> = addresses.iter().collect();
                    match self.links.get_mut(&key) {
                        Some(link) if !reached => link.retain(|address| !was.contains(address)),
                        _ => self.put(key, &addresses),
                    }
                }
                return None;
            }
            Action::Look { job, interfaces, namespaces } => {
                let overlooked = (!self.obedient && self.overlooked.is_none() && dice.percent(30))
                    .then(|| interfaces.get(dice.below(interfaces.len())).cloned())
                    .flatten();
                let mut gone: BTreeSet<HoldKey> = interfaces
                    .into_iter()
                    .filter(|key| !self.links.contains_key(key) || overlooked.as_ref() == Some(key))
                    .collect();
                gone.extend(
                    namespaces.into_iter().filter(|(_, path)| self.gone.contains(path)).map(|(key, _)| key),
                );
                let mut links = self.inventory();
                links.retain(|link| overlooked.as_ref() != Some(&link.key));
                self.overlooked = overlooked;
                Event::Looked { job, look: Look { links, gone, strays: Vec::new() } }
            }
            other => panic!("{other:?} is no job"),
        })
    }

    /// Performs jobs in any order, except that routes of claim users keep the order of their requests: the last one wins.
    fn next_job(&mut self, dice: &Dice) -> Option<Action> {
        if self.jobs.is_empty() {
            return None;
        }
        let mut at = dice.below(self.jobs.len());
        while let Some(earlier) = self.jobs[..at].iter().position(|job| is_before(job, &self.jobs[at])) {
            at = earlier;
        }
        Some(self.jobs.remove(at))
    }

    fn wire(&mut self, job: &WireJob) {
        if job.reached {
            self.put(job.key.clone(), &job.addresses);
        } else {
            self.links.insert(job.key.clone(), Vec::new());
        }
    }

    /// Makes the routes exactly these.
    pub(super) fn repair(&mut self, holds: &[(HoldKey, Addresses)]) {
        self.links.values_mut().for_each(Vec::clear);
        for (key, addresses) in holds {
            if self.links.contains_key(key) {
                self.put(key.clone(), addresses);
            }
        }
    }

    /// A link with its routes; each address has one route.
    fn put(&mut self, key: HoldKey, addresses: &Addresses) {
        for link in self.links.values_mut() {
            link.retain(|address| addresses.iter().all(|other| other != *address));
        }
        self.links.insert(key, addresses.iter().collect());
    }

    /// The agent crashes: some of its requests were performed, some were not.
    pub(super) fn orphan(&mut self, dice: &Dice) {
        while !self.jobs.is_empty() {
            if dice.percent(50) {
                self.work(dice);
            } else {
                dice.pick(&mut self.jobs);
            }
        }
    }

    pub(super) fn inventory(&self) -> Vec<Found> {
        let found = |(key, addresses): (&HoldKey, &Vec<Address>)| Found {
            key: key.clone(),
            pod: Pod::default(),
            addresses: addresses.clone(),
        };
        self.links.iter().map(found).collect()
    }
}

/// Whether one job must be done before a later one: those about claim users' routes keep their order.
fn is_before(one: &Action, later: &Action) -> bool {
    let claim_use = |job: &Action| match job {
        Action::Wire(job) | Action::Inspect(job) => is_claim_user(&job.key),
        Action::Unwire { key, .. } | Action::Reach { key, .. } => is_claim_user(key),
        Action::Look { .. } => true,
        _ => false,
    };
    claim_use(one) && claim_use(later)
}
