//! Records as protobuf messages. An older agent reads what a newer one wrote and the other way round, as long
//! as the file's version is the same.
//!
//! A claim user is a hold in a block of its own. An agent that does not know claim users finds a hold in an
//! unknown block, and reserves its addresses.

use std::net::IpAddr;

use prost::Message as _;
use tenure_handles::Timestamp;
use tenure_ipam::{Address, Addresses, Sequence, Subnet};

use super::record::{BlockFacts, ClaimUseRecord, Held, Known, Record, Released};
use crate::key::{HoldKey, Pod};

/// A record's body.
pub(super) fn encode(record: &Record) -> Vec<u8> {
    let kind = match record {
        Record::Owned(facts) => Kind::Owned(BlockMessage {
            uid: facts.uid.clone(),
            name: facts.name.clone(),
            pool: facts.pool.clone(),
            ipv4: facts.subnet.ipv4.map(|cidr| cidr.to_string()).unwrap_or_default(),
            ipv6: facts.subnet.ipv6.map(|cidr| cidr.to_string()).unwrap_or_default(),
            realm: facts.realm.clone(),
        }),
        Record::Fenced { uid } => Kind::Fenced(uid.clone()),
        Record::Known(Known::All) => Kind::Known(0),
        Record::Known(Known::Asking) => Kind::Known(1),
        Record::Known(Known::Lost) => Kind::Known(2),
        Record::Doubted { uid, doubted: true } => Kind::Doubted(uid.clone()),
        Record::Doubted { uid, doubted: false } => Kind::Trusted(uid.clone()),
        Record::Forgotten { uid } => Kind::Forgotten(uid.clone()),
        Record::Held(held) => Kind::Held(hold_message(held)),
        Record::Released(released) => Kind::Released(ReleasedMessage {
            hold: Some(hold_message(&released.hold)),
            at: released.at.as_millis(),
            until: released.until.as_millis(),
        }),
        Record::ClaimUse(use_record) => Kind::Held(claim_user_message(use_record)),
        Record::ClaimUseEnded(use_record) => {
            let at = use_record.since.as_millis();
            Kind::Released(ReleasedMessage { hold: Some(claim_user_message(use_record)), at, until: at })
        }
    };
    RecordMessage { kind: Some(kind) }.encode_to_vec()
}

/// The record with this body; `None` if it is none.
pub(super) fn decode(body: &[u8]) -> Option<Record> {
    Some(match RecordMessage::decode(body).ok()?.kind? {
        Kind::Owned(block) => {
            let cidr = |text: &str| if text.is_empty() { Some(None) } else { text.parse().ok().map(Some) };
            let subnet = Subnet { ipv4: cidr(&block.ipv4)?, ipv6: cidr(&block.ipv6)? };
            let BlockMessage { uid, name, pool, realm, .. } = block;
            Record::Owned(BlockFacts { uid, name, pool, subnet, realm })
        }
        Kind::Fenced(uid) => Record::Fenced { uid },
        Kind::Known(0) => Record::Known(Known::All),
        Kind::Known(1) => Record::Known(Known::Asking),
        // Whatever a newer agent means by another number, it is at most this.
        Kind::Known(_) => Record::Known(Known::Lost),
        Kind::Doubted(uid) => Record::Doubted { uid, doubted: true },
        Kind::Trusted(uid) => Record::Doubted { uid, doubted: false },
        Kind::Forgotten(uid) => Record::Forgotten { uid },
        Kind::Held(held) if held.claim.is_empty() => Record::Held(read_hold(held)?),
        Kind::Held(claim_use) => Record::ClaimUse(read_claim_user(claim_use)?),
        Kind::Released(ReleasedMessage { hold: Some(claim_use), .. }) if !claim_use.claim.is_empty() => {
            Record::ClaimUseEnded(read_claim_user(claim_use)?)
        }
        Kind::Released(released) => Record::Released(Released {
            hold: read_hold(released.hold?)?,
            at: Timestamp::from_millis(released.at),
            until: Timestamp::from_millis(released.until),
        }),
    })
}

fn hold_message(held: &Held) -> HoldMessage {
    HoldMessage {
        block: held.block.clone(),
        network: held.key.network().to_owned(),
        container: held.key.container().to_owned(),
        ifname: held.key.interface().to_owned(),
        pod_namespace: held.pod.namespace.clone(),
        pod_name: held.pod.name.clone(),
        pod_uid: held.pod.uid.clone(),
        interface: held.interface,
        ipv4: held.addresses.ipv4.map(|ip| ip.octets().to_vec()).unwrap_or_default(),
        ipv6: held.addresses.ipv6.map(|ip| ip.octets().to_vec()).unwrap_or_default(),
        sequence: held.sequence.as_u64(),
        since: held.since.as_millis(),
        netns: held.netns.clone(),
        part: held.key.part_number(),
        key_kind: key_kind_of(&held.key),
        ..HoldMessage::default()
    }
}

