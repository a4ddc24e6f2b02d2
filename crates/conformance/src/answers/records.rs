//! Records of a pool: reservations on a list, and offsets as keys.

use serde_json::{Value, json};
use tenure_ipam::assign::{Request, Reservation, Reservations};
use tenure_ipam::ledger::{LedgerError, Offsets};
use tenure_ipam::{Notation, Range};

use super::arithmetic::address;
use super::{Answer, Input, allocation, refused};

fn reservations(input: &Input) -> Result<Vec<Reservation>, String> {
    let read = |record: &Value| {
        let record = Input(record);
        Ok(Reservation {
            id: record.text("id").to_owned(),
            podref: record.text("podref").to_owned(),
            uid: String::new(),
            ifname: record.text("ifname").to_owned(),
            address: address(record.text("ip"))?,
        })
    };
    input.list("reservations").map(read).collect()
}

pub(super) fn assign(input: &Input) -> Answer {
    let range = allocation::range(input)?;
    let prefix = range.cidr().prefix();
    let mut pool = Reservations::new(range, reservations(input)?);
    let request =
        Request { id: input.text("id"), podref: input.text("podref"), ifname: input.text("ifname") };
    let address = pool.assign(request).map_err(refused)?;
    let show = |record: &Reservation| {
        let Reservation { id, podref, ifname, address, .. } = record;
        json!({"id": id, "podref": podref, "ifname": ifname, "ip": address.to_string()})
    };
    let after: Vec<Value> = pool.list().map(show).collect();
    Ok(json!({"address": format!("{address}/{prefix}"), "reservations": after}))
}

pub(super) fn dealloc(input: &Input) -> Answer {
    // The question has no range: the one that holds everything will do.
    let list = reservations(input)?;
    let everything =
        if list.iter().any(|record| record.address.to_ip().is_ipv6()) { "::/0" } else { "0.0.0.0/0" };
    let range = Range::every(Notation::Strict.cidr(everything).map_err(refused)?);
    let mut pool = Reservations::new(range, list);
    let released = pool.release(input.text("id"), input.text("ifname"));
    let remaining: Vec<String> = pool.list().map(|record| record.address.to_string()).collect();
    Ok(json!({"released": released.map(|address| address.to_string()), "remaining": remaining}))
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
