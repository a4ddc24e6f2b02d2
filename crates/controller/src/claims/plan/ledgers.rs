//! Indexes ledgers for claims: by their network, by the addresses that they hold, and whether they belong to slices
//! for claims.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use tenure_api::claims::label::FLOATING;
use tenure_api::whereabouts::label::NETWORK;
use tenure_ipam::{Address, Cidr};

use super::super::sets::{Names, Sets};
use super::line::{Awaited, Line};
use crate::whereabouts::Ledger;
use crate::world::World;

/// Ledgers.
#[derive(Debug, Default)]
pub(super) struct LedgerIndex {
    facts: HashMap<Arc<str>, Facts>,
    by_network: Sets<Arc<str>>,
    /// Those that do not name their network; their object names may.
    unlabelled: Names,
    /// Ledgers with records in this span, with the lowest and highest address.
    held: BTreeMap<Arc<str>, (Address, Address)>,
    /// Ledgers of slices for claims.
    floating: Names,
}

#[derive(Debug)]
struct Facts {
    network: Option<String>,
    whole: bool,
}

impl LedgerIndex {
    /// Reads these ledgers again.
    pub(super) fn refresh(&mut self, world: &World, ledgers: &Names, line: &mut Line) {
        for name in ledgers {
            let mut facts = Vec::from_iter(self.remove(name));
            if let Some(ledger) = world.ledgers().pools.get(name) {
                facts.push(self.insert(name, ledger));
            }
            for Facts { network, whole } in facts {
                match network {
                    Some(network) => line.note(Awaited::Shared(network.into())),
                    None => line.all_shared_changed(),
                }
                // An address that is held anywhere in a slice is not assigned from it.
                if whole {
                    line.all_slices_changed();
                }
            }
        }
    }

    /// The ledgers that may be of a network.
    pub(super) fn of_network(&self, network: &str) -> Names {
        self.by_network.of(network).chain(&self.unlabelled).cloned().collect()
    }

    /// The ledgers that may have a record of an address of a slice.
    pub(super) fn overlapping(&self, slice: Cidr) -> impl Iterator<Item = &Arc<str>> {
        let overlaps = move |(first, last): &(Address, Address)| {
            first.family() == slice.first().family() && *first <= slice.last() && *last >= slice.first()
        };
        self.held.iter().filter(move |(_, span)| overlaps(span)).map(|(name, _)| name)
    }

    /// The ledgers of slices for claims, even if no pool of slices lists them any more.
    pub(super) fn floating(&self) -> &Names {
        &self.floating
    }

    fn insert(&mut self, name: &Arc<str>, ledger: &Ledger) -> Facts {
        let labels = ledger.pool.metadata.labels.as_ref();
        let network = labels.and_then(|labels| labels.get(NETWORK)).cloned();
        match &network {
            Some(network) => self.by_network.add(network, name.clone()),
            None => _ = self.unlabelled.insert(name.clone()),
        }
        if let Some(span) = ledger.span.filter(|_| ledger.whole) {
            self.held.insert(name.clone(), span);
        }
        if labels.is_some_and(|labels| labels.contains_key(FLOATING)) {
            self.floating.insert(name.clone());
        }
        let whole = ledger.whole;
        self.facts.insert(name.clone(), Facts { network: network.clone(), whole });
        Facts { network, whole }
    }

    fn remove(&mut self, name: &Arc<str>) -> Option<Facts> {
        let facts = self.facts.remove(name)?;
        match &facts.network {
            Some(network) => self.by_network.remove(network, name),
            None => _ = self.unlabelled.remove(name),
        }
        self.held.remove(name);
        self.floating.remove(name);
        Some(facts)
    }
}
