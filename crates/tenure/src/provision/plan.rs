//! What is to be done, from what is wanted and what is there. No I/O.
//!
//! A range has a name by rule: the first is `NAME`, the next ones `NAME-1`, `NAME-2` and so on; so has its reservation. So the run after
//! one that was killed finds what that one made.

use anyhow::{Context, Result, bail, ensure};
use serde::Serialize;
use tenure_api::cloud::{AliasPoolSpec, AliasRange};
use tenure_cloud::gcp::{Addresses, InternalRange, SecondaryRange};
use tenure_ipam::{Cidr, Family, Notation};

use super::discover::ClusterSubnet;
use super::seen::Seen;

mod pool;
mod remove;

/// Before the name of a reservation where a subnet refers to it.
const RESERVED: &str = "//networkconnectivity.googleapis.com/";

/// What is wanted.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) place: ClusterSubnet,
    pub(super) pool: String,
    pub(super) range_name: String,
    pub(super) reservation: String,
    /// The addresses of a new range, if they are not for Google to choose.
    pub(super) cidr: Option<String>,
    pub(super) prefix: u8,
    pub(super) within: String,
    pub(super) mode: Mode,
    pub(super) count: Count,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// Ranges of their own.
    Secondary,
    /// A part of the primary range.
    Static,
    /// No pool, and nothing of what was made for it.
    Remove,
}

/// How many ranges the pool is to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Count {
    OneMore,
    AtLeast(usize),
}

/// What is to be done, and what is done already.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Plan {
    pub(super) pool: String,
    items: Vec<Item>,
}

#[derive(Clone, Debug, PartialEq)]
struct Item {
    row: Row,
    /// What is left to do about it.
    step: Option<Step>,
}

/// A line of the plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Row {
    /// `reserve`, `add`, `create`, `append`, `delete`, `remove` or `release`.
    pub(super) act: &'static str,
    pub(super) object: String,
    /// Its addresses, or in words which they will be.
    pub(super) addresses: String,
    pub(super) done: bool,
}

/// One change.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    Reserve {
        name: String,
        addresses: Addresses,
    },
    /// Somebody else, perhaps a run that was killed, reserves it at this moment.
    AwaitAddresses(String),
    AddRange(SecondaryRange),
    CreatePool(AliasPoolSpec),
    AppendToPool(Vec<AliasRange>),
    DeletePool,
    RemoveRange(String),
    Release(String),
    /// Its addresses are not known before the steps above it are done.
    Later,
}

/// A range of the pool, in the order of the pool.
struct Slot {
    range: String,
    reservation: String,
    /// Its addresses as the pool has them.
    known: Option<String>,
}

impl Plan {
    /// The first change that is not made.
    pub(super) fn next(&self) -> Option<(&Row, &Step)> {
        self.items.iter().find_map(|item| item.step.as_ref().map(|step| (&item.row, step)))
    }

    pub(super) fn rows(&self) -> Vec<Row> {
        self.items.iter().map(|item| item.row.clone()).collect()
    }

    /// The same with these rows in front, as done.
    pub(super) fn having_done(mut self, rows: Vec<Row>) -> Self {
        let items = rows.into_iter().map(|row| Item { row: Row { done: true, ..row }, step: None });
        self.items.splice(0..0, items);
        self
    }

    fn new(pool: &str) -> Self {
        Self { pool: pool.to_owned(), items: Vec::new() }
    }

    fn push(&mut self, act: &'static str, object: String, addresses: &str, step: Option<Step>) {
        let row = Row { act, object, addresses: addresses.to_owned(), done: step.is_none() };
        self.items.push(Item { row, step });
    }
}

impl Wanted {
    /// Settles how many ranges are wanted: "one more" means one more than there were before the first step.
    pub(super) fn settled(mut self, seen: &Seen) -> Self {
        if self.count == Count::OneMore {
            self.count = Count::AtLeast(seen.pool_ranges() + 1);
        }
        self
    }

    fn target(&self, seen: &Seen) -> usize {
        match self.count {
            Count::OneMore => seen.pool_ranges() + 1,
            Count::AtLeast(count) => count.max(seen.pool_ranges()),
        }
    }

    fn numbered(name: &str, at: usize) -> String {
        if at == 0 { name.to_owned() } else { format!("{name}-{at}") }
    }

    /// The name of the reservation for the range of that number.
    pub(super) fn reservation(&self, at: usize) -> String {
        Self::numbered(&self.reservation, at)
    }

    /// How many reservations to look for, at most.
    pub(super) fn reservations(&self, seen: &Seen) -> usize {
        match self.mode {
            Mode::Secondary => self.target(seen),
            Mode::Static => 0,
            Mode::Remove => usize::MAX,
        }
    }