fn claim_user_message(use_record: &ClaimUseRecord) -> HoldMessage {
    let first = |v4: bool| {
        let mut addresses =
            use_record.addresses.iter().filter(|(address, _)| address.to_ip().is_ipv4() == v4);
        addresses.next().map(|(address, _)| octets(*address)).unwrap_or_default()
    };
    HoldMessage {
        // A separate block each, because two claim users may have the same addresses.
        block: format!("guest:{}", use_record.key),
        network: use_record.key.network().to_owned(),
        container: use_record.key.container().to_owned(),
        ifname: use_record.key.interface().to_owned(),
        pod_namespace: use_record.pod.namespace.clone(),
        pod_name: use_record.pod.name.clone(),
        pod_uid: use_record.pod.uid.clone(),
        interface: use_record.interface,
        ipv4: first(true),
        ipv6: first(false),
        sequence: 1,
        since: use_record.since.as_millis(),
        netns: use_record.netns.clone(),
        part: use_record.key.part_number(),
        claim: use_record.claim.clone(),
        claim_name: use_record.claim_name.clone(),
        reached: use_record.reached,
        pool: use_record.pool.clone(),
        claimed: use_record
            .addresses
            .iter()
            .map(|(address, prefix)| AddressMessage { octets: octets(*address), prefix: (*prefix).into() })
            .collect(),
        key_kind: key_kind_of(&use_record.key),
    }
}

fn read_claim_user(message: HoldMessage) -> Option<ClaimUseRecord> {
    let address = |message: &AddressMessage| {
        let octets = &*message.octets;
        let v4 = <[u8; 4]>::try_from(octets).map(IpAddr::from);
        let ip = v4.or_else(|_| <[u8; 16]>::try_from(octets).map(IpAddr::from)).ok()?;
        Some((Address::from(ip), u8::try_from(message.prefix).ok()?))
    };
    let key = read_key(&message)?;
    Some(ClaimUseRecord {
        addresses: message.claimed.iter().map(address).collect::<Option<_>>()?,
        claim: message.claim,
        claim_name: message.claim_name,
        pool: message.pool,
        key,
        pod: Pod { namespace: message.pod_namespace, name: message.pod_name, uid: message.pod_uid },
        interface: message.interface,
        reached: message.reached,
        since: Timestamp::from_millis(message.since),
        netns: message.netns,
    })
}

fn key_kind_of(key: &HoldKey) -> u32 {
    match (key.is_adopted(), key.network().contains('/')) {
        (adopted, slash) if adopted == slash => key_kind::BY_NAME,
        (true, _) => key_kind::ADOPTED,
        (false, _) => key_kind::NETWORK,
    }
}

fn read_key(message: &HoldMessage) -> Option<HoldKey> {
    let (network, container, interface) =
        (message.network.clone(), message.container.clone(), message.ifname.clone());
    let adopted = match message.key_kind {
        key_kind::BY_NAME => network.contains('/'),
        kind => kind == key_kind::ADOPTED,
    };
    let key = if adopted {
        HoldKey::adopted(network, container, interface)
    } else {
        HoldKey::new(network, container, interface)
    };
    Some(key.ok()?.part(message.part))
}

fn octets(address: Address) -> Vec<u8> {
    match address.to_ip() {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    }
}

fn read_hold(message: HoldMessage) -> Option<Held> {
    let addresses = Addresses {
        ipv4: <[u8; 4]>::try_from(&*message.ipv4).ok().map(Into::into),
        ipv6: <[u8; 16]>::try_from(&*message.ipv6).ok().map(Into::into),
    };
    let lens = (message.ipv4.len(), message.ipv6.len());
    if !matches!(lens, (4, 0 | 16) | (0, 16)) {
        return None;
    }
    let key = read_key(&message)?;
    Some(Held {
        block: message.block,
        key,
        pod: Pod { namespace: message.pod_namespace, name: message.pod_name, uid: message.pod_uid },
        interface: message.interface,
        addresses,
        sequence: Sequence::from_u64(message.sequence),
        since: Timestamp::from_millis(message.since),
        netns: message.netns,
    })
}

