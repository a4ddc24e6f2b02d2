//! The steps without a kernel: any plan, on a model of how the kernel keeps the addresses of a link.

use std::collections::BTreeSet;

use ipnet::IpNet;
use netlink_packet_route::AddressFamily;
use netlink_packet_route::address::{
    AddressAttribute, AddressFlags, AddressMessage, AddressProtocol, CacheInfo,
};
use proptest::prelude::*;

use super::plan::AddressStep;
use super::*;
use crate::link::LinkKind;

/// The IPv4 addresses of a link: the first of each network is primary.
#[derive(Clone, Debug)]
struct Model {
    /// Address, and whether it carries our mark.
    addresses: Vec<(IpNet, bool)>,
    promote: bool,
}

impl Model {
    fn is_secondary(&self, at: usize) -> bool {
        let network = self.addresses[at].0.trunc();
        self.addresses[..at].iter().any(|(earlier, _)| earlier.trunc() == network)
    }

    fn delete(&mut self, address: IpNet) {
        let Some(at) = self.addresses.iter().position(|(it, _)| *it == address) else { return };
        let primary = !self.is_secondary(at);
        self.addresses.remove(at);
        if primary && !self.promote {
            self.addresses.retain(|(it, _)| it.trunc() != address.trunc());
        }
    }

    fn put(&mut self, address: IpNet, ours: bool) {
        if !self.addresses.iter().any(|(it, _)| *it == address) {
            self.addresses.push((address, ours));
        }
    }

    fn state(&self) -> InterfaceState {
        let address = |(at, (address, ours)): (usize, &(IpNet, bool))| {
            let mut message = AddressMessage::default();
            message.header.family = AddressFamily::Inet;
            message.header.prefix_len = address.prefix_len();
            message.attributes = vec![AddressAttribute::Local(address.addr())];
            if self.is_secondary(at) {
                message.attributes.push(AddressAttribute::Flags(AddressFlags::Secondary));
            }
            if *ours {
                message.attributes.push(AddressAttribute::Protocol(AddressProtocol::Other(MARK)));
            }
            InterfaceAddress::read(message).unwrap()
        };
        InterfaceState {
            index: 7,
            name: "eth1".to_owned(),
            kind: LinkKind::Device,
            up: true,
            carrier: true,
            mtu: 1500,
            mac: None,
            addresses: self.addresses.iter().enumerate().map(address).collect(),
            routes: Vec::new(),
        }
    }
}

fn any_address() -> impl Strategy<Value = IpNet> {
    (0..2_u8, 1..5_u8, prop::sample::select(vec![24_u8, 25]))
        .prop_map(|(net, host, length)| IpNet::new([10, 0, net, host].into(), length).unwrap())
}

proptest! {
    /// Whatever exists, and whatever `promote_secondaries` is: afterwards our addresses are exactly the desired ones,
    /// and those of others are all there.
    #[test]
    fn our_addresses_become_the_wanted_ones_and_those_of_others_stay(
        there in prop::collection::vec((any_address(), any::<bool>()), 0..7),
        wanted in prop::collection::btree_set(any_address(), 0..4),
        recorded in prop::collection::btree_set(any_address(), 0..3),
        promote in any::<bool>(),
    ) {
        let mut model = Model { addresses: Vec::new(), promote };
        for (address, ours) in there {
            model.put(address, ours);
        }
        let before = model.clone();
        let plan = InterfacePlan {
            name: "eth1".to_owned(),
            addresses: wanted.iter().copied().collect(),
            recorded: recorded.clone(),
            ..InterfacePlan::default()
        };
        for step in plan.address_steps(&model.state()) {
            match step {
                AddressStep::Delete(address) => model.delete(address),
                AddressStep::Keep(address) => model.put(address.address, address.ours),
                AddressStep::Add(address) => model.put(address, true),
            }
        }
        let after: BTreeSet<IpNet> = model.addresses.iter().map(|(address, _)| *address).collect();
        let others = before.addresses.iter().filter(|(address, ours)| !ours && !recorded.contains(address));
        let expected: BTreeSet<IpNet> = others.map(|(address, _)| *address).chain(wanted).collect();
        prop_assert_eq!(after, expected);
        prop_assert_eq!(plan.differences(Some(&model.state())), vec![]);
        prop_assert_eq!(plan.address_steps(&model.state()), vec![], "what is in order is left alone");
    }
}

#[test]
fn differences_name_what_is_wrong() {
    let model = Model { addresses: vec![("10.0.0.1/24".parse().unwrap(), true)], promote: false };
    let mut state = model.state();
    (state.up, state.mtu) = (false, 1400);
    let plan = InterfacePlan {
        name: "eth1".to_owned(),
        up: true,
        mtu: Some(1500),
        addresses: vec!["10.0.0.2/24".parse().unwrap()],
        ..InterfacePlan::default()
    };
    let words: Vec<String> = plan.differences(Some(&state)).iter().map(ToString::to_string).collect();
    let expected = [
        "it is down",
        "its MTU is 1400 instead of 1500",
        "address 10.0.0.2/24 is missing",
        "address 10.0.0.1/24 is still there",
    ];
    assert_eq!(words, expected);
    assert_eq!(plan.differences(None), [Difference::NoInterface]);
}

#[test]
fn an_address_that_is_not_permanent_is_leased() {
    for (flags, leased) in [
        (AddressFlags::Permanent, None),
        (AddressFlags::Permanent | AddressFlags::Secondary, None),
        (AddressFlags::Noprefixroute, Some(3_600)),
    ] {
        let mut message = AddressMessage::default();
        message.header.family = AddressFamily::Inet;
        message.header.prefix_len = 24;
        let local = AddressAttribute::Local("10.0.0.1".parse().unwrap());
        let mut times = CacheInfo::default();
        times.ifa_valid = 3_600;
        message.attributes = vec![local, AddressAttribute::Flags(flags), AddressAttribute::CacheInfo(times)];
        assert_eq!(InterfaceAddress::read(message).unwrap().leased, leased, "{flags:?}");
    }
}