    /// Whether a range that the pool does not have yet is there, and belongs to no reservation: somebody made it.
    pub(super) fn uses_a_range_of_others(&self, seen: &Seen) -> bool {
        let is_there = |slot: &Slot| {
            let mut ranges = seen.subnet.secondary_ip_ranges.iter();
            ranges.any(|it| it.range_name == slot.range && it.reserved_internal_range.is_empty())
        };
        self.mode == Mode::Secondary
            && self.slots(seen).iter().any(|slot| slot.known.is_none() && is_there(slot))
    }

    /// The ranges that the pool has, then those that it is to get.
    fn slots(&self, seen: &Seen) -> Vec<Slot> {
        let mut slots: Vec<Slot> = Vec::new();
        if let Some(pool) = &seen.pool {
            let first = (&pool.spec.secondary_range_name, &pool.spec.cidr);
            let more = pool.spec.ranges.iter().map(|range| (&range.secondary_range_name, &range.cidr));
            for (at, (range, cidr)) in std::iter::once(first).chain(more).enumerate() {
                slots.push(Slot {
                    range: range.clone(),
                    reservation: self.reservation(at),
                    known: Some(cidr.clone()),
                });
            }
        }
        for at in slots.len()..self.target(seen) {
            let range = Self::numbered(&self.range_name, at);
            slots.push(Slot { range, reservation: self.reservation(at), known: None });
        }
        slots
    }
}

/// The plan for what was seen, or why there can be none.
pub(super) fn plan(wanted: &Wanted, seen: &Seen) -> Result<Plan> {
    if let Some(pool) = &seen.pool {
        ensure!(
            pool.spec.subnet.ends_with(&wanted.place.path()),
            "IPPool \"{}\" is of {}, not of {}; give --pool NAME for another pool",
            wanted.pool,
            pool.spec.subnet,
            wanted.place.path()
        );
    }
    if wanted.mode == Mode::Remove {
        return remove::plan(wanted, seen);
    }
    if let Some(pool) = &seen.pool {
        ensure!(
            pool.metadata.deletion_timestamp.is_none(),
            "IPPool \"{}\" is being deleted; try again when it is gone",
            wanted.pool
        );
    }
    let mut plan = Plan::new(&wanted.pool);
    let ranges = match wanted.mode {
        Mode::Static => vec![of_primary(wanted, seen)?],
        _ => of_secondary(wanted, seen, &mut plan)?,
    };
    pool::steps(wanted, seen, &ranges, &mut plan)?;
    Ok(plan)
}

/// A range as the pool is to have it; its addresses may not be known yet.
struct Found {
    range: String,
    cidr: Option<String>,
}

fn of_primary(wanted: &Wanted, seen: &Seen) -> Result<Found> {
    let cidr = network("--cidr", wanted.cidr.as_deref().unwrap_or_default())?;
    let primary = network("the primary range of the subnet", &seen.subnet.ip_cidr_range)?;
    ensure!(
        primary.covers(&cidr),
        "--cidr {cidr} is not in the primary range of subnet {}; accepted is a part of {primary}",
        wanted.place.subnet
    );
    Ok(Found { range: String::new(), cidr: Some(cidr.to_string()) })
}

fn of_secondary(wanted: &Wanted, seen: &Seen, plan: &mut Plan) -> Result<Vec<Found>> {
    let mut found = Vec::new();
    for slot in wanted.slots(seen) {
        let cidr = if slot.range.is_empty() {
            slot.known
        } else if let Some(range) =
            seen.subnet.secondary_ip_ranges.iter().find(|range| range.range_name == slot.range)
        {
            Some(range_is_there(seen, &slot, range, plan)?)
        } else if let Some(reserved) = seen.reservations.get(&slot.reservation) {
            range_is_reserved(wanted, seen, &slot, reserved, plan)?
        } else {
            range_is_missing(wanted, &slot, plan)?
        };
        found.push(Found { range: slot.range, cidr });
    }
    Ok(found)
}

fn range_is_there(seen: &Seen, slot: &Slot, range: &SecondaryRange, plan: &mut Plan) -> Result<String> {
    let cidr = network(&format!("secondary range {}", slot.range), &range.ip_cidr_range)?.to_string();
    if let Some(known) = &slot.known {
        ensure!(
            *known == cidr,
            "the IPPool says that secondary range {} is {known}, but it is {cidr}; remove the IPPool, or choose another by --pool",
            slot.range
        );
    }
    let linked = range.reserved_internal_range.rsplit('/').next().unwrap_or_default();
    if slot.known.is_none() && !linked.is_empty() && linked != slot.reservation {
        bail!(
            "secondary range {} is of reservation {linked}, not of {}: it may be another cluster's; choose another name by \
             --range-name, or give --internal-range if it is this cluster's",
            slot.range,
            slot.reservation
        );
    }
    if slot.known.is_none() && linked.is_empty() {
        is_not_the_clusters_own(seen, &slot.range, &cidr)?;
    }
    if !linked.is_empty() {
        plan.push("reserve", format!("internal range {linked}"), &cidr, None);
    }
    plan.push("add", format!("secondary range {}", slot.range), &cidr, None);
    Ok(cidr)
}

