//! The kernel: links with addresses, made and removed when it pleases, sometimes not, sometimes half.

use std::collections::{BTreeMap, BTreeSet};

use tenure_cni::{Code, Failure};
use tenure_ipam::{Address, Addresses};

use super::dice::Dice;
use crate::key::{HoldKey, Pod};
use crate::node::{Action, Event, Found, Link, Look};

#[derive(Debug, Default)]
pub(super) struct Kernel {
    pub(super) links: BTreeMap<HoldKey, Vec<Address>>,
    /// Paths of namespaces that are no more.
    pub(super) gone: BTreeSet<String>,
    pub(super) jobs: Vec<Action>,
    pub(super) obedient: bool,
}

impl Kernel {
    /// Does one job, or fails at it. Says what came of it.
    pub(super) fn work(&mut self, dice: &Dice) -> Option<Event> {
        let job = dice.pick(&mut self.jobs)?;
        let fails = !self.obedient && dice.percent(12);
        let failure = || Failure::new(Code::Internal, "the kernel refused");
        Some(match job {
            Action::Wire(job) if fails => {
                match dice.below(3) {
                    0 => drop(self.links.entry(job.key).or_default()),
                    1 => self.put(job.key, &job.addresses),
                    _ => {}
                }
                Event::WiringFailed { job: job.job, failure: failure() }
            }
            Action::Wire(job) => {
                self.put(job.key, &job.addresses);
                Event::Wired { job: job.job, link: Link::default() }
            }
            Action::Unwire { job, .. } if fails => Event::UnwiringFailed { job, failure: failure() },
            Action::Unwire { job, key, .. } => {
                self.links.remove(&key);
                Event::Unwired { job }
            }
            Action::Inspect(job) => {
                let there = self.links.get(&job.key) == Some(&job.addresses.iter().collect());
                let differences = if there { Vec::new() } else { vec!["no link".to_owned()] };
                Event::Inspected { job: job.job, differences }
            }
            Action::Look { .. } if fails => return None,
            Action::Look { job, interfaces, namespaces } => {
                let mut gone: BTreeSet<HoldKey> =
                    interfaces.into_iter().filter(|key| !self.links.contains_key(key)).collect();
                gone.extend(
                    namespaces.into_iter().filter(|(_, path)| self.gone.contains(path)).map(|(key, _)| key),
                );
                Event::Looked { job, look: Look { links: self.inventory(), gone, strays: Vec::new() } }
            }
            other => panic!("{other:?} is no job"),
        })
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

    /// A link with routes to it; of one address there is one route.
    fn put(&mut self, key: HoldKey, addresses: &Addresses) {
        for link in self.links.values_mut() {
            link.retain(|address| addresses.iter().all(|other| other != *address));
        }
        self.links.insert(key, addresses.iter().collect());
    }

    /// The agent dies: of what it asked for, some was done and some was not.
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
