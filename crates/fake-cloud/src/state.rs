//! What the cloud has: machines, subnets, operations, reservations, and what was asked of it.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use tenure_handles::{Clock, SystemClock};

use super::answer::{Answer, Refused};
use super::faults::{Call, Fault};
use super::operations::Operation;
use super::ranges::Net;
use super::reservations::Reservation;
use super::subnets::Subnet;
use super::{Change, Logged, Plane, Settings};

#[derive(Default)]
pub(crate) struct State {
    pub(super) machines: BTreeMap<(String, String), Machine>,
    pub(super) subnets: BTreeMap<(String, String), Subnet>,
    pub(super) operations: BTreeMap<String, Operation>,
    pub(super) reservations: BTreeMap<String, Reservation>,
    pub(super) faults: Vec<Fault>,
    pub(super) log: Vec<Logged>,
    pub(super) changes: Vec<Change>,
    /// The operation of each request ID.
    pub(super) requests: BTreeMap<String, String>,
    /// The window and the requests in it, by region and whether they write.
    counted: BTreeMap<(String, bool), (u128, usize)>,
    numbers: u64,
}

/// A machine with one interface.
#[derive(Clone, Debug)]
pub(super) struct Machine {
    pub(super) subnet: String,
    pub(super) fingerprint: u64,
    pub(super) aliases: Vec<Alias>,
    /// The data plane.
    pub(super) arriving: BTreeSet<Net>,
    /// Counts changes of the data plane.
    pub(super) arrivals: u64,
    /// The operation under way.
    pub(super) busy: Option<String>,
}

/// An alias range of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Alias {
    pub(super) net: Net,
    /// The secondary range; empty for the primary one.
    pub(super) range: String,
}

impl Machine {
    fn configured(&self) -> BTreeSet<Net> {
        self.aliases.iter().map(|alias| alias.net).collect()
    }
}

/// The region of a zone.
pub(super) fn region_of(zone: &str) -> &str {
    zone.rsplit_once('-').map_or(zone, |(region, _)| region)
}

impl State {
    /// A number that no other thing has.
    pub(super) fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    pub(super) fn machine(&mut self, zone: &str, name: &str) -> Result<&mut Machine, Refused> {
        let path = format!("projects/{}/zones/{zone}/instances/{name}", super::PROJECT);
        self.machines.get_mut(&(zone.to_owned(), name.to_owned())).ok_or_else(|| Answer::not_found(&path))
    }

    /// Counts a request of a region, and refuses it if there were too many.
    pub(super) fn count(&mut self, place: &str, call: Call, settings: &Settings) -> Result<(), Refused> {
        let region = if place.matches('-').count() > 1 { region_of(place) } else { place };
        let window = u128::from(SystemClock.now().as_millis()) / settings.window.as_millis().max(1);
        let counted = self.counted.entry((region.to_owned(), call.is_write())).or_default();
        if counted.0 != window {
            *counted = (window, 0);
        }
        if counted.1 >= settings.requests_per_window {
            return Err(Answer::too_many_requests());
        }
        counted.1 += 1;
        Ok(())
    }

    pub(super) fn add_subnet(&mut self, region: &str, name: &str, range: &str) -> io::Result<()> {
        let net = Net::parse(range).ok_or_else(|| no_network(range))?;
        self.subnets.insert((region.to_owned(), name.to_owned()), Subnet::new(net));
        Ok(())
    }

    pub(super) fn add_instance(&mut self, zone: &str, name: &str, subnet: &str) {
        let machine = Machine {
            subnet: subnet.to_owned(),
            fingerprint: self.number(),
            aliases: Vec::new(),
            arriving: BTreeSet::new(),
            arrivals: 0,
            busy: None,
        };
        self.machines.insert((zone.to_owned(), name.to_owned()), machine);
    }

    pub(super) fn delete_instance(&mut self, zone: &str, name: &str) -> Vec<Change> {
        let Some(gone) = self.machines.remove(&(zone.to_owned(), name.to_owned())) else { return Vec::new() };
        self.note(Plane::Configuration, zone, name, &gone.configured(), &BTreeSet::new());
        self.note(Plane::Data, zone, name, &gone.arriving, &BTreeSet::new())
    }

    pub(super) fn set_aliases(
        &mut self,
        zone: &str,
        name: &str,
        aliases: &[(&str, &str)],
    ) -> io::Result<Vec<Change>> {
        let read = |(cidr, range): &(&str, &str)| {
            Ok(Alias { net: Net::parse(cidr).ok_or_else(|| no_network(cidr))?, range: (*range).to_owned() })
        };
        let aliases: Vec<Alias> = aliases.iter().map(read).collect::<io::Result<_>>()?;
        self.configure(zone, name, aliases).map_err(|refused| io::Error::other(refused.body.to_string()))?;
        Ok(self.arrive(zone, name))
    }

    /// Changes the configuration of a machine.
    pub(super) fn configure(&mut self, zone: &str, name: &str, aliases: Vec<Alias>) -> Result<(), Refused> {
        let fingerprint = self.number();
        let machine = self.machine(zone, name)?;
        let before = machine.configured();
        (machine.aliases, machine.fingerprint) = (aliases, fingerprint);
        let after = machine.configured();
        self.note(Plane::Configuration, zone, name, &before, &after);
        Ok(())
    }

    /// Brings the data plane of a machine in line with its configuration.
    pub(super) fn arrive(&mut self, zone: &str, name: &str) -> Vec<Change> {
        let Ok(machine) = self.machine(zone, name) else { return Vec::new() };
        let after = machine.configured();
        let before = std::mem::replace(&mut machine.arriving, after.clone());
        machine.arrivals += u64::from(before != after);
        self.note(Plane::Data, zone, name, &before, &after)
    }

    /// Keeps what changes: what goes, and then what comes.
    fn note(
        &mut self,
        plane: Plane,
        zone: &str,
        name: &str,
        before: &BTreeSet<Net>,
        after: &BTreeSet<Net>,
    ) -> Vec<Change> {
        let at = SystemClock.elapsed();
        let change = |net: &Net, there| Change {
            at,
            plane,
            zone: zone.to_owned(),
            instance: name.to_owned(),
            range: net.to_string(),
            there,
        };
        let gone = before.difference(after).map(|net| change(net, false));
        let changes: Vec<Change> =
            gone.chain(after.difference(before).map(|net| change(net, true))).collect();
        self.changes.extend(changes.iter().cloned());
        changes
    }

    pub(super) fn aliases(&mut self, zone: &str, name: &str) -> BTreeSet<String> {
        let machine = self.machine(zone, name);
        machine
            .map(|machine| machine.aliases.iter().map(|alias| alias.net.to_string()).collect())
            .unwrap_or_default()
    }

    pub(super) fn arriving(&mut self, zone: &str, name: &str) -> BTreeSet<String> {
        let machine = self.machine(zone, name);
        machine.map(|machine| machine.arriving.iter().map(ToString::to_string).collect()).unwrap_or_default()
    }
}

pub(super) fn no_network(text: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidInput,
        format!("\"{text}\" is no IPv4 network; accepted is one such as 10.0.0.0/24"),
    )
}