/// Addresses that the cluster's own network gives away would get a second holder.
fn is_not_the_clusters_own(seen: &Seen, range: &str, cidr: &str) -> Result<()> {
    let network = network("the range", cidr)?;
    if let Some((node, theirs)) = seen.node_networks.iter().find(|(_, theirs)| theirs.overlaps(&network)) {
        bail!(
            "secondary range {range} ({cidr}) is the cluster's own: pods of node {node} have addresses of {theirs} without Tenure; choose \
             another name by --range-name, and a range is made"
        );
    }
    ensure!(
        !range.starts_with("gke-"),
        "secondary range {range} is one that Google Kubernetes Engine made for pods or services of a cluster; choose another name by \
         --range-name, and a range is made"
    );
    Ok(())
}

fn range_is_reserved(
    wanted: &Wanted,
    seen: &Seen,
    slot: &Slot,
    reserved: &InternalRange,
    plan: &mut Plan,
) -> Result<Option<String>> {
    let name = &slot.reservation;
    // Without addresses the subnet would be patched with nothing.
    if reserved.ip_cidr_range.is_empty() {
        let wait = Some(Step::AwaitAddresses(name.clone()));
        plan.push("reserve", format!("internal range {name}"), "(being chosen)", wait);
        plan.push("add", format!("secondary range {}", slot.range), "(as above)", Some(Step::Later));
        return Ok(None);
    }
    let cidr = network(&format!("internal range {name}"), &reserved.ip_cidr_range)?.to_string();
    let last = |url: &str| url.rsplit('/').next().unwrap_or_default().to_owned();
    let of_subnet = format!("/regions/{}/subnetworks/{}", wanted.place.region, wanted.place.subnet);
    if let Some(user) = reserved.users.iter().find(|user| !user.ends_with(&of_subnet)) {
        bail!("internal range {name} is already used by {user}; choose another name by --internal-range");
    }
    ensure!(
        last(&reserved.network) == last(&seen.subnet.network),
        "internal range {name} is of network {}, and the subnet of {}; choose another name by --internal-range",
        last(&reserved.network),
        last(&seen.subnet.network)
    );
    if let Some(wants) = slot.known.as_ref().or(wanted.cidr.as_ref()) {
        ensure!(
            *wants == cidr,
            "internal range {name} is {cidr}, not {wants}; choose another name by --internal-range"
        );
    }
    plan.push("reserve", format!("internal range {name}"), &cidr, None);
    let range = SecondaryRange {
        range_name: slot.range.clone(),
        ip_cidr_range: cidr.clone(),
        reserved_internal_range: format!("{RESERVED}{}", reserved.name),
        ..SecondaryRange::default()
    };
    plan.push("add", format!("secondary range {}", slot.range), &cidr, Some(Step::AddRange(range)));
    Ok(Some(cidr))
}

fn range_is_missing(wanted: &Wanted, slot: &Slot, plan: &mut Plan) -> Result<Option<String>> {
    let given = slot.known.as_ref().or(wanted.cidr.as_ref());
    let (addresses, words) = if let Some(cidr) = given {
        network("--cidr", cidr)?;
        (Addresses::These(cidr.clone()), cidr.clone())
    } else {
        network("--within", &wanted.within)?;
        let any = Addresses::Any { prefix: wanted.prefix, within: wanted.within.clone() };
        (any, format!("a /{} of {}", wanted.prefix, wanted.within))
    };
    let reserve = Step::Reserve { name: slot.reservation.clone(), addresses };
    plan.push("reserve", format!("internal range {}", slot.reservation), &words, Some(reserve));
    plan.push("add", format!("secondary range {}", slot.range), &words, Some(Step::Later));
    Ok(given.cloned())
}

/// A network that a pool can have.
fn network(what: &str, text: &str) -> Result<Cidr> {
    let cidr = Notation::Strict.cidr(text).with_context(|| format!("{what} is \"{text}\""))?;
    ensure!(
        cidr.family() == Family::V4 && (8..=30).contains(&cidr.prefix()) && cidr.to_string() == text,
        "{what} is \"{text}\"; accepted is an IPv4 network from a /8 to a /30 without host bits, such as 10.111.0.0/16"
    );
    Ok(cidr)
}

#[cfg(test)]
mod tests;
