//! Records of a pool: reservations on a list, and offsets as keys.

use serde_json::{Value, json};
use tenure_api::whereabouts::{IPPool, IPPoolSpec, Reservation};
use tenure_handles::Timestamp;
use tenure_ipam::Notation;
use tenure_ipam::ledger::{LedgerError, Offsets};
use tenure_whereabouts::config::Config;
use tenure_whereabouts::ledger::memory::Memory;
use tenure_whereabouts::ledger::{Answer as Said, PoolId, Request, Want, Who};

use super::arithmetic::address;
use super::{Answer, Input, allocation, refused, sequence};

/// The records of a question, in its order.
fn reservations(input: &Input) -> Result<Vec<Reservation>, String> {
    let read = |record: &Value| {
        let record = Input(record);
        Ok(Reservation {
            id: record.text("id").to_owned(),
            podref: record.text("podref").to_owned(),
            uid: uid_of(record.text("podref")),
            ifname: record.text("ifname").to_owned(),
            address: address(record.text("ip"))?,
        })
    };
    input.list("reservations").map(read).collect()
}

/// In a question a pod of the same name is the same pod.
fn uid_of(podref: &str) -> String {
    format!("uid of {podref}")
}

fn who(input: &Input) -> Who {
    let text = |key| input.text(key).to_owned();
    Who { id: text("id"), podref: text("podref"), uid: uid_of(input.text("podref")), ifname: text("ifname") }
}

/// An `IPPool` with the records of a question, and the network that it is of.
struct Ledger {
    memory: Memory,
    config: Config,
    before: Vec<Reservation>,
}

impl Ledger {
    fn new(ipam: &Value, before: Vec<Reservation>) -> Result<Self, String> {
        let config = sequence::config("0.3.1", ipam, "default", "pod")?;
        let range = config.ranges.first().ok_or("there is no range")?.cidr();
        let spec = IPPoolSpec::of(&range, &before).map_err(refused)?;
        let name = PoolId::shared(&config.network, range).name().map_err(refused)?;
        let mut memory = Memory::default();
        memory.put_pool(IPPool::new(&name, spec));
        Ok(Self { memory, config, before })
    }

    fn serve(&mut self, request: Request) -> Result<Said, String> {
        let mut answers = self.memory.serve(&self.config.network, vec![request], Timestamp::default());
        answers.pop().ok_or_else(|| "no answer".to_owned())
    }

    /// The records: those of before in their order, then new ones.
    fn after(&self) -> Result<Vec<Reservation>, String> {
        let mut after = Vec::new();
        for pool in self.memory.pools() {
            let entries = pool.spec.reservations().map_err(refused)?.entries;
            after.extend(entries.into_iter().map(|(_, held)| held));
        }
        let place = |held: &Reservation| self.before.iter().position(|it| it.address == held.address);
        after.sort_by_key(|held| place(held).unwrap_or(usize::MAX));
        Ok(after)
    }
}

pub(super) fn assign(input: &Input) -> Answer {
    let range = allocation::range(input)?;
    let ipam = json!({
        "range": range.cidr().to_string(),
        "range_start": range.first().to_string(),
        "range_end": range.last().to_string(),
        "exclude": input.texts("exclude").collect::<Vec<_>>(),
    });
    // A record of another network is in no ledger of this one.
    let (inside, outside): (Vec<_>, Vec<_>) =
        reservations(input)?.into_iter().partition(|held| range.cidr().contains(held.address));
    let mut ledger = Ledger::new(&ipam, inside)?;
    let want = Want::of(&ledger.config, &[]);
    let address = match ledger.serve(Request::hold(who(input), want))? {
        Said::Held(addresses) => {
            ledger.config.result(&addresses).ips.first().map(|ip| json!(ip)["address"].clone())
        }
        Said::Refused(refusal) => return Err(refusal.to_string()),
        other => return Err(format!("{other:?}")),
    };
    let show = |record: &Reservation| {
        let Reservation { id, podref, ifname, address, .. } = record;
        json!({"id": id, "podref": podref, "ifname": ifname, "ip": address.to_string()})
    };
    let after: Vec<Value> = ledger.after()?.iter().chain(&outside).map(show).collect();
    Ok(json!({"address": address, "reservations": after}))
}

/// Whereabouts releases the first record that is the container's; our ledger releases all of them. So each record is asked
/// about by itself, those that name an interface first.
pub(super) fn dealloc(input: &Input) -> Answer {
    let list = reservations(input)?;
    let mut order: Vec<usize> = (0..list.len()).collect();
    order.sort_by_key(|place| list[*place].ifname.is_empty());
    let mut released = None;
    for place in order {
        // The question has no range: the one that holds everything will do.
        let everything = if list[place].address.to_ip().is_ipv6() { "::/0" } else { "0.0.0.0/0" };
        let mut ledger = Ledger::new(&json!({ "range": everything }), vec![list[place].clone()])?;
        let request = Request::release(who(input), &ledger.config);
        match ledger.serve(request)? {
            Said::Released(addresses) if addresses.is_empty() => {}
            Said::Released(_) => {
                released = Some(place);
                break;
            }
            other => return Err(format!("{other:?}")),
        }
    }
    let ip = |record: &Reservation| record.address.to_string();
    let remaining = list.iter().enumerate().filter(|(place, _)| Some(*place) != released);
    let remaining: Vec<String> = remaining.map(|(_, record)| ip(record)).collect();
    Ok(json!({"released": released.map(|place| ip(&list[place])), "remaining": remaining}))
}

fn offsets(input: &Input) -> Result<Offsets, String> {
    Ok(Offsets::of(&Notation::Strict.cidr(input.text("pool_range")).map_err(refused)?))
}

pub(super) fn decode(input: &Input) -> Answer {
    let decoded = offsets(input)?.decode_map(input.texts("offsets").map(|offset| (offset, ())));
    let ips: Vec<String> = decoded.entries.iter().map(|(address, ())| address.to_string()).collect();
    let rejected: Vec<String> = decoded.refused.into_iter().map(entry).collect();
    Ok(json!({"ips": ips, "rejected": rejected}))
}

/// The key that could not be read, as it was written.
fn entry(error: LedgerError) -> String {
    match error {
        LedgerError::NotANumber { entry }
        | LedgerError::OutsideRange { entry, .. }
        | LedgerError::Duplicate { entry, .. } => entry,
        other => other.to_string(),
    }
}

pub(super) fn encode(input: &Input) -> Answer {
    let held: Vec<_> = input.texts("ips").map(|ip| Ok((address(ip)?, ()))).collect::<Result<_, String>>()?;
    let map = offsets(input)?.encode_map(held).map_err(refused)?;
    Ok(json!({"offsets": map.keys().collect::<Vec<_>>()}))
}
