//! Judges what the fake has kept: what machines had at which time, and what was asked of it.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use tenure_testbed::compute::{Call, Change, Logged, Plane};

/// The window of a budget.
const MINUTE: Duration = Duration::from_mins(1);

/// A pod was told an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Promise {
    pub address: IpAddr,
    /// The pod's machine.
    pub instance: String,
    pub pod: String,
    /// When its ADD was answered.
    pub told: Duration,
    /// When it began to end or to move; until then the address is its own, and arrives.
    pub until: Option<Duration>,
}

/// How much of a move is the cloud's own: in the order of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delay {
    /// From the acceptance of the removal to its end.
    pub removal: Duration,
    /// From the acceptance of the addition to its end.
    pub addition: Duration,
    /// From there until packets arrive.
    pub arrival: Duration,
}

impl Delay {
    pub fn sum(self) -> Duration {
        self.removal + self.addition + self.arrival
    }
}

/// Ranges that the cloud had on two machines at the same time.
pub fn on_two_machines(changes: &[Change]) -> Vec<String> {
    let mut has: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut found = Vec::new();
    for it in changes.iter().filter(|it| it.plane == Plane::Configuration) {
        let machines = has.entry(&it.range).or_default();
        machines.retain(|machine| *machine != it.instance);
        if it.there {
            machines.push(&it.instance);
        }
        if machines.len() > 1 {
            found.push(format!("{} is on {machines:?} at {:?}", it.range, it.at));
        }
    }
    found
}

/// Promises that were not kept: one address was another pod's at the same time, or was not on the pod's machine all the time.
pub fn unkept(promises: &[Promise], changes: &[Change]) -> Vec<String> {
    let mut found = Vec::new();
    for (number, it) in promises.iter().enumerate() {
        let until = it.until.unwrap_or(Duration::MAX);
        for other in &promises[..number] {
            let others = other.until.unwrap_or(Duration::MAX);
            if other.address == it.address && other.told < until && it.told < others {
                found.push(format!("{} and {} both have {}", other.pod, it.pod, it.address));
            }
        }
        let range = format!("{}/32", it.address);
        let about = |change: &&Change| change.range == range && change.instance == it.instance;
        for plane in [Plane::Configuration, Plane::Data] {
            let of_plane = || changes.iter().filter(about).filter(|change| change.plane == plane);
            if !of_plane().rfind(|change| change.at <= it.told).is_some_and(|change| change.there) {
                found.push(format!("{} was told {range}, which {} did not have", it.pod, it.instance));
            }
            if let Some(gone) =
                of_plane().find(|change| change.at > it.told && change.at < until && !change.there)
            {
                found.push(format!("{} has {range}, and {} lost it at {:?}", it.pod, it.instance, gone.at));
            }
        }
    }
    found
}

/// Minutes with more requests than these to a region: reads, and updates of interfaces.
pub fn over_budget(log: &[Logged], reads: usize, updates: usize) -> Vec<String> {
    let times = |is: fn(Call) -> bool| -> Vec<Duration> {
        log.iter().filter(|it| is(it.call)).map(|it| it.at).collect()
    };
    let of_reads = times(|call| {
        matches!(
            call,
            Call::GetInstance
                | Call::ListInstances
                | Call::GetOperation
                | Call::WaitOperation
                | Call::ListOperations
        )
    });
    let of_updates = times(|call| call == Call::UpdateInterface);
    let mut found = Vec::new();
    for (what, times, most) in [("reads", of_reads, reads), ("updates", of_updates, updates)] {
        let within =
            |begin: Duration| times.iter().filter(|at| **at >= begin && **at < begin + MINUTE).count();
        if let Some((begin, count)) =
            times.iter().map(|at| (at, within(*at))).find(|(_, count)| *count > most)
        {
            found.push(format!("{count} {what} in the minute from {begin:?}, and {most} are allowed"));
        }
    }
    found
}

/// What the cloud itself took for the move of an address from one machine, if that is still there, to another after a moment; nothing if
/// it did not happen.
pub fn delay_of_move(
    log: &[Logged],
    changes: &[Change],
    address: IpAddr,
    (from, to): (Option<&str>, &str),
    since: Duration,
) -> Option<Delay> {
    let range = format!("{address}/32");
    let change = |plane: Plane, instance: &str, there: bool| {
        let is = |it: &&Change| {
            (it.plane, it.instance.as_str(), it.there, it.at >= since) == (plane, instance, there, true)
                && it.range == range
        };
        changes.iter().find(is).map(|it| it.at)
    };
    let accepted = |instance: &str, before: Duration| {
        let path = format!("/instances/{instance}/updateNetworkInterface");
        let is = |it: &&Logged| it.status == 200 && it.path.contains(&path) && it.at <= before;
        log.iter().rfind(is).map(|it| it.at)
    };
    let removal = match from {
        Some(from) => {
            let removed = change(Plane::Configuration, from, false)?;
            removed.saturating_sub(accepted(from, removed)?)
        }
        None => Duration::ZERO,
    };
    let added = change(Plane::Configuration, to, true)?;
    let arrived = change(Plane::Data, to, true)?;
    Some(Delay {
        removal,
        addition: added.saturating_sub(accepted(to, added)?),
        arrival: arrived.saturating_sub(added),
    })
}

#[cfg(test)]
mod tests;