#[derive(Clone, PartialEq, prost::Message)]
struct RecordMessage {
    #[prost(oneof = "Kind", tags = "1, 2, 3, 4, 5, 6, 7, 8")]
    kind: Option<Kind>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum Kind {
    #[prost(message, tag = "1")]
    Owned(BlockMessage),
    #[prost(string, tag = "2")]
    Fenced(String),
    #[prost(string, tag = "3")]
    Forgotten(String),
    #[prost(message, tag = "4")]
    Held(HoldMessage),
    #[prost(message, tag = "5")]
    Released(ReleasedMessage),
    #[prost(string, tag = "6")]
    Doubted(String),
    #[prost(string, tag = "7")]
    Trusted(String),
    #[prost(uint32, tag = "8")]
    Known(u32),
}

#[derive(Clone, PartialEq, prost::Message)]
struct BlockMessage {
    #[prost(string, tag = "1")]
    uid: String,
    #[prost(string, tag = "2")]
    name: String,
    #[prost(string, tag = "3")]
    pool: String,
    #[prost(string, tag = "4")]
    ipv4: String,
    #[prost(string, tag = "5")]
    ipv6: String,
    #[prost(string, tag = "6")]
    realm: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct HoldMessage {
    #[prost(string, tag = "1")]
    block: String,
    #[prost(string, tag = "2")]
    network: String,
    #[prost(string, tag = "3")]
    container: String,
    #[prost(string, tag = "4")]
    ifname: String,
    #[prost(string, tag = "5")]
    pod_namespace: String,
    #[prost(string, tag = "6")]
    pod_name: String,
    #[prost(string, tag = "7")]
    pod_uid: String,
    #[prost(bool, tag = "8")]
    interface: bool,
    #[prost(bytes = "vec", tag = "9")]
    ipv4: Vec<u8>,
    #[prost(bytes = "vec", tag = "10")]
    ipv6: Vec<u8>,
    #[prost(uint64, tag = "11")]
    sequence: u64,
    #[prost(uint64, tag = "12")]
    since: u64,
    #[prost(string, tag = "13")]
    netns: String,
    #[prost(uint32, tag = "14")]
    part: u32,
    /// Only of claim users.
    #[prost(string, tag = "15")]
    claim: String,
    #[prost(string, tag = "16")]
    claim_name: String,
    #[prost(bool, tag = "17")]
    reached: bool,
    /// All addresses of the claim, even several of one family.
    #[prost(message, repeated, tag = "18")]
    claimed: Vec<AddressMessage>,
    #[prost(string, tag = "19")]
    pool: String,
    /// Whether the network is known: [`key_kind`].
    #[prost(uint32, tag = "20")]
    key_kind: u32,
}

/// Whether the network of a key is known. Older agents did not write it. Then a slash means that it is not
/// known: the names of pools with adopted records had one, and the names of networks have none. The field is
/// still omitted where that rule gives the right answer.
mod key_kind {
    pub(super) const BY_NAME: u32 = 0;
    pub(super) const NETWORK: u32 = 1;
    pub(super) const ADOPTED: u32 = 2;
}

#[derive(Clone, PartialEq, prost::Message)]
struct AddressMessage {
    #[prost(bytes = "vec", tag = "1")]
    octets: Vec<u8>,
    #[prost(uint32, tag = "2")]
    prefix: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ReleasedMessage {
    #[prost(message, optional, tag = "1")]
    hold: Option<HoldMessage>,
    #[prost(uint64, tag = "2")]
    at: u64,
    #[prost(uint64, tag = "3")]
    until: u64,
}

/// Where a journal comes from.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct HeaderMessage {
    /// The kernel's boot ID.
    #[prost(string, tag = "1")]
    pub(super) boot: String,
    /// The node's name.
    #[prost(string, tag = "2")]
    pub(super) node: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(network: &str, kind: u32) -> HoldKey {
        let message = HoldMessage {
            network: network.into(),
            container: "c".into(),
            ifname: "eth0".into(),
            ipv4: vec![10, 0, 0, 1],
            key_kind: kind,
            ..HoldMessage::default()
        };
        let body = RecordMessage { kind: Some(Kind::Held(message)) }.encode_to_vec();
        match decode(&body) {
            Some(Record::Held(held)) => held.key,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_was_adopted_is_known_also_from_journals_that_do_not_say_it() {
        assert!(!read("k8s", key_kind::BY_NAME).is_adopted());
        assert!(read("whereabouts/net", key_kind::BY_NAME).is_adopted(), "as older agents wrote it");
        assert!(!read("a/b", key_kind::NETWORK).is_adopted());
        assert!(read("net", key_kind::ADOPTED).is_adopted());
    }

    #[test]
    fn the_usual_keys_are_written_as_older_agents_wrote_them() {
        let adopted = |pool: &str| HoldKey::adopted(pool, "c", "eth0").unwrap();
        let ordinary = |network: &str| HoldKey::new(network, "c", "eth0").unwrap();
        assert_eq!(key_kind_of(&ordinary("k8s")), key_kind::BY_NAME);
        assert_eq!(key_kind_of(&adopted("whereabouts/net")), key_kind::BY_NAME);
        assert_eq!(key_kind_of(&ordinary("a/b")), key_kind::NETWORK);
        assert_eq!(key_kind_of(&adopted("net")), key_kind::ADOPTED);
    }
}
